"""How many chips a network joins."""

from __future__ import annotations

from meshwright import plan, predict
from meshwright.catalog import chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.describe.network import Dim, Network
from refusals import refusal

NEAR, FAR = Dim("near", 9e11, 1e-6, 4), Dim("far", 5e10, 5e-6, 3)


def test_a_network_that_joins_fewer_chips_is_refused() -> None:
    network = Network("small", (NEAR, FAR))
    assert Cluster(chip("h100-sxm"), network, 12).sizes == (4, 3)
    with refusal(
        r"network small \(near 4 x far 3\) joins at most 12 chips, not 13"
    ):
        _ = Cluster(chip("h100-sxm"), network, 13).sizes


def test_a_last_dimension_without_a_size_takes_all() -> None:
    open_ended = Network("open", (NEAR, Dim("far", 5e10, 5e-6)))
    assert Cluster(chip("h100-sxm"), open_ended, 4000).sizes == (4, 1000)


def test_nothing_is_predicted_or_planned_on_it() -> None:
    """One dimension of 2 for 8 chips: collectives would run over 8 all the same."""
    network = Network("pair", (Dim("near", 9e11, 1e-6, 2),))
    job = Job(
        "llama3-8b",
        Cluster(chip("h100-sxm"), network, 8),
        64,
        Layout(dp=8),
    )
    for answer in (lambda: predict(job), lambda: plan(job)):
        with refusal("network pair .near 2. joins at most 2 chips, not 8"):
            answer()
