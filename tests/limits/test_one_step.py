"""`limits` and `predict` time the same step: one block of the paper's MLP, cut in both of its dimensions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.layer import LayerCost, Timer
from meshwright.cost.links import Group
from meshwright.describe.assumptions import EPOCH, NOT_HIDDEN, Assumptions, Hide, HidePass
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.limits import Scenario, preset
from meshwright.limits.laws import LAWS, Shape, shape
from meshwright.limits.simulate import AXES, Degrees, expert, simulate
from meshwright.step import Body, clock, step

H100 = preset("h100")
FLAT = Network("one switch", (Dim("switch", 450e9, 0.0, efficiency=1.0),))
"""Without latency, which the paper pays once a step and `predict` with every message."""


class Plane(Layout):
    """A layout whose tp ranks are a plane of tp_model x tp_ff."""

    def group(self, axis: str) -> Group:
        """The axes of the plane, beside those of any layout."""
        (model, ff), (dp,) = self.placement["tp"], self.placement["dp"]
        return {"tp_model": (model,), "tp_ff": (ff,), "replicas": (dp,), "pp": (1,)}[axis]


def by_limits(s: Shape, d: Degrees, how: Assumptions) -> float:
    """Seconds of the step that `limits` places on the network."""
    scenario = Scenario("flat", H100.chip, FLAT, assumptions=how)
    return float(simulate(scenario.machine, s, d, {axis: (getattr(d, axis),) for axis in AXES}).total)


def by_step(s: Shape, d: Degrees, how: Assumptions) -> float:
    """Seconds of the step of `predict`, whose layers are the same operations."""
    scenario = Scenario("flat", H100.chip, FLAT, assumptions=how)
    model = Model("mlp", int(s.L), int(s.D), 1, int(s.F), vocab=0, seq=int(s.batch / (d.dp * d.microbatches)))
    cluster = Cluster(H100.chip, FLAT, int(d.chips))
    layout = Plane(tp=d.tp_model * d.tp_ff, dp=d.dp, placement={"tp": (d.tp_model, d.tp_ff), "dp": (d.dp,)})
    job = Job(model, cluster, d.dp * d.microbatches, layout, precision=scenario.precision, assumptions=how)
    at = clock(job)
    block = Timer(at, layout).layer(expert(scenario.machine, s, d))
    nothing = LayerCost()
    return float(step(job, layout, Body(block, nothing, nothing, nothing, 0.0, 0.0), at).total)


def under(**overlap: Hide) -> Assumptions:
    """The paper's set with other choices of what hides."""
    return replace(EPOCH, overlap=replace(EPOCH.overlap, **overlap))


SETS = {
    "epoch-2024": EPOCH,
    "nothing hides": under(tp=NOT_HIDDEN),
    "half of the products hides, and slows them": under(tp=Hide("step", 0.5, 0.25)),
    "gradients too, on links of their own": under(dp=HidePass("step", links="free")),
    "gradients too, on the same links": under(dp=HidePass("step")),
}
POWER = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=40, deadline=None)
@given(width=st.sampled_from([2048.0, 12288.0]), dp=POWER, up=POWER, ff=POWER, m=st.sampled_from([1, 4, 64, 1024]))
def test_a_block_takes_what_the_step_says(name: str, width: float, dp: int, up: int, ff: int, m: int) -> None:
    s, d = shape(LAWS["baseline"], width), Degrees(dp, up, ff, 1, 1, m, 1, 0)
    assert by_step(s, d, SETS[name]) == pytest.approx(by_limits(s, d, SETS[name]), rel=1e-12)


def test_the_choices_of_that_test_differ() -> None:
    """Every set gives another time, where traffic outlasts half of the products or gradients the rest."""
    s = shape(LAWS["baseline"], 2048.0)
    some = [Degrees(dp, 8, 8, 1, 1, m, 1, 0) for dp, m in ((8, 4), (8, 1024), (1, 64))]
    assert len({tuple(by_limits(s, d, how) for d in some) for how in SETS.values()}) == len(SETS)
