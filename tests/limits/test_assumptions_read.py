"""A set of assumptions changes what limits answers, or is refused: it is never ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright import BadInput, assumptions
from meshwright.describe.assumptions import EPOCH, SETS, Assumptions, Hide
from meshwright.limits import preset
from meshwright.limits.simulate import Machine

H100 = preset("h100")


def machine_under(how: Assumptions) -> Machine:
    """What the simulation sees of the scenario under a set."""
    return replace(H100, assumptions=how).machine


@pytest.mark.parametrize(
    ("joint", "changes"),
    [
        ("overlap", {"cp": Hide("layer")}),
        ("chip", {"attention_forward": 0.5}),
        ("memory", {"working_set": True}),
        ("count", {"dot_product": "2k-1"}),
    ],
)
def test_limits_refuses_what_it_would_ignore(
    joint: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(
        BadInput,
        match=f"limits would ignore its {joint}.{next(iter(changes))}",
    ):
        machine_under(
            replace(
                EPOCH, **{joint: replace(getattr(EPOCH, joint), **changes)}
            )
        )


def test_what_is_read_changes_the_answer() -> None:
    half = replace(EPOCH, network=replace(EPOCH.network, efficiency=0.5))
    assert machine_under(half).fabric.rates[0] == pytest.approx(
        H100.machine.fabric.rates[0] / 2
    )


@pytest.mark.parametrize(
    "name",
    sorted(
        SETS.keys() - {"epoch-2024", "scaling-book-sum", "scaling-book-max"}
    ),
)
def test_sets_of_others_are_refused_by_name(name: str) -> None:
    with pytest.raises(
        BadInput, match=f"assumptions {name}: limits would ignore"
    ):
        machine_under(assumptions(name))
