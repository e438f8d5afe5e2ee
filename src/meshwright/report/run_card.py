"""The cards of a prediction, of a plan, and of a plan whose number of chips was searched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from ..count.model import parameters
from ..describe.assumptions import search_refusal
from ..describe.job import Job
from ..describe.layout import Layout
from ..formats.bridge.reading import TAKEN
from ..formats.flags import LOWER
from ..prediction.certainty import TRUSTED, resolution
from ..prediction.notes import IDLE_SETTING
from ..prediction.prediction import Prediction
from ..prediction.runnable import NO_RUN
from ..search import flag_text, why_simpler
from ..units import count, show
from .card import Card, CardRow, Commands, Item, answer_row
from .text import (
    BRIEFLY,
    beside_words,
    percent,
    priced_run,
    risk_words,
    run_words,
    seconds,
    short_words,
    step_words,
)

if TYPE_CHECKING:
    from ..search import Plan
    from ..sizing import Size, Sizing

WHY = "--why: time by cause, memory, notes; --explain step_time: its terms"
ALL = "--why: causes, memory; --all: families, ties, all layouts"
USUAL = "realistic"
"""The set of assumptions that goes without saying."""
SIZED = re.compile(r"\d[bBmMtT]\b")
"""A name that says how large its model is: llama3-70b."""
SEEN = 0.0005
"""Differences of two layouts below this share of a step are none: they would print as 0.0 %."""
ROUND = 0.1
"""Differences of two layouts from which on a tenth of a percent says nothing."""
FAR = 2.0
"""Times a step from which on percents are hard to hear."""
BINDING = 0.02
"""Share of the step from which a cause is named among those that bind."""
CAUSED = 3
"""Causes that are named."""
WAYS = 3
"""Changes that would make a layout fit, on a card."""
RECIPE = "ran as a published recipe"
"""Why a layout fits whatever is predicted of it."""
FIT = "make it fit"
"""What notes on them say."""
NOTES = 2
"""Notes of a card; the others are counted."""


def predict_card(p: Prediction, commands: Sequence[str] = ()) -> Card:
    """The card of one layout."""
    return Card(
        f"Predict {question(p.job)}",
        (
            verdict(p),
            *preconditions(p.idle, p.notes, p.fits),
            CardRow("layout", short_words(p.layout), most=WHOLE),
            *step_rows(p),
            *_run(p),
            *binding(p),
            *basis(p),
            *notes(p.notes),
            Commands(tuple(commands), rank=1),
        ),
        WHY,
    )


def plan_card(
    plan: Plan,
    later: Sequence[Item] = (),
    size: Sizing | None = None,
    against: str = "",
    aside: str = "",
    job: Job | None = None,
) -> Card:
    """The card of a search; later: what to do next; size: how many chips it is for, where that was
    asked; against: a layout of the user's beside the best, as a sentence; aside: why there is none;
    job: what was asked, for a plan without any layout.
    """
    best = plan.best
    if best is None:
        return unfit(plan, later, aside=aside, job=job)
    head = (
        [*goal_rows(size)]
        if size
        else [verdict(best, RECIPE if plan.recipe else "")]
    )
    mine = against or aside
    yours = [CardRow("yours", mine, rank=1, most=3)] if mine else []
    others = size_rows(size) if size else alternatives(plan)
    return Card(
        f"Plan {question(best.job)}",
        (
            *head,
            *preconditions(plan.idle or best.idle, [*plan.notes, *best.notes]),
            CardRow("best", short_words(best.layout), most=WHOLE),
            *(
                [CardRow("with", flag_text(plan.settings))]
                if plan.settings
                else []
            ),
            *step_rows(best, bool(plan.recipe)),
            *_run(best),
            *binding(best),
            *faster(plan),
            *yours,
            *others,
            *basis(best),
            *notes((*plan.notes, *filter(beside_a_plan, best.notes))),
            *later,
        ),
        ALL,
    )


def unfit(
    plan: Plan,
    later: Sequence[Item] = (),
    aside: str = "",
    job: Job | None = None,
) -> Card:
    """The card of a search without an answer: what stands in the way, and what would remove it."""
    closest = plan.closest
    why, *more = plan.notes or ("nothing fits",)
    if closest:
        rows: list[Item] = [
            verdict(closest, smallest=True),
            CardRow("closest", short_words(closest.layout), most=WHOLE),
        ]
    else:
        said = why.partition(": ")[2]
        illegal = f"not legal: {said}" if said else why
        rows = [answer_row(False, illegal, most=3)]
    ways = [note for note in more if FIT in note]
    rows += [
        *(
            CardRow("" if i else "but", note, most=3)
            for i, note in enumerate(ways[:WAYS])
        ),
        *preconditions("", more, fits=False),
        *notes(note for note in more if note not in ways),
    ]
    if aside:
        rows.append(CardRow("note", aside, "yellow"))
    asked = closest.job if closest else job
    name = f"Plan {question(asked)}" if asked else "Plan"
    return Card(name, (*rows, *later), ALL)


def question(job: Job) -> str:
    """What is trained on what, as it was asked; how large the model is, unless its name says so."""
    name = job.model.name
    if not SIZED.search(name):
        name += f" ({count(parameters(job.model))})"
    tokens = count(job.batch_tokens) + ("" if job.tokens else " tokens")
    length = f" for {count(job.tokens)} tokens" if job.tokens else ""
    batch = f"{tokens} ({job.batch:,} x {job.T:,})"
    how, _, framework = job.under_words.partition(", framework ")
    under = f" under {job.assumptions.name}"
    under = "" if how == f"assumptions {USUAL}" else under
    under += f" with {framework}" if framework else ""
    return f"{name}{length} on {job.cluster.machine}, batch {batch}{under}"


def verdict(p: Prediction, ran: str = "", smallest: bool = False) -> CardRow:
    """Whether it fits; ran: how it is known that it did, whatever is predicted; smallest: no layout
    needs less memory.
    """
    risk = ""
    if p.job.how.memory.risk_width:
        risk = f", out-of-memory risk {risk_words(p.risk_of_oom)}"
        if not p.fits and p.memory_short <= 0:
            accepted = risk_words(p.risk_accepted)
            just = "just " * risk.endswith(f" {accepted}")
            risk += f", {just}above the {accepted} accepted"
    need = _of_capacity(p)
    if p.memory_short > 0:
        needed, have = (show(p.memory_bytes[k], "GiB") for k in MEMORY)
        short = f"{show(p.memory_short, 'GiB')} short"
        need = f"needs {needed} where a chip has {have}, {short}"
    if smallest:
        takes = "" if p.memory_short > 0 else "takes "
        need = f"even the smallest layout {takes}{need}"
    if ran and not p.fits:
        return answer_row(
            True,
            f"{ran}, so it fits, though {_of_capacity(p)} were predicted{risk}",
        )
    fits = "fits in memory" if p.fits else p.verdict
    return answer_row(p.fits, f"{fits}: {need}{risk}")


def _of_capacity(p: Prediction) -> str:
    """41.5 of 79.6 GiB per chip."""
    need, have = (show(p.memory_bytes[key], "GiB") for key in MEMORY)
    return f"{need.removesuffix(' GiB')} of {have} per chip"


MEMORY = ("needed", "capacity")
"""What a verdict says of the bytes of a device."""


def step_rows(p: Prediction, ran: bool = False) -> Iterator[CardRow]:
    """Seconds of a step with their interval, and rates; ran: it fits whatever is predicted."""
    words = step_words(p)
    rate = f"{count(p.tokens_per_s)} tokens/s"
    mfu = f"MFU {percent(p.mfu)}"
    if p.hfu < HALVED * p.mfu:
        mfu += f" (counts full attention; HFU {percent(p.hfu)})"
    proviso = "" if ran else p.proviso
    yield CardRow("step", f"{words}, {rate}, {mfu}{proviso}", "bold")


HALVED = 0.75
"""HFU as a share of MFU, below which most of the latter is attention, of which causal kernels do
half."""


def _run(p: Prediction) -> Iterator[CardRow]:
    """Days and money of the whole run, where its length is known."""
    if p.train_time_s is not None:
        yield CardRow("run", priced_run(p))


def binding(p: Prediction) -> Iterator[CardRow]:
    """Where the step goes: its largest causes."""
    causes = sorted(p.time_s.items(), key=lambda item: -item[1])
    named = [
        f"{BRIEFLY[cause]} {percent(s / p.caused_s, 0)}"
        for cause, s in causes[:CAUSED]
        if s >= BINDING * p.caused_s
    ]
    yield CardRow("bound", ", ".join(named), rank=1, most=1)


WHOLE = 5
"""Lines in which flags and a layout stand whole on 80 columns: one that is cut cannot be copied."""
RISKIER = 0.005
"""More chance to run out of memory, from which on it is said beside what is faster."""


def faster(plan: Plan) -> Iterator[CardRow]:
    """What other settings of the framework's software give, and how they are asked for."""
    tuned = plan.tuned
    if tuned is None:
        return
    p, best = tuned.prediction, plan.best
    assert best is not None
    same = short_words(p.layout) == short_words(best.layout)
    layout = "" if same else f" on {short_words(p.layout)}"
    gain = f"{-100 * tuned.change:.0f} % faster"
    figures = filter(None, (seconds(p.step_time_s), riskier(p, best), gain))
    yield CardRow(
        "or",
        f"{', '.join(figures)} with {tuned.flags}{layout}",
        rank=2,
        most=WHOLE,
    )


def alternatives(plan: Plan) -> Iterator[CardRow]:
    """The nearest layout that reads differently, and the best of another family, of those that fit
    (a recipe of other chips may not).
    """
    best = plan.best
    assert best is not None
    families = [
        f.prediction
        for f in plan.families
        if f.prediction and f.prediction.fits
    ]
    apart = [p for p in families if not plan.tie(p)]
    taken = {short_words(_in_effect(best.layout))}
    for rank, every in enumerate(
        (plan.alternatives, apart or plan.alternatives), 3
    ):
        for p in every:
            words = short_words(_in_effect(p.layout))
            if words not in taken:
                said = _layout_words(plan, p)
                yield CardRow("or", said, rank=rank, most=WHOLE)
                taken.add(words)
                break


def _in_effect(layout: Layout) -> Layout:
    """What a layout does: a shard of one rank is none."""
    alone = (layout.dp or 1) * layout.cp == 1
    return replace(layout, zero=0) if alone else layout


def _layout_words(plan: Plan, p: Prediction) -> str:
    """What a layout costs beside the best, and why it is not the answer where it is as good."""
    time = p.step_time_s if p.train_time_s is None else p.train_time_s
    cost = [seconds(time) if p.train_time_s is None else show(time, "s")]
    if p.cost_usd is not None:
        cost.append(f"{count(p.cost_usd)} USD")
    cost.append(slower_words(plan, p))
    beyond = plan.beyond
    why = beyond and beyond.prediction is p and (beyond.note or beyond.name)
    one = _in_effect(p.layout)
    words = short_words(one)
    if plan.tie(p):
        assert plan.best is not None
        why = tie_words(plan, p)
        words = beside_words(_in_effect(plan.best.layout), one)
    return f"{', '.join(cost)}: {words}" + (f" ({why})" if why else "")


def tie_words(plan: Plan, p: Prediction) -> str:
    """That a layout is as good as the best, as far as the model can tell, and what speaks for the
    best where this one takes less.
    """
    best = plan.best
    assert best is not None
    near = resolution(best.job)
    tie = f"a tie within {percent(near, 0)}" if near else "a tie"
    if abs(p.step_time_s / best.step_time_s - 1.0) > near:
        tie += " with the risks of both"
    has = why_simpler(best.job, best.layout, p.layout)
    faster = p.step_time_s < best.step_time_s
    return f"{tie}; the best has {has}" if faster and has else tie


def slower_words(plan: Plan, p: Prediction) -> str:
    """What a layout takes more or less than the best, and risks more: 3.9 % slower."""
    assert plan.best is not None
    times = p.step_time_s / plan.best.step_time_s
    more = abs(times - 1.0)
    how = "slower" if times > 1.0 else "faster"
    words = f"{percent(more, 0 if more > ROUND else 1)} {how}"
    if more < SEEN:
        words = "as fast"
    elif times > FAR:
        words = f"{times:.1f} times as long"
    return ", ".join(filter(None, (words, riskier(p, plan.best))))


def riskier(p: Prediction, best: Prediction) -> str:
    """The risk of a layout, where it is more than that of the best."""
    if p.risk_of_oom - best.risk_of_oom < RISKIER:
        return ""
    return f"out-of-memory risk {risk_words(p.risk_of_oom)}"


def yours(mine: Prediction, plan: Plan) -> str:
    """A layout of the user's beside the best."""
    words = short_words(mine.layout)
    if plan.best is None or mine.layout == plan.best.layout:
        return f"{words}: this is the best"
    how = mine.job.assumptions
    refused = search_refusal(how, mine.layout).replace(
        ": it ", f": {how.name} "
    )
    beside = ", ".join(
        filter(None, (slower_words(plan, mine), refused.partition(": ")[2]))
    )
    return f"{words}: {seconds(mine.step_time_s)}, {beside}"


def basis(p: Prediction) -> Iterator[CardRow]:
    """On which published runs the interval rests."""
    sure = p.certainty
    if not sure:
        return
    if not sure.rows:
        said = f"no published run of this kind ({sure.kind}): a rough interval"
        traced = [note for note in sure.note.split("; ") if "a trace" in note]
        yield CardRow("basis", "; ".join((said, *traced)), "yellow", rank=1)
        return
    n = len(sure.sources)
    few = [f"{n} source{'s' * (n > 1)}"] if n < TRUSTED else []
    doubts = [
        re.sub(r"none in (\S+)", r"no \1 run", note)
        for note in sure.note.split("; ")
        if note and "source" not in note
    ]
    said = f"{sure.rows:,} published runs: {sure.kind}"
    style = "yellow" if few or doubts else ""
    yield CardRow("basis", "; ".join((said, *few, *doubts)), style, rank=1)


ABOVE = (
    ("but", re.compile(f"^{LOWER}.*"), 3),
    ("batch", re.compile("(?<=^batch: ).*"), 1),
    ("but", re.compile(f".*{NO_RUN}.*"), 2),
    ("length", re.compile(".*for trillions say 15T$"), 2),
    ("assumed", re.compile(f"(?<=^{TAKEN}).*"), 2),
)
"""Notes that stand before any number which they make another (a setting of a file that would lower
memory, a rounded batch, software that does not run there, a run as long as nobody means, what was
taken for what a file does not say): label, what is shown of it, lines."""
SAID = re.compile(
    "chips (?:is|are) idle$|are needed on the fullest chip|^dp not given"
)
"""Notes on what a row of the card says already."""


def preconditions(
    idle: str, sentences: Sequence[str], fits: bool = True
) -> Iterator[CardRow]:
    """What stands before any number: chips that do nothing, and the notes of `ABOVE`; a setting
    that would lower memory only where that is short.
    """
    if idle:
        yield CardRow("idle", idle, "yellow")
    for label, form, most in ABOVE:
        for note in dict.fromkeys(sentences):
            if (match := form.search(note)) and not (
                fits and note.startswith(LOWER)
            ):
                said = match[0] + " (not in the file)" * (label == "assumed")
                yield CardRow(label, said, "yellow", most=most)


def notes(sentences: Iterable[str]) -> Iterator[CardRow]:
    """The first of the others, a line each; the rest is counted."""
    every = [
        note
        for note in dict.fromkeys(sentences)
        if not SAID.search(note)
        and not any(form.search(note) for _, form, _ in ABOVE)
    ]
    every.sort(key=urgent)
    for i, sentence in enumerate(islice(every, NOTES)):
        # one that is alone has room
        most = 1 if len(every) > 1 else 2
        label = "note" if i == 0 else ""
        yield CardRow(label, sentence, "yellow", 5 + i, most=most)
    rest = len(every) - NOTES
    if rest > 0:
        more = f"{rest} more note{'s' * (rest > 1)}: --why"
        yield CardRow("", more, "dim", rank=8)


UNMEASURED = "unmeasured"
"""A word of notes on rates that are assumed."""
URGENT = (
    *(
        ", not on ",
        "no price",
        "no public price",
        UNMEASURED,
        IDLE_SETTING,
        "no published run",
    ),
    *("allows", "keeps to", "cannot run", "own default", "rounded"),
)
"""Words of notes that stand first, most urgent first."""


def beside_a_plan(sentence: str) -> bool:
    """Whether a note on the best layout is one on the question: that a rate is assumed, or that a
    setting changes nothing.
    """
    return UNMEASURED in sentence or IDLE_SETTING in sentence


def urgent(sentence: str) -> int:
    """The place of a note among the others."""
    return next(
        (i for i, word in enumerate(URGENT) if word in sentence), len(URGENT)
    )


def too_small(size: Sizing) -> Card:
    """Where no number of chips keeps the deadline or the budget."""
    p = next((s.prediction for s in size.tried if s.prediction), None)
    of = f" for {p.job.model.name}, {count(p.job.tokens)} tokens" if p else ""
    return Card(
        f"How many chips{of}?",
        (*goal_rows(size), *size_rows(size)),
        "--why: every number tried",
    )


def goal_rows(size: Sizing) -> Iterator[CardRow]:
    """Whether a deadline or a budget is kept, and by how many chips."""
    yield answer_row(size.chips, size.why, most=3)


def size_rows(size: Sizing) -> Iterator[CardRow]:
    """The numbers of chips beside the answer, and what they take."""
    chosen = next((s for s in size.tried if s.chips == size.chips), None)
    others = [s for s in size.tried if s.prediction and s is not chosen]
    if chosen is None:
        near = sorted(others, key=_usd)[1:3]
    else:
        apart = [
            s for s in others if _differs(s, chosen) and not _worse(s, chosen)
        ]
        below = [s for s in apart if s.chips < chosen.chips][-1:]
        above = [s for s in apart if s.chips > chosen.chips][:1]
        near = [*below, *above]
    for each in near:
        p = each.prediction
        assert p is not None
        words = f"{each.chips:,} chips: {run_words(p)}"
        yield CardRow("or", words, rank=2, most=1)


ALIKE = 0.05
"""Runs that take so little more or less time are no alternative."""


def _differs(one: Size, other: Size) -> bool:
    """Whether runs on two numbers of chips take another time."""
    a, b = (s.prediction and s.prediction.train_time_s for s in (one, other))
    return bool(a and b and abs(a / b - 1) > ALIKE)


def _worse(one: Size, other: Size) -> bool:
    """Whether a run takes longer than another and costs as much or more: no alternative."""
    a, b = one.prediction, other.prediction
    assert a and b
    slower = (a.train_time_s or 0.0) > (b.train_time_s or 0.0)
    return slower and _usd(one) >= _usd(other)


def _usd(size: Size) -> float:
    """What a run costs."""
    p = size.prediction
    return (p.cost_usd or 0.0) if p else 0.0
