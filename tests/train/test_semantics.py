"""Strict semantics: every layout trains as one process does. Losses of 20 steps within 1e-5,
gradients at the first, a middle and the last step within 1e-5 of each tensor's largest element, the
same bits wherever a weight is held twice, checked after every step.

Gradients are compared at the weights the run has then: rounding that 19 updates of Adam amplify is
no difference between layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import (  # noqa: E402
    DEEPSEEK,
    FEW_EXPERTS,
    GPT,
    LLAMA,
    LLAMA6,
    MIXTRAL,
    PLAIN_EXPERTS,
    SETTINGS,
    WINDOW,
    gradients,
    job,
    reference,
    share,
    tokens,
)

from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.describe.training import Settings  # noqa: E402
from meshwright.train import initial as replicas  # noqa: E402
from meshwright.train import rules  # noqa: E402
from meshwright.train.launch import RankFailed, fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402

INTERLEAVED = {"interleave": 2, "schedule": "interleaved"}
AXES = {
    "accumulation": (GPT, Layout(dp=1, microbatch=2)),
    "selective recompute": (
        LLAMA,
        Layout(dp=1, microbatch=4, recompute="selective"),
    ),
    "full recompute": (GPT, Layout(dp=1, microbatch=4, recompute="full")),
    "tp2 sp": (LLAMA, Layout(tp=2, dp=1, microbatch=8)),
    "tp2": (GPT, Layout(tp=2, dp=1, microbatch=8, sequence_parallel=False)),
    "cp2": (LLAMA, Layout(cp=2, dp=1, microbatch=4)),
    "pp2 gpipe": (LLAMA, Layout(pp=2, dp=1, microbatch=2, schedule="gpipe")),
    "pp4 1f1b uneven": (
        replace(LLAMA6, tied_embeddings=True),
        Layout(pp=4, dp=1, microbatch=2),
    ),
    "pp2 interleaved": (GPT, Layout(pp=2, dp=1, microbatch=2, **INTERLEAVED)),
    "pp2 interleaved-zb": (
        LLAMA,
        Layout(
            pp=2, dp=1, microbatch=2, interleave=2, schedule="interleaved-zb"
        ),
    ),
    "pp2 zbv": (GPT, Layout(pp=2, dp=1, microbatch=2, schedule="zbv")),
    "pp2 dualpipev": (
        LLAMA,
        Layout(pp=2, dp=1, microbatch=2, schedule="dualpipev"),
    ),
    "dp2 zero0": (GPT, Layout(dp=2, microbatch=2)),
    "dp2 zero1": (LLAMA, Layout(dp=2, microbatch=2, zero=1)),
    "dp2 zero2": (LLAMA, Layout(dp=2, microbatch=2, zero=2)),
    "dp2 zero3": (GPT, Layout(dp=2, microbatch=2, zero=3)),
}
"""Every axis and option alone."""
PAIRS = {
    "tp2 pp2": (GPT, Layout(tp=2, pp=2, dp=1, microbatch=4)),
    "tp2 dp2 zero1": (LLAMA6, Layout(tp=2, dp=2, zero=1, microbatch=4)),
    "cp2 dp2 zero3 windows": (
        WINDOW,
        Layout(cp=2, dp=2, zero=3, microbatch=4),
    ),
    "pp2 dp2 interleaved zero2": (
        LLAMA,
        Layout(pp=2, dp=2, microbatch=1, zero=2, **INTERLEAVED),
    ),
    "pp2 dp2 zbv zero2": (
        GPT,
        Layout(pp=2, dp=2, microbatch=1, schedule="zbv", zero=2),
    ),
    "dp4 hybrid": (LLAMA, Layout(dp=4, microbatch=2, zero=3)),
    "tp2 cp2 selective": (
        GPT,
        Layout(tp=2, cp=2, dp=1, microbatch=8, recompute="selective"),
    ),
    "tp2 pp2 interleaved full": (
        LLAMA,
        Layout(
            tp=2, pp=2, dp=1, microbatch=4, recompute="full", **INTERLEAVED
        ),
    ),
    "cp2 pp2 interleaved-zb": (
        GPT,
        Layout(
            cp=2,
            pp=2,
            dp=1,
            microbatch=2,
            interleave=2,
            schedule="interleaved-zb",
        ),
    ),
}
"""Combinations at 4 ranks."""
EIGHT = {
    "tp2 pp2 dp2 interleaved zero1": (
        LLAMA,
        Layout(tp=2, pp=2, dp=2, zero=1, microbatch=2, **INTERLEAVED),
    ),
    "tp2 pp2 dp2 zbv zero2": (
        GPT,
        Layout(tp=2, pp=2, dp=2, zero=2, microbatch=2, schedule="zbv"),
    ),
    "tp2 pp2 dp2 zero3": (GPT, Layout(tp=2, pp=2, dp=2, zero=3, microbatch=2)),
    "cp2 pp2 dp2 1f1b": (
        GPT,
        Layout(cp=2, pp=2, dp=2, microbatch=2, zero=2, recompute="full"),
    ),
    "tp2 cp2 dp2 zero3": (
        LLAMA,
        Layout(tp=2, cp=2, dp=2, zero=3, microbatch=4),
    ),
    "pp4 dp2 dualpipev": (
        Model("8", 8, 64, 4, 128, 256, 32),
        Layout(pp=4, dp=2, microbatch=1, schedule="dualpipev"),
    ),
}
"""Combinations at 8 ranks."""
EXPERTS = {
    "experts, full recompute": (
        DEEPSEEK,
        Layout(dp=1, microbatch=4, recompute="full"),
    ),
    "dp2 ep2": (MIXTRAL, Layout(dp=2, ep=2, microbatch=2)),
    "dp2 ep2 zero3": (DEEPSEEK, Layout(dp=2, ep=2, zero=3, microbatch=4)),
    "tp2 ep2": (DEEPSEEK, Layout(tp=2, dp=1, ep=2, microbatch=8)),
    "pp2 dp2 ep2 interleaved-zb": (
        PLAIN_EXPERTS,
        Layout(
            pp=2,
            dp=2,
            ep=2,
            microbatch=2,
            interleave=2,
            schedule="interleaved-zb",
        ),
    ),
}
"""Mixtures of experts: the ways in which experts can be spread, once each."""
MORE_EXPERTS = {
    "dp2 zero1": (PLAIN_EXPERTS, Layout(dp=2, zero=1, microbatch=4)),
    "tp2": (MIXTRAL, Layout(tp=2, dp=1, microbatch=4)),
    "cp2 ep2": (MIXTRAL, Layout(cp=2, dp=1, ep=2, microbatch=4)),
    "dp2 ep2 zero1": (MIXTRAL, Layout(dp=2, ep=2, zero=1, microbatch=2)),
    "dp2 ep2 zero2": (DEEPSEEK, Layout(dp=2, ep=2, zero=2, microbatch=2)),
    "dp4 ep2": (DEEPSEEK, Layout(dp=4, ep=2, microbatch=2)),
    "dp4 ep2 zero1": (DEEPSEEK, Layout(dp=4, ep=2, zero=1, microbatch=2)),
    "dp4 ep2 zero2": (PLAIN_EXPERTS, Layout(dp=4, ep=2, zero=2, microbatch=1)),
    "dp4 ep2 zero3": (MIXTRAL, Layout(dp=4, ep=2, zero=3, microbatch=2)),
    "dp4 ep4 zero1 full": (
        MIXTRAL,
        Layout(dp=4, ep=4, zero=1, microbatch=2, recompute="full"),
    ),
    "dp4 zero3, parts of experts": (
        FEW_EXPERTS,
        Layout(dp=4, zero=3, microbatch=2),
    ),
    "tp2 dp2 ep4 zero1": (
        DEEPSEEK,
        Layout(tp=2, dp=2, ep=4, zero=1, microbatch=2),
    ),
    "tp2 dp2 ep2 zero2": (
        DEEPSEEK,
        Layout(tp=2, dp=2, ep=2, zero=2, microbatch=2),
    ),
    "cp2 dp2 ep4": (MIXTRAL, Layout(cp=2, dp=2, ep=4, microbatch=4)),
    "tp2 pp2 ep2 1f1b": (
        MIXTRAL,
        Layout(tp=2, pp=2, dp=1, ep=2, microbatch=2),
    ),
    "pp2 dp2 ep2 1f1b": (MIXTRAL, Layout(pp=2, dp=2, ep=2, microbatch=2)),
    "pp2 dp2 ep2 interleaved zero1 full": (
        DEEPSEEK,
        Layout(
            pp=2,
            dp=2,
            ep=2,
            zero=1,
            microbatch=2,
            recompute="full",
            **INTERLEAVED,
        ),
    ),
    "pp2 dp2 ep2 zbv": (
        MIXTRAL,
        Layout(pp=2, dp=2, ep=2, microbatch=1, schedule="zbv"),
    ),
    "pp2 dp2 ep2 dualpipev zero1": (
        DEEPSEEK,
        Layout(pp=2, dp=2, ep=2, zero=1, microbatch=1, schedule="dualpipev"),
    ),
    "tp2 pp2 dp2 ep4 interleaved zero1": (
        DEEPSEEK,
        Layout(tp=2, pp=2, dp=2, ep=4, zero=1, microbatch=2, **INTERLEAVED),
    ),
    "tp2 pp2 dp2 ep2 zbv zero2": (
        MIXTRAL,
        Layout(tp=2, pp=2, dp=2, ep=2, zero=2, microbatch=2, schedule="zbv"),
    ),
    "cp2 pp2 dp2 ep2 1f1b zero3": (
        DEEPSEEK,
        Layout(cp=2, pp=2, dp=2, ep=2, zero=3, microbatch=2),
    ),
}
"""Mixtures of experts in combinations at 2, 4 and 8 ranks."""
expected = cache(reference)
CHECKED = (0, SETTINGS.steps // 2, SETTINGS.steps - 1)
"""Steps whose gradients are compared."""


def train(
    model: Model, layout: Layout, folder: Path, settings: Settings
) -> None:
    """Twenty steps, checked and written down by every rank."""
    wanted = job(model, layout, batch(layout))
    rules.demand(wanted, settings)

    def work(device: torch.device) -> None:
        trainer = Trainer(wanted, settings, device)
        found: dict[str, Any] = {"losses": [], "norms": [], "shared": 0}
        for step in range(settings.steps):
            if step in CHECKED:
                found[f"weights {step}"] = whole(
                    {n: p.detach() for n, p in trainer.parameters().items()}
                )
            inputs, targets = share(trainer, tokens(step, wanted.batch))
            loss, norm = trainer.backward(inputs, targets)
            if step in CHECKED:
                found[f"gradients {step}"] = whole(
                    {n: p.grad for n, p in trainer.parameters().items()}
                )
            trainer.update(step, norm)
            found["shared"] = replicas.check_replicas(trainer.stages, step)
            found["losses"].append(loss)
            found["norms"].append(norm)
        found["weights"] = whole(
            {n: p.detach() for n, p in trainer.parameters().items()}
        )
        torch.save(found, folder / f"{dist.get_rank()}.pt")

    fork_ranks(work, int(layout.chips), timeout_s=120)


def batch(layout: Layout) -> int:
    """Sequences of a step; DualPipeV on four ranks wants at least eight microbatches."""
    return 16 if layout.schedule == "dualpipev" and layout.pp == 4 else 8


def whole(tensors: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (x.full_tensor() if hasattr(x, "full_tensor") else x).clone()
        for name, x in tensors.items()
    }


def far(got: Any, want: Any, least: float) -> float:
    """Largest difference over the tensor's largest element, or over `least` (biases of keys have no
    gradient in exact arithmetic).
    """
    return float(
        (got - want).abs().max() / max(float(want.abs().max()), least)
    )


def agrees(
    model: Model,
    layout: Layout,
    folder: Path,
    shards: int | None = None,
    weight_decay: float | None = 0.1,
) -> None:
    want = expected(
        model, replace(SETTINGS, weight_decay=weight_decay), batch(layout)
    )
    train(
        model,
        layout,
        folder,
        replace(SETTINGS, shards=shards, weight_decay=weight_decay),
    )
    ranks = [torch.load(file) for file in folder.glob("*.pt")]
    assert len(ranks) == layout.chips
    for found in ranks:
        assert found["losses"] == pytest.approx(want["losses"], abs=1e-5)
        assert found["norms"] == pytest.approx(want["norms"], rel=1e-4)
        assert found["norms"][0] == pytest.approx(want["norms"][0], rel=1e-5)
        assert (
            found["shared"] > 0
            or layout.tp * layout.cp * layout.dp == 1
            or layout.zero
        )
        for name, got in found["weights"].items():
            # one update is 0.05
            assert (
                far(got, want["weights"][owner(model, name)], 0.02) < 1e-3
            ), name
    for step in CHECKED:
        same_gradients(model, ranks, step, batch(layout))


def owner(model: Model, name: str) -> str:
    """The parameter a name stands for: a tied head on a stage of its own is the embedding."""
    return (
        "embedding.weight"
        if name == "head.weight" and model.tied_embeddings
        else name
    )


def same_gradients(
    model: Model, ranks: list[dict[str, Any]], step: int, batch: int
) -> None:
    """Every rank's gradients are those of one process at the weights all ranks have together."""
    weights = {
        owner(model, name): x
        for found in ranks
        for name, x in found[f"weights {step}"].items()
    }
    want = gradients(model, weights, step, batch)
    assert set(want) == set(weights)
    for found in ranks:
        for name, got in found[f"gradients {step}"].items():
            assert far(got, want[owner(model, name)], 1e-4) < 1e-5, (
                step,
                name,
            )


Run = Callable[[Model, Layout, Path], None]


@pytest.mark.parametrize("name", AXES)
def test_axis(name: str, tmp_path: Path) -> None:
    agrees(*AXES[name], tmp_path)


@pytest.mark.parametrize("name", PAIRS)
def test_four_ranks(name: str, tmp_path: Path) -> None:
    agrees(*PAIRS[name], tmp_path, shards=2 if "hybrid" in name else None)


@pytest.mark.parametrize("name", EXPERTS)
def test_experts(name: str, tmp_path: Path) -> None:
    agrees(*EXPERTS[name], tmp_path)


STRONG = 10.0
"""A weight decay that takes a fifth of what decays in 20 steps: who decays wrongly is off by a
hundred times the tolerance.
"""


@pytest.mark.parametrize(
    "layout",
    [Layout(dp=1, microbatch=8), Layout(dp=2, ep=2, zero=1, microbatch=4)],
    ids=["1", "ep2"],
)
def test_what_decays(layout: Layout, tmp_path: Path) -> None:
    """Biases of experts have two dims, and do not."""
    agrees(PLAIN_EXPERTS, layout, tmp_path, weight_decay=STRONG)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_EXPERTS)
def test_more_experts(name: str, tmp_path: Path) -> None:
    agrees(*MORE_EXPERTS[name], tmp_path)


def test_replicas_of_experts_that_differ_are_found() -> None:
    """With ep 2 of dp 4, ranks 0 and 2 hold the first half of the experts, 1 and 3 the second."""

    def work(device: torch.device) -> None:
        trainer = Trainer(job(MIXTRAL, Layout(dp=4, ep=2)), SETTINGS, device)
        assert replicas.check_replicas(trainer.stages, 0) > 0
        if dist.get_rank() == 2:
            weight = trainer.parameters()[
                "layers.1.ffn.experts.down.weight"
            ].to_local()
            assert weight.shape[0] == 4
            weight.view(torch.int32)[3, 0, 0] ^= 1
        replicas.check_replicas(trainer.stages, 7)

    with pytest.raises(
        RankFailed,
        match="ranks 0 and 2 hold different values of layers.1.ffn.experts.down.weight",
    ):
        fork_ranks(work, 4, timeout_s=60)


def test_replicas_that_differ_are_found() -> None:
    """One bit of one weight on one of four ranks."""

    def work(device: torch.device) -> None:
        trainer = Trainer(job(GPT, Layout(tp=2, dp=2)), SETTINGS, device)
        assert replicas.check_replicas(trainer.stages, 0) > 0
        if dist.get_rank() == 3:
            weight = trainer.parameters()["layers.1.ffn.up.weight"].to_local()
            weight.view(torch.int32)[0, 0] ^= 1
        replicas.check_replicas(trainer.stages, 7)

    with pytest.raises(
        RankFailed,
        match="after step 7, ranks 1 and 3 hold different values of layers.1.ffn.up.weight",
    ):
        fork_ranks(work, 4, timeout_s=60)


@pytest.mark.slow
@pytest.mark.parametrize("name", EIGHT)
def test_eight_ranks(name: str, tmp_path: Path) -> None:
    agrees(*EIGHT[name], tmp_path)
