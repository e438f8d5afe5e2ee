"""How fast the search is, beside the same formulas evaluated one layout at a time, in one run on
one core.

    python benchmarks/search.py [-o benchmarks/search.md]

Seconds are CPU seconds of this process, the best of a few runs. Machines differ and are noisy, so
the figures to compare are the ratios: grid points a second over layouts a second one at a time.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

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


def rows() -> list[tuple[str, ...]]:
    """Name, result, ratio to one layout at a time."""
    table = []
    for kind, job in jobs(16384).items():
        single = one_at_a_time(job)
        table.append(
            (f"{kind}: one layout at a time", f"{single:,.0f} layouts/s", "1")
        )
        found = brute(job, Space())
        rate = found.evaluated / seconds(
            lambda job=job: brute(job, Space()), 2 if kind == "MoE" else 5
        )
        table.append(
            (
                f"{kind}: brute force, 16,384 chips, {found.evaluated:,} grid points",
                f"{rate / 1e6:.1f} M grid points/s",
                f"{rate / single:,.0f}",
            )
        )
    for chips in (16384, 131072, 1048576):
        for kind, job in jobs(chips).items():
            covered, took = (
                search(job, Space()).searched,
                seconds(lambda job=job: search(job, Space()), 5),
            )
            table.append(
                (
                    f"{kind}: exact top 10, strict, {chips:,} chips, {covered:,} layouts",
                    f"{took:.3f} s",
                    f"{covered / took / one_at_a_time(job):,.0f}",
                )
            )
    for chips in (98304, 100000):
        for kind, job in jobs(chips).items():
            covered, took = (
                search(job, Space(), relaxed=True).searched,
                seconds(lambda job=job: search(job, Space(), relaxed=True)),
            )
            table.append(
                (
                    f"{kind}: exact top 10, relaxed, {chips:,} chips, {covered:,} layouts",
                    f"{took:.3f} s",
                    f"{covered / took / one_at_a_time(job):,.0f}",
                )
            )
    job = Job(
        model("llama3-70b"),
        cluster("1024xh100-sxm"),
        512,
        Layout(
            tp=8, pp=4, dp=32, interleave=4, schedule="interleaved", zero=1
        ),
    )
    took = seconds(lambda: [predict(job).to_dict() for _ in range(100)]) / 100
    table.append(
        ("one `predict` with its breakdown", f"{took * 1e3:.2f} ms", "")
    )
    took = seconds(lambda: plan(job))
    table.append(("`plan` of llama3-70b on 1,024 chips", f"{took:.3f} s", ""))
    return table


def main() -> None:
    """Print the table as Markdown, or write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path)
    output = parser.parse_args().output
    lines = [
        "| what | CPU time or rate | ratio to one at a time |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows()),
    ]
    head = (
        "Measured with `python benchmarks/search.py` on one core of"
        f" {platform.processor() or platform.machine()}, Python {platform.python_version()}.\n\n"
    )
    text = head + "\n".join(lines) + "\n"
    if output:
        output.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
