"""What a prediction explains: terms that add up, each with its formula, the numbers put in and the
source.

The step and its memory are computed with numbers that remember what they are sums of
(`num.Itemised`): the costs of the parts of the model and what formulas name on the way. So parts
are what the formulas made of them, whichever branch ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..cost import host
from ..cost.chip import told as compute_told
from ..cost.layer import CAUSES, LayerCost, Redo, Redone
from ..cost.network import told as comm_told
from ..count.recompute import NEVER, again
from ..describe.frozen import shown
from ..describe.layout import GRIDS
from ..describe.offload import offload
from ..describe.recompute import resolved
from ..num import Item, Itemised, Num, itemised, largest
from ..program import resident
from ..step import (
    ENDS_CALLED,
    Body,
    barrier,
    by_order,
    every_step,
    holding,
    hop,
    labels,
    pipelined,
    recomputing,
    redo,
    room,
    stages,
    updated,
)

if TYPE_CHECKING:
    from .prediction import Prediction


@dataclass(frozen=True, init=False)
class Term:
    """A named number that is the sum of its parts (if it has any)."""

    name: str
    value: float
    unit: str
    formula: str = ""
    """How it was computed, with the numbers put in."""
    source: str = ""
    parts: tuple[Term, ...] = ()

    def __init__(
        self,
        name: str,
        value: float,
        unit: str,
        formula: str = "",
        source: str = "",
        parts: tuple[Term, ...] = (),
    ) -> None:
        # all at once: a tree has hundreds of them
        self.__dict__.update(
            name=name,
            value=value,
            unit=unit,
            formula=formula,
            source=source,
            parts=parts,
        )

    __repr__ = shown

    def find(self, path: str) -> Term | None:
        """The term at a path such as "compute/ffn/up", below this one."""
        for part in self.parts:
            if path == part.name:
                return part
            if path.startswith(part.name + "/") and (
                found := part.find(path[len(part.name) + 1 :])
            ):
                return found
        return None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Term]]:
        """This term and all below it, with their depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


REST = {
    "pp_comm": "latency of sends",
    "bubble": "sends",
    "optimizer": "launch, and what every step takes",
    "buffers": "the framework's own",
}
"""Cause or kind of memory -> what of it does not grow with any part of the model."""


COSTS = {
    "forward": "forward",
    "backward": "backward",
    "weight_pass": "weight gradients",
    "saved": "activations",
    "weights": "parameters",
    "expert_weights": "parameters of experts",
}
"""Field of a `LayerCost` -> what a term calls it."""


def explained(parts: Body, called: Sequence[str]) -> Body:
    """The costs of parts as items: what a formula makes of them says how often each is in it;
    called: the layers of each kind.
    """

    def items(cost: LayerCost, label: str) -> LayerCost:
        def named_redo(redo: Redo) -> Redo:
            time = Item.called(f"{label} recomputed", redo.time)
            return redo._replace(
                time=time,
                saved=Item.called(f"{label} activations kept", redo.saved),
            )

        again = {name: named_redo(redo) for name, redo in cost.redone.items()}
        named: LayerCost = itemised(
            cost._replace(redone=Redone(again)), label, COSTS
        )
        return named

    costs: dict[str, Any] = {
        end: items(getattr(parts, end), end) for end in ENDS_CALLED
    }
    costs["layers"] = tuple(map(items, parts.layers, called))
    kept = Item.called("inputs of layers", parts.boundary)
    sent = Item.called("bytes sent", parts.message)
    return parts._replace(**costs, boundary=kept, message=sent)


def parts_of(
    value: float, x: Num, unit: str, rest: str, source: str = ""
) -> tuple[Term, ...]:
    """The items of x as terms that add up to `value`, which is x but for rounding; rest: the name
    of what is left over.
    """
    found = x.items if isinstance(x, Itemised) else {}
    parts = [
        Term(name, n * each, unit, f"{n:.6g} x {each:.6g}", source)
        for name, (n, each) in found.items()
        if name
    ]
    if "" in found or (value and not parts):
        parts.append(
            Term(
                rest,
                value - sum(part.value for part in parts),
                unit,
                "",
                source,
            )
        )
    return tuple(parts)


def step_term(p: Prediction) -> Term:
    """The tree behind `Prediction.term`."""
    job = p.job
    layout = p.layout
    parts = p._explained
    by = p._shares
    formulas = _formulas(p)
    work = recomputing(parts, layout.recompute, by.again(layout.recompute))
    send = hop(layout, parts, p._clock)
    pipe = pipelined(job, layout, stages(layout, work, by), send, refine=True)
    found: dict[str, Sequence[Term]] = {
        **_operations(p),
        "pp_comm": _sends(p, pipe.sends),
        "dp_comm": _synchronisation(p),
        "overlap_slowdown": _slowdown(p),
        "bubble": parts_of(
            p.time_s["bubble"],
            pipe.bubble,
            "s",
            REST["bubble"],
            p._schedule.source,
        ),
        "optimizer": parts_of(
            p.time_s["optimizer"],
            updated(job, layout, parts, by, p._clock),
            "s",
            REST["optimizer"],
        ),
    }
    terms = tuple(
        Term(name, value, "s", *formulas[name], tuple(found.get(name, ())))
        for name, value in p.time_s.items()
    )
    return Term(
        "step_time",
        p.step_time_s,
        "s",
        "sum of its parts, on the device the pipeline waits for",
        parts=terms,
    )


def _sends(p: Prediction, sends: Num) -> tuple[Term, ...]:
    """Of messages between stages: what the bytes take, what nothing hides, and what waits for full
    links.
    """
    step = p._step
    parts = parts_of(float(step.pipeline.sends), sends, "s", REST["pp_comm"])
    full = "bytes of the busiest dimension / its rate - the rest of the step"
    return (
        (*parts, Term("full links", float(step.waits), "s", full))
        if step.waits
        else parts
    )


def _synchronisation(p: Prediction) -> list[Term]:
    """Of weights and gradients: what does not hide on the device that ends last."""
    found = p._step
    m = float(p._schedule.rounds(p.microbatches))
    how = p.job.how.overlap.dp
    device = found.devices[found.awaited]
    waits = found.waiting[found.awaited]
    longer = found.slowdown
    beside = (
        f"beside {m:g} microbatches of {float(device.forward):.3g} s forward,"
        f" {float(device.backward):.3g} s backward"
    )
    within = f"{beside}: max(T - {how.share:g} t, what full links delay), links {how.links}"
    rest = float(found.sync - longer) - float(waits.total - waits.slowdown)
    named = (
        (
            "first weights",
            waits.arrives,
            "gather of a layer, embedding and head",
        ),
        ("weights beside forward passes", waits.forward, within),
        (
            "weights and gradients beside backward passes",
            waits.backward,
            within,
        ),
        (
            "last gradients",
            waits.leaves,
            "reduction of a layer, embedding and head",
        ),
        (
            "while the pipeline waits",
            rest if abs(rest) > 1e-12 * p.step_time_s else 0.0,
            "bubbles in which they run",
        ),
    )
    return [
        Term(name, float(value), "s", formula)
        for name, value, formula in named
        if value
    ]


def _slowdown(p: Prediction) -> list[Term]:
    """Of compute while communication hides behind it: inside layers, and beside whole passes."""
    how = p.job.how.overlap
    inside = {axis: getattr(how, axis).slow for axis in OVERLAPPED.values()}
    words = ", ".join(
        f"{slow:g} of what hides of {axis}"
        for axis, slow in inside.items()
        if slow
    )
    named = (
        (
            "collectives inside layers",
            p._busy.overlap_slowdown,
            words,
        ),
        (
            "weights and gradients",
            p._step.slowdown,
            f"{how.dp.slow:g} of what hides of them",
        ),
    )
    return [
        Term(name, float(value), "s", formula)
        for name, value, formula in named
        if value
    ]


def _formulas(p: Prediction) -> dict[str, tuple[str, str]]:
    """Cause -> (formula of the branch that ran, its source)."""
    job = p.job
    layout = p.layout
    m = p.microbatches
    at = p._clock
    arithmetic, traffic, chip = compute_told(job.how.chip, at.rates)
    algorithm, network = comm_told(at.fabric)
    hop = job.how.network.hop
    dp = job.how.overlap.dp
    ranks = {
        axis: f"{axis} = {getattr(layout, axis)}, ranks per dimension {layout.group(axis)}"
        for axis in ("tp", "cp")
    }
    cut = (
        f"{ranks['tp']}, and {ranks['cp']}"
        if layout.scheme in GRIDS
        else ranks["tp"]
    )
    sends = (
        f"sends of {float(p._body.message):.4g} B, 2 x {m} microbatches, over the {hop} of the"
        " links"
    )
    chunks = p._schedule.chunks(layout.interleave)
    order = f"{layout.schedule}: p = {layout.pp}, m = {m}, v = {chunks}{_in_a_run(p)}"
    law = (
        "its longest path without sends"
        if by_order(job)
        else "of equal stages"
    )
    updated = f"{p.memory_use.optimizer / job.state_bytes:.5g} parameters"
    return {
        "compute": (f"{arithmetic}, x {m} microbatches", chip),
        "memory": (f"{traffic}, x {m} microbatches", chip),
        "host": (
            (
                "(w^4 + h^4)^(1/4) - w of each pass of a layer: w its seconds on the device, h"
                f" those in which the host launches it, x {m} microbatches"
            ),
            host.SOURCE,
        ),
        "tp_comm": (f"collectives over {cut}: {algorithm}", network),
        "cp_comm": (
            f"keys and values over {ranks['cp']}: {algorithm}",
            network,
        ),
        "ep_comm": (
            f"all-to-all over ep = {layout.ep}: {algorithm}",
            f"experts: Lepikhin et al. 2020; {network}",
        ),
        "pp_comm": (
            (
                f"{sends}, as far as {'the order of the schedule' if by_order(job) else 'compute'}"
                f" does not hide them: {algorithm}"
            ),
            network,
        ),
        "dp_comm": (
            (
                f"ZeRO {layout.zero} over {layout.shards:g} ranks, what outlasts {dp.share:g} of"
                f" the {dp.scope}, links {dp.links}: {algorithm}"
            ),
            network,
        ),
        "bubble": (
            f"{order}; {law} - {m} microbatches on the slowest device",
            p._schedule.source,
        ),
        "overlap_slowdown": (
            "kernels of collectives take units and bandwidth from compute beside them: a share of"
            " the seconds that hide, on the device that sets the end of the step",
            p.job.profile.sources["gradient_overlap"]["source"]
            if p.job.profile
            else p.job.assumptions.source,
        ),
        "optimizer": (
            (
                f"{updated}: the slower of their arithmetic and {job.state_bytes:g} B of state read"
                f" and written, at {at.rates.memory:.4g} B/s{_each_step(p)}{_on_host(p)}"
            ),
            chip,
        ),
        "other": ("what is not explained", ""),
    }


def _on_host(p: Prediction) -> str:
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


def _each_step(p: Prediction) -> str:
    """What a step takes whatever is updated."""
    seconds = every_step(p._clock)
    return (
        f", + {seconds:.3g} s of every step of {p.job.profile.name}"
        if seconds and p.job.profile
        else ""
    )


def _in_a_run(p: Prediction) -> str:
    """Whether the bubble is that of a step by itself, where it matters."""
    if p._schedule.bubble_in_run is None:
        return ""
    return (
        ", of a step by itself"
        if barrier(p.job)
        else ", in a run of steps that begin rank by rank"
    )


OVERLAPPED = {"tp_comm": "tp", "cp_comm": "cp", "ep_comm": "ep"}
"""Cause -> its field of `Overlap`."""


def _operations(p: Prediction) -> dict[str, list[Term]]:
    """Per cause, the operations of the slowest device with their seconds in a whole step, and what
    of them hides.
    """
    found: dict[str, list[Term]] = {cause: [] for cause in CAUSES}
    m = p._schedule.rounds(p.microbatches)
    slowest = p._step.slowest
    parts = resolved(p.layout.recompute, p.job.how.count.selective)
    some = float(slowest.again(p.layout.recompute))
    for (label, cost, is_layer), often in zip(
        _parts(p), slowest.parts, strict=True
    ):
        every = cost.operations
        runs = again(
            [timed.op for timed in every], parts if is_layer else "none"
        )
        times = float(often * m)
        if times:
            recomputed = p.layout.recompute if is_layer else "none"
            found["host"] += _host(label, cost, times, recomputed, some)
        for (op, forward, backward, share), redone in (
            zip(every, runs, strict=True) if times else ()
        ):
            halves = [
                ("forward", forward.time, op.forward, 1.0),
                ("backward", backward.time, op.backward, 1.0),
            ]
            if redone is not NEVER:
                halves.append(
                    (
                        "recomputed",
                        forward.time,
                        op.forward,
                        float(redone.share) * some,
                    )
                )
            for direction, seconds, work, part_of_it in halves:
                n = times * float(share) * part_of_it
                name = f"{label}/{op.name} {direction}"
                done = f"; x {n:g} a step"
                own = (
                    f"{work.matrix:.4g} matrix FLOPs, {work.vector:.4g} vector FLOPs,"
                    f" {work.memory:.4g} B{done}"
                )
                if seconds.compute:
                    found["compute"].append(
                        Term(name, float(seconds.compute) * n, "s", own)
                    )
                if seconds.memory:
                    found["memory"].append(
                        Term(name, float(seconds.memory) * n, "s", own)
                    )
                for cause in OVERLAPPED if work.comm else ():
                    if value := getattr(seconds, cause):
                        sent = ", ".join(
                            f"{c.kind} of {float(c.bytes):.4g} B over {c.axis}"
                            for c in work.comm
                        )
                        found[cause].append(
                            Term(name, float(value) * n, "s", sent + done)
                        )
    found["memory"] += _copies(p, found["memory"])
    for cause, field in OVERLAPPED.items():
        hidden = p.time_s[cause] - sum(term.value for term in found[cause])
        if hidden < -1e-12 * p.step_time_s:
            how = getattr(p.job.how.overlap, field)
            formula = f"within its {how.scope}, up to {how.share:g} of it"
            found[cause].append(
                Term("hidden behind compute", hidden, "s", formula)
            )
    return found


def _parts(p: Prediction) -> Iterator[tuple[str, LayerCost, bool]]:
    """(name, cost, whether it is a layer) of the parts of the model."""
    for label, layer in zip(labels(p.job.model), p._body.layers, strict=True):
        yield label, layer, True
    for end in ENDS_CALLED:
        yield end, getattr(p._body, end), False


def _copies(p: Prediction, traffic: Sequence[Term]) -> Iterator[Term]:
    """Of activations to host memory and back, what outlasts the passes beside it."""
    if not offload(p.layout.offload).activations:
        return
    chip = p.job.cluster.chip
    most = largest(layer.offloaded for layer in p._body.layers)
    longer = p.time_s["memory"] - sum(term.value for term in traffic)
    if longer > 1e-12 * p.step_time_s:
        formula = (
            f"max(T, {float(most):.4g} B of a layer / ({chip.host_reached:g} x"
            f" {chip.host_bandwidth:.4g} B/s)) - T, T the seconds of either pass"
        )
        yield Term("activations to host memory and back", longer, "s", formula)


def _host(
    label: str, cost: LayerCost, times: float, recomputed: str, some: float
) -> Iterator[Term]:
    """By which launching a part of the model outlasts its kernels, pass by pass. some: share of
    layers that run again.
    """
    passes = [
        ("forward", cost.causes.forward, times),
        ("backward", cost.causes.backward, times),
    ]
    if again := redo(cost, recomputed):
        passes.append(("recomputed", again.causes, times * some))
    for direction, seconds, n in passes:
        if float(seconds.host):
            formula = f"of {float(seconds.total):.3g} s; x {n:g} a step"
            yield Term(
                f"{label} {direction}", float(seconds.host) * n, "s", formula
            )


ZERO = "Rajbhandari et al. 2020 (ZeRO)"
KINDS = {
    "weights": ("parameters x {weight_bytes:g} B", 3, ZERO),
    "gradients": ("parameters x {gradient_bytes:g} B", 2, ZERO),
    "optimizer": ("parameters x {state_bytes:g} B", 1, ZERO),
    "activations": (
        "what layers and head keep, for the microbatches in flight",
        4,
        "Korthikanti et al. 2022",
    ),
    "buffers": (
        "of the framework, and whole units in use (ZeRO {zero})",
        4,
        ZERO,
    ),
}
"""Kind of memory -> (formula, the ZeRO stage from which it is sharded, source), where layers are
counted.
"""
PROGRAM = {
    "weights": ("parameters in fp32", 1),
    "gradients": (
        (
            "fp32, whole until they are reduced (ZeRO {zero}), the embedding's for all V rows on"
            " every tp rank"
        ),
        4,
    ),
    "optimizer": ("two moments, 8 B a parameter", 1),
    "activations": (
        (
            "what autograd keeps for the microbatches in flight, receive buffers, stage outputs,"
            " gradients on their way"
        ),
        4,
    ),
    "buffers": (
        "whole weights in the precision of the products, a unit's gradients being reduced",
        4,
    ),
}
"""The same where every tensor of the trainer's program is."""
WALK = (
    "program/closed: the walk of program/memory in closed form, held to the program itself by"
    " compare --oracle"
)


ROUNDED = 1e-12
"""Shares of the memory below this are rounding."""


def memory_term(p: Prediction) -> Term:
    """The memory of the fullest device as a tree."""
    job = p.job
    layout = p.layout
    precision = p.job.precision
    whole = resident.whole_program(job)
    kinds = (
        {kind: (*told, WALK) for kind, told in PROGRAM.items()}
        if whole
        else KINDS
    )
    use = resident.use(job, layout, p._explained, p._schedule)
    device = max(
        p.memory_by_stage, key=lambda end: float(p.memory_by_stage[end].total)
    )
    numbers: Mapping[str, Any] = {
        "weight_bytes": precision.weight_bytes,
        "gradient_bytes": holding.gradient_bytes(job),
        "state_bytes": job.state_bytes,
        "zero": layout.zero,
    }

    def term(kind: str, value: float) -> Term:
        formula, stage, source = kinds.get(kind, ("", 4, ""))
        cut = (
            f", cut over {layout.shards:g} ranks"
            if layout.zero >= stage
            else ""
        )
        parts = parts_of(
            value, getattr(use, kind), "B", REST.get(kind, "constant"), source
        )
        return Term(
            kind, value, "B", formula.format(**numbers) + cut, source, parts
        )

    parts = tuple(
        term(kind, float(value))
        for kind, value in p.memory_use._asdict().items()
    )
    formula = (
        f"sum of its parts, on {device if ' ' in device else f'the {device} device'}, at its"
        " fullest moment"
    )
    if job.how.memory.risk_width:
        formula += (
            f"; runs out of memory with a probability of {p.risk_of_oom:.3g}"
        )
    parts += tuple(_outside_tensors(p))
    return Term(
        "memory", sum(part.value for part in parts), "B", formula, parts=parts
    )


def _outside_tensors(p: Prediction) -> Iterator[Term]:
    """What a device must have beside its tensors."""
    use = p.memory_bytes
    own = room.own_bytes(p.job)
    profile = p.job.profile
    unusable = use["needed"] - use["allocated"] - own
    share = f"{room.unusable(p.job):g} of the bytes of tensors, after the cache is freed"
    named = (
        ("allocator", unusable, share, "holding.allocator_need"),
        (
            "context",
            own,
            "context, kernels and communicators, outside the allocator",
            "framework_bytes",
        ),
    )
    for name, size, formula, field in named:
        if abs(size) > ROUNDED * use["needed"]:
            source = (
                profile.sources[field]["source"]
                if profile
                else p.job.assumptions.source
            )
            yield Term(
                name,
                size,
                "B",
                formula,
                source,
                (Term(name, size, "B", formula, source),),
            )
