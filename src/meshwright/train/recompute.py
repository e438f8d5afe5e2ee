"""Layers that are computed again in the backward pass: all of them, or operation by operation.

Operation by operation (torchtitan's `selective_ac_option = "op"`), a layer keeps its input, what
attention gives, sums over tp, and the result of every second matrix product: of q k v o up gate
down those of q, v, up and down. Everything else is cheap, or made of what was kept. Products of
experts are all computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from . import attention as attention  # its operator is registered there

aten, exchanges = torch.ops.aten, torch.ops._c10d_functional
PRODUCTS = {aten.mm.default, aten.addmm.default}
KEPT = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.meshwright.tiled_attention.default,
    exchanges.reduce_scatter_tensor.default,
    exchanges.all_reduce.default,
}
profiler = torch.ops.profiler
# FSDP marks what it does for the experts inside a layer, which a second run need not do
SAC_IGNORED_OPS.update(
    {
        profiler._record_function_enter_new.default,
        profiler._record_function_exit._RecordFunction,
    }
)


def contexts() -> Any:
    """Those of one pass of a layer, forward and again: products are counted from its first."""
    products = count()

    def kept(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        keeps = next(products) % 2 == 0 if op in PRODUCTS else op in KEPT
        return (
            CheckpointPolicy.MUST_SAVE
            if keeps
            else CheckpointPolicy.PREFER_RECOMPUTE
        )

    return create_selective_checkpoint_contexts(kept)  # type: ignore[no-untyped-call]


again = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
WAYS: dict[str, Callable[..., Tensor]] = {
    "none": lambda run, *given: run(*given),
    "op": partial(again, context_fn=contexts),
    "full": again,
}
"""Way to recompute -> what runs a layer: run, then what it is given."""
