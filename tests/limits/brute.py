"""Every way to spread a step, one loop inside the other, no bounds: the oracle of the search."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from meshwright.limits.laws import LawShape
from meshwright.limits.scenario import Scenario
from meshwright.limits.simulate import AXES, Degrees, Groups, simulate
from meshwright.num import divisors


def degrees(
    s: LawShape, chips: int, schedules: tuple[str, ...]
) -> list[Degrees]:
    """All degrees the paper allows: section 4.5 of the description in docs/limits.md, divisor by
    divisor.
    """
    D, F, L, E, b = (int(x) for x in (s.D, s.F, s.L, s.E, s.batch))
    ep, found = math.gcd(chips, E), []
    n = chips // ep
    for tp in divisors(n):
        for dp in divisors(n // tp):
            pp = n // tp // dp
            if D * F % tp or b % dp or L % pp:
                continue
            root = math.isqrt(tp)
            for ff in divisors(tp):
                if not root <= ff <= 4 * root or F % ff or D % (tp // ff):
                    continue
                ms = [m for m in all_divisors(b // (E * dp)) if m >= pp]
                split, chunks = (
                    (dp, tp // ff, ff, pp, ep),
                    L // pp if pp > 1 else 1,
                )
                if "1f1b" in schedules:
                    found += [Degrees(*split, m, chunks, 0) for m in ms[:4]]
                if "zb-h2" in schedules:
                    enough = [m for m in ms if m >= 2 * pp]
                    found += [Degrees(*split, m, 1, 1) for m in enough[:1]]
    return found


def all_divisors(n: int) -> list[int]:
    """Divisors of a number whose odd part is small."""
    if n == 0:
        return []
    odd, two = n, 1
    while odd % 2 == 0:
        odd, two = odd // 2, two * 2
    return sorted(
        o * 2**k for o in divisors(odd) for k in range(two.bit_length())
    )


def placements(
    sizes: tuple[int, ...], d: Degrees
) -> list[dict[str, tuple[float, ...]]]:
    """All ways to lie in levels of these sizes (the last one unlimited)."""
    if not sizes:
        return [{a: (float(getattr(d, a)),) for a in AXES}]
    found = []
    for shares in itertools.product(*(divisors(sizes[0]) for _ in AXES)):
        near = dict(zip(AXES, shares, strict=True))
        if math.prod(shares) == sizes[0] and all(
            getattr(d, a) % n == 0 for a, n in near.items()
        ):
            far = d._replace(
                **{a: getattr(d, a) // n for a, n in near.items()}
            )
            found += [
                {a: (float(n), *more[a]) for a, n in near.items()}
                for more in placements(sizes[1:], far)
            ]
    return found


def two_levels(d: Degrees, low: Sequence[float]) -> Groups:
    """Where axes lie of which so many ranks share the first level, in the order of `AXES`."""
    return {
        axis: (n, getattr(d, axis) / n)
        for axis, n in zip(AXES, low, strict=True)
    }


def brute(scenario: Scenario, s: LawShape, chips: int) -> tuple[float, float]:
    """(seconds of the fastest step, least traffic among the equally fast); inf if there is none."""
    on = scenario.machine
    sizes = tuple(
        min(d.size or chips, chips) for d in scenario.network.dims[:-1]
    )
    memory = chips * on.memory / (s.parameters * on.precision.weight_bytes)
    rows = [
        (d, g)
        for d in degrees(s, chips, scenario.schedules)
        if memory >= d.dp + 4
        for g in placements(sizes, d)
    ]
    if not rows:
        return math.inf, math.inf
    columns = Degrees(
        *(np.array(x, float) for x in zip(*(d for d, _ in rows), strict=True))
    )
    groups = {
        a: tuple(
            np.array(x) for x in zip(*(g[a] for _, g in rows), strict=True)
        )
        for a in AXES
    }
    step = simulate(on, s, columns, groups)
    best = float(step.total.min())
    tied = step.total <= best * (1 + 1e-12)
    return best, float((step.tp + step.dp + step.p2p)[tied].min())
