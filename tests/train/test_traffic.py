"""Collectives counted on the running program (gloo, one step, every rank) equal `count`: kind,
bytes and number, axis by axis.

PyTorch keeps gathered inputs (`gathered_inputs = "kept"`) and we keep gathered keys and values,
which `count` gathers again in backward.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import (  # noqa: E402
    DEEPSEEK,
    GPT,
    LLAMA,
    LLAMA6,
    MIXTRAL,
    SETTINGS,
    each_rank,
    job,
    share,
    tokens,
)

from layouts import cut  # noqa: E402
from meshwright.count import vocabulary  # noqa: E402
from meshwright.count.microbatch import DeviceMicrobatch  # noqa: E402
from meshwright.count.model import kinds, layer  # noqa: E402
from meshwright.describe.job import Job  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.layout.stages import (  # noqa: E402
    stage_count,
    stage_layers,  # noqa: E402
    stage_numbers,
)
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.traffic import TrafficCounter, axes_of  # noqa: E402

FP32 = 4


def measured(model: Model, layout: Layout) -> list[dict[str, Any]]:
    """For each rank: place on the pp axis, traffic by axis of the second step's gradients,
    parameters, norms.
    """

    def work(device: torch.device) -> dict[str, Any]:
        trainer = Trainer(kept(model, layout), SETTINGS, device)
        # stages agree on shapes in the first one
        trainer.step(0, *share(trainer, tokens(0)))
        with TrafficCounter(axes_of(trainer.mesh)) as traffic:
            trainer.accumulate(*share(trainer, tokens(1)))
        found = {
            axis: traffic.over(axis)
            for axis in ("tp", "cp", "pp", "ep", "edp", "replicas")
        }
        found["rank"] = trainer.mesh.index("pp")
        elements = {
            name: p.numel() for name, p in trainer.parameters().items()
        }
        found["of experts"] = sum(
            n for name, n in elements.items() if ".experts." in name
        )
        found["of all"] = sum(elements.values())
        return found

    return each_rank(work, layout.chips)


def kept(model: Model, layout: Layout) -> Job:
    plain = job(model, layout)
    counting = replace(plain.assumptions.count, gathered_inputs="kept")
    return replace(
        plain, assumptions=replace(plain.assumptions, count=counting)
    )


def counted(wanted: Job, rank: int, axis: str) -> Counter[tuple[str, int]]:
    """What `count` says a rank of the pp axis sends over tp, cp or ep in a step."""
    layout, found = wanted.layout, Counter()
    stages = stage_layers(wanted.model.layers, stage_count(layout))
    if getattr(layout, axis) == 1:
        return found
    for number in stage_numbers(layout, rank):
        ops = [
            op
            for i in stages[number]
            for op in layer(wanted, layout, kinds(wanted.model)[i])
        ]
        ops += (
            vocabulary.embedding(DeviceMicrobatch.from_layout(wanted, layout))
            if number == 0
            else []
        )
        ops += (
            vocabulary.head(DeviceMicrobatch.from_layout(wanted, layout))
            if number == len(stages) - 1
            else []
        )
        for op in ops:
            back = [
                m
                for m in op.backward.comm
                if not (m.axis == "cp" and m.kind == "all_gather")
            ]
            for message in (*op.forward.comm, *back):
                if message.axis == axis and message.bytes:
                    found[message.kind, int(message.bytes)] += (
                        wanted.batch // int(layout.dp * layout.microbatch)
                    )
    return found


def norms(wanted: Job, rank: int) -> Counter[tuple[str, int]]:
    """Gradients of norms, routers and learned positions, made of sequence shards, are summed over
    tp once a step: not in `count`.
    """
    m, layout, found = wanted.model, wanted.layout, Counter()
    if layout.tp == 1 or not layout.sequence_parallel:
        return found
    stages = stage_layers(m.layers, stage_count(layout))
    each = 2 * (2 if m.norm == "layernorm" else 1)
    for number in stage_numbers(layout, rank):
        last = number == len(stages) - 1
        found["all_reduce", m.hidden * FP32] += len(
            stages[number]
        ) * each + last * (2 if m.norm == "layernorm" else 1)
        if number == 0 and m.positions == "learned":
            found["all_reduce", m.seq * m.hidden * FP32] += 1
        for _ in (i for i in stages[number] if kinds(m)[i].moe):
            found["all_reduce", m.moe.experts * m.hidden * FP32] += 1
            found["all_reduce", m.moe.experts * FP32] += m.moe.router_bias
            found["all_reduce", m.hidden * FP32] += m.moe.shared_gate
    return +found


INSIDE = {
    "tp2 sp": (GPT, cut("tp2 microbatch4")),
    "tp2": (LLAMA, cut("tp2 microbatch4 whole")),
    "cp2": (LLAMA, cut("cp2 microbatch4")),
    "tp2 cp2": (LLAMA, cut("tp2 cp2 microbatch8")),
    "tp2 pp2 interleaved": (
        LLAMA,
        cut("tp2 pp2 microbatch2 interleave2 interleaved"),
    ),
    "tp2 pp2 without sp": (LLAMA, cut("tp2 pp2 microbatch4 whole")),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_layers_and_between_stages(name: str) -> None:
    model, layout = INSIDE[name]
    wanted = kept(model, layout)
    m, stages = (
        wanted.batch // int(layout.dp * layout.microbatch),
        stage_count(layout),
    )
    boundary = (
        layout.microbatch
        * wanted.T
        * model.hidden
        * FP32
        // (layout.tp if layout.sequence_parallel else 1)
    )
    for found in measured(model, layout):
        assert found["tp"] == counted(wanted, found["rank"], "tp") + norms(
            wanted, found["rank"]
        )
        # dp = 1: cp ranks are the replicas
        of_weights = Counter(
            {
                key: n
                for key, n in found["cp"].items()
                if key[0] == "all_reduce"
            }
        )
        assert found["cp"] - of_weights == counted(wanted, found["rank"], "cp")
        mine = stage_numbers(layout, found["rank"])
        # forward to the next, back to the one before
        sends = sum((number < stages - 1) + (number > 0) for number in mine)
        assert found["pp"] == Counter(
            {("send", boundary): m * sends} if sends else {}
        )


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_between_replicas(zero: int) -> None:
    """W bytes of weights, m = 2 microbatches: all-reduce W; gather and scatter W; scatter m W;
    gather 2 m W.
    """
    layout = Layout(dp=2, zero=zero, microbatch=2)
    for found in measured(LLAMA6, layout):
        assert (
            volume(found["replicas"])
            == synchronised(found["of all"] * FP32)[zero]
        )


def test_gradients_of_stages_are_sharded_after_each_microbatch() -> None:
    """ZeRO 2 under 1F1B: four microbatches, so 4 W scattered for W gathered."""
    layout = cut("pp2 dp2 zero2 microbatch1")
    for found in measured(LLAMA6, layout):
        whole = found["of all"] * FP32
        assert volume(found["replicas"]) == {
            "all_gather": whole,
            "reduce_scatter": 4 * whole,
        }


def volume(found: Counter[tuple[str, int]]) -> dict[str, int]:
    """Bytes by kind."""
    total: Counter[str] = Counter()
    for (kind, size), times in found.items():
        total[kind] += size * times
    return dict(total)


def synchronised(weights: int) -> list[dict[str, int]]:
    """What replicas of so many bytes of weights send in a step of two microbatches, under ZeRO 0,
    1, 2 and 3.
    """
    return [
        {"all_reduce": weights},
        {"all_gather": weights, "reduce_scatter": weights},
        {"all_gather": weights, "reduce_scatter": 2 * weights},
        {"all_gather": 4 * weights, "reduce_scatter": 2 * weights},
    ]


@pytest.mark.parametrize(
    "zero",
    [
        0,
        pytest.param(1, marks=pytest.mark.slow),
        pytest.param(2, marks=pytest.mark.slow),
        3,
    ],
)
def test_between_replicas_of_experts(zero: int) -> None:
    """Each of two ep ranks has half the experts; they are synchronised over edp, all other weights
    over all four replicas.
    """
    for found in measured(
        DEEPSEEK, Layout(dp=4, ep=2, zero=zero, microbatch=1)
    ):
        assert (
            volume(found["edp"])
            == synchronised(found["of experts"] // 2 * FP32)[zero]
        )
        assert (
            volume(found["replicas"])
            == synchronised((found["of all"] - found["of experts"]) * FP32)[
                zero
            ]
        )


TO_EXPERTS = {
    "dp2 ep2": (MIXTRAL, cut("dp2 ep2 microbatch2")),
    "tp2 ep2": (DEEPSEEK, cut("tp2 ep2 microbatch4")),
    "pp2 dp2 ep2 interleaved": (
        MIXTRAL,
        cut("pp2 dp2 ep2 microbatch2 interleave2 interleaved"),
    ),
}


@pytest.mark.parametrize("name", TO_EXPERTS)
def test_to_experts_and_back(name: str) -> None:
    """A rank sends k copies of each of its tokens, as counted; what it sends back is what it got,
    as much as counted over all ranks together.

    How many rows go to whom is exchanged before, 8 bytes an expert: not in `count`.
    """
    model, layout = TO_EXPERTS[name]
    wanted, every = kept(model, layout), measured(model, layout)
    total, expected = 0, 0
    for found in every:
        ((kind, size), times), *others = counted(
            wanted, found["rank"], "ep"
        ).items()
        # times microbatches: there and back, forward and backward
        layers = times // 4
        counts = found["ep"].pop(("all_to_all", model.moe.experts * 8))
        assert (kind, counts, others) == ("all_to_all", layers, [])
        assert (
            sum(found["ep"].values()) == times
            and found["ep"][kind, size] >= times // 2
        )
        total, expected = (
            total + volume(found["ep"])[kind],
            expected + size * times,
        )
        assert found["tp"] == counted(wanted, found["rank"], "tp") + norms(
            wanted, found["rank"]
        )
    assert total == expected > 0


def test_a_tied_matrix_is_exchanged_once_in_the_group_of_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the first and the last of four; no group is made for pairs of ranks."""

    def refused(*args: Any, **options: Any) -> None:
        raise AssertionError("a group beside those of the mesh")

    monkeypatch.setattr(dist, "new_group", refused)
    for found in measured(GPT, cut("pp4 microbatch2")):
        at_end = found["rank"] in (0, 3)
        assert found["pp"]["send", 256 * 64 * FP32] == at_end
