"""One row a scheme: the whole mesh used for DP, FSDP, TP, a mixture, pipeline stages, pods, context or experts alone.

Each row shows the pass that binds (DP and pods communicate in the backward pass only; TP, FSDP and mixtures are
tightest in the forward pass) and the smallest batch that is compute-bound. Source: How To Scale Your Model, parts 5
and 12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..cost import torus
from ..count.work import Message
from ..errors import BadInput
from ..num import Num, minimum
from ..schedule import get as schedule_named
from .mesh import Mesh, Placed, between_pods, everything, ideal, loads, place
from .splits import Split
from .thresholds import crossing
from .times import Setting, Times, backward, forward, weights_backward

ALONE = ideal(1, 1.0)
"""A mesh axis of one chip."""
POINTS = 49
"""Batches of a curve."""


class Curve(NamedTuple):
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
    least_batch_sum_tokens: float | None
    """Tokens of all pods from which the pass is compute-bound; None = never."""
    least_batch_max_tokens: float | None
    memory_bytes: float
    """On one chip: 10 bytes a parameter (no gradients, no master weights) and one checkpoint a layer."""
    curve: Curve
    note: str = ""

    def compute_bound(self, edition: str) -> bool:
        """T_math is at least T_comms under edition sum or max."""
        return self.compute_s >= (self.comm_sum_s if edition == "sum" else self.comm_max_s)

    def to_dict(self) -> dict[str, Any]:
        bound = {f"compute_bound_{e}": self.compute_bound(e) for e in ("sum", "max")}
        return {**asdict(self), "curve": self.curve._asdict(), **bound}


Evaluate = Callable[[Num], Times]
"""Tokens of all pods -> seconds."""


def scheme(
    name: str, degrees: str, binds: str, at: Evaluate, batch: float, memory_bytes: float, note: str = ""
) -> Scheme:
    """The row of a scheme at one batch, with its thresholds."""
    t = at(batch)

    def threshold(edition: str) -> float | None:
        return crossing(lambda b: float(at(b).compute - at(b).comm(edition)))

    return Scheme(
        name,
        degrees,
        binds,
        float(t.compute),
        float(t.comm("sum")),
        float(t.comm("max")),
        threshold("sum"),
        threshold("max"),
        memory_bytes,
        curve(at, batch),
        note,
    )


def curve(at: Evaluate, batch: float) -> Curve:
    """Times from a thousandth to a thousand times the batch."""
    import numpy as np

    batches = batch * np.geomspace(1e-3, 1e3, POINTS)
    t = at(batches)
    lines = (t.compute, t.comm("sum"), t.comm("max"))
    return Curve(tuple(batches.tolist()), *(tuple(np.broadcast_to(x, batches.shape).tolist()) for x in lines))


def data_parallel(setting: Setting, mesh: Mesh, batch: float, memory: float) -> Scheme:
    """DP over all chips of a pod: gradients all-reduced in the backward pass."""
    group = everything(mesh)
    return scheme(
        "DP", f"X = {mesh.chips}", "backward",
        lambda b: backward(setting, mesh, b / mesh.pods, group, ALONE, zero=0), batch, memory,
        "weights and optimizer state on every chip",
    )  # fmt: skip


def sharded_data_parallel(setting: Setting, mesh: Mesh, batch: float, memory: float) -> Scheme:
    """FSDP over all chips of a pod: weights gathered just in time."""
    group = everything(mesh)
    return scheme(
        "FSDP", f"X = {mesh.chips}", "forward",
        lambda b: forward(setting, mesh, b / mesh.pods, group, ALONE), batch, memory,
    )  # fmt: skip


def tensor_parallel(setting: Setting, mesh: Mesh, batch: float, memory: float) -> Scheme:
    """TP over all chips of a pod, whether or not shards come out whole."""
    group = everything(mesh)
    return scheme(
        "TP", f"Y = {mesh.chips}", "forward",
        lambda b: forward(setting, mesh, b / mesh.pods, ALONE, group), batch, memory,
        "its ratio does not depend on the batch",
    )  # fmt: skip


def mixed(split: Split, edition: str, pods: int, memory: float) -> Scheme:
    """FSDP and TP on the real axes, best for an edition."""
    return scheme(
        f"FSDP+TP, best {edition}", f"X = {split.x}, Y = {split.y}", "forward",
        lambda b: forward(split.setting, split.mesh, b / pods, split.data, split.tensor), split.batch * pods, memory,
        split.text,
    )  # fmt: skip


def across_pods(setting: Setting, mesh: Mesh, batch: float, memory: float) -> Scheme:
    """DP between pods: every chip all-reduces its shard of the gradients with its counterparts."""
    group, width = between_pods(mesh), len(mesh.dims) + 1

    def at(b: Num) -> Times:
        one = setting.work(b / (mesh.pods * mesh.chips))
        (message,) = weights_backward(setting, one.weights / mesh.chips, zero=0)
        return Times(
            one.backward / mesh.flops, tuple(loads(message, group, 0, width, mesh.whole)), (0.0,) * (width + 2)
        )

    return scheme(
        "DP across pods", f"{mesh.pods} pods", "backward", at, batch, memory, "beside FSDP or TP inside a pod"
    )


def pipeline(setting: Setting, mesh: Mesh, batch: float, memory: float, stages: int, microbatches: int) -> Scheme:
    """All layers in `stages` stages: one chip's activations of a microbatch pass N_mb + N_stages - 2 hops.

    Idle stages are no communication: the note says how long the bubble of 1F1B is.
    """
    m = setting.model
    chips = mesh.chips * mesh.pods / stages

    def at(b: Num) -> Times:
        tokens = b / chips / microbatches
        one = setting.work(tokens)
        share = m.layers / stages
        compute = share * one.forward / mesh.flops
        hop = torus.send(tokens * m.hidden * setting.precision.activation_bytes, everything(mesh).span[-1][:1])
        return Times(microbatches * compute, ((microbatches + stages - 2) * hop,), (0.0,))

    bubble = float(schedule_named("1f1b").bubble(stages, microbatches, 1, 1.0, 0.0, 0.0)) / microbatches
    return scheme(
        "pipeline", f"{stages} stages, {microbatches} microbatches", "forward", at, batch, memory,
        f"whole model; the bubble adds {bubble:.0%} of idle time",
    )  # fmt: skip


def context_parallel(setting: Setting, mesh: Mesh, batch: float, memory: float, degree: int) -> Scheme:
    """Attention of one layer with each sequence cut over a ring of chips: keys and values travel once round it.

    Bound by the length: (T/c) H/K FLOPs for each byte, c chips a sequence (attention without causal saving).
    """
    whole, group = (
        Setting(setting.model, "block", setting.precision, setting.assumptions, setting.seq),
        _ring(mesh, degree),
    )
    chips = mesh.chips * mesh.pods

    def at(b: Num) -> Times:
        block = whole.work(b / chips, cp=degree)
        rest = Setting(whole.model, "projections", whole.precision, whole.assumptions, whole.seq).work(
            b / chips, cp=degree
        )
        total: list[Num] = [0.0] * (len(mesh.dims) + 4)
        for message in (m for m in block.sends if m.axis == "cp"):
            total = [
                x + y for x, y in zip(total, loads(message, group, 0, len(mesh.dims) + 2, mesh.whole), strict=True)
            ]
        return Times((block.forward - rest.forward) / mesh.flops, tuple(total), (0.0,) * len(total))

    return scheme(
        "context",
        f"c = {degree}",
        "forward",
        at,
        batch,
        memory,
        "attention scores against the exchange of keys and values",
    )


def expert_parallel(setting: Setting, mesh: Mesh, batch: float, memory: float, degree: int) -> Scheme:
    """Experts spread over `degree` chips: two all-to-alls a pass against the products of the experts.

    A token goes to a node once, however many of its k experts live there: min(k, nodes) copies cross node borders.
    """
    moe, group = setting.model.moe, _near(mesh, degree)
    assert moe is not None
    sizes = torus.members(group.span)
    units = degree if mesh.torus or len(sizes) == 1 else max(1, degree // sizes[0])
    copies = minimum(moe.top_k, units) / moe.top_k if units > 1 else 1.0

    def at(b: Num) -> Times:
        one = setting.work(b / (mesh.chips * mesh.pods), ep=degree)
        width = len(mesh.dims) + 2
        total: list[Num] = [0.0] * (width + 2)
        for m in (m for m in one.sends if m.axis == "ep"):
            sent = Message(m.kind, m.axis, m.bytes * copies)
            total = [x + y for x, y in zip(total, loads(sent, group, 0, width, mesh.whole), strict=True)]
        return Times(one.forward / mesh.flops, tuple(total), (0.0,) * len(total))

    return scheme(
        "expert",
        f"E over {degree}",
        "forward",
        at,
        batch,
        memory,
        "balanced routing; expert products against two all-to-alls",
    )


def nearest(mesh: Mesh) -> int:
    """The nearest dimension that has more than one chip."""
    return next((i for i, n in enumerate(mesh.shape) if n > 1), 0)


def _ring(mesh: Mesh, degree: int) -> Placed:
    """`degree` chips in a row on the nearest dimension, at the rate of one direction; BadInput if it is shorter."""
    i = nearest(mesh)
    dim, size = mesh.dims[i], mesh.shape[i]
    if degree > size:
        raise BadInput(f"context {degree} is more than the {size} chips of {dim.name}; a ring lies on one dimension")
    part = torus.axis(dim, degree, efficiency=mesh.how.efficiency)
    both = dim.kind == "ring" and degree == size
    return Placed(((part._replace(rate=part.rate / 2 if both else part.rate),),), ((i,),))


def _near(mesh: Mesh, degree: int) -> Placed:
    """The nearest `degree` chips, whole dimensions first; BadInput if they make no box."""
    left, share = degree, []
    for n in mesh.shape:
        here = next(d for d in range(min(n, left), 0, -1) if n % d == 0 and left % d == 0)
        share.append(here)
        left //= here
    if left > 1:
        shape = " x ".join(map(str, mesh.shape))
        raise BadInput(f"experts {degree} make no box of whole parts of {shape} chips")
    return place(mesh, share, [True] * len(share))
