"""Recomputation of a layer: which of its operations run again in the backward pass, and what then
stays.

    kept = sum over operations
           not run again: what is their own + their inputs that nobody makes again
           run again:     their inputs that nobody makes again

An operation that runs again drops its result, so that whoever uses it finds it made again.
Everything follows from one set (`describe.recompute`): the forward work done twice, the messages
sent twice, the bytes that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..describe.recompute import RecomputedPart, matches, parts_of
from ..num import Num
from .work import Op


class Again(NamedTuple):
    """How much of one operation runs again."""

    share: Num
    """Of its work: 1, 0, or the part of matrices that stand side by side."""
    dropped: Num
    """Of its result: made again where it is needed, not kept."""
    reads: bool = True
    """What it works on is there for it."""

    @property
    def runs(self) -> bool:
        """Some of it does."""
        return self is not NEVER and self is not UNREAD


NEVER = Again(0.0, 0.0)
UNREAD = Again(0.0, 1.0, reads=False)
"""Nobody reads its result, so that it is neither made again nor kept."""


def recomputed_ops(ops: Sequence[Op], parts: str) -> list[Again]:
    """What is computed again of every operation of a layer, in order. parts: words joined by "+",
    "selective" resolved.
    """
    shares = [NEVER] * len(ops)
    for part in parts_of(parts):
        for i, one in enumerate(_by_part(ops, part)):
            shares[i] = shares[i] if one is NEVER else one
    return shares


def _by_part(ops: Sequence[Op], part: RecomputedPart) -> list[Again]:
    """What one part says of every operation."""
    shares, products = [], 0
    for op in ops:
        share: Num = 1.0
        if part.every_second and op.kind == "matmul" and not op.expert:
            share, products = _every_second(op, products)
        runs = (
            matches(op.name, part.again)
            and not matches(op.name, part.keeps)
            and (op.selective or not part.unfused)
        )
        shares.append(
            Again(share, 0.0 if part.inner else share) if runs else NEVER
        )
    if part.unread == "again":
        return shares
    unread = _unread(ops)
    if part.unread == "prefix":
        unread = _ending(ops, unread)
    return [
        _without_unread(*each)
        for each in zip(ops, shares, unread, strict=True)
    ]


MASKS = ("*/dropout",)
LINEAR = ("*/bias", *MASKS, "*/residual")
"""Operations whose backward pass needs nothing of what they work on."""


def _unread(ops: Sequence[Op]) -> list[bool]:
    """Whether no backward pass reads the result of an operation: bias, dropout and residual need
    nothing of the product before them, and what follows them reads their sum, or, beside it in a
    parallel block, something else.
    """
    unread = [False] * len(ops)
    sources = {op.source for op in ops}
    for i, op in reversed([*enumerate(ops)]):
        linear = matches(op.name, LINEAR)
        after = ops[i + 1] if i + 1 < len(ops) else None
        if op.name in sources:
            continue
        if after and not after.source:
            passed_on = matches(after.name, LINEAR) and unread[i + 1]
            unread[i] = passed_on and (linear or op.kind == "matmul")
        else:
            # a product before one that reads elsewhere, as of queries before that of keys, is read
            unread[i] = linear or (not after and op.kind == "matmul")
    return unread


def _ending(ops: Sequence[Op], unread: Sequence[bool]) -> list[bool]:
    """Of them those that end a layer, behind all that saves something: a mask of dropout is made
    with its result.
    """
    last = max(
        (
            i
            for i, op in enumerate(ops)
            if not unread[i] or matches(op.name, MASKS)
        ),
        default=-1,
    )
    return [i > last for i in range(len(ops))]


def _without_unread(op: Op, one: Again, unread: bool) -> Again:
    """What of an operation runs again where a result that nobody reads is never made again; a mask
    is, from its seed.
    """
    if not unread or one is NEVER:
        return one
    return one._replace(reads=False) if matches(op.name, MASKS) else UNREAD


def _every_second(op: Op, before: int) -> tuple[Num, int]:
    """(share of its columns that are made again, products counted so far): the results of the
    first, third, ... product stay.
    """
    columns = op.columns or (1.0,)
    gone: Num = 0.0
    for i, width in enumerate(columns, start=before):
        gone = gone + width * (i % 2)
    return gone / sum(columns), before + len(columns)


def saved_bytes_of(
    ops: Sequence[Op], redo: Sequence[Again], boundary: Num
) -> Num:
    """Bytes that stay of one microbatch. boundary: the layer's input, which a first operation that
    runs again begins with.
    """
    makers = {op.name: one for op, one in zip(ops, redo, strict=True)}
    saved_bytes: Num = 0.0
    before = NEVER
    for i, (op, one) in enumerate(zip(ops, redo, strict=True)):
        source = makers.get(op.source, before)
        # within one stretch of operations that run again even a result that others keep is made
        # again
        made = source.dropped if one is NEVER else source.share
        needs = boundary if i == 0 and one is not NEVER else op.needed
        needs = needs if one.reads else 0.0
        saved_bytes = saved_bytes + (op.saved - op.inputs) * (1.0 - one.share)
        saved_bytes = saved_bytes + (
            op.inputs * (1.0 - one.share) + needs * one.share
        ) * (1.0 - made)
        before = one
    return saved_bytes
