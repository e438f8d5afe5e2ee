"""Narayanan et al. 2021 (Megatron-LM), arXiv 2104.04473, made again: tables 1 and 2, the analysis,
the takeaways.
"""

from __future__ import annotations

from pathlib import Path

from ..report import PaperTable, Report, sourced
from . import analysis, plans, plots, tables, takeaways, traffic, zero3


def megatron_report(files: dict[str, tuple[Path, ...]]) -> Report:
    """files: this paper has no file format; always empty."""
    checks = (
        *plots.claims(),
        *tables.table_1(),
        *sourced("formula", tables.table_2()),
        *tables.training_times(),
        *analysis.exact(analysis.in_flight()),
        *analysis.exact(analysis.volumes()),
        *analysis.exact(analysis.gradient_shares(), "shares of the gradients"),
        *analysis.memory(),
        *plans.plan_checks(),
    )
    off = sorted(abs(row.difference) for row in tables.table_1_rows())
    every = len(tables.table_2_pairs())
    ahead, without = zero3.pairs_ahead()
    notes = (
        (
            f"table 1 predicted by the default assumption set, nothing fitted to it: {off[0]:.0%}"
            f" to {off[-1]:.0%} off"
        ),
        (
            f"table 2: PTD-P is ahead of ZeRO-3 in {ahead} of {every} pairs, in all as printed;"
            f" {tables.ELSEWHERE}; with whole links PTD-P is ahead in {without}"
        ),
        (
            "892 GB/s of stage sends and 12.9 TB/s of all-reduces across the bisection are"
            " predicted from single messages; a table shows how long they take a step"
        ),
    )
    shown: tuple[PaperTable, ...] = (
        tables.predicted_table_1(),
        tables.predicted_table_2(),
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
