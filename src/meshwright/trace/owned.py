"""Whose the parameters are: of the vocabulary, of a layer that does not read them, of modules that
no text passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import nn

from ..describe.traced import TracedOp
from .joined import TracedPass
from .source import Record

Records = list[tuple[int, Record]]


def vocabulary_of(run: TracedPass, many: dict[int, Records]) -> dict[str, Any]:
    """The embedding of tokens and the matrix of logits: their records are taken out, and what
    follows the logits.
    """
    lookups = [
        (n, r) for n, r in many[-1] if r.name == "embedding" and r.parameters
    ]
    after = {p for _, last in many[-2] if last.flops for p in last.parameters}

    def likely(one: tuple[int, Record]) -> tuple[bool, int]:
        """A table that is read again after the layers, then the longest: a class may look up
        several, such as one with a part for each layer.
        """
        table = one[1].parameters[0]
        return table in after, run.sizes[table][0]

    for n, r in sorted(lookups, key=likely, reverse=True):
        table = r.parameters[0]
        rows, width = run.sizes[table]
        for i, (_, last) in enumerate(many[-2]):
            alike = [
                p for p in last.parameters if run.sizes[p] == (rows, width)
            ]
            # once: not for several streams
            once = prod(last.made) == rows * run.tokens
            if last.flops and alike and once:
                del many[-2][i:]
                many[-1].remove((n, r))
                return {
                    "embedding": table,
                    "logits": table if table in alike else alike[0],
                    "rows": rows,
                    "width": width,
                    "biases": [
                        p for p in last.parameters if len(run.sizes[p]) == 1
                    ],
                }
    return {}


def unread(
    run: TracedPass, layers: list[nn.Module], call: int, calls: int
) -> set[str]:
    """Parameters of a layer, by name, where each is called once."""
    if len(layers) != calls:
        return set()
    ids = {id(p) for p in layers[call].parameters()}
    return {n for n, i in run.recorder.names.items() if i in ids}


def with_unread(
    ops: tuple[TracedOp, ...],
    owned: set[str],
    among: set[str],
    sizes: Mapping[str, tuple[int, ...]],
) -> tuple[TracedOp, ...]:
    """The operations, and parameters that none of them reads."""
    left = owned & among
    owned -= left
    count = sum(prod(sizes[name]) for name in left)
    if not count:
        return ops
    return (*ops, TracedOp("not read", "vector", weights=float(count)))


def idle(
    module: nn.Module, ran: set[int], layers: list[nn.Module]
) -> set[str]:
    """Parameters of the outermost modules with modules of their own that never ran, such as towers
    of other media; what stands in a layer belongs to it.
    """
    inside = {id(m) for layer in layers for m in layer.modules()}
    names: set[str] = set()

    def runs(of: nn.Module) -> bool:
        return any(id(m) in ran for m in of.modules())

    def look(parent: nn.Module, path: str) -> None:
        for name, child in parent.named_children():
            here = f"{path}.{name}" if path else name
            if id(child) in inside:
                continue
            if runs(child) or not any(True for _ in child.children()):
                look(child, here)
            else:
                names.update(
                    f"{here}.{n}" for n, _ in child.named_parameters()
                )

    look(module, "")
    return names
