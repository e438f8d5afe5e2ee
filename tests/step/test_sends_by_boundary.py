"""Each boundary of a pipeline over the links between its own two ranks: by the places of the ranks,
in closed forms, and in ranks that wait for each other, simulated message by message."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from meshwright import Job, Layout
from meshwright.catalog import model as get_model
from meshwright.describe.assumptions import Overlap
from meshwright.layout.placement import placed
from meshwright.layout.stages import schedule_of
from meshwright.schedule import get
from meshwright.schedule.partition import LayerDeal, StagePartition
from meshwright.schedule.sends import StageSends
from meshwright.schedule.stage_costs import PassSeconds, StageCosts
from meshwright.step import StepCosts, clock_of, model_cost, model_shares
from meshwright.step.closed_form import exchanged_pipeline
from meshwright.step.pipeline import stage_sends

NONE = PassSeconds(0.0, 0.0, 0.0)
PAPERS = Overlap(pp="none")


def places(tp: int, dp: int, pp: int, node: int) -> list[int]:
    """The node of each stage's first rank, as launchers number ranks: tp, dp, pp."""
    return [stage * tp * dp // node for stage in range(pp)]


@pytest.mark.parametrize(
    ("tp", "dp", "pp", "v"),
    [(1, 1, 16, 1), (2, 1, 8, 1), (1, 2, 8, 1), (8, 1, 2, 1), (1, 4, 4, 1), (1, 1, 8, 2), (2, 1, 8, 3)],
)  # fmt: skip
def test_a_send_takes_the_links_between_its_two_ranks(
    tp: int, dp: int, pp: int, v: int
) -> None:
    """Numbered through on nodes of eight; chunks go back from the last rank to the first."""
    name = "interleaved" if v > 1 else "1f1b"
    layout = Layout(tp=tp, dp=dp, pp=pp, schedule=name, interleave=v)
    model = replace(get_model("llama3-8b"), layers=pp * v)
    job = Job(model, f"{tp * dp * pp}xh100-sxm", 48, layout=layout)
    layout = placed(layout, job.cluster.sizes)
    costs = StepCosts(job, layout, model_cost(job, layout), clock_of(job))
    near, far = (
        load.seconds
        for load in costs.clock.fabric.neighbours(costs.cost.message)
    )
    assert near < far / 3
    nodes = places(tp, dp, pp, 8) * v
    wanted = [near if a == b else far for a, b in pairwise(nodes)]
    sends = costs.microbatch.stages.sends
    found = sends.each(pp * v - 1)
    assert found == pytest.approx(wanted)
    assert sends.first(pp * v - 1.0) == pytest.approx(sum(wanted))


def test_what_keeps_links_busy() -> None:
    """Of two neighbours one at most is on another node, unless every rank is alone on its own."""
    for dp, pp, often in ((1, 16, (2, 1)), (8, 4, (0, 2)), (1, 8, (2, 0))):
        layout = Layout(dp=dp, pp=pp)
        job = Job("gpt3-175b", f"{dp * pp}xh100-sxm", 64, layout=layout)
        layout = placed(layout, job.cluster.sizes)
        at, parts = clock_of(job), model_cost(job, layout)
        by = model_shares(job.model, layout.pp, schedule_of(layout), 1)
        _, busy = stage_sends(layout, parts, at, by.partition)
        hops = at.fabric.neighbours(parts.message)
        wanted = [
            times * hop.busy[i]
            for i, (times, hop) in enumerate(zip(often, hops, strict=True))
        ]
        assert [*busy] == pytest.approx(wanted)


Message = tuple[str, int]
"""(F or B, microbatch)."""


def waiting_ranks(p: int, m: int) -> list[list[Any]]:
    """1F1B of ranks that wait for what they send and receive: after F with the next rank, after B
    with the one before. Each action is a pass, or (boundary, messages under way at once)."""
    ranks: list[list[Any]] = []
    for r in range(p):
        ahead = min(p - 1 - r, m)
        actions: list[Any] = []

        def meet(boundary: int, *messages: Message) -> None:
            real = tuple(k for k in messages if k[1] < m)
            if 0 <= boundary < p - 1 and real:
                actions.append((boundary, real))  # noqa: B023

        for k in range(ahead):
            meet(r - 1, ("F", k))
            actions.append(("F", k))
            meet(r, ("F", k))
        meet(r - 1, ("F", ahead))
        for k in range(m - ahead):
            actions.append(("F", ahead + k))
            meet(r, ("F", ahead + k), ("B", k))
            actions.append(("B", k))
            more = ahead + k + 1
            meet(r - 1, ("B", k), ("F", more))
        for k in range(m - ahead, m):
            meet(r, ("B", k))
            actions.append(("B", k))
            meet(r - 1, ("B", k))
        ranks.append(actions)
    return ranks


def simulated(passes: list[PassSeconds], sends: list[float], m: int) -> float:
    """Seconds until all ranks are done. A message begins when both ranks have come to it."""
    p = len(passes)
    ranks, at, now = waiting_ranks(p, m), [0] * p, [0.0] * p
    come: dict[tuple[int, Message], dict[int, float]] = {}
    while any(at[r] < len(ranks[r]) for r in range(p)):
        before = [*at]
        for r in range(p):
            while at[r] < len(ranks[r]):
                what, rest = ranks[r][at[r]]
                if isinstance(what, str):
                    now[r] += passes[r].f if what == "F" else passes[r].b
                else:
                    both = [come.setdefault((what, k), {}) for k in rest]
                    for ready in both:
                        ready.setdefault(r, now[r])
                    if any(len(ready) < 2 for ready in both):
                        break
                    now[r] = max(max(x.values()) for x in both) + sends[what]
                at[r] += 1
        assert at != before, "the order is a deadlock"
    return max(now)


@pytest.mark.parametrize("near", [1, 2, 4])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_ranks_that_wait_for_what_they_send(p: int, near: int) -> None:
    """One more microbatch takes the longest round of a rank, to the last digit; a whole step no
    longer than the closed form says, and shorter by no more than three sends and the work of an end
    beyond a layer, once for each rank beyond the first where that is the end with most work.
    """
    if p % near:
        pytest.skip("nodes are full")
    rng = random.Random(f"{p} {near}")
    for kind, m in product(range(6), (3 * p, 5 * p)):
        seconds = (0.02, rng.choice((0.1, 0.7, 3.0)))
        end = PassSeconds(*(rng.choice((0.0, 0.3)) for _ in range(3)))
        layer = PassSeconds(1.0, 1.5, 0.5)
        sends = StageSends.over(seconds, (float(near), p / near), turns=False)
        cut = StagePartition(float(p), 1.0, LayerDeal(p))
        first, last = (end, NONE) if kind % 2 else (NONE, end)
        d = StageCosts(cut, (layer, first, last), sends)

        def closed(m: int, d: StageCosts = d) -> float:
            shape = float(p), float(m), 1.0
            made = exchanged_pipeline(PAPERS, get("1f1b"), shape, d)
            return float(made.total)

        passes = [d.load(float(r)) for r in range(p)]
        hops = sends.each(p - 1).tolist()
        exact = [simulated(passes, hops, m + k) for k in (0, 1)]
        more = closed(m + 1) - closed(m)
        assert more == pytest.approx(exact[1] - exact[0], rel=1e-9)
        ahead = p - 1 if kind % 2 else 1
        slack = 3 * max(hops) + ahead * end.total + 1e-6
        assert exact[0] <= closed(m) * (1 + 1e-9) <= exact[0] + slack
        # one microbatch goes through all stages and back, and waits for none
        way = sum(x.total for x in passes) + 2 * sum(hops)
        assert closed(1) == pytest.approx(way)
