"""Output of nccl-tests (all_reduce_perf and its kin), and tables of measured collectives: seconds by collective, group and bytes.

A line of nccl-tests is  size count type redop root  time algbw busbw #wrong  time algbw busbw #wrong  (out of place, then in place; microseconds, GB/s).
`size` is the full vector: what each rank ends with (all-gather) or starts with (reduce-scatter, all-to-all).
Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..cost.fit import Line, alpha_beta
from ..errors import BadInput
from ..spec.measured import Table
from . import read_text

LARGEST = 16 * 2**20
MOST_ROWS = 100_000
MOST_BYTES, SHORTEST_S, LONGEST_S = 1e18, 1e-12, 1e9
KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "broadcast": "broadcast",
    "reduce": "reduce", "sendrecv": "send",
}  # fmt: skip
RANK = re.compile(r"#\s+Rank\s+(\d+).*?\son\s+(\S+)\s")
NAME = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|sendrecv|reduce)_perf", re.IGNORECASE
)
COLUMNS = ("collective", "nodes", "gpus_per_node", "size_bytes", "time_mean_s")


class Sample(NamedTuple):
    """One measured collective."""

    kind: str
    nodes: int
    per_node: int
    bytes: float
    seconds: float


def load(path: str | Path, kind: str = "") -> list[Sample]:
    """The samples of a file, nccl-tests' text or a CSV of the columns COLUMNS; BadInput if it is neither.

    kind: the collective, where neither the text nor the name of the file says it.
    """
    text = read_text(path, LARGEST)
    head = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    found = list(
        of_csv(text)
        if head.startswith("collective,")
        else of_text(text, kind or of_name(text, Path(path).name), str(path))
    )
    if not found:
        raise BadInput(
            f"{path} holds no measured collectives: neither lines of nccl-tests nor a table of {', '.join(COLUMNS)}"
        )
    if len(found) > MOST_ROWS:
        raise BadInput(f"{path} holds more than {MOST_ROWS} measured collectives")
    return found


def of_name(text: str, name: str) -> str:
    """The collective that the program's name in the text, or else the name of the file, says; "" if neither does."""
    match = NAME.search(text) or NAME.search(name)
    return KINDS[match[1].lower().replace("_", "")] if match else ""


def of_text(text: str, kind: str, where: str) -> Iterator[Sample]:
    """The lines of a run; time is the mean of out of place and in place, as far as it has both."""
    ranks = {int(m[1]): m[2] for m in RANK.finditer(text)}
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+\w+\s", line)]
    if rows and not kind:
        raise BadInput(
            f"{where} does not say which collective it measured: name the file all_reduce_perf.txt or the like"
        )
    if rows and len(ranks) < 2:
        raise BadInput(f"{where} does not list its ranks (lines '#  Rank  0 ... on HOST device ...'), or only one")
    nodes = len(set(ranks.values()))
    for row in rows:
        after = row[5:]  # time algbw busbw wrong, once or twice
        try:
            times = [float(after[i]) for i in range(0, len(after) - 2, 4)]
            size = float(row[0])
        except ValueError:
            raise BadInput(f"{where}: {' '.join(row)[:80]!r} is not a line of nccl-tests") from None
        if times and possible(size, seconds := sum(times) / len(times) / 1e6):
            yield Sample(kind, nodes, len(ranks) // nodes, size, seconds)


def of_csv(text: str) -> Iterator[Sample]:
    """The lines of a table; those of collectives we do not model, or without a size or time, are left out."""
    rows = csv.DictReader(line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
        raise BadInput(f"the table of collectives has no column {', '.join(missing)}")
    for row in rows:
        kind = KINDS.get(str(row["collective"]).lower().replace("_", ""))
        try:
            nodes, per_node = int(row["nodes"]), int(row["gpus_per_node"])
            size, seconds = float(row["size_bytes"]), float(row["time_mean_s"])
        except (TypeError, ValueError):
            continue
        if kind and nodes * per_node > 1 and possible(size, seconds):
            yield Sample(kind, nodes, per_node, size, seconds)


def possible(size: float, seconds: float) -> bool:
    """A size and a time that a collective can have; nan and inf are none."""
    return 0 < size < MOST_BYTES and SHORTEST_S < seconds < LONGEST_S


Group = tuple[str, int, int]
"""(collective, nodes, ranks of a node)."""


def fits(samples: list[Sample]) -> dict[Group, Line]:
    """A line through each collective of each group: latency + bytes / rate, with its median error."""
    return {group: alpha_beta(*zip(*rows, strict=True)) for group, rows in by_group(samples).items() if len(rows) > 1}


def by_group(samples: list[Sample]) -> dict[Group, list[tuple[float, float]]]:
    """Group -> (bytes, seconds) by size; of several measurements of a size the mean."""
    found: dict[Group, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for s in samples:
        found[s.kind, s.nodes, s.per_node][s.bytes].append(s.seconds)
    return {group: [(x, sum(t) / len(t)) for x, t in sorted(rows.items())] for group, rows in found.items()}


def tables(samples: list[Sample], level: int, sources: dict[str, dict[str, str]]) -> dict[str, Table]:
    """Collective -> table by ranks and bytes, of groups inside a node (level 0) or of one rank a node (level 1).

    Sizes are those that every group of a collective has. Groups that span both levels at once are left to the formulas.
    """
    rows = by_group(samples)
    made = {}
    for kind in dict.fromkeys(kind for kind, _, _ in rows):
        groups = {
            (n if level == 0 else nodes): r
            for (k, nodes, n), r in rows.items()
            if k == kind and (nodes == 1 if level == 0 else n == 1)
        }
        sizes = sorted(set.intersection(*({x for x, _ in r} for r in groups.values()))) if groups else []
        if len(sizes) < 2:
            continue
        ranks = sorted(groups)
        lines = {n: alpha_beta(*zip(*groups[n], strict=True)) for n in ranks}
        seconds = tuple(dict(groups[n])[x] for n in ranks for x in sizes)
        fit = "; ".join(
            f"{n} ranks: {x.latency:.3g} s + bytes / {x.rate:.3g} B/s, median error {x.error:.0%}"
            for n, x in lines.items()
        )
        made[kind] = Table(
            ("ranks", "bytes"), (tuple(map(float, ranks)), tuple(sizes)), seconds, None, fit[:500], sources
        )
    return made
