"""Batch ramp-up: the batch grows from `ramp_batch` sequences to that of the job over `ramp_steps`
steps, by whole microbatches of all replicas (Brown et al. 2020, GPT-3, section 2.3).
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.training import Settings


def least(job: Job) -> int:
    """Sequences of one microbatch of every replica: what a batch grows by."""
    return int(job.layout.dp * job.layout.microbatch)


def batch_of(job: Job, s: Settings, step: int) -> int:
    """Sequences that a step trains on."""
    if s.ramp_batch is None or s.ramp_steps is None or step >= s.ramp_steps:
        return job.batch
    grown = (job.batch - s.ramp_batch) * step // s.ramp_steps
    return s.ramp_batch + grown // least(job) * least(job)


def before(job: Job, s: Settings, step: int) -> int:
    """Sequences of all steps before this one."""
    ramp = min(step, s.ramp_steps or 0)
    grown = sum(batch_of(job, s, earlier) for earlier in range(ramp))
    return grown + (step - ramp) * job.batch


def wrong(job: Job, s: Settings) -> list[str]:
    """Why the batch cannot grow so."""
    if s.ramp_batch is None and s.ramp_steps is None:
        return []
    if s.ramp_batch is None or s.ramp_steps is None:
        return ["train.ramp_batch and train.ramp_steps belong together"]
    if s.ramp_batch >= job.batch or s.ramp_batch % least(job):
        return [
            f"train.ramp_batch must be a multiple of {least(job)} (microbatches of all replicas)"
            f" and less than the batch of {job.batch}, not {s.ramp_batch}"
        ]
    return []


def sizes(job: Job, s: Settings) -> set[int]:
    """Batch sizes of all steps."""
    return {batch_of(job, s, step) for step in range((s.ramp_steps or 0) + 1)}
