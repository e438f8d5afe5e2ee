"""Rules that settings of the software ask of layouts: the offers of a framework name them
(`describe.software.Offer`).

Megatron-LM, core/transformer/transformer_config.py, `__post_init__`: experts overlap with another
microbatch only with ep over 1, without full recomputation or that of the experts' layer, and in a
pipeline only with several chunks a device; full recomputation goes with graphs of the whole
iteration only. Collectives of tensors overlap where tokens are sharded between tp ranks
(core/model_parallel_config.py: tp_comm_overlap needs sequence_parallel). Megatron-LM of 2021 asked
for its own replicas in a pipeline (megatron/training.py, setup_model_and_optimizer).
"""

from __future__ import annotations

from ..describe.framework import Framework
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.recompute import recompute
from ..describe.software import Software
from ..schedule import get as schedule_named
from .rule import LayoutRule, broken_sentences, with_rules


def _whole(words: str) -> bool:
    """Whole layers, or the experts', are computed again: their messages would be sent again too."""
    return bool({"full", "moe"} & {*recompute(words).words})


def _several_chunks(schedule: str) -> bool:
    """Two microbatches are on a device of the pipeline at once, each in a chunk of its own."""
    return bool(schedule_named(schedule).chunks(2) > 1)


EXPERTS_AGAIN = LayoutRule(
    "experts not sent again",
    lambda j, l: not _whole(l.recompute),
    lambda j, l: (
        f"recompute {l.recompute} sends tokens to experts again, which ep_overlap does not"
        " support: take none or parts of a layer"
    ),
    reads=("recompute",),
)
EXPERTS_PAIRED = LayoutRule(
    "two microbatches at once",
    lambda j, l: (l.pp == 1) | _several_chunks(l.schedule),
    lambda j, l: (
        f"ep_overlap in a pipeline of {int(l.pp)} needs several chunks a device: schedule"
        f" interleaved, not {l.schedule}"
    ),
    reads=("pp", "schedule"),
)
GRAPHS = LayoutRule(
    "graphs of layers",
    lambda j, l: "full" not in recompute(l.recompute).words,
    lambda j, l: (
        f"recompute {l.recompute} runs in a CUDA graph of the whole iteration only: cuda_graphs"
        " parts takes none or parts of a layer"
    ),
    reads=("recompute",),
)
TENSORS = LayoutRule(
    "overlap of tensors",
    lambda j, l: (l.tp == 1) | bool(l.sequence_parallel),
    lambda j, l: "tp_overlap all needs sequence_parallel",
    reads=("sequence_parallel",),
)
REPLICAS = LayoutRule(
    "replicas of torch",
    lambda j, l: (l.pp == 1) & (l.zero == 0),
    lambda j, l: (
        "dp_overlap gradients is that of PyTorch's DistributedDataParallel, which goes with pp 1"
        f" and zero 0, not pp {int(l.pp)} and zero {int(l.zero)}"
    ),
    reads=("pp", "zero"),
)
SETTING_RULES = (EXPERTS_AGAIN, EXPERTS_PAIRED, GRAPHS, TENSORS, REPLICAS)
REFUSED = (REPLICAS,)
"""Those that a prediction refuses too, as the program does not start (setup_model_and_optimizer
asserts it); published recipes break others, and are timed."""
RULES = {rule.name: rule for rule in SETTING_RULES}


def rules_asked(
    by: Framework, settings: Framework | Software
) -> tuple[LayoutRule, ...]:
    """What settings that a framework offers ask of layouts: those of a profile, or the stated."""
    used = (
        offer
        for offer in by.offers
        if getattr(settings, offer.setting) == offer.meant
    )
    return tuple(RULES[name] for offer in used for name in offer.rules)


def rules_of(by: Framework | None) -> tuple[LayoutRule, ...]:
    """What the settings of a framework ask of its layouts."""
    return rules_asked(by, by) if by else ()


def keeping(job: Job) -> Job:
    """The job with a framework that runs only layouts that go with its settings."""
    return with_rules(job, rules_of(job.profile))


def broken_settings(job: Job, layout: Layout) -> list[str]:
    """A sentence for each rule of the job's settings that the (scalar) layout breaks."""
    return broken_sentences(job, layout, rules_of(job.profile))
