"""What shapes say of numbers that a trace does not have: the mean of constants and of masks of
tokens without padding, and the choices of data, spread as evenly as whole numbers can be.

    top k of E        each of the E is chosen equally often: a comparison is true for 1 / E
    any of k of them  true for k / E of the tokens, since the k differ
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple

import torch

from .source import StorageSource

FILLS = {
    "ones": 1.0,
    "zeros": 0.0,
    "isnan": 0.0,
    "isinf": 0.0,
    "isfinite": 1.0,
}
"""Operations with one answer; numbers are finite."""
SAME_MEAN = (
    "sum", "mean", "max", "min", "amax", "amin", "clone", "_to_copy", "repeat", "_unsafe_view",
    "index",
)  # fmt: skip
"""Operations whose results are as even as what they read."""
SAME_CHOICES = ("clone", "_to_copy", "repeat", "_unsafe_view")
CHOOSE = {"topk": 2, "sort": 1, "argsort": 1, "argmax": 1}
"""Operations that choose among the entries of a side -> which of their arguments names it."""
COUNTS = ("bincount", "histc", "_unique2")


class Step(NamedTuple):
    """One operation on meta tensors."""

    name: str
    args: tuple[Any, ...]
    of: Sequence[StorageSource]
    """Of its tensors."""
    tensors: Sequence[torch.Tensor]
    results: Sequence[torch.Tensor]


def choice_count(step: Step) -> int:
    """Among how many the numbers of a result choose; 0 of other numbers."""
    if step.name in SAME_CHOICES and step.of:
        return step.of[0].among
    if step.name not in CHOOSE:
        return 0
    place = CHOOSE[step.name]
    side = step.args[place] if len(step.args) > place else -1
    into = step.tensors[0]
    return into.shape[side] if isinstance(side, int) and into.dim() else 0


def even(step: Step) -> float | None:
    """The mean of the numbers that an operation makes; None where only data say it."""
    name, args, of, tensors, results = step
    filled = name.removeprefix("new_").removesuffix("_like")
    if filled in FILLS:
        return FILLS[filled]
    if filled == "full":
        value = args[2 if name == "new_full" else 1]
        return float(value) if isinstance(value, (int, float)) else None
    if not of or not results:
        return None
    first, into, out = of[0], tensors[0], results[0]
    if name in COUNTS:
        return into.numel() / max(results[-1].numel(), 1)
    if len(results) != 1 and name not in ("max", "min"):
        return None
    if name == "scatter" and first.mean == 0 and len(args) > 3:
        value = args[3]
        return (
            value * tensors[1].numel() / out.numel()
            if isinstance(value, (int, float))
            else None
        )
    if out.dtype == torch.bool:
        return _share(step)
    rest = zip(of[1:], tensors[1:], strict=True)
    chosen = any(s.live and t.is_meta for s, t in rest)
    if name not in SAME_MEAN or first.mean is None or chosen:
        return None
    if name == "sum":
        return first.mean * into.numel() / out.numel()
    return first.mean


def _share(step: Step) -> float | None:
    """How much of a mask is true."""
    name, args, of, tensors, results = step
    first, into = of[0], tensors[0]
    value = args[1] if len(args) > 1 else None
    given = first.maker < 0 and not first.parameter
    if name == "ne" and len(of) == 1 and given:  # tokens that are no padding
        return None if into.is_floating_point() else 1.0
    if name in ("eq", "ne"):
        same = _equal_share(first, into, value)
        return same if same is None or name == "eq" else 1.0 - same
    if name in ("bitwise_not", "logical_not"):
        return None if first.mean is None else 1.0 - first.mean
    if name in ("mul", "bitwise_and", "logical_and"):
        means = [s.mean for s in of]
        return 0.0 if 0.0 in means else 1.0 if set(means) == {1.0} else None
    if first.mean is None:
        return None
    if name == "gt" and value == 0 and not into.is_floating_point():
        return min(first.mean, 1.0)
    if into.dtype != torch.bool:
        return None
    if name == "any":
        return min(first.mean * into.numel() / max(results[0].numel(), 1), 1.0)
    if name == "all":
        return float(first.mean == 1.0)
    return first.mean if name in SAME_MEAN else None


def _equal_share(
    first: StorageSource, into: torch.Tensor, value: object
) -> float | None:
    """How much of a tensor is equal to a number or another tensor."""
    if value is into:  # as "is not a number" asks
        return 1.0
    if first.among:
        return 1.0 / first.among
    return 0.0 if isinstance(value, float) and abs(value) == inf else None
