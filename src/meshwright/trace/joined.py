"""Records of one layer joined by module: a matrix with its bias, all scores of one attention, the
passes over activations of one module as one kernel that reads what others made and writes what
others read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from .record import TraceRecorder
from .source import Record


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
class TracedPass:
    """One pass: its records and what they belong to."""

    recorder: TraceRecorder
    tokens: int
    hidden: int
    sizes: Mapping[str, tuple[int, ...]]
    """Parameter -> its shape."""
    single: frozenset[str]
    """Parameters whose module has no other matrix."""


def join_passes(
    run: TracedPass, records: Sequence[tuple[int, Record]]
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
        label = matrix.rpartition(".")[2] if r.picked else matrix
        if kind == "attention":
            label = f"scores {scores.setdefault(r.attention, len(scores))}"
        one = groups.setdefault(
            f"{name}|{kind}|{label}", Joined(kind, r.path, matrix=matrix)
        )
        one.numbers.append(n)
        one.parameters.update(dict.fromkeys(r.parameters))
        one.flops += r.flops if r.flops else prod(r.made)
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
        one.moved = _traffic(run, own, readers, last=last_reader, here=here)
        ops[key] = one
    return ops


def _kind(run: TracedPass, r: Record) -> tuple[str, str, str]:
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
    if r.picked or (r.chosen and len(run.sizes[matrices[0]]) >= 3):
        return "experts", r.path, matrices[0]
    return "matmul", r.path, matrices[0]


def _heads(run: TracedPass, r: Record, first: Record) -> dict[str, Any]:
    """Heads and widths from the shapes of both products."""
    T = run.tokens
    *_, rows, keys = first.made
    query = first.shapes[0][-1] if first.name in ("bmm", "baddbmm") else 0
    if first.name == "baddbmm":
        query = first.shapes[1][-1]
    heads = first.flops / (2.0 * query * T * keys) if query else 0.0
    value = r.flops / (2.0 * heads * T * keys) if heads else 0.0
    narrow = float(r.attributes.get("narrow", 1.0))
    kept = max(round(heads * narrow), 1)
    # copies that do not stand for heads alike were made for other reasons
    shared = heads and round(heads) % kept == 0
    return {
        "heads": round(heads),
        "kv_heads": kept if shared else round(heads),
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


def _last_readers(recorder: TraceRecorder) -> dict[int, int]:
    """Storage -> the last record that reads it, in any layer."""
    if not recorder.last:
        for n, r in enumerate(recorder.records):
            for key in r.inputs:
                recorder.last[key] = n
    return recorder.last


def _traffic(
    run: TracedPass,
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
