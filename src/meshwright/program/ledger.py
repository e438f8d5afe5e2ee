"""Bytes of a rank of the trainer that live now, by term, and as they were at the peak."""

from __future__ import annotations

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
    """Bytes that live now, and at their peak, as what happened one after the other."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []
        self.total = self.highest = 0.0
        self.moment = 0
        """Entries at the peak."""

    def add(self, term: str, size: float) -> None:
        """These bytes live from now on (or, negative, no longer)."""
        self.entries.append((term, size))
        self.total += size
        if self.total > self.highest:
            self.highest, self.moment = self.total, len(self.entries)

    def touch(self, term: str, size: float) -> None:
        """These bytes live for a moment, which leaves nothing unless it is the fullest."""
        if self.total + size > self.highest:
            self.add(term, size)
            self.add(term, -size)

    @property
    def peak(self) -> dict[str, float]:
        """Bytes at the peak by term."""
        terms = dict.fromkeys(TERMS, 0.0)
        for term, size in self.entries[: self.moment]:
            terms[term] += size
        return terms
