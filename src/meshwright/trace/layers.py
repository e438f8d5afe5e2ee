"""From the records of two passes, over T and 2 T tokens, to the operations of each layer for one
token.

    x(T) = a T + b T^2     b = (x(2T) - 2 x(T)) / 2 T^2,  a = x(T) / T - b T

Records of one layer are joined by module: a matrix with its bias, all scores of one attention, the
passes over activations of one module as one kernel that reads what others made and writes what
others read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..describe.traced import TracedOp
from .cuts import Product, cuts, parent
from .record import Record, Recorder


@dataclass
class Joined:
    """Records of one layer that make one operation, over one number of tokens."""

    kind: str
    path: str
    parameters: dict[str, None] = field(default_factory=dict)
    matrix: str = ""
    """The parameter that is its matrix."""
    flops: float = 0.0
    moved: float = 0.0
    saved: float = 0.0
    numbers: list[int] = field(default_factory=list)
    """Of its records."""
    shape: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """One pass: its records and what they belong to."""

    recorder: Recorder
    tokens: int
    hidden: int
    sizes: Mapping[str, tuple[int, ...]]
    """Parameter -> its shape."""
    single: frozenset[str]
    """Parameters whose module has no other matrix."""


def amounts(small: float, large: float, T: int) -> tuple[float, float]:
    """(for each token, for each pair of tokens) of what T and 2 T tokens take."""
    square = (large - 2 * small) / (2.0 * T * T)
    if abs(square) * T * T < 1e-9 * max(abs(large), 1.0):
        return large / (2.0 * T), 0.0
    return small / T - square * T, square


def joined(
    run: Pass, records: Sequence[tuple[int, Record]]
) -> dict[str, Joined]:
    """The operations of a layer, in order, by a name that both passes give them."""
    ops: dict[str, Joined] = {}
    here = {n for n, _ in records}
    readers = _readers(records)
    last_reader = _last_readers(run.recorder)
    groups: dict[str, Joined] = {}
    scores: dict[int, int] = {}
    for n, r in records:
        if r.inside in run.recorder.firsts and not r.flops:
            continue
        if n in run.recorder.firsts or not r.live:
            continue
        kind, name, matrix = _kind(run, r)
        if kind == "attention":
            matrix = f"scores {scores.setdefault(r.attention, len(scores))}"
        one = groups.setdefault(
            f"{name}|{kind}|{matrix}", Joined(kind, r.path, matrix=matrix)
        )
        one.numbers.append(n)
        one.parameters.update(dict.fromkeys(r.parameters))
        one.flops += r.flops if r.flops else _elements(r)
        if kind == "attention":
            first = run.recorder.records[r.attention]
            of = _heads(run, r, first)
            if one.shape:  # the same scores weigh more values
                one.shape["value"] += of["value"]
            else:
                one.shape = of
                one.flops += first.flops
        else:
            one.saved += sum(r.saved.values())
    for key, one in groups.items():
        own = set(one.numbers)
        one.moved = _traffic(run, own, readers, last_reader, here)
        ops[key] = one
    return ops


def _kind(run: Pass, r: Record) -> tuple[str, str, str]:
    """(kind, name, matrix) of a record."""
    if not r.flops:
        return "vector", r.path, ""
    if r.attention >= 0:
        return "attention", r.path, ""
    matrices = [
        p for p in r.parameters if len(run.sizes.get(p, ())) >= 2
    ] or list(r.parameters)
    if r.name.startswith("convolution") or not r.parameters:
        return "product", r.path, matrices[0] if matrices else ""
    if r.chosen and len(run.sizes[matrices[0]]) >= 3:
        return "experts", r.path, matrices[0]
    return "matmul", r.path, matrices[0]


def _elements(r: Record) -> int:
    n = 1
    for side in r.made:
        n *= side
    return n


def _heads(run: Pass, r: Record, first: Record) -> dict[str, Any]:
    """Heads and widths from the shapes of both products."""
    T = run.tokens
    *_, rows, keys = first.made
    query = first.shapes[0][-1] if first.name in ("bmm", "baddbmm") else 0
    if first.name == "baddbmm":
        query = first.shapes[1][-1]
    heads = first.flops / (2.0 * query * T * keys) if query else 0.0
    value = r.flops / (2.0 * heads * T * keys) if heads else 0.0
    narrow = float(r.attributes.get("narrow", 1.0))
    return {
        "heads": round(heads),
        "kv_heads": max(round(heads * narrow), 1),
        "query": query,
        "value": round(value),
        "keys": keys,
        "window": int(
            r.attributes.get("window") or first.attributes.get("window") or 0
        ),
    }


def _readers(records: Iterable[tuple[int, Record]]) -> dict[int, list[int]]:
    """Storage -> records that read it."""
    made: dict[int, list[int]] = {}
    for n, r in records:
        for key in r.inputs:
            made.setdefault(key, []).append(n)
    return made


def _last_readers(recorder: Recorder) -> dict[int, int]:
    """Storage -> the last record that reads it, in any layer."""
    if not recorder.last:
        for n, r in enumerate(recorder.records):
            for key in r.inputs:
                recorder.last[key] = n
    return recorder.last


def _traffic(
    run: Pass,
    own: set[int],
    readers: Mapping[int, list[int]],
    last: Mapping[int, int],
    here: set[int],
) -> float:
    """Bytes that a group of records reads of others and writes for others, each once. Parameters
    are counted by their number.
    """
    of = run.recorder
    read: set[int] = set()
    written: set[int] = set()
    inner: set[int] = set()
    for n in sorted(own):
        r = of.records[n]
        read.update(k for k in r.inputs if k not in inner)
        inner.update(r.outputs)
        for key in r.outputs:
            others = [m for m in readers.get(key, ()) if m not in own]
            if others or last.get(key, -1) not in here:
                written.add(key)
    return float(
        sum(
            of.sources[k].bytes
            for k in [*read, *written]
            if not of.sources[k].parameter and of.sources[k].live
        )
    )


def traced_ops(
    small: Pass,
    large: Pass,
    records: tuple[Sequence[tuple[int, Record]], Sequence[tuple[int, Record]]],
    owned: set[str],
) -> tuple[TracedOp, ...]:
    """The operations of one layer. owned: its parameters that no operation before it has; those
    that it reads are taken out.
    """
    few, many = joined(small, records[0]), joined(large, records[1])
    sides = _cuts(large, records[1], many)
    made = []
    readings: dict[int, int] = {}
    for key, of in many.items():
        other = few.get(key) or Joined(of.kind, of.path)
        mine = [p for p in of.parameters if p in owned]
        owned.difference_update(mine)
        weights = sum(_size(large.sizes[p]) for p in mine)
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
            if of.kind == "matmul" and (op["rows"], op["copies"]) != (1.0, 1):
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


def _size(shape: tuple[int, ...]) -> int:
    n = 1
    for side in shape:
        n *= side
    return n


def _input(run: Pass, r: Record) -> int:
    """The storage that a matrix reads."""
    of = run.recorder.sources
    return next((k for k in r.inputs if not of[k].parameter and of[k].live), 0)


def _matrix(run: Pass, of: Joined, r: Record) -> dict[str, Any]:
    """Sides, copies and rows of a product with weights."""
    shape = run.sizes[of.matrix]
    size = _size(shape)
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
    copies = size // (inner * outer)
    rows = of.flops / (2.0 * inner * outer) / run.tokens
    return {"inner": inner, "outer": outer, "copies": copies, "rows": rows}


def _cuts(
    run: Pass,
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
            Product(
                n,
                parent(r, own),
                weight,
                wide,
                frozenset(alias.get(x, x) for x in feeds) - {n},
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
