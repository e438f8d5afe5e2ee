"""Operations whose shapes the data choose, on tensors without numbers: the rows of a mask, the
tokens of each expert. Choices are spread evenly (`even`), and the rows of several masks add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .source import StorageSource

MASKED = ("index", "index_put", "index_put_", "masked_select", "nonzero")
"""Operations that take the rows of a mask."""

Source = Callable[[torch.Tensor], StorageSource]


class Choices:
    """What the masks of one pass took so far."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.taken: dict[tuple[Any, ...], int] = {}
        """A mask, as a view of its storage -> its rows."""
        self.owed: dict[int, float] = {}
        """Call of a layer -> rows that its masks so far should have had more."""

    def rows(self, mask: torch.Tensor, call: int) -> int:
        """Rows that a mask takes, the same whenever it is asked. ValueError where its share is not
        known.
        """
        share = self.source(mask).mean
        if share is None:
            raise ValueError
        storage = mask.untyped_storage()._cdata
        place = (storage, mask.storage_offset(), tuple(mask.shape))
        if place not in self.taken:
            due = self.owed.get(call, 0.0) + share * mask.numel()
            self.taken[place] = rows = int(due + 0.5)
            self.owed[call] = due - rows
        return self.taken[place]

    def made(
        self, func: Any, name: str, args: Sequence[Any], call: int
    ) -> Any:
        """What such an operation makes; None of operations whose shape is known. ValueError where
        choices are not.
        """
        first = args[0] if args else None
        if not isinstance(first, torch.Tensor) or not first.is_meta:
            return None
        if name == "nonzero":
            if self.source(first).mean == 1.0 and first.dim() == 1:
                return torch.arange(first.numel(), device="cpu")[:, None]
            return _numbers(self.rows(first, call), first.dim())
        if name == "masked_select":
            return first.new_empty(self.rows(args[1], call))
        if name in MASKED:
            return self._indexed(func, args, call)
        if name in ("bincount", "histc", "_unique2"):
            return self._counts(name, args, self.source(first).among)
        return None

    def _indexed(self, func: Any, args: Sequence[Any], call: int) -> Any:
        """By masks: by as many numbers as each has rows."""
        first, indices, *rest = args
        masks = [i for i in indices if i is not None and i.dtype == torch.bool]
        if not masks:
            return None
        numbers: list[torch.Tensor | None] = []
        for one in indices:
            if one is not None and one.dtype == torch.bool:
                rows = self.rows(one, call)
                numbers += _numbers(rows, one.dim()).unbind(1)
            else:
                numbers.append(one)
        return func(first, numbers, *rest)

    def _counts(self, name: str, args: Sequence[Any], among: int) -> Any:
        """How often each is chosen, and which are: all."""
        if not among:
            raise ValueError
        first = args[0]
        if name == "histc":
            return first.new_empty(args[1] if len(args) > 1 else 100)
        least = args[2] if name == "bincount" and len(args) > 2 else 0
        counts = first.new_empty(max(among, least), dtype=torch.long)
        if name == "bincount":
            return counts
        every = torch.arange(among, dtype=first.dtype, device="cpu")
        return every, torch.empty_like(first), counts


def _numbers(rows: int, sides: int) -> torch.Tensor:
    """Positions of rows, without numbers."""
    return torch.empty(rows, sides, dtype=torch.long, device="meta")
