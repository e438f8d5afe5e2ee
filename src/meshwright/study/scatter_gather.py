"""Scatter/gather (Narayanan et al. 2021, section 4.1): tp inside a stage, 1/t of it between
stages.

With tp in each stage, all t ranks hold the same stream at its boundary, and each would send the
whole of it to its partner in the next stage. Instead each sends 1/t, over its own network card,
and the receiving ranks all-gather the parts over the fast links between them:

    bytes a rank sends to the next stage = 2 (p-1)/p * 4 b s h / t
    bytes inside the stage, beside tp's  = 2 (p-1)/p * 4 b s h (t-1)/t
"""

from __future__ import annotations

from torch import nn

from . import pp, tp
from .model import Batch, Shape, StudyStep
from .ring import RankRing
from .sp import TOKENS, gather

part = tp.part


def scatter_gather_step(
    model: nn.Sequential,
    data: Batch,
    m: Shape,
    stage: RankRing,
    inside: RankRing,
) -> StudyStep:
    """1F1B over `stage`, tp over `inside`."""
    tp.parallelize(model, inside)
    chunk = pp.stages(model, stage.size)[stage.rank]
    microbatches = [data.part(i, m.batch) for i in range(m.batch)]
    whole = pp.StudyPipeline(
        [chunk],
        microbatches,
        m,
        ring=stage,
        cut=lambda x: x.chunk(inside.size, TOKENS)[inside.rank],
        join=gather(inside, TOKENS),
    ).run(pp.order(stage.rank, stage.size, m.batch, v=1))
    return StudyStep(whole.loss / inside.size, whole.gradients)
