"""What a pass writes down: where each storage came from, and each operation that computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StorageSource:
    """Where a storage came from."""

    keep: Any
    """The storage itself: no other gets its number."""
    bytes: int
    parameter: str = ""
    """A view, a cast or chosen rows of this parameter."""
    chosen: bool = False
    """Only rows of it that the data choose."""
    live: bool = False
    """It depends on numbers of the model, not only on positions and masks."""
    maker: int = -1
    """Number of the record that made it."""
    products: frozenset[int] = frozenset()
    """Records of products that it is made of, without another product between."""
    scores: int = -1
    """Record of the product that made these scores."""
    weighed: int = -1
    """The same, after the softmax."""
    mean: float | None = None
    """Of its numbers, which are as even as whole numbers can be; None where only data say it."""
    among: int = 0
    """Its numbers choose among so many; 0 for other numbers."""
    picked: bool = False
    """Only rows that the data choose."""
    narrow: int = 0
    """Bytes of what was copied to make it, where that was less."""


@dataclass
class Record:
    """One operation that computes."""

    call: int
    """Number of the call of a layer that it belongs to, or that it comes after; -1 before the
    first.
    """
    path: str
    """Module in its layer; * for each of a list whose rows the data choose."""
    name: str
    flops: int
    inputs: tuple[int, ...]
    """Storages that it reads."""
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Of its tensors, in order of its arguments."""
    made: tuple[int, ...]
    """Shape of its first result."""
    parameters: tuple[str, ...] = ()
    chosen: bool = False
    products: frozenset[int] = frozenset()
    attention: int = -1
    """Of the second product of attention: the record of the first."""
    inside: int = -1
    """Of what works on scores: the record of the product that made them."""
    saved: dict[int, int] = field(default_factory=dict)
    """Storage -> bytes that autograd keeps because of it, for the first time."""
    live: bool = True
    picked: bool = False
    """It works on rows that the data choose."""
    outside: bool = False
    """No layer runs."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
