"""How likely the memory model thinks it that NVIDIA's performance recipes run out of memory, on the
chips they are published for.

    python benchmarks/recipes.py            those with a risk above 0.02
    python benchmarks/recipes.py --all      every recipe

Rows: tests/formats/bridge_recipes.json, as `meshwright read` takes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from meshwright import Job, predict
from meshwright.layout import rules

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "formats"))
import test_bridge

SHOWN = 0.02
GIB = 2.0**30


def jobs() -> Iterator[tuple[str, Job]]:
    """Every recipe that is described, and the job it is."""
    tool = test_bridge.bridge.TOOLS["megatron-bridge"]
    for row in test_bridge.RECIPES["rows"]:
        if test_bridge.is_described(row) and "global_batch_size" in row:
            keys = {k: v for k, v in row.items() if k != "file"}
            known = test_bridge.bridge.understood_as(
                "megatron-bridge", tool.of_tree(keys, "")
            )
            yield row["recipe"], test_bridge.job_from(known)


def lines(least: float) -> Iterator[str]:
    """A line each, and how many are above a tenth and above a half."""
    risks = []
    for name, job in jobs():
        if rules.broken(job, job.layout):
            yield f"refused  {name}"
            continue
        p = predict(job)
        risk, bytes_ = p.risk_of_oom, p.memory_bytes
        risks.append(risk)
        if risk > least:
            need, size = bytes_["needed"] / GIB, bytes_["capacity"] / GIB
            yield f"{risk:.3f}    {name}: {need:.1f} of {size:.1f} GiB"
    above = [sum(risk > limit for risk in risks) for limit in (0.1, 0.5)]
    yield f"{len(risks)} recipes: risk above 0.1 {above[0]}, above 0.5 {above[1]}"


if __name__ == "__main__":
    print(*lines(-1.0 if "--all" in sys.argv else SHOWN), sep="\n")
