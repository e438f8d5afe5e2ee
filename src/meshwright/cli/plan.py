"""The verb `plan`: the best layout, how many chips a deadline or a budget asks for, and why."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import BadInput
from . import steps
from .command import (
    JOB_TABLES,
    AgainstLayout,
    Answer,
    AssumptionSets,
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
    assumptions: AssumptionSets = (),
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

    demand_one_job(output, assumptions)
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
    by_set, job = plans(
        model,
        described,
        space,
        assumptions=assumptions,
        top=top,
        pareto=pareto,
        price=price,
        search_software=search_software,
    )
    kept = output and output.lower().endswith(".toml")
    for name, each in by_set.items():
        trained = not_trained(each) if kept else []
        # where nothing fits, the reason stands first
        rest = (*each.notes, *trained)
        notes = (*rounded, *rest) if each.best else (*rest, *rounded)
        by_set[name] = replace(each, notes=notes)
    first = next(iter(by_set.values()))
    mine, aside = against_best(first, against, job.layout)
    again = {
        name: again_words(
            model,
            described,
            plan=each,
            assumptions=name if assumptions else "",
            price=price,
            settings=space.software,
            searched=search_software,
        )
        for name, each in by_set.items()
    }
    later = (
        steps.after_plan(first.best, model, output)
        if first.best
        else steps.after_misfit(first.notes, model, given)
    )
    result = Plans(
        by_set,
        again=again,
        later=later,
        size=size,
        mine=mine,
        aside=aside,
        job=job,
    )
    return Answer(
        result.to_dict,
        result.card,
        result.why,
        result.rest,
        files=result.files() if result.bests else None,
        code=0 if result.bests else 1,
    )


def demand_one_job(output: str | None, assumptions: Sequence[str]) -> None:
    """BadInput where a file that holds one job is asked for under several sets."""
    several = len(set_names(assumptions)) > 1
    if output and output.lower().endswith(".toml") and several:
        raise BadInput(
            f"-o {output[:80]} holds one job: give one assumption set, or .json, .csv, .png or .svg"
        )


def too_small(size: Any) -> Answer:
    """Why no number of chips is enough."""
    from ..report import plan as reports
    from ..report import run_card

    return Answer(
        lambda: {"sizing": size.to_dict()},
        lambda: run_card.too_small(size),
        lambda: [reports.sizing_table(size)],
        files=None,
        code=1,
    )


def plans(
    model: str,
    described: Mapping[str, str],
    space: Any,
    assumptions: Sequence[str],
    top: int,
    pareto: bool,
    price: Sequence[str],
    search_software: bool = False,
) -> tuple[dict[str, Any], Any]:
    """(name -> plan for each assumption set, the job that was asked, with the layout that it has
    already).
    """
    from ..report import console
    from ..search import all_settings
    from ..search import plan as search
    from ..sizing import plan_notes

    if not 1 <= top <= 1000:
        raise BadInput(f"--top must be between 1 and 1000, not {top}")
    by_set = {}
    for name in set_names(assumptions) or [""]:
        notes: list[str] = []
        job = read_job(
            model,
            {**described, **({"assumptions": name} if name else {})},
            notes,
            price,
            fill=False,
        )
        among = space
        if search_software:
            settings = {**all_settings(job), **space.software}
            among = replace(space, software=settings)
        with console.progress() as progress:
            plan = search(
                job, among, top=top, progress=progress, pareto=pareto
            )
        by_set[job.assumptions.name] = replace(
            plan, notes=plan_notes(plan, job, notes)
        )
    return by_set, job


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
            "--deadline and --budget need --on with a number, such as 512xh100-sxm"
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
    assumptions: str,
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
    extra = {"assumptions": assumptions} if assumptions else {}
    if any(note.startswith("batch:") for note in plan.notes):
        # predict rounds tokens to the nearest
        extra["batch"] = f"{plan.best.job.batch}seq"
    for name, value in plan.best.job.software.given.items():
        if searched or name in settings:
            extra[name] = str(value).lower()
    words = command_line(model, {**described, **extra}, plan.best)
    return " ".join([words, *(f"--price {shlex.quote(x)}" for x in price)])


class Plans(NamedTuple):
    """What `plan` has to say: the card, the causes, and everything that was found."""

    plans: Mapping[str, Any]
    """By name of the assumption set."""
    again: Mapping[str, str]
    """What predicts the best layout of each again."""
    later: list[Any]
    """What to do next, as rows of a card."""
    size: Any
    mine: Any
    """The prediction of the user's layout, to be set beside the best; None without one."""
    aside: str
    """Why the layout of a file is left aside."""
    job: Any
    """What was asked."""

    @property
    def first(self) -> Any:
        return next(iter(self.plans.values()))

    @property
    def bests(self) -> dict[str, Any]:
        """The best layout under each set, where there is one."""
        return {k: plan.best for k, plan in self.plans.items() if plan.best}

    def to_dict(self) -> dict[str, Any]:
        """What --json prints."""
        from ..report import plan as reports

        results = {name: plan.to_dict() for name, plan in self.plans.items()}
        alone = len(results) == 1
        data = dict(
            next(iter(results.values())) if alone else {"plans": results}
        )
        if self.size:
            data["sizing"] = self.size.to_dict()
        if self.mine:
            data["against"] = reports.against_dict(self.mine, self.first.best)
        return data

    def files(self) -> Writers:
        """What -o writes: of one set its alternatives too, of several the best of each."""
        from ..report import files

        several = len(self.plans) > 1
        first = self.first
        shown = list(self.bests.values())
        if not several:
            shown += first.alternatives
        others = [f.prediction for f in first.families if f.prediction]
        others += first.pareto or ()
        names = list(self.bests) if several else ()
        return files.of_predictions(
            shown, shown[0], names=names, others=others
        )

    def card(self) -> Any:
        """The first screen."""
        from ..report import run_card

        if len(self.plans) > 1:
            return run_card.compared(self.plans)
        yours = self.mine and run_card.yours(self.mine, self.first)
        return run_card.plan_card(
            self.first,
            self.later,
            self.size,
            against=yours or "",
            aside=self.aside,
            job=self.job,
        )

    def why(self) -> Iterator[Any]:
        """The best layouts in full, why they win, and what a layout of the user's lacks."""
        from ..report import plan as reports
        from ..report.lines import noted

        if self.size:
            yield from (reports.sizing_table(self.size), "")
        for name, each in self.plans.items():
            if len(self.plans) > 1:
                yield f"under {name}"
            yield from (reports.why_report(each, self.again[name]), "")
        if self.mine:
            yield from (reports.against(self.mine, self.first), "")
        if self.aside:
            yield from noted([self.aside])

    def rest(self) -> Iterator[Any]:
        """Families, every layout shown, and what was searched."""
        from ..report import plan as reports

        for each in self.plans.values():
            yield from (reports.rest_report(each), "")


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


def set_names(assumptions: Sequence[str]) -> list[str]:
    """The assumption sets of "realistic,lbl-2024"."""
    return list(
        dict.fromkeys(
            name.strip() for text in assumptions for name in text.split(",")
        )
    )
