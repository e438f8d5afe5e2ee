"""What devices of a pipeline hold, do and wait for, with numbers for which every sign shows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from by_hand import MODEL, SET, WEIGHTS, WIDTH, by_hand
from layouts import cut
from meshwright import Job, Layout, Model, MoE
from meshwright import step as steps
from meshwright.cost.load import NOTHING, Busy, Load
from meshwright.describe.assumptions import HidePass, Overlap
from meshwright.describe.framework import framework
from meshwright.layout.placement import placed
from meshwright.layout.stages import partition
from meshwright.num import sum_of
from meshwright.schedule import SCHEDULES
from meshwright.schedule import get as schedule_named
from meshwright.schedule.sends import StageSends
from meshwright.schedule.stage_costs import PassSeconds, StageCosts
from meshwright.step import (
    ModelShare,
    Step,
    StepCosts,
    least_idle,
    model_shares,
)
from meshwright.step.closed_form import closed_pipeline
from meshwright.step.microbatch import clock_of, model_cost
from meshwright.step.parameters import parameters_of
from meshwright.step.passes import DevicePasses, Passes
from meshwright.step.pipeline import (
    FillAndDrain,
    Pipeline,
    fill_and_drain,
    replay_total,
)
from meshwright.step.sync import SyncWait, link_traffic, sync_wait
from meshwright.step.total import DeviceStep, shares_links
from meshwright.step.weights import DeviceSync, WeightSync

EXPERTS = replace(
    MODEL,
    layers=8,
    moe=MoE(experts=4, top_k=2, expert_ffn=256, dense_layers=2),
)


def load(seconds: float, *busy: float) -> Load:
    return Load(seconds, 0.0, Busy(busy or (seconds,)))


def a_job(layout: Layout, model: Model = MODEL, **joints: Any) -> Job:
    """A job whose every layer takes 1 s forward and 2 s backward, with its layout placed."""
    job = by_hand(layout, 4, model=model, **joints).job
    return replace(job, layout=placed(layout, job.cluster.sizes))


# What a step is the longest of.
PIPE = Pipeline(10.0, lambda: (0.5, 1.5))


def a_device(work: float, *wait: float, way: float | None = 0.0) -> DeviceStep:
    waits = SyncWait(*(wait or (0.0,) * 4))
    ways = None if way is None else FillAndDrain(way)
    return DeviceStep(passes().whole, sync(), work, waits, ways)


def devices(*ways: float | None) -> tuple[DeviceStep, ...]:
    works = zip((8.0, 7.0, 9.0), ways, strict=True)
    return tuple(a_device(work, way=way) for work, way in works)


def test_a_step_ends_with_its_longest_part() -> None:
    """Order 10 s with 2 s before and after and 1 s of optimizer; devices are done at 12, 14 and 11
    s, and links busy for 15 s: they hold the step for 1 s more.
    """
    found = Step(PIPE, 2.0, 1.0, devices(3.0, 6.0, 1.0), Busy((9.0, 15.0)))
    assert found.device_ends == (12.0, 14.0, 11.0)
    assert found.total == 15.0 and found.link_wait == 1.0
    assert found.critical_device == 1
    assert found.sync == 14.0 - (10.0 + 1.0), "beyond the order and the update"
    quick = replace(found, links=Busy((9.0, 3.0)))
    assert quick.total == 14.0 and quick.link_wait == 0.0
    longer = replace(quick, outside=5.0)
    assert longer.total == 10.0 + 5.0 + 1.0 and longer.sync == 5.0
    assert longer.critical_device == 0, (
        "the order itself, told of the first device"
    )
    last = replace(quick, devices=devices(3.0, 5.5, 4.0))
    assert last.critical_device == 2
    papers = replace(found, devices=devices(None, None, None))
    assert papers.critical_device == 2, "the longest busy"


def test_slowdown_is_at_most_what_shows_inside() -> None:
    """A device that ends the step 3 s late, 1 s of it outside: of 5 s of slower compute 2 s count,
    of 0.5 s all.
    """
    early = a_device(0.0)
    for arrives, slowdown, expected in (
        (0.5, 5.0, 2.0),
        (0.5, 0.5, 0.5),
        (7.0, 0.5, 0.0),
    ):
        wait = SyncWait(arrives, 0.0, 0.0, 0.5, slowdown)
        late = a_device(13.0 - wait.total, *wait)
        found = Step(PIPE, 1.0, 1.0, (early, late, early))
        assert found.sync == 3.0 and found.slowdown == expected


@pytest.mark.parametrize(
    ("how", "both"),
    [
        (Overlap(dp=HidePass("pass"), pp="interleaved"), True),
        (Overlap(dp=HidePass("pass"), pp="none"), False),
        (Overlap(dp=HidePass(), pp="interleaved"), False),
        (Overlap(dp=HidePass("pass", links="free"), pp="all"), False),
        (Overlap(dp=HidePass("weights"), pp="interleaved"), False),
        (Overlap(dp=HidePass("update"), pp="interleaved"), True),
        (Overlap(dp=HidePass("update"), pp="all"), False),
    ],
)
def test_links_are_shared_where_both_kinds_hide_on_them(
    how: Overlap, both: bool
) -> None:
    """With ZeRO-1; whether weights are sharded decides of some scopes."""
    assert shares_links(how, 1) is both
    assert shares_links(how, 3) is (both or how.dp.scope == "weights")


def test_papers_share_no_links() -> None:
    """They add up what is sent, whatever else lies on the links."""
    found = []
    for sends in ("interleaved", "all"):
        how = replace(SET.overlap, pp=sends, dp=HidePass("pass"))
        assert shares_links(how, 0) is (sends == "interleaved")
        job = a_job(cut("dp2"), overlap=how)
        cost = model_cost(job, job.layout)
        costs = StepCosts(job, job.layout, cost, clock_of(job))
        found.append(costs.step.links)
    ordered, paper = found
    assert ordered.most > 0 and paper == Busy()


# What devices hold.


@pytest.mark.parametrize(
    ("layers", "pp", "schedule", "v", "slow", "full"),
    [
        # (rank, layers, embedding, head); alike in the middle: none of them is slower than the last
        (8, 4, "1f1b", 1, "0 2 1 0, 3 2 0 1", "0 2 1 0, 1 2 0 0, 3 2 0 1"),
        (7, 4, "1f1b", 1, "0 2 1 0, 2 2 0 0, 3 1 0 1", "0 2 1 0, 1 2 0 0, 3 1 0 1"),
        (6, 4, "1f1b", 1, "0 1 1 0, 2 2 0 0, 3 1 0 1", "0 1 1 0, 1 2 0 0, 3 1 0 1"),
        # weight gradients that are held back: the fullest of the middle is the last of them
        (8, 4, "zb-h1", 1, "0 2 1 0, 3 2 0 1", "0 2 1 0, 2 2 0 0, 3 2 0 1"),
        (8, 2, "1f1b", 1, "0 4 1 0, 1 4 0 1", "0 4 1 0, 1 4 0 1"),
        (8, 1, "1f1b", 1, "0 8 1 1", "0 8 1 1"),
        (16, 4, "interleaved", 2, "0 4 1 0, 3 4 0 1", "0 4 1 0, 1 4 0 0, 3 4 0 1"),
        (16, 4, "zbv", 1, "0 4 1 1, 3 4 0 0", "0 4 1 1, 1 4 0 0, 3 4 0 0"),
    ],
)  # fmt: skip
def test_devices_that_may_be_the_slowest_or_the_fullest(
    layers: int, pp: int, schedule: str, v: int, slow: str, full: str
) -> None:
    job = a_job(
        Layout(pp=pp, dp=1, schedule=schedule, interleave=v),
        replace(MODEL, layers=layers),
    )
    way = schedule_named(schedule)
    found = model_shares(job.model, job.layout.pp, way, v)
    for expected, several in ((slow, found.slow), (full, found.full)):
        told = [
            f"{s.rank:g} {s.number:g} {s.embedding:g} {s.head:g}"
            for s in several
        ]
        assert ", ".join(told) == expected
        chunk = layers / (pp if pp == 1 else pp * way.chunks(v))
        assert {share.chunk for share in several} == {chunk}


def test_leading_layers_are_on_the_first_devices() -> None:
    """Of 8 layers the first 3 are dense, on four devices of two layers each. In the middle the
    pipeline may wait for the one with one of them or for the one without any."""
    model = replace(EXPERTS, moe=replace(EXPERTS.moe, dense_layers=3))
    job = a_job(cut("pp4"), model)
    found = model_shares(job.model, job.layout.pp, schedule_named("1f1b"), 1)
    held = [(0.0, 2.0), (1.0, 1.0), (2.0, 0.0), (2.0, 0.0)]
    assert [share.layers for share in found.slow] == held
    assert [share.layers for share in found.full] == held
    dense, experts = (0.0, 1.0), (1.0, 0.0)
    begins = [share.begins for share in found.full]
    assert begins == [dense, dense, experts, experts]
    job = a_job(Layout(dp=1), model)
    (alone,) = model_shares(
        job.model, job.layout.pp, schedule_named("1f1b"), 1
    ).full
    assert (alone.layers, alone.begins) == ((5.0, 3.0), dense)


def test_a_list_of_chunks_lies_on_one_device_as_a_whole() -> None:
    job = a_job(Layout(dp=1), replace(MODEL, layers=8))
    way = replace(schedule_named("interleaved"), stages="3,5")
    (alone,) = model_shares(job.model, job.layout.pp, way, 2).slow
    assert (alone.number, alone.chunk) == (8.0, 8.0)


def test_a_device_begins_with_a_layer_of_one_kind() -> None:
    """The first kind where nothing else is said; a part of a layer where it has no more."""
    assert ModelShare((2.0, 3.0), 0.0, 0.0).first_layer == (1.0, 0.0)
    second = ModelShare((2.0, 3.0), 0.0, 0.0, begins=(0.0, 1.0))
    assert second.first_layer == (0.0, 1.0)
    assert ModelShare((0.0, 0.0), 0.0, 0.0).first_layer == (0.0, 0.0)
    assert ModelShare((0.5,), 0.0, 0.0).first_layer == (0.5,)


def test_factors_of_nothing_are_left_out() -> None:
    assert sum_of([(0.0, "never asked"), (2.0, 3.0), (0.5, 4.0)]) == 8.0
    assert sum_of([(0.0, 1.0)]) == 0.0


# Order of the microbatches.
NONE = PassSeconds(0.0, 0.0, 0.0)
LAYER = PassSeconds(1.0, 1.5, 0.5)


def four_devices(
    job: Job,
    schedule: str = "1f1b",
    layer: PassSeconds = LAYER,
    first: PassSeconds = NONE,
    last: PassSeconds = NONE,
    send: float = 0.25,
    v: int = 1,
    near: float = 1.0,
    far: float = 0.0,
) -> StageCosts:
    """Layers of 1 s and 2 s on four devices, `near` of them in a node, with ends of these passes;
    far: seconds of a send to another node, 0: as any.
    """
    cut = partition(job.model, 4, schedule_named(schedule), v)
    way = schedule_named(schedule)
    sends = StageSends.over((send, far or send), (near, 4 / near), way.folded)
    return StageCosts(cut, (layer, first, last), sends)


def test_a_device_that_is_alone_sends_nothing() -> None:
    """However long a message would take."""
    job = a_job(Layout(dp=1))
    parts = model_cost(job, job.layout)
    one = StepCosts(job, job.layout, parts, clock_of(job)).microbatch
    assert one.stages.sends.first(7.0) == one.stages.sends.farthest == 0.0
    assert four_devices(job).sends.first(3.0) == 0.75


ORDER = replace(SET.overlap, pp="interleaved")


def test_ways_down_and_up() -> None:
    """Four devices of a layer of 1 s and 2 s; sends of 0.25 s: k hops and layers down, and up
    again where backward passes are whole; k passes each way."""
    job = a_job(cut("pp4"), replace(MODEL, layers=4), overlap=ORDER)
    way, split = map(schedule_named, ("1f1b", "zb-h1"))
    d, ranks = four_devices(job), (0.0, 3.0)
    whole = [(0.0, 0.0, 0.0), (3 * 1.25 + 3 * 2.25, 3.0, 3.0)]
    assert [*fill_and_drain(way, d, ranks, True)] == whole
    _, down = fill_and_drain(split, d, ranks, True)
    assert down == (3 * 1.25, 3.0, 0.0)
    none = (0.0, 0.0, 0.0)
    assert fill_and_drain(split, d, ranks, False) == (none, none)
    assert [*fill_and_drain(way, d, ranks, False)] == whole


@pytest.mark.parametrize("barrier", ["global norm", "none"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_no_order_is_shorter_than_what_a_search_takes_for_it(
    name: str, barrier: str
) -> None:
    """Of stages that differ by their ends, few microbatches and many, quick and slow sends; for
    whole backward passes of equal stages without sends it is (p - 1)(F + B)."""
    joints = replace(ORDER, step_barrier=barrier)
    way, rng = schedule_named(name), random.Random(f"{name} {barrier}")
    v = 2 if way.chunks(7) == 7 else int(way.chunks(1))
    seen = 0
    for _ in range(40):
        layers, m = (
            rng.choice((16, 16, 13)),
            rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 24)),
        )
        if not way.legal(4, m, v) or (v > 1 and layers % 8):
            continue
        seen += 1
        job = a_job(cut("pp4"), replace(MODEL, layers=layers), overlap=joints)
        layer, first, last = (
            PassSeconds(*(rng.uniform(0.1, 2.0) for _ in range(3)))
            for _ in range(3)
        )
        by = model_shares(job.model, 4, way, v)
        busy = way.rounds(m) * max(
            share.number * layer.total
            + share.embedding * first.total
            + share.head * last.total
            for share in by.slow
        )
        send = rng.choice((0.0, 0.05, 2.0))
        near, far = rng.choice((1.0, 2.0, 4.0)), rng.choice((1.0, 3.0)) * send
        d = four_devices(job, name, layer, first, last, send, v, near, far)
        exact, _ = replay_total(
            way, (4, float(m), v), d, busy, {}, barrier != "none"
        )
        idle = least_idle(way, float(m), d, busy, barrier != "none")
        assert 0 <= idle <= exact * (1 + 1e-12) - busy, (layers, m, send)
    assert seen > 3


@pytest.mark.parametrize(
    ("way", "m", "seconds"),
    [("1f1b", 4, (4 + 3) * 3.0), ("zb-h1", 1, 4 * 2.25 + 0.75)],
)
def test_of_equal_stages_what_a_search_takes_is_the_replay(
    way: str, m: int, seconds: float
) -> None:
    """Of four devices (m + p - 1)(F + B); of one microbatch all F and I, and one W, which is 0.75 s
    of a layer's 3: attention's scores have no weights."""
    job = a_job(cut(f"pp4 {way}"), replace(MODEL, layers=4), overlap=ORDER)
    job = replace(job, batch=m)
    clock = clock_of(job)
    cost = model_cost(job, job.layout, clock)
    for replay in (False, True):
        found = steps.whole_step(job, job.layout, cost, clock, replay=replay)
        assert found.total == pytest.approx(seconds)


TWICE = PassSeconds(2.0, 3.0, 1.0)


@pytest.mark.parametrize(
    ("name", "barrier", "end", "m", "idle"),
    [
        # down 3 + 3/4 and up 6 + 3/4 beside the last device, one layer and one send a stage
        ("1f1b", "global norm", "last", 8, 3.75 + 6.75),
        # to the last device and back, 9 + 6/4, while the first runs 3 forwards of 3 s, or 2
        ("1f1b", "global norm", "first", 8, 10.5 - 9),
        ("1f1b", "global norm", "first", 3, 10.5 - 6),
        ("zb-h1", "none", "first", 8, 0),
        ("zb-h1", "none", "first", 3, 9 - 6),
        # weight gradients are split off: nothing goes up
        ("zb-h1", "global norm", "last", 8, 3.75),
        ("interleaved-zb", "global norm", "last", 8, 3.75),
        # up 4.5, W 0.5, down 3, six sends, less an own W of 1.5 and 3 of them, 2, 6 or 3
        ("zb-h1", "none", "last", 8, 8 - 4.5),
        ("zb-h1", "none", "last", 3, 8 - 3),
        ("zb-h2", "none", "last", 8, 0),
        ("zb-h2", "none", "last", 4, 8 - 4.5),
        # one microbatch through all: 15 and 6 sends, and all W or that of the first stage, less 9
        ("gpipe", "global norm", "last", 1, 15 + 1.5 + 3 - 9),
        ("zb-h1", "global norm", "last", 1, 15 + 1.5 + 0.5 - 9),
        # 8 stages, whose turn is no send, an end and a first W, less 12; 4 of two layers each
        ("zbv", "none", "last", 1, 8 * 2.5 + 5 + 0.5 + 12 * 0.25 - 12),
        ("zbv", "none", "last", 20, 0),
        ("dualpipe", "none", "last", 2, 8 * 2.5 + 5 + 2 * 0.5 + 6 * 0.25 - 12),
    ],
)
def test_pauses_of_the_slowest_device(
    name: str, barrier: str, end: str, m: int, idle: float
) -> None:
    """Four devices of a layer of 1, 1.5 and 0.5 s; an end takes twice that besides; sends 1/4 s."""
    joints, way = replace(ORDER, step_barrier=barrier), schedule_named(name)
    v = 2 if way.folded or name == "interleaved-zb" else way.copies
    job = a_job(cut("pp4"), replace(MODEL, layers=4 * v), overlap=joints)
    d = four_devices(job, name, v=v, **{end: TWICE})
    busy = way.rounds(m) * (6.0 + 3.0 * v)
    assert least_idle(
        way, float(m), d, busy, barrier != "none"
    ) == pytest.approx(idle)


@pytest.mark.parametrize("hop", ["slowest", "each"])
@pytest.mark.parametrize("pp", ["none", "all"])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zbv"])
def test_a_bound_leaves_out_what_may_fall_with_more_work(
    name: str, pp: str, hop: str
) -> None:
    """Of closed forms the bubble of split backward passes, and sends that hide; the rest is paid."""
    way = schedule_named(name)
    v = 2 if way.folded else 1
    job = a_job(cut("pp4"), replace(MODEL, layers=4 * v))
    d = four_devices(job, name, v=v, last=TWICE, send=9.0)
    exact, least = (
        closed_pipeline(Overlap(pp=pp), way, (4, 8.0, v), d, hop, bound)
        for bound in (False, True)
    )
    assert exact.bubble > 0 < exact.sends
    kept = exact.bubble * (not way.split_backward)
    kept += exact.sends * (pp == "none")
    assert least.total == pytest.approx(8 * (6.0 + 3.0 * v) + kept)


# What devices send.
def unit(zero: int) -> WeightSync:
    """An all-reduce of 4 s; or a gather of 1 s and a scatter of 2 s; half of each in a second
    dimension."""
    if not zero:
        return WeightSync(NOTHING, load(4.0, 4.0, 2.0))
    return WeightSync(load(1.0, 1.0, 0.5), load(2.0, 2.0, 1.0))


def sync(zero: int = 0) -> DeviceSync:
    """Of three units, one of them the first."""
    one = unit(zero)
    return DeviceSync(one, one * 2.0, one * 3.0)


def passes(sent: float = 0.5, back: float = 0.25) -> DevicePasses:
    """3 s and 5 s a microbatch, with messages of its own; one layer of 1 s and 2 s."""
    return DevicePasses(
        Passes(3.0, 5.0, load(sent, sent, 0.0), load(back, back, 0.0)),
        Passes(
            1.0,
            2.0,
            load(sent / 2, sent / 2, 0.0),
            load(back / 2, back / 2, 0.0),
        ),
    )


@pytest.mark.parametrize(
    ("zero", "times"),
    [
        (0, 3 * 4.0),
        (1, 3 * (2 + 1)),
        (2, 3 * (10 * 2 + 1)),
        (3, 3 * (20 + 20)),
    ],
)
def test_links_carry_all_that_a_device_sends(zero: int, times: float) -> None:
    """Ten microbatches: 0.75 s of messages each, and weights and gradients as often as ZeRO says:
    scattered after each microbatch, gathered before each pass."""
    one = passes().whole, sync(zero)
    found = link_traffic([one], 10.0, zero)
    assert found == pytest.approx((7.5 + times, times / 2))
    more = passes(sent=1.0).whole, DeviceSync(total=unit(zero))
    most = link_traffic([one, more], 10.0, zero)
    other = link_traffic([more], 10.0, zero)
    assert most == tuple(map(max, found, other))
    silent = Passes(1.0, 1.0, NOTHING, NOTHING), DeviceSync()
    assert link_traffic([silent, one], 10.0, zero) == found
    assert link_traffic([one, silent], 10.0, zero) == found


@pytest.mark.parametrize(
    ("zero", "sent"),
    [(0, 12), (1, 6 + 3), (2, 60 + 3), (3, 60 + 3 * 20)],
)
def test_all_hides_behind_all_microbatches(zero: int, sent: float) -> None:
    """Ten microbatches of 8 s, and links on which 0.75 s of each are taken; a twentieth of the
    work may hide it."""
    one = passes(), sync(zero)
    free = sync_wait(*one, 10.0, zero, HidePass("step", links="free"))
    assert free.total == pytest.approx(max(sent - 80.0, 0.0))
    few = HidePass("step", share=0.05, links="free")
    assert sync_wait(*one, 10.0, zero, few) == SyncWait(
        0.0, 0.0, pytest.approx(sent - 4.0), 0.0
    )
    shown = sync_wait(*one, 10.0, zero, HidePass("step"))
    assert shown.backward == pytest.approx(
        max(sent - 80.0, sent + 7.5 - 80.0, 0.0)
    )


def test_links_busy_with_messages_of_the_pass_hide_less() -> None:
    """A forward pass of 3 s whose links carry 1.5 s: of gathers of 3 s, 1.5 s show in each of the
    nine that come later; of the first, behind 2 s beside 0.75 s, 2 + 0.75 - 2."""
    found = sync_wait(passes(sent=1.5), sync(3), 10.0, 3, HidePass("pass"))
    assert found.forward == pytest.approx(9 * 1.5 + 0.75)


def test_in_the_middle_of_many_layers_no_unit_is_the_first() -> None:
    """Three units of 4 s behind 5 s."""
    way = HidePass("layer", links="free")
    found = sync_wait(passes(), sync(), 10.0, 0, how=way)
    assert found == SyncWait(0.0, 0.0, 7.0, 0.0)


@pytest.mark.parametrize(("zero", "gathers"), [(1, 0), (2, 0), (3, 2)])
@pytest.mark.parametrize(
    ("schedule", "v", "ways"), [("1f1b", 1, 3), ("interleaved", 2, 3 / 2)]
)
def test_what_each_pass_waits_for_lengthens_fill_and_drain(
    zero: int, gathers: int, schedule: str, v: int, ways: float
) -> None:
    """Nothing hides: passes of ZeRO-3 gather weights, backward ones of ZeRO-2 and 3 reduce
    gradients, those of the stages before the last device too, a chunk of each.
    """
    way = Layout(pp=4, dp=2, zero=zero, schedule=schedule, interleave=v)
    model = replace(MODEL, layers=4 * v)
    joints = replace(ORDER, dp=HidePass("none"))
    job = a_job(way, model, rate=2.0**17, overlap=joints)
    layout, m = job.layout, 4.0
    found = steps.whole_step(job, layout, model_cost(job, layout))
    last = found.devices[-1]
    assert last.idle_way
    fill = last.idle_way.seconds
    sync, reduced = last.sync.total, 0 if zero == 1 else 1
    gather, scatter = sync.gather.seconds, sync.reduction.seconds
    each = gathers * gather + reduced * scatter
    assert gather > 0.1 < scatter
    once = (gathers == 0) * gather + (zero == 1) * scatter
    apart = found.device_ends[-1] - found.update - fill
    work = last.passes.work
    assert apart == pytest.approx(m * (work + each) + once + ways * each)


@pytest.mark.parametrize(("pp", "layers"), [(1, 2), (2, 1)])
def test_a_tied_embedding_is_held_once_where_both_ends_are(
    pp: int, layers: int
) -> None:
    """Of two devices each has its own copy."""
    model = replace(MODEL, vocab=512, tied_embeddings=True)
    job = a_job(Layout(pp=pp, dp=1), model)
    parts = steps.model_cost(job, job.layout)
    for share in model_shares(
        job.model, job.layout.pp, schedule_named("1f1b"), 1
    ).full:
        assert parameters_of(job, job.layout, parts, share).whole == (
            512 * WIDTH + layers * WEIGHTS,
            0.0,
        )


@pytest.mark.parametrize(
    ("pp", "schedule", "tied", "copies"),
    [
        (1, "1f1b", False, [0]),
        (2, "1f1b", False, [0, 1]),
        (2, "zbv", False, [0, 0]),
        (2, "1f1b", True, [0, 0]),
    ],
)
def test_blocks_that_predict_further_tokens_look_them_up(
    pp: int, schedule: str, tied: bool, copies: list[int]
) -> None:
    """In the embedding if that is there, else in a copy, which a tied head is already; two blocks
    need no second one."""
    table = 512 * WIDTH
    model = replace(MODEL, vocab=512, mtp_layers=2, tied_embeddings=tied)
    job = a_job(Layout(pp=pp, dp=1), replace(model, layers=4))
    parts = steps.model_cost(job, job.layout)
    by = model_shares(job.model, job.layout.pp, schedule_named(schedule), 2)
    for rank, more in enumerate(copies):
        share = by.on(float(rank))
        own = share.embedding * table + share.head * parts.head.weights
        held = parameters_of(job, job.layout, parts, share)
        assert held.ends.dense == own + more * table


def test_the_head_has_the_experts_of_its_blocks() -> None:
    """Six layers with experts, and two blocks that predict further tokens."""
    job = a_job(Layout(dp=1), replace(EXPERTS, mtp_layers=2, vocab=128))
    parts = steps.model_cost(job, job.layout)
    (alone,) = model_shares(
        job.model, job.layout.pp, schedule_named("1f1b"), 1
    ).full
    held = parameters_of(job, job.layout, parts, alone).whole.expert
    assert held == (6 + 2) * parts.layers[0].expert_weights > 0


def test_layers_that_recompute_are_a_share_of_their_chunk() -> None:
    """ "full:2" of chunks of 8 layers is a quarter; of chunks of one layer all; without a number
    all.
    """
    eight, one = (ModelShare((8.0,), 0.0, 0.0, chunk) for chunk in (8.0, 1.0))
    assert eight.recompute_share("full:2") == 0.25
    assert one.recompute_share("full:2") == 1.0
    assert eight.recompute_share("full") == 1.0


def test_a_host_that_is_slower_than_all_kernels() -> None:
    """A layer takes as long as the host, and gradients of inputs and of weights half of a backward
    pass each: they are launched apart."""
    slow = replace(framework("megatron-core"), host_s=100.0)
    at = Job("llama3-8b", "8xh100-sxm", 8, framework=slow)
    layout = placed(Layout(dp=8), at.cluster.sizes)
    one = model_cost(at, layout, steps.clock_of(at)).typical
    assert one.forward == pytest.approx(100.0)
    assert one.backward > one.forward
    assert one.weight_pass == pytest.approx(one.backward / 2)
