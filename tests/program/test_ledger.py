"""Bytes that live, and how many at their peak."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.ledger import TERMS, Ledger

ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["add", "touch"]),
        st.sampled_from(sorted(TERMS)),
        st.integers(-9, 9).map(float),
    )
)


@given(ENTRIES)
def test_the_terms_of_a_peak_are_the_most_that_ever_lived(entries) -> None:
    """What is touched lives for a moment; before all there is nothing."""
    ledger, every = Ledger(), []
    for does, term, size in entries:
        getattr(ledger, does)(term, size)
        every += [size] if does == "add" else [size, -size]
    assert ledger.highest == max(accumulate(every, initial=0.0))
    assert ledger.total == sum(every)
    assert sum(ledger.peak.values()) == ledger.highest
