"""How likely the memory model thinks it that NVIDIA's performance recipes run out of memory, on the
chips they are published for.

    python benchmarks/recipes.py            those with a risk above 0.02
    python benchmarks/recipes.py --all      every recipe

Rows: tests/formats/bridge_recipes.json, as `meshwright read` takes them. CONTRADICTED are told
apart: as they are, and as their docstrings have them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright import Job, predict
from meshwright.layout import rules

for folder in ("tests", "tests/formats"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
import test_bridge  # noqa: E402

SHOWN = 0.02
CONTRADICTED = {
    f"llama31_405b_pretrain_128gpu_{name}_config": fields
    for name, fields in {
        "b200_bf16": {"pp": 8, "cp": 2},
        "b200_fp8mx": {"pp": 8, "cp": 2},
        "gb200_bf16": {"pp": 8, "cp": 2},
        "gb200_fp8cs": {
            "tp": 2,
            "pp": 1,
            "interleave": 1,
            "schedule": "1f1b",
            "zero": 3,
            "offload": "activations:92",
        },
    }.items()
}
"""Recipe whose docstring names another layout -> that layout (the head of catalog/recipes.csv)."""
GIB = 2.0**30


def jobs() -> Iterator[tuple[str, Job]]:
    """Every recipe that is described, and the job it is."""
    tool = test_bridge.bridge.tool_named("megatron-bridge")
    for row in test_bridge.RECIPES["rows"]:
        if test_bridge.is_described(row) and "global_batch_size" in row:
            keys = {k: v for k, v in row.items() if k != "file"}
            known = test_bridge.bridge.understood_as(
                "megatron-bridge", tool.of_tree(keys, "")
            )
            yield row["recipe"], test_bridge.job_from(known)


def lines(least: float) -> Iterator[str]:
    """A line each, and how many are above a tenth and above a half."""
    risks, meant = [], []
    for name, job in jobs():
        if rules.broken(job, job.layout):
            yield f"refused  {name}"
            continue
        risk, shown = risk_of(job)
        risks.append(risk)
        if risk > least:
            yield f"{risk:.3f}    {name}: {shown}"
        if changes := CONTRADICTED.get(name):
            risk, shown = risk_of(docstring(job, changes))
            yield f"{risk:.3f}    {name}, as its docstring says: {shown}"
        meant.append(risk)
    for what, of in (("as they are", risks), ("by their docstrings", meant)):
        above = [sum(risk > limit for risk in of) for limit in (0.1, 0.5)]
        yield (
            f"{len(of)} recipes {what}: risk above 0.1 {above[0]}, above 0.5"
            f" {above[1]}"
        )


def docstring(job: Job, changes: dict[str, Any]) -> Job:
    """The job with a layout of the same chips."""
    layout = replace(job.layout, **changes)
    ranks = layout.tp * layout.pp * layout.cp
    return replace(job, layout=replace(layout, dp=job.cluster.chips // ranks))


def risk_of(job: Job) -> tuple[float, str]:
    """Risk, and bytes in words."""
    p = predict(job)
    bytes_ = p.memory_bytes
    need, size = bytes_["needed"] / GIB, bytes_["capacity"] / GIB
    return p.risk_of_oom, f"{need:.1f} of {size:.1f} GiB"


if __name__ == "__main__":
    print(*lines(-1.0 if "--all" in sys.argv else SHOWN), sep="\n")
