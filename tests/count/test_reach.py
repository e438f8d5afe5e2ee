"""How many places a token's experts are at, where a router keeps to some groups of them: against
all draws, one by one, and against routers of drawn scores.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from meshwright.exchange.reach import Draw, expected_reach


def divisors(n: int) -> list[int]:
    return [x for x in range(1, n + 1) if n % x == 0]


def of_all_draws(experts: int, x: int, draw: Draw) -> float:
    """The mean over all sequences of k experts, each any of the experts that are left to it: all,
    until M groups have one.
    """
    group, place = experts // draw.groups, experts // x

    @cache
    def mean(k: int, places: frozenset[int], groups: frozenset[int]) -> float:
        if not k:
            return float(len(places))
        left = [
            e
            for e in range(experts)
            if len(groups) < draw.top_groups or e // group in groups
        ]
        after = (
            mean(k - 1, places | {e // place}, groups | {e // group})
            for e in left
        )
        return sum(after) / len(left)

    return mean(draw.copies, frozenset(), frozenset())


@pytest.mark.parametrize(
    ("experts", "draw"),
    [
        (8, Draw(3)),
        (8, Draw(4, groups=4, top_groups=2)),
        (8, Draw(4, groups=4, top_groups=4)),
        (16, Draw(4, groups=8, top_groups=3)),
        (16, Draw(5, groups=8, top_groups=4)),
        (16, Draw(4, groups=4, top_groups=1)),
        (12, Draw(3, groups=6, top_groups=2)),
        (20, Draw(3, groups=4, top_groups=2)),
    ],
)
def test_every_place_is_reached_as_often_as_by_all_draws(
    experts: int, draw: Draw
) -> None:
    """Places that are parts of groups, groups, several groups; where neither divides the other it
    is less by at most an eighth.  Of a column as of numbers.
    """
    places = divisors(experts)
    column = expected_reach(np.array(places, float), draw)
    for x, law in zip(places, column, strict=True):
        assert law == expected_reach(float(x), draw)
        found = of_all_draws(experts, x, draw)
        if x % draw.groups and draw.groups % x:
            assert 0.875 * found <= law <= found + 1e-12, x
        else:
            assert law == pytest.approx(found, rel=1e-12), x


@pytest.mark.parametrize(
    ("experts", "best", "draw"),
    [
        (256, 2, Draw(8, groups=8, top_groups=4)),
        (160, 1, Draw(6, groups=8, top_groups=3)),
    ],
)
def test_routers_of_drawn_scores_reach_as_many(
    experts: int, best: int, draw: Draw
) -> None:
    """DeepSeek-V3's router, whose groups count by their two best experts, and DeepSeek-V2's, by
    the best: nodes within 0.6 %, ranks within 3 % (no expert is drawn twice). Drawn from M groups
    named beforehand they would reach a tenth fewer nodes, from all groups a third more.
    """
    G, M, tokens = draw.groups, draw.top_groups, 20_000
    scores = np.random.default_rng(3).standard_normal(
        (tokens, G, experts // G)
    )
    of_groups = np.sort(scores, -1)[..., -best:].sum(-1)
    out = np.argsort(-of_groups, 1)[:, M:]
    np.put_along_axis(scores, out[..., None], -np.inf, 1)
    chosen = np.argsort(-scores.reshape(tokens, -1), 1)[:, : draw.copies]
    for x, error in (2, 6e-3), (4, 6e-3), (8, 6e-3), (16, 0.03), (32, 0.03):
        places = np.sort(chosen // (experts // x), 1)
        found = 1 + np.mean(np.sum(places[:, 1:] != places[:, :-1], 1))
        assert expected_reach(float(x), draw) == pytest.approx(
            found, rel=error
        )


def test_a_benchmark_that_deals_in_turn_passes_groups_over() -> None:
    dealt = Draw(8, row=256, groups=8, top_groups=4)
    assert expected_reach(8.0, dealt) == expected_reach(8.0, Draw(8, 256))
