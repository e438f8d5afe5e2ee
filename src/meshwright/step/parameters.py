"""The parameters that a device of a pipeline holds: of its layers, and of embedding and head, as a
framework has them in units.
"""

from __future__ import annotations

from operator import add
from typing import NamedTuple

from ..count import vocabulary
from ..describe.job import Job
from ..describe.layout import Layout
from ..num import Num, anywhere, where
from .microbatch import ModelCost
from .shares import ModelShare


class Parameters(NamedTuple):
    """Numbers of parameters."""

    dense: Num
    """Replicated over dp x cp."""
    expert: Num
    """Replicated over edp."""

    @property
    def total(self) -> Num:
        """All of them."""
        return self.dense + self.expert


class DeviceParameters(NamedTuple):
    """The numbers of parameters on one device, by where they lie in the model."""

    layers: Parameters
    ends: Parameters
    """Of embedding and head."""

    @property
    def whole(self) -> Parameters:
        """Of both."""
        return Parameters(*map(add, self.layers, self.ends))


def shard(layout: Layout, weights: Parameters) -> Num:
    """How many of a device's parameters one rank's ZeRO shard has: dense ones are cut over `shards`
    ranks, those of experts over `expert_shards`.
    """
    dense = weights.dense / layout.shards
    if no_parameters(weights.expert):
        return dense
    return dense + weights.expert / layout.expert_shards


def no_parameters(parameters: Num) -> bool:
    """No parameters, in any row."""
    return not anywhere(parameters)


def units_of(job: Job) -> tuple[str, str]:
    """(`Framework.ends`: how embedding and head are gathered, and a table of both ends as the root;
    `Framework.weights_kept`: how long gathered weights stay)."""
    by = job.profile
    if not by:
        return "units", "step"
    tied = job.model.tied_embeddings and by.ends == "apart"
    return "root" if tied else by.ends, by.weights_kept


def end_units(
    job: Job, layout: Layout, cost: ModelCost, share: ModelShare
) -> tuple[Parameters, Parameters]:
    """Parameters of embedding and head that arrive before the first layer and leave after it, and
    of those that a framework has with the last layer (`Framework.ends`).
    """
    if units_of(job)[0] == "apart":
        return end_parts(job, layout, cost, share)
    return end_parameters(job, layout, cost, share), Parameters(0.0, 0.0)


def end_parts(
    job: Job, layout: Layout, cost: ModelCost, share: ModelShare
) -> tuple[Parameters, Parameters]:
    """Parameters of the embedding and of the head, which are not gathered at once: all and none,
    where a framework has them in one unit, or a model in one table, or papers add them up.
    """
    whole = end_parameters(job, layout, cost, share)
    units = units_of(job)[0]
    papers = not job.profile and units == "units"
    if units == "root" or papers or job.model.tied_embeddings:
        return whole, Parameters(0.0, 0.0)
    first = Parameters(share.embedding * cost.embedding.weights, 0.0)
    return first, Parameters(whole.dense - first.dense, 0.0)


def end_parameters(
    job: Job, layout: Layout, cost: ModelCost, share: ModelShare
) -> Parameters:
    """Parameters of embedding and head on a device; one that is alone holds a tied table once.

    Blocks that predict further tokens look these up: where the embedding is elsewhere they have a
    copy of it (NVIDIA/Megatron-LM@d98e8a64, core/models/common/language_module/language_module.py:
    "duplicated embedding weights in mtp process stage"), unless the head is one. Where both ends
    lie on one device they share it (DeepSeek-V3, arXiv 2412.19437, section 3.2.3).
    """
    dense = (
        share.embedding * cost.embedding.weights
        + share.head * cost.head.weights
    )
    if job.model.tied_embeddings:
        dense = dense - where(
            layout.pp == 1, share.head * tied_parameters(job, layout), 0.0
        )
    elif job.model.mtp_layers and job.how.count.vocabulary:
        copies = share.head * (1.0 - share.embedding)
        dense = dense + copies * vocabulary.table_parameters(
            job.model, job.profile, layout.tp
        )
    return Parameters(dense, 0.0)


def parameters_of(
    job: Job, layout: Layout, cost: ModelCost, share: ModelShare
) -> DeviceParameters:
    """How many parameters a device holds with this share of the model."""
    layers = Parameters(
        share.layer_total(cost, "weights"),
        share.layer_total(cost, "expert_weights"),
    )
    return DeviceParameters(layers, end_parameters(job, layout, cost, share))


def tied_parameters(job: Job, layout: Layout) -> Num:
    """Parameters that embedding and head share on a device that is alone: there they are one table;
    a folded pipeline, whose first device holds both too, keeps two.
    """
    if not (job.model.tied_embeddings and job.how.count.vocabulary):
        return 0.0
    return vocabulary.table_parameters(job.model, job.profile, layout.tp)
