"""Every field of a set of assumptions changes what `limits` answers, or is refused by its name:
none is ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from by_hand import leaves, other_values, set_to
from meshwright import BadInput, assumptions
from meshwright.describe.assumptions import (
    EPOCH,
    JOINTS,
    NOT_HIDDEN,
    SETS,
    Assumptions,
    HidePass,
)
from meshwright.limits import Scenario, preset
from meshwright.limits.laws import shape
from meshwright.limits.search import fastest
from meshwright.limits.simulate import Degrees, simulate
from refusals import refusal

from .brute import two_levels

SPARSE = preset("h100/sparse")
SCENARIO = replace(SPARSE, chip=replace(SPARSE.chip, sustained=None))
"""Nothing measured, so that the set's own shares count."""
SHAPE = shape(SCENARIO.law, 16384.0)
SPREAD = [
    (Degrees(16, 8, 16, 32, SHAPE.E, 64, 1, 1), (1, 4, 1, 2, 1)),
    (Degrees(4, 16, 32, 4, SHAPE.E, 8, 4, 0), (2, 1, 2, 2, 1)),
    (Degrees(2, 2, 4, 2, SHAPE.E, 4096, 8, 0), (1, 2, 4, 1, 1)),
    (Degrees(4096, 2, 4, 2, SHAPE.E, 4, 1, 1), (1, 2, 4, 1, 1)),
]
"""Degrees, and how many ranks of each axis lie in a node: both schedules, few tokens and many,
gradients that take longer.
"""


NOTHING = "nothing hides, so that share, slow, most and links mean nothing"
"""Why an option of what does not hide cannot be written."""


CASES = [
    (name, value)
    for joint in JOINTS
    for name, field, now in leaves(getattr(EPOCH, joint), joint)
    for value in other_values(field, now)
]
# hardly more than is needed
EXERCISED = {
    "chip.memory_efficiency": ("chip.model", "roofline"),
    "memory.holding.allocator_need": (
        "memory.capacity_share",
        0.02,
    ),
    "memory.headroom": ("memory.risk_width", 3.0),
    "memory.risk_width": (
        "memory",
        replace(EPOCH.memory, risk_width=0.01, headroom=1e-6),
    ),
    "network.ring_factor": ("network.collective", "book"),
    "overlap.dp.share": ("overlap.dp", HidePass("step", links="free")),
    "overlap.dp.slow": ("overlap.dp", HidePass("step")),
    "overlap.dp.links": ("overlap.dp", HidePass("step")),
}
"""option -> what makes it count, where the paper's own choice does not."""


def base(name: str) -> Assumptions:
    """A set under which the option counts."""
    return set_to(EPOCH, *EXERCISED[name]) if name in EXERCISED else EPOCH


def answer(how: Assumptions) -> tuple[Any, ...]:
    """Steps of some layouts, and the fastest of all."""
    scenario: Scenario = replace(SCENARIO, assumptions=how)
    steps = [
        simulate(scenario.machine, SHAPE, d, two_levels(d, low))
        for d, low in SPREAD
    ]
    s = shape(scenario.law, np.array([16384.0]))
    best = fastest(scenario, s, s.E * 2.0**12, np.array([np.inf])).get(0)
    steps += [best.step] if best else []
    return tuple(float(step.total) for step in steps)


@pytest.mark.parametrize(("name", "value"), CASES, ids=str)
def test_it_is_read_or_refused(name: str, value: Any) -> None:
    how = base(name)
    usual = answer(how)
    try:
        other = set_to(how, name, value)
    except BadInput as refused:  # the options of the set do not have it
        assert "means nothing where" in str(refused) or NOTHING in str(refused)
        return
    if (name, value) == ("network.hop", "each"):
        # curves have chips of every number: what a send crosses there is a mean, as the paper's
        assert answer(other) == usual
        return
    if name == "overlap.dp.scope" and other.overlap.dp.at(0) == how.overlap.dp:
        # it hides sharded weights, and no model of these curves is sharded over its replicas
        assert answer(other) == usual
        return
    try:
        assert other == how or answer(other) != usual
    except BadInput as refused:
        told = str(refused)
        assert (
            name in told
            and (
                "limits would ignore" in told
                or "limits knows one budget" in told
            )
            or NOTHING in told
        )


@pytest.mark.parametrize(
    "name",
    sorted(
        SETS.keys() - {"epoch-2024", "scaling-book-sum", "scaling-book-max"}
    ),
)
def test_sets_of_others_are_refused_by_name(name: str) -> None:
    with refusal(f"assumptions {name}: limits would ignore"):
        replace(SCENARIO, assumptions=assumptions(name)).machine  # noqa: B018


def test_free_communication_costs_nothing() -> None:
    """Nothing is sent, nothing is waited for: the step is its products and its bubble."""
    free = set_to(EPOCH, "network.collective", "free")
    on = replace(SCENARIO, assumptions=free).machine
    for d, low in SPREAD:
        s = simulate(on, SHAPE, d, two_levels(d, low))
        assert s.traffic == s.tp_wait == s.dp_wait == s.p2p_wait == 0
        assert s.total == pytest.approx(s.matmul / (1 - s.bubble))


def test_messages_to_experts_hide_as_the_set_says() -> None:
    """Exposed, they cost what they take beyond a message to the next stage; those of the pipeline
    still hide.
    """
    d, low = Degrees(16, 2, 4, 32, SHAPE.E, 64, 1, 1), (1, 2, 2, 2, 1)
    apart = set_to(EPOCH, "overlap.ep", NOT_HIDDEN)
    hidden, shown, both = (
        simulate(
            replace(SCENARIO, assumptions=how).machine,
            SHAPE,
            d,
            two_levels(d, low),
        )
        for how in (EPOCH, apart, set_to(apart, "overlap.pp", "none"))
    )
    work, gradients = max(hidden.matmul, hidden.tp), hidden.dp + hidden.dp_wait
    assert hidden.total == pytest.approx(
        max(hidden.matmul, hidden.tp + hidden.p2p) + gradients
    )
    assert both.total == pytest.approx(work + hidden.p2p + gradients)
    assert hidden.total < shown.total < both.total
