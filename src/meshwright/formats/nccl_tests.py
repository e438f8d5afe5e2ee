"""Output of nccl-tests (all_reduce_perf and its kin), and tables of measured collectives: seconds
by collective, group and bytes.

A line of nccl-tests says what its line of titles says, in whatever version:
    size count type [redop] [root]  time algbw busbw ...  time algbw busbw ...
out of place, then in place, with times in microseconds and GB/s. `size` is the full vector: what
each rank ends with (all-gather) or starts with (reduce-scatter, all-to-all), and algbw = size /
time and busbw = algbw times a factor of the collective and its ranks, which every line is held to.
Before the size a launcher may have written anything: a rank (mpirun --tag-output, srun --label), a
time, a pod. Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/common.cu, versions
2.0 to 2.19.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from ..cost.fit import LatencyAndRate, alpha_beta
from ..describe.measured import MeasuredTable
from ..errors import BadInput
from . import read_text

LARGEST = 16 * 2**20
MOST_ROWS = 100_000
MOST_BYTES = 1e18
SHORTEST_S = 1e-12
LONGEST_S = 1e9
MICROSECOND, GB = 1e-6, 1e9
KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send",
    "send": "send",
}
RANK = re.compile(
    r"#\s+Rank\s+(\d{1,9})\b(?:\s+Group\s+(\d{1,9}))?.*?\son\s+(\S+)\s"
)
NAME = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|broadcast|sendrecv|reduce|gather"
    r"|scatter|hypercube)_perf",
    re.IGNORECASE,
)
"""The programs of nccl-tests; rows of those that are not in KINDS are left out."""
TITLES = re.compile(r"#\s*(?:size|bytes)\s+(?:count|N)\s+type\s+(.*algbw.*)")
"""The line that names the columns; what follows `type` differs by version."""
ROW = re.compile(r"[^#]*?(?<![\w.])(\d+)\s+(\d+)\s+([A-Za-z]\w*)\s+(\S.*)")
"""Anything of a launcher, then size, count, type, and the rest."""
COLUMNS = ("collective", "nodes", "gpus_per_node", "size_bytes", "time_mean_s")


Hosts = dict[tuple[int, int], str]
"""(group, rank) -> host."""


class Sample(NamedTuple):
    """One measured collective."""

    kind: str
    nodes: int
    per_node: int
    bytes: float
    seconds: float


def load_samples(path: str | Path) -> list[Sample]:
    """The samples of a file, nccl-tests' text or a CSV of the columns COLUMNS; BadInput if it is
    neither.
    """
    text = read_text(path, LARGEST)
    head = next(
        (
            line
            for line in text.splitlines()
            if line.strip() and not line.startswith("#")
        ),
        "",
    )
    samples = list(
        of_csv(text)
        if head.startswith("collective,")
        else of_text(text, of_name(text, Path(path).name), str(path))
    )
    if not samples:
        raise BadInput(
            f"{path} holds no measured collectives: neither lines of nccl-tests nor a table of"
            f" {', '.join(COLUMNS)}"
        )
    if len(samples) > MOST_ROWS:
        raise BadInput(
            f"{path} holds more than {MOST_ROWS} measured collectives"
        )
    return samples


def of_name(text: str, name: str = "") -> str:
    """The collective that the program's name in the text, or else the name of the file, says (one
    that we do not model in NVIDIA's word); "" if neither does.
    """
    match = NAME.search(text) or NAME.search(name)
    said = match[1].lower().replace("_", "") if match else ""
    return KINDS.get(said, said)


def of_text(text: str, kind: str, where: str) -> Iterator[Sample]:
    """The lines of one run or of several after each other; time is the mean of out of place and in
    place, as far as it has both.

    kind: the collective of lines that stand before any program's name.
    """
    ranks: Hosts = {}
    titles: list[str] = []
    for line in text.splitlines():
        if rank := RANK.search(line):
            if titles:  # the list of another run begins
                ranks, titles = {}, []
            ranks[int(rank[2] or 0), int(rank[1])] = rank[3]
        elif head := TITLES.search(line):
            titles = head[1].split()
        elif row := ROW.match(line):
            cells = row[4].split()
            if titles and len(cells) < titles.index("algbw"):
                continue  # no line of the table: something that a program said between
            if kind and kind not in KINDS.values():
                continue
            if titles or sum(all_numbers([cell]) for cell in cells) >= 3:
                yield from sample(
                    float(row[1]),
                    cells,
                    titles,
                    ranks=ranks,
                    kind=kind,
                    line=f"{where}: {line.strip()[:100]!r}",
                    where=where,
                )
        elif said := of_name(line):
            kind = said


def sample(
    size: float,
    cells: list[str],
    titles: list[str],
    ranks: Hosts,
    kind: str,
    line: str,
    where: str,
) -> Iterator[Sample]:
    """What one line says; BadInput if it is not known of what, or if it contradicts itself."""
    if not kind:
        raise BadInput(
            f"{where} does not say which collective it measured: name the file all_reduce_perf.txt"
            " or the like"
        )
    if len(ranks) < 2:
        raise BadInput(
            f"{where} does not list its ranks (lines '#  Rank  0 ... on HOST device ...'), or"
            " only one"
        )
    if not titles:
        raise BadInput(
            f"{where} has no line of titles ('#  size  count  type ... time  algbw  busbw') before"
            " its rows"
        )
    if "time" not in titles:
        raise BadInput(
            f"{where} has no column time, but {' '.join(titles)[:80]}: measure without -C, "
            "which reports the time of the launch on the CPU"
        )
    nodes, per_node = shape(ranks, where)
    if nodes * per_node < 2:
        return
    bus = on_the_bus(kind, nodes * per_node)
    times = list(seconds_of_line(size, cells, titles, bus=bus, line=line))
    if times and possible(size, seconds := sum(times) / len(times)):
        yield Sample(kind, nodes, per_node, bytes=size, seconds=seconds)


def shape(ranks: Hosts, where: str) -> tuple[int, int]:
    """(nodes, ranks of a node) of each of the groups that carry out a collective at the same time
    (NCCL_TESTS_SPLIT), whose mean time a line says; BadInput if they are not alike.
    """
    groups: dict[int, Counter[str]] = defaultdict(Counter)
    for (group, _), host in ranks.items():
        groups[group][host] += 1
    counts = {tuple(sorted(nodes.values())) for nodes in groups.values()}
    [first, *others] = counts
    if others or len(set(first)) > 1:
        different = ", ".join(
            str(n) for count in sorted(counts) for n in count
        )
        raise BadInput(
            f"{where}: its nodes have different numbers of ranks ({different[:80]})"
        )
    return len(first), first[0]


def on_the_bus(kind: str, ranks: int) -> float:
    """busbw over algbw, by which a line says what it measured and among how many ranks
    (doc/PERFORMANCE.md).
    """
    parts = {
        "all_reduce": 2,
        "all_gather": 1,
        "reduce_scatter": 1,
        "all_to_all": 1,
    }
    return parts[kind] * (ranks - 1) / ranks if kind in parts else 1.0


def seconds_of_line(
    size: float, cells: list[str], titles: list[str], bus: float, line: str
) -> Iterator[float]:
    """Seconds of each column `time` that has one; each must be size / algbw, and busbw `bus` times
    algbw, as far as they are printed. BadInput where results came out wrong, whose times are those
    of nothing.
    """
    # some versions leave it blank for what reduces nothing
    if "redop" in titles and all_numbers(cells[:1]):
        titles = [title for title in titles if title != "redop"]
    for title, cell in zip(titles, cells, strict=False):
        if title == "#wrong" and all_numbers([cell]) and float(cell) > 0:
            raise BadInput(
                f"{line} says that {cell[:20]} elements came out wrong: its data were damaged, and"
                " its time says nothing"
            )
    for at, title in enumerate(titles):
        if (
            title != "time"
            or titles[at + 1 : at + 2] != ["algbw"]
            or cells[at : at + 1] == ["N/A"]
        ):
            continue
        try:
            time = interval(cells[at], MICROSECOND)
            rate = interval(cells[at + 1], GB)
            busy = (
                interval(cells[at + 2], GB)
                if titles[at + 2 : at + 3] == ["busbw"]
                else (0.0, inf)
            )
        except (ValueError, IndexError, OverflowError):
            raise BadInput(
                f"{line} is not a line of nccl-tests with the columns {' '.join(titles)[:120]}"
            ) from None
        if not time[0] * rate[0] <= size <= time[1] * rate[1]:
            raise BadInput(
                f"{line} contradicts itself: algbw must be size / time, but {size:.15g} bytes "
                f"in {cells[at][:20]} us are not {cells[at + 1][:20]} GB/s"
            )
        if not bus * rate[0] <= busy[1] or not busy[0] <= bus * rate[1]:
            raise BadInput(
                f"{line} is of another collective, or of other ranks: busbw would be {bus:.4g}"
                f" times algbw, not {cells[at + 2][:20]} of {cells[at + 1][:20]}"
            )
        yield float(cells[at]) * MICROSECOND


def all_numbers(cells: list[str]) -> bool:
    """All of them are numbers."""
    try:
        return [float(cell) for cell in cells] != []
    except ValueError:
        return False


def interval(text: str, unit: float) -> tuple[float, float]:
    """Where a printed number may lie: one of its last digit's places either way (rounded, or cut
    off).
    """
    mantissa, _, exponent = text.lower().partition("e")
    place = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    value = float(text)
    return max(value - place, 0.0) * unit, (value + place) * unit


def of_csv(text: str) -> Iterator[Sample]:
    """The lines of a table; those of collectives we do not model, or without a size or time, are
    left out.
    """
    rows = csv.DictReader(
        line
        for line in text.splitlines()
        if line.strip() and not line.startswith("#")
    )
    if missing := [
        name for name in COLUMNS if name not in (rows.fieldnames or ())
    ]:
        raise BadInput(
            f"the table of collectives has no column {', '.join(missing)}"
        )
    for row in rows:
        kind = KINDS.get(re.sub("[_-]", "", str(row["collective"]).lower()))
        try:
            nodes = int(row["nodes"])
            per_node = int(row["gpus_per_node"])
            size = float(row["size_bytes"])
            seconds = float(row["time_mean_s"])
        except (TypeError, ValueError):
            continue
        if kind and nodes * per_node > 1 and possible(size, seconds):
            yield Sample(kind, nodes, per_node, bytes=size, seconds=seconds)


def possible(size: float, seconds: float) -> bool:
    """A size and a time that a collective can have; nan and inf are none."""
    return 0 < size < MOST_BYTES and SHORTEST_S < seconds < LONGEST_S


Group = tuple[str, int, int]
"""(collective, nodes, ranks of a node)."""


def lines_by_group(samples: list[Sample]) -> dict[Group, LatencyAndRate]:
    """A line through each collective of each group: latency + bytes / rate, with its median
    error.
    """
    return {
        group: alpha_beta(*zip(*rows, strict=True))
        for group, rows in by_group(samples).items()
        if len(rows) > 1
    }


def by_group(samples: list[Sample]) -> dict[Group, list[tuple[float, float]]]:
    """Group -> (bytes, seconds) by size; of several measurements of a size the mean."""
    groups: dict[Group, dict[float, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for s in samples:
        groups[s.kind, s.nodes, s.per_node][s.bytes].append(s.seconds)
    return {
        group: [(x, sum(t) / len(t)) for x, t in sorted(rows.items())]
        for group, rows in groups.items()
    }


def untabled(samples: list[Sample]) -> list[str]:
    """Groups that stand in no table of a network, which are of groups inside a node and of one rank
    a node.
    """
    return sorted(
        {
            f"{s.nodes} nodes x {s.per_node} ranks"
            for s in samples
            if s.nodes > 1 and s.per_node > 1
        }
    )


def tables_by_ranks(
    samples: list[Sample], level: int, sources: dict[str, Any]
) -> dict[str, MeasuredTable]:
    """Collective -> its table, of groups inside a node (level 0) or of one rank a node (level 1).
    Groups that span both levels at once are left to the formulas.
    """
    rows = by_group(samples)
    made = {}
    for kind in dict.fromkeys(kind for kind, _, _ in rows):
        groups = {
            (n if level == 0 else nodes): r
            for (k, nodes, n), r in rows.items()
            if k == kind and (nodes == 1 if level == 0 else n == 1)
        }
        if table := collective_table(groups, sources):
            made[kind] = table
    return made


def collective_table(
    groups: Mapping[int, Sequence[tuple[float, float]]],
    sources: dict[str, Any],
) -> MeasuredTable | None:
    """A table by ranks and bytes of what groups of a collective were measured at: ranks -> (bytes,
    seconds). Its sizes are those that all of them have; None of fewer than two.
    """
    every = [{size for size, _ in rows} for rows in groups.values()]
    sizes = sorted(set.intersection(*every)) if every else []
    if len(sizes) < 2:
        return None
    ranks = sorted(groups)
    lines = {n: alpha_beta(*zip(*groups[n], strict=True)) for n in ranks}
    fit = "; ".join(
        f"{n} ranks: {x.latency:.3g} s + bytes / {x.rate:.3g} B/s,"
        f" median error {100 * x.error:.0f} %"
        for n, x in lines.items()
    )
    return MeasuredTable(
        ("ranks", "bytes"),
        (tuple(map(float, ranks)), tuple(map(float, sizes))),
        tuple(float(dict(groups[n])[x]) for n in ranks for x in sizes),
        fit=fit[:500],
        sources=sources,
    )
