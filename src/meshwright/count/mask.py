"""What the mask of attention leaves of its work."""

from __future__ import annotations

from ..num import Num, minimum
from .microbatch import DeviceMicrobatch


def seen(microbatch: DeviceMicrobatch, window: int | None) -> Num:
    """Share of the T keys that a query attends to: 1, about 1/2 when causal, less in a sliding
    window.

    "window" (model FLOPs): the causal mask saves nothing, a window does. Causal: (T+1)/2T on
    average; window w: the mean of min(i, w) over positions i, over T. Only fused kernels skip what
    the mask hides; unfused ones compute and keep all T x T scores (Korthikanti et al. 2022 count 5
    a s^2 b bytes of them, uncut).
    """
    T = microbatch.T
    if microbatch.counting.causal == "window":
        return minimum(window or T, T) / T
    if (
        microbatch.counting.causal == "full"
        or not microbatch.job.fused_attention
    ):
        return 1.0
    if microbatch.model.attention == "causal":
        w = minimum(window or T, T)
        return (w * (w + 1) / 2 + (T - w) * w) / (T * T)
    return minimum(2 * window + 1, T) / T if window else 1.0
