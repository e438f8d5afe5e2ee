"""A set of assumptions changes what limits and roofline answer, or is refused: it is never ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright import BadInput, assumptions, cluster, model
from meshwright.describe.assumptions import BOOK_SUM, EPOCH, SETS, Assumptions
from meshwright.limits import preset
from meshwright.limits.simulate import Machine
from meshwright.roofline import roofline

H100 = preset("h100")


def machine_under(how: Assumptions) -> Machine:
    """What the simulation sees of the scenario under a set."""
    return replace(H100, assumptions=how).machine


@pytest.mark.parametrize(
    ("joint", "changes"),
    [
        ("overlap", {"tp": 0.0}),
        ("overlap", {"pp": "none"}),
        ("network", {"collective": "ring"}),
        ("network", {"collective": "free"}),
        ("network", {"hop": "slowest"}),
        ("count", {"dot_product": "2k-1"}),
    ],
)
def test_limits_refuses_what_it_would_ignore(joint: str, changes: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"limits would ignore its {joint}.{next(iter(changes))}"):
        machine_under(replace(EPOCH, **{joint: replace(getattr(EPOCH, joint), **changes)}))


@pytest.mark.parametrize(
    ("joint", "changes"),
    [
        ("network", {"collective": "ring"}),
        ("network", {"collective": "free"}),
        ("network", {"collective": "best"}),
        ("chip", {"model": "roofline"}),
        ("chip", {"launch_s": 1e-3}),
        ("overlap", {"tp": 1.0}),
    ],
)
def test_roofline_refuses_what_it_would_ignore(joint: str, changes: dict[str, Any]) -> None:
    how = replace(BOOK_SUM, **{joint: replace(getattr(BOOK_SUM, joint), **changes)})
    with pytest.raises(BadInput, match=f"roofline would ignore its {joint}.{next(iter(changes))}"):
        roofline(model("llama3-8b"), cluster("256xtpu-v5p"), 4e6, assumptions=how)


def test_what_is_read_changes_the_answer() -> None:
    """And both editions of the book are one answer, which shows both."""
    at = model("llama3-8b"), cluster("256xtpu-v5p"), 4e6
    usual = roofline(*at)
    slow = replace(BOOK_SUM, chip=replace(BOOK_SUM.chip, matrix_efficiency=0.5))
    assert roofline(*at, assumptions=slow).flops_per_s == pytest.approx(usual.flops_per_s / 2)
    assert roofline(*at, assumptions=assumptions("scaling-book-max")).schemes == usual.schemes
    half = replace(EPOCH, network=replace(EPOCH.network, efficiency=0.5))
    assert machine_under(half).fabric.rates[0] == pytest.approx(H100.machine.fabric.rates[0] / 2)


@pytest.mark.parametrize("name", sorted(SETS.keys() - {"scaling-book-sum", "scaling-book-max"}))
def test_sets_of_others_are_refused_by_name(name: str) -> None:
    with pytest.raises(BadInput, match=f"assumptions {name}: roofline would ignore"):
        roofline(model("llama3-8b"), cluster("256xtpu-v5p"), 4e6, assumptions=assumptions(name))
    if name != "epoch-2024":
        with pytest.raises(BadInput, match=f"assumptions {name}: limits would ignore"):
            machine_under(assumptions(name))
