"""How many places hold the experts of a token: what kernels that send it to each place once send.

A router of G groups keeps the M whose experts score best, and takes its k experts from those. So
they are drawn from all groups until M groups have one, and from these after that: a token of
DeepSeek-V3 reaches 3.98 of 4 groups, where 8 draws from 4 groups named beforehand reach 3.6. Exact
where a group is as good as its best expert (DeepSeek-V2), but that no expert is drawn twice; where
it is as good as its two best (DeepSeek-V3) 3.97 are reached. Source: DeepSeek-AI 2024, arXiv
2405.04434, section 2.2.2, and arXiv 2412.19437, section 2.1.2.
"""

from __future__ import annotations

from typing import NamedTuple

from ..num import Num, common_divisor, floor, minimum, power, total


class Draw(NamedTuple):
    """How the experts of a token lie among all experts of a layer."""

    copies: int = 1
    """k, experts that a token goes to."""
    row: int = 0
    """Experts in all, where those of a token stand side by side (`Software.routing`); 0: they are
    drawn.
    """
    groups: int = 1
    """G, groups that drawn experts lie in (`MoE.groups`)."""
    top_groups: int = 1
    """M, those of them that have the experts of one token."""


def expected_reach(of: Num, draw: Draw) -> Num:
    """How many of x equal places hold at least one of a token's k experts: x (1 - (1 - 1/x)^k)
    where they are drawn from all, x (1 - `_missed`) where a router keeps to some groups.

    row: of that many experts, token i gets the k from i k on (modulo row). With e = row/x at a
    place, its first expert is equally often each of the places 0, g, 2 g ... of the e, g = gcd(k,
    e), so that the mean is (k + e - g)/e. Benchmarks that deal so pass groups over (torchtitan
    b5bcd76, models/common/moe.py, _debug_force_load_balance_routing); Megatron's force the balance
    by random logits, from which its router takes groups as from any (Megatron-LM d98e8a6,
    core/transformer/moe/router.py, TopKRouter.forward).
    """
    k = draw.copies
    if draw.row:
        e = draw.row / of
        return minimum((k + e - common_divisor(k, e)) / e, of)
    if draw.top_groups < draw.groups:
        return of * (1.0 - _missed(of, draw))
    return of * (1.0 - power(1.0 - 1.0 / of, k))


def _missed(of: Num, draw: Draw) -> Num:
    """Probability that one of x places has none of the k experts, drawn one after the other.

    A place has G/x groups: w whole ones, and the part r of one more. `without[d]` is the
    probability that it is missed so far, d groups have experts, and that one has none; `with_[d]`
    that the latter has. Exact where G/x or x/G is whole; else a place may lie on parts of two
    groups, which count as one, and up to an eighth less is reached here.
    """
    G, M = draw.groups, draw.top_groups
    w = floor(G / of)
    r = G / of - w
    without: list[Num] = [1.0, *[0.0] * M]
    with_: list[Num] = [0.0] * (M + 1)
    for _ in range(draw.copies):
        # of M groups no other is asked any more
        after = [0.0] * M + [without[M]]
        after_with = [0.0] * M + [with_[M] * (1.0 - r / M)]
        for d in range(M):
            after[d] = after[d] + without[d] * d / G
            after[d + 1] = after[d + 1] + without[d] * (G - w - 1 - d) / G
            after_with[d] = after_with[d] + with_[d] * (d - r) / G
            after_with[d + 1] = (
                after_with[d + 1]
                + (with_[d] * (G - w - d) + without[d] * (1.0 - r)) / G
            )
        without, with_ = after, after_with
    return total([*without, *with_])
