"""Tables of a search against plain loops over whole numbers: shards, pipelines, placements, ZeRO
groups, options.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from by_hand import CHIP, MODEL, SET
from meshwright import assumptions
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model, MoE
from meshwright.describe.network import Dim, Network
from meshwright.layout import rules
from meshwright.search import placement
from meshwright.search.degrees import pipelines, shards
from meshwright.search.described import ranges
from meshwright.search.options import Sharding, options, shardings
from meshwright.search.space import Space
from meshwright.search.table import distinct

DENSE = replace(
    MODEL,
    layers=6,
    heads=12,
    kv_heads=4,
    hidden=96,
    ffn=260,
    vocab=100,
    seq=768,
)
NET = Network(
    "n", (Dim("node", 1e9, 0.0, size=4), Dim("net", 1e9, 0.0, size=64))
)


def job(
    model: Model = DENSE, chips: int = 24, batch: int = 12, how: Any = SET
) -> Job:
    return Job(model, Cluster(CHIP, NET, chips), batch, assumptions=how)


def rows(table: dict[str, Any], *names: str) -> list[tuple[int, ...]]:
    return sorted(
        zip(*(table[name].astype(int).tolist() for name in names), strict=True)
    )


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("sp", [(True,), (False,), (True, False)])
def test_shards_of_a_dense_model(relaxed: bool, sp: tuple[bool, ...]) -> None:
    """tp divides heads and widths, and key heads or is a multiple of them; cp leaves 128 tokens;
    a microbatch can be cut over both."""
    found = shards(job(), Space(sequence_parallel=sp), relaxed)
    expected = []
    for tp, cp, b in product(range(1, 25), range(1, 25), range(1, 65)):
        heads = 12 % tp == 0 and 260 % tp == 0 and 96 % tp == 0
        copied = 4 % tp == 0 or tp % 4 == 0
        tokens = 768 % cp == 0 and (768 // cp >= 128 or cp == 1)
        chips = tp * cp <= 24 and (relaxed or 24 % (tp * cp) == 0)
        micro = b <= 12 and (relaxed or 12 % b == 0)
        cut = any(b * 768 % (cp * (tp if one else 1)) == 0 for one in sp)
        if heads and copied and tokens and chips and micro and cut:
            expected.append((tp, cp, b, 1, 1, 1))
    names = ("tp", "cp", "microbatch", "ep", "etp", "panels")
    assert rows(found, *names) == sorted(expected)
    assert not len(shards(job(), Space(ep=(2,)), relaxed)["tp"])
    assert not len(shards(job(), Space(etp=(2,)), relaxed)["tp"])


def test_shards_of_experts() -> None:
    """ep divides twelve experts; etp is one, or tp where that divides their width of 60."""
    moe = replace(DENSE, moe=MoE(12, 2, 60), heads=24, kv_heads=24, ffn=240)
    found = shards(job(moe), Space(cp=(1,), microbatch=(1,)), False)
    expected = [
        (tp, ep, etp)
        for tp in divisors(24)
        for ep in divisors(12)
        for etp in {1, tp}
        if 60 % etp == 0 and 96 % tp == 0 and 240 % tp == 0 and 768 % tp == 0
    ]
    assert rows(found, "tp", "ep", "etp") == sorted(expected)


def test_panels_of_summa() -> None:
    """max(n1, n2) doubled while panels of the hidden size are 512 wide; a narrow one as it is."""
    wide = replace(
        DENSE, hidden=4096, heads=16, kv_heads=16, ffn=16384, layers=2
    )
    space = Space(scheme=("summa",), microbatch=(1,))
    found = shards(job(wide, 16), space, False)
    expected = []
    for tp, cp in product((1, 2, 4, 8, 16), (1, 2, 4)):
        start = max(tp, cp)
        if tp * cp > 16:
            continue
        panels = [
            start * 2**k for k in range(13) if 4096 / (start * 2**k) >= 512
        ]
        expected += [(tp, cp, n) for n in panels or [start]]
    assert rows(found, "tp", "cp", "panels") == sorted(expected)
    cut = Layout(tp=5, cp=2, microbatch=5, scheme="summa")
    assert rules.SEQUENCE.holds(job(), cut), "no tokens are cut over tp"


@pytest.mark.parametrize("relaxed", [False, True])
def test_pipelines_with_their_chunks(relaxed: bool) -> None:
    """Six layers, and embedding and head where there are chunks: p v up to 8; strict p divides 24;
    a device that is alone has the fewest."""
    how = replace(SET, overlap=replace(SET.overlap, pp="interleaved"))
    space = Space(schedule=("1f1b", "interleaved", "zbv"))
    found = pipelines(job(how=how), space, relaxed)
    chunks = (1, 2, 3, 4, 5, 6, 7, 8)
    expected = [
        (p, v)
        for p in range(1, 7)
        for v in chunks
        if (relaxed or 24 % p == 0) and p * v <= 8 and (p > 1 or v <= 2)
    ]
    assert rows(found, "pp", "interleave") == sorted(expected)
    papers = pipelines(job(), space, relaxed)
    even = [(p, v) for p, v in expected if v in (1, 2, 3, 6)]
    assert rows(papers, "pp", "interleave") == sorted(even)


def degrees() -> dict[str, np.ndarray]:
    """All tp x cp x pp x dp of 24 chips."""
    every = [
        (tp, cp, pp, 24 // (tp * cp * pp))
        for tp, cp, pp in product(divisors(24), repeat=3)
        if 24 % (tp * cp * pp) == 0
    ]
    columns = np.array(every, dtype=float).T
    return dict(zip(("tp", "cp", "pp", "dp"), columns, strict=True))


def test_placements_of_strict_rows() -> None:
    """Nodes of 4, six of them: all ways to deal each degree to node and network that fill nodes."""
    table = degrees()
    counts = placement.count(job(), table)
    for i, times in enumerate(counts):
        each = [int(table[a][i]) for a in ("tp", "cp", "pp", "dp")]
        ways = [
            near
            for near in product(*(divisors(n) for n in each))
            if np.prod(near) == 4
        ]
        assert times == len(ways), each
    assert (
        placement.count(job(), {a: c[:0] for a, c in table.items()}).size == 0
    )


def test_rows_that_differ() -> None:
    """Columns of whole numbers, of fractions and of huge ones are packed into one."""
    rng = np.random.default_rng(1)
    columns = [
        rng.integers(0, 3, 200).astype(float),
        rng.integers(0, 3, 200) / 3.0,
        rng.integers(0, 2, 200) * 2.0**40,
        *(rng.integers(0, 2, 200) * float(2**19) for _ in range(4)),
    ]
    index, number = distinct(columns)
    every = list(zip(*(c.tolist() for c in columns), strict=True))
    assert len(index) == len(set(every))
    for i, mine in enumerate(every):
        assert every[index[number[i]]] == mine
    single = distinct([np.array([5.0, 5.0, 7.0]), 1.0])
    assert single[1].tolist() == [0, 0, 1]
    index, number = distinct([np.array([0.5, 0.25, 0.75, 0.5])])
    assert len(index) == 3 and number[0] == number[3]


def test_columns_whose_product_is_beyond_64_bits() -> None:
    """Five of 2^16 values each: a whole number of 80 bits, of which 64 would lose the first."""
    bits = np.array(
        [[n >> bit & 1 for n in range(32)] for bit in range(5)], float
    )
    index, number = distinct([65535.0 * column for column in bits])
    assert sorted(number.tolist()) == list(range(32)) and len(index) == 32


# Options.


def test_stages_that_a_node_may_shard() -> None:
    """ZeRO 2 and 3 over a node too, where there are several; as asked otherwise."""
    found = shardings(job(), Space())
    assert found == (
        *(Sharding(zero) for zero in range(4)),
        Sharding(2, 0, 4),
        Sharding(3, 0, 4),
    )
    assert shardings(job(chips=4), Space()) == found[:4]
    one = replace(NET, dims=(Dim("all", 1e9, 0.0, size=64),))
    flat = replace(job(), cluster=Cluster(CHIP, one, 24))
    assert shardings(flat, Space()) == found[:4]
    asked = shardings(job(), Space(zero=(0, 1), dp_replicate=(1, 2)))
    assert asked == (Sharding(0), Sharding(1), Sharding(1, 2))


def test_options_that_change_nothing_are_left_out() -> None:
    """Experts need sequence parallelism; with flash attention selective recomputation is none."""
    how = assumptions("lbl-2024")
    base = replace(job(how=how), attention_kernel="flash")
    assert options(base, Space()).recompute == ("none", "full")
    only = options(base, Space(recompute=("selective",)))
    assert only.recompute == ("selective",)
    plain = replace(base, attention_kernel="unfused")
    assert len(options(plain, Space()).recompute) == 3
    assert options(base, Space()).sequence_parallel == (True, False)
    moe = replace(base, model=replace(DENSE, moe=MoE(12, 2, 60)))
    assert options(moe, Space()).sequence_parallel == (True,)
    without = Space(sequence_parallel=(False,))
    assert options(moe, without).sequence_parallel == (False,)
    chosen = options(
        base, Space(schedule=("1f1b", "interleaved"), interleave=(1,))
    )
    (only,) = chosen.schedules
    assert only.schedule == "1f1b" and only.chunks == (1,)
    two = options(
        base, Space(schedule=("zbv", "interleaved"), interleave=(2,))
    )
    assert [way.chunks for way in two.schedules] == [(2,), (2,)]


def test_chunks_that_are_tried() -> None:
    """All up to eight, and beyond them those that divide 24 layers; given by hand any."""
    how = replace(SET, overlap=replace(SET.overlap, pp="interleaved"))
    deep = replace(DENSE, layers=24)
    space = Space(schedule=("interleaved",), stages=("even",))
    (way,) = options(job(deep, how=how), space).schedules
    assert way.chunks == (2, 3, 4, 5, 6, 7, 8, 12, 24)
    asked = space.but(interleave=(9, 26, 27))
    (way,) = options(job(deep, how=how), asked).schedules
    assert way.chunks == (9, 26)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([2, 4, 5, 6, 7, 8, 10, 11], "2, 4 to 8, 10, 11"),
        ([1, 2, 3], "1 to 3"),
        ([3], "3"),
        ([], ""),
    ],
)
def test_neighbours_are_a_range(values: list[int], said: str) -> None:
    assert ranges(values) == said
