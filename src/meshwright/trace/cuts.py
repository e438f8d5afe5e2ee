"""Which matrices of a traced layer tensor parallelism cuts: pairs that stand in one module, the
first by columns and the second by rows, with only heads or features of a rank between them.

    attention: matrices whose results only the scores read, the scores, the matrix behind them
    feed-forward: matrices whose results only the last matrix of the module reads, and that one

What has consumers elsewhere (latents, routers, indexers, states) is whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .source import Record


class LayerProduct(NamedTuple):
    """A product of a layer, and who reads it."""

    number: int
    """Of its record."""
    parent: str
    """The module that holds the matrix's own, or the one that runs scores."""
    weight: bool
    wide: bool
    """It makes the hidden size."""
    feeds: frozenset[int]
    """Products of the layer that it reads."""


def parent(record: Record, own: bool) -> str:
    """own: the record's module holds nothing but its matrix."""
    return record.path.rpartition(".")[0] if own else record.path


def cuts(
    products: Sequence[LayerProduct], cores: frozenset[int]
) -> Mapping[int, str]:
    """Record -> column, row or inside; those left out are whole."""
    readers: dict[int, set[int]] = {p.number: set() for p in products}
    by = {p.number: p for p in products}
    for p in products:
        for source in p.feeds & by.keys():
            readers[source].add(p.number)
    made: dict[int, str] = {}
    for name in sorted({p.parent for p in products}):
        group = {p.number for p in products if p.parent == name}
        made.update(_group(group, by, readers, cores))
    return made


def _group(
    group: set[int],
    by: Mapping[int, LayerProduct],
    readers: Mapping[int, set[int]],
    cores: frozenset[int],
) -> dict[int, str]:
    """The pairs of one module."""
    last = {
        n
        for n in group
        if by[n].weight
        and by[n].wide
        and by[n].feeds & group
        and not readers[n] & group
    }
    middle = group & cores
    columns = {
        n
        for n in group - last - middle
        if by[n].weight and readers[n] and readers[n] <= last | middle
    }
    rows = {n for n in last if by[n].feeds & group <= columns | middle}
    # keys that all heads share (latent attention) may come whole
    middle = {n for n in middle if by[n].feeds & columns}
    ends = rows | middle
    columns = {n for n in columns if readers[n] <= ends}
    rows = {n for n in rows if by[n].feeds & (columns | middle)}
    if not (columns and rows):
        return {}
    return (
        dict.fromkeys(columns, "column")
        | dict.fromkeys(rows, "row")
        | dict.fromkeys(middle, "inside")
    )
