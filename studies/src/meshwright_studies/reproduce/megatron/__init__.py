"""Narayanan et al. 2021 (Megatron-LM), arXiv 2104.04473, made again: tables 1 and 2, the analysis,
the takeaways.
"""

from __future__ import annotations

from pathlib import Path

from ..report import PaperTable, Report, sourced
from . import analysis, plans, plots, tables, takeaways, traffic, zero3


def megatron_report(files: dict[str, tuple[Path, ...]]) -> Report:
    """files: this paper has no file format; always empty."""
    first = tables.predicted_table_1()
    second = tables.predicted_table_2()
    checks = (
        *tables.table_1(),
        *tables.table_rates(first, second),
        zero3.whole_links(),
        *zero3.lead_checks(),
        *sourced("formula", tables.table_2()),
        *tables.training_times(),
        *sourced("formula", analysis.bubbles()),
        *sourced("formula", analysis.in_flight()),
        *sourced("formula", analysis.volumes()),
        *analysis.memory(),
        *takeaways.takeaway_checks(),
        *plans.plan_checks(),
        *traffic.bisection_checks(),
    )
    off = sorted(abs(float(row[-1])) for row in first.rows)
    ahead, without = (sum(row[i] > 1 for row in second.rows) for i in (-2, -1))
    notes = (
        (
            f"table 1 predicted by the default assumption set, nothing fitted to it: {off[0]:.0%}"
            f" to {off[-1]:.0%} off"
        ),
        (
            f"table 2: PTD-P is ahead of ZeRO-3 in {ahead} of {len(second.rows)} pairs, in all as"
            f" printed; {tables.ELSEWHERE}; with whole links PTD-P is ahead in {without}"
        ),
        (
            "892 GB/s of stage sends and 12.9 TB/s of all-reduces across the bisection are"
            " predicted from single messages; a table shows how long they take a step"
        ),
    )
    shown: tuple[PaperTable, ...] = (
        first,
        second,
        plans.plans_table(),
        takeaways.takeaways_table(),
        traffic.traffic(),
        traffic.checkpoint(),
    )
    return Report(
        "megatron",
        checks=checks,
        tables=shown,
        figures=plots.measuring_figures(),
        notes=notes,
    )
