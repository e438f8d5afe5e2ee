"""Weight and gradient collectives of two layers on four replicas, against seconds worked out by
hand.

On links of 73,728 B/s: gathering the 49,152 weights of a layer in 2 bytes takes 3/4 x 98,304 /
73,728 = 1 s, scattering its gradients in 4 bytes 2 s, reducing them to all 4 s. A layer computes 1
s forward and 2 s backward.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, TOKENS, WIDTH, by_hand
from meshwright.describe.assumptions import HidePass, Overlap
from meshwright.describe.layout import Layout

RATE = 73728.0
HIDDEN = replace(SET.overlap, dp=HidePass("pass"))


def exposed(zero: int, rate: float, overlap: Overlap) -> float:
    """Seconds of data-parallel traffic that are not hidden, of one step of three microbatches."""
    layout = Layout(dp=4, zero=zero)
    return by_hand(layout, 3, rate, overlap=overlap).time_s["dp_comm"]


@pytest.mark.parametrize(
    ("times", "how", "seconds"),
    [
        # two layers, three microbatches: gradients once; scattered once, weights gathered once;
        # scattered after each microbatch; and gathered before each of six passes
        (1, SET.overlap, (8, 2 * 3, 2 * (3 * 2 + 1), 2 * (3 * 2 + 6))),
        # a quarter of the speed, hidden: gather 4 s, scatter 8 s, all-reduce 16 s; behind a layer
        # of 1 s forward, 2 s backward. Subramanian et al. 2024, section 3.4:
        # T + (layers - 1) max(T - t_layer, 0)
        (
            1 / 4,
            HIDDEN,
            (
                16 + (16 - 2),
                4 + (4 - 1) + 8 + (8 - 2),
                # earlier microbatches: behind both layers
                4 + (4 - 1) + 8 + (8 - 2) + 2 * 2 * (8 - 2),
                # the first gather is waited for; later ones were started a pass before; backward
                # gathers and scatters beside it, and the very last scatter is waited for, while
                # the layer that it comes from hides nothing
                4
                + (4 - 1)
                + 2 * (2 * 4 - 2)
                + 2 * (2 * (4 + 8) - 4)
                + (2 * 4 + 8 - 2)
                + 8,
            ),
        ),
        # ten times the speed: only the first layer's gather and the last one's reduction are
        # waited for
        (10, HIDDEN, (0.4, 0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2)),
    ],
)
def test_what_outlasts_a_layer_shows(
    times: float, how: Overlap, seconds: tuple[float, ...]
) -> None:
    found = [exposed(zero, times * RATE, how) for zero in range(4)]
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("zero", "shown", "hidden"),
    [
        (
            0,
            4 + (4 - 2),
            2,
        ),  # the all-reduce of one layer hides 2 s behind the other's backward
        (
            1,
            1 + 2,
            1 + 2,
        ),  # a gather of 1 s behind a forward pass, a scatter of 2 s behind 2 s
        (
            2,
            1 + 2,
            1 + 2 + 2 * 2 * 2,
        ),  # two more microbatches scatter both layers' gradients
    ],
)
def test_compute_is_slower_beside_what_hides(
    zero: int, shown: float, hidden: float
) -> None:
    """A tenth of the seconds that hide is a cause of its own: none of it counts as
    communication, and all causes add up to the step.
    """
    slow = replace(SET.overlap, dp=HidePass("pass", slow=0.1))
    found = by_hand(Layout(dp=4, zero=zero), 3, RATE, overlap=slow)
    without = by_hand(Layout(dp=4, zero=zero), 3, RATE, overlap=HIDDEN)
    assert (
        found.time_s["dp_comm"]
        == pytest.approx(shown)
        == without.time_s["dp_comm"]
    )
    assert found.time_s["overlap_slowdown"] == pytest.approx(0.1 * hidden)
    assert found.step_time_s == pytest.approx(
        without.step_time_s + 0.1 * hidden
    )
    (part,) = next(
        t for t in found.term.parts if t.name == "overlap_slowdown"
    ).parts
    assert (part.name, part.value) == (
        "weights and gradients",
        pytest.approx(0.1 * hidden),
    )


VOCAB, LEARNED = 128, replace(MODEL, vocab=128, positions="learned")
"""Embedding: (128 + 128 positions) x 64; head: 128 x 64."""


LOGITS = 3 * 2 * TOKENS * WIDTH * VOCAB / 2**24
"""Seconds of the head's products, for which the device with the embedding is done sooner than the
last one.
"""


@pytest.mark.parametrize(
    ("pp", "tied", "parameters", "sooner"),
    [
        (1, False, VOCAB * WIDTH + TOKENS * WIDTH + VOCAB * WIDTH, 0.0),
        (1, True, VOCAB * WIDTH + TOKENS * WIDTH, 0.0),
        # on two devices, each for itself: here the first is last
        (2, False, VOCAB * WIDTH + TOKENS * WIDTH, LOGITS),
    ],
)
def test_the_ends_of_the_model_are_reduced_once(
    pp: int, tied: bool, parameters: int, sooner: float
) -> None:
    """Gradients of embedding and head: 4 bytes, 2 x (dp-1)/dp of them over the link."""
    model = replace(LEARNED, tied_embeddings=tied)
    with_ends, without = (
        by_hand(Layout(dp=2, pp=pp), 1, RATE, m).time_s["dp_comm"]
        for m in (model, replace(MODEL, vocab=0))
    )
    assert with_ends - without == pytest.approx(
        2 * (1 / 2) * 4 * parameters / RATE - sooner
    )
