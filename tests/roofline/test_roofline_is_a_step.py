"""A roofline is a step of one layer: `predict` of a model with one layer takes as long, whichever
edition of the book.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import set_to
from meshwright import Job, Layout, Model, predict
from meshwright.catalog import cluster
from meshwright.describe.assumptions import (
    BOOK_MAX,
    BOOK_SUM,
    EPOCH,
    Assumptions,
    Hide,
    HidePass,
)
from meshwright.describe.frozen import put
from meshwright.roofline.mesh import mesh, place
from meshwright.roofline.schemes import (
    data_parallel,
    pipeline,
    sharded_data_parallel,
)
from meshwright.roofline.splits import splits
from meshwright.roofline.times import EDITIONS, Asked, layer_step
from meshwright.roofline.work import LayerSetting

# no norms: a roofline leaves their few parameters out
ONE = Model(
    "one layer", 1, 8192, 64, 28672, 0, 4096, kv_heads=8, norm="nonparametric"
)
LINE = "16xh100-sxm"
EDITION = {"sum": BOOK_SUM, "max": BOOK_MAX}


def asked(
    how: Assumptions, batch: float, on: str = LINE, shown: Model = ONE
) -> Asked:
    """A roofline of a whole layer."""
    setting = LayerSetting(shown, "block", assumptions=how)
    return Asked(setting, mesh(cluster(on), "bf16", how), batch)


def seconds(how: Assumptions, batch: int, zero: int, tp: int = 1) -> float:
    """What `predict` says, attention included."""
    dp = 16 // tp
    layout = Layout(tp=tp, dp=dp, zero=zero, microbatch=batch // dp)
    return predict(Job(ONE, LINE, batch, layout, assumptions=how)).step_time_s


@pytest.mark.parametrize(
    "how",
    [
        BOOK_SUM,
        BOOK_MAX,
        put("overlap.dp", HidePass("pass"))(BOOK_MAX),
        put("overlap.tp", Hide("sublayer", 0.5, 0.1))(BOOK_SUM),
        set_to(
            set_to(BOOK_SUM, "chip.model", "roofline"), "chip.launch_s", 1e-5
        ),
        # level by level, on the memory hierarchy, nothing hidden
        replace(EPOCH, precision=BOOK_SUM.precision),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("batch", [16, 64])
@pytest.mark.parametrize("tp", [1, 4, 8, 16])
def test_a_split_takes_what_predict_says(
    how: Assumptions, batch: int, tp: int
) -> None:
    """FSDP, tensor parallelism and both, in a node and over two, bound by either."""
    of, dp, near = asked(how, batch * 4096), 16 // tp, min(tp, 8)
    groups = {
        "tp": place(of.mesh, (near, tp // near)),
        "replicas": place(of.mesh, (8 // near, dp * near // 8)),
    }
    ours = layer_step(of.setting, of.mesh, of.batch / dp, groups).step_s
    assert ours == pytest.approx(seconds(how, batch, 3, tp), rel=1e-12)


@pytest.mark.parametrize("edition", EDITIONS)
def test_each_pass_takes_the_longer_of_compute_and_communication(
    edition: str,
) -> None:
    """T = max(T_math, T_comms) forward and backward, on every split of a torus."""
    of = asked(EDITION[edition], 6e4, "64xbook-tpu-v5p")
    rows = list(splits(replace(of, setting=replace(of.setting, layer="book"))))
    assert len(rows) > 20
    for row in rows:
        both = row.at(6e4)
        passes = (
            max(t.compute, t.comm(edition))
            for t in (both.forward, both.backward)
        )
        assert both.step_s == pytest.approx(sum(passes), rel=1e-12)


@pytest.mark.parametrize("how", [BOOK_SUM, BOOK_MAX])
def test_the_rows_of_data_parallelism_are_steps(how: Assumptions) -> None:
    for row, zero in ((data_parallel, 0), (sharded_data_parallel, 3)):
        ours = row(asked(how, 32 * 4096)).step_s
        assert ours == pytest.approx(seconds(how, 32, zero), rel=1e-12)


@pytest.mark.parametrize("layers", [8, 12, 15])
@pytest.mark.parametrize("how", [BOOK_SUM, BOOK_MAX])
def test_so_is_the_row_of_the_pipeline(how: Assumptions, layers: int) -> None:
    """Of stages that do not hold equally many layers the fullest sets the pace."""
    deep, line = replace(ONE, layers=layers), "8xh100-sxm"
    job = Job(deep, line, 16, Layout(pp=8, dp=1, zero=3), assumptions=how)
    row = pipeline(asked(how, 16 * 4096, line, deep), 8, 16)
    assert row.step_s == pytest.approx(predict(job).step_time_s, rel=1e-12)
