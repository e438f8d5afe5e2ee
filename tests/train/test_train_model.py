"""The trained decoder is the counted model; its first weights depend on nothing but seed and
name.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from jobs import (  # noqa: E402
    DEEPSEEK,
    GPT,
    LLAMA,
    LLAMA6,
    MIXTRAL,
    PLAIN_EXPERTS,
    WINDOW,
)  # noqa: E402

from meshwright.catalog import model as catalogue  # noqa: E402
from meshwright.count.model import kinds, parameters  # noqa: E402
from meshwright.describe.job import Job  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.program.parameters import (  # noqa: E402
    expert_shapes,
    layer_shapes,
)
from meshwright.train.initial import blocks, initial  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.moe import MixtureOfExperts  # noqa: E402

FULL_SIZE = (
    "llama3-8b",
    "llama3-70b",
    "qwen3-8b",
    "gpt2",
    "gpt3-175b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
)
SMALL = (GPT, LLAMA, LLAMA6, WINDOW, MIXTRAL, DEEPSEEK, PLAIN_EXPERTS)


@pytest.mark.parametrize(
    "model", [*SMALL, *map(catalogue, FULL_SIZE)], ids=lambda m: m.name
)
def test_parameters_are_those_counted(model: Model) -> None:
    with torch.device("meta"):
        decoder = Decoder(model, range(model.layers), model.seq)
    assert sum(p.numel() for p in decoder.parameters()) == parameters(model)


@pytest.mark.parametrize("model", SMALL, ids=lambda m: m.name)
def test_layers_are_those_of_the_program_in_order(model: Model) -> None:
    """Shapes too; that of the last parameter decides on a peak of memory (`Unit.last`)."""
    job = Job(model, "1xh100-sxm", 1, Layout())
    with torch.device("meta"):
        decoder = Decoder(model, range(model.layers), model.seq)
    for block, kind in zip(decoder.blocks, kinds(model), strict=True):
        real = {n: tuple(p.shape) for n, p in block.named_parameters()}
        experts = {n: real.pop(n) for n in [*real] if ".experts." in n}
        assert [*layer_shapes(job, moe=kind.moe).items()] == [*real.items()]
        wanted = expert_shapes(job).items() if kind.moe else ()
        assert [*wanted] == [*experts.items()]


def test_a_part_is_drawn_as_in_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And of a large matrix only the blocks that it meets are drawn."""
    monkeypatch.setattr("meshwright.train.initial.BLOCK", 16)
    for shape in (torch.Size([40, 56]), torch.Size([3, 40, 24])):
        whole = initial("ffn.up.weight", shape, LLAMA, 1)
        assert len(set(whole.flatten().tolist())) == whole.numel()
        for part in (
            tuple(slice(n // 4, n // 2) for n in shape),
            tuple(slice(n // 3, n) for n in shape),
            tuple(slice(0, 0) for _ in shape),
        ):
            assert torch.equal(
                initial("ffn.up.weight", shape, LLAMA, 1, part), whole[part]
            )
    found = blocks(torch.Size([160, 160]), (slice(32, 64), slice(40, 50)))
    assert [tuple(s.start for s in block) for block in found] == [
        (a, b) for a in (32, 48) for b in (32, 48)
    ]


def test_seeds_and_names_differ() -> None:
    shape = torch.Size([64, 64])
    a, b, c = (
        initial(name, shape, LLAMA, seed)
        for name, seed in (("a", 1), ("b", 1), ("a", 2))
    )
    assert not torch.equal(a, b) and not torch.equal(a, c)
    assert float(a.std()) == pytest.approx(0.02, rel=0.05)
    assert float(
        initial("layers.0.ffn.down.weight", shape, LLAMA, 1).std()
    ) == pytest.approx(0.02 / 8**0.5, rel=0.05)


@pytest.mark.parametrize(
    "model", [MIXTRAL, DEEPSEEK, PLAIN_EXPERTS], ids=lambda m: m.name
)
def test_every_token_goes_through_its_experts(model: Model) -> None:
    """Token by token, expert by expert, from the definition: weights are the softmax over all
    experts, of the k largest, divided by their sum.
    """
    torch.manual_seed(0)
    moe, of = MixtureOfExperts(model), model.moe
    assert of is not None
    for p in moe.parameters():
        torch.nn.init.normal_(p, 0.0, 0.3)
    x_BTD = torch.randn(2, 5, model.hidden)
    got = moe(x_BTD).flatten(0, 1)
    for x, y in zip(x_BTD.flatten(0, 1), got, strict=True):
        chances = moe.router(x).softmax(-1)
        chosen = chances.argsort(descending=True)[: of.top_k].tolist()
        want = sum(
            chances[e] / chances[chosen].sum() * expert(moe, e, x)
            for e in chosen
        )
        if moe.shared is not None:
            want = want + moe.shared(x) * torch.sigmoid(moe.shared_gate(x))
        torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)


def expert(moe: MixtureOfExperts, e: int, x: torch.Tensor) -> torch.Tensor:
    def linear(maps: Any, v: torch.Tensor) -> torch.Tensor:
        return maps.weight[e] @ v + (
            maps.bias[e] if maps.bias is not None else 0
        )

    fn, own = torch.nn.functional, moe.experts
    up = linear(own.up, x)
    return linear(
        own.down,
        fn.gelu(up) if own.gate is None else fn.silu(linear(own.gate, x)) * up,
    )
