"""The trainer's peak memory in closed form against the walk through its step, and for a table
against one layout after the other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from meshwright import catalog
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model, MoE
from meshwright.layout.placement import placed
from meshwright.layout.rules import broken
from meshwright.layout.stages import microbatches
from meshwright.program import closed, resident
from meshwright.program.memory import peak
from meshwright.program.messages import carried_out
from meshwright.program.standing import standing
from meshwright.schedule import SCHEDULES
from meshwright.schedule import get as schedule_named
from meshwright.step import ENDS, shares

NEAR = 0.05
"""What the walk is held to against the program itself."""
ASKED = 0.995
"""Of folded pipelines a rank between the second and the last may be fuller by a hair."""
MODELS = (
    "llama3.2-1b",
    "llama3-8b",
    "gpt3-175b",
    "mistral-7b",
    "llama2-13b",
    "gpt2-xl",
    "llama3-70b",
    "qwen3-8b",
)
RUNNABLE = [
    name for name, schedule in SCHEDULES.items() if schedule.torch_name
]


def sparse() -> list[Model]:
    """Models with few large experts, many small ones, and shared ones."""
    mixtral = catalog.model("mixtral-8x7b")
    qwen = catalog.model("qwen3-30b-a3b")
    gated = MoE(
        16, 4, 3584, shared_ffn=7168, router_bias=True, shared_gate=True
    )
    return [
        mixtral,
        qwen,
        catalog.model("mixtral-8x22b"),
        replace(mixtral, name="shared, behind a gate", moe=gated),
        replace(qwen, name="shared", moe=MoE(64, 6, 768, shared_ffn=1536)),
    ]


def of_experts(rng: random.Random, job: Job) -> Job:
    """The same with experts, over as many ranks as may be."""
    model = rng.choice(sparse())
    layout = job.layout
    ranks = int(layout.tp * layout.cp * layout.dp)
    ep = rng.choice([n for n in (1, 2, 4, 8) if ranks % n == 0])
    layout = replace(layout, ep=ep, sequence_parallel=True)
    return replace(job, model=model, layout=layout)


def drawn(rng: random.Random, schedule: str) -> tuple[Job, int]:
    """Any job and layout, and its microbatches, whether they can run or not."""
    pp = 1 if schedule == "alone" else rng.choice([2, 3, 4, 5, 8])
    layout = Layout(
        tp=rng.choice([1, 2, 4, 8]),
        cp=rng.choice([1, 1, 2, 4]),
        pp=pp,
        dp=rng.choice([1, 2, 4, 8, 16, 64]),
        schedule="1f1b" if pp == 1 else schedule,
        zero=rng.choice([0, 1, 2, 3]),
        microbatch=rng.choice([1, 2, 4]),
        interleave=rng.choice([2, 2, 3, 4, 5])
        if schedule.startswith("interleaved")
        else 1,
        recompute=rng.choice(["none", "selective", "full"]),
        sequence_parallel=rng.choice([True, True, False]),
    )
    m = rng.choice([1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64])
    on = catalog.cluster(f"{layout.chips}xh100-sxm")
    precision = PRECISIONS[rng.choice(["bf16", "bf16", "bf16", "fp32"])]
    batch = int(layout.dp * layout.microbatch) * m
    model = catalog.model(rng.choice(MODELS))
    return Job(
        model,
        on,
        batch,
        layout,
        seq=rng.choice([512, 2048, 8192]),
        precision=precision,
    ), m


def runs(job: Job, m: int, even: bool = True) -> bool:
    """PyTorch runs it, on stages of equal chunks (even)."""
    layout, schedule = job.layout, schedule_named(job.layout.schedule)
    halves = schedule.split_backward and (
        layout.zero == 3 or layout.recompute == "full"
    )
    chunks = layout.pp * schedule.chunks(layout.interleave)
    uneven = chunks > layout.pp and job.model.layers % chunks
    starved = layout.pp > 1 and schedule.name != "gpipe" and m < layout.pp
    return not (
        halves
        or (uneven and even)
        or starved
        or job.model.K % layout.tp
        or broken(job, layout)
    )


def jobs(
    rng: random.Random, schedule: str, count: int, experts: bool = False
) -> Iterator[Job]:
    """So many that can run."""
    while count:
        job, m = drawn(rng, schedule)
        job = of_experts(rng, job) if experts else job
        if runs(job, m):
            count -= 1
            yield carried_out(
                replace(job, layout=placed(job.layout, job.cluster.sizes))
            )


def totals(
    job: Job, layout: Layout, recompute: str, zero: int
) -> dict[str, list[Any]]:
    """End of the pipeline -> bytes at each moment, of a layout or a table of them."""
    schedule = schedule_named(layout.schedule)
    by, of = (
        shares(job, layout, schedule, layout.interleave),
        closed.units(job, layout, recompute),
    )
    found = {}
    for end in by.called(*ENDS):
        at = closed.device(job, layout, schedule, layout.interleave, by, end)
        flying = closed.flying(job, layout, of, at, schedule, recompute)
        states = standing(job, layout, layout, of, at, zero)
        found[end] = [a + b.total for a, b in zip(flying, states, strict=True)]
    return found


def fullest(job: Job) -> float:
    """Bytes of the fullest device."""
    found = totals(job, job.layout, job.layout.recompute, job.layout.zero)
    return max(float(x) for moments in found.values() for x in moments)


@pytest.mark.parametrize("schedule", ["alone", *RUNNABLE])
def test_the_closed_form_is_near_the_walk(schedule: str) -> None:
    """On the fullest of all ranks: every ZeRO stage, recomputation, tp, cp, dp and precision, and
    rounds of more microbatches than ranks.
    """
    rng = random.Random(f"memory of {schedule}")
    for job in jobs(rng, schedule, 60):
        l = job.layout
        walked = max(peak(job, rank).highest for rank in range(int(l.pp)))
        known = f"{job.model.name} {l} {job.batch} {job.seq}"
        assert fullest(job) == pytest.approx(walked, rel=NEAR), known


@pytest.mark.parametrize("schedule", ["alone", *RUNNABLE])
def test_so_it_is_with_experts(schedule: str) -> None:
    """Whose gradients are reduced in the middle of a layer."""
    rng = random.Random(f"memory of {schedule}")
    for job in jobs(rng, schedule, 40, experts=True):
        l = job.layout
        walked = max(peak(job, rank).highest for rank in range(int(l.pp)))
        known = f"{job.model.name} {l} {job.batch} {job.seq}"
        assert fullest(job) == pytest.approx(walked, rel=NEAR), known


@pytest.mark.parametrize("experts", [False, True])
def test_halved_passes_of_few_microbatches(experts: bool) -> None:
    """Of the ranks that hold weight gradients back the last may be the fullest or the one before
    it; with one or two groups of microbatches no moment is like that of many: not all chunks have
    gradients while the most activations wait.
    """
    rng = random.Random("halved passes of few microbatches")
    found = (
        job
        for job in jobs(rng, "interleaved-zb", 400, experts)
        if microbatches(job, job.layout) < 3 * job.layout.pp
    )
    for job in itertools.islice(found, 60):
        every = [peak(job, rank) for rank in range(int(job.layout.pp))]
        walked = max(rank.highest for rank in every)
        known = f"{job.model.name} {job.layout} {job.batch} {job.seq}"
        assert fullest(job) == pytest.approx(walked, rel=NEAR), known


@pytest.mark.parametrize("seed", ["A", "B"])
def test_chunks_that_are_gathered_and_reduced(seed: str) -> None:
    """ZeRO-2 and ZeRO-3 on interleaved chunks: three are gathered while the first microbatches go
    forward, fewer beside a backward pass; those that all microbatches are through leave shards.
    """
    rng = random.Random(seed)
    found = (
        job for job in jobs(rng, "interleaved", 200) if job.layout.zero >= 2
    )
    for job in found:
        every = [peak(job, rank) for rank in range(int(job.layout.pp))]
        walked = max(rank.highest for rank in every)
        known = f"{job.model.name} {job.layout} {job.batch} {job.seq}"
        assert fullest(job) == pytest.approx(walked, rel=NEAR), known


@pytest.mark.parametrize("schedule", RUNNABLE)
def test_the_fullest_rank_is_asked(schedule: str) -> None:
    """Of chunks that hold as many layers and of others, of one kind of layer and of two."""
    rng = random.Random(f"fullest rank of {schedule}")
    base = catalog.model("qwen3-30b-a3b")
    assert base.moe
    mixed = replace(
        base, layers=47, ffn=6144, moe=replace(base.moe, dense_layers=9)
    )
    for number in range(40):
        job, m = drawn(rng, schedule)
        while not runs(job, m, even=False):
            job, m = drawn(rng, schedule)
        if number % 4 == 0 and job.layout.tp <= mixed.K:
            job = replace(job, model=mixed)
        layout = placed(job.layout, job.cluster.sizes)
        job = replace(job, layout=layout, framework="meshwright")
        ranks = range(int(layout.pp))
        every = [peak(carried_out(job), rank).highest for rank in ranks]
        asked = resident.walked(job, layout)
        assert asked
        assert sum(asked.values()) >= ASKED * max(every), f"{job}"


@pytest.mark.parametrize(
    ("pp", "dp", "interleave"),
    [(32, 32, 3), (16, 64, 6), (8, 128, 6)],
)
def test_few_layers_in_many_chunks(pp: int, dp: int, interleave: int) -> None:
    """GPT-3 on 1,024 chips: one round, in which all microbatches are through a chunk before the
    next one has a gradient; three chunks are gathered, one has whole gradients.
    """
    layout = Layout(
        pp=pp,
        dp=dp,
        interleave=interleave,
        schedule="interleaved",
        zero=1,
        recompute="full",
    )
    on = catalog.cluster("1024xa100-80")
    layout = replace(layout, placement=placed(layout, on.sizes).placement)
    job = carried_out(Job(catalog.model("gpt3-175b"), on, 1536, layout))
    ranks = [peak(job, rank) for rank in (0, 1, pp - 1)]
    walked = max(rank.highest for rank in ranks)
    assert fullest(job) == pytest.approx(walked, rel=NEAR)
    one = 96 / pp / interleave * 12 * 12288**2  # parameters of a chunk
    ends = (50257 + 2048) * 12288
    for rank in ranks:
        there = rank.peak["gathered weights"]
        assert 3 * 2 * one <= there * 1.001 <= 3 * 2 * one * 1.002 + 2 * ends
        assert rank.peak["gradients"] < 4 * 1.5 * one + 4 * ends


@pytest.mark.parametrize("schedule", ["alone", *RUNNABLE])
def test_a_table_gives_the_same_bits(schedule: str) -> None:
    """Degrees and microbatches as columns, everything else one choice."""
    rng, rows = random.Random(f"table of {schedule}"), []
    first = next(jobs(rng, schedule, 1))
    batch = 2**10 * 3
    while len(rows) < 12:
        job, _ = drawn(rng, schedule)
        layout = replace(
            first.layout,
            tp=job.layout.tp,
            cp=job.layout.cp,
            pp=job.layout.pp,
            dp=job.layout.dp,
            microbatch=job.layout.microbatch,
            placement={},
        )
        wide = replace(
            first,
            cluster=catalog.cluster("65536xh100-sxm"),
            batch=batch,
            layout=layout,
        )
        if runs(wide, int(microbatches(wide, layout))):
            rows.append(layout)
    names = [
        f.name
        for f in fields(Layout)
        if f.name in ("tp", "cp", "pp", "dp", "microbatch")
    ]
    columns: dict[str, Any] = {
        n: np.array([float(getattr(row, n)) for row in rows]) for n in names
    }
    job = replace(
        first, cluster=catalog.cluster("65536xh100-sxm"), batch=batch
    )
    for zero in (0, 1, 2, 3):
        table = totals(
            job, replace(rows[0], **columns), first.layout.recompute, zero
        )
        for i, row in enumerate(rows):
            one = totals(job, row, first.layout.recompute, zero)
            for end in one:
                assert [
                    float(np.broadcast_to(x, len(rows))[i]) for x in table[end]
                ] == [float(x) for x in one[end]]


def test_numbers_worked_out_by_hand() -> None:
    """llama3-8b, ZeRO 3 over 64, every layer computed again, in bf16: 12 bytes a parameter as a
    shard, then at the loss the input of each of 32 layers, the head's input and its normalised copy
    in fp32, the logits and their gradient in bf16 with 2^24 of them in fp32, and the head whole,
    twice: as it was gathered and as it is used.
    """
    model, on = catalog.model("llama3-8b"), catalog.cluster("64xh100-sxm")
    layout = Layout(dp=64, zero=3, recompute="full")
    job = carried_out(Job(model, on, 128, layout))
    T, D, V, parameters = 8192, 4096, 128256, 8.030e9
    # and gradients of the first microbatch, already reduced
    states = (12 + 4) * parameters / 64
    kept = 32 * T * D * 2 + T * D * 2 + 2 * T * D * 4
    logits = 2 * T * V * 2 + 4 * 2**24
    assert fullest(job) == pytest.approx(
        states + kept + logits + 2 * V * D * 2, rel=2e-3
    )


@pytest.mark.parametrize(
    "schedule", ["1f1b", "interleaved", "zbv", "dualpipev", "interleaved-zb"]
)
def test_more_microbatches_need_no_more_memory(schedule: str) -> None:
    """That is what these schedules are for: what waits is bounded by the pipeline."""
    v = 2 if schedule.startswith("interleaved") else 1
    layout = Layout(pp=4, dp=1, schedule=schedule, interleave=v)
    on = catalog.cluster("4xh100-sxm")
    few, many = (
        carried_out(Job(catalog.model("llama3-8b"), on, m, layout, seq=2048))
        for m in (64, 512)
    )
    for rank in (0, 1, 3):
        assert peak(few, rank).highest == peak(many, rank).highest
    assert fullest(few) == fullest(many)
