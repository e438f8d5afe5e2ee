"""A search by plain loops, one layout at a time: the definition that the tables must agree with.
It asks nothing of the search but which values a space allows (`Space.values`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from meshwright import Job, Space
from meshwright.describe.frozen import with_values
from meshwright.describe.layout import AXES, Layout
from meshwright.describe.slices import axes
from meshwright.layout.placement import launcher_orders
from meshwright.layout.rules import (
    ALWAYS,
    EVEN_BATCH,
    EVEN_LAYERS,
    of_framework,
)
from meshwright.layout.stages import schedule_of, stage_layers
from meshwright.num import divisors
from meshwright.program import resident
from meshwright.program.least import least_bytes
from meshwright.schedule import get as schedule_named
from meshwright.step import (
    StepCosts,
    clock_of,
    model_cost,
    oom,
)
from meshwright.step.activations import in_flight

LARGEST_ODD_MICROBATCH = 64
"""Sequences up to which a relaxed space has any microbatch, and not only divisors of the batch."""
SMALLEST_SHARD = 128
"""Tokens that a rank of cp has at least."""
NODE = 0
"""Stands for groups of replicas that each fill a node."""


class Sharding(NamedTuple):
    """A ZeRO stage, and in how many groups of replicas it shards."""

    zero: int
    groups: int


class Choices(NamedTuple):
    """What is chosen beside degrees and placement. A position in a list breaks ties."""

    sequence_parallel: list[bool]
    recompute: list[str]
    ways: list[tuple[int, str, str, int]]
    """(position of schedule and stages, schedule, stages, chunks)."""
    shardings: list[Sharding]


def choices(job: Job, space: Space) -> Choices:
    """All of a space, but for what changes nothing under any degrees."""
    away = space.host_memory
    tensor = [*space.values("sequence_parallel")]
    if (
        space.scheme == "mlp2d"
    ):  # knows no norms that a sequence could be cut for
        tensor = tensor[:1]
    again = [*space.values("recompute")]
    count = job.how.count
    if (
        job.fused_attention
        and count.backward_needs == "fused"
        and count.selective in ("core_attn", "scores")
        and "none" in again
    ):  # flash attention has no scores that could be dropped
        again = [r for r in again if r != "selective"]
    slots = job.how.overlap.follows_schedule and job.model.vocab
    deals = (
        space.values("stages")
        if slots or space.choices.get("stages")
        else ("even",)
    )
    named = [
        (name, deal) for name in space.values("schedule") for deal in deals
    ]
    ways = [
        (k, name, deal, v)
        for k, (name, deal) in enumerate(named)
        for v in range(1, job.model.layers + 3)
        if v == schedule_named(name).chunks(v)
        and (
            v > 1 and allows(space, "interleave", v)
            if schedule_named(name).chunks(7) == 7
            else allows(space, "interleave", v)
            or allows(space, "interleave", 1)
        )
    ]
    stages = [*space.values("zero")]
    if away.weights:  # weights wait in host memory where they are cut, beside all of their state
        stages = [z for z in stages if z == 3 and away.optimizer == 1]
    groups = space.values("dp_replicate")
    if groups is not None:
        some = [Sharding(z, n) for n in groups for z in stages if z or n == 1]
    else:
        sizes = job.cluster.sizes
        nodes = len(sizes) > 1 and job.cluster.chips > sizes[0]
        some = [Sharding(z, 1) for z in stages]
        if nodes and not resident.whole_program(job):
            some += [Sharding(z, NODE) for z in stages if z >= 2]
    return Choices(tensor, again, ways, some)


def every_layout(
    job: Job, space: Space
) -> Iterator[tuple[tuple[int, ...], Layout]]:
    """(positions of the choices, layout) of all layouts of a space."""
    choice = choices(job, space)
    if not choice.ways:
        return
    same = {
        name: space.values(name)[0]
        for name in ("scheme", "cp_exchange", "offload")
    }
    bare = Layout(schedule=choice.ways[0][1], sequence_parallel=False, **same)
    if bare.copies == 1:
        bare = replace(bare, schedule="1f1b")
    for degrees in every_degree(job, space):
        row = with_values(bare, **degrees)
        if not all(rule.holds(job, row) for rule in OF_DEGREES):
            continue
        runs = [*every_choice(job, row, choice, bool(space.relaxed))]
        if not runs:
            continue
        orders = launcher_orders(job.framework)
        every = [launched(job, degrees, order) for order in orders] or [
            shares
            for shares in every_placement(job, degrees, bool(space.relaxed))
            if startable(job, degrees, shares)
        ]
        if not every and startable(job, degrees, launched(job, degrees)):
            every = [launched(job, degrees)]
        for i, shares in enumerate(every):
            if shares in every[:i]:
                continue
            if lies_well(job, replace(row, placement=shares)):
                for numbers, layout in runs:
                    yield numbers, replace(layout, placement=shares)


def every_degree(job: Job, space: Space) -> Iterator[dict[str, int]]:
    """Degrees, and the microbatch, of as many chips as there are (relaxed: or fewer)."""
    m, N, B, T = job.model, job.cluster.chips, job.batch, job.T
    contexts = [
        cp
        for cp in space.values("cp") or divisors(T)
        if cp == 1 or T // cp >= SMALLEST_SHARD
    ]
    widths = divisors(m.heads)
    if space.scheme == "mlp2d":  # cuts both sides of its matrices
        widths, contexts = divisors(m.ffn), divisors(m.hidden)
    micro = [
        n
        for n in range(1, B + 1)
        if not space.relaxed or n <= LARGEST_ODD_MICROBATCH or B % n == 0
    ]
    for tp, cp, pp in itertools.product(
        widths, contexts, range(1, m.layers + 3)
    ):
        most = N // (tp * cp * pp)
        if not most or not space.relaxed and N % (tp * cp * pp):
            continue
        for dp, ep, etp, b in itertools.product(
            range(1, most + 1) if space.relaxed else (most,),
            divisors(m.moe.experts) if m.moe else [1],
            space.values("etp") or (sorted({1, tp}) if m.moe else [1]),
            micro,
        ):
            degrees = {
                "tp": tp,
                "cp": cp,
                "pp": pp,
                "dp": dp,
                "ep": ep,
                "etp": etp,
                "microbatch": b,
            }
            if all(allows(space, name, n) for name, n in degrees.items()):
                yield degrees


def allows(space: Space, name: str, value: int) -> bool:
    """The space does not limit the field, or to values with this one among them."""
    values = space.values(name)
    return values is None or value in values


def every_choice(
    job: Job, row: Layout, choice: Choices, relaxed: bool
) -> Iterator[tuple[tuple[int, ...], Layout]]:
    """The same degrees under every choice. What changes nothing counts once: sequence parallelism
    on one rank, ZeRO without replicas, rules that deal layers evenly, and of the schedules that
    one stage can run the one that holds the fewest microbatches.
    """
    for (i, sp), (r, recompute), (z, sharding) in itertools.product(
        enumerate(choice.sequence_parallel),
        enumerate(choice.recompute),
        enumerate(choice.shardings),
    ):
        if not sp and row.tp == 1 and True in choice.sequence_parallel:
            continue
        if row.replicas == 1 and z and not resident.whole_program(job):
            continue
        chosen = with_values(
            row, sequence_parallel=sp, recompute=recompute, zero=sharding.zero
        )
        groups = sharding.groups or groups_of_a_node(job, chosen)
        if groups == 0 or groups > 1 and groups >= chosen.replicas:
            continue
        runs = [
            ((i, r, k, z), layout)
            for k, name, deal, v in choice.ways
            if legal(
                job,
                layout := with_values(
                    chosen,
                    dp_replicate=groups,
                    schedule=name,
                    stages=deal,
                    interleave=v,
                ),
                relaxed,
            )
        ]
        if row.pp == 1:
            yield from sorted(
                runs,
                key=lambda run: held_alone(run[1].schedule, run[1].interleave),
            )[:1]
        else:
            even = any(deal == "even" for _, _, deal, _ in choice.ways)
            yield from (
                run for run in runs if not even or not like_even(job, run[1])
            )


def legal(job: Job, layout: Layout, relaxed: bool) -> bool:
    """The rules, and what the space asks besides: a batch without remainder (strict); of papers, as
    many layers in each chunk.
    """
    more = [] if relaxed else [EVEN_BATCH]
    if layout.interleave > 1 and not job.how.overlap.follows_schedule:
        more.append(EVEN_LAYERS)
    return all(rule.holds(job, layout) for rule in (*of_layouts(job), *more))


@cache
def of_layouts(job: Job) -> tuple[Any, ...]:
    """The rules of all programs and of the job's framework that read no placement."""
    return *ALWAYS, *(
        r for r in of_framework(job) if "placement" not in r.reads
    )


OF_CHOICES = (
    "schedule",
    "sequence over cp",
    "experts need sequence parallelism",
    "hidden size over tp",
    "host memory",
    "layers over pp",
    "layers in every stage",
)
OF_DEGREES = [rule for rule in ALWAYS if rule.name not in OF_CHOICES]
"""Rules that hold for one stage's worth of chunks, whatever else is chosen, or for no choice at
all: only a shortcut.
"""


def groups_of_a_node(job: Job, layout: Layout) -> int:
    """Groups of dp ranks that each fill a node beside tp and cp; 0 if there are no two such
    groups.
    """
    inside, rest = divmod(job.cluster.sizes[0], layout.tp * layout.cp)
    if rest or not inside or layout.dp % inside:
        return 0
    return layout.dp // inside if layout.dp > inside else 0


def like_even(job: Job, layout: Layout) -> bool:
    """A rule gives every stage the layers that it has anyway; of more stages than layers none is
    even.
    """
    if layout.stages == "even":
        return False
    stages = int(layout.pp * layout.interleave) // layout.copies
    layers = job.model.layers
    return stages <= layers and bool(
        stage_layers(layers, stages)
        == stage_layers(layers, stages, layout.stages)
    )


@cache
def held_alone(schedule: str, chunks: int) -> float:
    """Microbatches of two that one stage holds at once."""
    return float(in_flight(1.0, 2.0, schedule_named(schedule), chunks, 0.0))


def startable(
    job: Job, degrees: dict[str, int], shares: dict[str, tuple[int, ...]]
) -> bool:
    """JAX, where a job names what runs on it, fills every slice, and numbers slices as launchers
    number ranks.
    """
    near, *far = job.cluster.sizes
    if not (job.framework and job.framework.mesh) or not far:
        return True
    if axes(job.cluster.network):
        return True
    ranks = math.prod(degrees[axis] for axis in AXES)
    here = math.prod(shares[axis][0] for axis in AXES)
    if ranks > near and ranks % near == 0 and here != near:
        return False
    slices = {axis: degrees[axis] // shares[axis][0] for axis in AXES}
    beyond = {axis: shares[axis][1:] for axis in AXES}
    return beyond == numbered(tuple(far), slices)


def lies_well(job: Job, layout: Layout) -> bool:
    """The framework's rules of placements hold."""
    return all(
        rule.holds(job, layout)
        for rule in of_framework(job)
        if "placement" in rule.reads
    )


def launched(
    job: Job, degrees: dict[str, int], order: tuple[str, ...] = AXES
) -> dict[str, tuple[int, ...]]:
    """Where a launcher that numbers ranks in this order puts them: of each dimension every axis
    takes the most that divides it and has room, none after one that leaves it; where the last is too small for that, the most that divide the
    axis of what every group has in each unit that it touches, if no axis before cuts units.
    """
    torus = len(axes(job.cluster.network))
    jax = bool(job.profile and job.profile.mesh)
    return numbered(job.cluster.sizes, degrees, order, mesh=torus or int(jax))


def numbered(
    sizes: tuple[int, ...],
    degrees: dict[str, int],
    order: tuple[str, ...] = AXES,
    mesh: int = 0,
) -> dict[str, tuple[int, ...]]:
    """mesh: so many of the first dimensions join a slice, which is filled, axis by axis, where there
    are ranks for it.
    """
    *near, last = sizes
    mesh = min(mesh, len(near))
    ranks = math.prod(degrees[axis] for axis in order)
    if mesh and ranks % math.prod(near[:mesh]) == 0:
        room, here, left = [*near[:mesh]], {}, {}
        for axis in order:
            left[axis], some = degrees[axis], []
            for i in range(mesh):
                some.append(math.gcd(left[axis], room[i]))
                left[axis] //= some[-1]
                room[i] //= some[-1]
            here[axis] = some
        far = numbered(sizes[mesh:], left, order)
        return {axis: (*here[axis], *far[axis]) for axis in order}
    rooms, shares = [*near], dict[str, tuple[int, ...]]()
    for axis in order:
        left, some = degrees[axis], []
        for i, room in enumerate(rooms):
            some.append(max(d for d in divisors(left) if d <= room))
            left //= some[-1]
            rooms[i] = 1 if left > 1 else room // some[-1]
        shares[axis] = (*some, left)
    blocks = 1
    for i, size in enumerate(near):
        blocks = size * blocks // math.prod(n[i] for n in shares.values())
    if math.prod(n[-1] for n in shares.values()) <= last * blocks:
        return shares
    apart = 1
    for axis in order:
        group, inside = degrees[axis], [1]
        for unit in itertools.accumulate(near, int.__mul__):
            least = group
            for first in range(ranks):
                if first // apart % group == 0:
                    at = [(first + k * apart) // unit for k in range(group)]
                    least = min(least, *map(at.count, at))
            if ranks > unit and unit % apart:
                least = 1
            here = least // inside[-1]
            left = group // inside[-1]
            most = max(d for d in divisors(left) if d <= here)
            inside.append(inside[-1] * most)
        steps = itertools.pairwise([*inside, group])
        shares[axis] = tuple(more // less for less, more in steps)
        apart *= group
    return shares


def every_placement(
    job: Job,
    degrees: dict[str, int],
    relaxed: bool,
    i: int = 0,
    blocks: int = 1,
) -> Iterator[dict[str, tuple[int, ...]]]:
    """All ways to lay the axes over the network's dimensions, from dimension i on. blocks: of what
    lies before, so many are in one unit of it.
    """
    sizes = job.cluster.sizes
    if i == len(sizes) - 1:
        if math.prod(degrees[a] for a in AXES) <= sizes[-1] * blocks:
            yield {a: (degrees[a],) for a in AXES}
        return
    for tp, cp, pp in itertools.product(
        *(divisors(degrees[a]) for a in ("tp", "cp", "pp"))
    ):
        taken = tp * cp * pp
        if sizes[i] < taken if relaxed else sizes[i] % taken:
            continue
        room = sizes[i] // taken
        dp = (
            max(d for d in divisors(degrees["dp"]) if d <= room)
            if relaxed
            else room
        )
        if degrees["dp"] % dp:
            continue
        here = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
        left = {a: degrees[a] // here[a] for a in AXES}
        more = room // dp
        if relaxed and any(
            left[a] % factor == 0
            for factor in range(2, more + 1)
            for a in ("tp", "cp", "pp")
        ):
            continue  # a larger share would fit
        many = sizes[i] * blocks // (taken * dp)
        for rest in every_placement(
            job, {**degrees, **left}, relaxed, i=i + 1, blocks=many
        ):
            yield {a: (here[a], *rest[a]) for a in AXES}


COSTS = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "etp",
    "microbatch",
    "sequence_parallel",
)
"""What one microbatch costs depends on these and the placement alone (`step.ModelCost`)."""


class Row(NamedTuple):
    """A layout as it ranks, from left to right."""

    merit: float
    """Seconds over the chance to fit."""
    bytes: float
    degrees: tuple[float, ...]
    choices: tuple[int, ...]
    """Positions in `Choices`."""
    shares: tuple[float, ...]
    """The share of each axis in each dimension of the network."""


def loop(job: Job, space: Space, k: int) -> tuple[list[Row], int, int]:
    """The k best; how many there are; how many fit. Bytes are those of the fullest device, or,
    where the trainer's whole program is counted, what no walk undercuts.
    """
    rows, number, costs = [], 0, {}
    most, at = oom.limit(job), clock_of(job)
    for numbers, layout in every_layout(job, space):
        number += 1
        places = layout.placement.values()
        key = (*(getattr(layout, name) for name in COSTS), *places)
        if key not in costs:
            costs[key] = model_cost(
                job, layout, modes=space.values("recompute")
            )
        cost, schedule = costs[key], schedule_of(layout)
        one = StepCosts(job, layout, cost, at)
        if resident.whole_program(job):
            use = float(least_bytes(job, layout, cost, schedule))
        else:
            use = float(one.bytes)
        if use > most:
            continue
        degrees = (
            *(getattr(layout, name) for name in COSTS[:-1]),
            layout.panels,
            layout.interleave,
        )
        shares = tuple(
            share for axis in AXES for share in layout.placement[axis]
        )
        seconds = float(one.step.total)
        merit = seconds / chance_to_fit(job, use)
        rows.append(Row(merit, use, degrees, numbers, shares))
    return sorted(rows)[:k], number, len(rows)


def chance_to_fit(job: Job, use: float) -> float:
    """1 less the risk of running out of memory."""
    return 1.0 - float(oom.risk(job, np.array([use]))[0])


def seconds_of(job: Job, row: Any) -> float:
    """The seconds of a row of a search."""
    return float(row.merit) * chance_to_fit(job, row.bytes)
