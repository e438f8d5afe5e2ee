"""What is computed once for equal numbers is never taken for other numbers."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from meshwright import Layout, assumptions, chip, network
from meshwright.cost.chip import rates
from meshwright.cost.hierarchy import levels, product_time, time
from meshwright.cost.layer import Clock, Timer
from meshwright.cost.network import Fabric
from meshwright.count.work import Product
from meshwright.describe.assumptions import Overlap, Stack
from meshwright.exchange.types import Message
from meshwright.layout.placement import placed
from meshwright.num import cache_key

SET = assumptions("realistic")
FABRIC = Fabric.from_network(network("dgx-h100"), SET.network)
EIGHT = placed(Layout(tp=8, dp=1), (8, 1))


def timer() -> Timer:
    return Timer(
        Clock(rates(chip("h100-sxm"), "bf16", SET.chip), FABRIC, Overlap()),
        EIGHT,
    )


def test_messages_of_a_table_of_layouts() -> None:
    """Equal scalars are one message however they were computed; arrays are themselves."""
    asked, sizes = timer(), np.array([1e6, 1e8])
    got = asked.message(Message("all_gather", "tp", sizes)).seconds
    for size, seconds in zip(sizes, got, strict=True):
        one = asked.message(Message("all_gather", "tp", float(size)))
        assert one.seconds == seconds
        assert seconds == FABRIC.time("all_gather", float(size), (8, 1))
    known = len(asked._loads)
    for size in (1e6, 10**8):
        asked.message(Message("all_gather", "tp", size))
    assert len(asked._loads) == known


def test_identities_of_arrays_stay_theirs() -> None:
    """A new array in the memory of one that is gone is another key: the key keeps what it names
    alive.
    """
    keys = {cache_key("x", np.full(3, float(i))) for i in range(50)}
    gc.collect()
    assert len(keys) == 50
    array = np.ones(3)
    assert (
        cache_key(array, 2)
        == cache_key(array, 2.0)
        != cache_key(array.copy(), 2)
    )


def test_equal_products_are_timed_once_and_others_apart() -> None:
    h100 = levels(chip("epoch-h100"), "fp16", 0.7, 4.5e-6, 2.0)
    products = [
        Product(1024.0 * n, 2048.0, 512.0, gradient)
        for n in (1, 2, 4)
        for gradient in (False, True)
    ]
    again = [
        Product(512.0 * 2 * n, 2048.0, 512.0, gradient)
        for n in (1, 2, 4)
        for gradient in (False, True)
    ]
    assert time(h100, [*products, *again]) == pytest.approx(
        2 * sum(product_time(h100, p) for p in products), rel=1e-15
    )


@pytest.mark.parametrize(
    ("kind", "axis", "moved"),
    [
        ("all_gather", "tp", 2.0),
        ("reduce_scatter", "tp", 2.0),
        ("all_reduce", "tp", 0.0),
        ("all_gather", "cp", 0.0),
    ],
)
def test_shards_of_a_sequence_are_copied_into_their_place(
    kind: str, axis: str, moved: float
) -> None:
    """[batch, sequence, hidden]: what a gather brings over tp is read and written once more, and
    what a reduce-scatter sends; nothing where a group is one rank."""
    at = [
        rates(
            chip("h100-sxm"),
            "bf16",
            replace(SET.chip, stack=Stack(sequence_first=first)),
        )
        for first in (True, False)
    ]
    first, second = (Timer(Clock(r, FABRIC, Overlap()), EIGHT) for r in at)
    message = Message(kind, axis, 100e6)
    longer = second.message(message).seconds - first.message(message).seconds
    assert longer == pytest.approx(moved * 100e6 / at[1].memory)
