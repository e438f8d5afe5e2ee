"""The sequence that a layout works on: the job's, padded to what its ranks cut evenly."""

from __future__ import annotations

from typing import Any

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, ceil_div, where
from .rule import cuts_tokens

CHUNKS = 2
"""Of a sequence on each rank of cp: an early and a late one, so that a causal mask leaves all ranks
as much to do (Megatron Core, get_batch_on_this_cp_rank; torch's load-balanced context parallelism).
"""


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
