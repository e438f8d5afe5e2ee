"""Tables of a search against plain loops over whole numbers: shards, pipelines, placements, ZeRO
groups, options.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Any

import pytest

from by_hand import CHIP, MODEL, SET
from meshwright import (
    Cluster,
    Dim,
    Job,
    Layout,
    Model,
    Network,
    assumptions,
)
from meshwright.layout import rules
from meshwright.search import Space, brute, plan

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


# Options.


def values(at: Job, space: Space, *names: str) -> set[Any]:
    """What the layouts of a space have of some fields."""
    found = brute(at, space, 10**5).layouts
    one = attrgetter(*names)
    return {one(layout) for layout in found}


ALONE = Space(tp=(1,), cp=(1,), pp=(1,), microbatch=(1,), schedule=("1f1b",))


@pytest.mark.parametrize(
    ("rule", "layers", "pp", "tried"),
    [
        # L + 2 slots to the stages: alike in two stages, and where all have as many slots
        ("slots", 6, 2, False),
        ("slots", 6, 3, True),
        ("slots", 7, 3, False),
        ("slots", 12, 4, True),
        ("slots", 14, 4, False),
        # one missing layer is missing at the end in even stages too; the last stage keeps one
        ("rest", 6, 3, False),
        ("rest", 8, 3, False),
        ("rest", 7, 3, True),
        ("rest", 13, 4, True),
        ("rest", 9, 4, False),
    ],
)
def test_a_rule_is_tried_where_it_deals_layers_otherwise(
    rule: str, layers: int, pp: int, tried: bool
) -> None:
    space = ALONE.but(zero=(0,), stages=("even", rule), pp=(pp,))
    at = job(replace(DENSE, layers=layers), pp)
    assert values(at, space, "stages") == {"even", *([rule] if tried else [])}


def test_recomputation_that_changes_nothing_is_left_out() -> None:
    """With flash attention selective recomputation is none, but for who asks for it."""
    how = assumptions("lbl-2024")
    base = replace(job(batch=24, how=how), attention_kernel="flash")
    plain = replace(base, attention_kernel="unfused")

    def ways(at: Job, **asked: Any) -> set[Any]:
        return values(at, ALONE.but(zero=(1,), **asked), "recompute")

    assert ways(base) == {"none", "full"}
    assert ways(base, recompute=("selective",)) == {"selective"}
    assert ways(plain) == {"none", "selective", "full"}


def test_chunks_that_are_tried() -> None:
    """All up to eight, and beyond them those that divide 24 layers; given by hand any that embedding
    and head leave room for."""
    how = replace(SET, overlap=replace(SET.overlap, pp="interleaved"))
    at = job(replace(DENSE, layers=48), how=how)
    space = ALONE.but(
        pp=(2,),
        schedule=("interleaved",),
        stages=("even",),
        zero=(1,),
        recompute=("full",),
    )
    assert values(at, space, "interleave") == {2, 3, 4, 5, 6, 7, 8, 12, 16, 24}
    assert values(at, space.but(interleave=(9, 25, 26)), "interleave") == {
        9,
        25,
    }
    one = space.but(interleave=(2, 4, 5, 6, 7, 8, 12, 16))
    assert "2, 4 to 8, 12, 16" in plan(at, one).tried
