"""What people do and a model of a step does not know: conventions of layouts, as rules.

Nobody measured layouts that break one, so what is predicted for them has no evidence beside it. A
plan keeps all conventions of which the user names no field, and says what keeping them costs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..describe.choices import refusal
from ..describe.framework import Framework
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.slices import axes
from .rule import LayoutRule, broken_sentences, with_rules

MOST_CHUNKS = 8
"""Of a device. Published layouts of dense models have 2 to 8 (Narayanan et al. 2021, arXiv
2104.04473; Megatron-Bridge, performance recipes for Llama 3, 2026)."""
MOST_EXPERTS = 32
"""Of a layer on one rank: DeepSeek-V3 with ep 8, the most of the performance recipes of
Megatron-Bridge, 2026."""
FEWEST_TOKENS = 4096
"""Of a sequence on a rank, where cp cuts it: cp 2 at 8,192 tokens in the performance recipes of
Megatron-Bridge for Llama 3 on H100, 2026; Llama 3 itself keeps 8,192 (cp 16 at 131,072; Grattafiori
et al. 2024, arXiv 2407.21783, table 4)."""


class Convention(NamedTuple):
    """Rules that say one thing, and the fields by which a user decides it himself."""

    words: str
    fields: Collection[str]
    rules: tuple[LayoutRule, ...]


def _node(job: Job) -> int:
    """Ranks that the nearest switch joins; on a torus there is none, and tp may take any axis."""
    return (
        job.cluster.chips
        if axes(job.cluster.network)
        else int(job.cluster.sizes[0])
    )


def _experts(job: Job) -> int:
    return job.model.moe.experts if job.model.moe else 1


def _leaves(job: Job, layout: Layout) -> str:
    name = job.cluster.network.dims[0].name
    return (
        f"tp {int(layout.tp)} leaves the {name} domain of {_node(job)} chips"
    )


NEAR = LayoutRule("tp in a node", lambda j, l: l.tp <= _node(j), _leaves)
INSIDE = LayoutRule(
    "tp placed in a node",
    lambda j, l: (
        True if axes(j.cluster.network) else l.placement["tp"][0] == l.tp
    ),
    _leaves,
    reads=("placement",),
)
CHUNKS = LayoutRule(
    "few chunks",
    lambda j, l: l.interleave <= MOST_CHUNKS,
    lambda j, l: (
        f"{int(l.interleave)} chunks a device are more than the {MOST_CHUNKS} of published runs"
    ),
    reads=("schedule",),
)
SPREAD = LayoutRule(
    "experts spread",
    lambda j, l: _experts(j) <= MOST_EXPERTS * l.ep,
    lambda j, l: (
        f"{_experts(j) // int(l.ep)} experts on each rank: published runs of such models have at"
        f" most {MOST_EXPERTS}, ep {-(-_experts(j) // MOST_EXPERTS)} or more"
    ),
)
LONG = LayoutRule(
    "long sequences only",
    lambda j, l: (l.cp == 1) | (FEWEST_TOKENS * l.cp <= j.T),
    lambda j, l: (
        f"cp {int(l.cp)} leaves {j.T / l.cp:,.0f} tokens of a sequence on a rank: published runs"
        f" keep at least {FEWEST_TOKENS:,}"
    ),
)

CONVENTIONS = (
    Convention("tp inside a node", {"tp"}, (NEAR, INSIDE)),
    Convention(f"interleave at most {MOST_CHUNKS}", {"interleave"}, (CHUNKS,)),
    Convention(
        f"at most {MOST_EXPERTS} experts of a layer on a rank",
        {"ep"},
        (SPREAD,),
    ),
    Convention(
        f"cp leaves {FEWEST_TOKENS:,} tokens or more on a rank",
        {"cp"},
        (LONG,),
    ),
)
PRACTICE = tuple(
    rule for convention in CONVENTIONS for rule in convention.rules
)


def kept_conventions(
    job: Job, named: Collection[str] = ()
) -> tuple[Convention, ...]:
    """The conventions that a plan of the job keeps; named: fields that the user has decided."""
    if not job.profile:
        return ()
    return tuple(each for each in CONVENTIONS if not {*each.fields} & {*named})


def keeping(job: Job, conventions: Collection[Convention]) -> Job:
    """The job with a framework that runs only layouts that keep these conventions."""
    return with_rules(
        job, [rule for each in conventions for rule in each.rules]
    )


def broken_conventions(job: Job, layout: Layout) -> list[str]:
    """A sentence for each convention that the (scalar, placed) layout breaks."""
    return [*dict.fromkeys(broken_sentences(job, layout, PRACTICE))]


def unusual(job: Job, layout: Layout) -> list[str]:
    """Why no published run has the (scalar, placed) layout, and the job's software as released does
    not run it, a sentence each.
    """
    return [
        *broken_conventions(job, layout),
        *not_proposed(job.profile, layout),
    ]


def not_proposed(by: Framework | None, layout: Layout) -> list[str]:
    """A sentence for each choice of a layout that plans for a framework leave out: its released
    version does not have it, or people start it otherwise.
    """
    who = f"a plan for {by.name}" if by else ""
    return [*refusal(by.proposes, layout, who, "keeps to")] if by else []
