"""A prediction: the time, memory and cost of a step as a tree of terms that adds up, each with its formula and source."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any

from . import memory, rules
from .cost.layer import Seconds, Timer
from .count import vocabulary
from .count.model import MODEL_FLOPS, groups, layer, model_flops, next_token, operations, parameters
from .count.work import Op
from .schedule import get as schedule_named
from .schedule.types import Schedule
from .spec.job import Job
from .spec.layout import Layout, placed
from .step import Body, Step, body, clock, microbatches, pick, shares, slowest, step, total

LBL_SOURCE = "Subramanian et al. 2024, arXiv 2410.00273"


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


@dataclass(frozen=True)
class Prediction:
    """What a step of a job takes under a layout. Seconds and bytes are those of the slowest and of the fullest device."""

    job: Job
    layout: Layout
    notes: tuple[str, ...] = ()

    @cached_property
    def _schedule(self) -> Schedule:
        return schedule_named(self.layout.schedule)

    @cached_property
    def _body(self) -> Body:
        return body(self.job, self.layout, details=True)

    @cached_property
    def _step(self) -> Step:
        return step(self.job, self.layout, self._body)

    @cached_property
    def time_s(self) -> dict[str, float]:
        """Seconds by cause; they add up to the step time."""
        pipe = self._step.pipeline
        busy: Seconds = pipe.busy
        return {
            "compute": float(busy.compute), "memory": float(busy.memory), "tp_comm": float(busy.tp_comm), "cp_comm": float(busy.cp_comm),
            "ep_comm": float(busy.ep_comm), "pp_comm": float(pipe.sends), "dp_comm": float(self._step.sync),
            "bubble": float(pipe.bubble), "optimizer": float(self._step.update), "other": 0.0,
        }  # fmt: skip

    @cached_property
    def step_time_s(self) -> float:
        """Seconds of one optimizer step."""
        return sum(self.time_s.values())

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Where eight of ten published runs lie around what this assumption set predicts for them; None without such evidence."""
        found = evidence().get(self.job.assumptions.name)
        return (self.step_time_s * found["low"], self.step_time_s * found["high"]) if found else None

    @cached_property
    def memory_use(self) -> memory.Use:
        """Bytes by kind on the fullest device."""
        return memory.use(self.job, self.layout, self._body, self._schedule)

    @property
    def memory_bytes(self) -> dict[str, float]:
        """Bytes by kind on the fullest device, their total and what the chip can allocate."""
        use = self.memory_use
        return {
            **{k: float(v) for k, v in use._asdict().items()},
            "total": float(use.total),
            "capacity": memory.capacity(self.job),
        }

    @property
    def fits(self) -> bool:
        """The fullest device has room."""
        return bool(rules.fits(self.job, self.memory_use.total))

    @property
    def microbatches(self) -> int:
        """m, of one replica and step."""
        return int(microbatches(self.job, self.layout))

    @property
    def tokens_per_s(self) -> float:
        return self.job.batch_tokens / self.step_time_s

    @property
    def tokens_per_s_per_chip(self) -> float:
        return self.tokens_per_s / self.job.cluster.chips

    @property
    def model_flops_per_s_per_chip(self) -> float:
        """Model FLOP/s: the work of the model itself (attention uncut by the mask, nothing recomputed) over the step time."""
        return model_flops(self.job.model, self.job.T) * self.tokens_per_s_per_chip

    @property
    def mfu(self) -> float:
        """Model FLOP/s over the chip's dense peak in the compute precision (Chowdhery et al. 2022)."""
        return self.model_flops_per_s_per_chip / self.job.cluster.chip.peak(self.job.precision.compute)

    @property
    def hfu(self) -> float:
        """As mfu, with the FLOPs of recomputation counted too."""
        return self.mfu * (1 + self._recomputed_share)

    @cached_property
    def _recomputed_share(self) -> float:
        """FLOPs computed again over model FLOPs."""
        if self.layout.recompute == "none":
            return 0.0
        full = self.layout.recompute == "full"
        fused = self.job.attention_kernel == "flash"
        again = sum(
            float(op.forward.matrix) * n
            for op, n in operations(replace(self.job.model, mtp_layers=0), self.job.T, MODEL_FLOPS)
            if (full and not op.name.startswith(("embedding", "head")))
            or (not full and op.kind == "attention" and not fused)
        )
        return again / (model_flops(self.job.model, self.job.T) * self.job.T)

    @property
    def train_time_s(self) -> float | None:
        """Seconds of the whole run, without failures; None if the job names no tokens."""
        return self.job.tokens / self.tokens_per_s if self.job.tokens else None

    @property
    def chip_hours(self) -> float | None:
        return None if self.train_time_s is None else self.train_time_s * self.job.cluster.chips / 3600

    @property
    def cost_usd(self) -> float | None:
        """Rent of the run; None if the price or the length is unknown."""
        price = self.job.cluster.chip.usd_per_hour
        return self.chip_hours * price if self.chip_hours is not None and price else None

    @property
    def energy_j(self) -> float | None:
        """Energy of the run with every chip at its power limit; None if unknown."""
        power = self.job.cluster.chip.power_w
        return self.train_time_s * self.job.cluster.chips * power if self.train_time_s is not None and power else None

    @cached_property
    def term(self) -> Term:
        """The step time as a tree: causes, then parts of the model, then operations."""
        return step_term(self)

    @cached_property
    def memory_by_stage(self) -> dict[str, memory.Use]:
        """Bytes by kind on the first, the second (as any in the middle) and the last device of the pipeline."""
        return memory.of_devices(self.job, self.layout, self._body, self._schedule)

    @cached_property
    def memory_term(self) -> Term:
        """The memory of the fullest device as a tree."""
        j, l, p, use = self.job, self.layout, self.job.precision, self.memory_use
        device = max(self.memory_by_stage, key=lambda end: float(self.memory_by_stage[end].total))
        flight = float(memory.in_flight(j, l, self._schedule, l.interleave, device))
        of, each = (
            memory.activations(j, l, self._body, l.recompute, shares(j, l, self._schedule, l.interleave), device),
            f"on the {device} device",
        )
        formulas = {
            "weights": f"{use.weights / p.weight_bytes:.5g} parameters {each} x {p.weight_bytes:g} B"
            + (f" (cut over {l.replicas} replicas)" if l.zero == 3 else ""),
            "gradients": f"{use.gradients / p.gradient_bytes:.5g} parameters x {p.gradient_bytes:g} B"
            + (f" (cut over {l.replicas} replicas)" if l.zero >= 2 else ""),
            "optimizer": f"{use.optimizer / j.state_bytes:.5g} parameters x {j.state_bytes:g} B"
            + (f" (cut over {l.replicas} replicas)" if l.zero else ""),
            "activations": f"{flight:g} microbatches in flight x {float(of.each):.5g} B of its layers + {float(of.once):.5g} B once",
            "buffers": f"{j.assumptions.memory.framework_bytes:.3g} B of the framework + whole units in use (ZeRO {l.zero})",
        }
        source = "Rajbhandari et al. 2020 (ZeRO); Korthikanti et al. 2022 (activations)"
        parts = tuple(Term(k, float(v), "B", formulas[k], source) for k, v in use._asdict().items())
        return Term("memory", sum(part.value for part in parts), "B", f"sum of its parts, {each}", parts=parts)

    def to_dict(self) -> dict[str, Any]:
        """The fields of `predict --json`: SI units, keys that end in their unit."""
        l = self.layout
        return {
            "model": self.job.model.name, "cluster": self.job.cluster.name or f"{self.job.cluster.chips}x{self.job.cluster.chip.name}",
            "chips": self.job.cluster.chips, "batch_sequences": self.job.batch, "seq_tokens": self.job.T, "batch_tokens": self.job.batch_tokens,
            "parameters": parameters(self.job.model), "active_parameters": parameters(self.job.model, True),
            "step_time_s": self.step_time_s, "interval_s": self.interval_s, "tokens_per_s": self.tokens_per_s,
            "tokens_per_s_per_chip": self.tokens_per_s_per_chip, "model_flops_per_s_per_chip": self.model_flops_per_s_per_chip,
            "mfu": self.mfu, "hfu": self.hfu, "time_s": self.time_s, "memory_bytes": self.memory_bytes,
            "memory_by_stage_bytes": {end: {k: float(v) for k, v in u._asdict().items()} for end, u in self.memory_by_stage.items()}, "fits": self.fits,
            "microbatches": self.microbatches, "train_time_s": self.train_time_s, "chip_hours": self.chip_hours, "cost_usd": self.cost_usd,
            "energy_j": self.energy_j, "precision": self.job.precision.compute,
            "layout": {
                "tp": l.tp, "cp": l.cp, "pp": l.pp, "dp": l.dp, "ep": l.ep, "etp": l.etp, "microbatch": l.microbatch, "interleave": l.interleave,
                "schedule": l.schedule, "zero": l.zero, "recompute": l.recompute, "sequence_parallel": l.sequence_parallel, "scheme": l.scheme,
                "panels": l.panels, "placement": {a: list(s) for a, s in l.placement.items()},
            },
            "assumptions": self.job.assumptions.name, "notes": list(self.notes),
        }  # fmt: skip


def predict(job: Job, layout: Layout | None = None) -> Prediction:
    """Predict one step of the job under its layout (or the one given).

    Raises BadInput with a sentence for each rule the layout breaks. A layout that does not fit in memory is predicted all the same: `fits` says so.
    """
    layout = layout or job.layout
    rules.demand(job, layout)
    full = placed(layout, job.cluster.sizes)
    notes = []
    if idle := job.cluster.chips - full.chips:
        notes.append(f"{idle} of {job.cluster.chips} chips are idle")
    for rule in rules.STRICT:
        if not rule.holds(job, full):
            notes.append(rule.sentence(job, full))
    prediction = Prediction(replace(job, layout=full), full, tuple(notes))
    if not prediction.fits:
        note = rules.too_big(job, prediction.memory_bytes["total"])
        return replace(prediction, notes=(*prediction.notes, note))
    return prediction


@cache
def evidence() -> dict[str, dict[str, Any]]:
    """assumption set -> how measured step times compare with its predictions (catalog/evidence.toml, written by `validate`)."""
    text = (resources.files("meshwright.catalog") / "evidence.toml").read_text("utf-8")
    return tomllib.loads(text)


def step_term(p: Prediction) -> Term:
    """The tree behind `Prediction.term`."""
    job, layout, m = p.job, p.layout, p.microbatches
    causes = _busy_terms(p)
    r = clock(job).rates
    chip, network = job.assumptions.chip, job.assumptions.network
    how = {
        "compute": (f"launch {r.launch_s:.3g} s + matrix FLOPs / {r.matrix:.4g} + vector FLOPs / {r.vector:.4g}, x {m} microbatches", f"chip time {chip.model!r}"),
        "memory": (f"max(bytes / {r.memory:.4g} B/s - compute, 0), x {m} microbatches", "roofline; LBL section 3.3"),
        "tp_comm": (f"collectives {network.collective!r} over tp = {layout.tp}, ranks per dimension {layout.group('tp')}", LBL_SOURCE),
        "cp_comm": (f"keys and values over cp = {layout.cp}, ranks per dimension {layout.group('cp')}", LBL_SOURCE),
        "ep_comm": (f"all-to-all over ep = {layout.ep}", "Lepikhin et al. 2020"),
        "pp_comm": (f"2 x {m} microbatches x hop of {float(p._body.boundary):.4g} B, as far as not hidden", LBL_SOURCE + ", section 3.4"),
        "dp_comm": (f"ZeRO {layout.zero} over {layout.replicas} replicas, behind {job.assumptions.overlap.dp}", LBL_SOURCE + ", section 3.4"),
        "bubble": (f"{layout.schedule}: p = {layout.pp}, m = {m}, v = {p._schedule.chunks(layout.interleave)}", p._schedule.source),
        "optimizer": ("state read and written once, or its arithmetic", "roofline"),
        "other": ("what is not explained", ""),
    }  # fmt: skip
    parts = tuple(Term(name, value, "s", *how[name], parts=causes.get(name, ())) for name, value in p.time_s.items())
    return Term("step_time", p.step_time_s, "s", "sum of its parts, on the device the pipeline waits for", parts=parts)


def _busy_terms(p: Prediction) -> dict[str, tuple[Term, ...]]:
    """Per cause, the operations of the slowest device with their seconds in a whole step."""
    timer = Timer(clock(p.job), p.layout)
    found: dict[str, list[Term]] = {}
    for label, times, ops, again in _device(p):
        for op in ops:
            halves = [
                ("forward", timer.half(op, op.forward), op.forward),
                ("backward", timer.half(op, op.backward), op.backward),
            ]
            if again == "full" or (again == "selective" and op.selective):
                halves.append(("recomputed", halves[0][1], op.forward))
            for direction, seconds, work in halves:
                for cause in Seconds.__slots__:
                    value = float(getattr(seconds, cause)) * times * p.microbatches
                    if value:
                        note = f"{work.matrix:.4g} matrix FLOPs, {work.vector:.4g} vector FLOPs, {work.memory:.4g} B" if cause in ("compute", "memory") else ", ".join(
                            f"{c.kind} of {float(c.bytes):.4g} B over {c.axis}" for c in work.comm)  # fmt: skip
                        found.setdefault(cause, []).append(
                            Term(
                                f"{label}/{op.name} {direction}",
                                value,
                                "s",
                                f"{note}; x {times:g} layers x {p.microbatches} microbatches",
                            )
                        )
    return {cause: tuple(terms) for cause, terms in found.items()}


def _device(p: Prediction) -> Iterator[tuple[str, float, list[Op], str]]:
    """What the slowest device holds: (label, how often per microbatch, operations, recomputation)."""
    job, layout = p.job, p.layout
    by = shares(job, layout, p._schedule, layout.interleave)
    seconds = {
        k: total(share.of(p._body, lambda c: c.forward)) + total(share.back(p._body, layout.recompute))
        for k, share in by.items()
    }
    names = {k: i for i, k in enumerate(by)}
    share = by[list(names)[int(pick(slowest(layout, seconds), {k: float(i) for k, i in names.items()}))]]
    lead, rest = groups(job.model)
    for label, times, kinds in (("layers", share.typical, rest), ("leading layers", share.leading, lead)):
        count = sum(n for _, n in kinds)
        for kind, n in kinds:
            if times:
                yield label, float(times) * n / count, layer(job, layout, kind), layout.recompute
    if share.embedding:
        yield "embedding", 1.0, vocabulary.embedding(job, layout), "none"
    if share.head:
        yield "head", 1.0, vocabulary.head(job, layout), "none"
        if extra := job.model.mtp_layers:
            yield "multi-token prediction", float(extra), next_token(job, layout), "none"
