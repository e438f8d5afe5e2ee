"""One row a scheme: the whole mesh used for DP, FSDP, TP, a mixture, pipeline stages, pods, context
or experts alone.

Each row shows the pass that binds (DP and pods communicate in the backward pass only; TP, FSDP and
mixtures are tightest in the forward pass) and the smallest batch that is compute-bound. Source: How
To Scale Your Model, parts 5 and 12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ..cost.load import Load
from ..count.microbatch import DeviceMicrobatch
from ..count.model import parameters
from ..describe.frozen import put
from ..num import Num, minimum
from ..schedule import get as schedule_named
from .memory import checkpoints, per_chip
from .mesh import box, farthest, ring
from .splits import Split
from .times import (
    Asked,
    LayerStep,
    RooflinePasses,
    Times,
    bound_from,
    chip_seconds,
    layer_step,
)
from .work import SCORES

POINTS = 49
"""Batches of a curve."""
WHOLE = ("DP", "FSDP", "TP", "FSDP+TP")
"""Schemes that use the mesh for a whole layer; other rows stand beside one of these."""


@dataclass(frozen=True)
class SchemeCurve:
    """Times of a scheme at batches around the one asked for."""

    batch_tokens: tuple[float, ...]
    compute_s: tuple[float, ...]
    comm_sum_s: tuple[float, ...]
    comm_max_s: tuple[float, ...]


@dataclass(frozen=True)
class Scheme:
    """A way to use the mesh, for one batch."""

    name: str
    degrees: str
    """How many chips work on what."""
    binds: str
    """forward, backward or step: the pass shown."""
    compute_s: float
    comm_sum_s: float
    """Communication, collectives of different mesh axes one after the other."""
    comm_max_s: float
    """The same beside each other."""
    step_s: float
    """Both passes as the assumption set overlaps them: what `predict` says of one such layer."""
    least_batch_sum_tokens: float | None
    """Tokens of all pods from which the pass is compute-bound; None = never."""
    least_batch_max_tokens: float | None
    memory_bytes: float
    """On one chip: 10 bytes a parameter (no gradients, no master weights) and one checkpoint a
    layer.
    """
    curve: SchemeCurve
    note: str = ""
    dp: int = 1
    """Chips among which the sequences of all pods are dealt."""

    def compute_bound(self, edition: str) -> bool:
        """T_math is at least T_comms under edition sum or max."""
        return self.compute_s >= (
            self.comm_sum_s if edition == "sum" else self.comm_max_s
        )

    def bound_at(self, tokens: float, edition: str) -> bool:
        """Whether a pass of so many tokens is compute-bound under that edition."""
        least = (
            self.least_batch_sum_tokens
            if edition == "sum"
            else self.least_batch_max_tokens
        )
        return least is not None and tokens >= least

    def microbatches(self, kept: float, capacity: float) -> int:
        """The fewest microbatches, their gradients added up, whose checkpoints a chip has room for;
        0 = not even the states have room. kept: bytes of checkpoints of the whole batch on a chip.
        """
        room = capacity - (self.memory_bytes - kept)
        return max(1, math.ceil(kept / room)) if room > 0.0 else 0

    @property
    def whole(self) -> bool:
        """It says what all messages of a layer are, and not only those of a ring or a stage."""
        return self.name.partition(",")[0] in WHOLE

    @property
    def edition(self) -> str:
        """The edition that its split is best for; sum where both have the same."""
        return self.name.partition(", best ")[2] or "sum"

    def to_dict(self) -> dict[str, Any]:
        bound = {
            f"compute_bound_{e}": self.compute_bound(e) for e in ("sum", "max")
        }
        return {**asdict(self), **bound}


def checkpoint_bytes(on: Asked) -> float:
    """Bytes of the batch's checkpoints on one chip."""
    model = on.setting.model
    size = on.setting.precision.activation_bytes
    whole = checkpoints(model.layers, on.batch, model.hidden, size=size)
    return float(whole / on.mesh.all_chips)


def memory(on: Asked, shards: float, habit: str = "book") -> float:
    """Bytes of one chip with states cut over so many (FSDP, TP and both: all chips; DP: 1), in a
    habit of `memory.KEPT`, and checkpoints over all chips.
    """
    size = parameters(on.setting.model)
    return float(per_chip(size, checkpoint_bytes(on), 1.0, shards, habit))


def row(
    on: Asked,
    name: str,
    degrees: str,
    binds: str,
    at: Callable[[Num], LayerStep | RooflinePasses],
    note: str = "",
    shards: float = 0.0,
    dp: int = 1,
) -> Scheme:
    """The row of a scheme, with its thresholds.  at: tokens of all pods -> seconds;  shards: 0 = a
    pod.
    """

    def shown(tokens: Num) -> Times:
        both = at(tokens)
        return both.forward if binds == "forward" else both.backward

    t = shown(on.batch)
    return Scheme(
        name=name,
        degrees=degrees,
        binds=binds,
        compute_s=float(t.compute),
        comm_sum_s=float(t.comm("sum")),
        comm_max_s=float(t.comm("max")),
        step_s=float(at(on.batch).step_s),
        least_batch_sum_tokens=bound_from(shown, "sum"),
        least_batch_max_tokens=bound_from(shown, "max"),
        memory_bytes=memory(on, shards or on.mesh.chips),
        curve=_curve(shown, on.batch),
        note=note,
        dp=dp,
    )


def _curve(at: Callable[[Num], Times], batch: float) -> SchemeCurve:
    """Times from a thousandth to a thousand times the batch."""
    import numpy as np

    batches = batch * np.geomspace(1e-3, 1e3, POINTS)
    t = at(batches)
    lines = (t.compute, t.comm("sum"), t.comm("max"))
    return SchemeCurve(
        tuple(batches.tolist()),
        *(tuple(np.broadcast_to(x, batches.shape).tolist()) for x in lines),
    )


def data_parallel(on: Asked) -> Scheme:
    """DP over all chips of a pod: gradients all-reduced in the backward pass."""
    mesh = on.mesh
    return row(
        on,
        "DP",
        f"dp {mesh.chips}",
        "backward",
        at=on.spread(mesh.all_chips, {"replicas": mesh.everything}, zero=0),
        note="weights and optimizer state on every chip",
        shards=1,
        dp=mesh.all_chips,
    )


def sharded_data_parallel(on: Asked) -> Scheme:
    """FSDP over all chips of a pod: weights gathered just in time."""
    mesh = on.mesh
    return row(
        on,
        "FSDP",
        f"dp {mesh.chips}",
        "forward",
        at=on.spread(mesh.all_chips, {"replicas": mesh.everything}),
        dp=mesh.all_chips,
    )


def tensor_parallel(on: Asked) -> Scheme:
    """TP over all chips of a pod, whether or not shards come out whole."""
    mesh = on.mesh
    return row(
        on,
        "TP",
        f"tp {mesh.chips}",
        "forward",
        at=on.spread(mesh.pods, {"tp": mesh.everything}),
        note="its ratio does not depend on the batch",
    )


def mixed(on: Asked, split: Split, edition: str) -> Scheme:
    """FSDP and TP on the real axes, best for an edition."""
    return row(
        on,
        f"FSDP+TP, best {edition}",
        f"dp {split.x}, tp {split.y}",
        "forward",
        at=split.at,
        note=split.text,
        dp=split.x * on.mesh.pods,
    )


def across_pods(on: Asked) -> Scheme:
    """DP between pods: every chip all-reduces its shard of the gradients with its counterparts."""
    mesh = on.mesh
    group = {"replicas": mesh.counterparts}
    return row(
        on,
        "DP across pods",
        f"{mesh.pods} pods",
        "backward",
        at=on.spread(mesh.all_chips, group, zero=0, shards=mesh.chips),
        note="beside FSDP or TP inside a pod",
    )


def pipeline(on: Asked, stages: int, microbatches: int) -> Scheme:
    """Layers in `stages` stages: one chip's activations of a microbatch pass N_mb + N_stages -
    2 hops.

    Idle stages are no communication: the note says how long the bubble of 1F1B is.
    """
    setting = on.setting
    mesh = on.mesh
    chips = mesh.all_chips / stages
    group = farthest(mesh, stages)
    order = schedule_named("1f1b")

    def at(b: Num) -> RooflinePasses:
        whole = layer_step(
            setting,
            mesh,
            b / chips / microbatches,
            groups={"pp": group},
            microbatches=microbatches,
            layers=setting.model.layers,
        )
        layer = whole.timer.layer(whole.ops)
        causes = layer.causes * (setting.model.layers / stages)
        hop = mesh.fabric.load(
            "send",
            DeviceMicrobatch.from_layout(
                setting.job, whole.layout
            ).stage_message,
            group,
        )
        sends = mesh.fabric.in_turn(hop * (microbatches + stages - 2))
        ahead, back = (
            Times(microbatches * chip_seconds(t), sends, Load())
            for t in causes
        )
        return RooflinePasses(ahead, back, whole.step_s)

    bubble = (
        float(order.bubble(stages, microbatches, v=1, f=1.0, i=0.0, w=0.0))
        / microbatches
    )
    return row(
        on,
        "pipeline",
        f"{stages} stages, {microbatches} microbatches",
        "forward",
        at=at,
        note=f"whole model; the bubble adds {100 * bubble:.0f} % of idle time",
        shards=mesh.all_chips,
    )


def context_parallel(on: Asked, degree: int) -> Scheme:
    """Attention of one layer with each sequence cut over a ring of chips: keys and values travel
    once round it.

    Bound by the length: (T/c) H/K FLOPs for each byte, c chips a sequence (attention without causal
    saving).
    """
    mesh = on.mesh
    scores = put("setting.layer", SCORES)(on)
    return row(
        on,
        "context",
        f"cp {degree}",
        "forward",
        at=scores.spread(mesh.all_chips, {"cp": ring(mesh, degree)}),
        note="attention scores against the exchange of keys and values",
    )


def expert_parallel(on: Asked, degree: int) -> Scheme:
    """Experts spread over `degree` chips: two all-to-alls a pass against the products of the
    experts.

    A token goes to a node once, however many of its k experts live there: min(k, nodes) copies
    cross node borders.
    """
    mesh = on.mesh
    moe = on.setting.model.moe
    group = box(mesh, degree, "experts")
    assert moe is not None
    inside = 1 if mesh.torus or len(mesh.shape) == 1 else group[0]
    # experts that stay inside a node cross no border: one unit
    units = max(1, degree // inside)
    copies = minimum(moe.top_k, units) / moe.top_k if units > 1 else 1.0
    return row(
        on,
        "expert",
        f"E over {degree}",
        "forward",
        at=on.spread(mesh.all_chips, {"ep": group}, copies=copies),
        note="balanced routing; expert products against two all-to-alls",
    )
