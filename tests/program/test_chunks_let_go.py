"""What PyTorch's schedules do to the weights and gradients of chunks, on short orders by hand."""

from __future__ import annotations

import pytest

from meshwright.program.order import (
    Stage,
    gathered_again,
    piled_up,
    weight_lifetimes,
)
from meshwright.program.parameters import elements
from meshwright.schedule.types import Action


def order(text: str) -> list[Action]:
    """Such as "F0 F1 B1 B0": what a rank does, chunk by chunk."""
    return [Action(word[0], int(word[1:]), 0) for word in text.split()]


@pytest.mark.parametrize(
    ("text", "sharded", "times"),
    [
        # three chunks are kept: 0 goes when 3 comes, and is there again for its backward pass
        ("F0 F1 F2 F3 B3 B2 B1 B0", False, {0: 2, 1: 1, 2: 1, 3: 1}),
        ("F0 F1 F2 B2 B1 B0", False, {0: 1, 1: 1, 2: 1}),
        # five chunks: 0 and 1 went
        (
            "F0 F1 F2 F3 F4 B4 B3 B2 B1 B0",
            False,
            {0: 2, 1: 2, 2: 1, 3: 1, 4: 1},
        ),
        # sharded weights go after every forward pass too
        ("F0 F1 F2 B2 B1 B0", True, {0: 2, 1: 2, 2: 2}),
    ],
)
def test_chunks_that_come_no_time_soon_are_let_go(
    text: str, sharded: bool, times: dict[int, int]
) -> None:
    assert dict(gathered_again(order(text), sharded)) == times


def test_what_is_gathered_when() -> None:
    """Five chunks, three of which are kept: 0 is let go when 3 is fetched ahead."""
    moves = weight_lifetimes(order("F0 F1 F2 F3 F4"), sharded=False)
    assert [*moves] == [
        (set(), {0, 1, 2}),
        ({0}, {3}),
        ({1}, {4}),
        ({2}, set()),
        ({3}, set()),
    ]


@pytest.mark.parametrize(
    ("text", "first", "piles"),
    [
        ("F0 B0", False, True),
        (
            "F0 I0 W0",
            False,
            False,
        ),  # the one gradient of weights is reduced as it was made
        (
            "F0 F0 I0 I0 W0 W0",
            False,
            False,
        ),  # no gradient of an input comes after it
        ("F0 F0 I0 W0 I0 W0", False, True),
        (
            "F0 F0 I0 I0 W0 W0",
            True,
            True,
        ),  # nothing to hand on: W is a whole backward pass
    ],
)
def test_gradients_pile_up_when_a_gradient_of_an_input_follows(
    text: str, first: bool, piles: bool
) -> None:
    stage = Stage(0, range(1), first, False)
    assert piled_up(order(text), [stage]) == ({0} if piles else set())


def test_a_parameter_is_padded_only_if_no_dim_can_be_cut() -> None:
    """GPT-3's embedding over 32 ranks is cut by columns, 12,288 = 32 x 384; a bias has rows only;
    and 50,257 x 12,289 is padded to 50,272 rows.
    """
    rows = {"embedding.weight": (50257, 12288)}
    assert elements(rows, 32) == 50257 * 12288
    assert elements({"bias": (50257,)}, 32) == 50272
    assert elements({"weight": (50257, 12289)}, 32) == 50272 * 12289
