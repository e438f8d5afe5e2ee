"""The paper's question asked of whole transformers: what it leaves out, put back, and taken out
again one at a time.

A scaling law gives width, depth, experts and batch; the model is a decoder with attention, norms,
an embedding and an output head. It is counted, timed, ordered and fitted into memory by the same
core that predicts any other job, and the search finds its best layout among all legal ones
(Megatron 1D tensor parallelism, context, pipeline, data and expert parallelism, ZeRO,
recomputation, zero-bubble schedules). Chips fail; the run restarts from checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..count.model import model_flops, parameters
from ..describe.assumptions import REALISTIC, Assumptions, Hide, HidePass
from ..describe.chip import Chip
from ..describe.cluster import Cluster
from ..describe.framework import Framework
from ..describe.frozen import put, with_path
from ..describe.job import PRECISIONS, Job, Precision
from ..describe.model import Model, MoE
from ..describe.slices import axes as torus_axes
from ..errors import NoLayout
from ..prediction.failures import Failures, Loss, loss_to_failures
from ..prediction.prediction import Prediction, predict
from ..search import Space, search, strategies
from ..units import show
from .crossing import Line, Run
from .curve import DOUBLINGS, LEAST_UTILISATION
from .happened import kept_up, near
from .laws import Law, shape
from .scenario import Scenario

HEAD = 128
"""Width of an attention head."""
VOCABULARY = 128256
"""Of Llama 3 (Grattafiori et al. 2024)."""
ENDLESS = 1e30
Progress = Callable[[str, float], None] | None
"""Gets what is being done, and which share of it (0: not known)."""
SPACE = Space(
    interleave=(2, 4, 8),
    recompute=("none", "full"),
    zero=(0, 1, 2, 3),
    sequence_parallel=(True,),
    relaxed=False,
)
"""Layouts looked at: strict, everything divides."""
WIDTHS = tuple(float(f * 2**k) for k in range(10, 17) for f in (4, 5, 6, 7))
"""4,096 to 458,752: four to an octave, with small odd factors, so that heads and shards divide."""
FINE = tuple(float(f * 2**k) for k in range(8, 15) for f in range(16, 32))
"""4,096 to 507,904: sixteen to an octave. Training grows with the sixth power of the width, so a
run is found to a third.
"""
OCTAVE = 16
MOST_CHIPS = 10**8
"""Of a cluster (`describe.cluster`)."""
LARGE = 1e12
"""Parameters whose checkpoints a number of chips is judged by."""


@dataclass(frozen=True)
class Realism:
    """What of reality is counted."""

    failures: Failures | None = Failures()
    assumptions: Assumptions = REALISTIC
    framework: Framework | None = None
    """None: the usual one on the chip."""
    precision: Precision | None = None
    """None: 16 bits, of which TPUs have bf16 alone; mixed, as whole models are trained."""
    attention: bool = True
    """Scores and values; False: a token sees only itself (projections stay)."""
    vocabulary: int = VOCABULARY
    """0 = no embedding and no output head."""
    space: Space = SPACE

    def numbers(self, chip: Chip) -> Precision:
        """Those of a run on the chip."""
        usual = "fp16" if "fp16" in chip.matrix_flops else "bf16"
        return self.precision or PRECISIONS[usual]

    def goodput(self, chips: int, size: float) -> float:
        """Share of the time that failures leave a model of so many parameters."""
        if not self.failures:
            return 1.0
        return float(loss_to_failures(self.failures, chips, size).goodput)


@dataclass(frozen=True)
class RealPoint(Run):
    """A run of a transformer."""

    loss: Loss | None
    prediction: Prediction

    def to_dict(self) -> dict[str, Any]:
        return {
            **super().to_dict(),
            "failures": self.loss.to_dict() if self.loss else None,
            "prediction": self.prediction.to_dict(),
        }


@dataclass(frozen=True)
class RealCurve(Line):
    """Utilisation against training compute of transformers."""

    name: str
    threshold: float
    points: tuple[RealPoint, ...]
    reason: str = ""
    """Why the next larger one cannot be trained."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "reason": self.reason,
            "largest_flops": self.points[-1].flops if self.points else None,
            **super().to_dict(),
        }


def transformer(law: Law, D: float, real: Realism) -> Model:
    """The transformer of width D a law asks for: its blocks, experts and sequence length, heads of
    128, plain feed-forward."""
    s = shape(law, D)
    F = law.ffn_ratio * D
    moe = MoE(int(s.E), 1, int(F)) if s.E > 1 else None
    return Model(
        f"transformer of width {D:.0f}",
        int(s.L),
        int(D),
        heads=int(D) // HEAD,
        ffn=int(F),
        vocab=real.vocabulary,
        seq=int(law.seq),
        gated=False,
        window=None if real.attention else 1,
        full_every=1 if real.attention else 0,
        moe=moe,
    )


def run_of(law: Law, model: Model) -> tuple[float, float, int]:
    """FLOPs and tokens of the training that a law gives a model, and sequences of a step: with all
    parameters and FLOPs of the real thing.
    """
    # a token that sees only itself: scores as of a sequence of one
    flops = model_flops(model, 1 if model.window else 0)
    T, tokens, batch = law.training(parameters(model), flops, _experts(model))
    return T, tokens, int(batch / law.seq)


def flops_of(scenario: Scenario, real: Realism, D: float) -> float:
    """Training FLOPs of the model of width D."""
    return run_of(scenario.law, transformer(scenario.law, D, real))[0]


def _experts(model: Model) -> int:
    """Experts of a layer; 1 of a dense model."""
    return model.moe.experts if model.moe else 1


def real_curve(
    scenario: Scenario,
    real: Realism = Realism(),
    widths: Iterable[float] = WIDTHS,
    name: str = "realistic",
    progress: Progress = None,
) -> RealCurve:
    """The smallest cluster of every model, until one cannot be trained in time."""
    points: list[RealPoint] = []
    reason = ""
    for D in sorted(widths):
        if progress:
            progress(f"{name}: width {D:,.0f}", 0.0)
        run = smallest_real_cluster(scenario, real, D)
        if isinstance(run, str):
            reason = run
            break
        if run.utilisation < LEAST_UTILISATION:
            break
        points.append(run)
    return RealCurve(name, scenario.threshold, tuple(points), reason)


def smallest_for(
    scenario: Scenario, real: Realism, flops: float, progress: Progress = None
) -> RealPoint:
    """The smallest cluster for the first model of `FINE` whose run takes at least so many FLOPs.
    Raises NoLayout, with the largest run that there is, if no cluster does it in time.
    """
    enough = (D for D in FINE if flops_of(scenario, real, D) >= flops)
    D = next(enough, None)
    run = (
        smallest_real_cluster(scenario, real, D)
        if D
        else "the law has no model that large"
    )
    if D and isinstance(run, RealPoint):
        return with_fewer_chips(scenario, real, D, run)
    if isinstance(run, str):
        most = (
            widest(scenario, real, MOST_CHIPS, widths=FINE, progress=progress)
            if real.failures
            else None
        )
        if most and most.flops >= flops:  # on chips between two doublings
            return most
        instead = (
            f"; the largest is {most.flops:.1e} FLOP on {most.chips:,} chips, and more chips"
            f" fail more often (--restart 1min or --months 6 moves it){larger(scenario, most)}"
            if most
            else f": {run}"
        )
        raise NoLayout(
            f"no number of chips makes a run of {flops:.3g} FLOP in"
            f" {show(scenario.duration_s, 's')} with everything counted{instead}"
        )
    return run


def with_fewer_chips(
    scenario: Scenario, real: Realism, D: float, run: RealPoint
) -> RealPoint:
    """The run on the fewest chips that can make it, between half of its own and them, in small odd
    multiples of powers of two.
    """
    unit = _experts(transformer(scenario.law, D, real))
    for chips in numbers_of_chips(scenario, run.chips):
        if run.chips < 2 * chips < 2 * run.chips and chips % unit == 0:
            fewer = run_on(scenario, real, D, chips)
            if isinstance(fewer, RealPoint):
                return fewer
    return run


def larger(scenario: Scenario, most: RealPoint) -> str:
    """A run that happened on such chips and is larger than what is held possible, and whether that
    or the run is in doubt; "" if none is.
    """
    chip = scenario.chip
    for run in sorted(near(chip.name), key=lambda one: -one.flops):
        if run.flops > most.flops:
            told = f"{run.title}{' (an estimate)' * run.estimate}"
            share = run.utilisation(chip)
            doubt = (
                f"{100 * share:.0f} % of the peak all the time, where runs with published days"
                f" kept up {100 * kept_up():.0f} % at most: the estimate is too high, or what is"
                " assumed here too pessimistic"
                if run.estimate and share > kept_up()
                else "so what is assumed here is too pessimistic"
            )
            return f"; {told} made {run.flops:.1e} on {run.chips:,} in {run.days:.0f} days, {doubt}"
    return ""


def largest_on(
    scenario: Scenario, real: Realism, chips: float, progress: Progress = None
) -> RealPoint:
    """The largest run that at most so many chips do in time. Raises NoLayout."""
    best = widest(scenario, real, chips, widths=FINE, progress=progress)
    if best is None:
        raise NoLayout(
            f"{chips:,g} chips of {scenario.chip.name} train no model of the law"
            f" {scenario.law.name} in {show(scenario.duration_s, 's')} with everything counted"
        )
    return best


def widest(
    scenario: Scenario,
    real: Realism,
    chips: float,
    widths: Sequence[float],
    progress: Progress = None,
) -> RealPoint | None:
    """The run of the widest of these models that at most so many chips do in time; None: none."""
    best: RealPoint | None = None
    for number in most_useful(scenario, real, chips):
        # training takes longer the wider the model, so halving finds the widest
        fits, late = -1, len(widths)
        while late - fits > 1:
            middle = (fits + late) // 2
            if progress:
                progress(f"{number:,} chips: width {widths[middle]:,.0f}", 0.0)
            run = run_on(scenario, real, widths[middle], number)
            if isinstance(run, RealPoint):
                fits = middle
                # of two numbers of chips that do the same run, the smaller
                best = max(best or run, run, key=lambda p: (p.flops, -p.chips))
            else:
                late = middle
    return best


def most_useful(
    scenario: Scenario, real: Realism, chips: float
) -> tuple[int, ...]:
    """Numbers of chips, at most so many, of which most time is left when failures have taken
    theirs, and half and a quarter of that: small odd multiples of powers of two, which share a
    batch.
    """
    numbers = numbers_of_chips(scenario, chips)
    most = max(numbers, key=lambda n: n * real.goodput(n, LARGE), default=1)
    return tuple(n for n in (most, most // 2, most // 4) if n)


def numbers_of_chips(scenario: Scenario, chips: float) -> list[int]:
    """Small odd multiples of powers of two up to so many, the fewest first."""
    # slices of a torus have sides of powers of two
    torus = torus_axes(scenario.network)
    odd = (1,) if torus else scenario.law.mantissas or (1,)
    # no chips are one: log2 of 0 has no value
    octaves = range(int(math.log2(max(chips, 1))) + 1)
    numbers = {f * 2**k for f in odd for k in octaves}
    return sorted(n for n in numbers if n <= chips)


def smallest_real_cluster(
    scenario: Scenario, real: Realism, D: float
) -> RealPoint | str:
    """The run of the model of width D on the smallest cluster that does it in time, or why there is
    none. Chips come in E 2^k, as in the paper.
    """
    model = transformer(scenario.law, D, real)
    flops, _, _ = run_of(scenario.law, model)
    size = parameters(model)
    peak = scenario.chip.peak(real.numbers(scenario.chip).compute)
    least = flops / (scenario.duration_s * peak * scenario.sustained)
    unit = _experts(model)
    # one chip an expert at least, as many as share a batch
    chips = unit * 2 ** max(math.ceil(math.log2(least / unit)), 0)
    reason = "no layout fits in memory"
    before = 0.0
    for _ in range(DOUBLINGS + 1):
        if chips > MOST_CHIPS:
            return f"it would take more than {MOST_CHIPS:,} chips"
        good = real.goodput(chips, size)
        if 2 * good < before:
            return (
                f"failures leave {100 * before:.1f} % of the time of {chips // 2:,} chips, and more"
                " chips fail more"
            )
        if good * chips > least:
            run = run_on(scenario, real, D, chips)
            if isinstance(run, RealPoint):
                return run
            reason = run
        before = good
        chips *= 2
    return reason


def run_on(
    scenario: Scenario, real: Realism, D: float, chips: int
) -> RealPoint | str:
    """The run of the model of width D on so many chips, or why it is not done in time."""
    model = transformer(scenario.law, D, real)
    flops, tokens, batch = run_of(scenario.law, model)
    size = parameters(model)
    best = fastest(scenario, real, model, batch=batch, chips=chips)
    if best is None:
        return "no layout fits in memory"
    batch_tokens = batch * scenario.law.seq
    useful_s = tokens / batch_tokens * best.step_time_s
    took = useful_s / real.goodput(chips, size)
    if took >= scenario.duration_s:
        return main_cause(best)
    peak = scenario.chip.peak(real.numbers(scenario.chip).compute)
    return RealPoint(
        flops=flops,
        parameters=size,
        batch_tokens=batch_tokens,
        chips=chips,
        utilisation=flops / (peak * chips * took),
        duration_s=took,
        loss=loss_to_failures(real.failures, chips, size)
        if real.failures
        else None,
        prediction=best,
    )


def fastest(
    scenario: Scenario, real: Realism, model: Model, batch: int, chips: int
) -> Prediction | None:
    """The fastest layout of batches of so many sequences that fits."""
    launched = put("chip.launch_s", scenario.assumptions.chip.launch_s)
    job = Job(
        model,
        Cluster(scenario.chip, scenario.joined, chips),
        batch,
        precision=real.numbers(scenario.chip),
        assumptions=launched(real.assumptions),
        framework=real.framework,
    )
    spaces, _ = strategies(job, real.space, proposals=False)
    best = (
        predict(job, layout)
        for space in spaces
        for layout in search(job, space, 1).layouts
    )
    return min(best, key=lambda p: p.merit_s, default=None)


def main_cause(p: Prediction) -> str:
    """The cause that takes most of a step beside its arithmetic."""
    cause = max(
        (c for c in p.time_s if c != "compute"), key=lambda c: p.time_s[c]
    )
    share = p.time_s[cause] / p.step_time_s
    return f"{cause} takes {100 * share:.0f} % of a step on {p.job.cluster.chips:,} chips"


Without = Callable[[Realism], Realism]
HIERARCHY = "products on the memory hierarchy"
"""Of chips whose memories are known."""
OMISSIONS: dict[str, Without] = {
    "everything counted": lambda r: r,
    "chips never fail": put("failures", None),
    "restart in 1 minute": put("failures.restart_s", 60.0),
    "no attention scores": put("attention", False),
    "no embedding, head and loss": put("vocabulary", 0),
    "endless memory": put("assumptions.memory.capacity_share", ENDLESS),
    "data-parallel traffic not overlapped": put(
        "assumptions.overlap.dp", HidePass()
    ),
    "tensor-parallel traffic overlapped": lambda r: with_path(
        r,
        "assumptions.overlap",
        lambda how: replace(how, tp=Hide("layer"), ep=Hide("layer"), pp="all"),
    ),
    HIERARCHY: put("assumptions.chip.model", "hierarchy"),
    "collectives level by level": put(
        "assumptions.network.collective", "levels"
    ),
}
"""What is left out (or changed), one at a time."""


OF_FAILURES = ("everything counted", "chips never fail", "restart in 1 minute")
"""What changes nothing where chips never fail."""


def ladder(
    scenario: Scenario,
    real: Realism = Realism(),
    progress: Progress = None,
    every: bool = True,
) -> Iterator[RealCurve]:
    """How far each omission moves the limit: everything counted, then one thing after the other
    left out; where chips fail, the same again of chips that never do.

    every: False for what failures move alone, which is most, in a sixth of the time.
    """
    names = [
        name
        for name in OMISSIONS
        if every
        and (name != HIERARCHY or scenario.chip.hierarchy)
        or name in OF_FAILURES
    ]
    lines = [(name, OMISSIONS[name](real)) for name in names]
    if real.failures:
        sure = replace(real, failures=None)
        lines += [
            (f"chips never fail, {name}", OMISSIONS[name](sure))
            for name in names
            if name not in OF_FAILURES
        ]
    for name, counted in lines:
        line = real_curve(scenario, counted, name=name, progress=progress)
        if counted.failures:
            # chips that fail end it between two widths and two doublings of the curve
            least = line.points[-1].flops if line.points else 0.0
            wider = [D for D in FINE if flops_of(scenario, counted, D) > least]
            last = widest(scenario, counted, MOST_CHIPS, wider[:OCTAVE])
            line = replace(line, points=(*line.points, *filter(None, [last])))
        yield line
