"""Code whose shapes the data choose: experts in loops as people write them, against PyTorch's
counter on numbers; layers that are lists of modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from decoders import (  # noqa: E402
    Attention,
    Block,
    D,
    Net,
    Plain,
    T,
    demand_counted,
    row,
)
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from meshwright import Model, model_of  # noqa: E402
from meshwright.count.model import operations  # noqa: E402
from refusals import refusal  # noqa: E402

pytestmark = pytest.mark.oracle

FFN, E, K = 4 * D, 8, 2


def expert() -> nn.Module:
    return Plain(nn.SiLU())


class Experts(nn.Module):
    """A router and its experts; each subclass finds the tokens of an expert in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList(expert() for _ in range(E))

    def forward(self, x: Any) -> Any:
        flat = x.flatten(0, 1)
        share, chosen = self.router(flat).softmax(-1).topk(K)
        return self.mix(flat, share, chosen).view_as(x)

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        raise NotImplementedError


class ByMask(Experts):
    """Rows of a mask, and only if it has any."""

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            mine = (chosen == e).any(-1)
            if mine.any():
                weight = (share * (chosen == e)).sum(-1)[mine]
                out[mine] += expert(x[mine]) * weight[:, None]
        return out


class ByOneHot(Experts):
    """Positions in a mask of all experts, as transformers had it for Mixtral."""

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        out = torch.zeros_like(x)
        marks = F.one_hot(chosen, E).permute(2, 1, 0)
        used = torch.greater(marks.sum(dim=(-1, -2)), 0).nonzero()
        for e in used:
            place, token = torch.where(marks[e].squeeze(0))
            made = self.experts[int(e)](x[token]) * share[token, place, None]
            out.index_add_(0, token, made)
        return out


class ByCounts(Experts):
    """How many tokens each has, as DeepSeek's reference asks."""

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        out = torch.zeros_like(x)
        counts = torch.bincount(chosen.flatten(), minlength=E).tolist()
        for e, expert in enumerate(self.experts):
            if counts[e] == 0:
                continue
            token, place = torch.where(chosen == e)
            out[token] += expert(x[token]) * share[token, place, None]
        return out


class ByNames(Experts):
    """Which experts were chosen at all."""

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        out = torch.zeros_like(x)
        for name in torch.unique(chosen):
            e = int(name.item())
            token = (chosen == e).any(-1).nonzero().squeeze(-1)
            place = (chosen == e)[token].int().argmax(-1, keepdim=True)
            weight = share.index_select(0, token).gather(-1, place)
            made = self.experts[e](x.index_select(0, token)) * weight
            out.index_add_(0, token, made)
        return out


class ByStacks(Experts):
    """All matrices of a kind in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList()
        self.up = nn.Parameter(torch.randn(E, FFN, D) / 16)
        self.down = nn.Parameter(torch.randn(E, D, FFN) / 16)

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        out = torch.zeros_like(x)
        for e in range(E):
            token, place = torch.where(chosen == e)
            made = F.linear(
                F.silu(F.linear(x[token], self.up[e])), self.down[e]
            )
            out.index_add_(0, token, made * share[token, place, None])
        return out


class ByKind(ByNames):
    """A list for each kind of matrix, and none for the expert."""

    def __init__(self) -> None:
        super().__init__()
        ups = nn.ModuleList(nn.Linear(D, FFN) for _ in range(E))
        downs = nn.ModuleList(nn.Linear(FFN, D) for _ in range(E))
        self.experts, self.ups, self.downs = nn.ModuleList(), ups, downs

    def mix(self, x: Any, share: Any, chosen: Any) -> Any:
        pairs = zip(self.ups, self.downs, strict=True)
        self.__dict__["experts"] = [
            lambda x, a=a, b=b: b(F.silu(a(x))) for a, b in pairs
        ]
        made = super().mix(x, share, chosen)
        del self.__dict__["experts"]
        return made


def around(inside: Callable[[], nn.Module]) -> Net:
    """A decoder of two layers with this behind its attention."""
    norm = nn.LayerNorm
    return Net([Block(Attention(), inside(), norm) for _ in range(2)])


def traced(module: nn.Module) -> Model:
    return model_of(module, row(T))


def flops(model: Model, tokens: int) -> float:
    return sum(
        float(op.forward.matrix) * n for op, n in operations(model, tokens)
    )


@pytest.mark.parametrize(
    "way", [ByMask, ByOneHot, ByCounts, ByNames, ByStacks, ByKind]
)
def test_experts_in_loops_are_counted_as_numbers_are(
    way: type[nn.Module],
) -> None:
    torch.manual_seed(0)
    module = around(way)
    model = traced(module)
    demand_counted(model, module)
    assert model.moe and not model.notes
    assert (model.moe.experts, model.moe.top_k, model.moe.expert_ffn) == (
        E,
        K,
        FFN,
    )
    cuts = {op.cut for op in model.traced.kinds[0].ops if op.kind == "experts"}
    assert len(model.traced.kinds) == 1 and cuts == {"column", "row"}


def test_a_question_that_only_data_answer_is_said() -> None:
    """Whether any of the activations is large; whether any is no number is answered: no."""

    class Asks(nn.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            assert not torch.isnan(y).any() and torch.isfinite(y).all()
            assert not torch.isinf(y).any()
            return super().forward(y) if (y > 100).any() else y

    def module(kind: type[nn.Linear]) -> nn.Module:
        return around(lambda: kind(D, D))

    plain, asks = traced(module(nn.Linear)), traced(module(Asks))
    assert "asks of its data" in " ".join(asks.notes)
    assert flops(asks, T) - flops(plain, T) == 2 * 2 * T * D * D


def test_masks_of_unknown_share_are_refused() -> None:
    class Large(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x.index_add(1, (x[0, :, 0] > 1).nonzero()[:, 0], x)

    with refusal(r"depends on the data \(nonzero"):
        traced(around(lambda: Large(D, D)))


class Lists(Net):
    """Layers that are lists of two modules, with the residual stream between."""

    def __init__(self) -> None:
        super().__init__(
            [nn.ModuleList([nn.Linear(D, D), expert()]) for _ in range(3)]
        )

    def forward(self, tokens: Any, targets: Any = None) -> Any:
        x = self.embed(tokens)
        for mix, ffn in self.blocks:
            x = mix(x) + x
            x = ffn(x) + x
        return self.head(x)


def test_layers_may_be_lists_of_modules() -> None:
    module = Lists()
    module.norm = nn.Identity()
    model = traced(module)
    assert model.layers == 3 and model.ffn == FFN and model.hidden == D
    demand_counted(model, module)
    first, second, last = model.traced.order
    assert first == second
    # what is added after the last module of all stands behind the layers
    names = [[op.name for op in kind.ops] for kind in model.traced.kinds]
    assert names[first] == ["0", "layer", "1/0", "1/1", "1/2"]
    assert set(names[last]) <= set(names[first])


def test_modules_at_one_place_of_two_lists_are_two() -> None:
    """Both are column and row of their own, which one module of four matrices would not be."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.ModuleList([expert()]) for _ in range(2))

        def forward(self, x: Any) -> Any:
            return self.b[0](self.a[0](x))

    ops = traced(around(Twice)).traced.kinds[0].ops
    cuts = {
        op.name: op.cut
        for op in ops
        if op.kind == "matmul" and op.name.startswith("ffn")
    }
    assert cuts == {
        f"ffn/{name}/0/{part}": cut
        for name in "ab"
        for part, cut in (("0", "column"), ("2", "row"))
    }
