"""Memory of the fullest device: against a loop over all devices, and against published formulas."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate

import pytest

from meshwright import Layout, catalog, predict
from meshwright.describe.assumptions import REALISTIC, MemoryCount
from meshwright.describe.holding import Holding
from meshwright.describe.job import OPTIMIZERS, Job
from meshwright.layout.placement import placed
from meshwright.layout.rules import broken
from meshwright.layout.stages import microbatches
from meshwright.schedule import SCHEDULES
from meshwright.schedule import get as schedule_named
from meshwright.schedule.types import Action
from meshwright.step import StepCosts, clock_of, memory, model_cost
from meshwright.step.holding import parameter_bytes
from meshwright.step.parameters import Parameters
from spaces import random_job

PLAIN = replace(
    REALISTIC, memory=MemoryCount(framework_bytes=0.0, holding=Holding())
)
"""States and what layers save, without what a framework holds beside them."""


def fullest(job: Job, layout: Layout) -> float:
    """Bytes of the fullest device."""
    parts = model_cost(job, layout)
    return float(StepCosts(job, layout, parts, clock_of(job)).bytes)


def every_device(job: Job, layout: Layout) -> float:
    """Bytes of the fullest device (ZeRO 0 or 1, nothing recomputed), by a loop over the pipeline:
    layers dealt to stages one by one, stages to ranks as the schedule places them, and its actions
    followed with what each leaves until its backward.
    """
    parts, schedule = model_cost(job, layout), schedule_named(layout.schedule)
    t, d, L, pp, v = (
        parts.layers[0],
        parts.layers[-1],
        job.model.layers,
        layout.pp,
        layout.interleave,
    )
    count = int(schedule.stage_count(pp, v))
    lead = job.model.moe.dense_layers if job.model.moe else 0
    most = -(-L // count)
    held = [most] * count
    # the last stage gets fewer, then the first, then those before the last
    for spare in range(count * most - L):
        held[(-1, 0, *range(count - 2, 0, -1))[spare]] -= 1
    dense = [
        sum(1 for i in range(end - n, end) if i < lead)
        for end, n in zip(accumulate(held), held, strict=True)
    ]
    order = schedule.order(pp, int(microbatches(job, layout)), v)
    logits = layout.microbatch * job.T * job.model.vocab / layout.tp
    fullest = 0.0
    for rank in range(pp):
        mine = [
            schedule.stage_of(rank, chunk, pp, v)
            for chunk in range(int(schedule.chunks(v)))
        ]
        plain = sum(
            (held[s] - dense[s]) * t.weights + dense[s] * d.weights
            for s in mine
        )
        plain += parts.embedding.weights * (0 in mine) + parts.head.weights * (
            count - 1 in mine
        )
        expert = sum(held[s] - dense[s] for s in mine) * t.expert_weights
        layers = [
            (held[s] - dense[s]) * t.saved + dense[s] * d.saved for s in mine
        ]
        # until the gradient of its input is there the head keeps its logits in fp32, then their
        # gradient in 16 bits
        left = [
            n + parts.head.saved * (s == count - 1)
            for n, s in zip(layers, mine, strict=True)
        ]
        late = [
            n - 2 * logits * (s == count - 1)
            for n, s in zip(left, mine, strict=True)
        ]
        each = parameter_bytes(job, layout.zero)
        states = memory.states(
            job, layout, each, Parameters(plain, expert)
        ).total
        fullest = max(fullest, states + at_most(order[rank], left, late))
    return fullest


def at_most(
    actions: list[Action], left: list[float], late: list[float]
) -> float:
    """The most bytes that wait at once. left: of each chunk, from F to B or I;  late: from I to W."""
    size = peak = 0.0
    for kind, chunk, _ in actions:
        size += left[chunk] * ((kind == "F") - (kind in "BI"))
        size += late[chunk] * ((kind == "I") - (kind == "W"))
        peak = max(peak, size)
    return peak


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("deepseek-v3", {"tp": 2, "pp": 16, "dp": 64, "ep": 8, "zero": 1}),
        ("llama3-405b", {"tp": 8, "pp": 16, "dp": 16, "zero": 1}),
        ("llama3-70b", {"tp": 4, "pp": 16, "dp": 32, "zero": 1}),
        ("deepseek-v2", {"tp": 2, "pp": 16, "dp": 64, "ep": 4, "zero": 1}),
        ("gpt3-175b", {"tp": 8, "pp": 8, "dp": 32}),
        ("gemma2-9b", {"pp": 3, "dp": 128, "zero": 1}),
    ],
)
def test_the_fullest_device_is_found(
    name: str, degrees: dict[str, int]
) -> None:
    """Models with leading dense layers and with layers that do not divide: the first device is not
    the fullest.
    """
    layout = Layout(**degrees)
    job = Job(
        name,
        f"{layout.chips}xh100-sxm",
        4096,
        layout,
        assumptions=PLAIN,
    )
    layout = placed(layout, job.cluster.sizes)
    found = fullest(job, layout)
    assert found == pytest.approx(
        every_device(replace(job, layout=layout), layout), rel=0.02
    )
    assert found >= 0.999 * every_device(job, layout)


@pytest.mark.parametrize("m", [4, 5, 8, 9, 16])
@pytest.mark.parametrize("vocab", [32_000, 4_000_000])
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_fullest_device_under_every_schedule(
    name: str, vocab: int, m: int
) -> None:
    """Heads light and heavy (the last device, or whichever holds the head, is the fullest then),
    few and many microbatches.
    """
    schedule = schedule_named(name)
    v = 2 if schedule.chunks(7) == 7 else 1
    if not schedule.legal(4, m, v):
        return
    model = replace(catalog.model("llama3-8b"), vocab=vocab)
    layout = placed(
        Layout(pp=4, dp=2, schedule=name, interleave=v, zero=1), (8, 1)
    )
    job = Job(model, "8xh100-sxm", 2 * m, layout, assumptions=PLAIN)
    found = fullest(job, layout)
    assert found == pytest.approx(every_device(job, layout), rel=1e-9)


@pytest.mark.parametrize("group", [0, 8])
@pytest.mark.parametrize("v", [1, 2, 4])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_device_that_is_alone_has_no_chunks(
    name: str, v: int, group: int
) -> None:
    """Whatever the schedule, it holds what 1F1B does on one stage; unless the order of one chunk
    runs more than one microbatch ahead: forward passes first, or twice the memory. Or it is refused
    with a sentence.
    """
    schedule = schedule_named(name)
    layout = Layout(
        dp=8, schedule=name, interleave=v, microbatch_group=group, zero=1
    )
    job = Job(
        "llama3-8b",
        "8xh100-sxm",
        8 * 16,
        layout,
        assumptions=PLAIN,
    )
    layout = placed(layout, job.cluster.sizes)
    if sentences := broken(job, layout):
        assert all(sentences)
        return
    whole = {"breadth-first": "gpipe"}.get(name, "1f1b")
    one = name if schedule.chunks(2) == 1 else whole
    simple = replace(layout, schedule=one, interleave=1, microbatch_group=0)
    found = fullest(job, layout)
    assert found == pytest.approx(every_device(job, simple), rel=1e-9)
    more = one in ("gpipe", "zb-2p")
    least = every_device(job, replace(simple, schedule="1f1b"))
    assert (found > least * 1.001) == more


def uses(job: Job, layout: Layout) -> list[dict[str, memory.MemoryUse]]:
    """By ZeRO stage and device."""
    return [
        predict(job, replace(layout, zero=zero)).memory_by_stage
        for zero in range(4)
    ]


@pytest.mark.parametrize("degrees", [{"tp": 8}, {"tp": 2, "pp": 4}, {"pp": 8}])
def test_one_replica_needs_the_same_under_every_zero_stage(
    degrees: dict[str, int],
) -> None:
    job = Job("llama3-70b", "8xgb200", 64)
    first, *others = uses(job, Layout(**{"dp": 1, **degrees}))
    assert all(other == first for other in others)


def test_a_higher_zero_stage_needs_no_more() -> None:
    """On every device of random jobs, but for one thing: a unit that is gathered, or whose gradient
    is whole, lies beside its own shard. So stage 2 may need the shard of the gradients more than
    stage 1, and stage 3 that of the weights more than stage 2, where a device holds hardly more
    than these units; never more than that."""
    rng, compared, more = random.Random(8), 0, 0
    while compared < 300:
        job, _, _ = random_job(rng)
        layout = Layout(
            tp=rng.choice([1, 2]),
            pp=rng.choice([1, 2, 3]),
            dp=rng.choice([1, 2, 4, 8]),
            cp=rng.choice([1, 2]),
            ep=rng.choice([1, 2]),
            schedule=rng.choice(["1f1b", "gpipe", "zbv"]),
        )
        job = replace(
            job,
            cluster=replace(job.cluster, chips=layout.chips),
            batch=64,
            optimizer=rng.choice(list(OPTIMIZERS.values())),
        )
        if broken(job, layout):
            continue
        compared += 1
        zero = uses(job, layout)
        for end in zero[0]:
            totals, rounding = (
                [z[end].total for z in zero],
                1e-9 * zero[0][end].total,
            )
            assert totals[1] <= totals[0] + rounding
            assert totals[2] <= totals[1] + zero[2][end].gradients + rounding
            assert totals[3] <= totals[2] + zero[3][end].weights + rounding
            more += (
                max(totals[2] - totals[1], totals[3] - totals[2]) > rounding
            )
    assert more  # the exception is real: models of a few layers


@pytest.mark.parametrize("tp", [1, 4, 8])
def test_activations_of_korthikanti(tp: int) -> None:
    """With sequence parallelism a layer keeps 34 s b h / t + 5 a s^2 b / t; without the core of
    attention 34 s b h / t (Korthikanti et al. 2022).
    """
    model = replace(catalog.model("gpt3-175b"), dropout=True)
    layout = placed(Layout(tp=tp, dp=8 // tp), (8, 1))
    job = Job(
        model,
        "8xa100-80",
        8,
        layout,
        attention_kernel="unfused",
    )
    t = model_cost(job, layout, modes=("selective",)).typical
    sbh = job.T * model.hidden
    assert float(t.recompute["selective"].saved) == pytest.approx(
        34 * sbh / tp, rel=2e-3
    )
    assert float(t.saved) == pytest.approx(
        (34 + 5 * model.heads * job.T / model.hidden) * sbh / tp, rel=2e-3
    )
