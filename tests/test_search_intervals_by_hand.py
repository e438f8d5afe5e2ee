"""Rows and intervals of a relaxed search against plain loops: every number of replicas that a row
may have, every number of microbatches within a limit, what is counted, and whose turn it is.
"""

from __future__ import annotations

import random
from dataclasses import replace
from importlib import import_module
from math import ceil, gcd
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from by_hand import CHIP, MODEL, SET
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.network import Dim, Network
from meshwright.schedule import get
from meshwright.schedule.waits import Wait
from meshwright.search import evaluate, relaxed
from meshwright.search.best import Best
from meshwright.search.degrees import chunked
from meshwright.search.nearest import holds_columns, pick, stacked
from meshwright.search.options import options
from meshwright.search.pieces import Bound
from meshwright.search.space import Space
from meshwright.search.split import NONE, Split

plans = import_module("meshwright.search.plan")
NODES = Network(
    "nodes", (Dim("node", 1e30, 0.0, size=4), Dim("net", 1e30, 0.0, size=999))
)


def job(chips: int, batch: int) -> Job:
    return Job(
        replace(MODEL, layers=6),
        Cluster(CHIP, NODES, chips),
        batch,
        assumptions=SET,
        attention_kernel="unfused",
    )


def drawn(rng: random.Random, rows: int) -> dict[str, Any]:
    def some(*values: int) -> Any:
        return np.array([rng.choice(values) for _ in range(rows)], float)

    return {
        "tp": some(1, 2, 4),
        "cp": some(1, 1, 3),
        "ep": some(1, 2, 4),
        "etp": some(1, 1, 2),
        "pp": some(1, 2, 3),
        "interleave": some(1),
        "microbatch": some(1, 2, 3),
        "panels": some(1),
    }


def whole(row: dict[str, Any]) -> dict[str, int]:
    return {k: int(x) for k, x in row.items()}


def rows_of(table: dict[str, Any]) -> list[dict[str, int]]:
    return [
        whole(dict(zip(table, values, strict=True)))
        for values in zip(*table.values(), strict=True)
    ]


def legal_dp(at: Job, row: dict[str, int]) -> list[int]:
    """Chips and sequences for all replicas, whole groups of experts."""
    ranks = row["tp"] * row["cp"]
    return [
        dp
        for dp in range(1, at.batch // row["microbatch"] + 1)
        if ranks * row["pp"] * dp <= at.cluster.chips
        and ranks * dp % (row["ep"] * row["etp"]) == 0
    ]


def test_replicas_that_a_row_may_have() -> None:
    rng = random.Random(1)
    for chips, batch in ((8, 8), (30, 7), (64, 100), (13, 29)):
        at, table = job(chips, batch), drawn(rng, 40)
        most = evaluate.largest_dp(at, table, Space())
        step = evaluate.dp_step(table)
        for k, row in enumerate(rows_of(table)):
            every = legal_dp(at, row)
            assert most[k] == max(every, default=0)
            experts = row["ep"] * row["etp"]
            assert step[k] == experts // gcd(experts, row["tp"] * row["cp"])
            assert every == [*range(int(step[k]), int(most[k]) + 1, int(step[k]))]  # fmt: skip


@pytest.mark.parametrize("limit", [3.0, 20.0, 1e9])
def test_intervals_of_as_many_microbatches(limit: float) -> None:
    """Every dp with every number of microbatches that stays within the limit lies in one interval,
    and no other does."""
    rng = random.Random(2)
    at = job(48, 40)
    table = drawn(rng, 30)
    space = Space(
        schedule=("1f1b", "interleaved"), zero=(0,), recompute=("none",)
    )
    table["interleave"] = np.array(
        [rng.choice((1, 2)) if p > 1 else 1 for p in table["pp"]], float
    )
    table["dp"] = evaluate.largest_dp(at, table, space)
    table = {k: x[table["dp"] >= 1] for k, x in table.items()}
    rows = rows_of(table)
    each = np.array([rng.uniform(0.05, 0.5) for _ in rows])
    ways = np.array([rng.uniform(0.0, 2.0) for _ in rows])
    waits = {
        "1f1b": (Wait(ways, 0.1 * ways, 4.0 + 0.0 * ways), Wait(ways)),
        "interleaved": (Wait(0.5 * ways),),
    }
    best = Best(1, options(at, space), within=limit)
    found = relaxed._intervals(
        at, space, best, relaxed.Partly(table, each, waits)
    )
    seen: set[tuple[int, int]] = set()
    low, high = (rows_of(side) for side in found[:2])
    for a, b, seconds in zip(low, high, found[2], strict=True):
        mine = [
            k
            for k, row in enumerate(rows)
            if all(row[x] == a[x] == b[x] for x in row if x != "dp")
        ]
        step = int(evaluate.dp_step({k: np.array([float(x)]) for k, x in a.items()})[0])  # fmt: skip
        some = range(a["dp"], b["dp"] + 1, step)
        counts = {ceil(at.batch / (dp * a["microbatch"])) for dp in some}
        assert len(counts) == 1
        (m,) = counts
        could = []
        for k in mine:
            times = []
            for name in waits:
                v = rows[k]["interleave"]
                if get(name).legal(rows[k]["pp"], m, v):
                    idle = sum(float(pick(w, k).of(float(m))) for w in waits[name])  # fmt: skip
                    times.append(m * each[k] + idle)
            could.append(min(times, default=np.inf))
            seen |= {(k, dp) for dp in some if could[-1] <= limit}
        assert any(seconds == pytest.approx(x) for x in could)
        assert seconds <= limit
    for k, row in enumerate(rows):
        for dp in legal_dp(at, row):
            m = ceil(at.batch / (dp * row["microbatch"]))
            if get("1f1b").legal(row["pp"], m, row["interleave"]):
                idle = sum(float(pick(w, k).of(float(m))) for w in waits["1f1b"])  # fmt: skip
                if m * each[k] + idle <= limit:
                    assert (k, dp) in seen, (row, dp)


def test_layouts_that_a_relaxed_table_stands_for() -> None:
    """Shards with any pipeline and any dp, and options: with ZeRO where there is something to
    shard."""
    rng = random.Random(4)
    at = job(24, 20)
    space = Space(schedule=("1f1b", "gpipe"), zero=(0, 1), recompute=("none", "full"))  # fmt: skip
    choice = options(at, space)
    table = {k: x[:25] for k, x in drawn(rng, 25).items() if k not in ("pp", "interleave")}  # fmt: skip
    degrees = {"pp": np.array([1.0, 2.0, 3.0, 6.0]), "interleave": np.ones(4)}
    count = 0
    for row in rows_of(table):
        for pp in (1, 2, 3, 6):
            chips = row["tp"] * row["cp"] * pp
            count += min(24 // chips, 20 // row["microbatch"])
    assert relaxed.covered(at, table, degrees, choice) == count * choice.count


def test_pipelines_of_a_degree_are_side_by_side() -> None:
    degrees = {"pp": np.array([1.0, 2.0, 2.0, 4.0, 4.0, 4.0])}
    row, which = chunked(np.array([4.0, 1.0, 3.0, 2.0]), degrees)
    assert row.tolist() == [0, 0, 0, 1, 3, 3]
    assert which.tolist() == [3, 4, 5, 0, 1, 2]


PARTS = Split(((0, 1), (0, 1), (NONE, 1), (0, 0)))
"""By kind (tp, pp) and side of ZeRO: two parts, and one kind that is in none."""


def some_best(limits: list[float]) -> Any:
    return SimpleNamespace(split=PARTS, limits=np.array([*limits, 0.0]))


def test_the_place_of_a_row_is_its_best_in_any_part() -> None:
    """Ranked in each part by its bounds on the sides that are in it; what exceeds the part's limit
    has none."""
    table = {
        "tp": np.array([1.0, 2.0, 1.0, 2.0, 1.0]),
        "pp": np.array([1.0, 1.0, 2.0, 2.0, 1.0]),
    }
    bounds = np.array([[3.0, 1.0, 9.0, 2.0, 7.0], [8.0, 2.0, 5.0, 4.0, 6.0]])
    # part 0: 1 (row 1), 2 (row 3), 3 (row 0), 4 (row 3); 7 (row 4) is above its limit
    # part 1: 2 (row 1), 5 (row 2), 6 (row 4), 8 (row 0)
    found = evaluate.places(some_best([6.0, 9.0]), table, bounds)
    assert found.tolist() == [2.0, 0.0, 1.0, 1.0, 2.0]
    found = evaluate.places(some_best([6.0, 5.0]), table, bounds)
    assert found.tolist() == [2.0, 0.0, 1.0, 1.0, np.inf]


def test_what_an_option_may_still_be_good_for() -> None:
    """The least bound of each choice, in each part by itself."""
    at = job(8, 8)
    space = Space(schedule=("1f1b", "gpipe"), zero=(0, 1), recompute=("none", "full"))  # fmt: skip
    whole = options(at, space)
    ways = evaluate.Ways.of(whole)
    shape = whole.shape
    assert [x.shape for x in ways.least] == [(1, n) for n in shape]
    rng = np.random.default_rng(6)
    table = {"tp": np.ones(4), "pp": np.full(4, 2.0)}
    least = [np.full(n, np.inf) for n in shape]
    for _ in range(2):
        sp, rec, sched, zero = shape
        by_schedule = rng.uniform(1.0, 9.0, (sp, rec, sched, 1, 4))
        by_zero = rng.uniform(1.0, 9.0, (sp, rec, 1, zero, 4))
        best = np.minimum(by_schedule.min((0, 1, 2, 3)), by_zero.min((0, 1, 2, 3)))  # fmt: skip
        ways.note(Bound(best, best, by_schedule, by_zero), whole, 0, table)
        for axis, others in enumerate(((1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4))):  # fmt: skip
            least[axis] = np.minimum(least[axis], by_schedule.min(others))
        least[3] = np.minimum(least[3], by_zero.min((0, 1, 2, 4)))
    for mine, wanted in zip(ways.least, least, strict=True):
        assert mine[0] == pytest.approx(wanted)
    for limit in (float(least[2].max()), float(least[2].min()) * 0.99):
        left = ways.within(np.array([limit, 0.0]))
        assert left.schedules == tuple(
            w
            for w, x in zip(whole.schedules, least[2], strict=True)
            if x <= limit
        )
        assert left.zero == tuple(
            z for z, x in zip(whole.zero, least[3], strict=True) if x <= limit
        )
    other = evaluate.Ways(whole, [x - 0.5 for x in ways.least])
    for both, mine in zip(ways.beside(other).least, ways.least, strict=True):
        assert both == pytest.approx(mine - 0.5)


def test_columns_behind_each_other() -> None:
    """What is one number in all rows stays one; a column is made where only some have it."""
    a = (1.0, np.array([1.0, 2.0]), "x", ())
    b = (1.0, np.array([3.0]), "x", (4.0,))
    one, column, word, none = stacked([a, b], [2, 1])
    assert one == 1.0 and word == "x"
    assert column.tolist() == [1.0, 2.0, 3.0] and none[0].tolist() == [0, 0, 4]
    assert stacked([2.0, 3.0], [2, 1]).tolist() == [2.0, 2.0, 3.0]
    assert stacked([{"k": 2.0}, {"k": 5.0}], [1, 2])["k"].tolist() == [2, 5, 5]
    assert stacked([a], [2]) is a
    same = np.array([7.0])
    assert stacked([same, same], [1, 1]).tolist() == [7.0, 7.0]
    assert holds_columns({"k": (1.0, same)}) and not holds_columns((1.0, "x"))
    assert pick((1.0, same), slice(0, 0))[1].tolist() == []
    assert pick("x", 0) == "x" and pick(a[0], 1) == 1.0


def test_kinds_of_rows_are_told_apart_by_both_sides() -> None:
    """By tp and pp: no two kinds whose parts differ on either side have a number."""
    tp, pp = np.array([1.0, 2.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0, 2.0])
    for of in (((0, 1), (1, 1), (1, 0), (0, 0)), ((0, 1), (2, 1), (1, 0), (1, 2))):  # fmt: skip
        assert len({*Split(of).kinds(tp, pp).tolist()}) == 4
    same = Split(((0, 1), (0, 1), (1, 0), (1, 0))).kinds(tp, pp)
    assert same[0] == same[1] != same[2] == same[3]


def test_the_simplest_is_asked_for_among_what_is_no_slower_than_noise() -> (
    None
):
    """A tenth more than the best; the simplest comes first, and the best are as many as asked."""
    asked = []
    a, b, c = (SimpleNamespace(merit=x, layout=x) for x in (10.0, 10.5, 11.0))

    def simplest(within: float) -> Any:
        asked.append(within)
        return b

    ranked = SimpleNamespace(best=lambda k: [a, b, c][:k], simplest=simplest)
    assert plans._chosen(ranked, 3, 0.1) == [b, a, c]
    assert plans._chosen(ranked, 1, 0.1) == [b]
    assert asked == pytest.approx([11.0, 11.0])
    assert plans._chosen(ranked, 2, 0.0) == [a, b] and len(asked) == 2
