"""Seconds of the core of attention: fused kernels by generation and length, unfused ones by their
products and scores.

Fused:   F / (P a / (1 + l0 / T)), F the FLOPs that the mask leaves, P the 16-bit peak; T twice the
         keys that a query reads on average (less one), the length of a causal sequence; in a window
         or without a mask that of one whose queries read as many: each query pays for l0 / 2 keys
         that tiles at the edge of the mask hold beside its own;
         backward at a share of that rate, and for all keys that a causal mask leaves where the
         kernel leaves none out for a window; narrow heads slower.
Unfused: F / (P u min(1, q2 / 8)^y) + bytes / bandwidth and three launches; q2 is the largest power
of two that divides the width of a head.

Source: ai-dynamo/aiconfigurator@095f58a51 (Apache-2.0, NVIDIA), causal attention of five GPUs;
NVIDIA/cudnn-frontend (MIT), windows and no mask (tests/cost/test_kernels.py); Anthony et al. 2024,
arXiv 2401.14489, for heads that are not aligned.
"""

from __future__ import annotations

from ..describe.kernels import Kernels
from ..num import Num, maximum

NARROW = 64
"""Widest head that counts as narrow."""
ALIGNED = 8
"""Elements that a tensor core takes at once."""
LAUNCHES = {"fused": 1, "unfused": 3}
"""Kernels: scores, softmax, product with the values."""
SCORE_PASSES = {"fused-softmax": 1.0, "torch": 2.0, "torch-fp32": 1.0}
"""Bytes that an unfused kernel moves over those that the count gives it: plain torch masks, scales
and casts in passes of their own (estimate of this project)."""


def paid_keys(
    keys: Num, length: Num, backward: bool, kernel: str, law: Kernels
) -> Num:
    """Keys that a query pays for, of those that it reads on average in a sequence of `length`."""
    if not backward or law.fused(kernel).backward_window:
        return keys
    return maximum(keys, (length + 1.0) / 2.0)


def fused_rate(
    keys: Num, head: float, backward: bool, kernel: str, law: Kernels
) -> Num:
    """Share of the 16-bit peak. keys: that a query reads on average;  head: width of a head."""
    fused = law.fused(kernel)
    rate = (
        fused.share
        * (fused.backward if backward else 1.0)
        * ((fused.narrow or law.narrow) if head <= NARROW else 1.0)
    )
    return rate / (1.0 + fused.length / (2.0 * keys - 1.0))


def unfused_rate(head: float, law: Kernels) -> float:
    """Share of the 16-bit peak that the products with scores reach."""
    return law.scores * float(
        # heads of more than ALIGNED elements gain nothing: tiles are full already
        min(1.0, alignment(head) / ALIGNED) ** law.alignment
    )


def alignment(width: float) -> int:
    """The largest power of two that divides a whole width; 1 of others."""
    whole = int(width)
    return whole & -whole if whole == width and whole else 1
