"""`limits` and `predict` time the same step: one block of the paper's MLP, cut in both of its
dimensions.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.cost.links import Group
from meshwright.count.mlp2d import parameters
from meshwright.count.model import layer
from meshwright.describe.assumptions import (
    EPOCH,
    NOT_HIDDEN,
    Assumptions,
    Hide,
    HidePass,
)
from meshwright.describe.cluster import NOWHERE
from meshwright.describe.frozen import changed
from meshwright.describe.job import Job
from meshwright.describe.layers import kinds
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.limits import Scenario, preset
from meshwright.limits.curve import curve
from meshwright.limits.laws import LAWS, Shape, shape
from meshwright.limits.simulate import AXES, Degrees, Step, simulate
from meshwright.step import body, clock, step

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
Places = dict[str, Group]
"""axis -> how many of its ranks lie in each dimension."""


def flat(d: Degrees) -> Places:
    """All axes on one dimension."""
    return {axis: (float(getattr(d, axis)),) for axis in AXES}


def by_limits(
    s: Shape,
    d: Degrees,
    how: Assumptions,
    on: Network = FLAT,
    places: Places | None = None,
) -> Step:
    """The step that `limits` places on the network."""
    scenario = Scenario("flat", H100.chip, on, assumptions=how)
    return simulate(scenario.machine, s, d, places or flat(d))


def by_step(
    s: Shape,
    d: Degrees,
    how: Assumptions,
    on: Network = FLAT,
    places: Places | None = None,
) -> float:
    """Seconds of the step of `predict` under scheme mlp2d."""
    job, layout = as_job(s, d, how, on, places)
    at = clock(job)
    # what goes from stage to stage the paper counts block by block, and `step` once more while the
    # pipeline fills
    parts = body(job, layout, at)._replace(message=0.0)
    return float(step(job, layout, parts, at).total)


def as_job(
    s: Shape,
    d: Degrees,
    how: Assumptions,
    on: Network = FLAT,
    places: Places | None = None,
) -> tuple[Job, Layout]:
    """The same for `predict`: of one expert of a block, as EP is E."""
    scenario = Scenario("flat", H100.chip, on, assumptions=how)
    tokens = s.batch / (s.E * d.dp * d.microbatches)
    model = Model(
        "mlp",
        int(s.L),
        int(s.D),
        1,
        int(s.F),
        vocab=0,
        seq=int(tokens),
        pattern=("none",),
        gated=False,
    )
    lie = places or flat(d)
    layout = Layout(
        scheme="mlp2d",
        tp=int(d.tp_ff),
        cp=int(d.tp_model),
        dp=int(d.dp),
        pp=int(d.pp),
        schedule="zb-h2"
        if d.zero_bubble
        else "interleaved"
        if d.interleave > 1
        else "1f1b",
        interleave=int(d.interleave),
        placement={
            "tp": lie["tp_ff"],
            "cp": lie["tp_model"],
            "dp": lie["dp"],
            "pp": lie["pp"],
        },
    )
    # more chips than a description may have
    cluster = changed(NOWHERE, chip=H100.chip, network=on, chips=layout.chips)
    job = Job(
        model,
        cluster,
        int(d.dp * d.microbatches),
        layout,
        precision=scenario.precision,
        assumptions=how,
    )
    return job, layout


def under(**overlap: Hide) -> Assumptions:
    """The paper's set with other choices of what hides."""
    return replace(EPOCH, overlap=replace(EPOCH.overlap, **overlap))


SETS = {
    "epoch-2024": EPOCH,
    "nothing hides": under(tp=NOT_HIDDEN),
    "half of the products hides, and slows them": under(
        tp=Hide("step", 0.5, 0.25)
    ),
    "gradients too, on links of their own": under(
        dp=HidePass("step", links="free")
    ),
    "gradients too, on the same links": under(dp=HidePass("step")),
}
POWER = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=40, deadline=None)
@given(
    width=st.sampled_from([2048.0, 12288.0]),
    dp=POWER,
    up=POWER,
    ff=POWER,
    m=st.sampled_from([1, 4, 64, 1024]),
)
def test_a_block_takes_what_the_step_says(
    name: str, width: float, dp: int, up: int, ff: int, m: int
) -> None:
    s, d = shape(LAWS["baseline"], width), Degrees(dp, up, ff, 1, 1, m, 1, 0)
    assert by_step(s, d, SETS[name]) == pytest.approx(
        float(by_limits(s, d, SETS[name]).total), rel=1e-12
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
    ranks: tuple[int, ...],
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
    s = s._replace(parameters=parameters(s.L, s.E, s.D, s.F))
    degrees = {"tp_model": 1, "tp_ff": 1, axis: near * far}
    chunks = 96 // pp if schedule == "interleaved" and pp > 1 else 1
    bubbles = float(schedule == "zb-h2")
    d = Degrees(
        dp_near * dp_far,
        degrees["tp_model"],
        degrees["tp_ff"],
        pp,
        experts,
        pp * rounds,
        chunks,
        bubbles,
    )
    places: Places = {other: (1.0, float(getattr(d, other))) for other in AXES}
    places |= {
        axis: (float(near), float(far)),
        "dp": (float(dp_near), float(dp_far)),
    }
    found = by_limits(s, d, SETS[name], LEVELS, places)
    assume(
        float(found.tp + found.p2p)
        < SETS[name].overlap.tp.share * float(found.matmul)
    )
    # the paper takes the three passes of zero bubble as equally long
    nearly = 1e-2 if d.zero_bubble else 1e-12
    assert by_step(s, d, SETS[name], LEVELS, places) == pytest.approx(
        float(found.total), rel=nearly
    )


def test_the_choices_of_that_test_differ() -> None:
    """Every set gives another time, where traffic outlasts half of the products or gradients the
    rest.
    """
    s = shape(LAWS["baseline"], 2048.0)
    some = [
        Degrees(dp, 8, 8, 1, 1, m, 1, 0)
        for dp, m in ((8, 4), (8, 1024), (1, 64))
    ]
    assert len(
        {
            tuple(float(by_limits(s, d, how).total) for d in some)
            for how in SETS.values()
        }
    ) == len(SETS)


def test_points_of_the_published_curve_are_layouts_of_any_job() -> None:
    """Of the paper's curve for the H100, every sixth model as a job under scheme mlp2d: the seconds
    of its products and what its chips hold are those of `limits` to the last digits."""
    scenario = H100
    on = scenario.joined
    for p in curve(scenario).points[::6]:
        d = p.degrees
        places: Places = {
            axis: (float(low[0]), float(getattr(d, axis)) / low[0])
            for axis, low in zip(AXES, p.lower, strict=True)
        }
        s = Shape(*map(float, shape(scenario.law, p.hidden)))
        job, layout = as_job(s, d, EPOCH, on, places)
        block = body(job, layout, details=True).typical
        products = sum(half.compute + half.memory for half in block.causes)
        often = s.L / d.pp * d.microbatches
        assert float(products * often) == pytest.approx(
            float(p.step.matmul), rel=1e-12
        )
        held = sum(
            op.weights for op in layer(job, layout, kinds(job.model)[0])
        )
        per_chip = held * s.L / d.pp
        assert per_chip == pytest.approx(s.parameters / d.shards, rel=1e-12)
