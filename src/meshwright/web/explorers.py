"""Answers of the explorers: the timeline of a pipeline, how far scaling goes, where communication
binds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..describe.assumptions import BOOK_MAX
from ..describe.frozen import scaling as times
from ..describe.slices import parse_shape
from ..errors import BadInput
from ..formats import perfetto
from ..formats.scenario import load_scenario
from ..limits.answer import (
    bill,
    largest_run,
    parallelism_split,
    smallest_cluster,
)
from ..limits.curve import Curve, curve
from ..limits.laws import smooth_widths
from ..limits.scenario import MONTH_S, Scenario, presets
from ..prediction.exact import actions_of
from ..prediction.failures import Failures
from ..prediction.prediction import Prediction
from ..prediction.replay import Replay
from ..prediction.replay import replay as compute_replay
from ..report.console import SCHEMA, envelope
from ..report.text import layout_words
from ..roofline.queries import EXACT, asked_job
from ..roofline.queries import roofline as compute_roofline
from ..schedule import get
from ..search import Progress
from .answers import Answer, Body, prediction_of, texts
from .question import ask, check_question

MOST_SHOWN = 60_000
"""Actions of a timeline that a page draws."""
SCALED = {
    "flops": (
        "chip.matrix_flops",
        "chip.vector_flops",
        "chip.hierarchy.flop_per_clock",
    ),
    "hbm": ("chip.hbm_bandwidth",),
    "memory": ("chip.hbm_bytes",),
    "bandwidth": ("network.dims.bandwidth",),
    "latency": ("network.dims.latency",),
    "launch": ("assumptions.chip.launch_s",),
}
"""Slider -> numbers of a scenario that it multiplies."""
COARSE = 4
"""Of so many points of a smooth curve one is drawn at once."""


def explore_timeline(body: Body, progress: Progress) -> Answer:
    """The pipeline of a layout, action by action."""
    replay = pipeline_replay(prediction_of(body, []))
    p = replay.prediction
    words = layout_words(p.layout, p.microbatches)
    memory = {k: dict(v._asdict()) for k, v in p.memory_by_stage.items()}
    return envelope(
        "timeline",
        {
            **replay.to_dict(),
            "layout_words": words,
            "step_time_s": p.step_time_s,
            "memory_by_stage_bytes": memory,
            "capacity_bytes": p.memory_bytes["capacity"],
            **actions(replay),
        },
    )


def pipeline_replay(p: Prediction) -> Replay:
    """The pipeline of a prediction.  BadInput if it has more actions than a page draws."""
    l = p.layout
    count = actions_of(
        get(l.schedule), int(l.pp), p.microbatches, int(l.interleave)
    )
    if count > MOST_SHOWN:
        raise BadInput(
            f"the timeline has {count:,} actions, more than {MOST_SHOWN:,}, which a page draws:"
            " raise dp or microbatch, or lower pp; meshwright timeline takes more"
        )
    return compute_replay(p)


def actions(replay: Replay) -> dict[str, Any]:
    """Each rank's actions as [kind, stage, microbatch, start, end]."""
    t = replay.timeline
    ranks = []
    for order, stages, starts, stops in zip(
        t.order, t.stages, t.start_s, t.end_s, strict=True
    ):
        row = zip(order, stages, starts, stops, strict=True)
        ranks.append(
            [[a.kind, s, a.microbatch, begin, end] for a, s, begin, end in row]
        )
    return {"actions": ranks}


def trace(body: Body, progress: Progress) -> Answer:
    """The timeline as a trace for ui.perfetto.dev."""
    replay = pipeline_replay(prediction_of(body, []))
    return perfetto.write_trace(
        replay.timeline, layout_words(replay.prediction.layout)
    )


def scenario(text: str, body: Body) -> Scenario:
    """A scenario by name, with the sliders and options of the body."""
    base = replace(
        load_scenario(text, files=False),
        duration_s=float(body.get("months", 3.0)) * MONTH_S,
        linear=float(body.get("linear", 0.8)),
    )
    if body.get("failures"):
        base = replace(base, failures=base.failures or Failures())
    return scale_scenario(base, body.get("factors", {}))


def scale_scenario(base: Scenario, factors: Mapping[str, float]) -> Scenario:
    """The scenario with numbers of its chip and network multiplied, those of SCALED."""
    changed = base
    for name, by in factors.items():
        for path in SCALED[name]:
            changed = times(path, by)(changed)
    marks = ", ".join(
        f"{name} x{factors[name]:g}" for name in factors if factors[name] != 1
    )
    label = f"{base.name} ({marks})" if marks else base.name
    return replace(changed, name=label)


def explore_limits(body: Body, progress: Progress) -> Iterator[Answer]:
    """How far each scenario scales: a few points of its smooth curve at once, then all of them;
    then, if asked, the paper's grid.
    """
    chosen = texts(body, "scenarios")
    for kind, every in (("coarse", COARSE), ("smooth", 1)):
        for text in chosen:
            progress(text, 0.0)
            s = scenario(text, body)
            line = curve(s.smooth, smooth_widths()[::every])
            yield {**curve_fields(line), "scenario": text, "curve": kind}
    for text in chosen if body.get("grid") else ():
        progress(text, 0.0)
        line = curve(scenario(text, body))
        yield {**curve_fields(line), "scenario": text, "curve": "grid"}


def curve_fields(line: Curve) -> dict[str, Any]:
    """The fields of one curve."""
    s = line.scenario
    points = [
        {**p.to_dict(), **bill(p, s), "split": parallelism_split(p)}
        for p in line.points
    ]
    return {
        **line.to_dict(),
        "name": s.name,
        "chip": s.chip.name,
        "sustained_utilisation": s.sustained,
        "duration_s": s.duration_s,
        "points": points,
    }


def cluster_of_run(body: Body, progress: Progress) -> Answer:
    """The smallest cluster for a run of so many FLOP, or the largest run of so many chips."""
    rows = []
    for text in texts(body, "scenarios"):
        s = scenario(text, body)
        flops = float(body.get("flops", 0.0))
        p = (
            smallest_cluster(s, flops)
            if flops
            else largest_run(s, float(body.get("chips", 1e5)))
        )
        rows.append({"scenario": s.name, **p.to_dict(), **bill(p, s)})
    return {"schema": SCHEMA, "rows": rows}


def scenarios(body: Body, progress: Progress) -> Answer:
    """Names of the scenarios of the paper."""
    return {"schema": SCHEMA, "scenarios": list(presets())}


def explore_roofline(body: Body, progress: Progress) -> Answer:
    """Where communication starts to bind, in both editions of the scaling book."""
    notes: list[str] = []
    question = check_question(body.get("question"))
    book = question.get("assumptions") in BOOKS
    fields = ROOFLINE + (("assumptions",) if book else ())
    kept = {k: v for k, v in question.items() if k in fields}
    job = asked_job(lambda each: ask(each, notes)[0], kept, notes)
    how = job.assumptions if book else EXACT
    shape = body.get("shape", "")
    answer = compute_roofline(
        job.model,
        job.cluster,
        job.batch_tokens,
        layer=body.get("layer", "book"),
        precision=job.precision,
        assumptions=how,
        seq=job.seq,
        shape=parse_shape(shape) if shape else None,
    )
    return envelope(
        "roofline", replace(answer, notes=(*notes, *answer.notes)).to_dict()
    )


ROOFLINE = ("model", "job", "on", "network", "batch", "seq", "precision")
"""Fields of a question that a roofline reads."""
BOOKS = ("scaling-book-sum", BOOK_MAX.name)
