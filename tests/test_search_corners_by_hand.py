"""Corners of the search, each worked out on paper: what bounds are made of, halves of intervals,
groups of mirrored stages, whose choices are searched, what is named near a number that is wrong.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from by_hand import BACKWARD, CHIP, FORWARD, MODEL, SET
from meshwright import assumptions, predict
from meshwright.catalog import chip as catalogue_chip
from meshwright.catalog import cluster as catalogue_cluster
from meshwright.catalog import model as catalogue
from meshwright.describe.choices import Choices
from meshwright.describe.cluster import Cluster
from meshwright.describe.framework import framework as catalogue_framework
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.describe.network import Dim, Network
from meshwright.errors import BadInput
from meshwright.prediction.certainty import resolution
from meshwright.schedule import get
from meshwright.schedule.waits import Wait
from meshwright.search import (
    grid,
    laws,
    nearby,
    placement,
    relaxed,
    several,
    unfit,
)
from meshwright.search import ranked as ranking
from meshwright.search.best import NEARLY, Best
from meshwright.search.cascade import search
from meshwright.search.degrees import shards
from meshwright.search.described import described
from meshwright.search.evaluate import brute, smallest
from meshwright.search.kinds import Fullest, Kind, deals, holders_of
from meshwright.search.nearest import Nearest
from meshwright.search.options import options, shardings
from meshwright.search.plan import (
    FRONT_POINTS,
    FRONT_STEP,
    Plan,
    _together,
    plan,
)
from meshwright.search.ranked import Ranked
from meshwright.search.selectors import changed, choices_of, neighbours
from meshwright.search.space import Space
from meshwright.search.strategies import strategies
from meshwright.search.table import distinct, length
from meshwright.step.memory import moments

plans = import_module("meshwright.search.plan")
NODES = Network(
    "nodes", (Dim("node", 1e30, 0.0, size=4), Dim("net", 1e30, 0.0, size=999))
)


def job(chips: int = 8, batch: int = 8, **fields: Any) -> Job:
    network = fields.pop("network", NODES)
    how = fields.pop("how", SET)
    return Job(
        replace(MODEL, **fields),
        Cluster(CHIP, network, chips),
        batch,
        assumptions=how,
        attention_kernel="unfused",
    )


def columns(**values: list[float]) -> dict[str, Any]:
    return {name: np.array(each, float) for name, each in values.items()}


# Bounds.


def test_the_whole_model_on_all_chips() -> None:
    """Two layers of 3 s for each of 8 sequences on 8 chips: 6 s however matrices are cut, and twice
    that where only half of what tp cuts is cut."""
    at = job(network=Network("one", (Dim("node", 1e30, 0.0),)))
    space = Space(recompute=("none",), zero=(0,))
    best = Best(1, options(at, space))
    table = columns(
        tp=[1, 2, 4], cp=[1, 1, 1], ep=[1, 1, 1], etp=[1, 1, 1], panels=[1, 1, 1],
        microbatch=[1, 2, 1],
    )  # fmt: skip
    shards = relaxed.Shards.of(at, space, best, table)
    found = relaxed._whole_model(at, shards)
    assert found == pytest.approx([2 * (FORWARD + BACKWARD)] * 3)


def test_halves_of_an_interval_have_all_of_it_once() -> None:
    """In steps of what dp comes in: experts over 4 of 2 ranks of tp want an even dp."""
    low = columns(tp=[1, 2, 1], cp=[1, 1, 1], ep=[1, 4, 1], etp=[1, 1, 1])
    ends = (([1, 2, 5], [8, 12, 6]), ([3, 4, 7], [4, 6, 9]))
    for first, last in ends:
        below = low | {"dp": np.array(first, float)}
        above = low | {"dp": np.array(last, float)}
        step = [1, 2, 1]
        near, far = relaxed._halves(below, above)
        for row in range(3):
            mine = [
                n
                for half in (row, row + 3)
                for n in range(
                    int(near["dp"][half]),
                    int(far["dp"][half]) + 1,
                    step[row],
                )
            ]
            assert mine == [*range(first[row], last[row] + 1, step[row])]
            assert near["ep"][row] == near["ep"][row + 3]


def test_a_wait_in_seconds_of_a_layer_is_the_least_it_may_be() -> None:
    """The way as short as it may be, what fills it as long: of what is taken off, the other way."""
    low, high = np.array([0.2, 0.3, 0.1]), np.array([0.4, 0.5, 0.3])
    wait = Wait(
        np.array([[3.0, 0.0, -1.0]]),
        np.array([[0.5, -0.5, 0.0]]),
        np.array([[7.0, 7.0, 7.0]]),
    )
    found = laws._scaled(wait, (low, high))
    assert found.way == pytest.approx(3.0 * 0.2 - 0.3)
    assert found.fill == pytest.approx(0.5 * 0.4 - 0.5 * 0.3)
    assert found.most == 7.0


def test_numbers_of_chunks_that_a_kind_may_have() -> None:
    v = np.array([1.0, 2.0, 3.0, 4.0])
    for counts in ((2,), (2, 3), (2, 3, 4)):
        kind = Kind(get("interleaved"), counts)
        found = kind.filled(job(layers=12), np.ones(4), v)
        assert [int(x) for x in v[found]] == [*counts]


def test_numbers_of_microbatches_that_a_law_knows() -> None:
    """All small ones, then each by no more than a step above the one before, up to the most."""
    for most in (1.0, float(laws.DENSE), 1000.0, 4096.0):
        found = laws.rounded(most)
        assert found[: laws.DENSE].tolist() == [*range(1, laws.DENSE + 1)]
        assert found[-1] >= most and np.all(found == np.floor(found))
        more = found[laws.DENSE - 1 :]
        assert np.all(np.diff(more) >= 0)
        assert np.all(more[1:] <= more[:-1] * laws.APART + 1)
        assert len(found) < laws.DENSE + 3 + np.log(most) / np.log(laws.APART)


@pytest.mark.parametrize("idle", [False, True])
def test_progress_is_a_share_that_grows(idle: bool) -> None:
    """Of each stage from nothing to all; the last one ends with what is left."""
    said: list[tuple[str, float]] = []
    at = job(64, 64, layers=12, heads=8)
    search(at, Space(), 1, idle, lambda *told: said.append(told))
    stages = list(dict.fromkeys(stage for stage, _ in said))
    assert stages == (["pipelines"] if idle else ["bounds"]) + ["layouts"]
    for stage in stages:
        mine = [share for name, share in said if name == stage]
        assert mine == sorted(mine) and 0.0 <= mine[0] <= mine[-1] <= 1.0
    assert ("bounds", 0.0) in said or idle


def test_numbers_that_are_not_whole_are_told_apart() -> None:
    """Halves and quarters beside whole numbers, as bytes of a share may be."""
    index, number = distinct([np.array([0.5, 0.25, 0.75, 0.5, 1.0, 1.25])])
    assert len(index) == 5 and number[0] == number[3]
    index, number = distinct([np.array([0.5, 0.25, 0.75, 0.5])])
    assert len(index) == 3 and number[0] == number[3]


# Places.


def test_stages_held_twice_have_groups_across_the_pipeline() -> None:
    """DualPipe keeps each stage on two ranks of the pipeline, so groups of replicas may hold
    several of its ranks: a placed pp leaves them the room that it takes from groups of 1F1B.
    """
    one = Nearest(dp=8, pp=2, sizes=(8, 64), placement={"pp": (2, 1)})
    two = replace(one, schedule="dualpipe")
    assert two.copies == 2 and one.copies == 1
    assert one.group("replicas") == (4, 2)
    assert two.group("replicas") == (8, 2)
    assert one.group("ep") == two.group("ep") == (1, 1)


def test_shares_of_a_node_are_whole_and_fill_it() -> None:
    """Eight ranks of tp in nodes of 12 beside three replicas: four of tp and all replicas, not
    eight and one and a half."""
    network = Network(
        "n", (Dim("node", 1e9, 0.0, size=12), Dim("net", 1e9, 0.0, size=99))
    )
    table = columns(tp=[8], cp=[1], pp=[1], dp=[3])
    at = job(24, 24, network=network)
    assert placement.count(at, table).tolist() == [1]


def test_the_smallest_layout_may_have_one_replica() -> None:
    found = smallest(job(1, 1), Space(), True)
    assert len(found.rows) == 1
    assert found.layouts("megatron", 2)[0].chips == 1


# What is searched, and said.


def test_a_named_scheme_says_whose_other_choices_are_searched() -> None:
    """Of tp 1 or 2 by Megatron and tp 4 by SUMMA: who asks for Megatron and tp 4 is told what
    Megatron's search has."""
    how = replace(
        SET,
        strict=False,
        choices=(
            Choices(scheme="megatron", tp=(1, 2)),
            Choices(scheme="summa", tp=(4,)),
        ),
    )
    found, said = strategies(job(how=how), Space(tp=(4,), scheme="megatron"))
    assert [(one.scheme, one.values("tp")) for one in found] == [
        ("megatron", (4,))
    ]
    assert said == [
        "tp 4 is searched as asked; by hand itself searches tp 1, 2"
    ]


@pytest.mark.parametrize(
    ("chips", "near"), [(10, "8, 12"), (5, "4, 8"), (1001, "1,000, 1,004")]
)  # fmt: skip
def test_chips_that_fill_nodes_are_named(chips: int, near: str) -> None:
    (said,) = unfit.unfilled(job(chips))
    assert said == (
        f"{chips:,} chips do not fill units of 4 (node) evenly: {near} would, or --relaxed"
    )
    assert unfit.unfilled(job(8)) == []


def test_neighbours_say_that_they_are_asked_for() -> None:
    """Before each of them; no share of them is known to be done."""
    told: list[tuple[str, float]] = []
    neighbours(job(), Layout(dp=8), lambda *at: told.append(at))
    assert told and {*told} == {("neighbours", 0.0)}


def test_neighbours_in_a_pipeline_take_what_their_order_takes() -> None:
    """Layers that do not divide: the seconds shown are the replay's, not the closed form's."""
    at = Job(
        replace(catalogue("llama3-8b"), layers=11),
        catalogue_cluster("8xh100-sxm"),
        24,
        assumptions=replace(assumptions("realistic"), choices=()),
    )
    found = neighbours(at, Layout(tp=2, pp=4, schedule="1f1b"))
    made = [each for each in found if each.prediction]
    apart = 0
    for each in made:
        p = each.prediction
        assert p
        assert each.seconds == (p.replayed_s or p.step_time_s)
        apart += each.seconds != p.step_time_s
    assert apart


def test_stages_that_are_held_twice_are_searched_by_themselves() -> None:
    at = job(layers=8)
    options(at, Space(schedule=("1f1b", "gpipe")))
    options(at, Space(schedule=("dualpipe",)))
    with pytest.raises(BadInput, match="dualpipe holds every stage twice"):
        options(at, Space(schedule=("1f1b", "dualpipe")))


def test_weights_that_wait_in_host_memory_are_sharded_with_all_they_have() -> (
    None
):
    """Only ZeRO-3 has them in pieces, and only where all of the optimizer waits beside them."""
    at = job(how=assumptions("realistic"))
    for text, stages in (
        ("weights+optimizer", {3}),
        ("weights+optimizer:0.5", set()),
        ("optimizer:0.5", {1, 3}),
    ):
        space = Space(offload=(text,), zero=(1, 3))
        assert {one.zero for one in shardings(at, space)} == stages, text


def test_a_plan_of_nothing_is_no_slower() -> None:
    shown: Any = SimpleNamespace(merit_s=2.0)
    assert Plan(None).slower(shown) == 0.0


def test_part_of_a_switch_is_that_switch() -> None:
    rack = Network(
        "r", (Dim("rack", 1e9, 1e-6, size=72), Dim("net", 1e8, 0.0, size=99))
    )
    used = nearby.on(job(144, 128, network=rack), 128, 64)
    assert used.cluster.network.dims == (
        replace(rack.dims[0], size=64),
        rack.dims[1],
    )


def test_there_is_always_one_chunk_to_choose() -> None:
    """Six layers on eight stages; on two, chunks of three."""
    for pp, chunks in ((8, (1,)), (2, (1, 3))):
        found = choices_of(job(layers=6), Layout(pp=pp))
        assert found["interleave"] == chunks


def test_chunks_are_those_of_the_schedule_that_has_them() -> None:
    """One that may have any keeps its name; 1F1B becomes interleaved; a V has two."""
    for name, becomes in (
        ("interleaved-zb", "interleaved-zb"),
        ("1f1b", "interleaved"),
    ):
        at = Layout(pp=2, schedule=name, interleave=2)
        for chunks in (2, 4):
            assert changed(at, "interleave", chunks).schedule == becomes
        assert changed(at, "interleave", 1).schedule == "1f1b"


def test_six_rules_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight that leave nothing; after the nearest values."""
    rules = tuple("abcdefgh")
    closest, said = unfit.nearest_fit(
        job(12, layers=2), Space(tp=(3,)), False, rules
    )
    assert closest is None and "".join(said[-7:-1]).endswith("abcdef")
    assert "a" not in said[:-7] and "not tried" in said[-1]


def test_all_stages_of_zero_are_tried_before_the_third_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def none(j: Job, space: Space, idle: bool) -> bool:
        tried.append(space.values("zero"))
        return False

    monkeypatch.setattr(unfit, "fits", none)
    unfit._would_fit(job(), Space(zero=(0,), recompute=("none",)))
    assert (0, 1, 2, 3) in tried


def test_several_spaces_keep_what_may_tie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within a half more than the first of all, and what replays may turn; never less than the
    k-th."""
    asked = []
    merits = {1: (4.0, 5.0, 9.0), 2: (8.0,), 4: (4.0, 4.0)}

    def found(j: Any, space: Any, k: int, *_: Any, **limits: Any) -> Any:
        asked.append(limits["within"])
        (tp,) = space.values("tp")
        rows = [(merit, 0.5) for merit in merits[tp]]
        return Best(k, None, rows=rows)  # type: ignore[arg-type]

    monkeypatch.setattr(several, "search", found)
    spaces = [Space(tp=(tp,)) for tp in merits]
    several.several(job(), spaces, 2, False, slack=0.5)
    near = pytest.approx
    assert asked == [np.inf, near(6.0 * NEARLY), near(6.0 * NEARLY)]


def test_a_plan_shows_ten() -> None:
    """Unless asked otherwise; the best is one of them."""
    found = plan(job(), Space(recompute=("none",)))
    assert len(found.alternatives) == 9
    assert 0.0 < found.elapsed_s < 600.0
    assert len(plan(job(), Space(recompute=("none",)), top=3).alternatives) == 2  # fmt: skip


def test_a_front_is_the_fastest_with_less_and_less_memory() -> None:
    """Each needs at least a tenth less than the one before, for as little more time as there is
    one; from the second on none is faster than one before it."""
    at = replace(
        job(8, 8, layers=4, vocab=512),
        assumptions=replace(assumptions("realistic"), choices=()),
        cluster=Cluster(catalogue_chip("h100-sxm"), NODES, 8),
    )
    space = Space(
        recompute=("none", "full"), zero=(0, 3), microbatch=(1, 2), relaxed=False,
    )  # fmt: skip
    found = plan(at, space, top=1, pareto=True, families=False).pareto
    assert found and len(found) > 2
    for a, b in itertools.pairwise(found):
        step = 1 - b.memory_bytes["allocated"] / a.memory_bytes["allocated"]
        assert step >= FRONT_STEP
    seconds = [p.step_time_s for p in found[1:]]
    assert seconds == sorted(seconds)
    if len(found) < FRONT_POINTS:
        least = min(row[1] for row in brute(at, space, 10**5).rows)
        assert found[-1].memory_bytes["allocated"] * (1 - FRONT_STEP) < least


def test_several_schemes_are_one_plan() -> None:
    """The fastest of each in order of time, to four digits; a layout of two is shown once, counts
    are added up."""

    def shown(seconds: float, layout: Layout) -> Any:
        return SimpleNamespace(step_time_s=seconds, layout=layout)

    def made(*shown: Any, **counts: Any) -> Plan:
        return replace(Plan(shown[0], shown[1:], notes=("a note",)), **counts)

    a, b, c = (Layout(tp=n) for n in (1, 2, 4))
    one = made(shown(1.2346, a), shown(1.5, b), searched=3, feasible=2)
    two = made(shown(1.2344, b), shown(1.2346, a), shown(2.0, c))
    two = replace(two, searched=4, feasible=1, rejected={"memory": 2})
    found = _together([one, two], ["megatron", "summa"], 3)
    assert found.best is two.best
    assert [x.layout.tp for x in found.alternatives] == [1, 4]
    assert (found.searched, found.feasible) == (7, 3)
    assert found.rejected == {"memory": 2} and found.pareto is None
    assert found.notes == (
        "the fastest of each scheme: summa 1.234 s, megatron 1.235 s",
        "a note",
    )
    assert _together([one, one], ["megatron"] * 2, 3).notes == ("a note",)


def test_pairs_that_a_framework_bars_are_not_found() -> None:
    """This project's trainer shards no weights where a pipeline comes back: no ZB-V with ZeRO-3,
    whichever way its space is searched."""
    at = Job(
        replace(catalogue("llama3-8b"), layers=4),
        catalogue_cluster("8xh100-sxm"),
        32,
        framework=catalogue_framework("meshwright"),
    )
    space = Space(
        schedule=("1f1b", "zbv"), zero=(0, 3), recompute=("none", "full"),
        sequence_parallel=(True, False), dp_replicate=(1,), tp=(1, 2), cp=(1,),
        pp=(1, 2), microbatch=(1, 2),
    )  # fmt: skip
    every = brute(at, space, 10**4)
    found = search(at, space, len(every.rows))
    assert found.rows == every.rows
    kinds = {
        (x.schedule, x.zero) for x in every.layouts("megatron", 2) if x.pp > 1
    }
    assert kinds == {("1f1b", 0), ("1f1b", 3), ("zbv", 0)}


def test_a_plan_takes_what_a_framework_proposes() -> None:
    """Of all that it runs, unless all is asked for; one without proposals proposes what it runs."""

    def schedules(choices: Any) -> set[Any]:
        return {x for one in choices for x in one.get("schedule", ())}

    for name in ("megatron-core", "meshwright"):
        at = replace(
            job(how=replace(assumptions("realistic"), choices=())),
            framework=catalogue_framework(name),
        )
        profile = at.profile
        assert profile is not None
        found = [
            schedules(one.choices for one in strategies(at, Space(), few)[0])
            for few in (True, False)
        ]
        every = schedules(profile.choices)
        assert found == [schedules(profile.proposes) or every, every]
        usual, _ = strategies(at, Space())
        assert schedules(one.choices for one in usual) == found[0]


def test_uneven_batches_are_tried_where_strict_ones_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def fits(j: Job, space: Space, idle: bool) -> bool:
        tried.append((space.relaxed, idle))
        return idle

    monkeypatch.setattr(unfit, "fits", fits)
    said = unfit._would_fit(job(), Space(zero=(0,), recompute=("none",)))
    assert (True, True) in tried
    assert f"{unfit.UNEVEN} would make it fit" in said
    again = unfit._would_fit(job(), Space(zero=(0,), relaxed=True))
    assert not any(unfit.UNEVEN in each for each in again)


def test_ports_of_the_nearest_dimension_only() -> None:
    """Three of each eight chips, whatever size the next dimension has."""
    for size in (0, 4):
        dims = Dim("node", 1e30, 0.0, size=8), Dim("net", 1e30, 0.0, size=size)
        at = job(16, network=Network("n", dims))
        found = nearby.on(at, 6, 3).cluster
        assert [d.size for d in found.network.dims] == [3, size]
        assert found.chips == 6
        whole = nearby.on(at, 8, 8).cluster.network
        assert whole.dims[0].size == 8
        assert nearby.on(at, 8).cluster.network.dims[0].size == 8


def test_what_is_in_no_part_has_nothing_before_it() -> None:
    """The last number is of rows that the space does not hold."""
    best = Best(1, options(job(), Space()))
    assert best.firsts.tolist() == [np.inf, 0.0]
    assert best.kept.tolist() == [np.inf, 0.0]


def test_what_was_searched_names_its_schedules() -> None:
    space = Space(schedule=("1f1b", "gpipe"), zero=(0, 1), recompute=("none",))
    tried, left = described(job(), [space])
    assert "schedules 1f1b, gpipe" in tried and "ZeRO 0, 1" in tried
    assert "interleaved" in left and "1f1b" not in left


def test_a_dense_model_has_no_experts_to_cut() -> None:
    for values, some in (((1,), True), ((2,), False), ((1, 2), True)):
        for name in ("ep", "etp"):
            space = Space(**{name: values}, tp=(1,), cp=(1,))
            assert bool(length(shards(job(), space, False))) is some


def test_devices_between_the_ends_where_they_may_hold_more() -> None:
    """Six layers over three ranks are alike everywhere, over four they are not; two kinds of layers
    never are."""
    space = Space(schedule=("1f1b",), zero=(0,), recompute=("none",))
    for layers, between in ((6, False), (7, True)):
        at = job(layers=layers)
        choice = options(at, space)
        near = Layout(pp=np.array([3.0]), interleave=np.array([1.0]))
        by = [holders_of(at, near, deal) for deal in {*deals(choice)}]
        found = grid._devices(at, choice, near.pp, near.interleave, by)
        assert all((len(names) > 2) is between for names in found)


def test_kinds_of_layers_share_a_device_on_average() -> None:
    """Two layers of one kind and six of another on four devices: one of the one or two of the other
    at least on some; a half and one and a half on average."""
    at = job(layers=8, pattern=("full",) * 3 + ("sliding",), window=16)
    found = Fullest.of(at, np.array([4.0]))
    assert [x.tolist() for x in found.kinds] == [[1.0], [2.0]]
    assert [float(x[0]) for x in found.mean] == pytest.approx([0.5, 1.5])
    assert found.seconds([np.array([1.0]), np.array([1.0])]) == 2.0
    assert found.seconds([np.array([0.9]), np.array([1.0])]) == pytest.approx(2.0)  # fmt: skip
    assert found.seconds([np.array([1.6]), np.array([0.9])]) == pytest.approx(2.15)  # fmt: skip
    assert Fullest.of(job(layers=8), np.array([4.0])).mean == ()


def test_nothing_is_read_before_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables that are made empty hold what nobody may use; nor where the optimizer copies gradients,
    which is a moment of its own."""
    space = Space(
        schedule=("1f1b", "gpipe"), zero=(0, 1, 2, 3), microbatch=(1,), tp=(1, 2)
    )  # fmt: skip
    at = replace(
        job(how=assumptions("realistic"), vocab=128),
        framework=catalogue_framework("megatron-core"),
        precision=PRECISIONS["bf16-pure"],
    )
    assert moments(at) == 2
    plain = brute(at, space, 10**3).rows
    empty = np.empty

    def full(shape: Any, dtype: Any = float, **more: Any) -> Any:
        found = empty(shape, dtype, **more)
        if found.dtype == float:
            found[...] = np.nan
        return found

    monkeypatch.setattr(np, "empty", full)
    assert brute(at, space, 10**3).rows == plain and plain


def test_rows_hold_what_their_layouts_hold() -> None:
    """Whether passes or the optimizer need more."""
    at = replace(
        job(how=assumptions("realistic"), vocab=128),
        framework=catalogue_framework("megatron-core"),
        precision=PRECISIONS["bf16-pure"],
    )
    space = Space(schedule=("1f1b",), zero=(0, 1), microbatch=(1, 8))
    found = brute(at, space, 10**3)
    layouts = found.layouts(space.scheme, len(at.cluster.network.dims))
    for row, layout in list(zip(found.rows, layouts, strict=True))[::4]:
        held = predict(at, layout).memory_bytes["allocated"]
        assert row[1] == pytest.approx(held), layout


def test_a_plan_that_is_walked_asks_again_only_where_nothing_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chosen that fit a walk; else once more, with room for what the closed form lacks."""
    asked: list[Job] = []

    def ask(at: Job) -> Any:
        asked.append(at)
        return []

    cases: tuple[Any, ...] = (True, ("a",), 0), (True, (), 1), (False, (), 0)
    for some, fit, times in cases:
        asked.clear()
        monkeypatch.setattr(
            plans, "walk_checked", lambda each, fit=fit: (fit, ["said"])
        )
        first = SimpleNamespace(job=job(), relaxed=False)
        _, predicted, said = plans._walked(
            first, ask, str, lambda _, some=some: ["a", "b"] * some
        )  # type: ignore[arg-type]
        assert (len(asked), predicted, said) == (times, fit, ["said"])


def test_layouts_of_other_conventions_are_no_slower_than_what_is_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Searched for within the best less what predictions cannot tell apart."""
    at = job(how=assumptions("realistic"), vocab=128)
    one = plan(at, Space(tp=(1, 2), zero=(0,)), top=1)
    asked = []

    def none(*_: Any, within: float) -> Any:
        asked.append(within)
        return SimpleNamespace(layouts=lambda *_: [])

    monkeypatch.setattr(plans, "search", none)
    assert plans._outside(at, Space(tp=(1, 2), zero=(0,)), one) == ()
    assert one.best is not None and asked
    wanted = one.best.merit_s / (1.0 + resolution(at))
    assert asked == pytest.approx([wanted] * len(asked))


def test_replays_go_on_as_long_as_a_closed_form_is_below_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twenty rows of closed forms 1, 2, ..., replayed eight at a time: the second is 12, so those
    up to 12 are replayed; no row's other numbers matter."""
    rows = [(float(k), 0.5, k, -k) for k in range(1, 21)]
    best = Best(20, None, rows=rows)  # type: ignore[arg-type]
    ranked_ = Ranked(job(), [(Space(), best)], False)
    ranked_.exact, ranked_.weigh = True, None
    took: list[int] = []

    def replayed(_: Any, layouts: list[int]) -> list[float]:
        took.extend(layouts)
        return [{1: 30.0, 2: 12.0}.get(k, 12.0 + k) for k in layouts]

    monkeypatch.setattr(ranking, "replayed", replayed)
    monkeypatch.setattr(Ranked, "_layout", lambda self, number, row: row[2])
    monkeypatch.setattr(Best, "complete", lambda self, limit: True)
    (first,) = ranked_.best(1)
    assert first.merit == 12.0 and first.layout == 2
    assert took == [*range(1, 13)]
