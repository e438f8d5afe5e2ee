"""Scenarios from words and files."""

from pathlib import Path

import pytest

from meshwright.formats.scenario import load_scenario, read_scenario
from meshwright.limits import preset
from meshwright.limits.scenario import MONTH_S
from refusals import refusal

MINE = """
duration_s = "30 days"
law = { name = "mine", batch = { coefficient = 4e6, exponent = 0.2, at = 3e23 }, experts = { coefficient = 16 } }
chip = "h100-sxm"
failures = { restart_s = "5 min" }
[network]
name = "two sites"
dims = [
  { name = "nvlink", size = 8, bandwidth = "450 GB/s", latency = "1 us" },
  { name = "ib", size = 64, bandwidth = "50 GB/s", latency = "5 us" },
  { name = "wan", bandwidth = "1 GB/s", latency = "5 ms" },
]
"""


def test_names() -> None:
    assert load_scenario("h100/sparse") == preset("h100/sparse")
    mine = load_scenario("h100-sxm@dgx-h100/sparse")
    assert mine.law.experts and mine.network.name == "dgx-h100"
    plain = load_scenario("tpu-v5e")
    assert (
        plain.assumptions.chip.model == "roofline"
        and plain.precision.compute == "bf16"
    )


def test_files(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(MINE)
    found = load_scenario(str(tmp_path / "two.toml"))
    assert (
        found.name == "two"
        and found.duration_s == 30 * 86400
        and len(found.network.dims) == 3
    )
    assert (
        found.law.batch.exponent == 0.2
        and found.law.experts
        and found.law.experts(1.0) == 16
    )
    assert found.failures and found.failures.restart_s == 300
    with refusal("files are not read"):
        load_scenario(str(tmp_path / "two.toml"), files=False)


def test_defaults() -> None:
    found = read_scenario(
        {"chip": "h100-sxm", "network": "dgx-h100", "law": "deepseek"}
    )
    assert (
        found.law.name == "deepseek"
        and found.duration_s == 3 * MONTH_S
        and found.assumptions.name == "epoch-2024"
    )


@pytest.mark.parametrize(
    "table",
    [
        {"chip": "h100-sxm"},
        {"chip": "h101", "network": "dgx-h100"},
        {"chip": "h100-sxm", "network": "dgx-h100", "law": "mine"},
        {"chip": "h100-sxm", "network": "dgx-h100", "duration_s": "3 GB"},
        {"chip": "h100-sxm", "network": "dgx-h100", "schedules": ["gpipe"]},
        {
            "chip": "h100-sxm",
            "network": "dgx-h100",
            "law": {"name": "x", "batch": {"coefficient": -1}},
        },
    ],
)
def test_mistakes_are_sentences(table: dict[str, object]) -> None:
    with refusal():
        read_scenario(table)


@pytest.mark.parametrize(
    "text",
    [
        "h101",
        "h100-sxm@nowhere",
        "h100-sxm@dgx-h100/spars",
        "",
        "@",
        "missing.toml",
    ],
)
def test_bad_names(text: str) -> None:
    with refusal():
        load_scenario(text)
