"""Answers: what a page is told, as the fields of `--json`. Each takes the body of a request and is
told by `progress` when to stop; those of many parts give them one by one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from .. import catalog
from .._version import __version__
from ..describe.assumptions import SETS
from ..describe.choices import FIELDS
from ..describe.framework import frameworks
from ..describe.job import OPTIMIZERS, PRECISIONS, Job
from ..describe.layout import Layout
from ..errors import BadInput, MeshwrightError
from ..formats.options import flags
from ..prediction.certainty import resolution
from ..prediction.prediction import Prediction
from ..prediction.prediction import predict as compute_step
from ..report.console import SCHEMA, envelope
from ..report.plan import reason
from ..report.text import CAUSES, layout_words
from ..schedule import SCHEDULES
from ..search import (
    Plan,
    Progress,
    Question,
    Space,
    Steps,
    choices_of,
    neighbours,
    pin_values,
    planning,
)
from ..search import plan as search
from ..sizing import plan_notes
from ..sweep import EMPTY, Prices, vary
from .prices import by_chip, price_of_job, with_price
from .question import (
    ask,
    keys,
    laid_out,
    sole_values,
)

Body = Mapping[str, Any]
Answer = Mapping[str, Any]


def prediction_fields(
    prediction: Prediction, notes: Sequence[str]
) -> dict[str, Any]:
    """A prediction's fields, with what was rounded among its notes, and its layout in words."""
    said = prediction.with_results(notes=(*notes, *prediction.notes))
    return {
        **said.to_dict(),
        "layout_words": layout_words(
            prediction.layout, prediction.microbatches
        ),
    }


def answer_predict(body: Body, progress: Progress) -> Answer:
    """One step under a given layout."""
    notes: list[str] = []
    return envelope(
        "predict", prediction_fields(prediction_of(body, notes), notes)
    )


def prediction_of(body: Body, notes: list[str]) -> Prediction:
    """The step of a question under a layout, where there is none under the values that the question
    names, at one's own price; notes: receives what was rounded and what the set filled in.
    """
    job, space = ask(body.get("question"), notes)
    job = with_price(job, price_of_job(job, body.get("prices", {})))
    return compute_step(job, layout_asked(body, job, space, notes))


def layout_asked(
    body: Body, job: Job, space: Space, notes: list[str] | None = None
) -> Layout:
    """The layout of a body, or where it has none the one that its question names; notes: receives
    a sentence on what the set filled in.
    """
    return laid_out(job, body.get("layout") or sole_values(space), notes)


def answer_plan(body: Body, progress: Progress) -> Answer:
    """The fastest layouts, why the best wins, and what was searched."""
    *_, answer = plan_lines(body, progress)
    return answer


def plan_lines(body: Body, progress: Progress) -> Iterator[Answer]:
    """The best layout by lower bounds as soon as it is known, then the plan, whose best may be
    another: replays decide, and fewer chips may be faster.
    """
    notes: list[str] = []
    job, space = ask(body.get("question"), notes)
    rate = price_of_job(job, body.get("prices", {}))
    job = with_price(job, rate)
    paid = {**price(job), **({"yours": True} if rate else {})}
    top = body.get("top", 5)
    question = Question(
        job,
        space,
        top=max(top, 2),
        progress=progress,
        pareto=bool(body.get("pareto")),
        families=bool(body.get("families", True)),
    )
    steps = planning(question)
    answer = yield from closed_forms(steps, paid, notes)
    tied = {
        **_ties(job, answer.fastest),
        "why": reason(answer),
        "idle": answer.idle,
    }
    answer = replace(
        answer,
        alternatives=answer.alternatives[: top - 1],
        notes=plan_notes(answer, job, notes),
    )
    fields = answer.to_dict()
    for p, one in predictions(answer, fields):
        one["layout_words"] = layout_words(p.layout, p.microbatches)
    yield envelope("plan", {**fields, "price": paid, **tied})


def closed_forms(
    steps: Steps, paid: Mapping[str, Any], notes: Sequence[str]
) -> Generator[Answer, None, Plan]:
    """A line of what a search knows before its answer; returns that."""
    while True:
        try:
            p = next(steps).best
        except StopIteration as done:
            return cast("Plan", done.value)
        if p:
            yield {"closed_form": prediction_fields(p, notes), "price": paid}


def predictions(
    answer: Plan, fields: Mapping[str, Any]
) -> Iterator[tuple[Prediction, dict[str, Any]]]:
    """The predictions of a plan with their fields."""
    if answer.best:
        yield answer.best, fields["best"]
    if answer.closest:
        yield answer.closest, fields["closest"]
    yield from zip(answer.alternatives, fields["alternatives"], strict=True)
    for family, one in zip(
        (*answer.families, *answer.outside), fields["families"], strict=True
    ):
        if family.prediction:
            yield family.prediction, one["prediction"]


def best_of(job: Job, space: Space, progress: Progress, top: int = 1) -> Plan:
    """A plan's best alone, or so many."""
    return search(job, space, top=top, progress=progress, families=False)


def _ties(job: Job, fastest: Prediction | None) -> dict[str, float | None]:
    """Below which share two layouts are a tie, where runs were compared with predictions; and up to
    how many seconds, over the chance to fit, a layout is one of those nobody can tell from the
    fastest.
    """
    share = resolution(job)
    return {
        "resolution": share,
        "tie_s": fastest.merit_s * (1.0 + share) if fastest else None,
    }


def price(job: Job) -> Mapping[str, Any]:
    """What an hour of a chip costs, if that is known."""
    return {
        "usd_per_hour": job.cluster.chip.usd_per_hour,
        "chip": job.cluster.chip.name,
    }


def neighbours_of(body: Body, progress: Progress) -> Answer:
    """One field of a layout changed at a time, the rest kept."""
    job, space = ask(body.get("question"), [])
    layout = layout_asked(body, job, space)
    used = replace(job, layout=layout)
    choices = neighbours(used, layout, progress)
    values = {
        name: list(each) for name, each in choices_of(job, layout).items()
    }
    return {
        "schema": SCHEMA,
        "values": values,
        "choices": [c.to_dict() for c in choices],
    }


def choices(body: Body, progress: Progress) -> Iterator[Answer]:
    """One field of a layout fixed at a time, the rest searched again; a line for each."""
    job, space = ask(body.get("question"), [])
    layout = layout_asked(body, job, space)
    for choice in pin_values(job, space, layout, progress):
        p = choice.prediction
        words = {"layout_words": layout_words(p.layout)} if p else {}
        yield {**choice.to_dict(), **words}


FEW = (
    "chips",
    "step_time_s",
    "interval_s",
    "tokens_per_s",
    "tokens_per_s_per_chip",
    "mfu",
    "train_time_s",
    "chip_hours",
    "cost_usd",
    "energy_j",
    "time_s",
    "fits",
    "risk_of_oom",
    "layout",
    "evidence",
    "notes",
)
"""Fields of a prediction that a row shows."""


def summary(p: Prediction) -> dict[str, Any]:
    """A row of a prediction."""
    fields = p.to_dict()
    return {
        **{name: fields[name] for name in FEW},
        "layout_words": layout_words(p.layout),
        "chip": p.job.cluster.chip.name,
    }


def clusters(body: Body, progress: Progress) -> Iterator[Answer]:
    """The best plan on each of several clusters, or on each of several numbers of chips; a line for
    each.
    """
    job, space = ask(body.get("question"), [])
    names = texts(body, "clusters")
    compared = [(name, varied(job, "on", name)) for name in names]
    chips = [j.cluster.chip.name for _, j in compared if isinstance(j, Job)]
    prices = by_chip(body.get("prices", {}), chips)
    for name, other in compared:
        row: dict[str, Any] = {"cluster": name}
        if isinstance(other, Job):
            chip = other.cluster.chip.name
            other = with_price(other, prices.get(chip))
            row |= price(other)
        yield {**row, **best_row(other, space, progress)[1]}


def best_row(
    job: Job | MeshwrightError, space: Space, progress: Progress, top: int = 1
) -> tuple[Prediction | None, dict[str, Any]]:
    """(the best layout of a job, of several at the top the fastest; its row, or why there is
    none).
    """
    try:
        if isinstance(job, MeshwrightError):
            raise job
        plan = best_of(job, space, progress, top)
    except MeshwrightError as error:
        return None, {"why": str(error)}
    p = plan.best if top == 1 else plan.fastest
    return p, summary(p) if p else {"why": (*plan.notes, "nothing fits")[0]}


def answer_scaling(body: Body, progress: Progress) -> Iterator[Answer]:
    """The fastest layout of the same batch on an eighth as many chips, twice as many and so on, to
    where a chip does less than half of what it does at best, or nothing is found any more; a line
    for each.
    """
    job, space = ask(body.get("question"), [])
    own_price = price_of_job(job, body.get("prices", {}))
    prices = {job.cluster.chip.name: own_price} if own_price else {}
    chips = max(job.cluster.chips // 8, 1)
    most = 0.0
    while chips <= MOST_CHIPS:
        other = varied(job, "chips", chips, prices)
        p, row = best_row(other, space, progress, top=2)
        rate = p.tokens_per_s / chips if p else 0.0
        most = max(most, rate)
        share = {"tokens_per_s_per_chip": rate} if p else {}
        yield {**row, **share, "chips": chips}
        if rate < most * GIVEN_UP:
            return
        chips *= 2


MOST_CHIPS = 2**20
"""Of a machine that scaling is asked about."""
GIVEN_UP = 0.5
"""Share of what a chip does at best, below which nobody adds chips."""


def varied(
    job: Job, path: str, value: str | float, prices: Prices = EMPTY
) -> Job | MeshwrightError:
    """The job with one thing changed, or why it cannot be."""
    try:
        return vary(job, path, value, prices)
    except MeshwrightError as error:
        return error


def texts(body: Body, name: str) -> list[str]:
    """A list of texts that a request must hold."""
    if name not in body:
        raise BadInput(f"{name} must be a list of texts")
    return [*body[name]]


def catalogue(body: Body, progress: Progress) -> Answer:
    """Names to choose from."""
    kinds = {kind: list(catalog.names(kind)) for kind in catalog.KINDS}
    about = {flag.name: flag for flag in flags()}
    asked = [
        {"name": key, "table": about[key].table, "help": about[key].help}
        if key in about
        else {"name": key, "table": key, "help": ""}
        for key in keys()
    ]
    return {
        "schema": SCHEMA,
        "version": __version__,
        **kinds,
        "frameworks": list(frameworks()),
        "assumptions": list(SETS),
        "precisions": list(PRECISIONS),
        "optimizers": list(OPTIMIZERS),
        "schedules": list(SCHEDULES),
        "causes": CAUSES,
        "question": asked,
        "layout": [*FIELDS],
    }
