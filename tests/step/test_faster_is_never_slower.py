"""A chip with more FLOP/s, or faster memory, never takes longer: jobs of `realistic` drawn at
random, among them many whose launches bind and whose collectives hide behind compute.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from meshwright import BadInput, Job, Layout, predict
from meshwright.describe.software import Software

FASTER = (1.1, 1.5, 2.0, 3.0, 10.0)
DRAWN = 40


def seconds(job: Job, matrix: float = 1.0, memory: float = 1.0) -> float:
    """Of a step on a chip so many times as fast."""
    chip = job.cluster.chip
    faster = replace(
        chip,
        matrix_flops={p: f * matrix for p, f in chip.matrix_flops.items()},
        vector_flops=chip.vector_flops * matrix,
        hbm_bandwidth=chip.hbm_bandwidth * memory,
    )
    on = replace(job.cluster, chip=faster)
    return predict(replace(job, cluster=on)).step_time_s


def never_slower(job: Job) -> None:
    for what in ("matrix", "memory"):
        last = seconds(job)
        for times in FASTER:
            now = seconds(job, **{what: times})
            assert now <= last * (1 + 1e-9), (what, times, job)
            last = now


def test_launches_that_bind_beside_collectives_that_hide() -> None:
    """Backward the weight gradients wait for the host (0.9 ms, half of its time, beside 0.4 ms of
    kernels), and the collectives outlast the compute that they hide behind.
    """
    layout = Layout(tp=16, pp=4, dp=16, zero=3, recompute="full")
    never_slower(
        Job(
            "llama3-8b",
            "1024xh800",
            128,
            layout,
            framework="megatron-bridge",
        )
    )


def drawn(rng: random.Random) -> Job | None:
    """A job at random; None of what is not legal."""
    chips = rng.choice((16, 64, 256, 1024))
    tp, pp = rng.choice((1, 4, 8, 16, 16)), rng.choice((1, 2, 4))
    cp = rng.choice((1, 1, 2, 4))
    model = rng.choice(("llama2-7b", "llama3-8b", "gpt3-13b", "mixtral-8x7b"))
    experts = model == "mixtral-8x7b"
    schedule = rng.choice(("1f1b", "interleaved", "zb-h2", "zb-1p", "zbv"))
    layout = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": chips // (tp * pp * cp),
        "ep": rng.choice((1, 2, 8)) if experts else 1,
        "zero": rng.choice((0, 1, 2, 3)),
        "microbatch": rng.choice((1, 2)),
        "recompute": rng.choice(("none", "selective", "full")),
        "schedule": schedule if pp > 1 else "1f1b",
        "interleave": 2
        if pp > 1 and schedule in ("interleaved", "zbv")
        else 1,
        "sequence_parallel": rng.choice((True, True, False)),
    }
    hidden = rng.choice(("all", "all", "backward", "off"))
    chip = rng.choice(("h100-sxm", "b200", "a100-80", "gb200", "mi300x"))
    framework = rng.choice(
        ("megatron-core", "megatron-bridge", "megatron-2021", "torchtitan")
    )
    try:
        job = Job(
            model,
            f"{chips}x{chip}",
            rng.choice((64, 512)),
            Layout(**layout),
            framework=framework,
            seq=rng.choice((512, 1024, 2048, 8192)),
            software=Software(
                tp_overlap=hidden, ep_overlap=rng.choice((None, experts))
            ),
        )
        predict(job)
    except BadInput:
        return None
    return job


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_drawn(seed: int) -> None:
    rng = random.Random(seed)
    jobs = []
    while len(jobs) < DRAWN:
        if job := drawn(rng):
            jobs.append(job)
    for job in jobs:
        never_slower(job)
