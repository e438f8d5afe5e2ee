"""Every published configuration at its own layout: step time, memory, their parts, days of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...prediction import Prediction
from ...spec.assumptions import Assumptions
from ...units import DAY_S, GB
from ..report import Check
from .defects import compare
from .saved import SAMPLES, Case, Saved

TIME_PARTS = {
    "t_comp": ("compute",), "t_mem": ("memory",), "t_tp_comm": ("tp_comm", "cp_comm"), "t_dp_comm": ("dp_comm",),
    "t_pp_comm": ("pp_comm",), "t_bubble": ("bubble",),
}  # fmt: skip
"""Their part of the step time -> ours."""
MEMORY_PARTS = {
    "wts_mem": "weights", "wts_grad_mem": "gradients", "wts_optimizer_states_mem": "optimizer", "acts_mem": "activations"
}  # fmt: skip
"""Their part of the memory -> ours."""
TINY = 1e-12
"""Share of the whole up to which a part that differs counts as rounding."""


def checks(case: Case) -> Iterator[Check]:
    """All published numbers of one case's configurations, best and runners-up."""
    for saved in case.saved:
        odd = rounding_down(saved)
        for check in _numbers(saved, case.model):
            yield replace(check, note=f"{check.note}; {odd}") if odd and check.status == "mismatch" else check


def _numbers(saved: Saved, model: str) -> Iterator[Check]:
    layout, known = saved.job.layout, dict[Assumptions, Prediction]()

    def under(a: Assumptions) -> Prediction:
        if a not in known:
            known[a] = Prediction(replace(saved.job, assumptions=a), layout)
        return known[a]

    def number(
        part: str, published: float, value: Callable[[Prediction], float], unit: str, least: float = 0.0
    ) -> Check:
        return compare(f"{saved.id}/{part}", layout, published, lambda a: value(under(a)), unit, least)

    yield number("time", saved.time_s, lambda p: p.step_time_s, "s")
    yield number("memory", saved.memory_bytes / GB, lambda p: float(p.memory_use.total) / GB, "GB")
    for theirs, ours in TIME_PARTS.items():
        if theirs in saved.time_parts:
            least = TINY * saved.time_s
            yield number(theirs, saved.time_parts[theirs], lambda p, o=ours: sum(p.time_s[k] for k in o), "s", least)  # type: ignore[misc]
    for theirs, kind in MEMORY_PARTS.items():
        if theirs in saved.memory_parts:
            least = TINY * saved.memory_bytes / GB
            yield number(theirs, saved.memory_parts[theirs] / GB, lambda p, k=kind: p.memory_bytes[k] / GB, "GB", least)  # type: ignore[misc]
    if saved.days is not None:
        yield number("days", saved.days, lambda p: days(model, p), "days")


def days(model: str, p: Prediction) -> float:
    """Days of the whole training run of figure 5: samples / batch steps, one after the other."""
    return SAMPLES[model] / p.job.batch * p.step_time_s / DAY_S


def rounding_down(saved: Saved) -> str:
    """A note where the authors' code drops tokens because it divides shapes as integers; empty where everything divides."""
    job, layout = saved.job, saved.job.layout
    local, left = divmod(job.T, layout.cp)
    shard = 1 if layout.scheme == "summa" else layout.tp
    if left or local % shard:
        return f"{job.T} tokens do not split {layout.cp} x {shard} ways: the authors' integer division drops the rest"
    return ""
