"""The words of a pipeline schedule: an action, a rule, a schedule.

A pipeline cuts the model into stages. A device (a *rank* of the pp axis) holds one or more of them,
its *chunks*, and works through the microbatches in a fixed order. Letters: `p` ranks, `m`
microbatches, `v` chunks of a device; `f`, `i`, `w` the seconds that one microbatch takes on one
device, all its chunks together: the forward pass, the gradient of the input and the gradient of the
weights. The last two make the backward pass, f + i + w is the useful time of a microbatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, NamedTuple, TypeAlias

from ..num import Num, minimum, where
from . import groups
from .partition import StagePartition


class Action(NamedTuple):
    """One pass of one microbatch through one chunk of a rank."""

    kind: str
    """F forward, B whole backward, I gradient of the input, W gradient of the weights (B = I then
    W, at once).
    """
    chunk: int
    """Which of the rank's chunks: 0 .. chunks - 1. `Schedule.stage_of` tells the stage."""
    microbatch: int


Order: TypeAlias = list[list[Action]]
"""For each rank, its actions one after the other."""


class Costs(NamedTuple):
    """What the passes of a pipeline take, in seconds."""

    passes: tuple[tuple[float, float, float], ...]
    """F, I and W of one microbatch through each stage."""
    send: float
    """From a rank to the next."""


Bubble: TypeAlias = Callable[[Num, Num, Num, Num, Num, Num], Num]
"""(p, m, v, f, i, w) -> idle seconds of a device per step. Equal stages, free sends."""
LeastBubble: TypeAlias = Callable[[Num, Num, Num, Num, Num], Num]
"""(p, v, f, i, w) -> the same, at most, for every m."""


@dataclass(frozen=True)
class Rule:
    """A condition on p, m, v, and the sentence for those who break it."""

    holds: Callable[[Any, Any, Any], Any]
    """(p, m, v), numbers or arrays -> True where the rule is kept."""
    sentence: Callable[[int, int, int], str]
    """(p, m, v) -> what is wrong, with the nearest valid values."""


@dataclass(frozen=True)
class Schedule:
    """One way to order the microbatches, with what follows from it in closed form.

    Every formula takes numbers or arrays; `order`, `stage_of` and `rules` take one layout.
    """

    name: str
    """What a layout calls it."""
    title: str
    source: str
    """The paper that introduced it."""
    torch_name: str | None
    """The class of torch.distributed.pipelining that runs the same order, if there is one."""
    split_backward: bool
    """True if weight gradients may run later than input gradients."""
    chunks: Callable[[Num], Num]
    """v -> chunks that a device holds."""
    stage_of: Callable[[int, int, int, int], int]
    """(rank, chunk, p, v) -> stage, 0 the first of the model."""
    order: Callable[[int, int, int], Order]
    """(p, m, v) -> the actions of each rank."""
    bubble: Bubble
    """Of a step by itself: makespan - m (f + i + w); where ranks share the microbatches of a stage,
    m is a rank's share."""
    in_flight: Callable[[Num, Num, Num], Num]
    """(p, m, v) -> the most microbatches whose activations a device holds at once; 1 = one through
    all its chunks.
    """
    heads: Callable[[Num, Num, Num], Num]
    """(p, m, v) -> the most microbatches between the forward pass of the last stage and the
    gradient of its input: so many logits are kept at once."""
    needs: tuple[Rule, ...]
    """What p, m and v must satisfy."""
    heads_late: Callable[[Num, Num, Num], Num] = lambda p, m, v: 0
    """(p, m, v) -> how many wait, at that moment, between the gradients of the last stage's input
    and of its weights.
    """
    bubble_in_run: Bubble | None = None
    """Of a step in a run of them, if each rank begins the next one as soon as it is done with this
    one: what one more step takes, less m (f + i + w). None = `bubble`: the rank that begins first
    also ends last."""
    in_flight_on_last: Callable[[Num, Num, Num], Num] | None = None
    """`in_flight` of the device with the last stage, where it holds fewer; None = as many as the
    fullest.
    """
    in_flight_on: Callable[[Num, Num, Num, Num], Num] | None = None
    """(p, m, v, rank) -> `in_flight` of a rank, where later ones hold fewer."""
    least_bubble_of: LeastBubble | None = None
    """The smallest `bubble` any number of microbatches gives; None = that of p or of unlimited
    ones.
    """
    least_in_run_of: LeastBubble | None = None
    """The same of `bubble_in_run`."""
    copies: int = 1
    """Ranks that hold each stage, each for a share of the microbatches."""
    stages: Any = "even"
    """How a layout deals layers to its stages (`describe.stages`: a text, or what it says)."""
    group: int = 0
    """Microbatches that go through a chunk before the next one has its turn (`groups`)."""
    grouped: Callable[[int], Schedule] | None = None
    """The same schedule with such groups; None: it has none."""
    ahead: int = 0
    """Forwards that a rank runs ahead for each rank below it, and weight gradients that it holds
    back for each above, where backward passes are split (1F1B, ZB-H1: 1, ZB-H2: 2); 0: not so.
    """
    replayed: bool = False
    """It has no closed forms: they are read off its order (`schedule.replayed`)."""
    by_costs: Callable[[Costs, int, int, int], Order] | None = None
    """(costs, p, m, v) -> the actions of each rank, where these follow from what passes take;
    `order` is then that of equal passes and free sends, until the schedule is `timed`."""
    costed: bool = False
    """Its order follows from costs: with more microbatches no group of them need repeat."""

    def idle(
        self,
        p: Num,
        m: Num,
        v: Num,
        f: Num,
        i: Num,
        w: Num,
        barrier: bool = True,
    ) -> Num:
        """Idle seconds of a device per step; barrier: no rank begins the next step before all have
        ended this one.
        """
        return self._law(barrier)[0](p, m, v, f, i, w)

    def least_bubble(
        self, p: Num, v: Num, f: Num, i: Num, w: Num, barrier: bool = True
    ) -> Num:
        """A bound of `idle` that holds for every m."""
        law, least = self._law(barrier)
        if least:
            return least(p, v, f, i, w)
        return minimum(law(p, p, v, f, i, w), law(p, 1e9, v, f, i, w))

    def _law(self, barrier: bool) -> tuple[Bubble, LeastBubble | None]:
        if barrier or self.bubble_in_run is None:
            return self.bubble, self.least_bubble_of
        return self.bubble_in_run, self.least_in_run_of

    def timed(self, costs: Costs) -> Schedule:
        """The schedule with its order for these costs, if it follows from them."""
        if not self.by_costs:
            return self
        return replace(
            self, order=partial(self.by_costs, costs), by_costs=None
        )

    def in_flight_second(self, p: Num, m: Num, v: Num, rank: Num = 1.0) -> Num:
        """`in_flight` of the second device of three or more, or of a later one; of the first, if
        there are fewer."""
        first = self.in_flight(p, m, v)
        return (
            where(p > 2, self.in_flight_on(p, m, v, rank), first)
            if self.in_flight_on
            else first
        )

    @property
    def folded(self) -> bool:
        """The first device holds the last stage too."""
        return self.stage_of in (folded_stage, mirrored_stage)

    @property
    def holds_back(self) -> bool:
        """Later ranks hold more weight gradients back, with what they are made of."""
        return self.split_backward and not self.folded

    def __hash__(self) -> int:
        """Of what names it; the rest follows, or tells them apart."""
        return hash((self.name, self.stages, self.group))

    def cut(
        self,
        layers: int | tuple[int, ...],
        p: Num,
        chunks: Num,
        slots: bool,
        kinds: tuple[tuple[float, ...], ...] = (),
    ) -> StagePartition:
        """Layers dealt to the stages of p ranks with so many chunks, as even as can be or one by
        one; kinds: as in `StagePartition`."""
        ranks = self.depth(p)
        found = (
            StagePartition.given(layers, ranks, chunks, self.folded, kinds)
            if isinstance(layers, tuple)
            else StagePartition.of(
                layers, ranks, chunks, self.folded, slots, kinds
            )
        )
        return found if self.copies == 1 else replace(found, crosses=True)

    def stage_count(self, p: Num, v: Num) -> Num:
        """Stages of the model."""
        return self.depth(p) * self.chunks(v)

    def depth(self, p: Num) -> Num:
        """Ranks that one copy of the model is spread over."""
        return p if self.copies == 1 else p / self.copies

    def rounds(self, m: Num) -> Num:
        """Microbatches that a rank runs through each of its chunks."""
        return m if self.copies == 1 else m / self.copies

    def in_flight_last(self, p: Num, m: Num, v: Num) -> Num:
        """`in_flight` of the device that holds the last stage (and the logits)."""
        return (self.in_flight_on_last or self.in_flight)(p, m, v)

    def placement(self, p: int, v: int) -> Callable[[int, int], int]:
        """(rank, chunk) -> stage, as `timeline` wants it."""
        return lambda rank, chunk: self.stage_of(rank, chunk, p, v)

    def legal(self, p: Any, m: Any, v: Any) -> Any:
        """True where the schedule can run with these numbers."""
        return reduce(
            lambda a, b: a & b, (rule.holds(p, m, v) for rule in self.needs)
        )

    def rules(self, p: int, m: int, v: int) -> list[str]:
        """Why the schedule cannot run with these numbers, a sentence each; empty if it can."""
        return [
            rule.sentence(p, m, v)
            for rule in self.needs
            if not rule.holds(p, m, v)
        ]


def looped_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Stages dealt out in rounds: chunk c of rank r is stage r + p c."""
    return rank + p * chunk


def folded_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Stages laid out as a V: down the ranks and up again, so that rank 0 holds the first and the
    last.
    """
    return rank if chunk == 0 else 2 * p - 1 - rank


def mirrored_stage(rank: int, chunk: int, p: int, v: int) -> int:
    """Stages laid out twice, down the ranks and up them."""
    return rank if chunk == 0 else p - 1 - rank


def one_chunk(name: str) -> Rule:
    """The schedule does not cut a device's layers further."""
    return Rule(
        lambda p, m, v: v == 1,
        lambda p, m, v: (
            f"{name} keeps one chunk of the model on a device, not {v}: interleave must be 1"
            " (interleaved takes more)"
        ),
    )


def two_chunks(name: str) -> Rule:
    """The schedule always folds the model in two; an interleave left at 1 is not an objection."""
    return Rule(
        lambda p, m, v: (v == 1) | (v == 2),
        lambda p, m, v: (
            f"{name} always keeps 2 chunks of the model on a device, not {v}: interleave must be 2"
        ),
    )


def many_chunks(name: str, plain: str) -> Rule:
    """The schedule cuts a device's layers into several chunks."""
    return Rule(
        lambda p, m, v: v >= 2,
        lambda p, m, v: (
            f"{name} needs at least 2 chunks of the model on a device, not {v}: with one, take"
            f" {plain}"
        ),
    )


def whole_groups(name: str, group: int) -> Rule:
    """Microbatches go round the chunks in groups (`groups`)."""
    return Rule(
        lambda p, m, v: groups.holds(p, m, group),
        lambda p, m, v: groups.sentence(name, int(p), int(m), group),
    )
