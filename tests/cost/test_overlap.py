"""What stays visible of communication beside compute, by hand; and what holds for all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.load import Busy, Load
from meshwright.cost.overlap import behind, summa
from meshwright.describe.assumptions import HidePass

TIME, SHARE = st.floats(0, 1e3), st.floats(0, 1)


def load(*busy: float, start: float = 0.0) -> Load:
    """Dimensions used one after the other."""
    return Load(sum(busy) + start, start, Busy(busy))


@pytest.mark.parametrize(
    ("how", "seconds"),
    [
        (
            HidePass("pass"),
            max(6 - 5, 3 + 4 - 5, 1 + 2 - 5),
        ),  # the first dimension is full
        (HidePass("pass", links="free"), 6 - 5),
        (
            HidePass("pass", links="serial"),
            4 + 6 - 5,
        ),  # and the network takes one collective at a time
        (HidePass("pass", share=0.4), 6 - 2),
    ],
)
def test_what_does_not_hide(how: HidePass, seconds: float) -> None:
    """5 s of work, in which 3 s and 1 s are sent in two dimensions, beside 4 s and 2 s."""
    found = behind(5.0, load(3.0, 1.0), load(4.0, 2.0), how)
    assert found == (pytest.approx(seconds), 0.0)


def test_compute_is_slower_beside_communication() -> None:
    """Of 6 s 5 hide, and cost a tenth."""
    assert behind(
        5.0, Load(), load(6.0), HidePass("pass", slow=0.1)
    ).total == pytest.approx(1 + 0.5)


@pytest.mark.parametrize(
    ("panel", "work", "seconds"),
    [(1.0, 100.0, 1.0), (1.0, 6.0, 1 + 2.0), (1.0, 0.0, 9.0)],
)
def test_a_product_in_panels_waits_for_the_first_one(
    panel: float, work: float, seconds: float
) -> None:
    """Eight panels."""
    assert summa(panel, work, 8) == seconds


def test_mesh_axes_add_up_or_share_the_busiest_dimension() -> None:
    """Two axes, each as long as its busiest dimension, behind the seconds of the first: (3, 1) and
    (2, 5).
    """
    own, hidden = (
        Load(3.0, 0.0, Busy((3.0, 1.0))),
        Load(5.0, 0.0, Busy((2.0, 5.0))),
    )
    together = {
        links: 3.0
        + behind(3.0, own, hidden, HidePass("pass", links=links)).shown
        for links in LINKS
    }
    assert together == {"serial": 3 + 5, "shared": 1 + 5, "free": 5}


LINKS = ("shared", "serial", "free")
HOW = st.builds(
    HidePass, st.just("pass"), SHARE, SHARE, st.sampled_from(LINKS)
)
PAIR = st.tuples(TIME, TIME)


@given(
    TIME,
    PAIR,
    PAIR,
    HOW,
    st.floats(0, 1e3),
    st.sampled_from(["work", "own", "hidden"]),
)
def test_more_of_anything_never_makes_a_scope_shorter(
    work: float,
    own: tuple[float, float],
    hidden: tuple[float, float],
    how: HidePass,
    more: float,
    what: str,
) -> None:
    """The work contains its own collectives: if they take longer, so does it."""

    def takes(
        work: float, own: tuple[float, float], hidden: tuple[float, float]
    ) -> float:
        whole = work + sum(own)
        return whole + behind(whole, load(*own), load(*hidden), how).total

    before = takes(work, own, hidden)
    after = takes(
        work + more * (what == "work"),
        (own[0] + more * (what == "own"), own[1]),
        (hidden[0] + more * (what == "hidden"), hidden[1]),
    )
    assert after >= before * (1 - 1e-9)


@given(TIME, PAIR, PAIR, HOW)
def test_never_more_than_it_takes_alone_and_never_more_than_the_links_carry(
    work: float,
    own: tuple[float, float],
    hidden: tuple[float, float],
    how: HidePass,
) -> None:
    whole = work + sum(own)
    shown = behind(whole, load(*own), load(*hidden), how).shown
    assert 0 <= shown <= sum(hidden)
    if how.links == "shared":
        assert whole + shown >= max(
            a + b for a, b in zip(own, hidden, strict=True)
        ) * (1 - 1e-9)
