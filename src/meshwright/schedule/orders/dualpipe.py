"""DualPipe: microbatches enter at both ends of the pipeline, so that each rank holds two stages,
one for each direction, and each stage lies on two ranks.

Rank r has stage r for the microbatches that go down and stage p - 1 - r for those that come up: it
and rank p - 1 - r hold the same weights, each doing for one direction what the other does for the
other. So the ranks are two mirrored halves that run the program of DualPipeV on p / 2 ranks, and
with m / 2 microbatches each way everything that is true of that is true here:

    bubble, in flight, span    those of DualPipeV with p / 2 ranks and m / 2 microbatches

but for the turn, which is a send to the other half. The two ranks of a stage add up its gradients
like two replicas, and ZeRO shards over both.

Microbatch 2k is the k-th that goes down, 2k + 1 the k-th that comes up.

Source: DeepSeek-AI 2024 (arXiv 2412.19437) section 3.2.1; the order is that of DualPipe.step
(github.com/deepseek-ai/DualPipe, commit 3da1bbe), its pairs one after the other, the forward
first.
"""

from __future__ import annotations

from ...num import Num
from ..rules import Rule, two_chunks
from ..schedule import Schedule
from ..types import Action, Order, mirrored_stage
from . import dualpipev

COPIES = 2


def _order(p: int, m: int, v: int) -> Order:
    """The two halves; p and m even, m >= 2p."""
    half = dualpipev.dualpipev_order(p // COPIES, m // COPIES, v)
    return [[_down(a, 0) for a in row] for row in half] + [
        [_down(a, 1) for a in row] for row in reversed(half)
    ]


def _down(action: Action, half: int) -> Action:
    """An action of the V as one half of the ranks runs it: the other half's first chunk is the one
    that comes up."""
    chunk = action.chunk ^ half
    return Action(action.kind, chunk, COPIES * action.microbatch + chunk)


def closed(p: Num, m: Num, v: Num, f: Num, i: Num, w: Num) -> Num:
    """The bubble of the V."""
    return dualpipev.closed(p / COPIES, m / COPIES, v, f=f, i=i, w=w)


DUALPIPE = Schedule(
    name="dualpipe",
    title="DualPipe",
    source="DeepSeek-AI 2024, arXiv 2412.19437",
    order=_order,
    stage_of=mirrored_stage,
    chunks=lambda v: 2,
    split_backward=True,
    closed=closed,
    # (p + 1) / 2: p + 1 stages of half the layers of a device
    flight=lambda p, m, v, rank: (p + 1) / 2,
    heads=lambda p, m, v: (1, 0),
    copies=COPIES,
    needs=(
        two_chunks("dualpipe"),
        Rule(
            lambda p, m, v: p % COPIES == 0,
            lambda p, m, v: (
                f"dualpipe goes through the ranks from both ends, so pp must be even, not {p}"
            ),
        ),
        Rule(
            lambda p, m, v: (m % COPIES == 0) & (m >= 2 * p),
            lambda p, m, v: (
                f"dualpipe needs an even number of microbatches, at least 2 pp = {2 * p}, not {m}"
            ),
        ),
    ),
)
