"""Sweeps: one field changes, the rest stays, and nothing that was computed is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from meshwright import Job, Layout, Prediction, predict
from meshwright.describe.assumptions import REALISTIC, ChipTime
from meshwright.formats.toml import load_job
from meshwright.report.sweep import sweep_card
from meshwright.sweep import Sweep, SweepPoint, parse, sweep, values, vary
from refusals import refusal
from shell import Shell

JOB = Job(
    "llama3-8b",
    "64xh100-sxm",
    batch=128,
    layout=Layout(tp=2, dp=32, zero=1),
)


def card(over: str, *points: SweepPoint) -> str:
    """The first screen of a sweep."""
    return text_of(Sweep(over, points))


def text_of(found: Sweep) -> str:
    return "\n".join(line.plain for line in sweep_card(found).lines(200))


def test_values() -> None:
    assert values(["1..8"]) == [1, 2, 4, 8]
    assert values(["3..20", "5", 7]) == [3, 6, 12, "5", 7]
    for wrong in (["9..3"], ["0..4"], [], [""], ["1"] * 1001):
        with refusal():
            values(wrong)


def test_parse() -> None:
    assert parse("network.ib.bandwidth=100 Gbit/s, 400 Gbit/s") == (
        "network.ib.bandwidth",
        ["100 Gbit/s", "400 Gbit/s"],
    )


def test_settings_of_the_software_have_their_bare_names() -> None:
    """As a flag spells them too: `--over cuda_graphs`, `cuda-graphs` and `software.cuda_graphs` are
    one field, which no other table has.
    """
    names = ("cuda_graphs", "cuda-graphs", "software.cuda_graphs")
    one, *others = [vary(JOB, name, "full") for name in names]
    assert one.software.cuda_graphs == "full" != JOB.software.cuda_graphs
    assert all(other == one for other in others)
    assert vary(JOB, "dp-overlap", "off").software.dp_overlap == "off"
    with refusal("field 'cuda_graph' is not known; did you mean cuda_graphs"):
        vary(JOB, "cuda_graph", "full")


def test_a_degree_as_its_flag_spells_it_is_a_constraint() -> None:
    job = Job("gpt2", "8xh100-sxm", batch=64)
    (point,) = sweep(job, "dp-replicate", [2], zero=3).points
    assert point.prediction and point.prediction.layout.dp_replicate == 2


def test_no_set_of_assumptions_is_the_fastest(shell: Shell) -> None:
    words = "sweep gpt2 --on 8xh100-sxm --batch 64seq --over"
    out = shell(f"{words} assumptions=realistic,lbl-2024").out
    assert "fastest" not in out and "cheapest" not in out
    assert "sets reckon the same run, so none is a faster" in out
    assert "fastest" in shell(f"{words} tp=1,8").out


def test_sets_of_assumptions_reckon_one_run_in_its_numbers() -> None:
    """A paper's set has numbers of its own (LBL's are 16-bit throughout) for jobs that name none:
    not for one that is compared under several."""
    points = sweep(JOB, "assumptions", ["realistic", "lbl-2024"]).points
    said = {p.prediction.job.precision for p in points if p.prediction}
    assert said == {JOB.precision}


def at(thing: Any, path: str) -> Any:
    """The value at a dotted path of fields, numbers and keys."""
    for name in path.split("."):
        if isinstance(thing, tuple):
            thing = thing[int(name)]
        elif isinstance(thing, Mapping):
            thing = thing[name]
        else:
            thing = getattr(thing, name)
    return thing


NEXT = "cluster.network.dims.1.bandwidth"
CHANGES = [
    ("chips", 128, {"cluster.chips": 128}),
    ("on", "16xa100-80", {"cluster.chip.name": "a100-80"}),
    ("batch", "4Mi", {"batch": 512}),
    ("seq", 16384, {"T": 16384, "batch": 64}),
    ("model", "llama3-70b", {"model.name": "llama3-70b"}),
    ("model.layers", "40", {"model.layers": 40}),
    ("precision", "fp8", {"precision.compute": "fp8"}),
    ("precision.gradient_bytes", 2, {"precision.gradient_bytes": 2}),
    ("assumptions", "lbl-2024", {"assumptions.name": "lbl-2024"}),
    ("assumptions.chip.model", "roofline", {"assumptions.chip": ChipTime("roofline")}),
    ("assumptions.chip.optimizer", 3.0, {"assumptions.chip.optimizer": 3.0}),
    ("assumptions.network.efficiency", 0.5, {"assumptions.network.efficiency": 0.5}),
    ("assumptions.count.causal", "full", {"assumptions.count.causal": "full"}),
    ("cluster.network.dims[1].bandwidth", "800 Gbit/s", {NEXT: 1e11}),
    ("network.ib.bandwidth", "800 Gbit/s", {NEXT: 1e11}),
    ("network", "dgx-a100", {"cluster.network.name": "dgx-a100"}),
    ("chip.hbm_bytes", "40 GB", {"cluster.chip.hbm_bytes": 4e10}),
    ("chip.matrix_flops.bf16", "1 PFLOP/s", {"cluster.chip.matrix_flops.bf16": 1e15}),
    ("zero", 3, {"layout.zero": 3}),
    ("layout.tp", 8, {"layout.tp": 8, "layout.dp": 8}),
]  # fmt: skip
"""Field of a sweep, value, and what is so of the job then, and was not before."""


@pytest.mark.parametrize(("path", "value", "expected"), CHANGES)
def test_vary(path: str, value: Any, expected: dict[str, Any]) -> None:
    changed = vary(JOB, path, value)
    for where, what in expected.items():
        assert at(changed, where) == what != at(JOB, where)


def test_a_field_varies_where_the_option_has_it() -> None:
    """A launch is a field of a roofline; kernels by shape have launches of their own."""
    path = "assumptions.chip.launch_s"
    assert (
        vary(
            JOB.with_(assumptions="lbl-2024"), path, 1e-5
        ).assumptions.chip.launch_s
        == 1e-5
    )
    roofline = replace(
        JOB, assumptions=replace(REALISTIC, chip=ChipTime("roofline"))
    )
    assert vary(roofline, path, 1e-5).assumptions.chip == ChipTime(
        "roofline", launch_s=1e-5
    )
    assert (
        vary(JOB, "assumptions.chip.model", "roofline").assumptions
        == roofline.assumptions
    )
    with refusal(
        r"^assumptions\.chip\.launch_s means nothing where model is by-shape"
    ):
        vary(JOB, path, 1e-5)


def test_a_changed_cluster_has_no_wrong_name() -> None:
    assert vary(JOB, "chips", 128).cluster.name == "128xh100-sxm"
    assert vary(JOB, "network.ib.bandwidth", "1 GB/s").cluster.name == ""
    assert (
        vary(JOB, "network.ib.bandwidth", "1 GB/s").cluster.network.dims[0]
        == JOB.cluster.network.dims[0]
    )


def test_a_fixed_layout_fills_each_cluster() -> None:
    found = sweep(JOB, "chips", ["16..256"], fixed=True)
    assert [p.prediction.layout.dp for p in found.points if p.prediction] == [
        8,
        16,
        32,
        64,
        128,
    ]
    rows = found.rows()
    assert rows[0]["speedup"] == rows[0]["efficiency"] == 1
    assert rows[2]["speedup"] == pytest.approx(
        rows[0]["step_time_s"] / rows[2]["step_time_s"]
    )
    assert rows[2]["efficiency"] == pytest.approx(rows[2]["speedup"] / 4)


def test_an_impossible_point_does_not_end_the_sweep() -> None:
    found = sweep(JOB, "tp", [1, 3, 2], fixed=True)
    assert [p.prediction is not None for p in found.points] == [
        True,
        False,
        True,
    ]
    assert "tp may be" in found.points[1].note


def test_ctrl_c_keeps_what_is_done() -> None:
    def impatient(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    found = sweep(
        JOB,
        "batch",
        ["64seq", "128seq", "256seq", "512seq"],
        fixed=True,
        progress=impatient,
    )
    assert found.interrupted and [p.value for p in found.points] == [
        "64seq",
        "128seq",
        "256seq",
    ]


def test_the_search_finds_a_layout_for_every_point() -> None:
    found = sweep(JOB, "chips", [8, 16])
    assert [
        p.prediction is not None and p.prediction.fits for p in found.points
    ] == [True, True]
    held = sweep(JOB, "tp", [4]).points[0].prediction
    assert held and held.layout.tp == 4, (
        "a degree that is varied binds the search"
    )


def test_a_table_says_what_does_not_fit_and_what_nobody_measured(
    shell: Shell,
) -> None:
    """8 H100 hold no replica of 8B without sharding, 8 MI355X do, and the rates of a Trainium 2 are
    assumed."""
    words = "sweep llama3-8b --on 8xh100-sxm --batch 64seq --over on=8xh100-sxm,8xmi355x,8xtrainium2 --fixed --recompute full"
    told = shell(words).out
    h100, mi355x, *_ = told.splitlines()[2:]
    assert "does NOT fit" in h100 and "NOT fit" not in mi355x
    assert "note    unmeasured, so a share of the peak" in told
    told = shell(f"{words} --all").out
    assert "does NOT fit in 79.6 GiB" in told
    assert (
        "note: unmeasured, so a share of the peak is assumed: trainium2"
        in told
    )


def test_a_published_recipe_is_an_answer_whatever_its_risk() -> None:
    """A point whose layout ran is neither called unfit nor left out of the fastest."""
    risky = predict(replace(JOB, batch=64), Layout(tp=1, dp=64))
    assert not risky.fits
    fine = predict(JOB)
    told = Sweep(
        "batch", (SweepPoint(128, JOB, fine), SweepPoint(64, JOB, risky))
    )
    ran = replace(
        told, points=(told.points[0], replace(told.points[1], ran=True))
    )
    assert risky.verdict in text_of(told)
    assert risky.verdict not in text_of(ran)
    assert [row["fits"] for row in ran.rows()] == [True, True]


def test_chips_that_are_idle_are_said_of_every_value() -> None:
    """Not of the fastest alone, beside which the others' rates say too much."""
    half, most = (predict(JOB, replace(JOB.layout, dp=dp)) for dp in (16, 24))
    told = card("seq", SweepPoint(1, JOB, half), SweepPoint(2, JOB, most))
    said = "1: 32 of 64 chips are idle; 2: 16 of 64 chips are idle"
    assert f"\n  idle    {said}\n" in told


def test_a_fastest_value_that_no_run_is_like_is_not_alone() -> None:
    """Beside it stands the fastest of those that published runs are like, if there is one."""
    unlike, like, slow = (
        predict(JOB, zero=zero, tp=1, pp=pp, dp=64 // pp)
        for zero, pp in ((3, 2), (1, 4), (1, 8))
    )

    def told(*ps: Prediction) -> str:
        return card("pp", *(SweepPoint(p.layout.pp, JOB, p) for p in ps))

    assert unlike.step_time_s < like.step_time_s < slow.step_time_s
    assert "of those that are, pp 4:" in told(slow, unlike, like)
    assert "of those that are" not in told(like, slow)
    assert "of those that are" not in told(unlike)


def test_clusters_that_are_equal_do_not_bind() -> None:
    """Of a field it says that it does not bind; of whole clusters that would say nothing."""
    p = predict(JOB)
    points = SweepPoint("a", JOB, p), SweepPoint("b", JOB, p)
    on, seq = (card(over, *points) for over in ("on", "seq"))
    assert "below the model's resolution" in on and "does not bind" not in on
    assert "seq does not bind" in seq


def test_a_bandwidth_without_a_unit_is_no_point_of_a_sweep(
    shell: Shell,
) -> None:
    """It was 400 bytes a second, 33 days a step, without a word."""
    words = "sweep llama3-8b --on 64xh100 --batch 64seq"
    assert shell.refused(f"{words} --over network.ib.bandwidth=400") == (
        "meshwright: network.ib.bandwidth 400 has no unit: say '400 GB/s' or '400 Gbit/s'\n"
    )
    job = Job("llama3-8b", "64xh100-sxm", 64)
    assert vary(job, "network.ib.bandwidth", 4e10) != job


def test_a_sweep_says_that_its_lines_are_ties(
    shell: Shell,
) -> None:
    """Where layouts were chosen, and not the same for all."""
    words = "sweep llama3-8b --on 64xh100-sxm --batch 64seq"
    over = "--over 'network.ib.bandwidth=25 Gbit/s,400 Gbit/s'"
    assert "else the simplest" in shell(f"{words} {over} --all").out
    fixed = "--over tp=1,2 --fixed --zero 3 --all"
    assert "else the simplest" not in shell(f"{words} {fixed}").out


def test_a_row_has_money_and_intervals() -> None:
    """Days and dollars are those of the plan; a ratio is surer than either of its steps."""
    job = Job(
        "llama3-8b",
        "8xh100-sxm",
        64,
        Layout(dp=8, zero=3),
        tokens=1e12,
    )
    found = sweep(job, "on", ["8xh100-sxm", "8xh200"], fixed=True)
    first, second = found.rows()
    p = found.predictions[1]
    assert (
        second["train_time_s"] == p.train_time_s
        and second["cost_usd"] == p.cost_usd
    )
    assert (
        second["interval_low_s"],
        second["interval_high_s"],
    ) == p.interval_s
    assert second["tokens_per_usd"] == pytest.approx(1e12 / p.cost_usd)
    assert first["speedup_low"] is None, "against itself"
    assert second["speedup_low"] < second["speedup"] < second["speedup_high"]
    other = sweep(job, "on", ["8xh100-sxm", "8xmi300x"], fixed=True).rows()[1]
    wide, narrow = (
        row["speedup_high"] / row["speedup_low"] for row in (other, second)
    )
    assert wide > narrow, "no run of such chips was published"


@pytest.mark.parametrize(
    ("on", "network", "chips", "sizes"),
    [
        ("64xtpu-v5p", "", 512, (8, 8, 8, 1)),
        ("64xh100-sxm", "dgx-a100", 128, (8, 16)),
        ("64xselene", "", 16, (8, 2)),
    ],
)
def test_more_chips_are_of_the_same_network(
    on: str, network: str, chips: int, sizes: tuple[int, ...]
) -> None:
    """A larger slice of a torus, not more slices; the network that was asked for, not the usual."""
    where = {"on": on} | ({"network": network} if network else {})
    job = load_job(
        {"model": "llama3-8b", "cluster": where, "job": {"batch": "64seq"}}
    )
    found = vary(job, "chips", chips).cluster
    assert found.sizes == sizes and found.chips == chips
    if network:
        assert found.network == job.cluster.network
    again = vary(vary(job, "chips", chips), "chips", job.cluster.chips)
    assert replace(again.cluster, name="") == replace(job.cluster, name="")
    own = replace(job.cluster.chip, name="mine")
    mine = replace(job, cluster=replace(job.cluster, chip=own))
    assert vary(mine, "chips", chips).cluster.chip == own
