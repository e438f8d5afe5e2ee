"""A plan as tables: the best layout, why it wins, the runners-up, the Pareto front if asked for,
and what was searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..layout import practice
from ..prediction.certainty import resolution
from ..prediction.elastic import seconds_by_cause
from ..prediction.prediction import Prediction
from ..search import why_simpler
from ..units import count, show
from .lines import IndentedLine, noted
from .predict import details, memory_table, time_table
from .run_card import SEEN, yours
from .tables import text_table
from .text import (
    BRIEFLY,
    CAUSES,
    NOTHING,
    memory_needed,
    percent,
    risk_words,
    seconds,
    short_words,
    signed,
)

if TYPE_CHECKING:
    from ..search import Family, Plan, Tuning
    from ..sizing import Size, Sizing

LITTLE = 0.005
"""Changes below this share are not named."""
RISKS = 0.01
"""Chances to run out that differ by less are alike."""
NAMED = 2
"""Causes that the reason names."""
MEMORY = 0.03
"""Differences of memory below this share are not named."""


def plan_report(plan: Plan, command: str) -> RenderableType:
    """Everything there is to a plan; `command`: what predicts the best layout again."""
    return Group(why_report(plan, command), Text(), rest_report(plan))


def why_report(plan: Plan, command: str) -> RenderableType:
    """The best layout in full, and why it is the best; `command`: what predicts it again. Where
    nothing fits, what comes closest.
    """
    shown = plan.best or plan.closest
    parts: list[RenderableType] = []
    if shown:
        parts += [*details(shown), Text()]
        parts += [time_table(shown), Text()] * (shown is plan.best)
        parts += [memory_table(shown), Text()]
    if plan.best:
        parts.append(IndentedLine(reason(plan)))
        if plan.families:
            parts += [*_software(plan), elastic(plan)]
    said = dict.fromkeys((*plan.notes, *(shown.notes if shown else ())))
    parts += noted(said)
    if command:
        parts += [Text(), Text(f"again: {command}")]
    return Group(*parts)


def rest_report(plan: Plan) -> RenderableType:
    """What else was found, and what was searched."""
    parts: list[RenderableType] = []
    if plan.best:
        if plan.families:
            parts += [*families_table(plan), Text()]
        every = (plan.best, *plan.alternatives)
        parts += [ranking_table("layouts", every, plan), Text()]
        if plan.pareto and len(plan.pareto) > 1:
            front = ranking_table("time against memory", plan.pareto, plan)
            parts += [front, Text()]
    return Group(*parts, *searched(plan))


def reason(plan: Plan) -> str:
    """Why the best layout is the answer: it takes least, or is preferred among ties; and what the
    next one that is no tie would take more.
    """
    best = plan.best
    fastest = plan.fastest
    if best is None or fastest is None:
        return ""
    which = "all layouts searched"
    beyond = plan.beyond
    if beyond and beyond.prediction:
        words = short_words(beyond.prediction.layout)
        which = (
            f"the layouts that published runs vouch for ({words} would take"
            f" {100 * plan.slower(beyond.prediction):+.0f} %: {beyond.note or beyond.name})"
        )
    said = (
        f"best risk-adjusted time of {which}; no simpler layout is within the model's"
        f" {percent(resolution(best.job), 0)} resolution"
    )
    if best is not fastest:
        has = why_simpler(best.job, best.layout, fastest.layout)
        said = (
            f"of the layouts within {percent(resolution(best.job), 0)} of the fastest, a difference"
            f" below the model's resolution, the one with {has or 'the least time over its risk'}"
            f" (fastest: {short_words(fastest.layout)}, {difference_words(plan, fastest)}:"
            f" {versus(best, fastest)})"
        )
    if plan.recipe:
        said = f"a published recipe, faster than all layouts searched ({plan.recipe})"
    after = following(plan)
    if after:
        name, p = after
        said += (
            f"; {name}, {short_words(p.layout)}, takes {100 * plan.slower(p):+.1f} %:"
            f" {versus(best, p)}"
        )
    return f"Why this layout: {said}."


def following(plan: Plan) -> tuple[str, Prediction] | None:
    """The best layout of another family, else another one, that is slower and no tie."""
    families = [
        (f"the next family ({f.name})", f.prediction)
        for f in plan.families
        if f.prediction
    ]
    others = [("the next layout", p) for p in plan.alternatives]
    for name, p in families or others:
        if plan.slower(p) > 0 and not plan.tie(p):
            return name, p
    return None


def versus(best: Prediction, other: Prediction) -> str:
    """What another layout takes more and less, by cause; its memory and its risk where they
    differ.
    """
    changes = [
        (BRIEFLY[cause], other.time_s[cause] - s)
        for cause, s in best.time_s.items()
    ]
    largest = sorted(changes, key=lambda item: -abs(item[1]))[:NAMED]
    parts = [
        f"{name} {'+' if d > 0 else '-'}{show(abs(d), 's')}"
        for name, d in largest
        if abs(d) >= SEEN * best.step_time_s
    ]
    need = [p.memory_bytes["needed"] for p in (other, best)]
    if abs(need[0] - need[1]) > MEMORY * need[1]:
        parts.append(
            f"needs {show(need[0], 'GiB')} instead of {show(need[1], 'GiB')}"
        )
    if abs(other.risk_of_oom - best.risk_of_oom) >= RISKS:
        parts.append(f"risk of running out {risk_words(other.risk_of_oom)}")
    return ", ".join(parts) or "the same in every cause"


def difference_words(plan: Plan, p: Prediction) -> str:
    """How much slower a layout is than the best, in words; with what is compared, where its risk
    changes that.
    """
    slower = plan.slower(p)
    best = plan.best
    if best is None or p is best:
        return "best"
    alone = p.step_time_s / best.step_time_s - 1
    what = " step time / P(fits)" if abs(slower - alone) >= RISKS else ""
    tie = ", a tie" if plan.tie(p) else ""
    return f"{100 * slower:+.1f} %{what}{tie}"


def families_table(plan: Plan) -> Iterator[RenderableType]:
    """A row for the best layout of each family, and what it takes beside the plan's."""
    families = (*plan.families, *plan.outside)
    yield text_table(
        "families of layouts | step | vs best | risk | what",
        [_family(plan, family) for family in families],
    )
    yield from difference_rows(
        plan, [f.prediction for f in families if f.prediction]
    )
    if plan.kept:
        yield IndentedLine(
            f"search limited to common practice: {'; '.join(plan.kept)} (name the field to override"
            " it, such as --tp 16)",
            "dim",
        )
    for family in families:
        if family.note and family.prediction:
            yield IndentedLine(f"{family.name}: {family.note}", "dim")


def _family(plan: Plan, family: Family) -> tuple[str, ...]:
    """The cells of a family."""
    p = family.prediction
    if p is None:
        return family.name, "", "", "", family.note
    best = plan.best is not None and p.layout == plan.best.layout
    tie = " tie" if plan.tie(p) else "    "
    return (
        family.name,
        seconds(p.step_time_s),
        "best    " if best else f"{100 * plan.slower(p):+.0f} %{tie}",
        risk_words(p.risk_of_oom),
        short_words(p.layout),
    )


def difference_rows(
    plan: Plan, of: Sequence[Prediction]
) -> Iterator[RenderableType]:
    """What a difference counts beside seconds, where it does."""
    best = plan.best
    if best and any(
        abs(p.risk_of_oom - best.risk_of_oom) >= RISKS for p in of
    ):
        yield Text('"vs" compares step time / P(fits)', "dim")


def _software(plan: Plan) -> Iterator[RenderableType]:
    """What settings of the framework's software would change, each alone and the best together."""
    if plan.software:
        yield text_table(
            "software, layout kept | step | vs best | since | ",
            [
                (
                    one.flags,
                    seconds(one.prediction.step_time_s),
                    f"{100 * one.change:+.1f} %",
                    ", ".join(one.since),
                    "other numbers" if one.numerics else "",
                )
                for one in plan.software
            ],
        )
    if tuned := plan.tuned:
        yield IndentedLine(f"together: {tuned_words(plan, tuned)}")
    if plan.software or plan.tuned:
        yield Text()


def tuned_words(plan: Plan, tuned: Tuning) -> str:
    """What settings give together, and on which layout."""
    p, best = tuned.prediction, plan.best
    kept = best is not None and p.layout == best.layout
    on = "" if kept else f" with {short_words(p.layout)}"
    return f"{tuned.flags}{on}: {seconds(p.step_time_s)}, {100 * tuned.change:+.0f} %"


def elastic(plan: Plan) -> IndentedLine:
    """What other software and a better machine would change, the layout kept."""
    each = ", ".join(
        f"{e.words} {100 * e.change:+.0f} %"
        for e in plan.elasticities
        if abs(e.change) >= LITTLE
    )
    return IndentedLine(
        f"step time with the layout fixed: {each or 'no better machine helps'}",
        "dim",
    )


def against(mine: Prediction, plan: Plan) -> RenderableType:
    """Why a layout of the user's is slower than the best: the difference by cause, memory, what it
    breaks.
    """
    best = plan.best
    assert best is not None
    if mine.layout == best.layout:
        return IndentedLine(f"yours: {yours(mine, plan)}")
    rows = [
        (
            cause,
            seconds(mine.time_s[cause]),
            seconds(best.time_s[cause]),
            signed(more),
            CAUSES[cause],
        )
        for cause, more in seconds_by_cause(mine, best).items()
        if abs(more) > NOTHING * best.step_time_s
    ]
    ends = mine.step_time_s, best.step_time_s
    table = text_table(
        "yours against the best | yours | best | difference | what",
        rows,
        ("step_time", *map(seconds, ends), signed(ends[0] - ends[1]), "sum"),
    )
    said = [
        f"yours: {yours(mine, plan)}",
        *(
            f"yours: {sentence}"
            for sentence in practice.broken_conventions(mine.job, mine.layout)
        ),
    ]
    return Group(table, *(IndentedLine(sentence) for sentence in said))


def against_dict(mine: Prediction, best: Prediction) -> dict[str, Any]:
    """The field `against` of `plan --json`."""
    return {
        "prediction": mine.to_dict(),
        "slower": mine.merit_s / best.merit_s - 1,
        "difference_s": seconds_by_cause(mine, best),
    }


def sizing_table(sizing: Sizing) -> RenderableType:
    """The numbers of chips that a deadline or a budget was tried with."""
    return text_table(
        "chips | run | cost | what",
        [_size(size, size.chips == sizing.chips) for size in sizing.tried],
    )


def _size(size: Size, chosen: bool) -> tuple[str, ...]:
    """The cells of a number of chips."""
    p = size.prediction
    chips = f"{size.chips:,}"
    if p is None or p.train_time_s is None:
        return chips, "", "", "nothing fits"
    cost = f"{count(p.cost_usd)} USD" if p.cost_usd is not None else ""
    words = short_words(p.layout) + " (chosen)" * chosen
    return chips, show(p.train_time_s, "s", 3), cost, words


def ranking_table(
    title: str, predictions: Sequence[Prediction], plan: Plan
) -> RenderableType:
    """One layout a row, the first as the plan has it, the others by expected time over the chance
    to fit.
    """
    # of one text are layouts whose ranks lie elsewhere, or whose norms are cut otherwise
    shown: dict[str, tuple[str, ...]] = {}
    first_s = plan.cost_s(predictions[0]) if predictions else 0.0
    for rank, p in enumerate(predictions, 1):
        short = short_words(p.layout)
        more = f"{100 * (plan.cost_s(p) / first_s - 1):+.1f} %"
        cells = (
            f"{rank}",
            seconds(p.step_time_s),
            ("" if rank == 1 else more) + (" =" if plan.tie(p) else "  "),
            memory_needed(p),
            risk_words(p.risk_of_oom),
            short,
        )
        shown.setdefault(short, cells)
    table = text_table(
        (title, "step", "vs first", "memory", "risk", "what"), shown.values()
    )
    tied = any(plan.tie(p) for p in predictions[1:])
    ties = "=: a tie, within the model's resolution"
    return Group(
        table,
        *difference_rows(plan, predictions),
        *([Text(ties, "dim")] if tied else []),
    )


def searched(plan: Plan) -> Iterator[RenderableType]:
    """How much was looked at, and at what."""
    if plan.tried:
        yield IndentedLine(
            f"best of: {plan.tried}"
            if plan.best
            else f"none of: {plan.tried}",
            "dim",
        )
    if plan.untried:
        yield IndentedLine(f"not tried: {plan.untried}", "dim")
    counts = dict(plan.rejected or {})
    bounds = counts.pop("bound", 0)
    memory = counts.pop("memory", 0)
    yield IndentedLine(
        f"Searched {plan.searched:,} layouts in {show(plan.elapsed_s, 's', 2)}: {bounds:,}"
        f" excluded by bounds, {memory:,} out of memory, {plan.feasible:,} feasible."
    )
    for rule, times in sorted(counts.items(), key=lambda item: -item[1]):
        if times:
            yield Text(
                f"  {times:,} combination{'s' * (times != 1)} of degrees skipped: {rule}",
                "dim",
            )
