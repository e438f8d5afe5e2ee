"""Which parts of the scores of attention the trainer computes: tiles that a flash kernel takes as
they are, so that no mask of T x S is ever made and what a mask would hide is not computed.

A query at position i sees the keys j <= i of its document, and with a window only i - window < j.
Documents are cut in blocks of a window each. Inside its own block a query sees a triangle
("causal": j <= i), of the block before it the rest ("before": j > i, one block back); where a rank
holds a part of a block only, rectangles that are seen whole ("full") fill up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..describe.job import Job
from ..describe.layout import Layout


class Tile(NamedTuple):
    """Queries against keys. Several equal tiles one after the other are one, folded."""

    queries: tuple[int, int]
    """First and last (exclusive), among those of this rank."""
    keys: tuple[int, int]
    """First and last (exclusive), among all of the sequence."""
    kind: str
    """full, causal (j <= i) or before (j > i), counted from the first query and key of the tile."""
    folds: int = 1

    @property
    def scores(self) -> int:
        """Products of a query and a key that the kernel takes: whole rectangles."""
        rows, columns = (
            end - start for start, end in (self.queries, self.keys)
        )
        less = self.folds if self.kind == "before" else 0
        return (rows - less) * (columns - less) // self.folds


Documents = tuple[int, ...]
"""Where the documents of a sequence begin, from 0 on."""


def chunks(T: int, cp: int, index: int) -> tuple[range, ...]:
    """The positions of a context-parallel rank: one of the first half of 2 cp chunks and its mirror
    image in the second, so that all ranks see equally many keys (head-tail, as in ring attention).
    """
    if cp == 1:
        return (range(T),)
    half = T // (2 * cp)
    return tuple(
        range(i * half, (i + 1) * half) for i in (index, 2 * cp - 1 - index)
    )


@lru_cache(maxsize=4096)
def tiles(
    positions: tuple[range, ...],
    T: int,
    causal: bool,
    window: int | None,
    documents: Documents = (0,),
) -> tuple[Tile, ...]:
    """What queries at these positions, which follow each other on the rank, see of T keys."""
    parts, at = list[Tile](), 0
    for part in positions:
        for start, end in zip(documents, (*documents[1:], T), strict=True):
            first = max(start, part.start)
            last = min(end, part.stop)
            if first < last:
                rows = at + first - part.start
                if causal:
                    parts += of_document(
                        rows,
                        first - start,
                        last - start,
                        keys=start,
                        window=window or T,
                    )
                else:
                    parts.append(
                        Tile((rows, rows + last - first), (start, end), "full")
                    )
        at += len(part)
    return tuple(fold(parts))


def of_document(
    rows: int, first: int, last: int, keys: int, window: int
) -> Iterator[Tile]:
    """Queries `first` to `last` of a document, which are the rank's from `rows` on. keys: where it
    begins.
    """
    for s, e in _blocks(first, last, window):
        n = e - s
        mine = (rows + s - first, rows + e - first)
        own = s // window * window
        yield Tile(mine, (keys + s, keys + e), "causal")
        if s > own:
            yield Tile(mine, (keys + own, keys + s), "full")
        if own:
            if n > 1:
                yield Tile(
                    mine, (keys + s - window, keys + e - window), "before"
                )
            if e < own + window:
                yield Tile(mine, (keys + e - window, keys + own), "full")


def _blocks(first: int, last: int, window: int) -> Iterator[tuple[int, int]]:
    """The parts of a stretch that lie in one block each."""
    while first < last:
        end = min(first // window * window + window, last)
        yield first, end
        first = end


def fold(every: Sequence[Tile]) -> Iterator[Tile]:
    """Tiles of one kind and size that follow each other in queries and keys, as one."""
    left = list(every)
    while left:
        tile = left.pop(0)
        size = tile.queries[1] - tile.queries[0]
        for other in list(left):
            follows = (
                other.queries[0] == tile.queries[1]
                and other.keys[0] == tile.keys[1]
            )
            square = tile.kind != "full" and other.kind == tile.kind
            if (
                follows
                and square
                and other.queries[1] - other.queries[0] == size
            ):
                left.remove(other)
                tile = Tile(
                    (tile.queries[0], other.queries[1]),
                    (tile.keys[0], other.keys[1]),
                    tile.kind,
                    tile.folds + 1,
                )
        yield tile


def share(
    job: Job, layout: Layout, window: int | None, index: int = 0
) -> float:
    """Scores that a rank (the index-th of cp) computes over all of its queries and all keys."""
    cp = int(layout.cp)
    causal = job.model.attention == "causal"
    every = tiles(
        chunks(job.T, cp, index), job.T, causal, seen_window(window, job.T)
    )
    return sum(tile.scores for tile in every) * cp / job.T**2


def seen_window(window: int | None, T: int) -> int | None:
    """A window that hides something."""
    return window if window is not None and window < T else None
