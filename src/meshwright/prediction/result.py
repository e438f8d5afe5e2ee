"""What a step of a job takes under a layout: counted, timed and summed once. Notes, certainty and
the trees of terms read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ..cost.causes import NO_CAUSES, Seconds
from ..cost.layer import Clock
from ..count.model import (
    Counts,
    count_microbatch,
    executed_flops,
    model_flops,
)
from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import microbatches, schedule_of
from ..num import sum_of
from ..program import resident
from ..schedule.schedule import Schedule
from ..step import (
    ModelCost,
    ModelShare,
    ModelShares,
    Step,
    StepCosts,
    clock_of,
    memory,
    oom,
)
from ..step.microbatch import (
    END_LABELS,
    copies_beside,
    labels,
    recompute_cost,
    time_model,
)
from .exact import replays

Passes: TypeAlias = dict[tuple[str, str], tuple[float, Seconds]]
"""(part of the model, direction: forward, backward or recomputed) -> (how often in a step, its
seconds by cause)."""


IN_PASSES = ("compute", "memory", "host", "tp_comm", "cp_comm", "ep_comm")
"""Causes of the seconds of passes; the others are those of the step."""


@dataclass(frozen=True)
class StepResult:
    """What a step of a job takes under a layout. Seconds and bytes are those of the slowest and of
    the fullest device.
    """

    job: Job
    layout: Layout

    @cached_property
    def schedule(self) -> Schedule:
        return schedule_of(self.layout)

    @cached_property
    def clock(self) -> Clock:
        """Rates of chip and links."""
        return clock_of(self.job, shared=True)

    @cached_property
    def counts(self) -> Counts:
        """What one microbatch is, in each part of the model."""
        return count_microbatch(self.job, self.layout)

    @cached_property
    def cost(self) -> ModelCost:
        """What that costs."""
        return time_model(self.counts, self.clock)

    @cached_property
    def costs(self) -> StepCosts:
        """What the step is made of."""
        return StepCosts(
            self.job,
            self.layout,
            self.cost,
            clock=self.clock,
            paths={} if self.replayed else None,
        )

    @property
    def step(self) -> Step:
        return self.costs.step

    @property
    def shares(self) -> ModelShares:
        """What the devices hold."""
        return self.costs.shares

    @cached_property
    def slowest(self) -> ModelShare:
        """What the device holds that the pipeline waits for."""
        return self.shares.on(self.costs.microbatch.stages.slowest)

    @cached_property
    def replayed(self) -> bool:
        """The pipeline is replayed action by action; else the answer is a paper's closed form or,
        of too many actions, what no order undercuts (a note says so)."""
        return replays(self.job, self.layout)

    @cached_property
    def busy(self) -> Seconds:
        """Seconds by cause of all microbatches on the device that the pipeline waits for."""
        seconds: Seconds = sum_of(self.passes.values(), NO_CAUSES.forward)
        return seconds

    @cached_property
    def passes(self) -> Passes:
        """Those that the device makes in a step that the pipeline waits for."""
        return self.passes_of(self.cost)

    def passes_of(self, cost: ModelCost) -> Passes:
        """`passes`, if the parts of the model cost so much."""
        slowest, text = self.slowest, self.layout.recompute
        m = self.schedule.rounds(self.microbatches)
        again = float(slowest.recompute_share(text))
        kinds = labels(self.job.model)
        copies = (*copies_beside(cost, text, again), NO_CAUSES, NO_CAUSES)
        passes: Passes = {}
        for label, part, often, beside in zip(
            (*kinds, *END_LABELS),
            cost.parts,
            slowest.parts,
            copies,
            strict=True,
        ):
            n = float(often * m)
            causes = part.causes + beside
            passes[label, "forward"] = n, causes.forward
            passes[label, "backward"] = n, causes.backward
            if label in kinds and (more := recompute_cost(part, text)):
                passes[label, "recomputed"] = n * again, more.causes
        return passes

    @cached_property
    def time_s(self) -> dict[str, float]:
        """Seconds by cause; they add up to the step time. "other" is what steps measured on this
        installation took beyond the laws (`Installation.scale`)."""
        pipe = self.step.pipeline
        busy = self.busy
        slower = self.step.slowdown
        seconds = {
            **{cause: float(getattr(busy, cause)) for cause in IN_PASSES},
            "pp_comm": float(pipe.sends + self.step.link_wait),
            "dp_comm": float(self.step.sync - slower),
            "bubble": float(pipe.bubble),
            "overlap_slowdown": float(busy.overlap_slowdown + slower),
            "optimizer": float(self.step.update),
        }
        scale = self.job.cluster.installation.scale
        beyond = (scale - 1.0) * sum(seconds.values()) if scale != 1.0 else 0.0
        return seconds | {"other": beyond}

    @property
    def caused_s(self) -> float:
        """Seconds of all causes that take any: the step time, but where an installation is faster
        than the laws, whose "other" is below 0."""
        return sum(s for s in self.time_s.values() if s > 0)

    @property
    def pipeline_s(self) -> float:
        """Seconds of the pipeline; synchronisation and optimizer follow."""
        return float(self.step.pipeline.total + self.step.link_wait)

    @cached_property
    def step_time_s(self) -> float:
        """Seconds of one optimizer step: the sum of `time_s`."""
        # papers add up; a replay knows the whole, and is asked again only for its parts
        if not self.replayed:
            return sum(self.time_s.values())
        return float(self.step.total) * self.job.cluster.installation.scale

    @cached_property
    def replayed_s(self) -> float | None:
        """The step time where its pipeline was replayed action by action; None under a paper's
        set, whose closed form is the answer, and where there are too many actions."""
        return self.step_time_s if self.replayed else None

    @property
    def microbatches(self) -> int:
        """m, of one replica and step."""
        return int(microbatches(self.job, self.layout))

    @cached_property
    def uses(self) -> dict[int, memory.MemoryUse]:
        """Rank -> bytes by kind, of each device that may be the fullest."""
        if self.peaks:
            walks = self.peaks.items()
            return {rank: resident.by_kind(terms) for rank, terms in walks}
        ranks = (int(share.rank) for share in self.shares.full)
        return dict(zip(ranks, self.costs.uses, strict=True))

    @cached_property
    def fullest(self) -> int:
        """The rank of the device with the most bytes, the first of several."""
        return max(self.uses, key=lambda rank: float(self.uses[rank].total))

    @property
    def memory_use(self) -> memory.MemoryUse:
        """Bytes by kind on the fullest device."""
        return self.uses[self.fullest]

    @property
    def memory_bytes(self) -> dict[str, float]:
        """Bytes by kind on the fullest device; their sum (allocated), what the allocator holds
        (reserved), what nvidia-smi shows (device), what the device must have (needed), and what it
        has (capacity)."""
        use = self.memory_use
        job = self.job
        allocated = use.total
        new = self.costs.new_blocks
        return {
            **{k: float(v) for k, v in use._asdict().items()},
            "allocated": float(allocated),
            "reserved": float(oom.reserved_bytes(job, allocated, new)),
            "device": float(oom.device_bytes(job, allocated, new)),
            "needed": float(oom.needed_bytes(job, allocated)),
            "capacity": oom.capacity(job),
        }

    @cached_property
    def memory_by_stage(self) -> dict[str, memory.MemoryUse]:
        """Bytes by kind on the first, the second (as any in the middle) and the last device of the
        pipeline; with layers of several kinds or folded, on further ranks that may be the fullest.
        """
        return {self.name_of(rank): use for rank, use in self.uses.items()}

    def name_of(self, rank: int) -> str:
        """What users call a device: "first", "last", "second" (that between them which comes first
        in `uses`), else its rank.
        """
        q = int(self.layout.pp) - 1
        between = [one for one in self.uses if 0 < one < q]
        names = {q: "last", 0: "first", **dict.fromkeys(between[:1], "second")}
        return names.get(rank, f"rank {rank}")

    @cached_property
    def peaks(self) -> dict[int, resident.Terms]:
        """Where the trainer's whole program is counted, what lives on these devices at their peaks,
        by a walk through it.
        """
        if not resident.whole_program(self.job):
            return {}
        return resident.peaks(self.job, self.layout)

    @property
    def risk_of_oom(self) -> float:
        """Probability that the fullest device runs out of memory; 0 or 1 under a paper's set, which
        knows no risk.
        """
        return float(oom.risk(self.job, self.memory_use.total))

    @property
    def fits(self) -> bool:
        """The fullest device has room: the risk that it has not is within the headroom."""
        return bool(oom.fits(self.job, self.memory_use.total))

    @property
    def idle(self) -> str:
        """The sentence on chips that the layout leaves idle; empty if there are none."""
        chips = self.job.cluster.chips
        idle = chips - self.layout.chips
        verb = "is" if idle == 1 else "are"
        return f"{int(idle)} of {chips} chips {verb} idle" if idle else ""

    @property
    def tokens_per_s(self) -> float:
        return self.job.batch_tokens / self.step_time_s

    @property
    def tokens_per_s_per_chip(self) -> float:
        return self.tokens_per_s / self.job.cluster.chips

    @property
    def model_flops_per_s_per_chip(self) -> float:
        """Model FLOP/s: the work of the model itself (attention uncut by the mask, nothing
        recomputed) over the step time.
        """
        return (
            model_flops(self.job.model, self.job.T)
            * self.tokens_per_s_per_chip
        )

    @property
    def mfu(self) -> float:
        """Model FLOP/s over the chip's dense peak in the compute precision (Chowdhery et al.
        2022).
        """
        return self.model_flops_per_s_per_chip / self.job.cluster.chip.peak(
            self.job.precision.compute
        )

    @property
    def hfu(self) -> float:
        """FLOP/s that kernels execute over the same peak: the causal half, and what is computed
        again (Chowdhery et al. 2022).
        """
        chip = self.job.cluster.chip
        chips = self.job.cluster.chips
        return self.executed_flops / (
            self.step_time_s * chips * chip.peak(self.job.precision.compute)
        )

    @property
    def executed_flops(self) -> float:
        """FLOPs of the matrix products of a step, on all chips together."""
        job = self.job
        text = self.layout.recompute
        kernel = "flash" if job.fused_attention else "unfused"
        some = float(self.shares.recompute_share(text))
        return job.batch * executed_flops(
            job.model,
            job.T,
            job.how.count,
            kernel=kernel,
            recompute=text,
            share=some,
        )
