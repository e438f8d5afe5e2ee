"""RMS norms of separate torch kernels: what autograd keeps of them."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright import Job, Layout, predict
from meshwright.describe.framework import framework
from meshwright.describe.software import Software

TOKENS = 4096


def allocated(model: str, norm: str) -> float:
    """Bytes of two sequences in two microbatches: activations stand beside all gradients."""
    job = Job(
        model,
        "1xb300",
        2,
        framework="fsdp",
        seq=TOKENS,
        software=Software(norm=norm),
    )
    return predict(job, Layout(dp=1, zero=3)).memory_bytes["allocated"]


def more(model: str) -> float:
    return allocated(model, "torch") - allocated(model, "fused")


def test_four_bytes_more_of_each_element() -> None:
    """Llama-3-8B: 65 norms of 4,096 numbers; fp32 and 16 bits, 6 bytes, in place of 16 bits."""
    assert more("llama3-8b") == 4 * 65 * TOKENS * 4096


def test_norms_of_queries_and_keys_too() -> None:
    """Qwen3-8B: 73 norms of 4,096 and, in each of 36 layers, 32 heads and 8 of 128 numbers."""
    heads = 36 * (32 + 8) * 128
    assert more("qwen3-8b") == 4 * TOKENS * (73 * 4096 + heads)


def test_layer_norms_are_one_kernel() -> None:
    """torch.nn.functional.layer_norm."""
    assert more("gpt2-xl") == 0


def test_autograd_keeps_six_bytes() -> None:
    """The operations of torchtune's modules/rms_norm.py and of LlamaRMSNorm, seen by hooks."""
    torch: Any = pytest.importorskip("torch")
    x = torch.randn(64, 32, dtype=torch.bfloat16, requires_grad=True) * 1
    scale = torch.ones(32, dtype=torch.bfloat16, requires_grad=True)
    kept = dict[int, int]()

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        wide = x.float()
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        _ = (wide * root).type_as(x) * scale
    assert x.untyped_storage().data_ptr() not in kept
    each = sum(size for size in kept.values() if size >= x.nbytes) / x.numel()
    holding = framework("fsdp").holding
    assert each == x.element_size() + holding.norm_extra
