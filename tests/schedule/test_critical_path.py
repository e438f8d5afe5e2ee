"""The longest path of an order is a path: its passes and sends add up to the step, and each counts
by how much longer the step is when it is."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.schedule import SCHEDULES, get
from meshwright.schedule.longest import costs_of, longest, longest_path


@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_path_adds_up_to_the_step_and_says_what_lengthens_it(
    name: str, barrier: bool
) -> None:
    """Alone and in a run, with groups that run again (65 microbatches) or are multiplied (400)."""
    kind, rng = get(name), np.random.default_rng(11)
    v = int(kind.chunks(2))
    for p, m in ((2, 5), (3, 65), (4, 8), (4, 400)):
        m -= m % (p if name.startswith("inter") else kind.copies)
        if not kind.legal(p, m, v if v > 1 else 1):
            continue
        passes = rng.uniform(0.2, 1.0, (int(kind.stage_count(p, v)), 3))
        if m == 65:  # ranks run ahead for long before all repeats
            passes = 1.0 + passes / 99
        hops = rng.uniform(0.02, 0.1, len(passes) - 1)
        # of costs, where the order follows from them
        own = kind.timed(costs_of(passes, hops))
        path = longest_path(own, p, m, v, passes, hops, barrier)
        seconds, (often, sends) = path.seconds, path.often
        step = float((often * passes).sum()) + float(sends @ hops)
        assert step == pytest.approx(seconds, rel=1e-11)
        stage = int(rng.integers(len(passes)))
        longer = np.stack([passes, passes, passes])
        longer[np.arange(3), stage, np.arange(3)] += 1e-7
        alike = np.tile(hops, (3, 1))
        grown = longest(own, p, m, v, longer, alike, barrier) - seconds
        assert grown / 1e-7 == pytest.approx(often[stage], abs=1e-3)
        boundary = int(rng.integers(len(hops)))
        alike[0, boundary] += 1e-7
        now = np.stack([passes] * 3)
        late = longest(own, p, m, v, now, alike, barrier) - seconds
        assert late[0] / 1e-7 == pytest.approx(sends[boundary], abs=1e-3)
