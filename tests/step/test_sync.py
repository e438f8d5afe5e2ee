"""Weight and gradient collectives of two layers on four replicas, against seconds worked out by hand.

On links of 73,728 B/s: gathering the 49,152 weights of a layer in 2 bytes takes 3/4 x 98,304 / 73,728 = 1 s, scattering its
gradients in 4 bytes 2 s, reducing them to all 4 s. A layer computes 1 s forward and 2 s backward.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, TOKENS, WIDTH, by_hand
from meshwright.describe.assumptions import Overlap
from meshwright.describe.layout import Layout
from meshwright.step import Collectives, synchronise

RATE = 73728.0
HIDDEN = replace(SET.overlap, dp="first and last microbatch")


def exposed(zero: int, rate: float, overlap: Overlap, microbatches: int = 3, recompute: str = "none") -> float:
    """Seconds of data-parallel traffic that are not hidden, of one step."""
    layout = Layout(dp=4, zero=zero, recompute=recompute)
    return by_hand(layout, microbatches, rate, overlap=overlap).time_s["dp_comm"]


@pytest.mark.parametrize(
    ("zero", "seconds"),
    [
        (0, 2 * 4),  # gradients once
        (1, 2 * (2 + 1)),  # scattered once, weights gathered once
        (2, 2 * (3 * 2 + 1)),  # scattered after each of three microbatches
        (3, 2 * (3 * 2 + 2 * 3 * 1)),  # and gathered before each of six passes
    ],
)
def test_nothing_hides(zero: int, seconds: float) -> None:
    """Two layers, three microbatches."""
    assert exposed(zero, RATE, SET.overlap) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("zero", "seconds"),
    [
        # a quarter of the speed: gather 4 s, scatter 8 s, all-reduce 16 s; behind a layer of 1 s forward, 2 s backward
        (0, 16 + (16 - 2)),  # the first layer's, and what outlasts the backward of the other
        (1, 4 + (4 - 1) + 8 + (8 - 2)),
        (2, 4 + (4 - 1) + 8 + (8 - 2) + 2 * 2 * (8 - 2)),  # earlier microbatches: behind both layers
        # the first gather is waited for; later ones were started a pass before; backward gathers and scatters beside it,
        # and the very last scatter is waited for
        (3, 4 + (4 - 1) + 2 * 2 * (4 - 1) + 3 * 2 * (4 + 8 - 2) + 8),
    ],
)
def test_slow_links_show_what_outlasts_a_layer(zero: int, seconds: float) -> None:
    """Subramanian et al. 2024, section 3.4: T + (layers - 1) max(T - t_layer, 0)."""
    assert exposed(zero, RATE / 4, HIDDEN) == pytest.approx(seconds)


@pytest.mark.parametrize(("zero", "seconds"), [(0, 0.4), (1, 0.1 + 0.2), (2, 0.1 + 0.2), (3, 0.1 + 0.2)])
def test_fast_links_show_one_layer(zero: int, seconds: float) -> None:
    """Ten times the speed: only the first layer's gather and the last one's reduction are waited for."""
    assert exposed(zero, 10 * RATE, HIDDEN) == pytest.approx(seconds)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_recomputation_hides_more(zero: int) -> None:
    """A layer computed again takes 3 s backward, so up to 1 s more of each collective beside it is hidden."""
    without, again = (exposed(zero, RATE / 4, HIDDEN, 3, recompute) for recompute in ("none", "full"))
    beside = {0: 1, 1: 1, 2: 1 + 2 * 2, 3: 3 * 2}[zero]
    assert without - again == pytest.approx(beside * 1.0)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_one_replica_has_nothing_to_synchronise(zero: int) -> None:
    assert by_hand(Layout(dp=1, zero=zero), 3, RATE).time_s["dp_comm"] == 0


VOCAB, LEARNED = 128, replace(MODEL, vocab=128, positions="learned")
"""Embedding: (128 + 128 positions) x 64; head: 128 x 64."""


@pytest.mark.parametrize(("pp", "tied", "parameters"), [
    (1, False, VOCAB * WIDTH + TOKENS * WIDTH + VOCAB * WIDTH),
    (1, True, VOCAB * WIDTH + TOKENS * WIDTH),
    (2, False, VOCAB * WIDTH + TOKENS * WIDTH),  # on two devices: the larger of them
])  # fmt: skip
def test_the_ends_of_the_model_are_reduced_once(pp: int, tied: bool, parameters: int) -> None:
    """Gradients of embedding and head: 4 bytes, 2 x (dp-1)/dp of them over the link."""
    model = replace(LEARNED, tied_embeddings=tied)
    with_ends, without = (
        by_hand(Layout(dp=2, pp=pp), 1, RATE, m).time_s["dp_comm"] for m in (model, replace(MODEL, vocab=0))
    )
    assert with_ends - without == pytest.approx(2 * (1 / 2) * 4 * parameters / RATE)


@pytest.mark.parametrize(
    ("zero", "seconds"),
    [
        (1, 3 + 10),  # gathered and scattered once a step
        (2, 3 + 3 * 10 - 2 * 2),  # scattered thrice; twice behind the 2 s backward of a layer
        # gathered for each of six passes: once waited for, twice behind a forward of 1 s, thrice behind a backward
        (3, 3 + 2 * (3 - 1) + 3 * (3 - 2) + 10 + 2 * (10 - 2)),
    ],
)
def test_embedding_and_head_outlast_the_layer_beside_them(zero: int, seconds: float) -> None:
    """They gather in 3 s and scatter in 10 s, the layers in no time; three microbatches, two layers."""
    p = by_hand(Layout(dp=4, zero=zero), 3, overlap=HIDDEN)
    times = Collectives(0.0, 0.0, 0.0, end_all_reduce=0.0, end_gather=3.0, end_scatter=10.0)
    assert synchronise(p.job, p.layout, p._body, times, "none", zero, 2.0) == pytest.approx(seconds)
