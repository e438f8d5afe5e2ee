"""How many chips: the fewest that train in time, the most that a budget pays for.

More chips take fewer days and, since none of them gets faster, hardly cost less; so both are found
by a walk over clean numbers of chips: a node, and 2, 3, 4, 6, 8, 12, ... of them. Expected days and
dollars decide, with checkpoints and interruptions; their intervals stand beside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .count.model import model_flops
from .describe.frozen import shown
from .describe.job import Job
from .errors import BadInput, MeshwrightError
from .limits.laws import LAWS
from .prediction.prediction import Prediction
from .sweep import vary
from .units import show

if TYPE_CHECKING:
    from .search import Space

MOST_CHIPS = 2**18
"""Of a cluster that is looked at."""
AHEAD = 2
"""Numbers of chips beyond one that a budget does not pay for which are still looked at."""


@dataclass(frozen=True)
class Size:
    """A number of chips, and what a run takes on it."""

    chips: int
    prediction: Prediction | None
    """None: nothing fits, or the run cannot be laid out."""

    __repr__ = shown

    def keeps(
        self, deadline_s: float | None, budget_usd: float | None
    ) -> bool:
        """Whether the expected run ends in time and within the budget."""
        p = self.prediction
        if p is None or p.train_time_s is None:
            return False
        late = deadline_s is not None and p.train_time_s > deadline_s
        dear = budget_usd is not None and (p.cost_usd or 0.0) > budget_usd
        return not (late or dear)


@dataclass(frozen=True)
class Sizing:
    """The answer, and the numbers of chips that were looked at, ascending."""

    chips: int | None
    """None: no number does."""
    tried: tuple[Size, ...]
    why: str

    __repr__ = shown

    def to_dict(self) -> dict[str, Any]:
        """The field `sizing` of `plan --json`."""
        rows = []
        for size in self.tried:
            p = size.prediction
            rows.append(
                {
                    "chips": size.chips,
                    "train_time_s": p.train_time_s if p else None,
                    "train_time_interval_s": p.within(p.train_time_s)
                    if p
                    else None,
                    "cost_usd": p.cost_usd if p else None,
                    "cost_interval_usd": p.within(p.cost_usd) if p else None,
                }
            )
        return {"chips": self.chips, "why": self.why, "tried": rows}


def sizing(
    job: Job,
    space: Space | None = None,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Sizing:
    """The fewest chips of the job's kind that keep a deadline; without one, the most that a budget
    pays for. BadInput where the job has no length, or a budget no price.
    """
    if not job.tokens:
        raise BadInput(
            "a deadline or a budget needs the length of the run: --tokens 15T"
        )
    if budget_usd is not None and not job.cluster.chip.usd_per_hour:
        raise BadInput(
            f"a budget needs a price, and {job.cluster.chip.unpriced}"
        )
    if deadline_s is None and budget_usd is None:
        raise BadInput("sizing needs a deadline or a budget")
    for name, limit, unit in (
        ("deadline", deadline_s, "s"),
        ("budget", budget_usd, "USD"),
    ):
        if limit is not None and limit <= 0:
            raise BadInput(
                f"a {name} must be above 0, not {show(limit, unit)}"
            )
    sizes = counts(job)
    seen = dict[int, Size]()

    def size(i: int) -> Size:
        if progress and i not in seen:
            progress(f"{sizes[i]:,} chips", 0.0)
        return seen.setdefault(i, _size(job, sizes[i], space))

    index = _start(sizes, job.cluster.chips, size)
    if deadline_s is not None:
        index = _in_time(sizes, index, size, deadline_s)
    elif budget_usd is not None:
        index = _paid(sizes, index, size, budget_usd)
    tried = tuple(seen[i] for i in sorted(seen))
    chosen = seen.get(index)
    chips = (
        chosen.chips
        if chosen and chosen.keeps(deadline_s, budget_usd)
        else None
    )
    return Sizing(chips, tried, _why(chosen, deadline_s, budget_usd))


def counts(job: Job) -> list[int]:
    """Clean numbers of chips of the job's kind that its network can join, ascending."""
    unit = int(job.cluster.sizes[0])
    clean = []
    sizes = sorted(
        {unit * f * 2**k for f in (1, 3) for k in range(18)}
        | {job.cluster.chips}
    )
    for chips in sizes:
        if chips <= MOST_CHIPS:
            try:
                vary(job, "chips", chips)
            except MeshwrightError:
                continue
            clean.append(chips)
    return clean


def _size(job: Job, chips: int, space: Space | None) -> Size:
    from .search import plan

    try:
        return Size(
            chips,
            plan(vary(job, "chips", chips), space, top=1, families=False).best,
        )
    except MeshwrightError:
        return Size(chips, None)


def _start(sizes: list[int], chips: int, size: Callable[[int], Size]) -> int:
    """The first number from the job's own on, else below, on which something fits."""
    own = sizes.index(chips)
    order = [*range(own, len(sizes)), *reversed(range(own))]
    return next((i for i in order if size(i).prediction), own)


def _in_time(
    sizes: list[int], i: int, size: Callable[[int], Size], deadline_s: float
) -> int:
    """From a first guess by chip-hours down while runs end in time, or up until one does.

    With too many chips nothing is left of a batch for each, so there is an end upwards too.
    """
    p = size(i).prediction
    if p and p.train_time_s:
        need = sizes[i] * p.train_time_s / deadline_s
        i = min(
            (k for k, n in enumerate(sizes) if n >= need),
            default=len(sizes) - 1,
        )
    while i and size(i).prediction is None:
        i -= 1
    while (
        i + 1 < len(sizes)
        and not size(i).keeps(deadline_s, None)
        and size(i + 1).prediction
    ):
        i += 1
    while (
        i
        and size(i).keeps(deadline_s, None)
        and size(i - 1).keeps(deadline_s, None)
    ):
        i -= 1
    return i


def _paid(
    sizes: list[int], i: int, size: Callable[[int], Size], budget_usd: float
) -> int:
    """Up while the money lasts, else down until it does; where it never does, the cheapest.

    Costs do not rise with every step: numbers that share the batch badly, or too few chips to hold
    the fast layouts, cost more than some above them. So a walk up looks AHEAD.
    """

    def keeps(k: int) -> bool:
        return k < len(sizes) and size(k).keeps(None, budget_usd)

    while paid := [k for k in range(i + 1, i + 1 + AHEAD) if keeps(k)]:
        i = paid[-1]
    top = i
    while not keeps(i):
        if not i or size(i).prediction is None:
            return min(
                range(i, min(top + AHEAD, len(sizes) - 1) + 1),
                key=lambda k: _usd(size(k)),
            )
        i -= 1
    return i


def _usd(size: Size) -> float:
    """What a run costs; infinite where there is none."""
    p = size.prediction
    return math.inf if p is None or p.cost_usd is None else p.cost_usd


def _why(
    chosen: Size | None, deadline_s: float | None, budget_usd: float | None
) -> str:
    """The answer as a sentence."""
    goals = [f"{show(deadline_s, 's', 3)}"] if deadline_s is not None else []
    goals += [_money(budget_usd)] if budget_usd is not None else []
    goal = " and ".join(goals)
    p = chosen.prediction if chosen else None
    if chosen is None or p is None or p.train_time_s is None:
        return f"no number of these chips trains within {goal}"
    if not chosen.keeps(deadline_s, None):
        most = f"{chosen.chips:,} chips, the most with this batch, take"
        time = show(p.train_time_s, "s", 3)
        return f"no number of these chips trains within {goal}: {most} {time}"
    words = f"{chosen.chips:,} chips: {show(p.train_time_s, 's', 3)}"
    if p.cost_usd is not None:
        words += f", {_money(p.cost_usd)}"
    if not chosen.keeps(deadline_s, budget_usd) and deadline_s is None:
        return f"no number of these chips trains within {goal}: cheapest are {words}"
    if not chosen.keeps(deadline_s, budget_usd):
        return f"within {goal}: no; the fewest chips in time cost too much ({words})"
    ends = p.within(p.train_time_s)
    late = deadline_s is not None and ends is not None and ends[1] > deadline_s
    sure = "; the upper end of the interval is later" if late else ""
    few = (
        "of the numbers tried the fewest that end in time"
        if deadline_s is not None
        else "of the numbers tried the most it pays for"
    )
    return f"within {goal}: {words} ({few}{sure})"


def _money(usd: float) -> str:
    """Dollars in three digits."""
    for size, prefix in ((1e6, " M"), (1e3, " k")):
        if usd >= size:
            return f"{usd / size:.3g}{prefix} USD"
    return f"{usd:.3g} USD"


def critical_batch(job: Job) -> dict[str, float]:
    """Scaling law -> tokens of a step beyond which more of them train little faster; {} without a
    length of the run. A mixture of experts takes E^s times the batch, E experts for each that a
    token meets.
    """
    if not job.tokens:
        return {}
    flops = model_flops(job.model, job.T) * job.tokens
    moe = job.model.moe
    sparse = moe.experts / moe.top_k if moe else 1.0
    return {
        name: float(law.batch(flops)) * sparse**law.batch_experts
        for name, law in LAWS.items()
        if law.batch.exponent
    }


def batch_beside(job: Job) -> str:
    """The critical batch beside the one that was asked, as a sentence; empty without a length."""
    critical = critical_batch(job)
    if not critical:
        return ""
    each = ", ".join(
        f"{show(tokens / 1e6, '', 2)} M ({name})"
        for name, tokens in critical.items()
    )
    times = job.batch_tokens / max(critical.values())
    said = f"batch: {show(job.batch_tokens / 1e6, '', 2)} M tokens; critical batch by law: {each}"
    if times > 1:
        return f"{said}: beyond it, more sequences a step need more tokens for the same loss"
    return said
