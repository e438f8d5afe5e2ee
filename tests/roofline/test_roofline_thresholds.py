"""Closed forms of the scaling book against the times they come from, and its refinements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Model, MoE
from meshwright.catalog import cluster, model
from meshwright.describe.assumptions import BOOK_SUM
from meshwright.describe.frozen import put
from meshwright.describe.job import PRECISIONS
from meshwright.num import crossing
from meshwright.roofline import thresholds as th
from meshwright.roofline.memory import (
    checkpoints,
    per_chip,
    states,
)
from meshwright.roofline.mesh import mesh
from meshwright.roofline.queries import roofline
from meshwright.roofline.work import LayerSetting
from meshwright_studies.reproduce.scaling_book.ideal import (
    Ideal,
)

TOY = Model("toy", 1, 8192, 64, 32768, 0, 8192, gated=False)
MESH = mesh(cluster("4096xbook-tpu-v5p"), "bf16", BOOK_SUM)
LLAMA, OSS = model("llama3-70b"), model("gpt-oss-120b")
A = MESH.flops / 1.8e11
# fewer kv heads than Y are copied, which closed forms do not know
MHA = replace(LLAMA, kv_heads=64)
EXPERTS = replace(TOY, moe=MoE(8, 2, 32768))
MODELS = [
    (TOY, "book"),
    (LLAMA, "mlp"),
    (MHA, "projections"),
    (EXPERTS, "book"),
]


@pytest.mark.parametrize(("m", "layer"), MODELS)
@pytest.mark.parametrize("edition", ["sum", "max"])
@pytest.mark.parametrize(("m_x", "m_y"), [(2, 1), (1, 2), (1, 1)])
def test_closed_forms_are_where_the_times_cross(m, layer, edition, m_x, m_y):
    s, n = LayerSetting(m, layer), MESH.chips
    one = s.per_token
    rates = A / m_x, A / m_y
    first = th.mixed_tokens(one, *rates, edition) * n
    for batch in (first, 3 * first):
        x = th.best_split(one, batch, n, *rates)
        # of the best split, and of two others, which are worse
        best, *others = (
            Ideal(y, n / y, m_x, m_y).times(s, MESH, batch).ratio(edition)
            for y in (x, 0.8 * x, 1.25 * x)
        )
        ratio = th.best_ratio(one, batch, n, *rates, edition)
        assert ratio == pytest.approx(best, rel=1e-9)
        assert max(others) < best
        if batch == first:
            assert best == pytest.approx(1, rel=1e-9)


def test_data_and_tensor_thresholds():
    s = LayerSetting(TOY)
    one = s.per_token
    assert th.data_tokens(one, A) == pytest.approx(2550)
    alone = Ideal(64, 1, 1, 0).threshold(s, MESH, "sum")
    assert alone == pytest.approx(64 * th.data_tokens(one, A), rel=1e-9)
    y = th.tensor_degree(one, A)
    assert y == pytest.approx(32768 / 2550)
    ratio = Ideal(1, y, 0, 1).times(s, MESH, 1e6).ratio("sum")
    assert ratio == pytest.approx(1, rel=1e-9)
    assert th.tensor_degree(one, A, below=8) == pytest.approx(8 + y)


def test_refinements_of_the_layer():
    """Gated: 1.5 F for tensor parallelism, FSDP unchanged; with attention projections (1.5 F + N H
    + K H)/2.
    """
    book, mlp, projections = (
        LayerSetting(LLAMA, layer).per_token
        for layer in ("book", "mlp", "projections")
    )
    assert book.width == 28672 and mlp.width == 1.5 * 28672
    assert projections.width == (1.5 * 28672 + 64 * 128 + 8 * 128) / 2 == 26112
    assert book.density == mlp.density == projections.density == 1
    assert LayerSetting(LLAMA, "block").per_token.width > 26112
    experts = LayerSetting(OSS).per_token
    assert (experts.density, experts.width) == (128 / 4, 2880)
    narrow = LayerSetting(TOY, precision=PRECISIONS["fp8"])
    assert narrow.per_token.density == 0.5


def totals(setting, tokens, tp):
    """FLOPs and bytes sent of each pass, and weights."""
    ops = setting.ops(setting.on(tokens, tp=tp))
    passes = [
        [getattr(op, name) for op in ops] for name in ("forward", "backward")
    ]
    flops = [sum(work.matrix for work in each) for each in passes]
    sent = [
        sum(m.bytes for work in each for m in work.comm) for each in passes
    ]
    return [*flops, *sent, sum(op.weights for op in ops)]


def test_backward_moves_as_much_for_twice_the_work():
    forward, backward, sends, returns, _ = totals(LayerSetting(TOY), 1024.0, 8)
    assert backward == 2 * forward == 8 * 1024 * 8192 * 32768 / 8
    assert sends == returns == 4 * 1024 * 8192
    again = put("count.gathered_inputs", "regathered")(BOOK_SUM)
    setting = LayerSetting(TOY, assumptions=again)
    assert totals(setting, 1024.0, 8)[3] == 6 * 1024 * 8192


def test_crossing():
    assert crossing(lambda x: x - 7e5) == pytest.approx(7e5, rel=1e-12)
    assert crossing(lambda x: -1.0) is None
    assert crossing(lambda x: x + 1) == 1.0


def test_memory():
    assert states(1.0) == 10 and states(1.0, habit="full") == 18
    assert checkpoints(32, 1e6, 4096) == 2 * 32 * 1e6 * 4096
    assert per_chip(1e9, 0.0, 8, 1) == 1e10
    assert per_chip(1e9, 8e9, 8, 8) == 1e10 / 8 + 1e9


def test_a_batch_without_room_is_cut_into_microbatches() -> None:
    """A gigabyte a chip beside states of 8: of a batch whose checkpoints take 6 a chip, six
    microbatches; where the states fill the chip, none; and each is compute-bound if it has the
    tokens that bind.
    """
    r = roofline(TOY, "8xh100-sxm", 8 * 2**20)
    one = r.schemes[1]
    states_bytes = one.memory_bytes - r.kept_bytes
    assert one.name == "FSDP" and one.least_batch_sum_tokens
    assert r.kept_bytes == 2 * 8 * 2**20 * 8192 / 8
    for parts in (1, 2, 6):
        room = replace(r, capacity_bytes=states_bytes + r.kept_bytes / parts)
        assert room.microbatches(one) == parts
        tokens = r.batch_tokens / parts
        for times, bound in ((0.99, True), (1.01, False)):
            other = replace(one, least_batch_sum_tokens=times * tokens)
            if parts > 1:
                assert room.compute_bound(other, "sum") == bound
    full = replace(r, capacity_bytes=states_bytes)
    assert full.microbatches(one) == 0 and not full.compute_bound(one, "sum")
