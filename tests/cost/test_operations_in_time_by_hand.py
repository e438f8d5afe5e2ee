"""Seconds of products, attention, hosts and layers, written once more from the laws in their
headers.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt
from typing import Any

import pytest

from meshwright import Chip, Dim, Hierarchy, Job, Layout, Model, Network
from meshwright.cost import attention, chip, hierarchy, host, products, shapes
from meshwright.cost.causes import Causes, PassCost, Seconds
from meshwright.cost.hiding import scopes, sublayer
from meshwright.cost.layer import Clock, LayerCost, Timer, in_sequence
from meshwright.cost.load import NOTHING, Busy, Load
from meshwright.cost.network import Fabric
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.work import Op, Pass, Product
from meshwright.describe.assumptions import (
    ChipTime,
    Hide,
    Host,
    NetworkTime,
    Overlap,
    Stack,
)
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.kernels import FusedAttention, kernels
from meshwright.exchange.types import Message
from refusals import refusal

KERNELS = replace(
    kernels("h100"),
    units=10, share=0.5, depth=64.0, waves=0.25, clock=0.9, training=1.0, power_w=0.0,
    memory=0.8, added=0.1, launch_s=2.0, fp8=0.7, fp4=0.6,
    fp8_power=1.0, fp4_power=1.0,
    quantise={"tensorwise": 6.0, "nvfp4": 8.0},
    attention={
        "flash": FusedAttention(0.6, 512.0, 0.8),
        "cudnn-fp8": FusedAttention(
            0.6, 512.0, 0.8, narrow=0.5, backward_window=False
        ),
        "cudnn": FusedAttention(0.7, 256.0, 0.9),
    },
    narrow=0.75, scores=0.4, alignment=0.5, expert_s=0.5, crowd_weights=20.0,
    experts=1.0, unaligned=1.0, crowd=0.0,
)  # fmt: skip
CHIP = Chip(
    "c",
    {"bf16": 1e6, "fp8": 2e6, "fp4": 4e6},
    vector_flops=1e5,
    hbm_bytes=1e9,
    hbm_bandwidth=1e4,
)


def by_shape(precision: str = "bf16", **how: Any) -> shapes.ShapeRates:
    stack = how.pop("stack", Stack())
    at = ChipTime("by-shape", stack=stack, kernels=KERNELS, **how)
    return shapes.rates(CHIP, precision, "bf16", at)


def paid(m: float, n: float, groups: float = 1.0) -> float:
    """The best of four tiles and of three ways to cut the inner width, in waves of ten."""
    found = []
    for rows, columns, slower in (
        (256, 128, 1.0),
        (128, 256, 1.0),
        (128, 128, 1.1),
        (64, 256, 1.15),
    ):
        for ways, added in ((1, 1.0), (2, 1.06), (4, 1.12)):
            area = rows * columns * slower * added / ways
            tiles = groups * ways * ceil(m / rows) * ceil(n / columns)
            waves = ceil(tiles / 10) * 10 * area
            useful = m * n * groups
            cost = useful + 0.25 * (waves - useful)
            found.append(max(min(waves, 10 * area), cost))
    return min(found)


@pytest.mark.parametrize(
    "shape", [(100, 90), (1000, 700), (4096, 4096), (5000, 300)]
)
@pytest.mark.parametrize("groups", [1.0, 3.0])
def test_products_pay_for_tiles_and_waves(
    shape: tuple[int, int], groups: float
) -> None:
    m, n = map(float, shape)
    of = products.ProductShape(m, n, 256.0, groups)
    assert products.tile_cost(of, KERNELS) == pytest.approx(paid(m, n, groups))
    assert products.arithmetic(of, KERNELS) == pytest.approx(
        2 * paid(m, n, groups) * (256 + 64)
    )
    deeper = 20.0 if groups > 1 else 0.0
    assert products.arithmetic(of, KERNELS, True) == pytest.approx(
        2 * paid(m, n, groups) * (256 + 64 + deeper)
    )
    assert products.ProductShape(1.0, 1.0, 1.0).groups == 1.0


def test_rates_by_shape() -> None:
    """Half of the peak at 0.9 of the clock; of FP8 0.7 of that; a weaker part runs slower, products
    that take less power run faster, at most at full clock."""
    wide = by_shape()
    assert wide[2:] == pytest.approx((4.5e5, 4.5e5, 4.5e5, 9e5, 8e3, 0.0, 0.0))
    narrow = by_shape("fp8")
    assert narrow.matrix == pytest.approx(2e6 * 0.9 * 0.5 * 0.7)
    assert narrow.wide == pytest.approx(4.5e5)
    slow = replace(KERNELS, fp8_backward=1.25)
    how = ChipTime("by-shape", kernels=slow)
    of = shapes.rates(CHIP, "fp8", "bf16", how)
    assert (of.matrix, of.backward) == pytest.approx(
        (narrow.matrix, narrow.matrix / 1.25)
    )
    of = shapes.rates(CHIP, "bf16", "bf16", how)
    assert of.backward == of.matrix
    assert narrow.quantise == 6.0 and by_shape("fp4").quantise == 8.0
    rows = Stack(quantise={"tensorwise": 3.0})
    assert by_shape("fp8", stack=rows).quantise == 4.0, "and along columns"
    either = ChipTime("by-shape", rows, kernels=kernels("b200"))
    assert shapes.rates(CHIP, "fp8", "bf16", either).quantise == 3.0
    limited = replace(KERNELS, power_w=400.0, power_exponent=0.5)
    how = ChipTime("by-shape", kernels=limited)
    weak = replace(CHIP, power_w=100.0)
    assert shapes.rates(weak, "bf16", "bf16", how).peak16 == pytest.approx(
        0.9e6 * 0.5
    )
    strong = replace(CHIP, power_w=900.0)
    assert shapes.rates(strong, "bf16", "bf16", how).peak16 == pytest.approx(
        1e6  # 0.9 sqrt(900 / 400) is more than the full clock
    )
    cooler = ChipTime("by-shape", kernels=replace(limited, fp8_power=0.64))
    found = shapes.rates(weak, "fp8", "bf16", cooler)  # 0.9 / 2 / 0.8
    assert found.matrix == pytest.approx(2e6 * 0.5625 * 0.5 * 0.7)
    assert found.peak16 == pytest.approx(0.9e6 * 0.5)
    slack = ChipTime("by-shape", kernels=KERNELS, stack=Stack(efficiency=0.8))
    found = shapes.rates(CHIP, "fp8", "bf16", slack)
    assert found.matrix == pytest.approx(0.8 * narrow.matrix)
    assert found.peak16 == pytest.approx(0.8 * wide.peak16)
    share = ChipTime("by-shape", matrix_efficiency=0.3)
    assert shapes.constants(CHIP, share).share == 0.3
    lawful = replace(CHIP, kernel_law="h100")
    assert shapes.constants(lawful, ChipTime("by-shape")) is kernels("h100")
    assert shapes.constants(lawful, share).share == 0.3
    held = replace(CHIP, sustained=0.8)
    assert shapes.constants(held, ChipTime("by-shape")).share == 0.8


def test_a_machine_that_knows_its_clock_holds_that() -> None:
    """In place of its kind's and of what another power limit would make of that; training and
    products that take less power count as on any other."""
    limited = replace(
        KERNELS,
        training=0.9,
        power_w=400.0,
        power_exponent=0.5,
        fp8_power=0.64,
    )
    own = replace(CHIP, kernel_law="h100", clock=0.6, power_w=100.0)

    def at(precision: str, **how: Any) -> shapes.ShapeRates:
        return shapes.rates(
            own, precision, "bf16", ChipTime("by-shape", **how)
        )

    found = at("fp8", kernels=limited)
    assert found.peak16 == pytest.approx(1e6 * 0.6 * 0.9)
    assert found.matrix == pytest.approx(2e6 * 0.6 * 0.9 / 0.8 * 0.5 * 0.7)
    # a set that names what products reach of the peak has said it
    assert at("bf16", matrix_efficiency=0.5).matrix == 0.5e6
    with refusal("clock means nothing without kernel_law"):
        replace(own, kernel_law="")


def test_seconds_of_a_product_by_shape() -> None:
    """Its arithmetic, a launch, and what of its bytes outlasts or is added; in FP8 also its input
    and half of its weights, once, at 6 bytes an element."""
    p = Product(300.0, 256.0, 500.0)
    work = Pass(1.0, memory=1000.0, products=(p,), kernel="matmul forward")
    flops = 2 * paid(500.0, 300.0) * (256 + 64)
    slow = flops / 4.5e5
    assert shapes.kernel_seconds(work, by_shape()) == pytest.approx(
        (slow + 2.0, 0.1 * 1000 / 8e3)
    )
    long = work._replace(memory=8e6)
    assert shapes.kernel_seconds(long, by_shape())[1] == pytest.approx(
        1000.0 + 0.1 * slow - slow
    )
    quick = flops / 6.3e5
    elements = 500 * 256 + 0.5 * 300 * 256
    found = shapes.kernel_seconds(work, by_shape("fp8"))
    assert found[0] == pytest.approx(quick + 2.0)
    assert found[1] == pytest.approx(0.1 / 8 + elements * 6 / 8e3)
    step = Stack(weights_quantised="step")
    found = shapes.kernel_seconds(work, by_shape("fp8", stack=step))
    assert found[1] == pytest.approx(0.1 / 8 + 500 * 256 * 6 / 8e3)
    once = shapes.step_quantises(100.0, by_shape("fp8", stack=step))
    assert once == pytest.approx(0.5 * 100 * 6 / 8e3)
    assert shapes.step_quantises(100.0, by_shape("fp8")) == 0.0
    logits = work._replace(engine="wide")
    found = shapes.kernel_seconds(logits, by_shape("fp8"))
    assert found == pytest.approx((slow + 2.0, 0.1 / 8))
    back = work._replace(kernel="matmul backward")
    assert shapes.quantised_elements(back, p) == 500 * 256
    weights = p._replace(weight_gradient=True)
    assert shapes.quantised_elements(back, weights) == 0.0
    experts = p._replace(copies=4.0)
    assert (
        shapes.quantised_elements(work, experts) == 500 * 256 + 2 * 300 * 256
    )
    apart = Pass(1.0, memory=1000.0, products=(experts,))
    flops = 2 * paid(125.0, 300.0, 4.0) * (256 + 64)
    assert shapes.kernel_seconds(apart, by_shape())[0] == pytest.approx(
        flops / 4.5e5 + 2.0 + 3 * 0.5
    )
    turned = Pass(1.0, memory=1000.0, products=(weights._replace(copies=5.0),))
    flops = 2 * paid(300.0, 256.0, 5.0) * (100 + 64 + 20)
    assert shapes.kernel_seconds(turned, by_shape())[0] == pytest.approx(
        flops / 4.5e5 + 2.0
    )


def test_passes_without_shapes() -> None:
    """Bytes alone, times what the software moves; FLOPs without a shape; parts one by one."""
    add = Pass(0.0, 5.0, 1600.0, kernel="add forward")
    assert shapes.kernel_seconds(add, by_shape()) == (2.0, 0.2)
    loose = by_shape(stack=Stack(elementwise=3.0, norm="torch"), wide_norm=4.0)
    assert shapes.kernel_seconds(add, loose) == pytest.approx((2.0, 0.6))
    norm = add._replace(kernel="norm forward")
    assert shapes.kernel_seconds(norm, loose) == pytest.approx((2.0, 0.8))
    rotary = add._replace(kernel="rotary forward")
    assert shapes.kernel_seconds(rotary, loose) == pytest.approx((2.0, 0.2))
    layer = add._replace(kernel="layernorm forward")
    assert shapes.kernel_seconds(layer, loose) == pytest.approx((2.0, 0.6))
    step = add._replace(kernel="optimizer")
    assert shapes.kernel_seconds(step, loose) == pytest.approx((2.0, 0.3))
    scan = Pass(9e5, 0.0, 1600.0)
    assert shapes.kernel_seconds(scan, by_shape()) == pytest.approx(
        (4.0, 0.02)
    )
    wide = Pass(9e5, 0.0, 1600.0, engine="wide")
    assert shapes.kernel_seconds(wide, by_shape("fp8"))[0] == pytest.approx(
        4.0
    )
    both = Pass(parts=(add, scan))
    assert shapes.kernel_seconds(both, by_shape()) == pytest.approx(
        (6.0, 0.22)
    )


def test_attention_by_its_law() -> None:
    """0.6 of the peak at length, half of it at 512 tokens, whose queries read 256.5 keys; backward
    0.8, narrow heads 0.75; in a window a query pays for 256 keys more than it reads. A kernel may
    have its own rate of narrow heads, and leave out no keys in backward for a window."""
    work = Pass(
        9e6, 0.0, 800.0, engine="attention forward",
        kernel="attention forward", sizes=(4.0, 512.0**2, 1.0, 128.0), keys=256.5,
    )  # fmt: skip
    peak = 0.9e6
    assert shapes.kernel_seconds(work, by_shape()) == pytest.approx(
        (9e6 / (peak * 0.6 / 2) + 2.0, 0.0)
    )
    back = work._replace(engine="attention backward")
    assert shapes.kernel_seconds(back, by_shape())[0] == pytest.approx(
        9e6 / (peak * 0.6 * 0.8 / 2) + 2.0
    )
    window = work._replace(keys=64.5)
    assert shapes.kernel_seconds(window, by_shape())[0] == pytest.approx(
        9e6 / (peak * 0.6 * 64 / (64 + 256)) + 2.0
    )
    narrow = work._replace(sizes=(4.0, 256.0**2, 0.5, 64.0), keys=128.5)
    other = by_shape(stack=Stack(kernel="cudnn"))
    assert shapes.kernel_seconds(narrow, other)[0] == pytest.approx(
        9e6 / (peak * 0.7 * 0.75 / 2) + 2.0
    )
    eight = by_shape(stack=Stack(kernel="cudnn-fp8"))
    assert shapes.kernel_seconds(window, eight) == pytest.approx(
        shapes.kernel_seconds(window, by_shape())
    )
    slid = window._replace(engine="attention backward")
    assert shapes.kernel_seconds(slid, eight)[0] == pytest.approx(
        9e6 * 256.5 / 64.5 / (peak * 0.6 * 0.8 / 2) + 2.0
    )
    unmasked = back._replace(keys=512.0)
    assert shapes.kernel_seconds(unmasked, eight) == pytest.approx(
        shapes.kernel_seconds(unmasked, by_shape())
    )
    thin = work._replace(sizes=(4.0, 512.0**2, 1.0, 64.0))
    assert shapes.kernel_seconds(thin, eight)[0] == pytest.approx(
        9e6 / (peak * 0.6 * 0.5 / 2) + 2.0
    )
    plain = work._replace(engine="wide", sizes=(4.0, 1.0, 1.0, 68.0))
    rate = peak * 0.4 * sqrt(4 / 8)
    assert shapes.kernel_seconds(plain, by_shape()) == pytest.approx(
        (9e6 / rate + 3 * 2.0, 0.1)
    )
    torch = by_shape(stack=Stack(kernel="torch"))
    assert shapes.kernel_seconds(plain, torch)[1] == pytest.approx(0.2)
    widths = {1: 1, 2: 2, 12: 4, 96: 32, 2.5: 1, 0: 1}
    assert {w: attention.alignment(w) for w in widths} == widths
    assert attention.unfused_rate(64.0, KERNELS) == 0.4


def test_what_the_host_adds() -> None:
    """Fourth root of the sum of fourth powers; twice as long backward; graphs leave a half (of
    experts three quarters), or a fiftieth; embedding and head take shares."""
    of = Host(
        backward=2.0,
        experts_s=3.0,
        dispatched=0.5,
        routed=0.75,
        embedding=0.25,
        head=0.75,
        parts=0.5,
        full=0.02,
        collective_s=0.125,
        update=0.1,
    )

    def how(
        graphs: str = "off", s: float = 8.0, routing: str = "drawn"
    ) -> ChipTime:
        stack = Stack(
            host_s=s, step_s=4.0, cuda_graphs=graphs, routing=routing
        )
        return ChipTime("by-shape", stack=stack, host=of)

    def seconds(
        part: str, experts: bool, graphs: str = "off", **more: Any
    ) -> tuple[float, float]:
        return host.host_seconds(how(graphs), part, experts, **more)

    assert seconds("layer", False) == (8.0, 16.0)
    assert seconds("layer", True) == (11.0, 22.0)
    assert seconds("embedding", False) == (2.0, 4.0)
    assert seconds("head", False) == (6.0, 12.0)
    assert seconds("layer", True, "parts") == (6.25, 12.5)
    assert seconds("layer", False, "full") == pytest.approx((0.16, 0.32))
    assert seconds("layer", True, "parts", dispatched=True)[0] == 5.125
    # padded: graphs leave of what experts add what they leave of the layer
    for graphs, padded in (("off", 11.0), ("parts", 5.5)):
        by = how(graphs, routing="padded")
        assert host.host_seconds(by, "layer", True)[0] == padded
        assert host.host_seconds(by, "layer", False) == seconds(
            "layer", False, graphs
        )
    # three collectives ahead and one back
    assert seconds("layer", False, collectives=(3.0, 1.0)) == (8.375, 16.125)
    assert seconds("layer", False, "parts", collectives=(3.0, 0.0)) == (
        4.1875,
        8.0,
    )
    none = host.host_seconds(how(s=0.0), "layer", True, (3.0, 3.0))
    assert none == (0.0, 0.0)
    # what a step does once, and the launches of ten layers' updates
    assert host.every_step(how(), 10.0) == 4.0 + 10 * 0.1 * 8.0
    assert host.every_step(how("full"), 10.0) == pytest.approx(0.02 * 12.0)
    assert host.host_excess(3.0, 4.0) == pytest.approx((81 + 256) ** 0.25 - 3)
    assert host.host_excess(0.0, 4.0) == 0.0 == host.host_excess(3.0, 0.0)
    # each kernel waits for its launch: one after the other
    assert host.host_excess(3.0, 4.0, "blocking") == 4.0
    assert host.host_excess(0.0, 4.0, "blocking") == 0.0


# A chip with a hierarchy of memories.
DEEP = Hierarchy(
    sms=4, boost_hz=1e3, flop_per_clock=0.5, l2_bytes=4000.0,
    l2_bandwidth=3e4, smem_bytes_per_clock=32.0, register_bytes=1000.0,
    dsmem=False, usable=0.5,
)  # fmt: skip


def test_levels_of_a_chip() -> None:
    """Peak 0.5 x 128 threads x 4 x 1 kHz = 256,000, held at 0.8; in FP8 twice that."""
    at = replace(CHIP, hierarchy=DEEP, matrix_flops={"fp16": 1e6, "fp8": 2e6})
    found = hierarchy.levels(at, "fp8", 0.8, 3.0, 2.0)
    assert found == pytest.approx(
        (0.8 * 256e3 * 2, 1e4, 3e4, 32 * 4 * 1e3 * 0.8, 2000.0, 500.0, 4, False, 3.0, 2.0)
    )  # fmt: skip


def crossed(
    out: float, inner: float, gradient: bool, capacity: float, units: float
) -> tuple[float, float]:
    """(fixed, a token) bytes without shared tiles: W 2 bytes, in tiles as square as can be."""
    W = out * inner * 2
    area = out * inner / ceil(W / capacity)
    height = max(min(out, sqrt(area)), area / inner)
    rows, columns = out / height, inner * height / area
    fixed = 0.0 if capacity * units >= 2 * W else (2 * W if gradient else W)
    outputs = columns if gradient else 2 * columns - 1
    return fixed, rows * inner * 2 + outputs * out * 2


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("shape", [(64, 96), (40, 8), (200, 30), (16, 16)])
def test_a_product_crosses_every_boundary(
    shape: tuple[int, int], gradient: bool
) -> None:
    out, inner = map(float, shape)
    at = hierarchy.MemoryLevels(
        1e5, 1e3, 2e3, 4e3, 2500.0, 500.0, 4.0, False, 0.25, 2.0
    )
    one, two, three = (
        crossed(out, inner, gradient, 2500.0, 1),
        crossed(out, inner, gradient, 2000.0, 4),
        crossed(out, inner, gradient, 500.0, 16),
    )
    found = hierarchy.boundaries(at, out, inner, gradient)
    sums = (
        one,
        (one[0] + two[0], one[1] + two[1]),
        (two[0] + three[0], two[1] + three[1]),
    )
    for mine, other in zip(found, sums, strict=True):
        assert mine == pytest.approx(other)
    tokens = 21.0
    slow = [
        (fixed + each * tokens) / rate
        for (fixed, each), rate in zip(sums, (1e3, 2e3, 4e3), strict=True)
    ]
    padded = [8 * ceil(x / 8) for x in (out, inner, tokens)]
    slow.append(2 * padded[0] * padded[1] * padded[2] / 1e5)
    p = Product(out, inner, tokens, gradient)
    assert hierarchy.product_time(at, p) == pytest.approx(max(slow) + 0.25)
    four = p._replace(tokens=84.0, copies=4.0)
    assert hierarchy.product_time(at, four) == pytest.approx(
        4 * max(slow) + 0.25
    )
    assert hierarchy.time(at, [p, four, p]) == pytest.approx(
        6 * max(slow) + 0.75
    )


@pytest.mark.parametrize("gradient", [False, True])
def test_multiprocessors_that_read_each_other(gradient: bool) -> None:
    """They tile as one, and what a unit's own tile needs comes from the others."""
    out, inner = 200.0, 30.0
    found, between = hierarchy.level_crossing(
        out, inner, gradient, 2000.0, 4, True, 2.0
    )
    fixed, each = crossed(out, inner, gradient, 8000.0, 1)
    both = 2 * out * inner * 2 if gradient else out * inner * 2
    assert found == pytest.approx((both, each))
    rows, columns = hierarchy.tiles(out, inner, 2000.0, 2.0)
    assert (rows, columns) == pytest.approx((200 / (1000 / 30), 1.0))
    assert between == pytest.approx(rows * inner * 2)
    wide, long = 30.0, 200.0
    r, c = hierarchy.tiles(wide, long, 2000.0, 2.0)
    assert c > 1 and r == pytest.approx(1.0)
    _, between = hierarchy.level_crossing(
        wide, long, gradient, 2000.0, 4, True, 2.0
    )
    outputs = c * wide * 2 if gradient else 2 * (c - 1) * wide * 2
    inputs = r * long * 2 if r > 1 else 0.0
    assert between == pytest.approx(inputs + outputs)


# A layer.


def clock(overlap: Overlap | None = None) -> Clock:
    """1 FLOP/s, 1 B/s, links of 1 B/s."""
    at = replace(CHIP, matrix_flops={"bf16": 1.0}, hbm_bandwidth=1.0)
    how = ChipTime(
        "roofline", matrix_efficiency=1.0, memory_efficiency=1.0, launch_s=0.0
    )
    net = Network("n", (Dim("s", 1.0, 0.5, efficiency=1.0),))
    return Clock(
        chip.rates(at, "bf16", how),
        Fabric.from_network(net, NetworkTime("ring")),
        overlap or Overlap(),
    )


LAYOUT = Layout(
    tp=2,
    cp=2,
    dp=1,
    ep=2,
    placement={"tp": (2,), "cp": (2,), "dp": (1,), "pp": (1,)},
)


def timer(overlap: Overlap | None = None, **more: Any) -> Timer:
    return Timer(clock(overlap), LAYOUT, **more)


def sends(axis: str, bytes_: float) -> tuple[Message, ...]:
    """(n - 1)/n of it, and a hop of 0.5 s: bytes/2 + 0.5 s over two ranks."""
    return (Message("all_gather", axis, bytes_),)


def op(name: str, matrix: float, **more: Any) -> Op:
    both = more.pop("comm", ()), more.pop("back", ())
    kind = more.pop("kind", "matmul")
    return Op(
        name,
        kind,
        Pass(matrix, memory=1.0, comm=both[0]),
        Pass(2 * matrix, memory=1.0, comm=both[1]),
        **more,
    )


def test_causes_of_an_operation() -> None:
    """10 s of arithmetic and 25 s of bytes; messages over tp, cp and by etp ranks."""
    comm = sends("tp", 5.0) + sends("cp", 3.0) + sends("tp", 1.0)
    one = Op("ffn/up", "matmul", Pass(10.0, memory=25.0, comm=comm), Pass())
    cost = timer().pass_cost(one, one.forward)
    assert cost.time == pytest.approx((10, 15, 3.0 + 1.0, 2.0, 0, 0, 0))
    assert cost.sent.seconds == 6.0 and cost.sent.latency == 0.0
    assert cost.part == "ffn" and cost.time.total == 31.0
    spread = replace(LAYOUT, tp=1, cp=1, dp=4, ep=2, etp=2)
    spread = replace(
        spread,
        placement={"tp": (1,), "cp": (1,), "dp": (4,), "pp": (1,)},
    )
    to = sends("ep", 5.0) + sends("etp", 3.0)
    experts = one._replace(forward=Pass(10.0, memory=1.0, comm=to))
    cost = Timer(clock(), spread).pass_cost(experts, experts.forward)
    assert cost.time.ep_comm == pytest.approx(3.0 + 2.0)
    assert cost.time.cp_comm == cost.time.tp_comm == 0.0
    nothing = timer().pass_cost(one, one.backward)
    assert nothing.time == Seconds() and nothing.time.total == 0.0
    for name, mine in (
        ("experts/up", "ffn"), ("shared/up", "ffn"), ("indexer/key", "attention"),
        ("ssm/in", "ssm"),
    ):  # fmt: skip
        assert sublayer(name) == mine


def test_panels_of_a_product() -> None:
    """4 panels of 2.5 B broadcast each in 3 s: the first, and what of all of them outlasts 10 s."""
    one = Op(
        "ffn/up", "matmul",
        Pass(10.0, memory=1.0, comm=(Message("broadcast", "tp", 10.0),)),
        Pass(), panels=4.0,
    )  # fmt: skip
    cost = timer().pass_cost(one, one.forward)
    assert cost.time.tp_comm == pytest.approx(3.0 + (4 * 3.0 - 10.0))
    assert cost.sent.seconds == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("scope", "shown"),
    [
        # forward: attention computes 10 s and sends 24 s, feed-forward 20 s and sends nothing;
        # backward: 20 s and 40 s of work, the feed-forward sends 30 s
        ("none", (24.0, 30.0)),
        ("operation", (24.0 - 4.0, 0.0)),
        ("sublayer", (24.0 - 10.0, 0.0)),
        ("layer", (0.0, 0.0)),
        ("step", (0.0, 0.0)),
    ],
)
def test_what_hides_behind_what(
    scope: str, shown: tuple[float, float]
) -> None:
    how = Hide(scope) if scope != "none" else Hide()
    ops = [
        op("attention/a", 4.0, comm=sends("tp", 47.0)),
        op("attention/b", 6.0),
        op("ffn/up", 20.0, back=sends("tp", 59.0)),
    ]
    found = timer(Overlap(tp=how), details=True).layer(ops)
    assert [each.tp_comm for each in found.causes] == pytest.approx(shown)
    assert [each.compute for each in found.causes] == [30.0, 60.0]
    assert found.sent.seconds == 24.0 and found.sent_back.seconds == 30.0
    assert [timed.op.name for timed in found.operations] == [
        o.name for o in ops
    ]
    assert timer().layer(ops).operations == ()
    if scope == "step":
        # three tenths of 90 s hide: what shows of 54 s is dealt by what each pass sends
        narrow = timer(Overlap(tp=replace(how, share=0.3))).layer(ops).causes
        assert [each.tp_comm for each in narrow] == pytest.approx([12, 15])


@pytest.mark.parametrize(
    ("overlap", "tp", "cp", "slower"),
    [
        (Overlap(), 5.0, 2.0, 0.0),
        # behind 4 of 10 s
        (Overlap(tp=Hide("layer", share=0.4)), 5.0 - 4.0, 2.0, 0.0),
        (Overlap(tp=Hide("layer", most=0.5)), 2.5, 2.0, 0.0),
        # half a second of slower compute for each second that hides
        (Overlap(tp=Hide("layer", slow=0.5)), 0.0, 2.0, 2.5),
        (Overlap(tp=Hide("layer", share=0.4, slow=0.5)), 1.0, 2.0, 2.0),
        # a forward pass makes no weight gradients
        (Overlap(tp=Hide("weight gradient")), 5.0, 2.0, 0.0),
        (Overlap(cp=Hide("operation")), 5.0, 0.0, 0.0),
        (Overlap(tp=Hide("layer"), cp=Hide("layer")), 0.0, 0.0, 0.0),
    ],
)
def test_what_hides_behind_an_operation(
    overlap: Overlap, tp: float, cp: float, slower: float
) -> None:
    """10 s of work, 5 s of tp and 2 s of cp."""
    one = op("a/b", 10.0, comm=sends("tp", 9.0) + sends("cp", 3.0))
    found = timer(overlap).layer([one])
    ahead = found.causes.forward
    assert ahead.compute == 10.0
    assert (ahead.tp_comm, ahead.cp_comm) == pytest.approx((tp, cp))
    assert ahead.overlap_slowdown == pytest.approx(slower)
    assert found.sent.seconds == 7.0, "hidden or not, it is sent"


def test_seconds_that_hide_are_spent_and_slow() -> None:
    """20 s of work: 12 s of cp hide first, 4 s of ep then, 4 more of 15 s of tp; a tenth slows."""
    how = Hide("layer", slow=0.1)
    comm = sends("cp", 23.0) + sends("ep", 7.0) + sends("tp", 29.0)
    ops = [op("a/b", 20.0, comm=comm)]
    found = timer(Overlap(tp=how, cp=how, ep=how)).layer(ops).causes.forward
    assert (found.cp_comm, found.ep_comm) == pytest.approx((0.0, 0.0))
    assert found.tp_comm == pytest.approx(11.0)
    assert found.overlap_slowdown == pytest.approx(0.1 * (12 + 4 + 4))


def test_messages_beside_weight_gradients() -> None:
    """Backward 40 s, half of them weight gradients: of 30 s of tp 20 hide; they last 10 s more."""
    how = Overlap(tp=Hide("weight gradient"))
    ops = [op("ffn/up", 20.0, comm=sends("tp", 9.0), back=sends("tp", 59.0))]
    found = timer(how).layer(ops)
    assert [each.tp_comm for each in found.causes] == [5.0, 10.0]
    assert found.weight_pass == pytest.approx(20.0 + 10.0)
    plain = timer().layer(ops)
    assert plain.weight_pass == pytest.approx(20.0)
    vector = op("ffn/add", 20.0, kind="vector")
    assert timer().layer([vector]).weight_pass == 0.0
    parts = (Pass(7.0, memory=1.0), Pass(3.0, memory=5.0))
    apart = ops[0]._replace(backward=Pass(10.0, memory=6.0, parts=parts))
    assert timer().layer([apart]).weight_pass == pytest.approx(5.0)


def test_messages_of_experts_hide_behind_shared_ones_alone() -> None:
    """Forward 10 s of shared experts beside 24 s of messages, backward 20 s beside 30 s; neither
    attention nor the experts that wait for the messages hide any.
    """
    ops = [
        op("attention/core", 100.0),
        op("experts/dispatch", 1.0, comm=sends("tp", 47.0)),
        op("experts/up", 100.0, back=sends("tp", 59.0)),
        op("shared/up", 6.0),
        op("shared/down", 4.0),
    ]
    how = Overlap(cp=Hide("layer"), tp=Hide("shared expert"))
    causes = timer(how).layer(ops).causes
    assert [each.tp_comm for each in causes] == [24.0 - 10.0, 30.0 - 20.0]
    lonely = timer(how).layer(ops[:3]).causes
    assert [each.tp_comm for each in lonely] == [24.0, 30.0]
    keys = [op("attention/core", 12.0, comm=sends("cp", 23.0)), *ops[1:]]
    apart = timer(how).layer(keys).causes.forward
    left = 10.0 * (1.0 - 12.0 / (12.0 + 101.0 + 10.0))
    assert apart.cp_comm == 0.0 and apart.tp_comm == pytest.approx(24.0 - left)


def test_budgets_of_operations() -> None:
    halves = [
        PassCost(scope, Seconds(), NOTHING) for scope in ("a", "b", "a", "b")
    ]
    of = [0, 0, 1, 1]
    assert scopes(halves, of, "step") == [[0, 1, 2, 3]]
    assert scopes(halves, of, "operation") == [[0], [1], [2], [3]]
    assert scopes(halves, of, "weight gradient") == [[2], [3]]
    assert scopes(halves, of, "layer") == [[0, 1], [2, 3]]
    assert scopes(halves, [0, 0, 0, 1], "sublayer") == [[0, 2], [1], [3]]
    halves = [
        PassCost(part, Seconds(), NOTHING)
        for part in ("experts", "indexer", "shared")
    ]
    assert scopes(halves, [0, 0, 0], "sublayer") == [[0, 2], [1]]


def test_sums_of_a_layer() -> None:
    ops = [
        op("a/x", 1.0, saved=5.0, weights=7.0),
        op("b/x", 2.0, saved=11.0, weights=13.0, expert=True),
    ]
    found = timer().layer(ops, ways={"mlp": "b/x"}, boundary=3.0)
    assert (found.saved, found.weights, found.expert_weights) == (16, 7, 13)
    assert found.recompute["mlp"].time == 2.0
    assert timer().layer([]).forward == 0.0


def test_a_part_of_the_model_behind_another() -> None:
    one = LayerCost(
        1.0, 2.0, Load(3.0, 0.0, Busy((3.0,))), NOTHING,
        0.5, 4.0, 5.0, 6.0,
        causes=Causes(Seconds(1.0), Seconds(2.0)),
    )  # fmt: skip
    whole = in_sequence(one, 3.0, one)
    assert whole.forward == whole.causes.forward.compute == 4.0
    assert whole.backward == whole.causes.backward.compute == 8.0
    assert (whole.weight_pass, whole.saved) == (2.0, 16.0)
    assert (whole.weights, whole.expert_weights) == (20.0, 24.0)
    assert whole.sent.busy == pytest.approx((12.0,))
    cost = PassCost("a", Seconds(2.0), Load(4.0, 0.0, Busy((4.0,))))
    assert cost.share(1.0) is cost and cost.share(0.5).time.compute == 1.0


# Small counts.


def test_sizes_on_a_device() -> None:
    job = Job(Model("m", 1, 10, 2, 16, vocab=0, seq=96), NOWHERE, 3)
    layout = Layout(tp=2, cp=4, dp=1, microbatch=3)
    microbatch = DeviceMicrobatch.from_layout(job, layout)
    assert (
        microbatch.b,
        microbatch.T,
        microbatch.tokens,
        microbatch.shard,
    ) == (3, 96, 72, 36)
    assert (microbatch.tp, microbatch.cp, microbatch.hidden_cut) == (
        2,
        4,
        False,
    )
    without = replace(layout, sequence_parallel=False)
    assert DeviceMicrobatch.from_layout(job, without).shard == 72
    # all tokens and half of the hidden size
    cut = DeviceMicrobatch.from_layout(job, replace(layout, scheme="gspmd"))
    assert (cut.shard, cut.part(10), microbatch.part(10)) == (
        72,
        5,
        10,
    )
    plain = Op("a", "vector", Pass(), Pass())
    assert plain._replace(inputs=3.0).needed == 3.0
    assert plain._replace(inputs=3.0, needs=0.0).needed == 0.0
