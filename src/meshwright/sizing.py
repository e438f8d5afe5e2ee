"""How many chips: the cheapest run that ends in time, the fastest that a budget pays for.

More chips take fewer days and, since none of them gets faster, hardly cost less. So a walk over
clean numbers of chips (a node, and 2, 3, 4, 6, 8, 12, ... of them) finds where a goal is met, and
every multiple of a node near there is tried. A goal counts as met where the run meets it with a
probability of at least SURE, by the prediction's interval, with checkpoints and interruptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from .count.model import model_flops
from .describe.frozen import short_repr
from .describe.job import Job
from .errors import BadInput, MeshwrightError
from .limits.laws import LAWS
from .prediction.prediction import Prediction
from .sweep import vary
from .units import DAY_S, count, show

if TYPE_CHECKING:
    from .search import Plan, Space

MOST_CHIPS = 2**18
"""Of a cluster that is looked at."""
AHEAD = 2
"""Numbers of chips beyond one that meets or misses a goal which are still looked at: costs do not
rise evenly."""
NEAR = 12
"""Multiples of a node that are tried near the answer of the walk."""
SURE = 0.9
"""Probability with which a goal is met."""
REACH = NormalDist().inv_cdf(SURE) / NormalDist().inv_cdf(0.95)
"""Of the way, in logarithms, from what is expected to the upper end of its 90 % interval: where
SURE is reached."""

WHOSE = {"baseline": "Epoch 2024", "deepseek": "DeepSeek 2024"}
"""Scaling law -> who found it, in a sentence."""


@dataclass(frozen=True)
class Size:
    """A number of chips, and what a run takes on it."""

    chips: int
    prediction: Prediction | None
    """None: nothing fits, or the run cannot be laid out."""

    __repr__ = short_repr

    def surely(self, expected: float) -> float:
        """What that which grows with the step time (seconds, dollars; `expected` of them) does not
        exceed, with probability SURE: log-normal above what is expected.
        """
        p = self.prediction
        ends = p.within(expected) if p else None
        return expected * (ends[1] / expected) ** REACH if ends else expected

    def keeps(
        self, deadline_s: float | None, budget_usd: float | None
    ) -> bool:
        """Whether the run ends in time and within the budget, each as surely as SURE."""
        p = self.prediction
        if p is None or p.train_time_s is None:
            return False
        goals = ((deadline_s, p.train_time_s), (budget_usd, p.cost_usd or 0.0))
        return all(
            limit is None or not value or self.surely(value) <= limit
            for limit, value in goals
        )


@dataclass(frozen=True)
class Sizing:
    """The answer, and the numbers of chips that were looked at, ascending."""

    chips: int | None
    """None: no number does."""
    tried: tuple[Size, ...]
    why: str

    __repr__ = short_repr

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
    """The cheapest run on chips of the job's kind that keeps a deadline; without one, the fastest
    that a budget pays for. BadInput where the job has no length, or a budget no price.
    """
    _demand(job, deadline_s, budget_usd)
    seen = dict[int, Size]()

    def size(chips: int) -> Size:
        if progress and chips not in seen:
            progress(f"{chips:,} chips", 0.0)
        return seen.setdefault(chips, _size(job, chips, space))

    numbers = chip_counts(job)
    at = _start(numbers, job.cluster.chips, size)
    if deadline_s is not None:
        last = _in_time(numbers, at, size, deadline_s)
    else:
        last = _paid(numbers, at, size, budget_usd or 0.0)
    for chips in _nearby(job, numbers, last, seen=seen, deadline_s=deadline_s):
        size(chips)
    tried = tuple(seen[chips] for chips in sorted(seen))
    kept = [s for s in tried if s.keeps(deadline_s, budget_usd)]
    order = _dollars if deadline_s is not None else _time
    best = min(kept, key=order, default=None)
    why = _reason(best, tried, deadline_s, budget_usd)
    return Sizing(best.chips if best else None, tried, why)


def _demand(
    job: Job, deadline_s: float | None, budget_usd: float | None
) -> None:
    """BadInput where the question cannot be answered."""
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
                f"a {name} must be above 0, not {_signed(limit, unit)}"
            )


def _signed(limit: float, unit: str) -> str:
    """A limit in days or dollars, also below 0."""
    return f"{limit / DAY_S:g} days" if unit == "s" else show(limit, unit)


def chip_counts(job: Job) -> list[int]:
    """Clean numbers of chips of the job's kind that its network can join, ascending."""
    unit = int(job.cluster.sizes[0])
    clean = {unit * f * 2**k for f in (1, 3) for k in range(18)}
    return [
        chips
        for chips in sorted(clean | {job.cluster.chips})
        if chips <= MOST_CHIPS and _joins(job, chips)
    ]


def _size(job: Job, chips: int, space: Space | None) -> Size:
    from .search import plan

    try:
        return Size(
            chips,
            plan(vary(job, "chips", chips), space, top=1, families=False).best,
        )
    except MeshwrightError:
        return Size(chips, None)


def _start(numbers: list[int], chips: int, size: Callable[[int], Size]) -> int:
    """Where the first number stands, from the job's own on, else below, on which something fits."""
    own = numbers.index(chips)
    order = [*range(own, len(numbers)), *reversed(range(own))]
    return next((i for i in order if size(numbers[i]).prediction), own)


def _in_time(
    numbers: list[int],
    i: int,
    size: Callable[[int], Size],
    deadline_s: float,
) -> int:
    """From a first guess by chip-hours down while runs end in time, or up until one does.

    With too many chips nothing is left of a batch for each, so there is an end upwards too. A few
    more are looked at, since the fewest chips in time need not be the cheapest.
    """

    def keeps(k: int) -> bool:
        return size(numbers[k]).keeps(deadline_s, None)

    p = size(numbers[i]).prediction
    if p and p.train_time_s:
        need = numbers[i] * p.train_time_s / deadline_s
        i = min(
            (k for k, n in enumerate(numbers) if n >= need),
            default=len(numbers) - 1,
        )
    while i and size(numbers[i]).prediction is None:
        i -= 1
    while (
        i + 1 < len(numbers)
        and not keeps(i)
        and size(numbers[i + 1]).prediction
    ):
        i += 1
    while i and keeps(i) and keeps(i - 1):
        i -= 1
    if keeps(i):
        for k in range(i + 1, min(i + 1 + AHEAD, len(numbers))):
            size(numbers[k])
    return i


def _paid(
    numbers: list[int],
    i: int,
    size: Callable[[int], Size],
    budget_usd: float,
) -> int:
    """Up while the money lasts, else down until it does; where it never does, the cheapest.

    Costs do not rise with every step: numbers that share the batch badly, or too few chips to hold
    the fast layouts, cost more than some above them. So a walk up looks AHEAD.
    """

    def keeps(k: int) -> bool:
        return k < len(numbers) and size(numbers[k]).keeps(None, budget_usd)

    while paid := [k for k in range(i + 1, i + 1 + AHEAD) if keeps(k)]:
        i = paid[-1]
    top = i
    while not keeps(i):
        if not i or size(numbers[i]).prediction is None:
            return min(
                range(i, min(top + AHEAD, len(numbers) - 1) + 1),
                key=lambda k: _dollars(size(numbers[k])),
            )
        i -= 1
    return i


def _nearby(
    job: Job,
    numbers: list[int],
    i: int,
    seen: dict[int, Size],
    deadline_s: float | None,
) -> list[int]:
    """The multiples of a node between the walk's last number and its neighbour: below it where a
    deadline is kept, those nearest to where it should just be met; above it where a budget lasts,
    evenly. At most NEAR of them.
    """
    node = int(job.cluster.sizes[0])
    low = numbers[i - 1] if i else 0
    high = numbers[i]
    if deadline_s is None:
        low, high = high, (numbers[i + 1] if i + 1 < len(numbers) else high)
    between = range((low // node + 1) * node, high, node)
    p = seen[numbers[i]].prediction
    if deadline_s is None or not p or not p.train_time_s:
        nearest = [*between[:: max(1, math.ceil(len(between) / NEAR))]]
    else:
        late = (p.within(p.train_time_s) or (0.0, p.train_time_s))[1]
        need = numbers[i] * late / deadline_s
        nearest = sorted(between, key=lambda n: abs(n - need))[:NEAR]
    return [n for n in sorted(nearest) if n not in seen and _joins(job, n)]


def _joins(job: Job, chips: int) -> bool:
    """Whether the job's network joins so many chips."""
    try:
        vary(job, "chips", chips)
    except MeshwrightError:
        return False
    return True


def _dollars(size: Size) -> tuple[float, int]:
    """Order by what a run costs, where nobody knows it by chips; infinite where there is none."""
    p = size.prediction
    if p is None:
        return math.inf, size.chips
    return p.cost_usd or 0.0, size.chips


def _time(size: Size) -> tuple[float, int]:
    """Order by how long a run takes."""
    p = size.prediction
    time = p.train_time_s if p else None
    return (math.inf if time is None else time), size.chips


def _reason(
    best: Size | None,
    tried: tuple[Size, ...],
    deadline_s: float | None,
    budget_usd: float | None,
) -> str:
    """The answer as a sentence."""
    sure = f"with {100 * SURE:.0f} % confidence"
    goals = []
    if deadline_s is not None:
        goals.append(f"in {show(deadline_s, 's', 3)}")
    if budget_usd is not None:
        goals.append(f"for under {count(budget_usd)} USD")
    goal = f"{' and '.join(goals)} {sure}"
    if best:
        kind = "cheapest" if deadline_s is not None else "fastest"
        chips, _, rest = _takes(best).partition(": ")
        return f"{chips} finish {goal}: {rest}; {kind} of {len(tried)} sizes tried"
    timely = [s for s in tried if s.keeps(deadline_s, None)]
    if deadline_s is None or timely:
        near = min(timely or tried, key=_dollars)
        word = (
            "the cheapest in time"
            if deadline_s is not None
            else "the cheapest"
        )
    else:
        near = min(tried, key=_time)
        word = "the fastest"
    none = f"no size tried finishes {goal}"
    if near.prediction is None:
        return none
    chips, _, rest = _takes(near).partition(": ")
    paid = "" if budget_usd is None else _paid_tokens(near, budget_usd)
    return f"{none}; {word}, {chips}, takes {rest}{paid}"


def _paid_tokens(size: Size, budget_usd: float) -> str:
    """How many tokens a budget pays for at a run's price: what a run costs goes with its length."""
    p = size.prediction
    if p is None or not p.cost_usd or p.cost_usd <= budget_usd:
        return ""
    tokens = p.job.tokens * budget_usd / p.cost_usd
    return f": the money is enough for {count(tokens, 2)} tokens"


def _takes(size: Size) -> str:
    """Chips, days and dollars of a run."""
    p = size.prediction
    assert p is not None and p.train_time_s is not None
    words = f"{size.chips:,} chips: {show(p.train_time_s, 's', 3)}"
    return words + (
        f", {count(p.cost_usd)} USD" if p.cost_usd is not None else ""
    )


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
    each = {
        name: f"{count(tokens, 2)} ({WHOSE.get(name, name)})"
        for name, tokens in critical.items()
    }
    over = [each[n] for n, most in critical.items() if job.batch_tokens > most]
    under = [words for words in each.values() if words not in over]
    batch = f"the batch of {count(job.batch_tokens)} tokens is"
    if not over:
        return f"{batch} below the critical batch, {' or '.join(under)}"
    other = f", but below {' or '.join(under)}" if under else ""
    return (
        f"{batch} beyond the critical batch, {' or '.join(over)}{other}: more sequences a step"
        " need more tokens for the same loss"
    )


def plan_notes(
    plan: Plan, job: Job, rounded: Sequence[str]
) -> tuple[str, ...]:
    """What is said beside a plan of a job: what was rounded, and the critical batch; where nothing
    fits, the reason stands first.
    """
    said = (*plan.notes, *filter(None, [batch_beside(job)]))
    return (*rounded, *said) if plan.best else (*said, *rounded)
