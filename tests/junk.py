"""Values of JSON and TOML that nobody would write."""

from __future__ import annotations

from hypothesis import strategies as st

JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(
        [10**400, -(10**4000), 2**63, 1e308, "1e999", "5 GB", "none"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
