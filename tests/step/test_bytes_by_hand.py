"""Bytes of a device kind by kind, whether they fit, and what replicas send for their weights: every
factor with a number of its own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import exp, log
from typing import Any

import pytest

from by_hand import MODEL, SET, TOKENS, WIDTH, by_hand
from layouts import cut
from meshwright import Job, Layout, MoE, catalog, step
from meshwright.cost.layer import LayerCost, RecomputeCost
from meshwright.cost.load import Load
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.describe.assumptions import REALISTIC, MemoryCount
from meshwright.describe.framework import framework as framework_named
from meshwright.describe.holding import Holding
from meshwright.layout.placement import placed
from meshwright.schedule import get
from meshwright.step import ModelCost, ModelShare, activations, memory, oom
from meshwright.step.holding import parameter_bytes
from meshwright.step.microbatch import (
    model_with_recomputation,
    with_recomputation,
)
from meshwright.step.parameters import Parameters, end_parts, end_units
from meshwright.step.weights import WeightSync, weight_sync

on_device = DeviceMicrobatch.from_layout

GB = 1e9
UNITS = MemoryCount(
    framework_bytes=0.0,
    capacity_share=1.0,
    working_set=True,
    holding=Holding(),
)
EXPERTS = replace(
    MODEL, moe=MoE(experts=8, top_k=2, expert_ffn=256), vocab=128
)


def a_job(layout: Layout, model: Any = MODEL, **joints: Any) -> Job:
    job = by_hand(
        Layout(dp=1), 2, joints.pop("rate", 1e30), model, **joints
    ).job
    on = replace(job.cluster, chips=int(layout.chips))
    return replace(job, cluster=on, layout=placed(layout, on.sizes))


def layer(
    saved: float = 100.0,
    weights: float = 10.0,
    experts: float = 0.0,
    again: float = 40.0,
) -> LayerCost:
    """1 s forward and 2 s backward; running "mlp" again takes 0.5 s and keeps `again` bytes."""
    return LayerCost(
        1.0,
        2.0,
        Load(0.25),
        Load(0.5),
        0.75,
        saved,
        weights,
        experts,
        {"mlp": RecomputeCost(0.5, Load(0.125), again)},
    )


def model_cost(
    typical: LayerCost, leading: LayerCost | None = None
) -> ModelCost:
    return ModelCost(
        (typical, leading or layer(0.0, 0.0)),
        layer(3.0, 1000.0),
        layer(7.0, 2000.0),
        16.0,
        16.0,
    )


# What runs again.


def test_what_runs_again_takes_its_seconds_and_leaves_its_bytes() -> None:
    parts = model_cost(layer())
    one = parts.typical
    assert with_recomputation(one, "none") is one
    for text, share, back, sent in (
        ("mlp", 1.0, 2.5, 0.625),
        ("mlp", 0.5, 2.25, 0.5625),
        ("full", 1.0, 3.0, 0.75),
        ("full", 0.25, 2.25, 0.5625),
    ):
        again = with_recomputation(one, text, share)
        assert (again.backward, again.sent_back.seconds) == (back, sent)
        assert (again.forward, again.sent.seconds) == (1.0, 0.25)
    assert model_with_recomputation(parts, "full").layers[0].backward == 3.0
    assert model_with_recomputation(parts, "full").head == parts.head
    assert activations.saved_bytes(one, parts, "none") == 100.0
    assert activations.saved_bytes(one, parts, "mlp") == 40.0
    assert activations.saved_bytes(one, parts, "mlp", 0.25) == 100.0 - 15.0
    assert activations.saved_bytes(one, parts, "full") == 16.0, "its input"
    assert activations.saved_bytes(one, parts, "full", 0.5) == 58.0
    assert activations.recompute_bytes(one, parts, "full") == 100.0
    assert activations.recompute_bytes(one, parts, "none") == 0.0


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer"),
    [
        (0, 110, 110, 110),
        (1, 110, 110, 30),
        (2, 110, 30, 30),
        (3, 30, 30, 30),
    ],
)
def test_states_are_sharded_over_their_own_replicas(
    zero: int, weights: int, gradients: int, optimizer: int
) -> None:
    """100 dense parameters over eight ranks in two groups, 10 of experts over four in two: 25 and
    5 of a shard.
    """
    layout = Layout(dp=8, ep=2, dp_replicate=2, zero=zero)
    job = a_job(layout, EXPERTS)
    each = parameter_bytes(job, zero)
    found = memory.states(job, layout, each, Parameters(100.0, 10.0))
    assert found == (2 * weights, 4 * gradients, 12 * optimizer)
    assert found.total == 2 * weights + 4 * gradients + 12 * optimizer
    dense = memory.states(a_job(layout), layout, each, Parameters(100.0, 0.0))
    assert dense.weights == 2 * (100 if zero < 3 else 25), "no experts there"


# Whole units in use.


def in_use(
    zero: int,
    layout: Layout,
    share: ModelShare,
    cost: ModelCost,
    model: Any = MODEL,
    **joints: Any,
) -> dict[str, float]:
    job = a_job(layout, model, memory=UNITS, **joints)
    layout = replace(layout, zero=zero)
    found = memory.units_in_use(
        job, layout, cost, parameter_bytes(job, zero), share
    )
    return {name: float(size) for name, size in found.items()}


def test_two_layers_and_the_ends_are_gathered() -> None:
    """ZeRO 3: 2 bytes of two layers of 10 and of both ends; gradients of the larger: 4 bytes."""
    both = ModelShare((4.0, 0.0), 1.0, 1.0)
    layout = Layout(dp=4)
    found = in_use(3, layout, both, model_cost(layer()))
    assert found == {
        "whole weights in use": 2 * (20 + 3000),
        "gradient of a unit": 4 * 3000,
    }
    # the same on the first of two stages, which holds no table twice
    assert in_use(3, cut("pp2 dp4"), both, model_cost(layer())) == found
    inner = ModelShare((4.0, 0.0), 0.0, 0.0)
    assert in_use(2, layout, inner, model_cost(layer())) == {
        "gradient of a unit": 40.0
    }
    assert in_use(1, layout, inner, model_cost(layer())) == {}
    one = ModelShare((1.0, 0.0), 0.0, 0.0)
    assert (
        in_use(3, layout, one, model_cost(layer()))["whole weights in use"]
        == 20
    )


def ends_of(
    name: str, model: Any = MODEL
) -> tuple[tuple[Parameters, Parameters], tuple[Parameters, Parameters]]:
    """Units that arrive and leave (`end_units`), and what is never there at once (`end_parts`), of
    1,000 parameters of the embedding and 2,000 of the head under a framework.
    """
    job = replace(
        a_job(cut("dp4 zero3"), model),
        assumptions=REALISTIC,
        framework=framework_named(name),
    )
    both = ModelShare((4.0, 0.0), 1.0, 1.0)
    asked = job, job.layout, model_cost(layer()), both
    return end_units(*asked), end_parts(*asked)


def test_ends_that_are_units_of_their_own_come_and_go_apart() -> None:
    """The embedding's 1,000 parameters before the first layer, the head's 2,000 with the last; no
    experts."""
    none = Parameters(0.0, 0.0)
    apart = Parameters(1000.0, 0.0), Parameters(2000.0, 0.0)
    whole = Parameters(3000.0, 0.0), none
    assert ends_of("torchtitan") == (apart, apart)
    # each is gathered by itself before each pass, or both are the root's
    assert ends_of("deepspeed") == (whole, apart)
    assert ends_of("fsdp") == (whole, whole)


def test_what_no_replica_shares_is_not_gathered() -> None:
    """One group for each rank (HSDP of all): nothing is sharded; experts over ep = dp have one copy
    of each, and only the dense part is."""
    inner = ModelShare((2.0, 0.0), 1.0, 1.0)
    copies = Layout(dp=4, dp_replicate=4)
    assert set(in_use(3, copies, inner, model_cost(layer())).values()) == {0.0}
    apart = cut("dp8 ep8")
    share = ModelShare((2.0, 0.0), 0.0, 0.0)
    parts = model_cost(layer(experts=500.0))
    found = in_use(3, apart, share, parts, EXPERTS)
    assert found["whole weights in use"] == 2 * 20
    found = in_use(3, cut("dp8 ep4"), share, parts, EXPERTS)
    assert found["whole weights in use"] == 2 * 2 * 510
    found = in_use(3, Layout(dp=2), share, model_cost(layer()), EXPERTS)
    assert found["whole weights in use"] == 2 * 2 * 10


def test_the_two_largest_layers_of_two_kinds() -> None:
    """One of 10 and many of 30: both of the large kind, or, of one each, one and one."""
    layout, parts = Layout(dp=4), model_cost(layer(), layer(weights=30.0))
    for share, both in (
        (ModelShare((4.0, 3.0), 0.0, 0.0), 60),
        (ModelShare((4.0, 1.0), 0.0, 0.0), 40),
        (ModelShare((0.0, 1.0), 0.0, 0.0), 30),
        (ModelShare((1.0, 0.0), 0.0, 0.0), 10),
        (ModelShare((1.5, 0.5), 0.0, 0.0), 30),
    ):
        found = in_use(3, layout, share, parts, EXPERTS)
        assert found["whole weights in use"] == 2 * both
        wide = 30 if share.layers[1] else 10
        assert found["gradient of a unit"] == 4 * wide
    wide_first = model_cost(layer(weights=30.0), layer())
    share = ModelShare((1.0, 3.0), 0.0, 0.0)
    found = in_use(3, layout, share, wide_first, EXPERTS)
    assert found["whole weights in use"] == 2 * (30 + 10)


def test_a_tied_embedding_is_gathered_once() -> None:
    model = replace(MODEL, vocab=20, tied_embeddings=True)
    parts, both = model_cost(layer()), ModelShare((4.0, 0.0), 1.0, 1.0)
    found = in_use(3, Layout(dp=4), both, parts, model)
    assert found["whole weights in use"] == 2 * (20 + 3000 - 20 * WIDTH)


# What a framework holds.
HELD = Holding(
    gradient_bytes={"bf16": 2.0},
    unit_gradient="activations",
    step_bytes=4.0,
    dummy_weight_gradients=True,
    keeps_pipeline_outputs=True,
    bucket_elements=1000.0,
    backward_share=0.25,
    allocator_share=0.5,
    allocator_need=0.125,
)
COUNTED = replace(UNITS, resident="held", holding=HELD)
VOCAB = 512


def framework(layout: Layout, model: Any = None, **more: Any) -> Job:
    how = replace(COUNTED, holding=replace(HELD, **more))
    return a_job(layout, model or replace(MODEL, vocab=VOCAB), memory=how)


@pytest.mark.parametrize(("tp", "bytes_"), [(1, 4), (2, 4)])
def test_logits_inputs_and_placeholder_of_the_head(
    tp: int, bytes_: int
) -> None:
    """128 tokens, 512/tp rows; of what the head saves the fp32 logits are counted with the loss,
    which without a framework holds nothing else."""
    layout = Layout(tp=tp, cp=1, dp=1, microbatch=3)
    job, parts = framework(layout), model_cost(layer())
    logits = 3 * TOKENS * VOCAB / tp
    parts = parts._replace(head=layer(saved=5.0 + 4 * logits))
    assert activations.logits(on_device(job, layout)) == logits
    assert activations.head_bytes(on_device(job, layout), parts) == {
        "logits and loss": bytes_ * logits,
        "inputs of the head": 5.0,
        # two bytes a logit go with the logits, and more than its own are gone by then
        "gradient of the head's input": 0.0,
        "placeholder of the head's gradient": 2 * VOCAB / tp * WIDTH,
    }
    again = replace(job, model=replace(job.model, mtp_layers=2))
    found = activations.head_bytes(on_device(again, layout), parts)
    assert found["logits and loss"] == 3 * bytes_ * logits
    assert found["inputs of the head"] == 5.0 - 2 * 4 * logits
    none = framework(layout, dummy_weight_gradients=False)
    assert len(activations.head_bytes(on_device(none, layout), parts)) == 3


@pytest.mark.parametrize(("twice", "copies"), [(False, 2), (True, 4)])
def test_temporaries_of_the_backward_pass(twice: bool, copies: int) -> None:
    """Of 100 bytes 40 are kept: 60 come again, 25 beside; and 128 x 64 gathered over tp 4, all of
    it beside the shard."""
    layout = cut("tp4")
    job = framework(layout, gathered_twice=twice)
    found = activations.backward_bytes(on_device(job, layout), 100.0, 40.0)
    assert found == {
        "computed again": 60.0,
        "temporaries of the backward pass": 25.0,
        "gathered over tp": copies * 2 * TOKENS * WIDTH,
    }
    alone = cut("tp4 whole")
    assert (
        len(activations.backward_bytes(on_device(job, alone), 100.0, 40.0))
        == 2
    )
    # a compiler that knows the room makes what is recomputed where it is read
    planned = framework(layout, holds_recomputed=False)
    assert activations.backward_bytes(
        on_device(planned, alone), 100.0, 40.0
    ) == {
        "computed again": 0.0,
        "temporaries of the backward pass": 25.0,
    }


def test_the_kind_of_layer_that_takes_most() -> None:
    layout = cut("whole")
    job = framework(layout)
    small, large, absent = (
        activations.backward_bytes(on_device(job, layout), saved, kept)
        for saved, kept in ((100.0, 100.0), (400.0, 100.0), (900.0, 0.0))
    )
    for layers, kinds in (
        ((2.0, 3.0), [small, large]),
        ((3.0, 2.0), [large, small]),
    ):
        found = activations.largest_backward_bytes(layers, kinds)
        assert found["computed again"] == 300.0
        assert found["temporaries of the backward pass"] == 100.0
    found = activations.largest_backward_bytes((2.0, 0.0), [small, absent])
    assert sum(found.values()) == 25.0


def test_buffers_of_a_run() -> None:
    """Placeholders of a layer's shapes; of experts, which are alike, one: 800 over 8 of 2 ranks;
    and a bucket of 1000 gradients of 2 bytes, or of all that there are."""
    layout = cut("dp4 ep2")
    job = framework(layout, EXPERTS)
    each = parameter_bytes(job, 0)
    parts = model_cost(layer(weights=10.0, experts=800.0))
    found = memory.framework_buffers(
        job, layout, parts, each, 5000.0, (2.0, 1.0)
    )
    assert found == {
        "placeholders of weight gradients": 2 * (10 + 800 / 4),
        "bucket of gradients": 2 * 1000,
    }
    none = memory.framework_buffers(
        job, layout, parts, each, 300.0, (0.0, 0.0)
    )
    assert set(none.values()) == {0.0, 2 * 300.0}
    one = memory.framework_buffers(
        job, Layout(dp=1), parts, each, 300.0, (1.0, 0.0)
    )
    assert one["bucket of gradients"] == 0.0
    some = memory.framework_buffers(
        job, layout, parts, each, 300.0, (0.5, 0.0)
    )
    assert some["placeholders of weight gradients"] > 0


# Whether it fits.


def tight(width: float = 0.0, **more: Any) -> Job:
    how = replace(
        COUNTED,
        framework_bytes=3 * GB,
        capacity_share=0.5,
        risk_width=width,
        **more,
    )
    return a_job(Layout(dp=1), memory=how)


def test_a_limit_of_bytes_or_a_risk() -> None:
    """What needs exactly the capacity fits; with a width of 0.1 its risk is one half, and e times
    as much is lost with 1 / (1 + e^-10).
    """
    job = tight()
    most = (500 - 3) / 1.125 * GB
    assert oom.limit(job) == pytest.approx(most)
    assert oom.risk(job, most * 1.001) == 1.0
    memory = replace(job.how.memory, framework_bytes=5 * GB)
    whole = replace(job, assumptions=replace(job.assumptions, memory=memory))
    assert oom.needed_bytes(whole, 440 * GB) == oom.capacity(whole)
    assert oom.risk(whole, 440 * GB) == 0.0
    assert oom.risk(job, most * 0.999) == 0.0
    assert oom.fits(job, oom.limit(job))
    assert not oom.fits(job, oom.limit(job) * 1.001)
    even = tight(0.1)
    assert oom.risk(even, most) == pytest.approx(0.5)
    e_fold = (500 * exp(1.0) - 3) / 1.125 * GB
    assert oom.risk(even, e_fold) == pytest.approx(1 / (1 + exp(-10.0)))
    assert oom.limit(even) == pytest.approx(most), "a risk of one half"
    careful = tight(0.1, headroom=0.01)
    at_limit = oom.limit(careful)
    assert oom.risk(careful, at_limit) == pytest.approx(0.01)
    assert at_limit == pytest.approx(
        (500 * exp(0.1 * log(0.01 / 0.99)) - 3) / 1.125 * GB
    )
    assert oom.risk(even, 0.0) < 1e-20 and oom.risk(even, 1e30) == 1.0


def test_a_process_holds_what_its_kind_of_device_needs() -> None:
    """2 GB of context and communicators are a GPU's. A core says what a process has there, and no
    part of the answer counts both; a paper's set, which counts layers, has nothing beside them.
    """
    core = replace(tight().cluster.chip, context_bytes=GB / 4)

    def on_core(job: Job) -> Job:
        return replace(job, cluster=replace(job.cluster, chip=core))

    gpu = tight(resident="held")
    job = on_core(gpu)
    less = 3 * GB - GB / 4
    assert oom.own_bytes(job) == GB / 4
    assert oom.own_bytes(gpu) == 3 * GB
    for size in (oom.needed_bytes, oom.device_bytes):
        assert size(gpu, GB) - size(job, GB) == pytest.approx(less)
    assert (oom.limit(job) - oom.limit(gpu)) * 1.125 == pytest.approx(less)
    assert oom.risk(job, oom.limit(job) * 0.999) == 0.0
    assert oom.own_bytes(on_core(tight(resident="layers"))) == 3 * GB


def test_a_framework_that_needs_all_there_is_runs_out_as_often_as_not() -> (
    None
):
    """What a chip's runtime leaves is all there is: a set that asks frameworks sets none aside."""
    job = Job(
        catalog.model("llama3-8b"),
        catalog.cluster("8xh100-sxm"),
        8,
        framework="fsdp",
        headroom=0.5,
    )
    even, chip = oom.limit(job), job.cluster.chip
    assert oom.risk(job, even) == pytest.approx(0.5)
    room = chip.hbm_bytes - chip.runtime_bytes
    assert oom.needed_bytes(job, even) == pytest.approx(room)


@pytest.mark.parametrize("width", [1.0, 0.04, 0.002])
def test_risks_are_numbers_however_far_need_and_room_are_apart(
    width: float,
) -> None:
    """Odds are 1e300 at most, where a power of them would be no number."""
    job = tight(width)
    assert oom.risk(job, 1e40) == 1.0
    nothing = replace(job.how.memory, framework_bytes=0.0)
    free = replace(job, assumptions=replace(job.assumptions, memory=nothing))
    assert oom.risk(free, 0.0) == pytest.approx(1e-300, rel=1e-6, abs=0.0)


def test_chips_that_just_fit() -> None:
    for job in (tight(), tight(0.1, headroom=0.05)):
        just = oom.with_room_for(job, 20 * GB)
        assert oom.limit(just) == pytest.approx(20 * GB)


# What replicas send: 1 s for every byte that passes a rank.


def unit(layout: Layout, zero: int, **joints: Any) -> WeightSync:
    """Of 1000 dense parameters and 100 of experts, at 1 B/s and free of latency."""
    job = a_job(layout, joints.pop("model", EXPERTS), rate=1.0, **joints)
    return weight_sync(
        job, job.layout, Parameters(1000.0, 100.0), zero, step.clock_of(job)
    )


def test_groups_of_replicas_hold_copies() -> None:
    """HSDP, 4 x 2: shards over four (two of an expert), then shards of gradients are reduced over
    two.
    """
    found = unit(Layout(dp=8, ep=2, dp_replicate=2), 3)
    inner = 3 / 4 * 1000 + 1 / 2 * 100
    across = 2 * 1 / 2 * (1000 / 4 + 100 / 2)
    assert found.gather.seconds == pytest.approx(2 * inner)
    assert found.reduction.seconds == pytest.approx(4 * (inner + across))
    zero = unit(Layout(dp=8, ep=2, dp_replicate=2), 0)
    assert zero.reduction.seconds == pytest.approx(
        2 * 4 * (7 / 8 * 1000 + 3 / 4 * 100)
    )


def test_ways_of_gradients_and_rates_of_gathers() -> None:
    """Gradients summed by all-reduces take twice as long; gathers at half of the rate too."""
    weights = replace(SET.overlap.weights, gradients="all-reduce", gathers=0.5)
    plain = unit(Layout(dp=8), 1)
    other = unit(
        Layout(dp=8), 1, overlap=replace(SET.overlap, weights=weights)
    )
    assert other.reduction.seconds == pytest.approx(
        2 * plain.reduction.seconds
    )
    assert other.gather.seconds == pytest.approx(2 * plain.gather.seconds)


# What one microbatch costs.


def test_blocks_that_predict_further_tokens_are_part_of_the_head() -> None:
    """Two of them: each adds what the first one does, and a layer beside the head."""
    seconds, layers = [], []
    for blocks in (0, 1, 2):
        model = replace(MODEL, vocab=128, layers=4, mtp_layers=blocks)
        job = a_job(Layout(pp=2, dp=1), model)
        seconds.append(float(step.model_cost(job, job.layout).head.forward))
        by = step.model_shares(job.model, job.layout.pp, get("1f1b"), 1.0)
        layers.append([by.on(rank).number for rank in (0.0, 1.0)])
    first, second = seconds[1] - seconds[0], seconds[2] - seconds[1]
    # a matrix of 2 D x D, and the logits once more
    expected = 2 * TOKENS * (2 * WIDTH**2 + 128 * WIDTH) / 2**24
    assert first == pytest.approx(expected) == second
    assert layers == [[2.0, 2.0], [2.0, 3.0], [2.0, 4.0]]


@pytest.mark.parametrize("schedule", ["1f1b", "zbv", "interleaved"])
def test_a_block_that_predicts_further_tokens_recomputes_its_layer(
    schedule: str,
) -> None:
    """As any other, on the rank of the head: with all of a layer's forward pass of 1 s once more,
    and of what it keeps the input alone."""
    found = []
    for text, blocks in product(("none", "full"), (0, 1)):
        layout = replace(cut("pp2"), schedule=schedule, recompute=text)
        layout = replace(layout, interleave=1 + (schedule == "interleaved"))
        model = replace(MODEL, vocab=128, layers=8, mtp_layers=blocks)
        job = a_job(layout, model)
        cost = step.model_cost(job, job.layout)
        costs = step.StepCosts(job, job.layout, cost, step.clock_of(job))
        rank = 0.0 if schedule == "zbv" else 1.0
        load = costs.microbatch.stages.load(rank).total
        (kept,) = replace(costs, rank=rank).activations
        found.append((load, kept.each, kept.head, cost))
    (a, each, _, _), (b, more, _, _), (c, full, _, _), (d, all_, _, cost) = (
        found
    )
    layer = cost.typical
    assert (d - c) - (b - a) == pytest.approx(layer.forward)
    assert more - each == layer.saved > cost.boundary == all_ - full


# Activations of the ends.


def test_under_a_framework_a_layer_works_beside_the_head() -> None:
    """The larger of the two: the head's 4 bytes a logit, its inputs and a placeholder, or what a
    layer's backward pass holds."""
    layout = cut("pp2")
    job = framework(layout, replace(MODEL, vocab=VOCAB, layers=4))
    parts = model_cost(layer(saved=1e9))
    logits = TOKENS * VOCAB
    share = ModelShare((2.0, 0.0), 0.0, 1.0)
    (found,) = activations.activations(on_device(job, layout), parts, [share])
    head = 4 * logits + (7.0 - 4 * logits) + 2 * VOCAB * WIDTH
    assert found.each == 2e9 + 16.0, "and the output of the stage"
    assert found.head == pytest.approx(head)
    gathered = 2 * 2 * TOKENS * WIDTH * (1 - 1.0)
    assert found.once == pytest.approx(0.25e9 + gathered - head)
    small = model_cost(layer(saved=8.0))
    (found,) = activations.activations(on_device(job, layout), small, [share])
    assert found.once == 0.0


@pytest.mark.parametrize("dense", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("leading", [0.0, 3.0])
def test_the_last_layer_keeps_its_own_and_works(
    dense: float, leading: float
) -> None:
    """With all others gone: of the larger kind that the device has, what one keeps and a quarter."""
    layout = cut("pp2")
    job = framework(layout, replace(MODEL, layers=4))
    kinds = model_cost(layer(saved=100.0), layer(saved=300.0))
    (found,) = activations.activations(
        DeviceMicrobatch.from_layout(job, layout),
        kinds,
        [ModelShare((dense, leading), 0.0, 0.0, 1.0)],
    )
    most = 300.0 if leading else 100.0 if dense else 0.0
    assert found.last == 1.25 * most
    assert found.each == 100.0 * dense + 300.0 * leading + 16.0
    assert found.once == 0.25 * most


@pytest.mark.parametrize("blocks", [0, 2])
def test_gradients_of_logits_wait_in_16_bits(blocks: int) -> None:
    """Where weight gradients are held back, those of every block that has logits of its own."""
    layout = cut("pp2")
    model = replace(MODEL, vocab=VOCAB, layers=4, mtp_layers=blocks)
    job = framework(layout, model)
    parts = model_cost(layer(saved=8.0))
    logits = (1 + blocks) * TOKENS * VOCAB
    share = ModelShare((2.0, 0.0), 0.0, 1.0)
    (found,) = activations.activations(on_device(job, layout), parts, [share])
    assert found.late == parts.head.saved - (4 - 2) * logits


def test_chances_for_people() -> None:
    assert [oom.chance(x) for x in (0.005, 0.01, 0.5, 0.99, 0.995)] == [
        "less than 1 %", "1 %", "50 %", "99 %", "more than 99 %",
    ]  # fmt: skip


def test_a_kind_that_a_device_lacks_takes_nothing() -> None:
    """While it has others; of models of one kind every device has some."""
    microbatch = on_device(a_job(Layout(dp=1), memory=UNITS), Layout(dp=1))
    both = model_cost(layer(saved=100.0), layer(saved=300.0))
    for number, most in ((2.0, 0.0), 100.0), ((0.0, 2.0), 300.0):
        share = ModelShare(number, 0.0, 0.0)
        assert (
            activations.recomputed_layer(microbatch, both, "full", share)
            == most
        )
    none = ModelShare((0.0,), 0.0, 0.0)
    one = model_cost(layer(saved=100.0))._replace(layers=both.layers[:1])
    assert activations.recomputed_layer(microbatch, one, "full", none) == 100.0


def test_what_waits_in_host_memory_is_not_on_the_device() -> None:
    """A quarter of the optimizer's state: three quarters stay; weights take their gradients with
    them."""
    at = a_job(Layout(dp=1))
    p = at.precision
    each = parameter_bytes(at, 0)
    bytes_ = p.weight_bytes, each.gradient, at.state_bytes
    for word, here in (
        ("none", (1.0, 1.0, 1.0)), ("optimizer:0.25", (1.0, 1.0, 0.75)),
        ("optimizer", (1.0, 1.0, 0.0)), ("weights+optimizer", (0.0, 0.0, 0.0)),
    ):  # fmt: skip
        layout = Layout(dp=1, offload=word)
        found = memory.states(at, layout, each, Parameters(1000.0, 0.0))
        expected = [
            1000.0 * x * part for x, part in zip(bytes_, here, strict=True)
        ]
        assert [*found] == pytest.approx(expected), word
