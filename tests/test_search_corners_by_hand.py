"""Corners of the search, each worked out on paper: what bounds are made of, halves of intervals,
groups of mirrored stages, whose choices are searched, what is named near a number that is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from by_hand import BACKWARD, CHIP, FORWARD, MODEL, SET
from meshwright import assumptions
from meshwright.catalog import cluster as catalogue_cluster
from meshwright.catalog import model as catalogue
from meshwright.describe.choices import Choices
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.describe.network import Dim, Network
from meshwright.schedule import get
from meshwright.schedule.waits import Wait
from meshwright.search import laws, placement, relaxed, unfit
from meshwright.search.best import Best
from meshwright.search.evaluate import smallest
from meshwright.search.kinds import Kind
from meshwright.search.nearest import Nearest
from meshwright.search.selectors import neighbours
from meshwright.search.space import Space, options
from meshwright.search.strategies import strategies

NODES = Network(
    "nodes", (Dim("node", 1e30, 0.0, size=4), Dim("net", 1e30, 0.0, size=999))
)


def job(chips: int = 8, batch: int = 8, **fields: Any) -> Job:
    network = fields.pop("network", NODES)
    how = fields.pop("how", SET)
    return Job(
        replace(MODEL, **fields),
        Cluster(CHIP, network, chips),
        batch,
        assumptions=how,
        attention_kernel="unfused",
    )


def columns(**values: list[float]) -> dict[str, Any]:
    return {name: np.array(each, float) for name, each in values.items()}


# Bounds.


def test_the_whole_model_on_all_chips() -> None:
    """Two layers of 3 s for each of 8 sequences on 8 chips: 6 s however matrices are cut, and twice
    that where only half of what tp cuts is cut."""
    at = job(network=Network("one", (Dim("node", 1e30, 0.0),)))
    space = Space(recompute=("none",), zero=(0,))
    best = Best(1, options(at, space))
    table = columns(
        tp=[1, 2, 4], cp=[1, 1, 1], ep=[1, 1, 1], etp=[1, 1, 1], panels=[1, 1, 1],
        microbatch=[1, 2, 1],
    )  # fmt: skip
    shards = relaxed.Shards.of(at, space, best, table)
    found = relaxed._whole_model(at, shards)
    assert found == pytest.approx([2 * (FORWARD + BACKWARD)] * 3)


def test_halves_of_an_interval_have_all_of_it_once() -> None:
    """In steps of what dp comes in: experts over 4 of 2 ranks of tp want an even dp."""
    low = columns(tp=[1, 2, 1], cp=[1, 1, 1], ep=[1, 4, 1], etp=[1, 1, 1])
    ends = (([1, 2, 5], [8, 12, 6]), ([3, 4, 7], [4, 6, 9]))
    for first, last in ends:
        below = low | {"dp": np.array(first, float)}
        above = low | {"dp": np.array(last, float)}
        step = [1, 2, 1]
        near, far = relaxed._halves(below, above)
        for row in range(3):
            mine = [
                n
                for half in (row, row + 3)
                for n in range(
                    int(near["dp"][half]),
                    int(far["dp"][half]) + 1,
                    step[row],
                )
            ]
            assert mine == [*range(first[row], last[row] + 1, step[row])]
            assert near["ep"][row] == near["ep"][row + 3]


def test_a_wait_in_seconds_of_a_layer_is_the_least_it_may_be() -> None:
    """The way as short as it may be, what fills it as long: of what is taken off, the other way."""
    low, high = np.array([0.2, 0.3, 0.1]), np.array([0.4, 0.5, 0.3])
    wait = Wait(
        np.array([[3.0, 0.0, -1.0]]),
        np.array([[0.5, -0.5, 0.0]]),
        np.array([[7.0, 7.0, 7.0]]),
    )
    found = laws._scaled(wait, (low, high))
    assert found.way == pytest.approx(3.0 * 0.2 - 0.3)
    assert found.fill == pytest.approx(0.5 * 0.4 - 0.5 * 0.3)
    assert found.most == 7.0


def test_numbers_of_chunks_that_a_kind_may_have() -> None:
    v = np.array([1.0, 2.0, 3.0, 4.0])
    for counts in ((2,), (2, 3), (2, 3, 4)):
        kind = Kind(get("interleaved"), counts)
        found = kind.filled(job(layers=12), np.ones(4), v)
        assert [int(x) for x in v[found]] == [*counts]


# Places.


def test_stages_held_twice_have_groups_across_the_pipeline() -> None:
    """DualPipe keeps each stage on two ranks of the pipeline, so groups of replicas may hold several
    of its ranks: a placed pp leaves them the room that it takes from groups of 1F1B."""
    one = Nearest(dp=8, pp=2, sizes=(8, 64), placement={"pp": (2, 1)})
    two = replace(one, schedule="dualpipe")
    assert two.copies == 2 and one.copies == 1
    assert one.group("replicas") == (4, 2)
    assert two.group("replicas") == (8, 2)
    assert one.group("ep") == two.group("ep") == (1, 1)


def test_shares_of_a_node_are_whole_and_fill_it() -> None:
    """Eight ranks of tp in nodes of 12 beside three replicas: four of tp and all replicas, not
    eight and one and a half."""
    network = Network(
        "n", (Dim("node", 1e9, 0.0, size=12), Dim("net", 1e9, 0.0, size=99))
    )
    table = columns(tp=[8], cp=[1], pp=[1], dp=[3])
    at = job(24, 24, network=network)
    assert placement.count(at, table).tolist() == [1]


def test_the_smallest_layout_may_have_one_replica() -> None:
    found = smallest(job(1, 1), Space(), True)
    assert len(found.rows) == 1
    assert found.layouts("megatron", 2)[0].chips == 1


# What is searched, and said.


def test_a_named_scheme_says_whose_other_choices_are_searched() -> None:
    """Of tp 1 or 2 by Megatron and tp 4 by SUMMA: who asks for Megatron and tp 4 is told what
    Megatron's search has."""
    how = replace(
        SET,
        strict=False,
        choices=(
            Choices(scheme="megatron", tp=(1, 2)),
            Choices(scheme="summa", tp=(4,)),
        ),
    )
    found, said = strategies(job(how=how), Space(tp=(4,), scheme="megatron"))
    assert [(one.scheme, one.values("tp")) for one in found] == [
        ("megatron", (4,))
    ]
    assert said == [
        "tp 4 is searched as asked; by hand itself searches tp 1, 2"
    ]


@pytest.mark.parametrize(
    ("chips", "near"), [(10, "8, 12"), (5, "4, 8"), (1001, "1,000, 1,004")]
)  # fmt: skip
def test_chips_that_fill_nodes_are_named(chips: int, near: str) -> None:
    (said,) = unfit.unfilled(job(chips))
    assert said == (
        f"{chips:,} chips do not fill units of 4 (node) evenly: {near} would, or --relaxed"
    )
    assert unfit.unfilled(job(8)) == []


def test_neighbours_in_a_pipeline_take_what_their_order_takes() -> None:
    """Layers that do not divide: the seconds shown are the replay's, not the closed form's."""
    at = Job(
        replace(catalogue("llama3-8b"), layers=11),
        catalogue_cluster("8xh100-sxm"),
        24,
        assumptions=replace(assumptions("realistic"), choices=()),
    )
    found = neighbours(at, Layout(tp=2, pp=4, schedule="1f1b"))
    made = [each for each in found if each.prediction]
    apart = 0
    for each in made:
        p = each.prediction
        assert p
        assert each.seconds == (p.replayed_s or p.step_time_s)
        apart += each.seconds != p.step_time_s
    assert apart
