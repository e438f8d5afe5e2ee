"""What no layout can undercut: no link carries more than its rate, and a better machine is never
slower.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import prod

import pytest

from meshwright import (
    BadInput,
    Cluster,
    Job,
    Layout,
    Network,
    Prediction,
    cluster,
    model,
    predict,
)
from meshwright.cost.in_network import GAIN
from meshwright.count.model import kind_counts, layer
from meshwright.count.work import Op
from meshwright.describe.software import Software
from meshwright.layout.placement import placed
from meshwright.layout.rules import broken
from meshwright.schedule import SCHEDULES, get
from meshwright.schedule import get as schedule_named
from same_choice import SameChoice

LAYOUTS, JOBS = (
    int(os.environ.get(f"PHYSICS_{name}", few))
    for name, few in (("LAYOUTS", 1200), ("JOBS", 120))
)
"""Drawn here; 10,000 and 1,000 once for each change of the step (PHYSICS_LAYOUTS=10000
PHYSICS_JOBS=1000).
"""
MODELS = (
    "llama3-8b",
    "llama3-70b",
    "llama3-405b",
    "gpt3-175b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "qwen3-235b-a22b",
    "gemma2-9b",
)
CLUSTERS = ("h100-sxm", "a100-80", "h800", "gb200", "mi300x", "a100-40")


@cache
def machine(chip: str, chips: int) -> Cluster:
    return cluster(f"{chips}x{chip}")


def draw(rng: random.Random) -> Job | None:
    """A job with a legal layout: any ZeRO stage, tp over nodes too, experts, every schedule; None
    if it is not legal.
    """
    degrees = {axis: 2 ** rng.choice(powers) for axis, powers in AXES.items()}
    chips = prod(degrees.values())
    if chips < 8 or chips > 16384:
        return None
    m, b = model(rng.choice(MODELS)), rng.choice([1, 1, 2, 4])
    name = rng.choice(sorted(SCHEDULES))
    layout = Layout(
        **degrees,
        microbatch=b,
        schedule=name,
        interleave=rng.choice([2, 4]) if get(name).chunks(7) == 7 else 1,
        ep=2 ** rng.choice([0, 1, 3]) if m.moe else 1,
        zero=rng.choice([0, 1, 2, 3, 3]),
        recompute=rng.choice(["none", "selective", "full"]),
        sequence_parallel=rng.random() < 0.7,
        scheme=rng.choice(["megatron", "megatron", "gspmd"]),
    )
    on, batch = (
        machine(rng.choice(CLUSTERS), chips),
        degrees["dp"] * b * rng.choice([1, 2, 3, 8, 32]),
    )
    job = Job(
        m,
        on,
        batch,
        seq=rng.choice([2048, 4096, 8192]),
        assumptions="realistic",
    )
    layout = placed(layout, on.sizes)
    return (
        None
        if broken(job, layout) or m.layers % layout.pp
        else replace(job, layout=layout)
    )


AXES = {
    "tp": (0, 0, 1, 2, 3, 4, 5),
    "cp": (0, 0, 0, 1, 2),
    "pp": (0, 0, 1, 2, 3),
    "dp": (1, 2, 3, 4, 5, 6),
}


def drawn(number: int) -> Iterator[Prediction]:
    """So many predictions of random jobs."""
    rng, found = random.Random(9), 0
    while found < number:
        if job := draw(rng):
            found += 1
            yield predict(job)


def carried(p: Prediction) -> list[float]:
    """Bytes a middle rank sends into each dimension in a step, from the messages of its operations;
    nothing of `cost` is asked.
    """
    job, layout, m = p.job, p.layout, p.microbatches
    total = [0.0] * len(job.cluster.sizes)

    def add(
        kind: str, V: float, group: tuple[float, ...], times: float
    ) -> None:
        n, inside = prod(group), 1.0
        for i, g in enumerate(group):
            here = V * (n - 1) / n / inside if g > 1 else 0.0
            if kind == "all_to_all":
                here = V * inside * (g - 1) / n
            if kind == "all_reduce":  # a switch that adds up, at best
                here *= (
                    2 / GAIN
                    if any(d.reduces for d in job.cluster.network.dims)
                    else 2
                )
            total[i] += here * times
            inside *= g

    lead, rest = kind_counts(job.model)
    gathered, scattered = {0: (0, 0), 1: (1, 1), 2: (1, m), 3: (2 * m, m)}[
        layout.zero
    ]
    # leading layers are on the first device
    share = job.model.layers / layout.pp / sum(n for _, n in rest)
    kinds = (
        [*lead, *rest]
        if layout.pp == 1
        else [(kind, n * share) for kind, n in rest]
    )
    for kind, n in kinds:
        ops = layer(job, layout, kind)
        for op in ops:
            core = op.name == "attention/core" and (
                op.selective or job.how.count.selective == "core_attn"
            )
            again = layout.recompute == "full" or (
                layout.recompute == "selective" and core
            )
            for message in (*op.forward.comm * (1 + again), *op.backward.comm):
                add(
                    message.kind,
                    message.bytes,
                    layout.group(message.axis),
                    n * m,
                )
        for axis, weights in (
            ("replicas", held(ops, False)),
            ("edp", held(ops, True)),
        ):
            group = layout.group(axis) if weights else ()
            if layout.zero == 0:
                add(
                    "all_reduce",
                    weights * job.precision.gradient_bytes,
                    group,
                    n,
                )
            add(
                "all_gather",
                weights * job.precision.gather_bytes,
                group,
                n * gathered,
            )
            add(
                "reduce_scatter",
                weights * job.precision.gradient_bytes,
                group,
                n * scattered,
            )
    far = max(
        (i for i, g in enumerate(layout.group("pp")) if g > 1), default=None
    )
    if far is not None:
        chunks = schedule_named(layout.schedule).chunks(layout.interleave)
        total[far] += 2 * m * chunks * p.cost.message
    return total


def held(ops: list[Op], expert: bool) -> float:
    """Parameters of a layer's operations, or of its experts."""
    return float(sum(op.weights for op in ops if op.expert == expert))


def rates(p: Prediction) -> list[float]:
    """Bytes a second that a chip reaches in each dimension, with all its links of it."""
    return [d.rate() for d in p.job.cluster.network.dims]


def test_no_link_carries_more_than_its_rate() -> None:
    """Compute, exposed or hidden traffic, sends: bytes over rate of every dimension fit into the
    step.
    """
    full = 0
    for p in drawn(LAYOUTS):
        for bytes_, rate in zip(carried(p), rates(p), strict=True):
            assert bytes_ / rate <= p.step_time_s * (1 + 1e-9), (
                p,
                bytes_ / rate,
                p.step_time_s,
            )
            full += bytes_ / rate > 0.9 * p.step_time_s
    assert full > LAYOUTS / 100, "links that are nearly full are among them"


def better(p: Prediction, times: float) -> Iterator[tuple[str, Cluster]]:
    """The machine with one thing so many times as good."""
    on = p.job.cluster
    chip, net = on.chip, on.network
    flops = {k: times * v for k, v in chip.matrix_flops.items()}
    for what, faster in (
        ("matrix_flops", flops),
        ("vector_flops", chip.vector_flops * times),
        ("hbm_bandwidth", chip.hbm_bandwidth * times),
    ):
        yield what, replace(on, chip=replace(chip, **{what: faster}))
    for i, dim in enumerate(net.dims):
        for field, value in (
            ("bandwidth", dim.bandwidth * times),
            ("latency", dim.latency / times),
        ):
            dims = (
                *net.dims[:i],
                replace(dim, **{field: value}),
                *net.dims[i + 1 :],
            )
            yield (
                f"{dim.name} {field}",
                replace(on, network=Network(net.name, dims)),
            )


def chosen_on(slower: Cluster, job: Job) -> Job:
    """The job with the collectives that NCCL's tuner takes on the slower machine: its choice is its
    own belief, and may be worse on a faster one."""
    how = job.assumptions
    frozen = replace(how.network, algorithm=SameChoice(slower.network.dims))
    return replace(job, assumptions=replace(how, network=frozen))


def under_frameworks(number: int) -> Iterator[Prediction]:
    """So many random jobs of each framework, with collectives that hide as its users may say. First
    one whose weight gradients wait for the host backward (0.9 ms, half of its time, beside 0.4 ms
    of kernels), and whose collectives outlast the compute that they hide behind.
    """
    layout = Layout(tp=16, pp=4, dp=16, zero=3, recompute="full")
    yield predict(
        Job("llama3-8b", "1024xh800", 128, layout, framework=FRAMEWORKS[0])
    )
    rng = random.Random(4)
    for p in drawn(number):
        software = Software(
            tp_overlap=rng.choice(("all", "backward", "off")),
            ep_overlap=rng.choice((None, p.job.model.moe is not None)),
        )
        for framework in FRAMEWORKS:
            # one that runs no such layout refuses it
            with suppress(BadInput):
                yield predict(
                    replace(p.job, framework=framework, software=software)
                )


FRAMEWORKS = (
    "megatron-bridge",
    "megatron-core",
    "megatron-2021",
    "torchtitan",
)


def test_a_better_machine_is_never_slower_and_more_work_never_faster() -> None:
    rng = random.Random(5)
    for p in (*drawn(JOBS), *under_frameworks(JOBS // 4)):
        times = rng.choice((1.1, 1.5, 2.0, 3.0, 10.0))
        for what, machine_ in better(p, times):
            faster = predict(
                chosen_on(p.job.cluster, replace(p.job, cluster=machine_))
            ).step_time_s
            assert faster <= p.step_time_s * (1 + 1e-9), (what, times, p)
    for p in drawn(JOBS):
        seconds = [
            predict(p.job, replace(p.layout, recompute=r)).step_time_s
            for r in ("none", "selective", "full")
        ]
        assert seconds == pytest.approx(sorted(seconds), rel=1e-9), p
