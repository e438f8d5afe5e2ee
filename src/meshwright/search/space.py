"""The layouts a search looks at: which values each degree may take, and tables of all combinations.

A table is a dict of equally long float64 columns, one row a combination of degrees. Choices that
are not degrees (schedule, ZeRO stage, recomputation, sequence parallelism) are options: the search
evaluates all of them for every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..describe.choices import Choices, listed
from ..describe.frozen import changed
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import Offload, offload
from ..describe.recompute import RECOMPUTE
from ..describe.stages import RULES as STAGES
from ..describe.stages import stages as stages_named
from ..errors import BadInput
from ..exchange import EXCHANGES
from ..layout import cuts
from ..layout.rule import token_parts
from ..layout.rules import HOST
from ..layout.schemes import always_cut, counts
from ..layout.stages import schedule_with
from ..num import Num, divisors, maximum
from ..program.resident import whole_program
from ..schedule import SCHEDULES
from ..schedule import get as schedule_named
from ..schedule.types import Schedule
from ..step import by_order
from .split import SHARDED, WHOLE, Split

Column: TypeAlias = NDArray[np.float64]
Table: TypeAlias = dict[str, Column]

DEGREES = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "etp",
    "microbatch",
    "panels",
    "interleave",
)
PLACED = ("tp", "cp", "pp")
"""Axes whose place in the network is chosen; dp takes what they leave of each dimension."""
RELAXED_MICROBATCH = 64
"""Largest microbatch of a relaxed search."""
SMALLEST_SHARD = 128
"""Tokens a cp rank keeps at least: below this no kernel is efficient (LBL's search uses the same
limit).
"""


ANY_CHUNKS = 8
"""Up to so many chunks every number is tried (published layouts of dense models have no more:
`layout.practice`); of larger ones, unless asked, those that divide the layers."""
SPARSE = 8
"""Times as many values as rows: below, a table of them is shorter than sorting."""
FIXED = ("cp_exchange", "offload")
"""Fields of which one search takes one value, as of the scheme; a plan takes several."""
USUAL = Choices(
    schedule=("1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"),
    zero=(0, 1, 2, 3),
    recompute=RECOMPUTE,
    sequence_parallel=(True, False),
    scheme=("megatron",),
    stages=STAGES,
    microbatch_group=(0,),
    cp_exchange=("gather",),
    offload=("none",),
)
"""What a search takes of the fields that nobody limits; of all others whatever is legal."""
SEARCHED = {*DEGREES, "dp_replicate", *USUAL}
"""Fields that tables and options hold: no other one can be limited, so that none is passed over in
silence.
"""


@dataclass(frozen=True, init=False)
class Space:
    """What a search may choose: `Space(zero=(1,), tp=(4, 8))` takes any layout with one of these
    values.
    """

    choices: Choices
    """What was asked for; the rest is `USUAL`, or what a set of assumptions takes
    (`strategies`).
    """
    placements: bool
    """Try every placement of the axes on the network; False: only the canonical one (tp nearest,
    then cp, dp, pp).
    """
    relaxed: bool | None
    """False: degrees multiply up to all chips and divide the batch. True: any dp, a padded last
    microbatch, idle chips. None: strict, on fewer chips if all of them cannot be used evenly, or
    only slowly (`nearby`). Stages may be uneven in all three (1f1b and its like run with as many
    layers a stage as one says); chunked schedules need even ones.
    """

    def __init__(
        self,
        choices: Choices | None = None,
        placements: bool = True,
        relaxed: bool | None = None,
        **fields: Any,
    ) -> None:
        """fields: values of fields of a layout, over those of `choices`; None: not limited."""
        chosen = Choices(choices or {}, **fields)
        if unknown := [name for name in chosen if name not in SEARCHED]:
            raise BadInput(
                f"{unknown[0]} is not searched: it can only be given to predict"
            )
        for name, value in (
            ("choices", chosen),
            ("placements", placements),
            ("relaxed", relaxed),
        ):
            object.__setattr__(self, name, value)

    def but(self, **fields: Any) -> Space:
        """The same space with other values for some fields; None: not limited."""
        return replace(self, choices=self.choices.but(**fields))

    def values(self, name: str) -> Any:
        """The values that a field may have, or None for all."""
        return self.choices.get(name, USUAL.get(name))

    @property
    def away(self) -> Offload:
        """What all its layouts keep in host memory."""
        return offload(str(self.values("offload")[0]))

    @property
    def scheme(self) -> Fixed:
        """The one scheme of its tables, with what else all its layouts share."""
        schemes = self.values("scheme")
        if len(schemes) != 1:
            raise BadInput(
                f"one search takes one scheme, not {listed(schemes)}: plan takes several"
            )
        fixed = {name: self.values(name)[0] for name in FIXED}
        ways = self.values("schedule")
        if ways[0] in SCHEDULES and schedule_named(ways[0]).copies > 1:
            fixed["schedule"] = ways[0]
        return Fixed(str(schemes[0]), fixed)


class Fixed(str):
    """A scheme, and the other choices that all layouts of a search share."""

    others: dict[str, Any]

    def __new__(
        cls, scheme: str, others: dict[str, Any] | None = None
    ) -> Fixed:
        found = super().__new__(cls, scheme)
        found.others = others or {}
        return found

    @classmethod
    def of(cls, scheme: str) -> dict[str, Any]:
        """The fields of a layout that it fixes."""
        return {"scheme": str(scheme), **getattr(scheme, "others", {})}


class Way(NamedTuple):
    """A schedule, and how layers are dealt to its stages."""

    schedule: str
    stages: str = "even"
    microbatch_group: int = 0

    @property
    def bound(self) -> Schedule:
        """The schedule as these layouts run it."""
        return schedule_with(*self)

    @property
    def chunked(self) -> bool:
        """Its chunks are a choice."""
        return bool(schedule_named(self.schedule).chunks(7) == 7)

    def layout(self, of: Layout) -> Layout:
        """The same rows with this schedule."""
        return replace(of, **self._asdict())


class Sharding(NamedTuple):
    """A ZeRO stage, and over how many ranks it shards."""

    zero: int
    copies: int = 1
    """Groups of dp ranks that hold copies (`Layout.dp_replicate`); 0: as many as make a group the
    ranks of one node.
    """
    node: int = 0
    """Chips of a node, where a group is one."""

    def of(self, tp: Num, cp: Num, dp: Num) -> Any:
        """`dp_replicate` in each row; 1, or no whole number, where the row has no such groups."""
        return (
            maximum(dp * tp * cp / self.node, 1.0)
            if self.node
            else self.copies
        )

    def layout(self, of: Layout) -> Layout:
        """The same rows with these groups."""
        if self.copies == 1:
            return changed(of, zero=self.zero)
        return changed(
            of, zero=self.zero, dp_replicate=self.of(of.tp, of.cp, of.dp)
        )

    def runs(self, of: Layout) -> Any:
        """Where there are such groups, and several, of several ranks each."""
        if self.copies == 1:
            return True
        copies = self.of(of.tp, of.cp, of.dp)
        whole = (copies > 1) & (copies % 1 == 0) & (of.replicas > copies)
        copies = np.where(whole, copies, 1.0)
        return (
            whole
            & (of.dp % copies == 0)
            & (of.tp * of.cp * of.dp % (copies * of.ep * of.etp) == 0)
        )

    def may_run(self, of: Layout) -> Any:
        """Where some number of replicas up to these may have such groups."""
        return (
            True
            if self.copies == 1
            else (self.of(of.tp, of.cp, of.dp) > 1) & (of.replicas > 1)
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
    schedules: tuple[Way, ...]
    zero: tuple[Sharding, ...]
    chunks: tuple[tuple[int, ...], ...] = ()
    """Numbers of chunks that each of all the schedules may have."""
    whole: Options | None = None
    """The options of which these are a part."""
    split: Split = WHOLE
    """The parts whose best layouts are looked for."""

    @property
    def all(self) -> Options:
        """The whole of which these are a part (themselves, if they are whole)."""
        return self.whole or self

    @property
    def copies(self) -> int:
        """Ranks that hold each stage, under all of the schedules."""
        every = self.all.schedules
        return every[0].bound.copies if every else 1

    @property
    def axes(self) -> tuple[tuple[Any, ...], ...]:
        """The choices of each axis."""
        return (
            self.sequence_parallel,
            self.recompute,
            self.schedules,
            self.zero,
        )

    @property
    def numbers(self) -> tuple[tuple[int, ...], ...]:
        """Positions of these choices among all, for each axis."""
        return tuple(
            tuple(whole.index(x) for x in mine)
            for mine, whole in zip(self.axes, self.all.axes, strict=True)
        )

    def part(self, used: Sequence[NDArray[np.bool_]]) -> Options:
        """Only the choices marked on each axis."""
        axes = [
            tuple(x for x, use in zip(axis, marks, strict=True) if use)
            for axis, marks in zip(self.axes, used, strict=True)
        ]
        return Options(
            axes[0],
            axes[1],
            axes[2],
            axes[3],
            self.chunks,
            self.all,
            self.split,
        )

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

    def parts(self, tp: Any, pp: Any) -> NDArray[np.intp]:
        """(ZeRO stage, row) the part of each row."""
        rows = self.split.rows(tp, pp)
        on = np.zeros(len(self.zero), dtype=np.intp)
        for side, at in enumerate(self.sides):
            on[at] = side
        return rows[on]

    @property
    def sides(self) -> list[NDArray[np.intp]]:
        """Positions of the ZeRO stages on each side of the split."""
        return self.split.sides([sharding.zero for sharding in self.zero])

    @property
    def leads(self) -> list[bool]:
        """Of each ZeRO stage whether it is the first of its side: it stands for all where a row has
        one replica, and all are the same."""
        whole = self.all
        first = {whole.zero[side[0]] for side in whole.sides if len(side)}
        return [sharding in first for sharding in self.zero]


def demand_one_copy(space: Space) -> None:
    """Raise BadInput where some schedules hold stages several times and others do not: the rows of
    one table are sharded alike."""
    names = space.values("schedule")
    twice = [n for n in names if n in SCHEDULES and SCHEDULES[n].copies > 1]
    if twice and len(twice) < len(names):
        others = [name for name in names if name not in twice]
        raise BadInput(
            f"schedule {twice[0]} holds every stage twice, and is searched by itself: not beside"
            f" {listed(others)}"
        )


def demand_host(job: Job, away: Offload) -> None:
    """BadInput where the chip's data do not say how fast its host is."""
    asked = Layout(offload=away.text)
    if not HOST.holds(job, asked):
        raise BadInput(HOST.sentence(job, asked))


def options(job: Job, space: Space) -> Options:
    """The space's choices, without those that change nothing: with flash attention selective
    recomputation is as good as none, unless PyTorch's autograd keeps what flash attention itself
    does not need."""
    demand_host(job, space.away)
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
        and counting.selective == "core_attn"
    )
    asked = space.values("recompute")
    if space.away.activations:  # computed again or in host memory, not both
        asked = tuple(r for r in asked if r == "none")
    recompute = tuple(
        r
        for r in asked
        if r != "selective" or not plain or "none" not in asked
    )
    ways = [
        Way(name, how, group)
        for name in space.values("schedule")
        for how in _stages(job, space)
        for group in space.values("microbatch_group")
        if not group or schedule_named(name).grouped
    ]
    counts = [(way, _chunks(job, space, way)) for way in ways]
    ways = [way for way, each in counts if each]
    chunks = tuple(each for _, each in counts if each)
    return Options(
        sp,
        recompute,
        tuple(ways),
        shardings(job, space),
        chunks,
    )


def _chunks(job: Job, space: Space, way: Way) -> tuple[int, ...]:
    """Numbers of chunks of a schedule; papers, which add up equal stages, take those that divide
    the layers.
    """
    if not way.chunked:
        # 1 asks for no more than these
        own = int(schedule_named(way.schedule).chunks(1))
        fits = _allowed(1, space, "interleave") or _allowed(
            own, space, "interleave"
        )
        return (own,) if fits else ()
    given = stages_named(way.stages).layers
    most = len(given) or job.model.layers + (2 if job.model.vocab else 0)
    even = divisors(job.model.layers)
    every = range(2, most + 1) if by_order(job) else even
    asked = space.values("interleave") is not None
    usual = [
        v for v in every if asked or given or v <= ANY_CHUNKS or v in even
    ]
    return tuple(
        v for v in usual if v > 1 and _allowed(v, space, "interleave")
    )


def _stages(job: Job, space: Space) -> tuple[str, ...]:
    """Ways to deal layers; papers have but one unless asked."""
    asked = space.choices.get("stages")
    if asked is not None or (by_order(job) and job.model.vocab):
        return tuple(map(str, asked or USUAL["stages"]))
    return ("even",)


def shardings(job: Job, space: Space) -> tuple[Sharding, ...]:
    """The ZeRO stages, over all replicas; where gradients or weights are sharded, over those of one
    node too, unless asked otherwise.
    """
    stages = space.values("zero")
    asked = space.values("dp_replicate")
    if space.away.weights:
        whole = space.away.optimizer == 1
        stages = tuple(zero for zero in stages if zero == SHARDS_ALL and whole)
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


SHARDS_ALL = 3


def described(job: Job, spaces: Sequence[Space]) -> tuple[str, str]:
    """(the fastest of what, what is in none of the spaces): for every face that shows the
    answer.
    """
    choices = [options(job, space) for space in spaces]
    left = {
        "schedules": _without(
            SCHEDULES,
            {way.schedule for choice in choices for way in choice.schedules},
        ),
        "ZeRO": _without(
            USUAL["zero"],
            {sharding.zero for choice in choices for sharding in choice.zero},
        ),
        "recomputation": _without(
            RECOMPUTE,
            {r for space in spaces for r in space.values("recompute")},
        ),
    }
    missing = [
        f"{what} {', '.join(values)}"
        for what, values in left.items()
        if values
    ]
    if job.model.moe and any(space.values("etp") is None for space in spaces):
        missing.append("etp other than 1 and tp")
    if not any(space.relaxed for space in spaces):
        missing.append("batches cut unevenly (--relaxed)")
    if not any(space.placements for space in spaces):
        missing.append("other placements")
    each = (
        _tried(choice, space)
        for choice, space in zip(choices, spaces, strict=True)
    )
    return "; or ".join(dict.fromkeys(each)), "; ".join(missing)


def _without(every: Iterable[Any], tried: set[Any]) -> list[str]:
    return [str(value) for value in every if value not in tried]


def _tried(choice: Options, space: Space) -> str:
    """What one space holds."""
    each = zip(choice.schedules, choice.chunks, strict=True)
    chunks = sorted({v for way, counts in each if way.chunked for v in counts})
    names = tuple(dict.fromkeys(way.schedule for way in choice.schedules))
    dealt = tuple(dict.fromkeys(way.stages for way in choice.schedules))
    tried = (
        [f"tp scheme {space.scheme}"] if space.choices.get("scheme") else []
    )
    tried += [
        f"schedules {', '.join(names) or 'none'}"
        + (f" (interleave {ranges(chunks)})" if chunks else ""),
        *(
            [f"stages {' or '.join(dealt)}"]
            if dealt not in ((), ("even",))
            else []
        ),
        f"ZeRO {', '.join(map(str, choice.zero))}",
        f"recomputation {', '.join(choice.recompute)}",
    ]
    tried += [
        f"{axis} {listed(values)}"
        for axis in DEGREES
        if (values := space.values(axis)) is not None
    ]
    return "; ".join(tried)


def ranges(values: Sequence[int]) -> str:
    """2, 4 to 8, 10: neighbours as a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts = (
        [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
        for run in runs
    )
    return ", ".join(text for each in texts for text in each)


def _allowed(value: int, space: Space, name: str) -> bool:
    values = space.values(name)
    return values is None or value in values


def _column(values: Iterable[int], space: Space, name: str) -> Column:
    return np.array(
        [v for v in values if _allowed(v, space, name)], dtype=np.float64
    )


def among(table: Table, space: Space, name: str) -> NDArray[np.bool_]:
    """Where a table holds what the space allows."""
    values = space.values(name)
    return (
        np.full(length(table), True)
        if values is None
        else np.isin(table[name], values)
    )


def cross(table: Table, **values: Column) -> Table:
    """Every row with every value (or every row of several columns of equal length)."""
    rows = len(next(iter(table.values()))) if table else 1
    times = len(next(iter(values.values())))
    return {k: np.repeat(c, times) for k, c in table.items()} | {
        k: np.tile(c, rows) for k, c in values.items()
    }


def keep(table: Table, mask: NDArray[np.bool_]) -> Table:
    """The rows where the mask holds."""
    return {k: c[mask] for k, c in table.items()}


def take(table: Table, index: NDArray[np.intp]) -> Table:
    """The rows at these positions."""
    return {k: c[index] for k, c in table.items()}


def distinct(columns: list[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(index of the first row of each distinct combination, its number for every row). Columns are
    packed into one whole number each row.
    """
    rows = max(len(c) for c in columns if isinstance(c, np.ndarray))
    code = np.zeros(rows, dtype=np.int64)
    range_ = 1
    for column in columns:
        number, values = _numbered(np.broadcast_to(column, rows))
        if range_ * values > 2**62:
            _, found = np.unique(code, return_inverse=True)
            code = found.astype(np.int64)  # positions may have 32 bits
            range_ = int(code.max(initial=0)) + 1
        code = code * values + number
        range_ = range_ * values
    if range_ > SPARSE * rows:
        _, index, inverse = np.unique(
            code, return_index=True, return_inverse=True
        )
        return index, inverse
    first = np.full(range_, -1)
    first[code[::-1]] = np.arange(rows)[::-1]
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[code]


def _numbered(column: Column) -> tuple[NDArray[np.int64], int]:
    """(a whole number for each value, how many there may be): the values themselves if they are
    whole, their places where these are fewer.
    """
    whole = column.astype(np.int64)
    if (whole == column).all() and (most := int(whole.max(initial=0))) < 2**20:
        if most > SPARSE * len(whole):
            return whole, most + 1
        there = np.zeros(most + 1, dtype=bool)
        there[whole] = True
        return (np.cumsum(there) - 1)[whole], int(there.sum())
    values, number = np.unique(column, return_inverse=True)
    return number.astype(np.int64), len(values)


def length(table: Table) -> int:
    """Number of rows."""
    return len(next(iter(table.values())))


def shards(job: Job, space: Space, relaxed: bool) -> Table:
    """All (tp, cp, ep, etp, microbatch, panels): what the cost of a layer depends on, placement
    aside.
    """
    m = job.model
    N = job.cluster.chips
    B = job.batch
    tp = [
        t
        for t in divisors(cuts.most(m))
        if m.ffn % t == 0
        and m.hidden % t == 0
        and cuts.copied(m, t)
        and t <= N
        and (relaxed or N % t == 0)
    ]
    cp = [
        c
        for c in divisors(m.hidden if space.scheme == "mlp2d" else job.T)
        if c <= N
        and (space.scheme == "mlp2d" or job.T // c >= SMALLEST_SHARD or c == 1)
        and (relaxed or N % c == 0)
    ]
    if space.scheme == "summa":
        cp = [c for c in cp if m.hidden % c == 0]
    micro = (
        list(range(1, min(B, RELAXED_MICROBATCH) + 1))
        if relaxed
        else divisors(B)
    )
    shared = Layout(**Fixed.of(space.scheme))
    # nothing to evaluate without a schedule, or a scheme that counts the model
    tp = tp if options(job, space).count and counts(job, shared) else []
    table = cross(
        cross({}, tp=_column(tp, space, "tp")), cp=_column(cp, space, "cp")
    )
    runs = EXCHANGES[shared.cp_exchange].holds(
        m.heads if m.mla else m.K, table["tp"] * table["cp"]
    )
    table = keep(
        table, np.broadcast_to((table["cp"] == 1) | runs, table["tp"].shape)
    )
    table = keep(table, table["tp"] * table["cp"] <= N)
    if cuts.uncut(m) or cuts.exchanged(m):
        table = keep(table, cuts.over_cp(m, table["tp"], table["cp"]))
    table = cross(table, microbatch=_column(micro, space, "microbatch"))
    ways = options(job, space).sequence_parallel
    table = keep(
        table,
        np.any([splits(job, table, space.scheme, sp) for sp in ways], axis=0),
    )
    if m.moe:
        table = cross(
            table,
            ep=_column(
                [e for e in divisors(m.moe.experts) if e <= N], space, "ep"
            ),
        )
        plain = dict(table)
        whole = dict(table)
        plain["etp"], whole["etp"] = (
            np.ones_like(table["tp"]),
            table["tp"].copy(),
        )
        both = {
            k: np.concatenate([plain[k], whole[k][table["tp"] > 1]])
            for k in plain
        }
        table = keep(
            both,
            (m.moe.expert_ffn % both["etp"] == 0) & among(both, space, "etp"),
        )
    else:
        # a dense model has no experts to share out
        only = _allowed(1, space, "ep") and _allowed(1, space, "etp")
        table = keep(table, np.full(len(table["tp"]), only))
        table |= {
            "ep": np.ones_like(table["tp"]),
            "etp": np.ones_like(table["tp"]),
        }
    table = (
        _panels(job, table)
        if space.scheme == "summa"
        else table | {"panels": np.ones_like(table["tp"])}
    )
    return keep(table, among(table, space, "panels"))


def splits(
    job: Job,
    table: Table,
    scheme: str,
    sequence_parallel: bool,
) -> NDArray[np.bool_]:
    """Where a microbatch can be cut over cp, and over tp if norms are: `rules.SEQUENCE`, row by
    row.
    """
    parts = token_parts(scheme, sequence_parallel, table["tp"], table["cp"])
    fine: NDArray[np.bool_] = table["microbatch"] * job.T % parts == 0
    return fine


def _panels(job: Job, table: Table) -> Table:
    """SUMMA panel counts: max(n1, n2) doubled until it reaches the hidden size, panels at least 512
    wide (LBL's search).
    """
    e = job.model.hidden
    start = np.maximum(table["tp"], table["cp"])
    steps = np.arange(int(np.ceil(np.log2(e))) + 1, dtype=np.float64)
    wide = cross(table | {"start": start}, step=steps)
    nb = wide["start"] * 2 ** wide["step"]
    narrow = e / wide["start"] < 512
    fine = (nb < e) & np.where(
        narrow, wide["step"] == 0, (e % nb == 0) & (e / nb >= 512)
    )
    wide["panels"] = nb
    kept = keep(wide, fine)
    return {k: c for k, c in kept.items() if k not in ("start", "step")}


def pipelines(job: Job, space: Space, relaxed: bool) -> Table:
    """Pipeline degrees to try, with the numbers of chunks that some schedule may have: degrees that
    divide the chips, or (relaxed) any, up to the layers; stages may be uneven.
    """
    choice = options(job, space)
    degrees = range(choice.copies, job.model.layers + 1, choice.copies)
    allowed = _column(
        [p for p in degrees if relaxed or job.cluster.chips % p == 0],
        space,
        "pp",
    )
    chunks = np.array(
        sorted({v for counts in choice.chunks for v in counts}),
        dtype=np.float64,
    )
    table = cross(cross({}, pp=allowed), interleave=chunks)
    most = job.model.layers + (2 if job.model.vocab else 0)
    first = {counts[0] for counts in choice.chunks}  # one stage needs no other
    alone = np.isin(table["interleave"], [*first]) | (
        _longest_list(choice) > 0
    )
    fits = table["pp"] * table["interleave"] / choice.copies <= maximum(
        most, _longest_list(choice)
    )
    return keep(table, fits & ((table["pp"] > 1) | alone))


def chunked(
    pp: Column, degrees: Table
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(row, which of some pipelines), for rows with these degrees and every number of chunks that
    the pipelines, which ascend, have of them.
    """
    first, end = (
        np.searchsorted(degrees["pp"], pp, side) for side in ("left", "right")
    )
    index = np.repeat(np.arange(len(pp)), end - first)
    skipped = np.cumsum(end - first) - (end - first)
    return index, np.arange(len(index)) + (first - skipped)[index]


def _longest_list(choice: Options) -> int:
    """Stages of the longest list of layers of each."""
    return max(
        (len(stages_named(way.stages).layers) for way in choice.schedules),
        default=0,
    )


def fill(job: Job, table: Table, space: Space) -> Table:
    """Strict rows: dp takes all remaining chips, and everything divides."""
    N = job.cluster.chips
    B = job.batch
    model_parallel = table["tp"] * table["cp"] * table["pp"]
    table = keep(table, N % model_parallel == 0)
    dp = N / (table["tp"] * table["cp"] * table["pp"])
    table = table | {"dp": dp}
    fine = (B % (dp * table["microbatch"]) == 0) & (
        (table["tp"] * table["cp"] * dp) % (table["ep"] * table["etp"]) == 0
    )
    return keep(table, fine & among(table, space, "dp"))
