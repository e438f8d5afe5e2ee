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
    of: dict[str, Any] = {}
    lookups = [
        (n, r) for n, r in many[-1] if r.name == "embedding" and r.parameters
    ]
    if not lookups:
        return of
    n, r = max(lookups, key=lambda one: run.sizes[one[1].parameters[0]][0])
    rows, width = run.sizes[r.parameters[0]]
    for i, (_, last) in enumerate(many[-2]):
        shapes = [run.sizes[p] for p in last.parameters]
        once = prod(last.made) == rows * run.tokens  # not for several streams
        if last.flops and (rows, width) in shapes and once:
            of = {
                "embedding": r.parameters[0],
                "logits": next(
                    p for p in last.parameters if run.sizes[p] == (rows, width)
                ),
                "rows": rows,
                "width": width,
                "biases": [
                    p for p in last.parameters if len(run.sizes[p]) == 1
                ],
            }
            del many[-2][i:]
            many[-1].remove((n, r))
            break
    return of


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
