"""A run records its steps, and `compare` reads them: the whole way on tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from small_runs import small  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.compare import compare  # noqa: E402
from meshwright.formats.run_folder import read_run  # noqa: E402
from meshwright.schedule import get  # noqa: E402
from meshwright.train import attempt  # noqa: E402
from meshwright.train.record import Recording  # noqa: E402
from shell import Shell  # noqa: E402

pytestmark = pytest.mark.usefixtures("elsewhere")


def train(*words: str, layers: int = 2, **settings: Any) -> None:
    """Six steps of the quickstart in small."""
    job = small(layers=layers, **{"steps": 6, **settings})
    assert cli.run(["train", job, *words]) == 0


def test_the_quickstart_in_small_then_compare(
    shell: Shell,
) -> None:
    train()
    run = read_run("run")
    assert [[s.step for s in rank.steps] for rank in run.ranks] == [
        [4, 5, 6]
    ] * 2
    for rank in run.ranks:
        for step in rank.steps:
            assert [part[:3] for part in step.actions] == [
                ("F", 0, 0),
                ("B", 0, 0),
                ("F", 0, 1),
                ("B", 0, 1),
            ]
            assert (
                0
                < sum(part.busy_s for part in step.actions)
                < step.thread_cpu_s
                <= step.process_cpu_s * 1.01
            )
            assert all(
                0 <= part.start_s <= part.end_s <= step.wall_s
                for part in step.parts
                if part.kind != "data"
            )
            assert {"data", "pipeline", "settle", "norm", "optimizer"} <= {
                part.kind for part in step.parts
            }
    found = json.loads(shell("compare run --json -o trace.json").out)
    assert (
        found["schema"] == "meshwright/4"
        and found["verb"] == "compare"
        and found["bubble"] is None
    )
    causes = found["causes"]
    assert sum(row["measured_s"] or 0 for row in causes["rows"]) + causes[
        "remainder"
    ]["s"] == pytest.approx(causes["measured_s"])
    assert found["memory_bytes"]["optimizer"]["measured"] == pytest.approx(
        found["memory_bytes"]["optimizer"]["predicted"], rel=0.02
    )
    names = {
        event["args"]["name"]
        for event in json.loads(Path("trace.json").read_text())["traceEvents"]
        if event["name"] == "process_name"
    }
    assert names == {
        "predicted rank 0",
        "measured on the clock rank 0",
        "measured in virtual time rank 0",
    }
    assert "remainder" in shell("compare run --all").out


SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("gpipe", "interleaved-zb", "dualpipev")
]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zbv", *SLOW])
def test_a_program_runs_the_actions_of_its_schedule_in_order(
    schedule: str,
) -> None:
    chunks = 1 if schedule in ("gpipe", "1f1b") else 2
    words = [
        "--pp",
        "2",
        "--dp",
        "1",
        "--zero",
        "0",
        "--schedule",
        schedule,
        "--interleave",
        str(chunks),
    ]
    train(*words, layers=2 * chunks, steps=2, save_every="none", record=1)
    found = compare(read_run("run")).virtual
    assert found and found.bubble.as_planned
    assert found.raw.order == get(schedule).order(2, 4, chunks)
    assert all(seconds > 0 for seconds in found.raw.busy_s)


def test_without_recording_nothing_is_written(
    shell: Shell,
) -> None:
    train(record="none", steps=2)
    assert not Path("run/record").exists()
    assert "this run recorded no steps" in shell("compare run --all").out
    shell("compare run -o gantt.png", ends=2)


@pytest.mark.parametrize(
    ("owner", "write", "file"),
    [
        (Recording, "write", "run/record/rank-0000.jsonl"),
        (attempt, "begin", "run/attempts.jsonl"),
    ],
)
def test_a_record_that_cannot_be_written_is_a_sentence(
    owner: Any,
    write: str,
    file: str,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device", file)

    monkeypatch.setattr(owner, write, full)
    said = shell("train", small(steps=2, record=1), ends=3).err
    assert f"{file} could not be written: No space left" in said
    assert "checkpoints are as they were" in said


def test_profiled_steps_leave_traces_that_tell_waits_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Waits for tp messages are ranges of the trace, and a line of the comparison."""
    train(
        "--tp", "2", "--dp", "1", "--zero", "0", record=1, profile=1, steps=3
    )
    run = read_run("run")
    assert [step.step for step in run.ranks[0].steps] == [2] and run.profiles[
        0
    ].steps == (3,)
    for rank, profile in run.profiles.items():
        assert (
            profile.wait_s.keys() == {"tp"} and 0 < profile.wait_s["tp"] < 10
        )
        events = json.loads(
            Path(f"run/profile/rank-{rank:04d}.json").read_text()
        )["traceEvents"]
        names = {
            event["name"]
            for event in events
            if event.get("cat") == "user_annotation"
        }
        assert {
            "step 3",
            "pipeline",
            "F stage 0 microbatch 0",
            "B stage 0 microbatch 3",
            "optimizer",
            "wait tp",
        } <= names
        assert (
            profile.peak_bytes
            and profile.peak_bytes
            > run.ranks[rank].steps[0].bytes["gradients"]
        )
    found = compare(run)
    assert found.step and any(
        cause.name == "tp_comm" and cause.measured_s
        for cause in found.step.causes
    )
    assert not any("tells them apart" in why for why in found.why())
