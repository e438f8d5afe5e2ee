"""The search against a plain loop over layouts, one at a time: same best layouts, same numbers,
same order of ties.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from meshwright import catalog
from meshwright.describe.assumptions import SETS
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import AXES, Layout
from meshwright.describe.mixers import Convolution, Indexer, Linear, StateSpace
from meshwright.describe.model import Model, MoE
from meshwright.describe.network import Dim, Network
from meshwright.errors import BadInput
from meshwright.layout.placement import launcher_orders, lies
from meshwright.layout.rules import (
    ALWAYS,
    EVEN_BATCH,
    EVEN_LAYERS,
    of_framework,
)
from meshwright.layout.stages import schedule_of, stage_layers
from meshwright.num import divisors
from meshwright.program import resident
from meshwright.schedule import SCHEDULES
from meshwright.schedule import get as schedule_named
from meshwright.search import brute, search
from meshwright.search.best import RankedRow
from meshwright.search.degrees import RELAXED_MICROBATCH, SMALLEST_SHARD
from meshwright.search.merit import seconds_of
from meshwright.search.options import options
from meshwright.search.space import Space
from meshwright.step import by_order, memory, model_cost, room, step

SEARCHED = sorted(name for name, s in SCHEDULES.items() if s.copies == 1)
WAYS = [
    "layernorm+mlp",
    "moe_act+shared_experts",
    "op",
    "save_qkv_proj",
    "full:1",
    "op:2",
    "selective+mlp:3",
]
"""To recompute parts of a layer, in some layers."""


def random_job(rng: random.Random) -> tuple[Job, Space, bool]:
    """A small job, a space with few options, and whether it is relaxed."""
    heads = rng.choice([2, 4, 6, 8, 12])
    hidden = heads * rng.choice([32, 64, 128])
    experts, layers = rng.choice([0, 0, 4, 8, 6]), rng.choice([2, 3, 4, 6, 8])
    lead = rng.choice([0, 0, 1, layers - 1, layers])
    moe = (
        MoE(
            experts,
            rng.choice([1, 2]),
            hidden // 2,
            rng.choice([0, hidden]),
            lead,
        )
        if experts
        else None
    )
    vocab = rng.choice([0, 1000])
    model = Model(
        "random",
        layers,
        hidden,
        heads,
        4 * hidden,
        vocab,
        rng.choice([128, 256, 512]),
        kv_heads=rng.choice([None, 1, 2]),
        gated=rng.random() < 0.5,
        tied_embeddings=rng.random() < 0.3,
        moe=moe,
        window=rng.choice([None, None, 64]),
        full_every=rng.choice([0, 2, 3]),
        mtp_layers=rng.choice([0, 0, 1]) if vocab else 0,
    )
    dims = random_dims(rng)
    chip = Chip(
        "random",
        {"bf16": rng.choice([1e13, 3e14])},
        1e13,
        rng.choice([2.2e9, 3e9, 1e11]),
        rng.choice([5e11, 2e12]),
        host_bandwidth=1e10,
        host_memory_bandwidth=2e10,
    )
    cluster = Cluster(
        chip,
        Network("random", tuple(dims)),
        rng.choice([1, 2, 4, 6, 8, 12, 16, 24, 48]),
    )
    space = Space(
        schedule=tuple(rng.sample(SEARCHED, 3)),
        zero=tuple(sorted(rng.sample(range(4), 2))),
        dp_replicate=rng.choice([None, None, None, (1, 2), (2, 4)]),
        recompute=tuple(
            rng.sample(["none", "selective", "full", *rng.sample(WAYS, 1)], 2)
        ),
        sequence_parallel=rng.choice([(True, False), (True,), (False,)]),
        stages=rng.choice(
            [None, ("even", "slots"), ("even", "slots"), ("even",), ("slots",)]
        ),
        cp_exchange=rng.choice([None, None, ("ring",), ("all-to-all",)]),
    )
    sets = [SETS["realistic"], SETS["lbl-2024"]]
    job = Job(
        model,
        cluster,
        rng.choice([4, 8, 12, 16, 30]),
        attention_kernel=rng.choice(["flash", "unfused"]),
        assumptions=rng.choice(sets),
    )
    relaxed = rng.random() < 0.4
    away = rng.choice(["none", "none", *AWAY])
    if away != "none":
        space = space.but(
            offload=(away,), recompute=("none", "full"), zero=(1, 3)
        )
    return job, replace(space, relaxed=relaxed), relaxed


AWAY = ("activations:1", "optimizer:0.5", "activations+optimizer+weights")
"""What may wait in host memory."""


def hybrid(rng: random.Random, m: Model) -> Model:
    """The same model with layers of several kinds."""
    state = rng.choice([4, 8])
    shapes = {
        "linear": Linear(
            m.heads,
            state,
            2 * state,
            rng.choice(["delta", "delta", "lightning"]),
        ),
        "ssm": StateSpace(
            m.heads * 8,
            state,
            rng.choice(["mamba2", "mamba2", "mamba"]),
            m.heads,
        ),
        "sparse": Indexer(2, 8, 16),
        "conv": Convolution(3),
    }
    words = rng.choices(
        ["full", "sliding", *shapes, "none"], [3, 1, 3, 3, 1, 0.3, 1], k=3
    )
    feed = ["+dense", "+none", *(["+experts"] if m.moe else []), ""]
    pattern = tuple(
        f"{rng.choice(['', '2*'])}{word}{rng.choice(feed) if word != 'none' else '+dense'}"
        for word in words
    )
    return replace(m, pattern=pattern, window=m.window or 64, **shapes)


def random_dims(rng: random.Random) -> list[Dim]:
    """Two or three dimensions: switches, a mesh near or in the middle, axes of a torus."""
    kind, domain = (
        rng.choice(["switch", "switch", "mesh", "torus"]),
        rng.choice([2, 4, 8]),
    )
    far = Dim("far", rng.choice([1e9, 2.5e10, 5e10]), rng.choice([5e-6, 1e-5]))
    if kind == "torus":
        axes = [
            Dim(n, 1e11, 1e-6, size, rng.choice(["ring", "line"]))
            for n, size in (("x", 4), ("y", rng.choice([2, 3])))
        ]
        return [*axes, far]
    near = Dim(
        "near",
        rng.choice([1e11, 3e11, 9e11]),
        rng.choice([0.0, 1e-6, 2.5e-6]),
        domain,
        kind,
    )
    middle = Dim(
        "middle",
        6e10,
        3e-6,
        rng.choice([2, 3]),
        rng.choice(["switch", "mesh"]),
    )
    return [near, middle, far] if rng.random() < 0.3 else [near, far]


def every_layout(job: Job, space: Space, relaxed: bool):
    """All layouts of the space, by plain loops: the definition that the tables must agree with.
    What is legal, `rules` say.
    """
    m, N, B, T = job.model, job.cluster.chips, job.batch, job.T
    choice = options(job, space)
    contexts = [
        cp
        for cp in space.values("cp") or divisors(T)
        if cp == 1 or T // cp >= SMALLEST_SHARD
    ]
    widths = divisors(m.heads)
    if space.scheme == "mlp2d":  # cuts both sides of its matrices
        widths, contexts = divisors(m.ffn), divisors(m.hidden)
    for tp, cp, pp in itertools.product(
        widths, contexts, range(1, m.layers + 1)
    ):
        replicas = range(1, N // (tp * cp * pp) + 1)
        for dp, ep, etp, b in itertools.product(
            replicas if relaxed else replicas[-1:],
            divisors(m.moe.experts) if m.moe else [1],
            space.values("etp") or (sorted({1, tp}) if m.moe else [1]),
            [
                n
                for n in range(1, B + 1)
                if not relaxed or n <= RELAXED_MICROBATCH or B % n == 0
            ],
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
            same = {
                name: space.values(name)[0]
                for name in ("scheme", "cp_exchange", "offload")
            }
            if choice.copies > 1:
                same["schedule"] = choice.schedules[0].schedule
            bare = Layout(**degrees, sequence_parallel=False, **same)
            if (
                not relaxed
                and bare.chips < N
                or not all(r.holds(job, bare) for r in OF_DEGREES)
            ):
                continue
            places = [
                shares
                for shares in every_placement(job, degrees, relaxed)
                if numbered(job, replace(bare, placement=shares))
            ]
            for (i, sp), (r, recompute), (k, name, dealt, v), (
                z,
                sharding,
            ) in itertools.product(
                enumerate(choice.sequence_parallel),
                enumerate(choice.recompute),
                every_way(job, choice),
                enumerate(choice.zero),
            ):
                layout = replace(
                    bare,
                    schedule=name,
                    stages=dealt,
                    interleave=v,
                    zero=sharding.zero,
                    recompute=recompute,
                    sequence_parallel=sp,
                )
                copies = sharding.copies or groups_of_a_node(job, layout)
                if copies == 0 or (copies > 1 and copies >= layout.replicas):
                    continue
                layout = replace(layout, dp_replicate=copies)
                if says_the_same(job, layout, z, choice, relaxed) or not legal(
                    job, layout, relaxed
                ):
                    continue
                for shares in places:
                    yield (i, r, k, z), replace(layout, placement=shares)


def every_way(job: Job, choice) -> list[tuple[int, str, str, int]]:
    """(position, schedule, stages, chunks) of every schedule with any number of chunks."""
    return [
        (k, way.schedule, way.stages, v)
        for k, way in enumerate(choice.schedules)
        for v in range(1, job.model.layers + 3)
        if v == schedule_named(way.schedule).chunks(v)
        and (v > 1 or schedule_named(way.schedule).chunks(7) == 1)
    ]


OF_DEGREES = [
    r
    for r in ALWAYS
    if r.name
    not in (
        "schedule",
        "sequence over cp",
        "experts need sequence parallelism",
        "hidden size over tp",
        "host memory",
    )
]
"""Rules that hold for one stage's worth of chunks, whatever else is chosen, or for no choice at
all: only a shortcut.
"""


def legal(job: Job, layout: Layout, relaxed: bool) -> bool:
    """The rules, and what the space asks besides: a batch without remainder (strict); of papers, as
    many layers in each chunk.
    """
    chunked = not by_order(job) and layout.interleave > 1
    more = [EVEN_LAYERS] * chunked + [EVEN_BATCH] * (not relaxed)
    return all(
        r.holds(job, layout)
        for r in (
            *ALWAYS,
            *more,
            *(r for r in of_framework(job) if "placement" not in r.reads),
        )
    )


def groups_of_a_node(job: Job, layout: Layout) -> int:
    """Groups of dp ranks that each fill a node beside tp and cp; 0 if there are no two such
    groups.
    """
    inside, rest = divmod(job.cluster.sizes[0], layout.tp * layout.cp)
    if rest or not inside or layout.dp % inside:
        return 0
    return layout.dp // inside if layout.dp > inside else 0


def says_the_same(
    job: Job, layout: Layout, zero: int, choice, relaxed: bool
) -> bool:
    """Choices that change nothing count once: sequence parallelism on one rank, schedules of one
    stage, ZeRO without replicas.

    Of the schedules that one stage can run, the one that counts holds the fewest microbatches.
    """
    off = (
        not layout.sequence_parallel
        and layout.tp == 1
        and True in choice.sequence_parallel
    )
    if off or bool(
        layout.replicas == 1 and zero and not resident.whole_program(job)
    ):
        return True
    stages = int(layout.pp * layout.interleave) // layout.copies
    even = "even" in {way.stages for way in choice.schedules}
    if layout.pp > 1:
        layers = job.model.layers
        same = stage_layers(layers, stages) == stage_layers(
            layers, stages, layout.stages
        )
        return bool(layout.stages == "slots" and even and same)
    alike = [
        replace(layout, schedule=name, stages=dealt, interleave=v)
        for _, name, dealt, v in every_way(job, choice)
    ]
    can = [x for x in alike if legal(job, x, relaxed)]
    return bool(can) and layout != min(can, key=held_alone)


def held_alone(layout: Layout) -> float:
    """Microbatches of two that one stage holds at once."""
    return float(
        memory.in_flight(
            1.0,
            2.0,
            schedule_named(layout.schedule),
            layout.interleave,
            0.0,
        )
    )


def numbered(job: Job, layout: Layout) -> bool:
    """The launcher of a framework that is named lays ranks out so."""
    orders = launcher_orders(job)
    sizes = job.cluster.sizes
    return not orders or any(lies(layout, sizes, o) for o in orders)


def every_placement(
    job: Job, degrees: dict[str, int], relaxed: bool, i: int = 0
):
    """All ways to lay the axes over the network's dimensions, from dimension i on."""
    sizes = job.cluster.sizes
    if i == len(sizes) - 1:
        if math.prod(degrees[a] for a in AXES) <= sizes[-1]:
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
        for rest in every_placement(job, {**degrees, **left}, relaxed, i + 1):
            yield {a: (here[a], *rest[a]) for a in AXES}


BODY = ("tp", "cp", "pp", "dp", "ep", "etp", "microbatch", "sequence_parallel")
"""What one microbatch costs depends on these and the placement alone (`step.ModelCost`)."""


def loop(
    job: Job, space: Space, k: int, relaxed: bool
) -> tuple[list[tuple], int, int]:
    """The k best by (seconds over the chance to fit, bytes, degrees, options, placement); how many were searched; how many
    fit.
    """
    found, searched, bodies = [], 0, {}
    for numbers, layout in every_layout(job, space, relaxed):
        key = (
            tuple(getattr(layout, f) for f in BODY),
            *layout.placement.values(),
        )
        if key not in bodies:
            bodies[key] = model_cost(
                job, layout, again=options(job, space).recompute
            )
        parts = bodies[key]
        seconds = float(step(job, layout, parts).total)
        use = float(
            memory.peak_use(job, layout, parts, schedule_of(layout)).total
        )
        searched += 1
        if use <= room.limit(job):
            degrees = (
                layout.tp,
                layout.cp,
                layout.pp,
                layout.dp,
                layout.ep,
                layout.etp,
                layout.microbatch,
                layout.panels,
                layout.interleave,
            )
            fits = 1.0 - float(room.risk(job, np.array([use]))[0])
            found.append(
                RankedRow(
                    seconds / fits,
                    use,
                    degrees,
                    tuple(numbers),
                    tuple(s for a in AXES for s in layout.placement[a]),
                )
            )
    return sorted(found)[:k], searched, len(found)


@pytest.mark.parametrize("seed", range(40))
def test_search_equals_brute_force_equals_a_plain_loop(seed: int) -> None:
    """Five random spaces a seed, ties included: 200 in all."""
    rng = random.Random(seed)
    compared = 0
    while compared < 5:
        job, space, relaxed = random_job(rng)
        if job.cluster.chips * job.batch > (100 if relaxed else 250):
            continue
        compared += 1
        same_by_loop(job, space, relaxed)


@pytest.mark.parametrize("seed", range(6))
def test_search_equals_brute_force_of_hybrids(seed: int) -> None:
    """Two random spaces a seed of models whose layers differ."""
    rng = random.Random(1000 + seed)
    compared = 0
    while compared < 2:
        job, space, relaxed = random_job(rng)
        if job.cluster.chips * job.batch > (100 if relaxed else 250):
            continue
        compared += 1
        same_by_loop(
            replace(job, model=hybrid(rng, job.model)), space, relaxed
        )


@pytest.mark.parametrize("seed", range(8))
def test_search_equals_brute_force_of_named_widths_and_padded_sequences(
    seed: int,
) -> None:
    """Experts cut otherwise than tp, and sequences that cp does not divide."""
    rng = random.Random(4000 + seed)
    compared = 0
    while compared < 2:
        job, space, relaxed = random_job(rng)
        m = job.model
        if job.cluster.chips * job.batch > (100 if relaxed else 250):
            continue
        moe = MoE(4, 2, m.hidden // 2)
        job = replace(
            job,
            model=replace(m, moe=moe, mtp_layers=0),
            seq=rng.choice([500, 514, 768]),
            assumptions=SETS["realistic"],
        )
        space = space.but(
            etp=rng.choice([(2,), (1, 2), (2, 4)]),
            cp=rng.choice([(1, 2), (2, 3), (1, 4)]),
        )
        same_by_loop(job, space, relaxed)
        compared += bool(search(job, space, 1).rows)


@pytest.mark.parametrize("seed", range(2))
def test_search_equals_brute_force_where_stages_lie_twice(seed: int) -> None:
    """DualPipe: two ranks hold each stage, so weights are sharded over twice as many, and half of
    the microbatches go each way. Two random spaces a seed that have such layouts."""
    rng = random.Random(2000 + seed)
    compared = 0
    while compared < 2:
        job, space, relaxed = random_job(rng)
        job = replace(job, batch=rng.choice([16, 24]))
        space = space.but(schedule=("dualpipe",), sequence_parallel=None)
        if job.cluster.chips * job.batch > (150 if relaxed else 400):
            continue
        same_by_loop(job, space, relaxed)
        compared += bool(search(job, space, 1).rows)


def test_what_lies_twice_is_searched_by_itself() -> None:
    job, space, _ = random_job(random.Random(1))
    with pytest.raises(BadInput, match="alone, not with 1f1b"):
        search(job, space.but(schedule=("1f1b", "dualpipe")))


@pytest.mark.parametrize("seed", range(2))
def test_search_equals_brute_force_of_hidden_states_cut_over_tp(
    seed: int,
) -> None:
    """Scheme gspmd: two random spaces a seed, one with tokens that tp cannot cut."""
    rng = random.Random(3000 + seed)
    for seq in (126, None):
        while True:
            job, space, relaxed = random_job(rng)
            model = replace(job.model, moe=None, mtp_layers=0)
            job = replace(
                job, model=replace(model, seq=seq or model.seq), batch=12
            )
            space = space.but(scheme=("gspmd",))
            size = job.cluster.chips * job.batch
            if 8 <= size <= (40 if relaxed else 120) and (
                search(job, space, 1).searched
            ):
                break
        same_by_loop(job, space, relaxed)


@pytest.mark.parametrize("how", ["epoch-2024", "realistic"])
def test_search_equals_brute_force_of_feed_forwards_on_a_plane(
    how: str,
) -> None:
    """Scheme mlp2d, whose cp cuts the hidden size and whose tp the feed-forward."""
    model = Model("mlp", 4, 12, 1, 24, 0, 64, pattern=("none",), gated=False)
    dims = Dim("near", 4.5e11, 1e-6, 4), Dim("far", 5e10, 5e-6)
    cluster = Cluster(catalog.chip("h100-sxm"), Network("two", dims), 12)
    job = Job(model, cluster, 6, assumptions=how)
    space = Space(
        scheme=("mlp2d",),
        zero=(0, 1),
        schedule=("1f1b", "zb-h2"),
        recompute=("none",),
    )
    same_by_loop(job, space, False)
    assert search(job, space, 1).searched > 100


def test_no_layout_of_a_scheme_that_does_not_count_the_model() -> None:
    """Neither by tables nor by the loop: gspmd and summa have no mixture of experts."""
    job, space, _ = random_job(random.Random(3))
    model = replace(job.model, moe=MoE(4, 1, 64), mtp_layers=0)
    job = replace(job, model=model, batch=8)
    for scheme in ("gspmd", "summa"):
        same_by_loop(job, space.but(scheme=(scheme,)), False)
        assert search(job, space.but(scheme=(scheme,)), 1).searched == 0


def same_by_loop(job: Job, space: Space, relaxed: bool) -> None:
    """Search, brute force and the plain loop agree."""
    expected, searched, feasible = loop(job, space, 5, relaxed)
    every, quick = (
        brute(job, space, 5),
        search(job, space, 5),
    )
    assert (every.searched, every.feasible) == (searched, feasible)
    assert every.rows == expected
    assert quick.rows == every.rows
    assert relaxed or quick.searched == searched


def test_any_number_of_chips() -> None:
    """98,304 and 100,000 chips have a plan; the relaxed space may leave some idle."""
    network = Network(
        "two levels", (Dim("near", 4.5e11, 2.5e-6, 8), Dim("far", 5e10, 5e-6))
    )
    chip = Chip("c", {"bf16": 1e15}, 1e14, 8e10, 3e12)
    model = Model("m", 48, 8192, 64, 28672, 128256, 4096, kv_heads=8)
    for chips in (98304, 100000, 99991):
        job = Job(
            model,
            Cluster(chip, network, chips),
            4096,
            precision=PRECISIONS["bf16"],
        )
        best = search(job, Space(relaxed=True), 1)
        layout = best.layouts[0]
        assert layout.chips <= chips
        assert seconds_of(job, best.rows[0]) == pytest.approx(
            float(step(job, layout, model_cost(job, layout)).total), rel=1e-12
        )


def test_breaking_a_bound_is_noticed() -> None:
    """A network whose far dimension is faster is not searched by bounds that assume the
    opposite.
    """
    job, space, _ = random_job(random.Random(3))
    odd = Network("odd", (Dim("near", 1e9, 1e-4, 4), Dim("far", 1e11, 1e-6)))
    job = replace(job, cluster=Cluster(job.cluster.chip, odd, 8), batch=8)
    assert search(job, space, 3).rows == brute(job, space, 3).rows
