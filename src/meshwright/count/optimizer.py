"""The optimizer's pass over the parameters a device updates."""

from __future__ import annotations

from ..num import Num
from ..spec.job import Job
from .work import Pass


def update(job: Job, parameters: Num) -> Pass:
    """Read gradient and state, write state and weight; the gradient is read once more for its norm.

    parameters: how many this device updates.
    """
    p, o = job.precision, job.optimizer
    moved = (2 * p.gradient_bytes + 2 * job.state_bytes + p.weight_bytes) * parameters
    return Pass(0.0, o.flops * parameters, moved, kernel="optimizer", sizes=(parameters,))
