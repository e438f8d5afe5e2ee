"""Chips and networks of one's own, in the user's file: every command takes their names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright import catalog, plan, predict
from meshwright.catalog import _entry, _index, _tables
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.formats.toml import load_job
from meshwright.formats.user_file import add_own_machines
from refusals import refusal
from shell import Shell

NETWORK = """
[networks.our-hall]
dims = [
  { name = "nvlink", size = 8, bandwidth = "450 GB/s", latency = "2.5 us", efficiency = 0.8 },
  { name = "ib", bandwidth = "200 Gbit/s", latency = "8 us", efficiency = 0.85 },
]
"""
JOB = "predict llama3-8b --on 16xours --batch 64seq --zero 3"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's file, whose machines are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHWRIGHT_CONFIG", "mine.toml")
    yield tmp_path / "mine.toml"
    for kind in catalog.OWN.values():
        kind.clear()
    for known in (_tables, _index, _entry):
        known.cache_clear()


def step_s(on: str) -> float:
    job = Job("llama3-8b", on, batch=64)  # type: ignore[arg-type]
    return float(predict(job, Layout(dp=16, zero=3)).step_time_s)


def test_a_chip_like_another_is_that_chip(mine: Path) -> None:
    """To the last digit; a field laid over it counts, and says where it comes from."""
    mine.write_text(
        '[chips.ours]\nlike = "h100-sxm"\naliases = ["Our Chip"]\n'
    )
    add_own_machines()
    assert step_s("16xours") == step_s("16xOur Chip") == step_s("16xh100-sxm")
    mine.write_text(
        '[chips.ours]\nlike = "h100-sxm"\nhbm_bandwidth = "1 TB/s"\n'
    )
    add_own_machines()
    assert step_s("16xours") > 1.1 * step_s("16xh100-sxm")
    sources = catalog.chip("ours").sources
    assert sources["*"]["source"] == "mine.toml, else h100-sxm"
    assert "hbm_bandwidth" not in sources
    assert "nvidia-smi" in sources["hbm_bytes"]["source"]


def test_dimensions_like_those_of_a_torus_stay_rings(mine: Path) -> None:
    """Of other sizes and rates; what was measured at another rate stays behind."""
    mine.write_text(
        '[networks.ours]\nlike = "tpu-v5p-pod"\ndims = [{ name = "x", size = 4 },'
        ' { name = "y", size = 8, bandwidth = "90 GB/s" }]\n'
        '[networks.hall]\nlike = "dgx-h100"\ndims = [{ name = "nvlink", size = 4 },'
        ' { name = "ib", bandwidth = "25 GB/s" }]\n'
    )
    add_own_machines()
    pod = catalog.network("tpu-v5p-pod")
    x, y = catalog.network("ours").dims
    assert (x.kind, x.size, x.wrap) == ("ring", 4, pod.dims[0].wrap)
    assert (x.bandwidth, y.bandwidth) == (pod.dims[0].bandwidth, 90e9)
    assert y.kind == "ring"
    assert not catalog.network("hall").dims[1].collectives


def test_a_network_of_ones_own(mine: Path) -> None:
    """Its slower link is felt as it is where a job names the same dimensions."""
    mine.write_text(
        NETWORK + '[chips.ours]\nlike = "h100-sxm"\nnetwork = "our-hall"\n'
    )
    add_own_machines()
    own = catalog.cluster("16xours")
    assert own.network == catalog.network("our-hall")
    assert [dim.bandwidth for dim in own.network.dims] == [450e9, 25e9]
    tables = {
        "model": {"name": "llama3-8b"},
        "cluster": {"on": "16xh100-sxm", "network": "our-hall"},
        "job": {"batch": "64seq"},
    }
    same = predict(load_job(tables), Layout(dp=16, zero=3))
    assert step_s("16xours") == same.step_time_s > step_s("16xh100-sxm")
    assert plan(Job("llama3-8b", "16xours", batch=64)).best  # type: ignore[arg-type]


def test_a_whole_new_chip(mine: Path) -> None:
    mine.write_text(
        "[chips.ours]\nnetwork = 'dgx-h100'\nhbm_bytes = '64 GiB'\nhbm_bandwidth = '2 TB/s'\n"
        "matrix_flops = { bf16 = '500 TFLOP/s' }\nvector_flops = '30 TFLOP/s'\n"
    )
    add_own_machines()
    assert catalog.chip("ours").peak("bf16") == 500e12
    assert step_s("16xours") > step_s("16xh100-sxm")


def test_commands_take_the_names(
    mine: Path,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also at a price, and a file that is written means the same where nobody has the chip."""
    mine.write_text(
        "[prices]\nours = 1.75\n[chips.ours]\nlike = 'h100-sxm'\npower_w = '500 W'\n"
    )
    told = shell(f"{JOB} --tokens 1T -o job.toml").out
    assert "on 16 x ours" in told and "at 1.75 USD/chip-h" in told
    assert "ours" in shell("catalog chips").out
    for kind in catalog.OWN.values():
        kind.clear()
    for known in (_tables, _index, _entry):
        known.cache_clear()
    monkeypatch.delenv("MESHWRIGHT_CONFIG")
    shell(JOB, ends=2)  # the name is gone
    again = shell("predict job.toml").out
    steps = [
        next(line for line in text.splitlines() if line.startswith("  step"))
        for text in (told, again)
    ]
    assert steps[0] == steps[1] and "at 1.75 USD/chip-h" in again


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[chips.h100-sxm]\npower_w = 1\n",
            "the catalogue has a chip of that name",
        ),
        ("[chips.h100]\npower_w = 1\n", 'like = "h100"'),  # an alias of it
        ("[chips.ours]\nlike = 'h1000'\n", "did you mean"),
        (
            "[chips.ours]\nlike = 'h100'\nwatts = 3\n",
            "mine.toml: chips.ours: field 'watts'",
        ),
        (
            "[chips.ours]\nlike = 'h100'\nhbm_bandwidth = 400\n",
            "hbm_bandwidth",
        ),
        ("[chips.ours]\npower_w = '3 W'\n", "mine.toml: chips.ours needs"),
        (
            "[networks.hall]\nlike = 'selene'\ndims = []\n",
            "mine.toml: networks.hall",
        ),
        (
            "[networks.hall]\nlike = 'tpu-v5p-pod'\ndims = [{ name = 'a', size = 4,"
            " bandwidth = '90 GB/s', latency = '1 us' }]\n",
            "has no dimension 'a', only x (ring), y (ring)",
        ),
        ("chips = 3\n", "chips must be a table"),
        ("[chips]\nours = 3\n", "must be a table of the fields of a chip"),
        ("[chip.ours]\nlike = 'h100'\n", "did you mean chips?"),
    ],
)
def test_what_is_wrong_with_them(mine: Path, text: str, said: str) -> None:
    mine.write_text(text)
    with refusal() as wrong:
        add_own_machines()
    assert said in str(wrong.value)
