"""From the records of two passes, over T and 2 T tokens, to the operations of each layer for one
token.

    x(T) = a T + b T^2     b = (x(2T) - 2 x(T)) / 2 T^2,  a = x(T) / T - b T
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ..describe.traced import TracedOp
from .cuts import LayerProduct, cuts, parent
from .joined import Joined, TracedPass, join_passes
from .source import Record


def amounts(small: float, large: float, T: int) -> tuple[float, float]:
    """(for each token, for each pair of tokens) of what T and 2 T tokens take."""
    square = (large - 2 * small) / (2.0 * T * T)
    if abs(square) * T * T < 1e-9 * max(abs(large), 1.0):
        return large / (2.0 * T), 0.0
    return small / T - square * T, square


def traced_ops(
    small: TracedPass,
    large: TracedPass,
    records: tuple[Sequence[tuple[int, Record]], Sequence[tuple[int, Record]]],
    owned: set[str],
) -> tuple[TracedOp, ...]:
    """The operations of one layer. owned: its parameters that no operation before it has; those
    that it reads are taken out.
    """
    few, many = join_passes(small, records[0]), join_passes(large, records[1])
    sides = _cuts(large, records[1], many)
    made = []
    readings: dict[int, int] = {}
    for key, of in many.items():
        other = few.get(key) or Joined(of.kind, of.path)
        mine = [p for p in of.parameters if p in owned]
        owned.difference_update(mine)
        weights = sum(prod(large.sizes[p]) for p in mine)
        name = of.path.replace(".", "/") or "layer"
        T = small.tokens
        op: dict[str, Any] = {
            "name": _named(name, of, many),
            "kind": of.kind,
            "cut": sides.get(of.numbers[0], "whole"),
            "weights": float(weights),
        }
        if of.kind in ("matmul", "experts"):
            r = large.recorder.records[of.numbers[0]]
            op |= _matrix(large, of, r)
            op["reads"] = readings.setdefault(_input(large, r), len(readings))
            op["keeps"] = of.saved > 0
            if op["copies"] == 1:
                op["kind"] = "matmul"
            if op["kind"] == "matmul" and (op["rows"], op["copies"]) != (
                1.0,
                1,
            ):
                op["cut"] = (
                    "whole"  # of heads or blocks, with rules of its own
                )
        elif (keys := _keys(other, of, T)) > 0:
            op |= of.shape | {"keys": keys}
        else:
            op["kind"] = "product" if of.kind == "attention" else of.kind
            flops = amounts(other.flops, of.flops, T)
            moved = amounts(other.moved, of.moved, T)
            saved = amounts(other.saved, of.saved, T)
            op |= dict(
                zip(
                    (
                        "flops",
                        "flops_square",
                        "moved",
                        "moved_square",
                        "saved",
                        "saved_square",
                    ),
                    (max(x, 0.0) for x in (*flops, *moved, *saved)),
                    strict=True,
                )
            )
        made.append(TracedOp(**op))
    return tuple(made)


def _keys(small: Joined, large: Joined, T: int) -> float:
    """Keys of attention for each token, but for a few that are always there; 0 of what is none: a
    product of other sides, as of blocks.
    """
    if large.kind != "attention" or small.kind != "attention":
        return 0.0
    few, many = small.shape, large.shape
    if not few or not many["heads"] or few["heads"] != many["heads"]:
        return 0.0
    keys = (many["keys"] - few["keys"]) / T
    whole = 2.0 * many["heads"] * 2 * T * many["keys"]
    sides = many["query"] + many["value"]
    if keys <= 0 or abs(whole * sides / large.flops - 1.0) > 1e-6:
        return 0.0
    return float(keys)


def _named(name: str, of: Joined, many: Mapping[str, Joined]) -> str:
    """A module's path; with the parameter or the kind where it makes several operations."""
    same = [o for o in many.values() if o.path == of.path]
    if len(same) < 2:
        return name
    last = of.matrix.rpartition(".")[2] if of.matrix else ""
    return f"{name}/{last or of.kind}"


def _input(run: TracedPass, r: Record) -> int:
    """The storage that a matrix reads."""
    of = run.recorder.sources
    return next((k for k in r.inputs if not of[k].parameter and of[k].live), 0)


def _matrix(run: TracedPass, of: Joined, r: Record) -> dict[str, Any]:
    """Sides, copies and rows of a product with weights."""
    shape = run.sizes[of.matrix]
    size = prod(shape)
    live = [
        s
        for k, s in zip(r.inputs, r.shapes, strict=True)
        if not run.recorder.sources[k].parameter
        and run.recorder.sources[k].live
    ]
    sides = shape[-2:] if len(shape) > 1 else (shape[0], 1)
    read = live[0] if live else sides
    # the side that both have in common
    inner = next(
        (s for s in reversed(sides) if s in (read[-1], read[-2:][0])),
        sides[-1],
    )
    outer = sides[0] * sides[1] // inner
    alike = [p for p in of.parameters if run.sizes[p] == shape]
    copies = len(alike) * size // (inner * outer)
    rows = of.flops / (2.0 * inner * outer) / run.tokens
    return {"inner": inner, "outer": outer, "copies": copies, "rows": rows}


def _cuts(
    run: TracedPass,
    records: Sequence[tuple[int, Record]],
    many: Mapping[str, Joined],
) -> dict[int, str]:
    """Number of an operation's first record -> how tp cuts it."""
    of = run.recorder
    products, cores = [], set()
    alias = {r.attention: n for n, r in records if r.attention >= 0}
    for n, r in records:
        if not r.flops or n in of.firsts:
            continue
        feeds = set(r.products)
        if r.attention >= 0:
            cores.add(n)
            feeds |= of.records[r.attention].products
        weight = bool(r.parameters)
        own = any(name in run.single for name in r.parameters)
        wide = r.made[-1] == run.hidden or run.hidden in r.made
        products.append(
            LayerProduct(
                n,
                parent(r, own),
                weight,
                wide=wide,
                feeds=frozenset(alias.get(x, x) for x in feeds) - {n},
            )
        )
    sides = dict(cuts(products, frozenset(cores)))
    parents = {
        p.parent: {
            q.number
            for q in products
            if q.parent == p.parent
            and sides.get(q.number) in ("column", "inside")
        }
        for p in products
    }
    made = {}
    for one in many.values():
        first = one.numbers[0]
        known = [sides[n] for n in one.numbers if n in sides]
        if known and len(set(known)) == 1:
            made[first] = known[0]
        if one.kind == "vector":
            between = next(
                (
                    nums
                    for name, nums in parents.items()
                    if name
                    and nums
                    and (one.path + ".").startswith(name + ".")
                ),
                set(),
            )
            if any(of.records[n].products & between for n in one.numbers):
                made[first] = "inside"
    return made
