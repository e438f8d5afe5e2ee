"""Scheme gspmd against a layer that is carried out chip by chip: what each sends, computes and keeps
is what `count` says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from meshwright import Job, Layout, Model
from meshwright.count.microbatch import DeviceMicrobatch
from meshwright.count.model import layer
from meshwright.count.work import Op
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.layers import Kind
from meshwright.layout.placement import placed

torch = pytest.importorskip("torch")
import two_axes  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from two_axes import Shape, run  # noqa: E402

pytestmark = pytest.mark.oracle
TINY = Shape(b=4, T=6, D=16, H=4, K=4, F=24)
SHARE = {
    "all_gather": 1.0,
    "reduce_scatter": 1.0,
    "all_reduce": 2.0,
}
"""Of (n - 1)/n of the full vector, what each of n ranks receives."""


def counted(X: int, Y: int, s: Shape) -> tuple[Job, Layout, list[Op]]:
    """The same layer as `count` has it: X replicas of b / X sequences."""
    model = Model(
        "tiny",
        1,
        s.D,
        s.H,
        s.F,
        vocab=0,
        seq=s.T,
        kv_heads=s.K,
        gated=False,
        norm="rmsnorm" if s.rms else "layernorm-scale",
        attention="full",
    )
    inputs = "regathered" if s.regathered else "kept"
    count = replace(
        REALISTIC.count,
        causal="full",
        gathered_inputs=inputs,
        backward_needs="fused",
    )
    layout = placed(
        Layout(tp=Y, dp=X, zero=3, microbatch=s.b // X, scheme="gspmd"),
        (1, X * Y),
    )
    job = Job(
        model,
        NOWHERE,
        s.b,
        layout,
        assumptions=replace(REALISTIC, count=count),
        attention_kernel="unfused",
    )
    return job, layout, layer(job, layout, Kind(None, False))


def received(ops: list[Op], X: int, Y: int) -> Counter[tuple[str, str]]:
    """Bytes that all chips receive: over y by the messages, over x a gather of weights forward, and
    a reduce-scatter of gradients as wide backward (ZeRO-3; here whole weights stay for the backward
    pass)."""
    found: Counter[tuple[str, str]] = Counter()
    for op in ops:
        for way in ("forward", "backward"):
            for m in getattr(op, way).comm:
                n = {"tp": Y, "cp": 1}[m.axis]
                each = SHARE[m.kind] * (n - 1) / n * m.bytes
                found["y", way] += X * Y * each
    matrices = sum(op.weights for op in ops if op.kind == "matmul") * 2
    for way in ("forward", "backward"):
        found["x", way] += X * Y * (X - 1) / X * matrices
    return found


@pytest.mark.parametrize(
    "s",
    [
        TINY,
        replace(TINY, K=2),
        replace(TINY, T=5, F=20, rms=True, regathered=True),
    ],
    ids=["layer norm", "grouped", "odd, rms, gathered again"],
)
@pytest.mark.parametrize("mesh", [(2, 2), (4, 2), (1, 4)])
def test_bytes_on_the_wires_are_those_of_the_scheme(
    mesh: tuple[int, int], s: Shape
) -> None:
    """Over both axes, both ways; and the mesh computes what one chip does."""
    X, Y = mesh
    if s.K % Y:
        pytest.skip("copies of key heads are not simulated")
    one, found = run(1, 1, s), run(X, Y, s)
    assert torch.allclose(found.out, one.out, rtol=1e-9, atol=1e-12)
    for name, gradient in one.gradients.items():
        assert torch.allclose(
            found.gradients[name], gradient, rtol=1e-8, atol=1e-10
        ), name
    job, layout, ops = counted(X, Y, s)
    expected = received(ops, X, Y)
    assert {k: v for k, v in found.received.items() if v} == pytest.approx(
        {k: v for k, v in expected.items() if v}
    )
    # between layers a chip holds B_X D_Y
    assert DeviceMicrobatch.from_layout(job, layout).boundary == found.held * 2


def test_flops_are_those_of_the_scheme() -> None:
    s = TINY
    with FlopCounterMode(display=False) as counter:
        run(2, 2, s)
    _, _, ops = counted(2, 2, s)
    each = sum(op.forward.matrix + op.backward.matrix for op in ops)
    assert counter.get_total_flops() == 4 * each


def test_the_simulation_is_no_formula() -> None:
    """By hand, 2 x 2: 4 sequences of 6 tokens, D 16. Forward over y: two gathers and two scatters of
    2 x 6 x 16 numbers of 2 B a row of chips, half of which each of its two chips lacks, and two
    statistics of 2 x 2 x 6 numbers of 4 B, reduced twice by halves."""
    wide = 2 * 6 * 16 * 2
    statistics = 2 * 2 * 6 * 4
    assert run(2, 2, TINY).received["y", "forward"] == 2 * 2 * (
        4 * wide / 2 + 2 * statistics
    )
    assert two_axes.NUMBER == 2
