"""The formula of each cause of a step: of the branch that ran, with the numbers put in, and its
source.
"""

from __future__ import annotations

from ..cost import host
from ..cost.chip import laws_and_source
from ..cost.network import algorithm_and_source
from ..count import optimizer
from ..describe.layout import GRIDS
from ..describe.offload import offload
from ..step import holding
from ..step.optimizer import host_seconds, quantise_seconds
from ..step.zero import is_sharded
from .result import StepResult

Formula = tuple[str, str]
"""A formula with its numbers put in, and its source."""
HOPS = {
    "each": "each over the links between its own two ranks",
    "slowest": "over the slowest of the links",
    "mean": "over the mean of the links",
}
"""What a set says of the links between stages (`NetworkTime.hop`), in words."""


def formulas(p: StepResult) -> dict[str, Formula]:
    """Cause -> (formula of the branch that ran, its source)."""
    return {
        **_passes(p),
        **_messages(p),
        "bubble": (_waiting(p), p.schedule.source),
        "overlap_slowdown": (
            "collectives take compute units and bandwidth from the kernels that they overlap"
            " with: a share of the hidden seconds, on the device that ends the step",
            p.job.profile.sources["gradient_overlap"]["source"]
            if p.job.profile
            else p.job.assumptions.source,
        ),
        "other": ("what is not explained", ""),
    }


def _passes(p: StepResult) -> dict[str, Formula]:
    """What a device computes: in its microbatches, and for its parameters."""
    job, clock, m = p.job, p.clock, p.schedule.rounds(p.microbatches)
    arithmetic, traffic, chip = laws_and_source(job.how.chip, clock.rates)
    # none under Adafactor with weights in fp32
    size = holding.parameter_bytes(job, p.layout.zero).state
    number = f"{p.memory_use.optimizer / size:.5g} " if size else "its "
    return {
        "compute": (f"{arithmetic}, x {m:g} microbatches", chip),
        "memory": (f"{traffic}, x {m:g} microbatches", chip),
        "host": (
            "(w^4 + h^4)^(1/4) - w of each pass of a layer: w its seconds on the device, h those in"
            f" which the host launches it, x {m:g} microbatches",
            host.SOURCE,
        ),
        "optimizer": (
            f"{number}parameters: the slower of their arithmetic and {_moved(p)}, at"
            f" {clock.rates.memory:.4g} B/s{_narrowed(p)}{_each_step(p)}{_on_host(p)}",
            chip,
        ),
    }


def _messages(p: StepResult) -> dict[str, Formula]:
    """What devices send."""
    job, layout, how = p.job, p.layout, p.job.how
    algorithm, network = algorithm_and_source(p.clock.fabric)
    dp = how.overlap.dp.at(int(layout.zero))
    shown = (
        "waited for"
        if dp.scope == "none"
        else f"exposed after overlapping {dp.share:g} of the {dp.scope}, links {dp.links}"
    )
    tp, cp = (
        f"{axis} = {getattr(layout, axis)}, ranks per dimension {layout.group(axis)}"
        for axis in ("tp", "cp")
    )
    both = f"{tp}, and {cp}" if layout.scheme in GRIDS else tp
    hides = (
        "the order of the schedule"
        if job.how.overlap.follows_schedule
        else "compute"
    )
    return {
        "tp_comm": (f"collectives over {both}: {algorithm}", network),
        "cp_comm": (f"keys and values over {cp}: {algorithm}", network),
        "ep_comm": (
            f"all-to-all over ep = {layout.ep}: {algorithm}",
            f"experts: Lepikhin et al. 2020; {network}",
        ),
        "pp_comm": (
            f"sends of {float(p.cost.message):.4g} B, 2 x {p.microbatches} microbatches,"
            f" {HOPS[how.network.hop]}, as far as {hides} does not hide them: {algorithm}",
            network,
        ),
        "dp_comm": (
            f"ZeRO {layout.zero} over {layout.shards:g} ranks, {shown}: {algorithm}",
            network,
        ),
    }


def _waiting(p: StepResult) -> str:
    """The bubble of the schedule."""
    layout, m = p.layout, p.microbatches
    chunks = p.schedule.chunks(layout.interleave)
    law = (
        "its longest path without sends"
        if p.job.how.overlap.follows_schedule
        else "of equal stages"
    )
    return (
        f"{layout.schedule}: p = {layout.pp}, m = {m}, v = {chunks}{_in_a_run(p)}; {law} -"
        f" {p.schedule.rounds(m):g} microbatches on the slowest device"
    )


def _moved(p: StepResult) -> str:
    """Bytes of a parameter that is updated, and how many times they are moved."""
    job = p.job
    shapes = p.clock.rates.shapes
    again = (
        f", x {shapes.how.optimizer:g} as the optimizer moves them"
        if shapes
        else ""
    )
    sharded = is_sharded(p.layout.zero, "weights")
    weight = optimizer.weight_written(job, sharded)
    written = f", {weight:g} B of weight written" if weight else ""
    return (
        f"{optimizer.update(job, 1.0, sharded).memory:g} B of each ({job.state_bytes:g} B of state"
        f" read and written, {job.gradient_bytes:g} B of gradient read twice, for its norm too"
        f"{written}{again})"
    )


def _on_host(p: StepResult) -> str:
    """What the host updates meanwhile."""
    away = offload(p.layout.offload).optimizer
    chip = p.job.cluster.chip
    return (
        f", or {away:g} of all parameters on the host, at {chip.host_memory_bandwidth:.4g} B/s,"
        f" with gradients and weights copied at {chip.host_reached:g} x {chip.host_bandwidth:.4g}"
        " B/s"
        if away
        else ""
    )


def _narrowed(p: StepResult) -> str:
    """What it takes to quantise the weights for the microbatches of a step."""
    seconds = quantise_seconds([one.whole for one in p.costs.owned], p.clock)
    return (
        f", + {float(seconds):.4g} s to quantise the device's weights once"
        if seconds
        else ""
    )


def _each_step(p: StepResult) -> str:
    """What a step takes whatever is updated."""
    seconds = host_seconds(p.job.model.layers / p.layout.pp, p.clock)
    return (
        f", + {seconds:.3g} s of every step of {p.job.profile.name}"
        if seconds and p.job.profile
        else ""
    )


def _in_a_run(p: StepResult) -> str:
    """Whether the bubble is that of a step by itself, where it matters."""
    if not p.schedule.overlaps:
        return ""
    return (
        ", of a step by itself"
        if p.job.how.overlap.has_barrier
        else ", in a run of steps that begin rank by rank"
    )
