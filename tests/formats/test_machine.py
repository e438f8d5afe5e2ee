"""The machine file: read as it was written, taken in place of a catalogue name, with notes where a
prediction leaves it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from by_hand import GPT2_CONFIG
from meshwright.catalog import cluster
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job
from meshwright.describe.layout import Layout
from meshwright.describe.measured import MeasuredTable, Overhead
from meshwright.describe.model import MoE
from meshwright.describe.network import Dim, Network
from meshwright.formats import resolve
from meshwright.formats.machine import dump_machine, load_machine
from meshwright.formats.toml import dump_job, load_job
from meshwright.layout.placement import placed
from meshwright.prediction.prediction import predict
from meshwright.program.cpu import cpu_seconds
from refusals import refusal
from shell import Shell

ORIGIN = {"*": {"source": "a test", "date": "2026-11-21"}}
KERNEL = MeasuredTable(
    ("tokens", "inner", "outer"),
    ((16.0, 1024.0), (32.0, 64.0), (32.0, 512.0)),
    (1e-6, 2e-6, 2e-6, 4e-6, 1e-4, 2e-4, 2e-4, 4e-4),
    0.05,
    "a law",
    ORIGIN,
)
SENDS = MeasuredTable(
    ("ranks", "bytes"),
    ((2.0, 4.0), (1e3, 1e6)),
    (1e-4, 2e-4, 3e-4, 5e-4),
    sources=ORIGIN,
)
MACHINE = Cluster(
    Chip(
        "core",
        {"fp32": 1e11},
        1e9,
        4e9,
        1e10,
        kernels={
            "fp32/matmul forward": KERNEL,
            "fp32/accumulate": replace(
                SENDS, axes=("elements",), points=((1e3, 1e4, 1e5, 1e6),)
            ),
        },
        sources=ORIGIN,
    ),
    Network(
        "gloo",
        (
            Dim(
                "host",
                1e9,
                1e-4,
                collectives={
                    "all_gather": SENDS,
                    "all_gather/cpu": SENDS,
                    "send/cpu": SENDS,
                },
            ),
        ),
    ),
    1,
    engine={
        "plain": Overhead(
            (1.0,), (1e-3,), (1e-4,), (1e-5,), (1e-6,), 0.1, ORIGIN
        ),
        "tp": Overhead((2.0,), (1.0,), (0.0,), (0.0,), (0.0,)),
    },
)
TINY: dict[str, Any] = {
    "model": {
        "name": "tiny",
        "layers": 4,
        "hidden": 64,
        "heads": 4,
        "ffn": 160,
        "vocab": 256,
        "seq": 32,
    },
    "job": {"batch": "8seq", "precision": "fp32", "assumptions": "pytorch"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "machine.toml"
    path.write_text(dump_machine(MACHINE, "measured by a test"))
    return path


def job(file: Path, chips: int, **layout: int) -> Job:
    """The tiny model on so many of the machine's ranks."""
    return load_job(
        {**TINY, "cluster": {"on": f"{chips}x{file}"}, "layout": layout}
    )


def test_it_is_read_as_it_was_written(file: Path) -> None:
    found = load_machine(file)
    assert found == MACHINE
    assert (
        found.chip.kernels["fp32/matmul forward"].sources["*"]["date"]
        == "2026-11-21"
    )


def test_it_stands_where_a_catalogue_name_stands(file: Path) -> None:
    cluster = resolve.cluster(f"4x{file}")
    assert (cluster.chips, cluster.chip, cluster.engine) == (
        4,
        MACHINE.chip,
        MACHINE.engine,
    )
    assert resolve.cluster(f"8x{file}", "dgx-a100").network.name == "dgx-a100"
    four = job(file, 4, dp=4)
    assert four.cluster.engine == MACHINE.engine
    import tomllib

    # a job file stands alone
    assert (
        load_job(tomllib.loads(dump_job(four)), files=False).cluster
        == four.cluster
    )


def test_strangers_cannot_name_files(file: Path) -> None:
    with refusal("not known"):
        load_job({**TINY, "cluster": {"on": f"4x{file}"}}, files=False)


def test_every_verb_takes_it(file: Path, tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "config.json").write_text(GPT2_CONFIG)
    words = [
        str(tmp_path / "config.json"),
        "--on",
        f"2x{file}",
        "--batch",
        "4seq",
        "--precision",
        "fp32",
    ]
    # 5.4 GiB in a core of 3.7 GiB
    pytorch = "--assumptions pytorch --why"
    told = " ".join(shell("predict", *words, pytorch, ends=1).out.split())
    assert (
        "outside its measured range" in told
        and "inner 768 (measured 32 to 64)" in told
    )
    # sharded and recomputed over both cores it takes 3.3 GiB: less than there is, but not by 10 %
    # of all chances
    shell("plan", *words, "--assumptions pytorch --headroom 0.5 --json")


def test_a_prediction_inside_the_ranges_has_no_such_note(file: Path) -> None:
    wide = job(file, 1)
    notes = [note for note in predict(wide).notes if "measured range" in note]
    assert len(notes) == 1 and "inner 160" in notes[0]
    inside = predict(replace(wide, model=replace(wide.model, ffn=64))).notes
    assert not [note for note in inside if "measured range" in note]


def test_cpu_seconds_add_up_over_ranks(file: Path) -> None:
    cut = job(file, 2, tp=2, microbatch=4)
    one = predict(job(file, 1, microbatch=4)).cpu_time_s
    two = predict(cut).cpu_time_s
    assert one and two
    plain = 1e-3 + 2 * 1e-4 + 4 * 1e-5 + 8 * 1e-6
    assert one["engine"] == pytest.approx(plain) and two[
        "engine"
    ] == pytest.approx(2 * (plain + 1.0))
    assert one["tp_comm"] == 0 < two["tp_comm"]
    assert (
        predict(
            replace(cut, cluster=replace(cut.cluster, engine={}))
        ).cpu_time_s
        is None
    )


@pytest.mark.parametrize(
    ("schedule", "boundaries"),
    [("1f1b", 1), ("interleaved", 3), ("zbv", 2), ("dualpipev", 2)],
)
def test_messages_are_counted_between_ranks(
    file: Path, schedule: str, boundaries: int
) -> None:
    """Two ranks: the stages of a folded pipeline are on ranks 0, 1, 1, 0, and what stays on a rank
    is no message.
    """
    chunks = {"interleave": 2} if schedule == "interleaved" else {}
    two = job(file, 2)
    layout = Layout(pp=2, dp=1, microbatch=2, schedule=schedule, **chunks)
    found = cpu_seconds(two, placed(layout, two.cluster.sizes))
    sent = 2 * 32 * 64 * 4.0
    one = 1e-4 + (sent - 1e3) / (1e6 - 1e3) * 1e-4
    # microbatches, both ways, sender and receiver
    assert found["pp_comm"] == pytest.approx(4 * boundaries * 2 * 2 * one)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"layout": Layout(dp=2, zero=3, microbatch=4)},
            "has no engine 'zero3'",
        ),
        ({"layout": Layout(pp=2, dp=1, microbatch=1)}, "has no engine '1f1b'"),
        (
            {
                "model": replace(
                    load_job({**TINY, "cluster": {"on": "1xh100-sxm"}}).model,
                    moe=MoE(4, 2, 64),
                )
            },
            "experts were not measured",
        ),
    ],
)
def test_cpu_seconds_of_what_was_not_measured_are_not_told(
    file: Path, changes: Any, says: str
) -> None:
    """They would lack a part, silently."""
    cut = job(file, 2, tp=2, microbatch=4)
    found = predict(replace(cut, **changes))
    assert found.cpu_time_s is None and any(
        says in note for note in found.notes
    )
    assert predict(replace(cut, assumptions=REALISTIC)).cpu_time_s is None


@pytest.mark.parametrize(
    ("ranks", "measured"), [((2.0,), "2"), ((1.0, 2.0, 3.0), "1 to 3")]
)
def test_groups_beyond_the_measured_ones_are_noted(
    file: Path, ranks: tuple[float, ...], measured: str
) -> None:
    four = job(file, 4, tp=4, microbatch=4)
    tp = Overhead(ranks, *(((0.0,) * len(ranks),) * 4))
    engine = {**four.cluster.engine, "tp": tp}
    notes = predict(
        replace(four, cluster=replace(four.cluster, engine=engine))
    ).notes
    beyond = "engine tp is used outside its measured range: ranks 4 (measured"
    assert any(f"{beyond} {measured})" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[chips]\n", "did you mean chip"),
        ("[chip]\nname = 'x'\n", "needs"),
        ("nonsense", "not valid TOML"),
    ],
)
def test_mistakes_are_sentences(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with refusal(sentence):
        resolve.cluster(f"4x{tmp_path}/bad.toml")


def test_a_file_names_what_it_changes(tmp_path: Path) -> None:
    """As a job's table [cluster] does: a chip and a network of the catalogue, with other fields."""
    path = tmp_path / "ours.toml"
    path.write_text(
        '[chip]\nname = "h100-sxm"\nhbm_bytes = "94 GB"\n[network]\nname = "dgx-h100"\n'
    )
    ours, usual = load_machine(path), cluster("1xh100-sxm")
    assert ours.chip == replace(usual.chip, hbm_bytes=94e9)
    assert ours.network == usual.network
    path.write_text('[chip]\nname = "ours"\n[network]\nname = "dgx-h100"\n')
    with refusal("ours.*to define a new one give matrix_flops"):
        load_machine(path)
