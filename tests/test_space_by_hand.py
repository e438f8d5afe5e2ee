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
from meshwright.search import brute
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


def test_panels_of_summa() -> None:
    """max(n1, n2) doubled while panels of the hidden size are 512 wide; a narrow one as it is."""
    wide = replace(
        DENSE, hidden=4096, heads=16, kv_heads=16, ffn=16384, layers=2
    )
    space = Space(scheme=("summa",), microbatch=(1,))
    expected = set()
    for tp, cp in product((1, 2, 4, 8, 16), (1, 2, 4)):
        start = max(tp, cp)
        if tp * cp > 16:
            continue
        panels = [
            start * 2**k for k in range(13) if 4096 / (start * 2**k) >= 512
        ]
        expected |= {(tp, cp, n) for n in panels or [start]}
    found = brute(job(wide, 16, 16), space, 10**5).layouts
    assert {(x.tp, x.cp, x.panels) for x in found} == expected
    cut = Layout(tp=5, cp=2, microbatch=5, scheme="summa")
    assert rules.SEQUENCE.holds(job(), cut), "no tokens are cut over tp"


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
