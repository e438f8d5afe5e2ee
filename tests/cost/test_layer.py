"""Operations timed and added up, by hand: one chip that computes 1 FLOP/s and moves 1 B/s, one
network of 1 B/s.
"""

from __future__ import annotations

import pytest

from meshwright.cost.chip import rates
from meshwright.cost.layer import (
    CAUSES,
    Causes,
    Clock,
    LayerCost,
    Seconds,
    Timer,
    in_sequence,
    scale,
)
from meshwright.cost.load import Busy, Load
from meshwright.cost.network import Fabric
from meshwright.count.work import Message, Op, Pass
from meshwright.describe.assumptions import (
    ChipTime,
    Hide,
    NetworkTime,
    Overlap,
)
from meshwright.describe.chip import Chip
from meshwright.describe.layout import Layout
from meshwright.describe.network import Dim, Network

CHIP = Chip(
    "unit", {"bf16": 1.0}, vector_flops=1.0, hbm_bytes=1.0, hbm_bandwidth=1.0
)
HOW = ChipTime(
    matrix_efficiency=1.0,
    vector_efficiency=1.0,
    memory_efficiency=1.0,
    launch_s=0.0,
)
LAYOUT = Layout(
    tp=2,
    cp=2,
    dp=2,
    ep=2,
    placement={"tp": (2,), "cp": (2,), "dp": (2,), "pp": (1,)},
)


def timer(overlap: Overlap | None = None) -> Timer:
    fabric = Fabric.of(
        Network("unit", (Dim("switch", 1.0, 0.0),)),
        NetworkTime("ring", efficiency=1.0),
    )
    return Timer(
        Clock(rates(CHIP, "bf16", HOW), fabric, overlap or Overlap()), LAYOUT
    )


def message(axis: str, seconds: float) -> Message:
    """An all-gather over two ranks: half of the bytes cross the link."""
    return Message("all_gather", axis, 2 * seconds)


WORK = Pass(
    6.0,
    1.0,
    10.0,
    (
        message("tp", 4.0),
        message("cp", 2.0),
        message("ep", 8.0),
        message("tp", 1.0),
    ),
)


def seconds(found: Seconds) -> dict[str, float]:
    return {cause: getattr(found, cause) for cause in CAUSES}


def test_an_operation_by_cause() -> None:
    """7 s of arithmetic, 10 s of memory of which 3 s show, messages by axis."""
    found = timer().half(Op("x", "vector", WORK, WORK), WORK)
    assert seconds(found.time) == {
        "compute": 7.0,
        "memory": 3.0,
        "tp_comm": 5.0,
        "cp_comm": 2.0,
        "ep_comm": 8.0,
        "host": 0.0,
        "overlap_slowdown": 0.0,
    }
    assert found.time.total == 25
    assert found.sent == Load(15.0, 0.0, Busy((15.0,)))


PLAIN = dict.fromkeys(CAUSES, 0.0) | {
    "compute": 7.0,
    "memory": 3.0,
    "tp_comm": 5.0,
    "cp_comm": 2.0,
    "ep_comm": 8.0,
}


@pytest.mark.parametrize(
    ("overlap", "shown"),
    [
        (
            Overlap(tp=Hide("layer", share=0.4)),
            {"tp_comm": 5 - 4.0},
        ),  # behind 4 of 10 s
        (Overlap(tp=Hide("layer")), {"tp_comm": 0.0}),
        (Overlap(tp=Hide("layer", most=0.5)), {"tp_comm": 2.5}),
        # half a second of slower compute for each second that hides
        (
            Overlap(tp=Hide("layer", slow=0.5)),
            {"tp_comm": 0.0, "overlap_slowdown": 2.5},
        ),
        (
            Overlap(tp=Hide("layer", share=0.4, slow=0.5)),
            {"tp_comm": 1.0, "overlap_slowdown": 2.0},
        ),
        (Overlap(tp=Hide("weight gradient")), {}),  # a forward pass makes none
        (Overlap(cp=Hide("operation")), {"cp_comm": 0.0}),
        (Overlap(ep=Hide("layer", share=0.25)), {"ep_comm": 8 - 2.5}),
        # each second hides one thing: 2 s of cp, 8 s of ep, and nothing is left for tp
        (
            Overlap(tp=Hide("layer"), cp=Hide("layer"), ep=Hide("layer")),
            {"cp_comm": 0.0, "ep_comm": 0.0},
        ),
    ],
)
def test_what_hides_behind_an_operation(
    overlap: Overlap, shown: dict[str, float]
) -> None:
    found = timer(overlap).layer([Op("x", "vector", WORK, Pass())])
    assert seconds(found.causes.forward) == pytest.approx(PLAIN | shown)
    assert found.sent.seconds == 15, "hidden or not, it is sent"


def test_a_gather_hides_behind_the_products_of_its_sublayer() -> None:
    """The norm that sends takes no time; the product that follows takes 4 s, that of the other
    sublayer 9 s.
    """
    norm = Op(
        "attention/norm", "vector", Pass(comm=(message("tp", 6.0),)), Pass()
    )
    product = Op("attention/qkv", "matmul", Pass(4.0, 0.0, 1.0), Pass())
    other = Op("ffn/up", "matmul", Pass(9.0, 0.0, 1.0), Pass())
    for scope, shown in (
        ("operation", 6.0),
        ("sublayer", 6.0 - 4.0),
        ("layer", 0.0),
        ("none", 6.0),
    ):
        found = timer(Overlap(tp=Hide(scope))).layer([norm, product, other])
        ahead = found.causes.forward
        assert ahead.tp_comm == pytest.approx(shown), scope


def test_a_ring_of_keys_outlasts_little_work() -> None:
    short = Pass(0.5, 0.0, 0.1, (message("cp", 2.0),))
    ring = timer(Overlap(cp=Hide("operation")))
    assert ring.layer(
        [Op("x", "attention", short, Pass())]
    ).causes.forward.cp_comm == pytest.approx(1.5)


def test_a_layer_is_the_sum_of_its_operations() -> None:
    product = Op(
        "a",
        "matmul",
        Pass(4.0, 0.0, 1.0),
        Pass(8.0, 0.0, 10.0),
        saved=100.0,
        weights=30.0,
    )
    core = Op(
        "b",
        "attention",
        Pass(2.0, 0.0, 1.0),
        Pass(3.0, 0.0, 1.0),
        saved=1000.0,
        selective=True,
        needs=10.0,
    )
    experts = Op(
        "c",
        "matmul",
        Pass(1.0, 0.0, 1.0),
        Pass(2.0, 0.0, 2.0),
        saved=1.0,
        weights=7.0,
        expert=True,
    )
    core = core._replace(name="attention/core")
    found = timer().layer(
        [product, core, experts], ways={"selective": "core_attn"}
    )
    assert (found.forward, found.backward) == (4 + 2 + 1, 10 + 3 + 2)
    again = found.redone["selective"]
    # selective recomputation repeats the core of attention alone
    assert again.time == again.causes.total == 2
    assert (found.saved, again.saved) == (1101, 111)
    assert (found.weights, found.expert_weights) == (30, 7)
    # part of the products', none of the core's
    assert 0 < found.weight_pass < found.backward - 3


def test_layers_one_after_the_other() -> None:
    """Seconds of both are those of their causes."""
    a = LayerCost(saved=10.0).lasting(Causes(Seconds(1.0), Seconds(2.0)))
    b = LayerCost(saved=40.0).lasting(Causes(Seconds(0.0, 4.0), Seconds(8.0)))
    whole = in_sequence(scale(a, 2.0), b)
    assert (whole.forward, whole.backward, whole.saved) == (6.0, 12.0, 60.0)
    assert whole.causes.forward == Seconds(2.0, 4.0)
    assert whole.causes.both.total == 18.0


def test_seconds_add_and_scale() -> None:
    one = Seconds(1.0, 2.0, 3.0, 4.0, 5.0)
    assert (one + one * 2.0).total == 3 * 15
    assert one._replace(memory=0.0).total == 13


def test_panels_hide_behind_the_product() -> None:
    """Four panels of two broadcasts, 3 s and 1 s in all: the first panel takes 1 s, 10 s of work
    hide the rest.
    """
    broadcasts = (
        Message("broadcast", "tp", 3.0),
        Message("broadcast", "cp", 1.0),
    )
    work = Pass(10.0, 0.0, 1.0, broadcasts)
    assert timer().half(
        Op("x", "matmul", work, work, panels=4.0), work
    ).time.tp_comm == pytest.approx(1.0)
    short = work._replace(matrix=1.0)
    assert timer().half(
        Op("x", "matmul", short, short, panels=4.0), short
    ).time.tp_comm == pytest.approx(1 + 4 * 1 - 1)
