"""A rule of layouts: a condition on numbers or arrays, and the sentence for those who break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..describe.framework import framework
from ..describe.job import Job
from ..describe.layout import Layout
from ..num import divisors


@dataclass(frozen=True)
class LayoutRule:
    """A condition a layout must meet."""

    name: str
    """Short, for counts of rejections."""
    holds: Callable[[Job, Layout], Any]
    """True (element by element) where the rule is kept."""
    sentence: Callable[[Job, Layout], str]
    """Field, reason and nearest valid values, for a scalar layout that breaks it."""
    reads: tuple[str, ...] = ()
    """What it looks at beside tp, cp, ep, etp, microbatch, panels, and what all layouts of a search
    have in common: pp, dp, microbatches (how many), placement, schedule (with its chunks, stages
    and groups), zero (with dp_replicate), recompute, sequence_parallel. One that looks at the
    schedule looks at no degree but pp. A search asks a rule as soon as all that it reads is known.
    """


def broken_sentences(
    job: Job, layout: Layout, rules: Iterable[LayoutRule]
) -> list[str]:
    """A sentence for each of the rules that the (scalar) layout breaks."""
    return [
        rule.sentence(job, layout)
        for rule in rules
        if not rule.holds(job, layout)
    ]


def with_rules(job: Job, rules: Iterable[LayoutRule]) -> Job:
    """The job with a framework that runs only layouts that keep these rules too."""
    names = tuple(rule.name for rule in rules)
    if not names:
        return job
    by = job.framework or framework(job.usual_framework)
    return replace(job, framework=replace(by, rules=(*by.rules, *names)))


def divides(a: Any, b: Any) -> Any:
    """b is a multiple of a."""
    return b % a == 0


def room_for_replicas(job: Job, layout: Layout) -> str:
    """How many replicas of such degrees the chips have room for; for none, how large one may be."""
    chips = job.cluster.chips
    if room := int(chips // layout.replica):
        return f": dp may be at most {room}"
    return f": tp x cp x pp may be at most {chips}"


def may_be(n: int) -> str:
    """The divisors of n, as text."""
    values = divisors(n)
    return ", ".join(map(str, values[:16])) + (
        ", ..." if len(values) > 16 else ""
    )
