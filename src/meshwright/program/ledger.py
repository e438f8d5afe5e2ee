"""Bytes of a rank of the trainer that live now, by term, and as they were at the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

TERMS = {
    "weights": "fp32, 4 bytes a parameter of this rank's shard",
    "optimizer": "two moments, 8 bytes a parameter of the shard",
    "gathered weights": (
        "whole, in the precision of the products; zero 0-2: all of them, 3: the unit in use and"
        " the one that arrives"
    ),
    "gradients": "fp32, 4 bytes a parameter: whole until they are reduced, then the shard",
    "activations": "what autograd keeps, for each microbatch in flight",
    "vocabulary gradient": (
        "the embedding's gradient for all V rows on every tp rank: 4 (V - V/tp) D"
    ),
    "receive buffers": (
        "of an activation from its arrival to the end of its backward pass, of a gradient during"
        " one: 2 bytes x tokens x D"
    ),
    "stage outputs": (
        "kept from forward to backward of each microbatch: its hidden states, or the logits"
    ),
    "loss": (
        "the logits where there is one stage, and while their gradient is made that and some rows"
        " in fp32"
    ),
    "output gradients": (
        "zero-bubble: gradients of every product's result, from the first half of the backward"
        " pass to the second"
    ),
    "backward": (
        "gradients of one layer's weights before they are added up, of the operation's inputs and"
        " results, and what is computed again"
    ),
    "reduction": "the gradients of one unit, copied together in fp32 to be reduced",
}
"""Name of a term -> what it is."""


class Ledger:
    """Bytes that live now, and at their peak, as what happened one after the other.

    What a pass did is an entry by itself, however often it is repeated: terms are summed once, when
    somebody asks for them.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[str, float] | Ledger] = []
        self.total = self.highest = 0.0
        self.moment = 0
        """Entries at the peak; of the last one its own peak."""

    def add(self, term: str, size: float) -> None:
        """These bytes live from now on (or, negative, no longer)."""
        self.entries.append((term, size))
        self.total += size
        if self.total > self.highest:
            self.highest, self.moment = self.total, len(self.entries)

    def touch(self, term: str, size: float) -> None:
        """These bytes live for a moment."""
        self.add(term, size)
        self.add(term, -size)

    def follow(self, change: Ledger) -> None:
        """What a ledger that began with nothing went through happens again from here on."""
        self.entries.append(change)
        if self.total + change.highest > self.highest:
            self.highest = self.total + change.highest
            self.moment = len(self.entries)
        self.total += change.total

    @cached_property
    def now(self) -> Counter[str]:
        """Bytes at the end by term."""
        return self.by_term(self.entries)

    @cached_property
    def peak(self) -> Counter[str]:
        """Bytes at the peak by term."""
        # moment 0: the peak is before the first entry
        terms = self.by_term(self.entries[: max(self.moment - 1, 0)])
        for last in self.entries[self.moment - 1 : self.moment]:
            own = last.peak if isinstance(last, Ledger) else dict([last])
            terms.update(own)
        return terms

    @staticmethod
    def by_term(entries: Iterable[tuple[str, float] | Ledger]) -> Counter[str]:
        total = Counter[str]()
        for entry in entries:
            sizes = entry.now.items() if isinstance(entry, Ledger) else [entry]
            for term, size in sizes:
                total[term] += size  # type: ignore[assignment]
        return total
