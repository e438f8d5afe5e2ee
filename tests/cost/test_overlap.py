"""What stays visible of communication beside compute, by hand; and what holds for all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.overlap import behind_layers, mesh, partly, prefetched, summa

TIME, LAYERS, SHARE = st.floats(0, 1e3), st.integers(1, 200), st.floats(0, 1)


@pytest.mark.parametrize(("collective", "layer", "layers", "seconds"), [
    (3.0, 5.0, 4, 3.0),  # the first one is waited for, the others hide
    (8.0, 5.0, 4, 8 + 3 * 3),  # each of the others outlasts its layer by 3 s
    (8.0, 0.0, 4, 4 * 8),  # nothing to hide behind
    (8.0, 5.0, 1, 8.0),
])  # fmt: skip
def test_one_collective_a_layer_behind_the_next_layer(
    collective: float, layer: float, layers: int, seconds: float
) -> None:
    assert behind_layers(collective, layer, layers) == seconds


@pytest.mark.parametrize(("collective", "seconds"), [(3.0, 0.0), (8.0, 4 * 3.0)])
def test_what_was_started_a_pass_ago_shows_only_what_outlasts_the_layers(collective: float, seconds: float) -> None:
    assert prefetched(collective, 5.0, 4) == seconds


@pytest.mark.parametrize(("panel", "work", "seconds"), [(1.0, 100.0, 1.0), (1.0, 6.0, 1 + 2.0), (1.0, 0.0, 9.0)])
def test_a_product_in_panels_waits_for_the_first_one(panel: float, work: float, seconds: float) -> None:
    """Eight panels."""
    assert summa(panel, work, 8) == seconds


@pytest.mark.parametrize(("share", "work", "seconds"), [(0.0, 9.0, 4.0), (0.5, 9.0, 2.0), (1.0, 9.0, 0.0), (1.0, 1.0, 3.0)])  # fmt: skip
def test_a_share_hides_while_there_is_work(share: float, work: float, seconds: float) -> None:
    assert partly(4.0, share, work) == seconds


def test_mesh_axes_add_up_or_share_the_busiest_dimension() -> None:
    """Two axes that keep two dimensions busy for (3, 1) and (2, 5) seconds."""
    loads = ((3.0, 1.0), (2.0, 5.0))
    assert mesh(loads, "none") == 3 + 5
    assert mesh(loads, "full") == 1 + 5


@given(TIME, TIME, LAYERS, st.floats(0, 1e3))
def test_more_compute_never_makes_the_step_shorter_nor_shows_more(
    collective: float, layer: float, layers: int, more: float
) -> None:
    for law in (behind_layers, prefetched):
        before, after = law(collective, layer, layers), law(collective, layer + more, layers)
        assert 0 <= after <= before <= collective * layers * (1 + 1e-12)
        assert layers * (layer + more) + after >= (layers * layer + before) * (1 - 1e-9)


@given(TIME, SHARE, TIME)
def test_never_more_than_it_takes_alone(comm: float, share: float, work: float) -> None:
    assert -1e-9 <= partly(comm, share, work) <= comm
    assert comm <= partly(comm, share, work) + work + (1 - share) * comm + 1e-9
