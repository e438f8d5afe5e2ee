"""The closed form of a pipeline beside its exact replay, over drawn pipelines.

    PYTHONPATH=src python benchmarks/closed_forms.py [--draws 300] [--seed 0] [-o benchmarks/closed_forms.md]

Each draw is a schedule with its ranks, microbatches (fewer than the ranks to 8 times as many),
chunks, layers (which need not divide), seconds of a layer, of the head (up to a whole device's
work) and of the embedding, and of a send (none to half a chunk's forward). Both sides are reckoned
for a step by itself and in a run of steps. Error: closed form over longest path, less 1.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from meshwright import catalog
from meshwright.cost.layer import LayerCost
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.prediction.replay import stage_seconds
from meshwright.schedule import SCHEDULES, get
from meshwright.schedule.timeline import step_in_run_s
from meshwright.schedule.types import Costs
from meshwright.step import Body, ordered, shares, stages

BARRIERS = ("global norm", "none")
WITHIN = 0.02
"""How far a closed form may lie from the replay."""


class Drawn(NamedTuple):
    """One pipeline."""

    schedule: str
    p: int
    m: int
    v: int
    layers: int
    parts: Body
    send: float

    def __str__(self) -> str:
        t, h = self.parts.typical, self.parts.head
        return (
            f"{self.schedule} p {self.p} m {self.m} v {self.v} layers {self.layers} layer"
            f" {_passes(t)} head {_passes(h)} send {self.send:.3g}"
        )


class Error(NamedTuple):
    """Of one pipeline under one barrier."""

    drawn: Drawn
    barrier: str
    value: float


def _passes(c: LayerCost) -> str:
    return " ".join(
        f"{x:.3g}"
        for x in (c.forward, c.backward - c.weight_pass, c.weight_pass)
    )


def draw(rng: random.Random, name: str) -> Drawn:
    """A pipeline that the schedule can run."""
    schedule = get(name)
    while True:
        p = rng.choice([2, 3, 4, 6, 8, 16])
        v = (
            rng.choice([2, 3, 4, 6])
            if schedule.chunks(7) == 7
            else int(schedule.chunks(1))
        )
        rounds = rng.choice([0.5, 1.0, 1.0, 1.5, 1.75, 2.0, 3.0, 4.0, 8.0])
        m = max(int(p * rounds) + rng.choice([0, 0, 1]), 1)
        m = p * max(m // p, 1) if name.startswith("interleaved") else m
        layers = p * v * rng.choice([1, 2, 4]) + rng.choice(
            [0, 0, 1, 2, p - 1, p, p * v - 2]
        )
        if layers <= 80 * v and schedule.legal(p, m, v if v > 1 else 1):
            break
    again = rng.choice([0.0, 0.0, 1.0])
    i, w = rng.uniform(1.0, 1.4) + again, rng.uniform(0.6, 1.0)
    typical = LayerCost(1.0, i + w, weight_pass=w)
    heavy = rng.choice([0.0, 0.3, 1.0]) * rng.random() * max(layers / p, 1.0)
    head = LayerCost(heavy, 2 * heavy, weight_pass=heavy)
    light = rng.random() * 0.2
    embedding = LayerCost(light, light, weight_pass=0.7 * light)
    send = rng.choice([0.0, 0.1, 0.5]) * rng.random() * layers / p / v
    return Drawn(
        name,
        p,
        m,
        v,
        layers,
        Body((typical,), embedding, head, 0.0, 0.0),
        send,
    )


def closed_and_exact(at: Drawn, barrier: str) -> tuple[float, float]:
    """Seconds of the step by the closed form, and by replay."""
    schedule = get(at.schedule)
    overlap = replace(REALISTIC.overlap, step_barrier=barrier)
    model = replace(catalog.model("llama3-8b"), layers=at.layers)
    job = Job(
        model,
        catalog.cluster("8xh100-sxm"),
        64,
        assumptions=replace(REALISTIC, overlap=overlap),
    )
    layout = Layout(pp=at.p, interleave=at.v, schedule=at.schedule)
    s = stages(layout, at.parts, shares(job, layout, schedule, at.v))
    closed = float(
        ordered(job, at.p, at.m, s, at.send, schedule, at.v, refine=True).total
    )
    passes = tuple(map(tuple, stage_seconds(job, layout, at.parts).tolist()))
    schedule = schedule.timed(Costs(passes, at.send))
    together = barrier != "none" or not schedule.split_backward
    order, place = (
        schedule.order(at.p, at.m, at.v),
        schedule.placement(at.p, at.v),
    )
    return closed, step_in_run_s(order, place, passes, at.send, together)


def errors(
    seed: int, draws: int, names: tuple[str, ...] = tuple(SCHEDULES)
) -> Iterator[Error]:
    """So many draws of each schedule."""
    for name in names:
        rng = random.Random(f"{seed} {name}")
        for _ in range(draws):
            at = draw(rng, name)
            for barrier in (
                BARRIERS if get(name).bubble_in_run else BARRIERS[:1]
            ):
                closed, exact = closed_and_exact(at, barrier)
                yield Error(at, barrier, closed / exact - 1)


def table(found: list[Error]) -> Iterator[str]:
    """Median, worst and share of draws beyond WITHIN, by schedule and barrier."""
    yield "| schedule | steps | draws | median error | too fast by | too slow by | beyond 2 % |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in SCHEDULES:
        for barrier, words in zip(
            BARRIERS, ("by itself", "in a run"), strict=True
        ):
            mine = [
                e.value
                for e in found
                if e.drawn.schedule == name and e.barrier == barrier
            ]
            if mine:
                beyond = sum(abs(x) > WITHIN for x in mine) / len(mine)
                yield (
                    f"| {name} | {words} | {len(mine)} | {median(map(abs, mine)):.2%} |"
                    f" {abs(min(*mine, 0.0)):.1%} | {max(*mine, 0.0):.1%} | {beyond:.0%} |"
                )


def main() -> int:
    """The table on stdout or in a file, and the worst pipelines."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(SCHEDULES))
    parser.add_argument(
        "--worst",
        type=int,
        default=0,
        help="print so many of the worst pipelines of each schedule",
    )
    given = parser.parse_args()
    found = list(errors(given.seed, given.draws, tuple(given.only)))
    lines = list(table(found))
    print("\n".join(lines))
    for name in given.only:
        mine = sorted(
            (e for e in found if e.drawn.schedule == name),
            key=lambda e: -abs(e.value),
        )
        for e in mine[: given.worst]:
            print(f"{e.value:+.2%} {e.barrier}: {e.drawn}", file=sys.stderr)
    if given.output:
        about = (
            f"Closed form of a pipeline over its exact replay, {given.draws} drawn pipelines a"
            " schedule"
        )
        Path(given.output).write_text(
            f"{about} (`python benchmarks/closed_forms.py`).\n\n"
            + "\n".join(lines)
            + "\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
