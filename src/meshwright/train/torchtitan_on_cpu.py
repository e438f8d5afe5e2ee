"""torchtitan 0.3 on CPUs, for a look at a configuration without a GPU: torchrun starts this file in
place of `-m torchtitan.train`, with the same flags and --parallelism.spmd_backend partial_dtensor.

What torchtitan asks of a device that PyTorch 2.13's CPU has not, and no more:

* the device itself, its name and its memory (that of the process);
* FlexAttention, which has no backward pass on CPUs: the same mask, dense, and SDPA;
* sums divided while they are reduced, which gloo cannot: divided before;
* `torch.distributed.set_timeout`, newer than 2.13: its private form.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention import flex_attention

MODULE = "torchtitan.train"


def memory_stats(device: Any = None) -> dict[str, int]:
    """The most memory of this process, by the names of an allocator's statistics."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "active_bytes.all.peak": peak,
        "reserved_bytes.all.peak": peak,
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def properties(device: Any = None) -> SimpleNamespace:
    """Memory of the machine."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return SimpleNamespace(name="CPU", total_memory=total)


def dense_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """FlexAttention of (B, H, T, head) without changed scores: SDPA under its mask."""
    if (
        score_mod is not None
        or return_lse
        or getattr(return_aux, "lse", False)
    ):
        raise NotImplementedError(
            "changed scores and their log-sum-exp need a GPU"
        )
    batch, _, rows, _ = query.shape
    mask = block_mask and flex_attention.create_mask(
        block_mask.mask_mod, batch, 1, rows, key.shape[2], query.device
    )
    out = F.scaled_dot_product_attention(
        query, key, value, mask, scale=scale, enable_gqa=enable_gqa
    )
    return (out, SimpleNamespace(lse=None)) if return_aux else out


def _prepare() -> None:
    """Give PyTorch's CPU what torchtitan asks of a device; before torchtitan is imported."""
    cpu: Any = torch.cpu
    torch._utils._get_available_device_type = lambda: "cpu"
    cpu.get_device_name = lambda device=None: "CPU"
    cpu.get_device_properties = properties
    cpu.memory_stats = memory_stats
    cpu.reset_peak_memory_stats = lambda device=None: None
    cpu.empty_cache = lambda: None
    cpu.current_device = lambda: 0  # a number, for barrier's device_ids
    vars(flex_attention)["flex_attention"] = dense_attention
    divided = FSDPModule.set_gradient_divide_factor

    def summed(module: Any, factor: float) -> None:
        divided(module, factor)
        module.set_force_sum_reduction_for_comms(True)

    vars_of: Any = FSDPModule
    vars_of.set_gradient_divide_factor = summed
    if not hasattr(dist, "set_timeout"):
        private: Any = dist.distributed_c10d
        vars(dist)["set_timeout"] = private._set_pg_timeout


if __name__ == "__main__":
    _prepare()
    sys.argv[0] = MODULE
    runpy.run_module(MODULE, run_name="__main__")
