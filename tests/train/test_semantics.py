"""Strict semantics: every layout trains as one process does. Losses of 20 steps within 1e-5,
gradients at the first, a middle and the last step within 1e-5 of each tensor's largest element, the
same bits wherever a weight is held twice, checked after every step.

Gradients are compared at the weights the run has then: rounding that 19 updates of Adam amplify is
no difference between layouts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
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
    each_rank,
    gradients,
    job,
    loss_and_norm,
    reference,
    share,
    tokens,
)

from layouts import cut  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.describe.training import Settings  # noqa: E402
from meshwright.train import initial as replicas  # noqa: E402
from meshwright.train import rules  # noqa: E402
from meshwright.train.launch import RankFailed, fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402

AXES = {
    "accumulation": (GPT, "microbatch2"),
    "selective recompute": (LLAMA, "microbatch4 selective"),
    "full recompute": (GPT, "microbatch4 full"),
    "tp2 sp": (LLAMA, "tp2 microbatch8"),
    "tp2": (GPT, "tp2 microbatch8 whole"),
    "cp2": (LLAMA, "cp2 microbatch4"),
    "pp2 gpipe": (LLAMA, "pp2 microbatch2 gpipe"),
    "pp4 1f1b uneven": (
        replace(LLAMA6, tied_embeddings=True),
        "pp4 microbatch2",
    ),
    "pp2 interleaved": (GPT, "pp2 microbatch2 interleave2 interleaved"),
    "pp2 interleaved-zb": (
        LLAMA,
        "pp2 microbatch2 interleave2 interleaved-zb",
    ),
    "pp2 zbv": (GPT, "pp2 microbatch2 zbv"),
    "pp2 dualpipev": (LLAMA, "pp2 microbatch2 dualpipev"),
    "dp2 zero0": (GPT, "dp2 microbatch2"),
    "dp2 zero1": (LLAMA, "dp2 zero1 microbatch2"),
    "dp2 zero2": (LLAMA, "dp2 zero2 microbatch2"),
    "dp2 zero3": (GPT, "dp2 zero3 microbatch2"),
}
"""Every axis and option alone."""
PAIRS = {
    "tp2 pp2": (GPT, "tp2 pp2 microbatch4"),
    "tp2 dp2 zero1": (LLAMA6, "tp2 dp2 zero1 microbatch4"),
    "cp2 dp2 zero3 windows": (WINDOW, "cp2 dp2 zero3 microbatch4"),
    "pp2 dp2 interleaved zero2": (
        LLAMA,
        "pp2 dp2 zero2 microbatch1 interleave2 interleaved",
    ),
    "pp2 dp2 zbv zero2": (GPT, "pp2 dp2 zero2 microbatch1 zbv"),
    "dp4 hybrid": (LLAMA, "dp4 zero3 microbatch2"),
    "tp2 cp2 selective": (GPT, "tp2 cp2 microbatch8 selective"),
    "tp2 pp2 interleaved full": (
        LLAMA,
        "tp2 pp2 microbatch4 interleave2 interleaved full",
    ),
    "cp2 pp2 interleaved-zb": (
        GPT,
        "cp2 pp2 microbatch2 interleave2 interleaved-zb",
    ),
}
"""Combinations at 4 ranks."""
EIGHT = {
    "tp2 pp2 dp2 interleaved zero1": (
        LLAMA,
        "tp2 pp2 dp2 zero1 microbatch2 interleave2 interleaved",
    ),
    "tp2 pp2 dp2 zbv zero2": (GPT, "tp2 pp2 dp2 zero2 microbatch2 zbv"),
    "tp2 pp2 dp2 zero3": (GPT, "tp2 pp2 dp2 zero3 microbatch2"),
    "cp2 pp2 dp2 1f1b": (GPT, "cp2 pp2 dp2 zero2 microbatch2 full"),
    "tp2 cp2 dp2 zero3": (LLAMA, "tp2 cp2 dp2 zero3 microbatch4"),
    "pp4 dp2 dualpipev": (
        Model("8", 8, 64, 4, 128, 256, 32),
        "pp4 dp2 microbatch1 dualpipev",
    ),
}
"""Combinations at 8 ranks."""
EXPERTS = {
    "experts, full recompute": (DEEPSEEK, "microbatch4 full"),
    "dp2 ep2": (MIXTRAL, "dp2 ep2 microbatch2"),
    "dp2 ep2 zero3": (DEEPSEEK, "dp2 ep2 zero3 microbatch4"),
    "tp2 ep2": (DEEPSEEK, "tp2 ep2 microbatch8"),
    "pp2 dp2 ep2 interleaved-zb": (
        PLAIN_EXPERTS,
        "pp2 dp2 ep2 microbatch2 interleave2 interleaved-zb",
    ),
}
"""Mixtures of experts: the ways in which experts can be spread, once each."""
MORE_EXPERTS = {
    "experts, dp2 zero1": (PLAIN_EXPERTS, "dp2 zero1 microbatch4"),
    "experts, tp2": (MIXTRAL, "tp2 microbatch4"),
    "cp2 ep2": (MIXTRAL, "cp2 ep2 microbatch4"),
    "dp2 ep2 zero1": (MIXTRAL, "dp2 ep2 zero1 microbatch2"),
    "dp2 ep2 zero2": (DEEPSEEK, "dp2 ep2 zero2 microbatch2"),
    "dp4 ep2": (DEEPSEEK, "dp4 ep2 microbatch2"),
    "dp4 ep2 zero1": (DEEPSEEK, "dp4 ep2 zero1 microbatch2"),
    "dp4 ep2 zero2": (PLAIN_EXPERTS, "dp4 ep2 zero2 microbatch1"),
    "dp4 ep2 zero3": (MIXTRAL, "dp4 ep2 zero3 microbatch2"),
    "dp4 ep4 zero1 full": (MIXTRAL, "dp4 ep4 zero1 microbatch2 full"),
    "dp4 zero3, parts of experts": (FEW_EXPERTS, "dp4 zero3 microbatch2"),
    "tp2 dp2 ep4 zero1": (DEEPSEEK, "tp2 dp2 ep4 zero1 microbatch2"),
    "tp2 dp2 ep2 zero2": (DEEPSEEK, "tp2 dp2 ep2 zero2 microbatch2"),
    "cp2 dp2 ep4": (MIXTRAL, "cp2 dp2 ep4 microbatch4"),
    "tp2 pp2 ep2 1f1b": (MIXTRAL, "tp2 pp2 ep2 microbatch2"),
    "pp2 dp2 ep2 1f1b": (MIXTRAL, "pp2 dp2 ep2 microbatch2"),
    "pp2 dp2 ep2 interleaved zero1 full": (
        DEEPSEEK,
        "pp2 dp2 ep2 zero1 microbatch2 interleave2 interleaved full",
    ),
    "pp2 dp2 ep2 zbv": (MIXTRAL, "pp2 dp2 ep2 microbatch1 zbv"),
    "pp2 dp2 ep2 dualpipev zero1": (
        DEEPSEEK,
        "pp2 dp2 ep2 zero1 microbatch1 dualpipev",
    ),
    "tp2 pp2 dp2 ep4 interleaved zero1": (
        DEEPSEEK,
        "tp2 pp2 dp2 ep4 zero1 microbatch2 interleave2 interleaved",
    ),
    "tp2 pp2 dp2 ep2 zbv zero2": (
        MIXTRAL,
        "tp2 pp2 dp2 ep2 zero2 microbatch2 zbv",
    ),
    "cp2 pp2 dp2 ep2 1f1b zero3": (
        DEEPSEEK,
        "cp2 pp2 dp2 ep2 zero3 microbatch2",
    ),
}
"""Mixtures of experts in combinations at 2, 4 and 8 ranks."""
TABLES = AXES, PAIRS, EXPERTS, MORE_EXPERTS, EIGHT
EVERY = {name: table[name] for table in TABLES for name in table}
assert len(EVERY) == sum(map(len, TABLES)), "two layouts have one name"
expected = cache(reference)
CHECKED = (0, SETTINGS.steps // 2, SETTINGS.steps - 1)
"""Steps whose gradients are compared."""


def train(
    model: Model, layout: Layout, settings: Settings
) -> list[dict[str, Any]]:
    """Twenty steps, checked; what every rank found."""
    wanted = job(model, layout, batch(layout))
    rules.demand(wanted, settings)

    def work(device: torch.device) -> dict[str, Any]:
        trainer = Trainer(wanted, settings, device)
        found: dict[str, Any] = {"losses": [], "norms": [], "shared": 0}
        for step in range(settings.steps):
            if step in CHECKED:
                found[f"weights {step}"] = whole(
                    {n: p.detach() for n, p in trainer.parameters().items()}
                )
            inputs, targets = share(trainer, tokens(step, wanted.batch))
            loss, norm = loss_and_norm(trainer, inputs, targets)
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
        return found

    return each_rank(work, layout.chips)


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
    words: str,
    shards: int | None = None,
    weight_decay: float | None = 0.1,
) -> None:
    """A layout in words trains as one process does."""
    layout = cut(words)
    want = expected(
        model, replace(SETTINGS, weight_decay=weight_decay), batch(layout)
    )
    settings = replace(SETTINGS, shards=shards, weight_decay=weight_decay)
    ranks = train(model, layout, settings)
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


@pytest.mark.parametrize(
    "name",
    [
        *(AXES | PAIRS | EXPERTS),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in MORE_EXPERTS | EIGHT
        ),
    ],
)
def test_a_layout_trains_as_one_process_does(name: str) -> None:
    agrees(*EVERY[name], shards=2 if "hybrid" in name else None)


STRONG = 10.0
"""A weight decay that takes a fifth of what decays in 20 steps: who decays wrongly is off by a
hundred times the tolerance.
"""


@pytest.mark.parametrize(
    "layout",
    ["microbatch8", "dp2 ep2 zero1 microbatch4"],
)
def test_what_decays(layout: str) -> None:
    """Biases of experts have two dims, and do not."""
    agrees(PLAIN_EXPERTS, layout, weight_decay=STRONG)


@pytest.mark.parametrize(
    ("model", "layout", "rank", "place", "says"),
    [
        (
            GPT,
            cut("tp2 dp2"),
            3,
            (0, 0),
            "after step 7, ranks 1 and 3 hold different values of layers.1.ffn.up.weight",
        ),
        # with ep 2 of dp 4, ranks 0 and 2 hold the first half of the experts, 1 and 3 the second
        (
            MIXTRAL,
            cut("dp4 ep2"),
            2,
            (3, 0, 0),
            "ranks 0 and 2 hold different values of layers.1.ffn.experts.down.weight",
        ),
        # the first and the last stage stand on one rank, each with the tied matrix
        (
            GPT,
            cut("tp2 pp2 microbatch2 zbv"),
            0,
            (3, 0),
            "ranks 0 and 0 hold different values of embedding.weight",
        ),
    ],
    ids=["dense", "experts", "two copies on a rank"],
)
def test_replicas_that_differ_are_found(
    model: Model, layout: Layout, rank: int, place: tuple[int, ...], says: str
) -> None:
    """One bit of one weight on one of four ranks."""

    def work(device: torch.device) -> None:
        trainer = Trainer(job(model, layout), SETTINGS, device)
        assert replicas.check_replicas(trainer.stages, 0) > 0
        if dist.get_rank() == rank:
            weight = trainer.parameters()[says.split()[-1]].to_local()
            weight.view(torch.int32)[place] ^= 1
        replicas.check_replicas(trainer.stages, 7)

    with pytest.raises(RankFailed, match=says):
        fork_ranks(work, 4, timeout_s=60)
