"""A person's own module, counted by its trace: against its parameters and PyTorch's counter."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from decoders import D, Net, T, demand_counted, net, row  # noqa: E402
from torch import nn  # noqa: E402

from meshwright import (  # noqa: E402
    Job,
    model_of,
    parameters,
    plan,
)
from refusals import refusal  # noqa: E402

pytestmark = pytest.mark.oracle


class One(nn.Module):
    """One layer, of one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)])


def test_a_loss_inside_is_no_part_of_it() -> None:
    module = net()
    two = torch.zeros(2, T, dtype=torch.long)
    model = model_of(module, (two, two))
    assert model == model_of(module, row(T))
    demand_counted(model, module)


def test_pairs_of_matrices_are_recognised() -> None:
    model = model_of(net(), row(64))
    assert model.traced is not None and len(model.traced.kinds) == 1
    cut = {op.name: op.cut for op in model.traced.kinds[0].ops}
    assert (cut["mix/qkv"], cut["mix/o"]) == ("column", "row")
    assert (cut["ffn/0"], cut["ffn/2"]) == ("column", "row")
    assert cut["n1"] == cut["n2"] == "whole"


def test_autograd_keeps_what_the_trace_says() -> None:
    """Bytes that hooks see on numbers, and those of the trace, but for attention's kernel."""
    module = net()
    model = model_of(module, row(32))
    block = module.blocks[0].ffn
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if not any(
            storage.data_ptr() == p.untyped_storage().data_ptr()
            for p in block.parameters()
        ):
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(1, 32, D)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        keep = block(x)
    assert keep.shape == x.shape
    assert model.traced is not None
    ops = [op for op in model.traced.kinds[0].ops if op.name.startswith("ffn")]
    bytes_ = sum(
        2 * op.inner * op.rows
        if op.kind == "matmul" and op.keeps
        else op.saved
        for op in ops
    )
    # the first matrix's input is what the norm made: nobody before it keeps it
    assert bytes_ * 32 == sum(kept.values()) / 2  # 16 bits for 32


def test_layers_of_two_kinds_and_what_no_layer_reads() -> None:
    module = net()
    module.blocks[1].ffn[1] = nn.ReLU()
    module.blocks[1].extra = nn.Parameter(torch.zeros(7))
    model = model_of(module, row(T))
    assert model.traced is not None
    assert model.traced.order == (0, 1, 0)
    demand_counted(model, module)


def test_it_can_be_planned() -> None:
    model = model_of(net(), row(T))
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
    class Branches(Net):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            if idx.shape[1] > 64:
                self.blocks[0](self.embed(idx))
            return super().forward(idx, targets)

    with refusal("do not grow with tokens"):
        model_of(net("gpt", Branches), row(96))


@pytest.mark.parametrize("way", ["setting", "module"])
def test_code_that_changes_itself_as_it_runs_is_refused(way: str) -> None:
    """As BigBird's: a short pass leaves full attention behind, and longer ones then run that."""

    class Changes(Net):
        kind = "sparse"

        def forward(self, idx: Any, targets: Any = None) -> Any:
            if idx.shape[1] <= 64 and way == "setting":
                self.kind = "full"
            elif idx.shape[1] <= 64:
                self.blocks[1].ffn = nn.Linear(D, D, device=idx.device)
            elif self.kind == "sparse":
                return self.head(self.embed(idx))
            return super().forward(idx, targets)

    where = {"setting": "kind of the model", "module": "blocks.1.ffn"}
    with refusal(f"changes itself .*{where[way]}"):
        model_of(net("gpt", Changes), row(96))


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

    model = model_of(net(), row(96))
    same = with_layers_said(model, {"num_hidden_layers": 3})
    other = with_layers_said(model, {"text_config": {"num_hidden_layers": 4}})
    assert not same.notes
    assert "num_hidden_layers is 4, and 3 layers ran" in " ".join(other.notes)


def test_numbers_that_shapes_say_are_known() -> None:
    """How long a sequence without padding is, as XLM asks; what a table on the CPU holds."""

    class Asks(Net):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            lengths = (idx != 7).sum(dim=1)
            assert lengths.max().item() == idx.shape[1]
            assert torch.ones_like(idx).sum().item() == idx.numel()
            assert torch.arange(5, device="cpu")[-1].item() == 4
            return super().forward(idx, targets)

    model = model_of(net("gpt", Asks), row(96))
    assert model.layers == 3 and not model.notes

    class Changed(Asks):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            marks = torch.zeros_like(idx)
            marks[0, 0] = idx[0, 1]
            return super().forward(idx) * marks.sum().item()

    with refusal(r"depends on the data \(sum"):
        model_of(net("gpt", Changed), row(96))


def test_a_head_over_several_streams_is_counted_for_each() -> None:
    """As ProphetNet's, which predicts two tokens from each."""

    class Streams(Net):
        def forward(self, idx: Any, targets: Any = None) -> Any:
            x = self.embed(idx)
            for block in self.blocks:
                x = block(x)
            return self.head(torch.cat((x, x + 1), dim=1))

    module = net("gpt", Streams)
    module.places = module.norm = None
    demand_counted(model_of(module, row(96)), module)
