"""Whether the trainer of this project runs a plan that is written to a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import BadInput


def not_trained(plan: Any) -> list[str]:
    """Why `train`, and so `export --to torchrun`, does not run the best layout of a model that it
    trains, and which of the others it does; empty where it runs it.
    """
    from ..layout import trainable

    best = plan.best
    if not best or trainable.model_refusals(best.job.model):
        return []
    if trainable.number_refusals(best.job) or not (
        why := next(refusals(best), "")
    ):
        return []
    ranks = enumerate(plan.alternatives, 2)
    rank = next((n for n, p in ranks if not any(refusals(p))), None)
    other = (
        f"; number {rank} of --all is the fastest that it can" if rank else ""
    )
    return [f"meshwright train cannot run this layout{other}: {why}"]


def refusals(p: Any) -> Iterator[str]:
    """Why the trainer refuses a layout: its rules, then its own memory."""
    from ..describe.training import Settings
    from ..train import rules

    yield from rules.of_trainer(p.job, p.layout)
    try:
        rules.demand_chip(p, Settings(device="cuda"))
    except BadInput as error:
        yield str(error)
