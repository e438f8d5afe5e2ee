"""How many chips a network joins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Cluster, Dim, Job, Network, plan, predict
from meshwright.catalog import chip, network
from meshwright.formats import torchrun
from meshwright.num import product
from meshwright.prediction.certainty import resolution
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


def test_chips_that_fill_a_power_of_two_of_each_rack_do_so() -> None:
    """2,048 chips are 32 racks with 64 of 72 chips each, and not 28 with all and one with 32. 2,016
    fill 28; 100 fill neither. Where there are but 29 racks, 2,048 do not lie in 32. A ring has no
    ports to leave free, and nodes of 8 have no such choice.
    """

    def sizes(
        chips: int, ports: int, racks: int | None = None, kind: str = "switch"
    ) -> tuple[int, ...]:
        near = Dim("near", 9e11, 1e-6, ports, kind)
        network = Network("r", (near, Dim("far", 5e10, 5e-6, racks)))
        return Cluster(chip("gb200"), network, chips).sizes

    assert sizes(2048, 72) == (64, 32)
    assert sizes(2016, 72) == (72, 28)
    assert sizes(100, 72) == (72, 2)
    assert sizes(64, 72) == sizes(64, 72, 1) == (64, 1)
    assert sizes(48, 72) == (48, 1)
    assert sizes(2048, 72, 29) == (72, 29)
    assert sizes(128, 72, kind="ring") == (72, 2)
    assert sizes(100, 8) == (8, 13)


def test_all_chips_of_half_used_racks_run() -> None:
    """1,024 GB200 were planned on 768 of them, 1.5 times as slow as any layout of all."""
    job = Job("llama3-8b", "1024xgb200", 2048)
    answer = plan(job, families=False).answer
    assert answer and answer.layout.chips == 1024
    assert answer.layout.placement["dp"][0] == 64
    said = "1,024 chips are taken as 64 of the 72 in each of 16 units (nvlink)"
    assert said in answer.notes
    fills = predict(Job("llama3-8b", "1152xgb200", 2304), zero=3)
    assert not [note for note in fills.notes if "are taken as" in note]


def test_all_chips_of_half_rented_nodes_run() -> None:
    """12 GPUs in nodes of 8 were planned on 8 of them, 1.5 times as slow as 6 in each of two; and
    what is planned can be started.
    """
    job = Job("llama3-8b", "12xa100-80", 12)
    found = plan(job, families=False)
    answer = found.answer
    assert answer and answer.layout.chips == 12 and not found.idle
    by_hand = predict(job, tp=2, zero=1).step_time_s
    assert answer.step_time_s < by_hand * (1 + resolution(job))
    near = (shares[0] for shares in answer.layout.placement.values())
    assert product([*near]) == 6
    said = "12 chips are taken as 6 of the 8 in each of 2 units (nvlink)"
    assert said in found.notes
    assert torchrun.nodes(replace(job, layout=answer.layout)) == (2, 6)


@pytest.mark.parametrize(
    ("chips", "each", "more"),
    [
        (20, 4, "; full units and a smaller one are no slower"),
        (30, 6, "; full units and a smaller one are no slower"),
        (15, 5, "; full units and one of 7 are faster"),
        (13, 1, "; full units and one of 5 are faster"),
        (9, 3, ""),
    ],
)
def test_full_nodes_and_a_smaller_one(
    chips: int, each: int, more: str
) -> None:
    """8, 8 and 4 hold blocks of 4; 8 and 1 hold no three blocks of 3, and may be slower. As many as
    divide all chips are started on each node, of at most those of the smaller one, 7 of 15."""
    said = f"{chips} chips are taken as {each} of the 8 in each of {chips // each} units (nvlink)"
    p = predict(Job("llama3-8b", f"{chips}xh100-sxm", chips), zero=3)
    assert f"{said}{more}" in p.notes
    job = replace(p.job, layout=p.layout)
    assert torchrun.nodes(job) == (chips // each, each)


def test_stages_nearer_than_replicas_on_nodes_in_part() -> None:
    """30 chips as 2 stages of 3 replicas in each of 5 nodes: more nodes than 30 chips have, but of
    full ones and a smaller one a group has as many."""
    job = Job("llama3-8b", "30xh100-sxm", 120)
    place = {"tp": (1, 1), "cp": (1, 1), "pp": (2, 1), "dp": (3, 5)}
    assert predict(job, pp=2, zero=1, placement=place).layout.dp == 15
    other = {**place, "pp": (1, 2), "dp": (5, 3)}
    with refusal("placement puts 6 ranks in network dimension 2"):
        predict(job, pp=2, zero=1, placement=other)


@pytest.mark.parametrize(("chips", "each"), [(20, 4), (12, 6), (13, 1)])
def test_shared_adapters_need_no_note(chips: int, each: int) -> None:
    """One of 100 Gbit/s for eight is shared by those that run (tests/layout/test_nodes_in_part)."""
    job = Job("llama3-8b", f"{chips}xh100-sxm", chips)
    slow = replace(job.cluster, network=network("ethernet-100g"))
    (note,) = (
        note
        for note in predict(replace(job, cluster=slow), zero=3).notes
        if "are taken as" in note
    )
    assert f"as {each} of the 8" in note and "adapter" not in note
    assert ("no slower" in note) == (each != 6)
