"""`limits` and `predict` time the same step: one block of the paper's MLP, cut in both of its
dimensions.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright import Dim, Job, Layout, Model, Network
from meshwright.count.mlp2d import mlp2d_parameters
from meshwright.describe.assumptions import (
    EPOCH,
    NOT_HIDDEN,
    Assumptions,
    Hide,
    HidePass,
)
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.frozen import put, with_values
from meshwright.limits import Scenario, preset
from meshwright.limits.laws import LAWS, LawShape, shape
from meshwright.limits.simulate import (
    AXES,
    Degrees,
    Groups,
    StepSeconds,
    simulate,
)
from meshwright.step import clock_of, model_cost, whole_step

from .brute import two_levels

H100 = preset("h100")
FLAT = Network("one switch", (Dim("switch", 450e9, 0.0, efficiency=1.0),))
"""Without latency, which the paper pays once a step, for the first microbatch, and `predict` with
every message.
"""
LEVELS = Network(
    "two levels",
    (
        Dim("nvlink", 450e9, 0.0, efficiency=1.0, size=8),
        Dim("infiniband", 50e9, 0.0, efficiency=1.0),
    ),
)


def by_limits(
    s: LawShape, d: Degrees, how: Assumptions, on: Network, places: Groups
) -> StepSeconds:
    """The step that `limits` places on the network."""
    scenario = Scenario("by limits", H100.chip, on, assumptions=how)
    return simulate(scenario.machine, s, d, places)


def by_step(
    s: LawShape, d: Degrees, how: Assumptions, on: Network, places: Groups
) -> float:
    """Seconds of the step of `predict` under scheme mlp2d."""
    job, layout = as_job(s, d, how, on, places)
    at = clock_of(job)
    # what goes from stage to stage the paper counts block by block, and `step` once more while the
    # pipeline fills
    parts = model_cost(job, layout, at)._replace(message=0.0)
    return float(whole_step(job, layout, parts, at).total)


def as_job(
    s: LawShape, d: Degrees, how: Assumptions, on: Network, places: Groups
) -> tuple[Job, Layout]:
    """The same for `predict`: of one expert of a block, as EP is E."""
    model = Model(
        "mlp",
        int(s.L),
        int(s.D),
        1,
        int(s.F),
        vocab=0,
        seq=int(s.batch / (s.E * d.dp * d.microbatches)),
        pattern=("none",),
        gated=False,
    )
    rounds = "interleaved" if d.interleave > 1 else "1f1b"
    axes = {"tp": "tp_ff", "cp": "tp_model", "dp": "dp", "pp": "pp"}
    layout = Layout(
        scheme="mlp2d",
        **{axis: int(getattr(d, name)) for axis, name in axes.items()},
        schedule="zb-h2" if d.zero_bubble else rounds,
        interleave=int(d.interleave),
        placement={axis: places[name] for axis, name in axes.items()},
    )
    # more chips than a description may have
    cluster = with_values(
        NOWHERE, chip=H100.chip, network=on, chips=layout.chips
    )
    job = Job(
        model,
        cluster,
        int(d.dp * d.microbatches),
        layout,
        precision=H100.precision,
        assumptions=how,
    )
    return job, layout


SETS = {
    "epoch-2024": EPOCH,
    "nothing hides": put("overlap.tp", NOT_HIDDEN)(EPOCH),
    "half of the products hides, and slows them": put(
        "overlap.tp", Hide("step", 0.5, 0.25)
    )(EPOCH),
    "gradients too, on links of their own": put(
        "overlap.dp", HidePass("step", links="free")
    )(EPOCH),
    "gradients too, on the same links": put("overlap.dp", HidePass("step"))(
        EPOCH
    ),
}
POWER = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=40, deadline=None)
@given(
    width=st.sampled_from([2048.0, 12288.0]),
    ranks=st.tuples(POWER, POWER, POWER),
    m=st.sampled_from([1, 4, 64, 1024]),
)
def test_a_block_takes_what_the_step_says(
    name: str, width: float, ranks: tuple[int, int, int], m: int
) -> None:
    s, d = shape(LAWS["baseline"], width), Degrees(*ranks, 1, 1, m, 1, 0)
    at = FLAT, {axis: (float(getattr(d, axis)),) for axis in AXES}
    assert by_step(s, d, SETS[name], *at) == pytest.approx(
        float(by_limits(s, d, SETS[name], *at).total), rel=1e-12
    )


LEVEL = st.sampled_from([1, 2, 4])
BEHIND_PRODUCTS = ("epoch-2024", "gradients too, on links of their own")
"""Sets whose tensor traffic hides behind the products and slows none of them (the passes stay equal
thirds), on links that gradients leave alone."""


@pytest.mark.parametrize("name", BEHIND_PRODUCTS)
@pytest.mark.parametrize("experts", [1, 8])
@settings(max_examples=40, deadline=None)
@given(
    ranks=st.tuples(LEVEL, LEVEL, LEVEL, LEVEL),
    axis=st.sampled_from(["tp_model", "tp_ff"]),
    schedule=st.sampled_from(["1f1b", "interleaved", "zb-h2"]),
    pp=st.sampled_from([1, 2, 4]),
    rounds=st.sampled_from([2, 4, 64]),
)
def test_so_does_one_in_a_pipeline_on_two_levels(
    name: str,
    experts: int,
    ranks: tuple[int, int, int, int],
    axis: str,
    schedule: str,
    pp: int,
    rounds: int,
) -> None:
    """Collectives over two levels, stages in any order, experts on chips of their own; where
    messages between blocks, which the paper counts block by block, hide behind the products with
    all the rest."""
    near, far, dp_near, dp_far = ranks
    s = shape(LAWS["baseline"], 12288.0)._replace(L=96.0, E=float(experts))
    s = s._replace(parameters=mlp2d_parameters(s.L, s.E, s.D, s.F))
    d = Degrees(
        dp_near * dp_far,
        near * far if axis == "tp_model" else 1,
        near * far if axis == "tp_ff" else 1,
        pp,
        experts,
        pp * rounds,
        96 // pp if schedule == "interleaved" and pp > 1 else 1,
        float(schedule == "zb-h2"),
    )
    low = {"dp": dp_near, axis: near}
    at = LEVELS, two_levels(d, [low.get(other, 1) for other in AXES])
    whole = by_limits(s, d, SETS[name], *at)
    hides = SETS[name].overlap.tp.share * float(whole.matmul)
    assume(float(whole.tp + whole.p2p) < hides)
    # the paper takes the three passes of zero bubble as equally long
    nearly = 1e-2 if d.zero_bubble else 1e-12
    assert by_step(s, d, SETS[name], *at) == pytest.approx(
        float(whole.total), rel=nearly
    )
