"""A person's own module, run on tensors as long as its example's, without numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn

from ..describe.model import Model
from ..errors import BadInput
from .model import in_16_bits_or_32, traced_model


def count_module(
    module: nn.Module, example: Any, name: str = "", seq: int = 0
) -> Model:
    """The model of a person's own module. example: tokens of one sequence, or the arguments of its
    forward as a tuple or mapping; tensors whose last or second side is the sequence's length are
    made as long as the trace needs.
    """
    positional, named = _arguments(example)
    lengths = [
        t.shape[1]
        for t in (*positional, *named.values())
        if isinstance(t, torch.Tensor) and t.dim() >= 2
    ]
    if not lengths:
        raise BadInput(
            "example: the trace needs the tokens of a sequence, a tensor of [batch, tokens]"
        )
    length = lengths[0]
    third = max(length // 3, 1)  # the longest pass has three times as many

    def resized(value: Any, T: int, dtype: torch.dtype) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        shape = [
            (
                1
                if i == 0 and value.dim() > 1
                else T
                if side == length
                else side
            )
            for i, side in enumerate(value.shape)
        ]
        kind = dtype if value.is_floating_point() else value.dtype
        return torch.empty(shape, dtype=kind, device="meta")

    def at(dtype: torch.dtype) -> Model:
        twin = without_numbers(module, dtype)

        def run(T: int) -> Callable[[], Any]:
            return partial(
                twin,
                *(resized(v, T, dtype) for v in positional),
                **{k: resized(v, T, dtype) for k, v in named.items()},
            )

        return traced_model(
            twin,
            run,
            third,
            name=name or type(module).__name__,
            seq=seq or length,
        )

    return in_16_bits_or_32(at)


def without_numbers(
    module: nn.Module, dtype: torch.dtype = torch.bfloat16
) -> nn.Module:
    """A copy whose parameters have shapes, a dtype and no numbers; what is shared stays shared."""
    memo: dict[int, Any] = {}
    for p in module.parameters():
        kind = dtype if p.is_floating_point() else p.dtype
        empty = torch.empty_like(p, device="meta", dtype=kind)
        memo[id(p)] = nn.Parameter(empty, p.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return deepcopy(module, memo)


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}
