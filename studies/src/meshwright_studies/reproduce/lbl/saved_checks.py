"""Every published configuration at its own layout: step time, memory, their parts, days of
training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial

from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.prediction.prediction import Prediction
from meshwright.units import GB

from ..report import Check
from .defects import compare_defects
from .saved import Saved, SavedCase, run_days

TIME_PARTS = {
    "t_comp": ("compute",),
    "t_mem": ("memory",),
    "t_tp_comm": ("tp_comm", "cp_comm"),
    "t_dp_comm": ("dp_comm",),
    "t_pp_comm": ("pp_comm",),
    "t_bubble": ("bubble",),
}
"""Their part of the step time -> ours."""
MEMORY_PARTS = {
    "wts_mem": "weights", "wts_grad_mem": "gradients", "wts_optimizer_states_mem": "optimizer",
    "acts_mem": "activations",
}  # fmt: skip
"""Their part of the memory -> ours."""
TINY = 1e-12
"""Share of the whole up to which a part that differs counts as rounding."""


def case_checks(case: SavedCase) -> Iterator[Check]:
    """The published numbers of one case's configurations, best and runners-up."""
    for saved in case.saved:
        odd = rounding_down(saved)
        for check in _numbers(saved):
            yield (
                replace(check, note=f"{check.note}; {odd}")
                if odd and check.status == "mismatch"
                else check
            )


def _numbers(saved: Saved) -> Iterator[Check]:
    layout = saved.job.layout

    @cache
    def ours(a: Assumptions) -> dict[str, float]:
        return published_numbers(
            Prediction(replace(saved.job, assumptions=a), layout)
        )

    published = {
        "time": saved.time_s,
        "memory": saved.memory_bytes / GB,
        **saved.time_parts,
    }
    published |= {kind: x / GB for kind, x in saved.memory_parts.items()}
    if saved.days is not None:
        published["days"] = saved.days
    for key, value in published.items():
        if key in ours(LBL):
            unit = (
                "days"
                if key == "days"
                else "GB"
                if key in ("memory", *MEMORY_PARTS)
                else "s"
            )
            noise = TINY * (
                saved.memory_bytes / GB if unit == "GB" else saved.time_s
            )
            yield compare_defects(
                f"{saved.id}/{key}",
                layout=layout,
                published=value,
                value=partial(table_entry, ours, key),
                unit=unit,
                rounding=noise,
            )


def table_entry(
    table: Callable[[Assumptions], dict[str, float]], key: str, a: Assumptions
) -> float:
    return table(a)[key]


def published_numbers(p: Prediction) -> dict[str, float]:
    """Our value of each published number: seconds, GB, days."""
    times = {
        theirs: sum(p.time_s[k] for k in ours)
        for theirs, ours in TIME_PARTS.items()
    }
    memory = {
        theirs: p.memory_bytes[ours] / GB
        for theirs, ours in MEMORY_PARTS.items()
    }
    days = run_days(p)
    return {
        "time": p.step_time_s,
        "memory": p.memory_bytes["allocated"] / GB,
        **times,
        **memory,
        **({"days": days} if days else {}),
    }


def rounding_down(saved: Saved) -> str:
    """A note where the authors' code drops tokens because it divides shapes as integers; else
    empty.
    """
    job = saved.job
    layout = saved.job.layout
    local, left = divmod(job.T, layout.cp)
    shard = 1 if layout.scheme == "summa" else layout.tp
    if left or local % shard:
        return (
            f"{job.T} tokens do not split {layout.cp} x {shard} ways: the authors' integer division"
            " drops the rest"
        )
    return ""
