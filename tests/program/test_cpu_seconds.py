"""CPU seconds of a step, on a machine where every message and every pass over a tensor was measured
to cost a round number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from by_hand import CHIP, MODEL
from layouts import cut
from meshwright import (
    Cluster,
    Dim,
    Job,
    Layout,
    Model,
    Network,
    Prediction,
    predict,
)
from meshwright.describe.framework import framework
from meshwright.describe.measured import MeasuredTable, Overhead
from meshwright.program import cpu

GATHER, SCATTER, REDUCE, ACCUMULATE, STEP = 1.0, 10.0, 100.0, 0.5, 0.25
"""CPU seconds of a rank for one message, and for one pass over one tensor, of whatever size."""
TENSORS = 8
"""Of a layer, as PyTorch keeps them: queries, keys, values, output, up, down, and two norms."""
NORMED = replace(MODEL, norm="rmsnorm")
REPLICAS, LAYERS = 4, 2


def always(seconds: float, *axes: str) -> MeasuredTable:
    """A table that says the same everywhere."""
    points = ((1.0, 1e12),) * len(axes)
    return MeasuredTable(axes, points, (seconds,) * 2 ** len(axes))


def cpu_seconds(*how: Any, **more: Any) -> dict[str, float]:
    """Of one step on the measured machine."""
    found = on_cpu(*how, **more).cpu_time_s
    assert found is not None
    return found


def on_cpu(
    layout: Layout,
    microbatches: int,
    model: Model = NORMED,
    copy: float = 0.0,
    engine: Sequence[float] = (0.0,) * 4,
) -> Prediction:
    """A step there."""
    messages = {
        "all_gather": GATHER,
        "reduce_scatter": SCATTER,
        "all_reduce": REDUCE,
    }
    tables = {
        f"{kind}/cpu": always(cost, "ranks", "bytes")
        for kind, cost in messages.items()
    }
    kernels = {
        "bf16/accumulate": always(ACCUMULATE, "elements"),
        "bf16/optimizer": always(STEP, "elements"),
        "bf16/copy": always(copy, "elements"),
    }
    own = Overhead((1.0, 64.0), *((each,) * 2 for each in engine))
    features = (
        "plain",
        "zero0",
        "zero1",
        "zero2",
        "zero3",
        "1f1b",
        "recompute full",
    )
    cluster = Cluster(
        replace(CHIP, kernels=kernels),
        Network("by hand", (Dim("switch", 1e9, 0.0, collectives=tables),)),
        int(layout.chips),
        engine=dict.fromkeys(features, own),
    )
    # which trains no model without a vocabulary
    trainer = replace(framework("meshwright"), rules=())
    job = Job(
        model,
        cluster,
        microbatches * int(layout.dp),
        layout,
        assumptions="pytorch",
        framework=trainer,
    )
    return predict(job)


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ("dp4 zero0", REDUCE),
        ("dp4 zero1", GATHER + SCATTER),
        # after each of three microbatches
        ("dp4 zero2", GATHER + 3 * SCATTER),
        # gathered before each forward and each backward
        ("dp4 zero3", 2 * 3 * GATHER + 3 * SCATTER),
        # stages of one layer: weights are whole and gathered once a step, gradients are sharded
        ("dp2 pp2 zero2", GATHER + 3 * SCATTER),
    ],
)
def test_messages_of_a_step(words: str, messages: float) -> None:
    """Two layers, three microbatches."""
    layout = cut(words)
    found = cpu_seconds(layout, 3)
    assert found["dp_comm"] == pytest.approx(layout.dp * LAYERS * messages)


def test_groups_between_the_measured_ones_are_not_noted() -> None:
    """Of 1 and 64 ranks."""
    notes = on_cpu(Layout(dp=REPLICAS, zero=1), 3).notes
    assert not any("measured range: ranks" in note for note in notes)


@pytest.mark.parametrize(
    ("zero", "copies"), [(0, 2), (1, 1 + 1), (2, 1 + 3), (3, 6 + 3)]
)
def test_messages_are_copied_in_and_out_of_flat_buffers(
    zero: int, copies: int
) -> None:
    """Gradients that are all-reduced into one and back, gathered weights out, scattered gradients
    in, as often as they are sent; embedding and head have no weights here, but are a unit too."""
    plain, copied = (
        cpu_seconds(Layout(dp=REPLICAS, zero=zero), 3, copy=copy)["dp_comm"]
        for copy in (0.0, 7.0)
    )
    assert copied - plain == pytest.approx(
        REPLICAS * (LAYERS + 1) * copies * 7.0
    )


@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_gradients_are_added_up_from_the_second_microbatch_on(
    microbatches: int,
) -> None:
    """The first microbatch makes the gradients, each later one adds to them."""
    found = cpu_seconds(Layout(dp=REPLICAS), microbatches)
    assert found["accumulate"] == pytest.approx(
        (microbatches - 1) * REPLICAS * LAYERS * TENSORS * ACCUMULATE
    )


@pytest.mark.parametrize(
    ("zero", "model", "tensors"),
    [(0, NORMED, TENSORS), (1, NORMED, TENSORS), (0, MODEL, TENSORS - 2)],
)
def test_every_rank_updates_every_tensor_or_its_part(
    zero: int, model: Model, tensors: int
) -> None:
    """Norms without parameters are no tensors."""
    found = cpu_seconds(Layout(dp=REPLICAS, zero=zero), 2, model)
    assert found["optimizer"] == pytest.approx(
        REPLICAS * LAYERS * tensors * STEP
    )


def test_a_message_between_stages_goes_through_the_nearest_dimension() -> None:
    """Half a second at each of its two ends there; the dimension around it takes ten times that."""
    near, far = (always(each, "ranks", "bytes") for each in (0.5, 5.0))
    dims = tuple(
        SimpleNamespace(collectives={"send": table}) for table in (near, far)
    )
    fabric: Any = SimpleNamespace(dims=dims)
    assert cpu.send(fabric, 64.0) == 1.0
    nowhere: Any = SimpleNamespace(dims=(SimpleNamespace(collectives={}),))
    column: Any = np.array([1.0, 2.0])
    assert cpu.send(nowhere, column).tolist() == [0.0, 0.0]


def test_an_engine_is_paid_for_what_a_layout_uses() -> None:
    """Feature -> ranks of its group."""
    assert cpu.features(cut("1f1b")) == {"plain": 1.0}
    used = cpu.features(cut("tp2 cp3 pp4 dp5 zero2 gpipe full"))
    assert used == {
        "plain": 1.0, "tp": 2, "cp": 3, "zero2": 15, "gpipe": 4, "recompute full": 1.0,
    }  # fmt: skip
    assert cpu.features(cut("cp2")) == {"plain": 1.0, "cp": 2, "zero0": 2}


def test_one_device_computes_each_part_of_the_model_once() -> None:
    """Layers, embedding and head: what its step takes in kernels, for each of two microbatches."""
    whole = replace(NORMED, vocab=512)
    for microbatches in (1, 2):
        found = on_cpu(Layout(dp=1), microbatches, whole)
        took = found.time_s["compute"] + found.time_s["memory"]
        assert found.cpu_time_s is not None
        assert found.cpu_time_s["compute"] == pytest.approx(took, rel=1e-12)


def test_every_rank_pays_for_the_engine() -> None:
    """Four replicas pay for the plain step and for their group: 1 s a step, 2 a microbatch, 4 a
    layer, 8 a layer and microbatch; of three microbatches and two layers."""
    found = cpu_seconds(Layout(dp=REPLICAS), 3, engine=(1.0, 2.0, 4.0, 8.0))
    one = 1 + 3 * 2 + LAYERS * 4 + 3 * LAYERS * 8
    assert found["engine"] == REPLICAS * 2 * one


def test_tables_that_a_set_does_not_read_are_said_to_be_unread() -> None:
    unread = "measured on this machine are not read by assumptions realistic"
    read = on_cpu(Layout(dp=1), 1)
    other = predict(replace(read.job, assumptions="realistic"))
    bare = predict(Job("gpt2", "1xh100-sxm", 1, Layout(dp=1)))
    notes = [[*p.notes] for p in (other, read, bare)]
    assert [any(unread in n for n in each) for each in notes] == [
        True,
        False,
        False,
    ]
