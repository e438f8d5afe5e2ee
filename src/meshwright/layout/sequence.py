"""The sequence that a layout works on: the parts that its ranks cut it into, and the padding that
makes these even.
"""

from __future__ import annotations

from typing import Any

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, ceil_div, where

CHUNKS = 2
"""Of a sequence on each rank of cp: an early and a late one, so that a causal mask leaves all ranks
as much to do (Megatron Core, get_batch_on_this_cp_rank; torch's load-balanced context parallelism).
"""


def cuts_tokens(scheme: str, sequence_parallel: bool) -> bool:
    """tp cuts the tokens between its matrices (other schemes cut their width instead)."""
    return sequence_parallel and scheme in ("megatron", "context")


def token_parts(scheme: str, sequence_parallel: bool, tp: Any, cp: Any) -> Any:
    """Parts that the tokens of a microbatch are cut into: over cp, but for mlp2d, whose cp cuts the
    hidden size, and over tp where norms are.
    """
    if scheme == "mlp2d":
        return 1
    return cp * tp if cuts_tokens(scheme, sequence_parallel) else cp


def multiple(layout: Layout) -> Num:
    """Tokens that a sequence is a multiple of: 2 cp where cp cuts it, of which each has whole parts
    for tp where tp cuts tokens too; else any number (Megatron Core, multimodal context_parallel,
    get_padding).
    """
    parts = (
        layout.tp
        if cuts_tokens(layout.scheme, layout.sequence_parallel)
        else 1
    )
    cut = (layout.cp > 1) & (layout.scheme != "mlp2d")
    return where(cut, CHUNKS * layout.cp * parts, 1)


def length(job: Job, layout: Layout) -> Num:
    """Tokens of a sequence with its padding, T' = ceil(T / n) n, which takes time and memory as
    they do. Papers, which know no framework, pad nothing.
    """
    if job.profile is None:
        return job.T
    n = multiple(layout)
    padded = ceil_div(job.T, n) * n
    more: Any = padded != job.T
    # one number where no row is padded: tables stay small
    return padded if getattr(more, "any", lambda: more)() else job.T
