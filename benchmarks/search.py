"""How fast the search is, beside the same formulas evaluated one layout at a time, in one run on
one core.

    python benchmarks/search.py [-o benchmarks/search.md] [--only WORD] [--beside THEN.md]

`--only` measures the rows that name the word and leaves the others as the file has them; `--beside`
shows what the same file of another version says, written on the same machine in the same hour, and
how many times as long (or as fast) the row is now. The spaces grow from version to version: a row
says how many layouts it covers.

Seconds are CPU seconds of this process, the best of a few runs. Machines differ and are noisy, so
the figures to compare are the ratios: grid points a second over layouts a second one at a time.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from meshwright import predict
from meshwright.catalog import cluster, model
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model, MoE
from meshwright.layout.placement import placed
from meshwright.search import Space, brute, plan, search
from meshwright.step import step_time

SPARSE = Model(
    "moe-64",
    64,
    7168,
    128,
    18432,
    129280,
    8192,
    head_dim=128,
    moe=MoE(256, 8, 2048, 2048),
)
"""DeepSeek-V3-like: 64 layers, 256 experts, top 8."""


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """CPU seconds of the fastest of a few runs."""
    best = float("inf")
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def jobs(chips: int) -> dict[str, Job]:
    """A dense and a sparse job on that many B200 in NVLink domains of 8."""
    on = cluster(f"{chips}xlbl-b200")
    fp16 = PRECISIONS["fp16"]
    return {
        "dense": Job(model("gpt3-1t"), on, 4096, precision=fp16),
        "MoE": Job(SPARSE, on, 16384, precision=fp16),
    }


def one_at_a_time(job: Job) -> float:
    """Layouts a second: the step formulas on plain numbers."""
    layout = placed(
        Layout(tp=4, pp=4, dp=job.cluster.chips // 16), job.cluster.sizes
    )
    return 200 / seconds(lambda: [step_time(job, layout) for _ in range(200)])


Row = tuple[str, str, str]
"""What, result, ratio to one layout at a time."""


def brute_force() -> Iterator[tuple[str, Callable[[], Row]]]:
    """Layouts one at a time, and all grid points."""
    for kind, job in jobs(16384).items():

        def alone(kind: str = kind, job: Job = job) -> Row:
            rate = f"{one_at_a_time(job):,.0f} layouts/s"
            return f"{kind}: one layout at a time", rate, "1"

        def grid(kind: str = kind, job: Job = job) -> Row:
            start = time.process_time()
            points = brute(job, Space()).evaluated
            rate = points / (time.process_time() - start)
            what = f"{kind}: brute force, 16,384 chips, {points:,} grid points"
            many = f"{rate / one_at_a_time(job):,.0f}"
            return what, f"{rate / 1e6:.1f} M grid points/s", many

        yield f"{kind}: one layout at a time", alone
        yield f"{kind}: brute force, 16,384 chips", grid


def searches() -> Iterator[tuple[str, Callable[[], Row]]]:
    """The exact search, strict and relaxed."""
    strict, relaxed = (16384, 131072, 1048576), (98304, 100000)
    for how, chips in (
        *(("strict", chips) for chips in strict),
        *(("relaxed", chips) for chips in relaxed),
    ):
        for kind, job in jobs(chips).items():
            what = f"{kind}: exact top 10, {how}, {chips:,} chips"

            def row(what: str = what, job: Job = job, how: str = how) -> Row:
                def work() -> Any:
                    return search(job, Space(relaxed=how == "relaxed"))

                covered, took = work().searched, seconds(work, 5)
                many = f"{covered / took / one_at_a_time(job):,.0f}"
                return f"{what}, {covered:,} layouts", f"{took:.3f} s", many

            yield what, row


def answers() -> Iterator[tuple[str, Callable[[], Row]]]:
    """A prediction and a plan."""
    given = Layout(
        tp=8, pp=4, dp=32, interleave=4, schedule="interleaved", zero=1
    )
    job = Job(model("llama3-70b"), cluster("1024xh100-sxm"), 512, given)

    def predicted() -> Row:
        def work() -> None:
            for _ in range(100):
                predict(job).to_dict()

        took = seconds(work) / 100
        what = "one `predict` with its breakdown"
        return what, f"{took * 1e3:.2f} ms", ""

    def planned() -> Row:
        what = "`plan` of llama3-70b on 1,024 chips"
        return what, f"{seconds(lambda: plan(job)):.3f} s", ""

    yield "one `predict` with its breakdown", predicted
    yield "`plan` of llama3-70b on 1,024 chips", planned


BESIDE = """
A layout costs a third more than it did at dd8b18c, from which the allowance of searches is counted,
because a step knows more laws since, and a grid point twice as much. Searches take 1.2 to 2.2 times
as long, since bounds leave out most layouts; relaxed spaces of experts are half as large again.
"""
"""Why the columns differ."""


def read(path: Path | None) -> dict[str, Row]:
    """The rows of a file, by what they measure without how much it covers."""
    if not path or not path.exists():
        return {}
    lines = path.read_text("utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if "| " in line]
    rows = [tuple(each[:3]) for each in cells[1:]]
    return {
        re.sub(r", [\d,]+ (layouts|grid points)$", "", each[0]): (*each, "")[
            :3
        ]
        for each in rows
    }


def beside(now: str, then: str) -> str:
    """How many times as much one result is as another of the same unit."""
    a, b = (float(text.split()[0].replace(",", "")) for text in (now, then))
    return f"{a / b:.2f}"


def main() -> None:
    """Print the table as Markdown, or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--beside", type=Path, metavar="THEN.md")
    given = parser.parse_args()
    known, then = read(given.output), read(given.beside)
    heads = ["what", "CPU time or rate", "ratio to one at a time"]
    heads += [given.beside.stem, "now / then"] if then else []
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for part in (brute_force, searches, answers):
        for what, measure in part():
            row = measure() if given.only in what else known.get(what)
            if not row:
                continue
            old = then.get(what, ("", "", ""))[1]
            more = (old, beside(row[1], old) if old else "") if then else ()
            lines.append(f"| {' | '.join((*row, *more))} |")
    head = (
        "Measured with `python benchmarks/search.py` on one core of"
        f" {platform.processor() or platform.machine()}, Python {platform.python_version()}.\n\n"
    )
    text = head + "\n".join(lines) + "\n" + (BESIDE if then else "")
    if given.output:
        given.output.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
