"""Which rows of a table can run, and under which options.

What is legal, `layout.rules` say: a rule is asked as soon as all that it reads is known. Beside
them a search leaves out what would count twice: options that change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import Any

import numpy as np

from ..describe.frozen import with_values
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.placement import Shares
from ..layout.rule import LayoutRule
from ..layout.rules import ALWAYS, EVEN_LAYERS, of_framework
from ..layout.stages import microbatches
from ..program.resident import whole_program
from .columns import layouts
from .options import Options
from .schedule_options import ScheduleOption, by_activations
from .table import BLOCK, Column, Mask, Table, distinct, length, pick

SPLITS = ("tp", "cp", "ep", "etp", "microbatch", "panels")
"""Degrees that cut a layer."""
OPTION_AXES = ("sequence_parallel", "recompute", "schedule", "zero")
"""Choices beside degrees, as rules name them: axes of a mask, before its rows."""
SCHEDULE_ALONE = (False, False, True, False)
"""Which of `OPTION_AXES` a rule reads that asks for the schedule and nothing else of them."""


def rules(job: Job, *known: str) -> list[LayoutRule]:
    """What a layout of the job keeps, as far as these and the degrees that cut a layer say."""
    every = (*ALWAYS, *of_framework(job))
    return [rule for rule in every if {*rule.reads} <= {*known}]


def rules_hold(job: Job, rows: Layout, asked: Iterable[LayoutRule]) -> Mask:
    """Where all these rules hold."""
    fine = np.ones(np.shape(rows.tp), dtype=bool)
    for rule in asked:
        fine &= np.asarray(rule.holds(job, rows), dtype=bool)
    return fine


def legal_splits(job: Job, splits: Table, options: Options) -> Mask:
    """(sequence parallelism, split): where all holds that needs no more to be known."""
    asked = rules(job, "sequence_parallel")
    degrees: dict[str, Any] = {name: splits[name] for name in SPLITS}
    rows = Layout(**degrees, **options.common_fields)
    return np.array(
        [
            rules_hold(job, rows.under(sp), asked)
            for sp in options.sequence_parallel
        ]
    )


def legal(
    job: Job,
    options: Options,
    variants: Sequence[Layout],
    high: Layout | None = None,
    any_number: bool = False,
) -> Mask:
    """(`OPTION_AXES`, row): where rows can run under each combination of options.

    variants: rows under each setting of sequence parallelism, placed or not;  high: the same with
    the most replicas, where they stand for intervals of dp;  any_number: of microbatches too.
    """
    low = variants[0]
    unknown = {
        "dp": high is not None,
        "microbatches": any_number,
        "placement": not low.placement,
    }
    known = (name for name, is_ in unknown.items() if not is_)
    # a rule is asked once for all options that it does not read
    asked: dict[tuple[bool, ...], list[LayoutRule]] = {SCHEDULE_ALONE: []}
    for rule in rules(job, "pp", *known, *OPTION_AXES):
        axes = tuple(axis in rule.reads for axis in OPTION_AXES)
        if rule.reads:  # the others hold of all splits
            asked.setdefault(axes, []).append(rule)
    # what rules of schedules read is alike in many rows
    m = np.asarray(microbatches(job, low))
    index, number = distinct([low.pp, low.interleave, m])
    pipelines = pick(low, index)
    orders = _orders(
        job,
        options,
        pipelines,
        asked=asked.pop(SCHEDULE_ALONE),
        any_number=any_number,
    )
    # each is as long as 1 on the axes that it does not read
    masks = [
        orders[None, None, :, None, number],
        *_without_copies(job, options, low, low if high is None else high),
    ]
    for axes, some in asked.items():
        rows, each = (pipelines, number) if axes[2] else (low, slice(None))
        lengths = zip(options.shape, axes, strict=True)
        shape = tuple(n if axis else 1 for n, axis in lengths)
        mask: Mask = np.ones((*shape, len(number)), dtype=bool)
        for combination in np.ndindex(*shape):
            mask[combination] = rules_hold(
                job, options.layout(rows, combination), some
            )[each]
        masks.append(mask)
    shape = (*options.shape, len(number))
    return np.broadcast_to(reduce(and_, masks), shape)


def _without_copies(
    job: Job, options: Options, low: Layout, high: Layout
) -> Iterator[Mask]:
    """Masks of the layouts that are no copy of another: on one rank of tp sequence parallelism on
    and off are the same, with one replica all ZeRO stages and groups are, and one of them counts.
    """
    settings = options.sequence_parallel
    yield np.array(
        [(low.tp > 1) | sp | (True not in settings) for sp in settings]
    )[:, None, None, None]
    alone = (low.replicas == 1) & (not whole_program(job))
    yield np.array(
        [
            each.has_groups(high) & ((z == 0) | ~alone)
            for z, each in enumerate(options.zero)
        ]
    )[None, None, None]


def _orders(
    job: Job,
    options: Options,
    rows: Layout,
    asked: Sequence[LayoutRule],
    any_number: bool,
) -> Mask:
    """(schedule, row): where each schedule can run. On one stage all take as long: only that counts
    which holds least, of those the first. any_number: where it can with some number of
    microbatches; then all count, since another may hold least with each.
    """

    def runs(option: ScheduleOption, rows: Layout) -> Mask:
        p, v = np.asarray(rows.pp), np.asarray(rows.interleave)
        fine = option.allows(job, p, v)
        index = np.flatnonzero(fine)
        # papers add up chunks that hold as many layers
        even = option.chunks[0] > 1 and not job.how.overlap.follows_schedule
        every = (*asked, EVEN_LAYERS) if even else asked
        fine[index] = rules_hold(job, option.layout(pick(rows, index)), every)
        return fine

    runs_here = np.array([runs(option, rows) for option in options.schedules])
    if any_number:
        return runs_here
    one = np.flatnonzero(rows.pp == 1)
    alone, free = pick(rows, one), np.ones(len(one), dtype=bool)
    runs_here[:, one] = False
    for k, option, chunks in by_activations(options.schedules):
        if not free.any():
            break
        v = np.full(len(one), float(chunks))
        can = free & runs(option, with_values(alone, interleave=v))
        runs_here[k, one] |= can & (alone.interleave == chunks)
        free &= ~can
    return runs_here


def legal_options(
    job: Job, table: Table, options: Options, shares: Shares | None = None
) -> Column:
    """How many of the options each row can run with, where it lies; shares None: anywhere."""
    counts = np.zeros(length(table))
    for start in range(0, length(table), BLOCK):
        some = slice(start, start + BLOCK)
        variants = layouts(job, options, pick(table, some), pick(shares, some))
        runs = legal(job, options, variants)
        counts[some] = runs.sum(axis=tuple(range(len(OPTION_AXES))))
    return counts
