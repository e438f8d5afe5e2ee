"""A roofline is a step of one layer: `predict` of a model with one layer takes as long, whichever
edition of the book.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

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


def seconds(
    how: Assumptions, batch: int, zero: int, tp: int, dp: int, on: str = LINE
) -> float:
    """What `predict` says, attention included."""
    return predict(
        Job(
            ONE,
            on,
            batch,
            Layout(tp=tp, dp=dp, zero=zero, microbatch=batch // dp),
            assumptions=how,
        )
    ).step_time_s


@pytest.mark.parametrize(
    "how",
    [
        BOOK_SUM,
        BOOK_MAX,
        replace(
            BOOK_MAX, overlap=replace(BOOK_MAX.overlap, dp=HidePass("pass"))
        ),
        replace(
            BOOK_SUM,
            overlap=replace(
                BOOK_SUM.overlap, tp=Hide("sublayer", share=0.5, slow=0.1)
            ),
        ),
        replace(
            BOOK_SUM,
            chip=replace(BOOK_SUM.chip, model="roofline", launch_s=1e-5),
        ),
        # level by level, on the memory hierarchy, nothing hidden
        replace(EPOCH, precision=BOOK_SUM.precision),
    ],
    ids=range(6),
)
@pytest.mark.parametrize("batch", [16, 64])
@pytest.mark.parametrize(("tp", "dp"), [(1, 16), (8, 2), (4, 4), (16, 1)])
def test_a_split_takes_what_predict_says(
    how: Assumptions, batch: int, tp: int, dp: int
) -> None:
    """FSDP, tensor parallelism and both, in a node and over two, bound by either."""
    m, setting = (
        mesh(cluster(LINE), "bf16", how),
        LayerSetting(ONE, "block", assumptions=how),
    )
    near = min(tp, 8)
    groups = {
        "tp": place(m, (near, tp // near)),
        "replicas": place(m, (8 // near, dp * near // 8)),
    }
    ours = layer_step(setting, m, batch * 4096 / dp, groups).step_s
    assert ours == pytest.approx(seconds(how, batch, 3, tp, dp), rel=1e-12)


@pytest.mark.parametrize("edition", EDITIONS)
def test_each_pass_takes_the_longer_of_compute_and_communication(
    edition: str,
) -> None:
    """T = max(T_math, T_comms) forward and backward, on every split of a torus."""
    how = EDITION[edition]
    m = mesh(cluster("64xbook-tpu-v5p"), "bf16", how)
    found = list(splits(Asked(LayerSetting(ONE, assumptions=how), m, 6e4)))
    assert len(found) > 20
    for split in found:
        both = split.at(6e4)
        passes = [
            max(t.compute, t.comm(edition))
            for t in (both.forward, both.backward)
        ]
        assert both.step_s == pytest.approx(sum(passes), rel=1e-12)


@pytest.mark.parametrize("how", [BOOK_SUM, BOOK_MAX])
def test_the_rows_of_data_parallelism_are_steps(how: Assumptions) -> None:
    m, setting = (
        mesh(cluster(LINE), "bf16", how),
        LayerSetting(ONE, "block", assumptions=how),
    )
    for row, zero in ((data_parallel, 0), (sharded_data_parallel, 3)):
        ours = row(Asked(setting, m, 32 * 4096)).step_s
        assert ours == pytest.approx(seconds(how, 32, zero, 1, 16), rel=1e-12)


@pytest.mark.parametrize("layers", [8, 12, 15])
@pytest.mark.parametrize("how", [BOOK_SUM, BOOK_MAX])
def test_so_is_the_row_of_the_pipeline(how: Assumptions, layers: int) -> None:
    """Of stages that do not hold equally many layers the fullest sets the pace."""
    deep, line = replace(ONE, layers=layers), "8xh100-sxm"
    on = mesh(cluster(line), "bf16", how)
    asked = Asked(LayerSetting(deep, "block", assumptions=how), on, 16 * 4096)
    layout = Layout(pp=8, dp=1, zero=3)
    job = Job(deep, line, 16, layout, assumptions=how)
    assert pipeline(asked, 8, 16).step_s == pytest.approx(
        predict(job).step_time_s, rel=1e-12
    )
