"""The verb `plan`: the best layout, how many chips a deadline or a budget asks for, and why."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import BadInput, command
from . import steps
from .command import (
    JOB_TABLES,
    AgainstLayout,
    Answer,
    Budget,
    Deadline,
    ModelArg,
    Pareto,
    Price,
    Relaxed,
    SearchSoftware,
    Top,
    Writers,
    verb,
)
from .jobs import read_job
from .trained import not_trained


@verb(
    *JOB_TABLES,
    "train",
    layout="constraints",
    without=("placement",),
    writes=".json, .toml (the best, for predict), .csv, .png or .svg (bars)",
)
def plan(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    output: str | None,
    price: Price = (),
    top: Top = 10,
    relaxed: Relaxed = None,
    pareto: Pareto = False,
    search_software: SearchSoftware = False,
    against: AgainstLayout = None,
    deadline: Deadline = None,
    budget: Budget = None,
) -> Answer:
    """Find the best layouts that fit, by family too, and say why the first one wins.

    Example: meshwright plan llama3-70b --on 1024xh100-sxm --batch 4Mi --tp 4,8 --pp 1..16 -o
    plan.toml
    """
    from ..formats.flags import job_and_space
    from ..sizing import plan_notes

    demand_one_set(given)
    described, space = job_and_space(given, relaxed)
    size = None
    rounded: list[str] = []
    if deadline or budget:
        described, size, rounded = with_chips_sized(
            model,
            described,
            space,
            deadline=deadline,
            budget=budget,
            price=price,
        )
        if size.chips is None:
            return too_small(size)
    job = read_job(model, described, rounded, price, fill=False)
    chosen = searched(
        job, space, top=top, pareto=pareto, search_software=search_software
    )
    notes = plan_notes(chosen, job, rounded)
    if output and output.lower().endswith(".toml"):
        notes = (*notes, *not_trained(chosen))
    chosen = replace(chosen, notes=notes)
    mine, aside = against_best(chosen, against, job.layout)
    answer = PlanAnswer(
        chosen,
        again=again_words(
            model,
            described,
            plan=chosen,
            price=price,
            settings=space.software,
            searched=search_software,
        ),
        later=steps.after_plan(chosen.best, model, output)
        if chosen.best
        else steps.after_misfit(notes, model, given),
        size=size,
        mine=mine,
        aside=aside,
        job=job,
    )
    return Answer(
        answer.to_dict,
        answer.card,
        answer.why,
        lambda: [reports().rest_report(chosen), ""],
        files=answer.files() if chosen.best else None,
        code=0 if chosen.best else 1,
    )


def demand_one_set(given: Mapping[str, str]) -> None:
    """BadInput for several sets of assumptions, which a sweep lays side by side."""
    sets = given.get("assumptions", "")
    if "," in sets:
        raise BadInput(
            f"--assumptions is one set here: {command('sweep')} ... --over"
            f" assumptions={sets[:80]} lays several side by side"
        )


def reports() -> Any:
    """What stands behind the card; not for the help of a verb."""
    from ..report import plan

    return plan


def too_small(size: Any) -> Answer:
    """Why no number of chips is enough."""
    from ..report import run_card

    return Answer(
        lambda: {"sizing": size.to_dict()},
        lambda: run_card.too_small(size),
        lambda: [reports().sizing_table(size)],
        files=None,
        code=1,
    )


def searched(
    job: Any, space: Any, top: int, pareto: bool, search_software: bool
) -> Any:
    """The plan of a job; search_software: also among all settings that its framework offers."""
    from ..report import console
    from ..search import all_settings
    from ..search import plan as search

    if not 1 <= top <= 1000:
        raise BadInput(f"--top must be between 1 and 1000, not {top}")
    if search_software:
        settings = {**all_settings(job), **space.software}
        space = replace(space, software=settings)
    with console.progress() as progress:
        return search(job, space, top=top, progress=progress, pareto=pareto)


def with_chips_sized(
    model: str,
    described: Mapping[str, str],
    space: Any,
    deadline: str | None,
    budget: str | None,
    price: Sequence[str],
) -> tuple[dict[str, str], Any, list[str]]:
    """(the arguments with the number of chips that a deadline or a budget asks for and the batch
    that all numbers were tried with, the answer, what was rounded).
    """
    from ..formats.flags import COUNTED
    from ..report import console
    from ..sizing import sizing
    from ..units import parse

    counted = COUNTED.fullmatch(described.get("on", ""))
    if not counted:
        raise BadInput(
            "--deadline and --budget need --on with a number to begin at, such as 512xh100-sxm"
        )
    notes: list[str] = []
    job = read_job(model, described, notes, price, fill=False)
    seconds = (
        parse(deadline, "s", "--deadline", like="'60 days'")
        if deadline
        else None
    )
    money = parse(budget, "USD", "--budget") if budget else None
    with console.progress() as progress:
        size = sizing(job, space, seconds, budget_usd=money, progress=progress)
    on = f"{size.chips}{counted[2]}" if size.chips else described["on"]
    return {**described, "on": on, "batch": f"{job.batch}seq"}, size, notes


def again_words(
    model: str,
    described: Mapping[str, str],
    plan: Any,
    price: Sequence[str],
    settings: Collection[str],
    searched: bool,
) -> str:
    """The command that predicts the best layout of a plan again; empty where there is none.

    settings: of the software, of which a plan chose a value; searched: of any.
    """
    from ..formats.flags import command_line

    if not plan.best:
        return ""
    extra = {}
    if any(note.startswith("batch:") for note in plan.notes):
        # predict rounds tokens to the nearest
        extra["batch"] = f"{plan.best.job.batch}seq"
    for name, value in plan.best.job.software.given.items():
        if searched or name in settings:
            extra[name] = str(value).lower()
    words = command_line(model, {**described, **extra}, plan.best)
    return " ".join([words, *(f"--price {shlex.quote(x)}" for x in price)])


class PlanAnswer(NamedTuple):
    """What `plan` has to say: the card, the causes, and everything that was found."""

    plan: Any
    again: str
    """What predicts the best layout again."""
    later: list[Any]
    """What to do next, as rows of a card."""
    size: Any
    mine: Any
    """The prediction of the user's layout, to be set beside the best; None without one."""
    aside: str
    """Why the layout of a file is left aside."""
    job: Any
    """What was asked."""

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        data: dict[str, Any] = self.plan.to_dict()
        if self.size:
            data["sizing"] = self.size.to_dict()
        if self.mine:
            best = self.plan.best
            data["against"] = reports().against_dict(self.mine, best)
        return data

    def files(self) -> Writers:
        """What -o writes: the best and its alternatives, beside the best of each family."""
        from ..report import files

        plan = self.plan
        others = [f.prediction for f in plan.families if f.prediction]
        others += plan.pareto or ()
        return files.of_predictions([plan.best, *plan.alternatives], others)

    def card(self) -> Any:
        """The first screen."""
        from ..report import run_card

        yours = self.mine and run_card.yours(self.mine, self.plan)
        return run_card.plan_card(
            self.plan,
            self.later,
            self.size,
            against=yours or "",
            aside=self.aside,
            job=self.job,
        )

    def why(self) -> Iterator[Any]:
        """The best layout in full, why it wins, and what a layout of the user's lacks."""
        from ..report.lines import noted

        if self.size:
            yield from (reports().sizing_table(self.size), "")
        yield from (reports().why_report(self.plan, self.again), "")
        if self.mine:
            yield from (reports().against(self.mine, self.plan), "")
        if self.aside:
            yield from noted([self.aside])


def against_best(plan: Any, text: str | None, own: Any) -> tuple[Any, str]:
    """(the prediction of a layout of the user's, beside a plan's best: the one named, else the
    job's own, None where there is none; why the job's own is left aside).
    """
    from ..describe.layout import Layout
    from ..formats.flags import layout_of, on_all
    from ..prediction.prediction import predict

    if not plan.best:
        if text:
            return (
                None,
                "--against has nothing to compare with: no layout fits",
            )
        return None, ""
    job = plan.best.job
    if text:
        return predict(job, layout_of(text, job, own)), ""
    if own == Layout():
        return None, ""
    try:
        return predict(job, on_all(own, job)), ""
    except BadInput as error:
        return None, f"the layout of the file is ignored: {error}"
