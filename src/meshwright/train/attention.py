"""Attention by tiles: flash kernels on rectangles and triangles of the scores, merged by the
logarithms of their sums. No mask is made, and keys are not copied for their query heads.

A tile gives its output o and the logarithm l of the sum of its exponentials, a row each. Two tiles
of one row: l = log(exp l1 + exp l2), o = o1 exp(l1 - l) + o2 exp(l2 - l) (Liu et al. 2023, ring
attention, arXiv 2310.01889). Backward, a kernel that is given the merged o and l returns its tile's
part of the gradients. Shapes: B sequences, T queries, S keys, H heads, K kv heads, h head width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as fn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _pop_mode,
    _push_mode,
)

from ..errors import BadInput
from ..program.tiles import Tile

Rows = tuple[tuple[Tile, ...], ...]
"""The tiles of each sequence of the batch; one entry: the same for all."""
ops = torch.ops.aten
FLASH_FIRST = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
CUDNN_FIRST = [SDPBackend.CUDNN_ATTENTION, *FLASH_FIRST]
"""cuDNN's kernels are 1.7 to 2.3 times as fast as FlashAttention-2 on Hopper (transformers, pull
request 48163), which PyTorch lists first; a kernel that cannot is passed over.
"""
HOPPER = (9, 0)


@cache
def kernel_order(device: torch.device) -> list[SDPBackend]:
    """Kernels of attention from the first choice to the last."""
    newer = (
        device.type == "cuda"
        and torch.version.cuda is not None
        and torch.cuda.get_device_capability(device) >= HOPPER
    )
    return CUDNN_FIRST if newer else FLASH_FIRST


def attend(
    q_BTHh: Tensor,
    k_BSKh: Tensor,
    v_BSKh: Tensor,
    rows: Rows,
    kernels: Sequence[SDPBackend] = FLASH_FIRST,
) -> Tensor:
    """softmax(Q K^T / sqrt(h)) V, [B, T, H, h], of what the tiles see. kernels: from the first
    choice to the last, for scores that one kernel computes.
    """
    if len(rows) == len(rows[0]) == rows[0][0].folds == 1:
        q, k, v = (x.transpose(1, 2) for x in (q_BTHh, k_BSKh, v_BSKh))
        causal = rows[0][0].kind == "causal"
        with sdpa_kernel([*kernels], set_priority=True):
            o = fn.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=True
            )
        return o.transpose(1, 2)
    o_BTHh: Tensor = tiled(q_BTHh, k_BSKh, v_BSKh, in_numbers(rows))[0]
    return o_BTHh


KINDS = ("full", "causal", "before")
NUMBERS = 7
"""What a tile is written in."""


def in_numbers(rows: Rows) -> list[int]:
    """Tiles as operators of PyTorch take them: sequence (-1: all), ends of queries, ends of keys,
    kind, folds.
    """
    return [
        x
        for i, every in enumerate(rows)
        for tile in every
        for x in (
            i if len(rows) > 1 else -1,
            *tile.queries,
            *tile.keys,
            KINDS.index(tile.kind),
            tile.folds,
        )
    ]


def tiles_of(
    numbers: Sequence[int], batch: int
) -> Iterator[tuple[slice, Tile]]:
    """(sequences, tile) of all tiles."""
    for at in range(0, len(numbers), NUMBERS):
        i, q, q_end, k, k_end, kind, folds = numbers[at : at + NUMBERS]
        which = slice(0, batch) if i < 0 else slice(i, i + 1)
        yield which, Tile((q, q_end), (k, k_end), KINDS[kind], folds)


def tiled_forward(
    q: Tensor, k: Tensor, v: Tensor, tiles: list[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every tile by a kernel of its own. (merged output; l, [B, H, T] in fp32; two tensors that a
    GPU's kernel wants back).
    """
    o = q.new_zeros(q.shape, dtype=torch.float32)
    l = q.new_full(
        (q.shape[0], q.shape[2], q.shape[1]),
        -torch.inf,
        dtype=torch.float32,
    )
    extra = (q.new_empty(0), q.new_empty(0))
    for b, tile in tiles_of(tiles, q.shape[0]):
        parts = [_cut(x[b], *side(tile, i)) for i, x in enumerate((q, k, v))]
        o_tile, l_tile, *more = kernel(parts, tile.kind != "full")
        extra = (more[0], more[1]) if more else extra
        merge(o[b], l=l[b], tile=tile, o_tile=o_tile, l_tile=l_tile)
    return o.to(q.dtype), l, *extra


def tiled_backward(
    grad: Tensor, saved: list[Tensor], tiles: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values: each tile adds its part, in fp32. saved: queries,
    keys, values and what the forward pass gave.
    """
    q, k, v, out, l, *extra = saved
    sums = [
        torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for x in (q, k, v)
    ]
    for b, tile in tiles_of(tiles, q.shape[0]):
        every = ((grad, 0), (out, 0), (q, 0), (k, 1), (v, 1))
        parts = [_cut(x[b], *side(tile, i)) for x, i in every]
        l_tile = (
            _cut(l[b].transpose(1, 2), *side(tile, 0))
            .transpose(1, 2)
            .contiguous()
        )
        of_tile = kernel_backward(
            parts, l_tile, tile.kind != "full", tuple(extra)
        )
        for i, (total, part) in enumerate(zip(sums, of_tile, strict=True)):
            place, rows = _uncut(total[b], part, *side(tile, i))
            place += rows
    dq, dk, dv = (
        total.to(x.dtype) for total, x in zip(sums, (q, k, v), strict=True)
    )
    return dq, dk, dv


# operators of PyTorch: torch.compile takes one as it is, and recomputation may keep its result
tiled = torch.library.custom_op(
    "meshwright::tiled_attention", tiled_forward, mutates_args=()
)
tiled_gradients = torch.library.custom_op(
    "meshwright::tiled_attention_backward", tiled_backward, mutates_args=()
)
tiled.register_fake(tiled_forward)
tiled_gradients.register_fake(tiled_backward)
MADE_OF: dict[Any, Callable[..., Any]] = {
    torch.ops.meshwright.tiled_attention.default: tiled_forward,
    torch.ops.meshwright.tiled_attention_backward.default: tiled_backward,
}
"""Our operators, and what they are made of."""


def opened(
    mode: TorchDispatchMode, op: Any, args: Any, kwargs: dict[str, Any]
) -> Any:
    """The result of an operator. One of ours is run operation by operation, which `mode` follows
    too.
    """
    if op not in MADE_OF:
        return op(*args, **kwargs)
    _push_mode(mode)
    try:
        return MADE_OF[op](*args)
    finally:
        _pop_mode()


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *qkv, ctx.tiles = inputs
    ctx.save_for_backward(*qkv, *output)


def _gradients(ctx: Any, grad: Tensor, *rest: Any) -> tuple[Any, ...]:
    saved = [*ctx.saved_tensors]
    return *tiled_gradients(grad, saved, ctx.tiles), None


tiled.register_autograd(_gradients, setup_context=_save)


Side = tuple[tuple[int, int], int, slice, bool]
"""Of queries or keys: first and last, folds, what the kernel gets of a fold, whether mirrored."""


def side(tile: Tile, i: int) -> Side:
    """How a tile cuts queries (i = 0) or keys and values.

    "before", j > i of n: without the last query and the first key it is j' >= i of n - 1, and of
    both mirrored j' <= i, which is what a causal kernel computes.
    """
    before = tile.kind == "before"
    part = (
        slice(None)
        if not before
        else slice(None, -1)
        if i == 0
        else slice(1, None)
    )
    return (tile.queries if i == 0 else tile.keys), tile.folds, part, before


def _cut(
    x_BTHh: Tensor,
    where: tuple[int, int],
    folds: int,
    part: slice,
    mirror: bool,
) -> Tensor:
    """The part of a tensor that a tile takes, its folds as sequences of their own."""
    x = in_folds(x_BTHh[:, slice(*where)], 1, folds).flatten(0, 1)[:, part]
    return x.flip(1) if mirror else x


def in_folds(x: Tensor, dim: int, count: int) -> Tensor:
    """A dim cut in `count` equal parts."""
    shape = x.shape
    return x.view(*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :])


def _uncut(
    total: Tensor,
    x: Tensor,
    where: tuple[int, int],
    folds: int,
    part: slice,
    mirror: bool,
) -> tuple[Tensor, Tensor]:
    """The reverse of `_cut`: (where a tile's rows came from, a view of `total`; the rows), both
    [B, folds, rows, ...].
    """
    place = in_folds(total[:, slice(*where)], 1, folds)[:, :, part]
    return place, in_folds(x.flip(1) if mirror else x, 0, len(x) // folds)


def merge(
    o: Tensor, l: Tensor, tile: Tile, o_tile: Tensor, l_tile: Tensor
) -> None:
    """Add a tile's output to the rows it belongs to, in place. o: [B, T, H, h], l: [B, H, T]."""
    queries = side(tile, 0)
    old_o, o_tile = _uncut(o, o_tile, *queries)
    old_l, l_tile = _uncut(l.transpose(1, 2), l_tile.transpose(1, 2), *queries)
    new_l = torch.logaddexp(old_l, l_tile)
    old_o.mul_((old_l - new_l).exp()[..., None]).add_(
        o_tile * (l_tile - new_l).exp()[..., None]
    )
    old_l.copy_(new_l)


def kernel(parts: Sequence[Tensor], causal: bool) -> tuple[Tensor, ...]:
    """Attention of queries to keys and values: (output [B, T, H, h], logarithm of the sum of
    exponentials, [B, H, T], what else the backward pass needs).
    """
    q, k, v = (x.transpose(1, 2) for x in parts)
    if q.device.type == "cpu":
        o, l = ops._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal
        )
        return o.transpose(1, 2), l
    demand_half(q)
    o, l, *extra, _ = ops._scaled_dot_product_flash_attention(
        q, k, v, 0.0, causal
    )
    return o.transpose(1, 2), l, *extra[-2:]


def kernel_backward(
    parts: Sequence[Tensor], l: Tensor, causal: bool, extra: tuple[Any, ...]
) -> list[Tensor]:
    """Gradients of queries, keys and values. parts: gradient of the output, output, queries, keys,
    values.
    """
    grad, out, q, k, v = (x.transpose(1, 2) for x in parts)
    if q.device.type == "cpu":
        flash = ops._scaled_dot_product_flash_attention_for_cpu_backward
        grads = flash(grad, q, k, v, out, l, 0.0, causal)
    else:
        T, S = q.shape[2], k.shape[2]
        flash = ops._scaled_dot_product_flash_attention_backward
        grads = flash(
            grad, q, k, v, out, l, None, None, T, S, 0.0, causal, *extra
        )
    return [x.transpose(1, 2) for x in grads]


def demand_half(q: Tensor) -> None:
    """Flash attention on GPUs has no fp32."""
    if q.dtype == torch.float32:
        raise BadInput(
            "context parallelism, windows and documents on GPUs need precision bf16 or fp16: "
            "flash attention has no fp32"
        )
