"""DualPipeV: DeepSeek's DualPipe folded into a V, so that a device holds each weight once.

In the steady state a forward of one chunk runs next to a backward of the other, so that each can
hide the other's messages; weight gradients are split off only at the two ends. With q = p - 1 and
f, i, w of one device (a chunk takes
half):

    bubble = 1/2 max( q f,  q (f + i - w),  q i - f,  2q i - q w - f,  2q (f - w),  q (2f - i - w) )
    in flight = p + 1/2    activations counted until the weight gradients are done

exact for all f, i, w and all legal m: the schedule needs m >= 2p.

Here the two of a pair run one after the other, the forward first, as PyTorch runs them unless told
otherwise. Run as one block, whose outputs leave when both are done, pairs hide more communication
and idle longer: DeepSeek gives (p-1)(F&B + B - 3W) for chunks, with f = i = w and F&B = F + B twice
the bubble above.

Source: DeepSeek-AI 2024 (arXiv 2412.19437) section 3.2.1; github.com/deepseek-ai/DualPipe; the
order is that of PyTorch's ScheduleDualPipeV (torch 2.13), its pairs unfolded. The bubble is our
own, checked against `timeline`.
"""

from __future__ import annotations

from functools import reduce

from ...num import Num, maximum
from ..folded import numbered
from ..rules import Rule, two_chunks
from ..schedule import Schedule
from ..types import Order, folded_stage


def dualpipev_order(p: int, m: int, v: int) -> Order:
    """m >= 2p microbatches."""
    return [numbered(_program(p, m, rank)) for rank in range(p)]


def _program(p: int, m: int, r: int) -> str:
    """Rank r, with `below` ranks under it; the cool down splits the second half of its
    backwards.
    """
    below = p - 1 - r
    half = (r + 1) // 2
    turn = "B1 B0 " * half + (
        "I1 I0 " * (r + 1 - half)
        if r % 2
        else "B1 I0 " + "I1 I0 " * (r - half)
    )
    # chunks whose W waits, oldest first
    delayed = [word[1] for word in turn.split() if word[0] == "I"] + [
        "0"
    ] * below
    return (
        "F0 " * (2 * below)
        + "F0 F1 " * (r + 1)
        + "I1 W1 F1 " * below
        + "F0 B1 F1 B0 " * (m - 2 * p + r + 1)
        + "B1 F1 B0 " * below
        + turn
        + "".join(f"W{chunk} I0 " for chunk in delayed[:below])
        + "".join(f"W{chunk} " for chunk in delayed[below:])
    )


def closed(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The bubble: the longest of six paths through the order, less m (f + i + w)."""
    q = p - 1
    paths = (
        q * f,
        q * (f + i - w),
        q * i - f,
        2 * q * i - q * w - f,
        2 * q * (f - w),
        q * (2 * f - i - w),
    )
    return reduce(maximum, paths) / 2


DUALPIPEV = Schedule(
    name="dualpipev",
    title="DualPipeV",
    source="DeepSeek-AI 2024, arXiv 2412.19437",
    order=dualpipev_order,
    stage_of=folded_stage,
    chunks=lambda v: 2,
    split_backward=True,
    needs=(
        two_chunks("dualpipev"),
        Rule(
            lambda p, m, v: m >= 2 * p,
            lambda p, m, v: (
                f"dualpipev needs at least 2 pp = {2 * p} microbatches, not {m}"
            ),
        ),
    ),
    torch_name="DualPipeV",
    closed=closed,
    # 2p + 1 chunks of half a microbatch
    flight=lambda p, m, v, rank: p + 0.5,
    heads=lambda p, m, v: (1, 0),
)
