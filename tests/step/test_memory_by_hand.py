"""Bytes on a device for two layers of 49,152 weights, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, TOKENS, WEIGHTS, WIDTH, by_hand
from meshwright.describe.assumptions import MemoryCount
from meshwright.describe.holding import Holding
from meshwright.describe.layout import Layout
from meshwright.step.zero import gathers, reductions

HELD = 2 * WEIGHTS
INPUT = TOKENS * WIDTH * 2
"""Bytes of a layer's input: one sequence, 2 bytes an element."""
UNITS = MemoryCount(
    framework_bytes=0.0,
    capacity_share=1.0,
    working_set=True,
    holding=Holding(),
)
BARE = replace(UNITS, working_set=False)


def use(
    zero: int, memory: MemoryCount = BARE, layers: int = 2, **choices: object
) -> dict[str, float]:
    """Bytes by kind with four replicas."""
    layout = Layout(dp=4, zero=zero, **choices)  # type: ignore[arg-type]
    return by_hand(
        layout, 2, model=replace(MODEL, layers=layers), memory=memory
    ).memory_bytes


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer"),
    [
        (0, 1, 1, 1),
        (1, 1, 1, 4),
        (2, 1, 4, 4),
        (3, 4, 4, 4),
    ],
)
def test_zero_cuts_one_kind_after_the_other(
    zero: int, weights: int, gradients: int, optimizer: int
) -> None:
    """Rajbhandari et al. 2020, figure 1: 12 bytes of state, then gradients, then weights, over four
    replicas.
    """
    found = use(zero)
    assert found["weights"] == HELD * 2 / weights
    assert found["gradients"] == HELD * 4 / gradients
    assert found["optimizer"] == HELD * 12 / optimizer


def test_how_often_replicas_exchange_weights_and_gradients() -> None:
    """Rajbhandari et al. 2020, section 7; of four microbatches, each forward and backward."""
    assert [gathers(zero, 8.0) for zero in range(4)] == [0, 1, 1, 8]
    assert [reductions(zero, 4.0) for zero in range(4)] == [1, 1, 4, 4]


def test_a_whole_gradient_waits_to_be_scattered() -> None:
    """ZeRO-2 holds that of the layer it has just computed, in fp32; ZeRO-1 keeps all gradients
    whole anyway.
    """
    assert use(2, UNITS)["buffers"] == pytest.approx(WEIGHTS * 4)
    assert use(1, UNITS)["buffers"] == 0


def test_full_recomputation_keeps_inputs_and_works_on_one_layer() -> None:
    """One input a layer, and once what the layer being computed again keeps."""
    plain = {n: use(0, UNITS, n)["activations"] for n in (2, 4)}
    again = {
        n: use(0, UNITS, n, recompute="full")["activations"] for n in (2, 4)
    }
    one_layer = (plain[4] - plain[2]) / 2
    assert again[4] - again[2] == pytest.approx(2 * INPUT)
    assert again[2] - 2 * INPUT == pytest.approx(one_layer)
    assert use(0, BARE, 2, recompute="full")["activations"] == pytest.approx(
        2 * INPUT
    )


def test_framework_and_capacity_are_the_set_s() -> None:
    found = use(
        0, replace(SET.memory, framework_bytes=3e9, capacity_share=0.5)
    )
    assert found["device"] - found["allocated"] == 3e9
    assert found["capacity"] == 0.5e12


@pytest.mark.parametrize("pp", [2, 3])
def test_the_ends_of_the_model_are_on_the_ends_of_the_pipeline(
    pp: int,
) -> None:
    """Learned positions with the embedding on the first device, the head on the last, one layer on
    each.
    """
    model = replace(MODEL, layers=pp, vocab=512, positions="learned")
    found = by_hand(
        Layout(pp=pp, dp=1), 4, model=model, memory=BARE
    ).memory_by_stage
    assert found["first"].weights == 2 * (WEIGHTS + (512 + TOKENS) * WIDTH)
    assert found["last"].weights == 2 * (WEIGHTS + 512 * WIDTH)
    if pp > 2:
        assert found["second"].weights == 2 * WEIGHTS
