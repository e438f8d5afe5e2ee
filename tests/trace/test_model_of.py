"""A person's own module, counted by its trace: against its parameters and PyTorch's counter."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from meshwright import (  # noqa: E402
    Job,
    model_of,
    parameters,
    plan,
)
from meshwright.count.model import operations  # noqa: E402
from refusals import refusal  # noqa: E402

pytestmark = pytest.mark.oracle


class Attention(nn.Module):
    """As nanoGPT writes it: one matrix for queries, keys and values."""

    def __init__(self, D: int, H: int, fused: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(D, 3 * D)
        self.c_proj = nn.Linear(D, D)
        self.H, self.fused = H, fused

    def forward(self, x: Any) -> Any:
        B, T, D = x.shape
        q, k, v = (
            part.view(B, T, self.H, D // self.H).transpose(1, 2)
            for part in self.c_attn(x).split(D, dim=2)
        )
        if self.fused:
            y = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True
            )
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(D // self.H)
            mask = torch.tril(torch.ones(T, T, device=x.device))
            scores = scores.masked_fill(mask == 0, float("-inf"))
            y = functional.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    """x + attention, x + feed-forward; a mixture where there are experts."""

    def __init__(self, D: int, H: int, fused: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn = Attention(D, H, fused)
        self.mlp = nn.Sequential(
            nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    """nanoGPT: learned positions, a head that shares the embedding, the loss inside."""

    def __init__(
        self, L: int, D: int, H: int, V: int, T: int, fused: bool = True
    ) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(V, D),
                "wpe": nn.Embedding(T, D),
                "h": nn.ModuleList(Block(D, H, fused) for _ in range(L)),
                "ln_f": nn.LayerNorm(D),
            }
        )
        self.lm_head = nn.Linear(D, V, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx: Any, targets: Any = None) -> Any:
        of = self.transformer
        x = of.wte(idx) + of.wpe(torch.arange(idx.shape[1], device=idx.device))
        for block in of.h:
            x = block(x)
        logits = self.lm_head(of.ln_f(x))
        if targets is None:
            return logits
        return functional.cross_entropy(
            logits.view(-1, logits.shape[-1]), targets.view(-1)
        )


class One(nn.Module):
    """One layer, of one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)])


def tokens(T: int, b: int = 1) -> Any:
    return torch.zeros(b, T, dtype=torch.long)


def flops(module: nn.Module, T: int) -> int:
    with FlopCounterMode(display=False) as counter:
        module.to("meta")(tokens(T).to("meta"))
    return int(counter.get_total_flops())


@pytest.mark.parametrize("fused", [True, False])
def test_a_decoder_is_counted_as_pytorch_counts_it(fused: bool) -> None:
    module = Decoder(4, 256, 8, 1000, 512, fused)
    own = sum(p.numel() for p in module.parameters())
    model = model_of(module, (tokens(512, 2), tokens(512, 2)))
    assert next(module.parameters()).device.type == "cpu"  # left as it was
    assert parameters(model) == own
    assert (model.layers, model.hidden, model.vocab, model.seq) == (
        4, 256, 1000, 512,
    )  # fmt: skip
    assert (model.heads, model.h, model.tied_embeddings) == (8, 32, True)
    assert model.attention == "causal"
    for T in (256, 384):  # of other lengths than it was traced at
        ours = sum(
            float(op.forward.matrix) * n for op, n in operations(model, T)
        )
        assert ours == pytest.approx(flops(module, T), rel=1e-6)


def test_pairs_of_matrices_are_recognised() -> None:
    model = model_of(Decoder(2, 128, 4, 500, 64), tokens(64))
    assert model.traced is not None and len(model.traced.kinds) == 1
    cut = {op.name: op.cut for op in model.traced.kinds[0].ops}
    assert (cut["attn/c_attn"], cut["attn/c_proj"]) == ("column", "row")
    assert (cut["mlp/0"], cut["mlp/2"]) == ("column", "row")
    assert cut["ln_1"] == cut["ln_2"] == "whole"


def test_autograd_keeps_what_the_trace_says() -> None:
    """Bytes that hooks see on numbers, and those of the trace, but for attention's kernel."""
    module = Decoder(1, 64, 4, 100, 32)
    model = model_of(module, tokens(32))
    block = module.transformer["h"][0].mlp
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if not any(
            storage.data_ptr() == p.untyped_storage().data_ptr()
            for p in block.parameters()
        ):
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(1, 32, 64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        keep = block(x)
    assert keep.shape == x.shape
    assert model.traced is not None
    ops = [op for op in model.traced.kinds[0].ops if op.name.startswith("mlp")]
    bytes_ = sum(
        2 * op.inner * op.rows
        if op.kind == "matmul" and op.keeps
        else op.saved
        for op in ops
    )
    # the first matrix's input is what the norm made: nobody before it keeps it
    assert bytes_ * 32 == sum(kept.values()) / 2  # 16 bits for 32


def test_layers_of_two_kinds_and_what_no_layer_reads() -> None:
    module = Decoder(3, 64, 4, 100, 32)
    module.transformer["h"][1].mlp[1] = nn.ReLU()
    module.transformer["h"][1].extra = nn.Parameter(torch.zeros(7))
    own = sum(p.numel() for p in module.parameters())
    model = model_of(module, tokens(32))
    assert model.traced is not None
    assert model.traced.order == (0, 1, 0) and parameters(model) == own


def test_it_can_be_planned() -> None:
    model = model_of(Decoder(4, 256, 8, 1000, 128), tokens(128))
    best = plan(Job(model, "8xh100-sxm", 64)).best
    assert best.fits and best.step_time_s > 0


def test_what_depends_on_numbers_is_refused_in_a_sentence() -> None:
    class Halts(One):
        def forward(self, x: Any) -> Any:
            x = self.layers[0](x)
            return x if x.sum().item() > 0 else -x

    with refusal("depends on the data"):
        model_of(Halts(), torch.zeros(1, 16, 8))
    with refusal("tokens of a sequence"):
        model_of(Halts(), torch.zeros(8))


def test_operations_that_need_numbers_are_refused_by_their_name() -> None:
    class Loops(One):
        """Over numbers that choose nothing."""

        def forward(self, x: Any) -> Any:
            x = self.layers[0](x)
            for _ in torch.unique(x):
                x = x + 1
            return x

    with refusal(r"depends on the data \(_unique2"):
        model_of(Loops(), torch.zeros(1, 16, 8))


def test_numbers_of_two_widths_are_traced_in_the_wider_one() -> None:
    class Wide(One):
        def forward(self, x: Any) -> Any:
            x = self.layers[0](x)
            return torch.bmm(x, torch.zeros(1, 8, 8, device=x.device))

    model = model_of(Wide(), torch.zeros(1, 48, 8))
    assert "in 32" in " ".join(model.notes)
    assert parameters(model) == 8 * 8 + 8


def test_other_branches_at_other_lengths_are_refused() -> None:
    class Branches(Decoder):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            if idx.shape[1] > 64:
                self.transformer["h"][0](self.transformer["wte"](idx))
            return super().forward(idx, targets)

    with refusal("do not grow with tokens"):
        model_of(Branches(2, 64, 4, 100, 96), tokens(96))


@pytest.mark.parametrize("way", ["setting", "module"])
def test_code_that_changes_itself_as_it_runs_is_refused(way: str) -> None:
    """As BigBird's: a short pass leaves full attention behind, and longer ones then run that."""

    class Changes(Decoder):
        kind = "sparse"

        def forward(self, idx: Any, targets: Any = None) -> Any:
            if idx.shape[1] <= 64 and way == "setting":
                self.kind = "full"
            elif idx.shape[1] <= 64:
                self.transformer["h"][1].mlp = nn.Linear(
                    64, 64, device=idx.device
                )
            elif self.kind == "sparse":
                return self.lm_head(self.transformer["wte"](idx))
            return super().forward(idx, targets)

    where = {"setting": "kind of the model", "module": "transformer.h.1.mlp"}
    with refusal(f"changes itself .*{where[way]}"):
        model_of(Changes(2, 64, 4, 100, 96), tokens(96))


def test_of_layers_with_a_loop_over_tokens_one_is_run() -> None:
    class Loop(nn.Module):
        ran = 0

        def __init__(self) -> None:
            super().__init__()
            self.into = nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            Loop.ran += 1
            x = self.into(x)
            state = x[:, 0]
            for i in range(x.shape[1]):
                state = torch.tanh(state + x[:, i])
            return x + state[:, None]

    class Loops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Loop() for _ in range(6))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    module = Loops()
    model = model_of(module, torch.zeros(1, 3000, 16))
    assert model.layers == 6 and model.traced is not None
    assert model.traced.order == (0,) * 6
    assert parameters(model) == sum(p.numel() for p in module.parameters())
    assert Loop.ran == 3 * 1  # three passes
    for layer in list(module.layers)[3:]:  # one matrix, which the first has
        layer.into.weight = module.layers[0].into.weight
    model = model_of(module, torch.zeros(1, 3000, 16))
    assert (
        model.traced is not None and model.traced.order == (0,) * 3 + (1,) * 3
    )
    assert parameters(model) == sum(p.numel() for p in module.parameters())


def test_scores_may_weigh_several_values() -> None:
    """Differential attention: one softmax, two products behind it."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: Any) -> Any:
            scores = self.q(x) @ self.k(x).transpose(-2, -1)
            weights = scores.softmax(-1)
            return x + weights @ x + weights @ torch.tanh(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Two(), Two()])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    model = model_of(Net(), torch.zeros(1, 96, 32))
    assert model.traced is not None and model.attention == "full"
    (core,) = (
        op for op in model.traced.kinds[0].ops if op.kind == "attention"
    )
    assert (core.heads, core.query, core.value) == (1, 32, 64)


def test_a_branch_on_data_is_said() -> None:
    class Asks(One):
        def forward(self, x: Any) -> Any:
            x = self.layers[0](x)
            return torch.tanh(x) if x.sum() > 0 else x

    class Positive(Asks):
        def forward(self, x: Any) -> Any:
            x = self.layers[0](x)
            return torch.tanh(x) if torch.all(x > 0) else x

    class Padded(Asks):
        def forward(self, x: Any, mask: Any) -> Any:
            x = self.layers[0](x)
            return torch.tanh(x) if torch.all(mask) else x

    tokens = torch.zeros(1, 48, 8)
    for asks in (Asks, Positive):
        asked = " ".join(model_of(asks(), tokens).notes)
        assert "the way of a yes is counted" in asked
    mask = torch.ones(1, 48, dtype=torch.bool)
    assert not model_of(Padded(), (tokens, mask)).notes


def test_other_layers_than_the_file_states_are_said() -> None:
    from meshwright.trace.build import with_layers_said

    model = model_of(Decoder(2, 64, 4, 100, 96), tokens(96))
    same = with_layers_said(model, {"num_hidden_layers": 2})
    other = with_layers_said(model, {"text_config": {"num_hidden_layers": 3}})
    assert not same.notes
    assert "num_hidden_layers is 3, and 2 layers ran" in " ".join(other.notes)


def test_numbers_that_shapes_say_are_known() -> None:
    """How long a sequence without padding is, as XLM asks; what a table on the CPU holds."""

    class Asks(Decoder):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            lengths = (idx != 7).sum(dim=1)
            assert lengths.max().item() == idx.shape[1]
            assert torch.ones_like(idx).sum().item() == idx.numel()
            assert torch.arange(5, device="cpu")[-1].item() == 4
            return super().forward(idx, targets)

    model = model_of(Asks(2, 64, 4, 100, 96), tokens(96))
    assert model.layers == 2 and not model.notes

    class Changed(Asks):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            marks = torch.zeros_like(idx)
            marks[0, 0] = idx[0, 1]
            return super().forward(idx) * marks.sum().item()

    with refusal(r"depends on the data \(sum"):
        model_of(Changed(2, 64, 4, 100, 96), tokens(96))


def test_a_head_over_several_streams_is_counted_for_each() -> None:
    """As ProphetNet's, which predicts two tokens from each."""

    class Streams(Decoder):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            x = self.transformer["wte"](idx)
            for block in self.transformer["h"]:
                x = block(x)
            return self.lm_head(torch.cat((x, x + 1), dim=1))

    module = Streams(2, 64, 4, 1000, 96)
    module.transformer["wpe"] = nn.Identity()
    model = model_of(module, tokens(96))
    ours = sum(float(op.forward.matrix) * n for op, n in operations(model, 90))
    assert ours == pytest.approx(flops(module, 90), rel=1e-6)
