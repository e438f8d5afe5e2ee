"""What stays visible of communication beside compute, by hand; and what holds for all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.load import Busy, Load
from meshwright.cost.overlap import behind
from meshwright.describe.assumptions import HidePass

TIME, SHARE = st.floats(0, 1e3), st.floats(0, 1)


def load(*busy: float, start: float = 0.0) -> Load:
    """Dimensions used one after the other."""
    return Load(sum(busy) + start, start, Busy(busy))


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
