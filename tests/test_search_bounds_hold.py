"""Random spaces: no bound of a search lies above what a layout takes, row by row and option by
option. That the best are right shows a bound that is too high only where it cost one of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshwright import BadInput, Cluster, Dim, Job, Model, Network
from meshwright.describe.assumptions import SETS
from meshwright.search import Space, brute, search
from spaces import CHIP, SEARCHED, hybrid, random_job

EVERY = 10**7
"""More than the layouts of any of these spaces."""
LARGEST = 128
"""Chips times sequences."""
LAYOUTS = 50
"""Of one space that are asked for."""
PINNED = (
    "tp",
    "cp",
    "pp",
    "microbatch",
    "schedule",
    "zero",
    "recompute",
    "sequence_parallel",
)
"""Not dp, whose intervals have bounds of their own."""
Draw = Callable[[random.Random], tuple[Job, Space]]
"""Draws a job and a space."""
PAPERS = ("megatron-2021", "megatron-2021", "epoch-2024", "lbl-2024")
"""Sets by which a pipeline waits as a paper says."""
FRAMEWORKS = (
    "megatron-core",
    "torchtitan",
    "fsdp",
    "maxtext",
    "megatron-2021",
    "unknown",
)


def anything(rng: random.Random) -> tuple[Job, Space]:
    """As everywhere in these tests, and hybrids, frameworks, HSDP, groups of microbatches."""
    job, space, _ = random_job(rng)
    if rng.random() < 0.3:
        job = replace(job, model=hybrid(rng, job.model), seq=0)
    if rng.random() < 0.5:
        job = replace(job, assumptions=SETS["realistic"])
        job = job.with_(framework=rng.choice(FRAMEWORKS))
    if rng.random() < 0.2:
        space = space.but(microbatch_group=rng.choice([(0, 2), (3,)]))
    if rng.random() < 0.3:
        space = space.but(dp_replicate=rng.choice([None, (2,), (1, 2, 3)]))
    if rng.random() < 0.1:
        space = space.but(schedule=("dualpipe",))
    space = replace(space, relaxed=True)
    return replace(job, batch=rng.choice([4, 6, 7, 8, 12, 16, 30])), space


def rivals(rng: random.Random) -> tuple[Job, Space]:
    """Pipelines of which several ranks may be the slowest, the last with fewer layers and a head.
    Where a formula asks the slowest rank alone it jumps as soon as another is the slowest: for
    layers alone, if heavier ones come first; or where tensor parallel groups lie nearer.
    """
    if rng.random() < 0.5:
        layers, full, pp, tp = rng.randint(30, 40), rng.randint(3, 9), 8, 1
        heavy = (f"{full}*full", f"{layers - full}*sliding")
        window = rng.randint(5800, 7200)
        model = Model(
            "heavy layers first",
            layers,
            4096,
            32,
            14336,
            32000,
            8192,
            window=window,
            pattern=heavy,
        )
        job = Job(model, "8xh100-sxm", 16)
    else:
        pp = tp = 2
        near, far = Dim("near", 3e11, 1e-6, 4), Dim("far", 2.5e10, 5e-6)
        cluster = Cluster(CHIP, Network("two", (near, far)), 16)
        vocab = rng.randrange(30_000, 150_000, 1000)
        model = Model("head", 3, 768, 6, 3072, vocab, 256, gated=False)
        job = Job(model, cluster, 8, assumptions=SETS[rng.choice(PAPERS)])
    space = Space(
        relaxed=True,
        tp=tp,
        cp=tp,
        pp=pp,
        microbatch=1,
        schedule=tuple(SEARCHED),
        zero=0,
        recompute="none",
        stages="even",
        sequence_parallel=False,
    )
    return job, space


@pytest.mark.parametrize(
    ("draw", "number"),
    [(anything, 3), (rivals, 6)],
    ids=["anything", "rivals"],
)
@pytest.mark.parametrize("seed", range(3))
def test_no_layout_undercuts_a_bound(
    seed: int, draw: Draw, number: int
) -> None:
    """Of the fastest placement of any degrees and options: a search of nearly nothing else, that may
    not exceed what it takes and needs, has it. No bound of it is higher, alone or in an interval.
    """
    rng = random.Random(seed)
    while number:
        try:
            job, space = draw(rng)
            if job.cluster.chips * job.batch > LARGEST:
                continue
            every = brute(job, space, EVERY, capacity=np.inf, weigh=None)
        except BadInput:  # what this software does not do
            continue
        number -= bool(every.rows)
        fastest: dict[Any, Any] = {}
        for row in every.rows:
            fastest.setdefault((row.degrees, row.options), row)
        some = rng.sample([*fastest.values()], min(len(fastest), LAYOUTS))
        for row in some:
            layout = every.layout(row)
            pins = {name: getattr(layout, name) for name in PINNED}
            found = search(
                job,
                space.but(**pins),
                EVERY,
                within=row.merit,
                capacity=row.bytes,
                weigh=None,
            )
            assert layout in found.layouts, layout
