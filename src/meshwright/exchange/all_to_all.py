"""Ranks change what they are cut by: before attention each has all tokens of some heads, after it
some tokens of all heads.

Forward: an all-to-all of queries, keys and values, b T/cp (H q + K (q + v)) elements a rank, and
one of the outputs, b T/cp H v. Backward: the same of their gradients, the other way round. Heads
are cut tp x cp ways. Source: Jacobs et al. 2023, arXiv 2309.14509 (DeepSpeed-Ulysses); Transformer
Engine, cp_comm_type a2a.
"""

from __future__ import annotations

from .types import AttentionWork, Collective, Exchange, RankHeads


def _forward(h: RankHeads) -> tuple[Collective, ...]:
    tokens = h.b * h.T / h.cp
    inputs = tokens * (h.H * h.q + h.K * (h.q + h.v))
    return Collective("all_to_all", inputs), Collective(
        "all_to_all", tokens * h.H * h.v
    )


def _backward(h: RankHeads, kept: bool) -> tuple[Collective, ...]:
    inputs, outputs = _forward(h)
    return outputs, inputs


ALL_TO_ALL = Exchange(
    name="all-to-all",
    title="all-to-all of heads and tokens (Ulysses)",
    source="Jacobs et al. 2023, arXiv 2309.14509",
    forward=_forward,
    backward=_backward,
    work=lambda h: AttentionWork(h.H / h.cp, h.K / h.cp, h.T),
    # AttnFuncWithCPAndQKVOA2A of Transformer Engine saves out_part and returns what it sent of it
    output_sent=True,
    holds=lambda kv_heads, ranks: kv_heads % ranks == 0,
    refusal="cuts heads over tp x cp: the kv heads must be a multiple of it",
)
