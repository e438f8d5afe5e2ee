"""What a prediction explains: terms that add up, each with its formula, the numbers put in and the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cost.chip import told as compute_told
from ..cost.layer import CAUSES, LayerCost
from ..cost.network import told as comm_told
from ..count.megatron import FP32
from ..count.work import Pass
from ..describe.frozen import shown
from ..program import resident
from ..step import barrier, exposed, memory, pick, shares, slowest, total, units

if TYPE_CHECKING:
    from .prediction import Prediction


@dataclass(frozen=True)
class Term:
    """A named number that is the sum of its parts (if it has any)."""

    name: str
    value: float
    unit: str
    formula: str = ""
    """How it was computed, with the numbers put in."""
    source: str = ""
    parts: tuple[Term, ...] = ()

    __repr__ = shown

    def find(self, path: str) -> Term | None:
        """The term at a path such as "compute/ffn/up", below this one."""
        for part in self.parts:
            if path == part.name:
                return part
            if path.startswith(part.name + "/") and (found := part.find(path[len(part.name) + 1 :])):
                return found
        return None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Term]]:
        """This term and all below it, with their depth."""
        yield depth, self
        for part in self.parts:
            yield from part.walk(depth + 1)


def step_term(p: Prediction) -> Term:
    """The tree behind `Prediction.term`."""
    job, layout, m = p.job, p.layout, p.microbatches
    causes = _busy_terms(p) | _after_terms(p)
    at = p._clock
    r, hop = at.rates, job.how.network.hop
    arithmetic, traffic, chip = compute_told(job.how.chip, r)
    algorithm, network = comm_told(at.fabric)
    how = {
        "compute": (f"{arithmetic}, x {m} microbatches", chip),
        "memory": (f"{traffic}, x {m} microbatches", chip),
        "tp_comm": (f"collectives over tp = {layout.tp}, ranks per dimension {layout.group('tp')}: {algorithm}", network),
        "cp_comm": (f"keys and values over cp = {layout.cp}, ranks per dimension {layout.group('cp')}: {algorithm}", network),
        "ep_comm": (f"all-to-all over ep = {layout.ep}: {algorithm}", f"experts: Lepikhin et al. 2020; {network}"),
        "pp_comm": (f"2 x {m} microbatches x hop of {float(p._body.message):.4g} B ({hop} of the links), as far as not hidden: {algorithm}", network),
        "dp_comm": (f"{_dp_formula(p)}: {algorithm}", network),
        "bubble": (f"{layout.schedule}: p = {layout.pp}, m = {m}, v = {p._schedule.chunks(layout.interleave)}{_in_a_run(p)}", p._schedule.source),
        "optimizer": (f"{_updated(p):.5g} parameters: the slower of their arithmetic and {job.state_bytes:g} B of state read and written, at {r.memory:.4g} B/s", chip),
        "other": ("what is not explained", ""),
    }  # fmt: skip
    parts = tuple(
        Term(name, value, "s", *how[name], parts=tuple(causes.get(name, ()))) for name, value in p.time_s.items()
    )
    return Term("step_time", p.step_time_s, "s", "sum of its parts, on the device the pipeline waits for", parts=parts)


def _in_a_run(p: Prediction) -> str:
    """Whether the bubble is that of a step by itself, where it matters."""
    if p._schedule.bubble_in_run is None:
        return ""
    return ", of a step by itself" if barrier(p.job) else ", in a run of steps that begin rank by rank"


def _dp_formula(p: Prediction) -> str:
    """The collectives of one layer and what they hide behind."""
    layout, t, how = p.layout, p._body.typical, p.job.how.overlap.dp
    each = units(p.job, layout, p._body, (layout.zero,), p._clock).typical
    what = (
        f"all-reduce {float(each.all_reduce.seconds):.3g} s"
        if not layout.zero
        else f"gather {float(each.gather.seconds):.3g} s, scatter {float(each.scatter.seconds):.3g} s"
    )
    hide = f"forward {float(total(t.forward)):.3g} s, backward {float(total(t.backward)):.3g} s"
    exposed = "; the first layer to arrive, the last to leave, embedding and head are exposed"
    return (
        f"ZeRO {layout.zero} over {layout.replicas} replicas: {what} a layer beside {hide} of it; scope {how.scope}, "
        f"links {how.links}{'' if how.scope == 'layer' else exposed}"
    )


def _updated(p: Prediction) -> float:
    """Parameters the busiest device updates."""
    return float(p.memory_use.optimizer) / p.job.state_bytes


OVERLAPPED = {"tp_comm": "tp", "cp_comm": "cp", "ep_comm": "ep"}
"""Cause -> its field of `Overlap`."""


def _busy_terms(p: Prediction) -> dict[str, list[Term]]:
    """Per cause, the operations of the slowest device with their seconds in a whole step, and what of them hides."""
    found: dict[str, list[Term]] = {}
    for label, share, cost, recompute in _device(p):
        for op, forward, backward, times in cost.operations:
            halves = [("forward", forward.time, op.forward), ("backward", backward.time, op.backward)]
            if recompute == "full" or (recompute == "selective" and op.selective):
                halves.append(("recomputed", forward.time, op.forward))
            often = float(share * times)
            for direction, seconds, work in halves:
                name = f"{label}/{op.name} {direction}"
                for cause in CAUSES:
                    value = getattr(seconds, cause)
                    if value:
                        formula = f"{_counted(cause, work)}; x {often:g} layers x {p.microbatches} microbatches"
                        whole = float(value) * often * p.microbatches
                        found.setdefault(cause, []).append(Term(name, whole, "s", formula))
    for cause, field in OVERLAPPED.items():
        hidden = p.time_s[cause] - sum(term.value for term in found.get(cause, ()))
        if hidden < -1e-12 * p.step_time_s:
            how = getattr(p.job.how.overlap, field)
            formula = f"within its {how.scope}, up to {how.share:g} of it"
            found[cause].append(Term("hidden behind compute", hidden, "s", formula))
    return found


def _counted(cause: str, work: Pass) -> str:
    """What of an operation takes the time."""
    if cause in ("compute", "memory"):
        return f"{work.matrix:.4g} matrix FLOPs, {work.vector:.4g} vector FLOPs, {work.memory:.4g} B"
    return ", ".join(f"{c.kind} of {float(c.bytes):.4g} B over {c.axis}" for c in work.comm)


def _device(p: Prediction) -> Iterator[tuple[str, float, LayerCost, str]]:
    """What the slowest device holds: (label, how often per microbatch, costs, recomputation)."""
    layout, parts = p.layout, p._body
    by = shares(p.job, layout, p._schedule, layout.interleave)
    seconds = {
        k: total(share.of(parts, lambda c: c.forward)) + total(share.back(parts, layout.recompute))
        for k, share in by.items()
    }
    names = {k: i for i, k in enumerate(by)}
    share = by[list(names)[int(pick(slowest(layout, seconds), {k: float(i) for k, i in names.items()}))]]
    costs = (parts.typical, parts.leading, parts.embedding, parts.head)
    labels = ("layers", "leading layers", "embedding", "head")
    for label, often, cost in zip(labels, share, costs, strict=True):
        if often:
            yield label, float(often), cost, layout.recompute if "layers" in label else "none"


def _after_terms(p: Prediction) -> dict[str, list[Term]]:
    """Parts of what follows or interrupts the microbatches: sends, synchronisation."""
    found, how = p._step, p.job.how.overlap.dp
    device = found.devices[found.awaited]
    waits = exposed(device, float(p.microbatches), p.layout.zero, how)
    beside = f"beside {p.microbatches} microbatches of {float(device.forward):.3g} s forward, {float(device.backward):.3g} s backward"
    within = f"{beside}: max(T - {how.share:g} t, what full links delay), links {how.links}"
    rest = float(found.sync) - float(waits.total)
    named = (
        ("first weights", waits.arrives, "gather of a layer, embedding and head"),
        ("weights beside forward passes", waits.forward, within),
        ("weights and gradients beside backward passes", waits.backward, within),
        ("last gradients", waits.leaves, "reduction of a layer, embedding and head"),
        ("while the pipeline waits", rest if abs(rest) > 1e-12 * p.step_time_s else 0.0, "bubbles in which they run"),
    )
    sends = (
        ("stage boundaries", found.pipeline.sends, "as far as not hidden"),
        ("full links", found.waits, "bytes of the busiest dimension / its rate - the rest of the step"),
    )
    return {
        cause: [Term(name, float(value), "s", formula) for name, value, formula in parts if value]
        for cause, parts in (("dp_comm", named), ("pp_comm", sends))
    }


def program_term(p: Prediction) -> Term:
    """The memory of the fullest device as the trainer's program holds it."""
    l, use, own = p.layout, p.memory_use, resident.own_bytes(p.job)
    shards = f", cut over {l.replicas} replicas" if l.zero else ""
    formulas = {
        "weights": f"{use.weights / FP32:.5g} parameters in fp32 x {FP32:g} B{shards}",
        "gradients": f"fp32, whole until they are reduced (ZeRO {l.zero}), the embedding's for all V rows on every tp rank",
        "optimizer": f"two moments, 8 B a parameter{shards}",
        "activations": "what autograd keeps for the microbatches in flight, receive buffers, stage outputs, gradients on their way",
        "buffers": f"whole weights in the precision of the products, a unit's gradients being reduced, {own:.3g} B of the framework",
    }
    source = "program/closed: the walk of program/memory in closed form, held to the program itself by compare --oracle"
    parts = tuple(Term(k, float(v), "B", formulas[k], source) for k, v in use._asdict().items())
    return Term("memory", sum(part.value for part in parts), "B", "sum of its parts at the fullest moment", parts=parts)


def memory_term(p: Prediction) -> Term:
    """The memory of the fullest device as a tree."""
    if resident.whole_program(p.job):
        return program_term(p)
    j, l, numbers, use = p.job, p.layout, p.job.precision, p.memory_use
    device = max(p.memory_by_stage, key=lambda end: float(p.memory_by_stage[end].total))
    flight = float(memory.in_flight(l.pp, p.microbatches, p._schedule, l.interleave, device))
    heads, late = (float(n(l.pp, p.microbatches, l.interleave)) for n in (p._schedule.heads, p._schedule.heads_late))
    of, each = (
        memory.activations(j, l, p._body, l.recompute, shares(j, l, p._schedule, l.interleave), device),
        f"on the {device} device",
    )
    formulas = {
        "weights": f"{use.weights / numbers.weight_bytes:.5g} parameters {each} x {numbers.weight_bytes:g} B"
        + (f" (cut over {l.replicas} replicas)" if l.zero == 3 else ""),
        "gradients": f"{use.gradients / numbers.gradient_bytes:.5g} parameters x {numbers.gradient_bytes:g} B"
        + (f" (cut over {l.replicas} replicas)" if l.zero >= 2 else ""),
        "optimizer": f"{use.optimizer / j.state_bytes:.5g} parameters x {j.state_bytes:g} B"
        + (f" (cut over {l.replicas} replicas)" if l.zero else ""),
        "activations": f"{flight:g} microbatches in flight x {float(of.each):.5g} B of its layers"
        + (f" + {heads:g} of the head x {float(of.head):.5g} B" if of.head else "")
        + (f" + {late:g} that wait for its weights' gradient x {float(of.late):.5g} B" if of.head and late else "")
        + f" + {float(of.once):.5g} B once",
        "buffers": f"{resident.own_bytes(j):.3g} B of the framework + whole units in use (ZeRO {l.zero})",
    }
    source = "Rajbhandari et al. 2020 (ZeRO); Korthikanti et al. 2022 (activations)"
    parts = tuple(Term(k, float(v), "B", formulas[k], source) for k, v in use._asdict().items())
    return Term("memory", sum(part.value for part in parts), "B", f"sum of its parts, {each}", parts=parts)
