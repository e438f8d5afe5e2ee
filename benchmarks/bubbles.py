"""Bubbles of PyTorch's pipeline schedules as this machine runs them, beside what theory says.

    PYTHONPATH=src python benchmarks/bubbles.py [-o benchmarks/bubbles.md]

Trains a small decoder under every schedule on 2 and on 4 ranks, records a few steps and replays the
CPU seconds of their actions in virtual time (`meshwright.compare.virtual`), so that it does not
matter how many cores there are. Stages do nearly the same work: the vocabulary is tiny. PyTorch
splits no backward pass of the first stage, so with split passes stages differ; theory is then the
schedule's timeline with the passes of each stage as long as they were.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from meshwright.compare import compare
from meshwright.compare.virtual import Bubble
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.describe.training import Settings
from meshwright.formats.run_folder import read_run
from meshwright.schedule import get
from meshwright.train.run import train

MODEL = Model("equal stages", 16, 128, 4, 512, 16, 128, gated=False)
MICROBATCHES, WITHIN = 8, 0.15
SCHEDULES = (
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved", 2),
    ("interleaved", 4),
    ("interleaved-zb", 2),
    ("zbv", 1),
    ("dualpipev", 1),
)
HEAD = (
    "ranks",
    "schedule",
    "chunks",
    "every action's own seconds",
    "each action's median",
    "medians",
    "medians, ranks equally busy",
    "theory",
    "which is",
    "measured / theory",
    "closed form of equal stages",
)


def job(layout: Layout) -> Job:
    """The model on as many cores as the layout has ranks."""
    chip, network = (
        Chip("core", {"fp32": 1e11}, 2e9, 4e9, 1.5e10),
        Network("host", (Dim("host", 2e9, 1e-4),)),
    )
    return Job(
        MODEL,
        Cluster(chip, network, int(layout.chips)),
        MICROBATCHES * int(layout.microbatch),
        layout,
        precision=PRECISIONS["fp32"],
    )


def measured(layout: Layout, steps: int) -> Bubble:
    """The bubble of one run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as quiet,
        contextlib.redirect_stderr(quiet),
    ):
        settings = Settings(
            steps=steps + 3,
            record=steps,
            data="synthetic",
            output=f"{folder}/run",
        )
        train(job(layout), settings)
        found = compare(read_run(settings.output)).virtual
    assert found and found.bubble.as_planned
    return found.bubble


def layouts(ranks: Sequence[int]) -> Iterator[Layout]:
    """Every schedule on every number of ranks."""
    for p in ranks:
        for name, v in SCHEDULES:
            yield Layout(pp=p, dp=1, microbatch=2, schedule=name, interleave=v)


def sides(layout: Layout, b: Bubble) -> tuple[float, float, str]:
    """Measured and theoretical bubble, and what theory is.

    Whole backward passes: medians of each kind and stage, ranks equally busy, beside Narayanan et
    al.'s (p-1)/(v m), which is of equal stages. Split ones: each action's median over steps, beside
    the schedule's timeline with the medians of kinds and stages.
    """
    schedule = get(layout.schedule)
    if schedule.split_backward:
        return b.measured_steady, b.expected, "timeline of F, I, W"
    return (
        b.balanced,
        (layout.pp - 1) / (schedule.chunks(layout.interleave) * MICROBATCHES),
        "(p-1)/(v m)",
    )


def row(layout: Layout, b: Bubble) -> tuple[str, ...]:
    """One line of the table."""
    chunks = int(get(layout.schedule).chunks(layout.interleave))
    ran, promised, name = sides(layout, b)
    shares = (
        f"{share:.4f}"
        for share in (
            b.measured_raw,
            b.measured_steady,
            b.measured,
            b.balanced,
            promised,
        )
    )
    return (
        str(int(layout.pp)),
        layout.schedule,
        str(chunks),
        *shares,
        name,
        f"{ran / promised:.3f}",
        f"{b.closed_form:.4f}",
    )


def main() -> int:
    """The table on stdout or in a file; 1 if a bubble is further from theory than WITHIN."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    given = parser.parse_args()
    rows, off = [], []
    for layout in layouts(given.ranks):
        found = measured(layout, given.steps)
        ran, promised, _ = sides(layout, found)
        rows.append(row(layout, found))
        off.append(abs(ran / promised - 1))
        print(*rows[-1], sep="\t", file=sys.stderr, flush=True)
    table = "\n".join(
        "| " + " | ".join(cells) + " |"
        for cells in (HEAD, ("---",) * len(HEAD), *rows)
    )
    (
        print(table)
        if given.output is None
        else Path(given.output).write_text(
            text(table, given.steps, off), "utf-8"
        )
    )
    return int(max(off) > WITHIN)


def text(table: str, steps: int, off: Sequence[float]) -> str:
    """The file."""
    return f"""Measured with `python benchmarks/bubbles.py` on {os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}, \
PyTorch {torch.__version__}: {MODEL.layers} layers of width {MODEL.hidden}, {MICROBATCHES} microbatches, {steps} recorded steps. \
A bubble is idle over useful time, in virtual time.

{table}

"Measured" is, for whole backward passes, the medians of kinds and stages with equally busy ranks; for split ones each action's median over
the steps (with those of kinds and stages it would be theory by construction, for every program ran its actions in the order of
`meshwright.schedule`). Largest difference from theory: {max(off):.1%}. With every action's own seconds bubbles are larger: an action takes 6 to 11 % more or
less CPU time from step to step where other work shares the cores, and ranks that wait for one another add up what is longest.
"""


if __name__ == "__main__":
    sys.exit(main())
