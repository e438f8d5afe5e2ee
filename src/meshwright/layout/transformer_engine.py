"""Which exchanges of keys Transformer Engine has for a model's attention.

Source: NVIDIA/TransformerEngine@d0067d0da, attention/dot_product_attention/context_parallel.py,
attn_forward_func_with_cp: windows only with a2a and all_gather, learned sinks only with a2a.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layers import sorts
from ..exchange import EXCHANGES

ENGINE = ("megatron-core", "megatron-bridge")
"""Frameworks whose attention is Transformer Engine's."""


def exchanges(job: Job) -> tuple[tuple[str, ...], str]:
    """(values of `Layout.cp_exchange` that the job's program takes for the model; what of its
    attention the others are refused for, "" where none is)."""
    m = job.model
    if not (job.profile and job.profile.name in ENGINE):
        return (*EXCHANGES,), ""
    if m.attention_sinks or (m.sliding and m.sliding.sinks):
        return ("all-to-all",), "with learned sinks"
    if any(kind.window for kind in sorts(m)):
        return ("all-to-all", "gather"), "in sliding windows"
    return (*EXCHANGES,), ""
