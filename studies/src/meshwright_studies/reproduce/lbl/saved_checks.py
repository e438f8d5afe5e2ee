"""Every published configuration at its own layout: step time, memory, their parts, days of
training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from meshwright.describe.assumptions import LBL, Assumptions
from meshwright.describe.job import Job
from meshwright.prediction.prediction import Prediction
from meshwright.units import GB

from ..report import Check
from .defects import SAME, compare_defects
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
    said = saved.said
    published = {
        "time": said.iteration_time_s,
        "memory": said.memory_GB,
        **said.time_breakdown_s,
        **said.memory_parts_GB,
        "days": said.training_days_paper_fig5,
    }
    sides = {
        f"{saved.id}/{key}": (key, value)
        for key, value in published.items()
        if value is not None
    }
    noise = {"GB": TINY * said.memory_GB}
    return both_editions(
        saved.job,
        sides,
        published_numbers,
        rounding=lambda unit: noise.get(unit, TINY * said.iteration_time_s),
    )


def both_editions(
    job: Job,
    sides: Mapping[str, tuple[str, float]],
    numbers: Callable[[Prediction], Mapping[str, float]],
    rounding: Callable[[str], float],
    same: float = SAME,
) -> Iterator[Check]:
    """Published numbers of a layout beside those of both editions, where we have such a number.

    sides: id -> (name of the number, its published value);  numbers: prediction -> ours by name;
    rounding: unit -> half the last digit, or what sums may lose.
    """

    @cache
    def ours(a: Assumptions) -> Mapping[str, float]:
        return numbers(Prediction(replace(job, assumptions=a), job.layout))

    for id, (key, value) in sides.items():
        if key in ours(LBL):
            unit = unit_of(key)
            yield compare_defects(
                id,
                layout=job.layout,
                published=value,
                value=lambda a, key=key: ours(a)[key],  # type: ignore[misc]
                unit=unit,
                rounding=rounding(unit),
                same=same,
            )


def unit_of(key: str) -> str:
    """Of a published number: columns of operations end in theirs."""
    if key in ("memory", *MEMORY_PARTS):
        return "GB"
    last = key.split()[-1]
    return last if last in ("us", "MB", "days") else "s"


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
