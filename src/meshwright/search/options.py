"""The choices that are no degrees (schedule, ZeRO stage, recomputation, sequence parallelism): a
search evaluates all of them for every row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from ..describe.choices import first_few
from ..describe.frozen import FrozenDict, with_values
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.model import Model
from ..describe.offload import Offload
from ..describe.recompute import PARTS
from ..errors import BadInput
from ..layout.rules import HOST
from ..layout.schemes import always_cut
from ..layout.transformer_engine import exchanges
from ..num import Num, divisors, maximum
from ..program.resident import whole_program
from ..schedule import SCHEDULES
from ..schedule import get as schedule_named
from ..step.zero import CUT_FROM, is_sharded
from .schedule_options import ScheduleOption
from .space import ONE_VALUE, USUAL, Space, space_allows

SHARDED = CUT_FROM["gradients"]
"""ZeRO stage from which gradients, or weights too, are sharded while a step runs."""
ANY_CHUNKS = 8
"""Up to so many chunks every number is tried (published layouts of dense models have no more:
`layout.practice`); of larger ones, unless asked, those that divide the layers."""


EXCHANGE = "cp_exchange"


class Sharding(NamedTuple):
    """A ZeRO stage, and over how many ranks it shards."""

    zero: int
    copies: int = 1
    """Groups of dp ranks that hold copies (`Layout.dp_replicate`); 0: as many as make a group the
    ranks of one node.
    """
    node: int = 0
    """Chips of a node, where a group is one."""

    def copies_of(self, tp: Num, cp: Num, dp: Num) -> Any:
        """`dp_replicate` in each row; 1, or no whole number, where the row has no such groups."""
        return (
            # a job smaller than a node has one group
            maximum(dp * tp * cp / self.node, 1.0)
            if self.node
            else self.copies
        )

    def layout(self, rows: Layout) -> Layout:
        """The same rows with these groups."""
        return with_values(
            rows,
            zero=self.zero,
            dp_replicate=self.copies_of(rows.tp, rows.cp, rows.dp),
        )

    def has_groups(self, rows: Layout) -> Any:
        """Where its groups are several, of several ranks each; more replicas are never fewer."""
        copies = self.copies_of(rows.tp, rows.cp, rows.dp)
        return (
            (copies > 1) & (rows.replicas > copies)
            if self.copies != 1
            else True
        )

    def __str__(self) -> str:
        if self.copies == 1:
            return str(self.zero)
        return (
            f"{self.zero} inside a node"
            if self.node
            else f"{self.zero} in {self.copies} groups"
        )


@dataclass(frozen=True)
class Options:
    """The choices evaluated for every row, in the order of the grid's axes."""

    sequence_parallel: tuple[bool, ...]
    recompute: tuple[str, ...]
    schedules: tuple[ScheduleOption, ...]
    zero: tuple[Sharding, ...]
    common_fields: Mapping[str, Any] = FrozenDict()
    """The fields that all layouts share."""
    alone: Mapping[str, Any] = FrozenDict()
    """What they are instead where cp is 1."""

    @property
    def copies(self) -> int:
        """Ranks that hold each stage, under all of the schedules."""
        every = self.schedules
        return every[0].order.copies if every else 1

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Lengths of the axes."""
        return (
            len(self.sequence_parallel),
            len(self.recompute),
            len(self.schedules),
            len(self.zero),
        )

    @property
    def count(self) -> int:
        """Grid points of a row."""
        return prod(self.shape)

    def layout(self, rows: Layout, combination: tuple[int, ...]) -> Layout:
        """The same rows with one combination of options."""
        i, r, k, z = combination
        ordered = self.schedules[k].layout(
            rows.under(self.sequence_parallel[i])
        )
        whole = self.zero[z].layout(ordered)
        return with_values(whole, recompute=self.recompute[r])


def demand_one_copy(space: Space) -> None:
    """Raise BadInput where some schedules hold stages several times and others do not: the rows of
    one table are sharded alike."""
    names = space.values("schedule")
    twice = [n for n in names if n in SCHEDULES and SCHEDULES[n].copies > 1]
    if twice and len(twice) < len(names):
        others = [name for name in names if name not in twice]
        raise BadInput(
            f"schedule {twice[0]} holds every stage twice and must be searched alone, not with"
            f" {first_few(others)}"
        )


def demand_host(job: Job, away: Offload) -> None:
    """BadInput where the chip's data do not say how fast its host is."""
    asked = Layout(offload=away.text)
    if not HOST.holds(job, asked):
        raise BadInput(HOST.sentence(job, asked))


def space_options(job: Job, space: Space) -> Options:
    """The space's choices, without those that nothing speaks for: selective recomputation of flash
    attention drops no scores, unless PyTorch's autograd keeps what flash attention itself does not
    need."""
    demand_host(job, space.host_memory)
    demand_one_copy(space)
    sp = space.values("sequence_parallel")
    # some need it when tp > 1, and at tp = 1 it changes nothing
    if True in sp and always_cut(job.model, space.scheme):
        sp = (True,)
    if space.scheme == "mlp2d":  # which knows no norms
        sp = sp[:1]
    counting = job.how.count
    plain = (
        job.fused_attention
        and counting.backward_needs == "fused"
        and PARTS[counting.selective].inner
    )
    asked = space.values("recompute")
    recompute = tuple(
        r
        for r in asked
        if r != "selective" or not plain or "none" not in asked
    )
    deals = _stages(job, space)
    every = [
        ScheduleOption(name, how, group)
        for name in space.values("schedule")
        for how in deals
        for group in space.values("microbatch_group")
        if not group or schedule_named(name).grouped
    ]
    schedules = [
        option._replace(chunks=_chunks(job, space, option)) for option in every
    ]
    schedules = [option for option in schedules if option.chunks]
    even = any(option.stages == "even" for option in schedules)
    schedules = [option._replace(beside_even=even) for option in schedules]
    return Options(
        sp,
        recompute,
        tuple(schedules),
        zero=shardings(job, space),
        common_fields=common_fields(job, space),
        alone=FrozenDict({EXCHANGE: space.values(EXCHANGE)[0]}),
    )


def common_fields(job: Job, space: Space) -> FrozenDict[str, Any]:
    """The fields that all layouts of a space share; where nobody names the exchange of keys and the
    program does not take the usual one for such a model, one that it takes.
    """
    fields = {name: space.values(name)[0] for name in ONE_VALUE}
    fields["scheme"] = space.scheme
    first = space.values("schedule")[0]
    if first in SCHEDULES and schedule_named(first).copies > 1:
        fields["schedule"] = first
    ways, _ = exchanges(job)
    if EXCHANGE not in space.choices and fields[EXCHANGE] not in ways:
        fields[EXCHANGE] = ways[0]
    return FrozenDict(fields)


def most_stages(m: Model) -> int:
    """Stages, over all chunks, to which the parts of a model can be dealt: layers, and in slots its
    embedding and its loss too.
    """
    return m.layers + (2 if m.vocab else 0)


def _chunks(job: Job, space: Space, option: ScheduleOption) -> tuple[int, ...]:
    """Numbers of chunks of a schedule; papers, which add up equal stages, take those that divide
    the layers.
    """
    if not option.chunked:
        # 1 asks for no more than these
        own = int(schedule_named(option.schedule).chunks(1))
        fits = space_allows(1, space, "interleave") or space_allows(
            own, space, "interleave"
        )
        return (own,) if fits else ()
    given = option.stage_choice.layers
    most = len(given) or most_stages(job.model)
    even = divisors(job.model.layers)
    every = range(2, most + 1) if job.how.overlap.follows_schedule else even
    asked = space.values("interleave") is not None
    usual = [
        v for v in every if asked or given or v <= ANY_CHUNKS or v in even
    ]
    return tuple(
        v for v in usual if v > 1 and space_allows(v, space, "interleave")
    )


def _stages(job: Job, space: Space) -> tuple[str, ...]:
    """Ways to deal layers; papers have but one unless asked."""
    asked = space.choices.get("stages")
    if asked is not None or (
        job.how.overlap.follows_schedule and job.model.vocab
    ):
        return tuple(map(str, asked or USUAL["stages"]))
    return ("even",)


def shardings(job: Job, space: Space) -> tuple[Sharding, ...]:
    """The ZeRO stages, over all replicas; where gradients or weights are sharded, over those of one
    node too, unless asked otherwise.
    """
    stages = space.values("zero")
    asked = space.values("dp_replicate")
    if space.host_memory.weights:
        whole = space.host_memory.optimizer == 1
        stages = tuple(
            zero for zero in stages if is_sharded(zero, "weights") and whole
        )
    if asked is not None:
        return tuple(
            Sharding(zero, copies)
            for copies in asked
            for zero in stages
            if zero or copies == 1
        )
    node = job.cluster.sizes[0]
    several = (
        len(job.cluster.sizes) > 1 and job.cluster.chips > job.cluster.sizes[0]
    )
    inside = (
        [zero for zero in stages if zero >= SHARDED]
        if several and not whole_program(job)
        else []
    )
    return (
        *(Sharding(zero) for zero in stages),
        *(Sharding(zero, 0, int(node)) for zero in inside),
    )


def longest_list(options: Options) -> int:
    """Stages of the longest list that says the layers of each; 0: there is none."""
    return max(
        (len(option.stage_choice.layers) for option in options.schedules),
        default=0,
    )
