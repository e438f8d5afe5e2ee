"""What nobody measured is never the faster: shares assumed for chips and links without a
measurement, and what says so.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from by_hand import FREE
from meshwright import (
    Assumptions,
    BadInput,
    Chip,
    Job,
    Layout,
    assumptions,
    catalog,
    predict,
)
from meshwright.cost.chip import rates
from meshwright.cost.network import Fabric
from meshwright.describe import assumptions as sets
from meshwright.describe import fitted
from meshwright.describe import network as links
from meshwright.describe.kernels import kernels
from meshwright.report.predict import prediction_report

PAPERS = ("lbl-", "epoch-", "book-")
CHIPS = [
    catalog.chip(name)
    for name in catalog.names("chips")
    if not name.startswith(PAPERS)
]
NETWORKS = [
    catalog.network(name)
    for name in catalog.names("networks")
    if not name.startswith(PAPERS)
]
SET = assumptions("realistic")


ROOFLINE = sets.ChipTime("roofline")


def share(chip: Chip, how: sets.ChipTime = ROOFLINE) -> float:
    """Of the peak, in the precision it trains in."""
    precision = "bf16" if "bf16" in chip.matrix_flops else "fp16"
    return rates(chip, precision, how).matrix / chip.peak(precision)


def test_an_unmeasured_chip_is_never_better_than_the_worst_measured() -> None:
    measured = [chip.sustained for chip in CHIPS if chip.sustained is not None]
    assert min(measured) == sets.UNMEASURED
    for chip in CHIPS:
        law = kernels(chip.kernel_law) if chip.kernel_law else None
        of_kernels = law and not law.estimated and law.share * law.held
        known = chip.sustained or of_kernels or min(measured)
        assert share(chip) == pytest.approx(known)
    for how in (ROOFLINE, SET.chip):
        known = catalog.chip("h100-sxm")
        assert share(
            replace(known, sustained=None, kernel_law=""), how
        ) <= share(known, how)


def test_a_chip_whose_kernels_were_measured_is_not_the_worst() -> None:
    """The B200 of a paper's law of chips holds what its 16-bit products do, not the share of chips
    that nobody measured; a TPU, whose law of kernels is an estimate, has that.
    """
    held = kernels("b200")
    assert share(catalog.chip("b200")) == held.share * held.held > 0.45
    assert share(catalog.chip("tpu-v5p")) == sets.UNMEASURED


def test_laws_of_kernels_stand_before_a_share_of_the_peak() -> None:
    """Large products of an A100: 0.87 of the peak of its clock, of which hours of training hold
    some; an unknown chip has its share.
    """
    held = kernels("a100").held
    assert (
        share(catalog.chip("a100-80"), SET.chip) == pytest.approx(0.87 * held)
        and held < 1
    )
    for chip in CHIPS:
        if not chip.kernel_law:
            assert share(chip, SET.chip) == pytest.approx(share(chip))


def test_an_unmeasured_link_is_never_better_than_the_worst_measured() -> None:
    """Omni-Path apart, whose share (0.4) is what NCCL makes of a fabric that it does not drive by
    itself.
    """
    dims = [
        dim
        for network in NETWORKS
        for dim in network.dims
        if dim.name != "opa"
    ]
    measured = [dim.efficiency for dim in dims if dim.efficiency is not None]
    assert min(measured) == links.UNMEASURED
    for network in NETWORKS:
        for dim, rate in zip(
            network.dims,
            Fabric.from_network(network, SET.network).rates,
            strict=True,
        ):
            assert rate * dim.shared_by / dim.bandwidth <= (
                dim.efficiency or min(measured)
            ) * (1 + 1e-12)
    assert catalog.network("mi300x-node").dims[0].efficiency is None


@pytest.mark.parametrize("name", [chip.name for chip in CHIPS])
def test_less_knowledge_is_never_a_faster_step(name: str) -> None:
    """Forgetting what was measured of a chip and its network cannot make the same step faster."""
    job = Job(
        "llama3-8b",
        f"16x{name}",
        32,
        Layout(dp=16)  # which is all that FSDP runs
        if catalog.chip(name).framework == "fsdp"
        else Layout(tp=4, dp=4),
    )
    dims = tuple(
        replace(dim, efficiency=None) for dim in job.cluster.network.dims
    )
    blank = replace(
        job.cluster,
        chip=replace(job.cluster.chip, sustained=None),
        network=replace(job.cluster.network, dims=dims),
    )
    try:
        known = predict(job)
    except BadInput:  # a V100 has no bf16
        job = replace(job, precision=replace(job.precision, compute="fp16"))
        known = predict(job)
    assert predict(
        replace(job, cluster=blank)
    ).step_time_s >= known.step_time_s * (1 - 1e-12)


IN_TRAINING = fitted.values()["clock in training"]
ASSUMED = {"trainium2": 0.41, "tpu-v5p": 0.95 * 0.95 * IN_TRAINING}
"""Chip -> share: the lowest of the catalogue; an estimate of 0.95 at 0.95 of the clock, of which
training holds some. Products of the others are in tables.
"""


@pytest.mark.parametrize(
    "name",
    [
        "trainium2",
        "mi355x",
        "gaudi2",
        "b200",
        "tpu-v5p",
        "h100-sxm",
        "a100-80",
    ],
)
def test_the_answer_says_what_is_unmeasured(name: str) -> None:
    p = predict(
        Job(
            "llama3-8b",
            f"16x{name}",
            32,
            Layout(tp=4, dp=4),
        )
    )
    assumed = ASSUMED.get(name)
    said = [
        note
        for note in p.to_dict()["notes"]
        if note.startswith(f"chip {name} is unmeasured: ")
    ]
    assert bool(said) == p.unmeasured == (assumed is not None)
    shown = Console(width=240, file=io.StringIO())
    shown.print(prediction_report(p))
    assert (f"{name} (unmeasured)" in shown.file.getvalue()) == (
        assumed is not None
    )  # type: ignore[attr-defined]
    if said:
        assert assumed is not None
        assert f": {assumed:.3g} of its peak is assumed" in said[0]
    if name == "trainium2":
        assert "lowest measured share" in said[0] and "(MI300X)" in said[0]


def test_the_answer_says_which_links_are_unmeasured() -> None:
    def said(on: str, how: str | Assumptions = "realistic") -> list[str]:
        job = Job(
            "llama3-8b",
            on,
            32,
            assumptions=how,
        )
        return [
            note
            for note in predict(
                job, Layout(tp=2, dp=job.cluster.chips // 2)
            ).notes
            if note.startswith("network")
        ]

    assert (
        "dimension infinity is unmeasured: 0.7 of the bandwidth"
        in said("16xmi300x")[0]
    )
    assert not said("16xh100-sxm")
    # a slice does not touch the data-centre network
    assert said("16xtpu-v5p") == []
    assert not said("16xmi300x", FREE) and not said(
        "16xmi300x", "scaling-book-sum"
    )


def test_a_share_that_a_set_names_is_not_called_the_lowest() -> None:
    how = replace(SET, chip=replace(SET.chip, sustained=0.6))
    job = Job(
        "llama3-8b",
        "8xtrainium2",
        8,
        assumptions=how,
    )
    note = next(
        note
        for note in predict(job, Layout(tp=8)).notes
        if "unmeasured" in note
    )
    assert note == "chip trainium2 is unmeasured: 0.6 of its peak is assumed"
