"""Groups of microbatches that go through a chunk before the next chunk has its turn.

    0    as many groups as hold at least p microbatches each, all of one size: PyTorch's rounds;
         where m is a multiple of p these are Megatron Core's groups of p, its default
    g    groups of g, the last one shorter: Megatron Core's microbatch_group_size_per_vp_stage

With fewer microbatches than ranks there is one group, and each chunk waits for the one before.

Sources: torch.distributed.pipelining, ScheduleInterleaved1F1B (torch 2.13); Megatron Core,
pipeline_parallel/schedules.py, get_schedule_table.
"""

from __future__ import annotations

from typing import Any

from ..num import Num, floor, maximum, minimum


def group_size(p: Num, m: Num, group: int) -> Num:
    """Microbatches of every group but the last."""
    return (
        # fewer microbatches than stages are one group; all of them where the group is larger
        minimum(float(group), m) if group else m / maximum(floor(m / p), 1.0)
    )


def in_groups(p: Any, m: Any, group: int) -> Any:
    """Where there are such groups: of one size, or of at least p each."""
    if not group:
        # fewer microbatches than stages are one group
        return m % maximum(floor(m / p), 1.0) == 0
    rest = m % group
    return (group >= p) & (group <= m) & ((rest == 0) | (rest >= p))


def sentence(name: str, p: int, m: int, group: int) -> str:
    """Why there are not, with the nearest numbers that have."""
    if group:
        return (
            f"{name} with microbatch_group {group} needs groups of at least pp ({p}) of its {m}"
            f" microbatches, the last one too: it may be {p} to {m}, such that the rest is 0 or at"
            f" least {p}"
        )
    fits = [
        # any 2 p numbers in a row hold a multiple of p, so one below and one above are seen
        n
        for n in range(max(m - 2 * p, 1), m + 2 * p)
        if in_groups(p, n, 0)
    ]
    below = [n for n in fits if n < m][-1:]
    above = [n for n in fits if n > m][:1]
    near = " or ".join(map(str, (*below, *above)))
    return (
        f"{name} runs its microbatches ({m}) in {m // p} groups of one size, each at least pp"
        f" ({p}): their number may be {near}"
    )


def group_order(m: int, v: int, each: int) -> list[tuple[int, int]]:
    """(chunk, microbatch) of all forward passes of a rank, in order."""
    passes: list[tuple[int, int]] = []
    for first in range(0, m, each):
        group = range(first, min(first + each, m))
        passes += [(chunk, k) for chunk in range(v) for k in group]
    return passes
