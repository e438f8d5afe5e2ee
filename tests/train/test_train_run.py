"""`meshwright train` and `data` as a user meets them."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from small_runs import QUICKSTART, rows, small  # noqa: E402

from meshwright.describe.job import Job  # noqa: E402
from meshwright.describe.training import Settings, settings, train_table  # noqa: E402
from meshwright.formats.toml import load_job  # noqa: E402
from meshwright.formats.toml_writer import dumps_toml  # noqa: E402
from meshwright.train.initial import local  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.run import metrics  # noqa: E402
from refusals import refusal  # noqa: E402
from shell import Shell  # noqa: E402

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_run_leaves_metrics_checkpoints_and_its_job(
    shell: Shell,
) -> None:
    found = shell.json("train", small())
    assert (
        found["verb"] == "train"
        and found["steps"] == 12
        and found["checkpoint"] == "run/step-00000012"
    )
    assert [row["step"] for row in rows()] == [*range(1, 13)]
    assert all(
        row["tokens_per_s"] == pytest.approx(16 * 32 / row["elapsed_s"])
        for row in rows()
    )
    assert all(row["elapsed_s"] >= row["step_time_s"] for row in rows())
    assert all(
        row["cpu_s"] > 0 and row["memory_bytes"] > 1e6 and 0 < row["mfu"] < 1
        for row in rows()
    )
    assert (
        rows()[0]["predicted_step_time_s"]
        == found["predicted_step_time_s"]
        > 0
    )
    assert sorted(path.name for path in Path("run").glob("step-*")) == [
        "step-00000010",
        "step-00000012",
    ]
    wanted = load_job("job.toml")
    said = train_table(settings(wanted.train))
    assert load_job("run/job.toml") == replace(wanted, train=said)


def spoil(monkeypatch: pytest.MonkeyPatch, steps: range) -> None:
    """The loss and all gradients of these steps (the first is 1) are not finite, on every rank."""
    known, done = Trainer.sums, [0]

    def spoilt(trainer: Trainer, *batch: Any) -> Any:
        done[0] += 1
        sums = known(trainer, *batch)
        if done[0] in steps:
            sums[:2] = float("nan")
        return sums

    monkeypatch.setattr(Trainer, "sums", spoilt)


def test_a_weight_that_differs_between_ranks_ends_the_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one of two ranks, after step 2, of every second of which replicas are compared."""
    made, done = Trainer.optimizer_step, [0]

    def other(trainer: Trainer, *how: Any) -> None:
        made(trainer, *how)
        done[0] += 1
        if done[0] == 2 and dist.get_rank() == 1:
            local(next(iter(trainer.parameters().values()))).data[0] += 1

    monkeypatch.setattr(Trainer, "optimizer_step", other)
    job = small(check_every=2, save_every=1, steps=2, record=2)
    said = shell("train", job, "--zero 0", ends=3).err
    assert (
        "after step 2, ranks 0 and 1 hold different values of embedding.weight"
        in said
    )
    assert not Path("run/step-00000002").exists()
    recorded = Path("run/record/rank-0001.jsonl").read_text("utf-8")
    assert len(recorded.splitlines()) == 3, "its step too"


def test_a_loss_that_is_no_number_is_null(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, range(2, 9))
    job = small(steps=3, save_every=3)
    found = json.loads(
        shell(f"train {job} --json").out, parse_constant=pytest.fail
    )
    assert (
        found["first_loss"] > 0
        and found["last_loss"] is None
        and found["skipped"] == 2
    )
    last = Path("run/metrics.jsonl").read_text("utf-8").splitlines()[-1]
    assert json.loads(last, parse_constant=pytest.fail)["loss"] is None
    assert (
        "-> not a number, 2 updates skipped"
        in shell(f"train {job} --resume").out
    )


def test_the_example_with_experts_goes_on_under_another_ep(
    shell: Shell,
) -> None:
    table = tomllib.loads((QUICKSTART.parent / "moe.toml").read_text("utf-8"))
    table["train"] |= {
        "steps": 4,
        "data": "synthetic",
        "save_every": 2,
        "check_every": 1,
        "output": "run",
    }
    Path("job.toml").write_text(dumps_toml(table), "utf-8")
    shell("train job.toml")
    whole = [row["loss"] for row in rows()]
    shutil.rmtree("run/step-00000004")
    shell("train job.toml --resume --ep 1 --zero 3")
    assert [row["loss"] for row in rows()] == pytest.approx(whole, abs=1e-5)


def test_an_unfinished_line_of_metrics_does_not_count(tmp_path: Path) -> None:
    row = {"step": 1, "step_time_s": 0.5, "cpu_s": 0.25}
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + '\n{"step": 2, "lo')
    assert metrics(tmp_path / "m.jsonl") == (row,)
    assert metrics(tmp_path / "none.jsonl") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("junk\n{}\n", "line 1: not a line of JSON"),
        ('{"step": "x"}\n', "step must be a number"),
        ("\xff", "not a UTF-8"),
    ],
)
def test_a_damaged_run_is_told_before_ranks_start(
    text: str, says: str, shell: Shell
) -> None:
    Path("run/step-00000005").mkdir(parents=True)
    Path("run/metrics.jsonl").write_text(text, "latin-1")
    assert says in shell.refused("train", small(), "--resume")


def test_a_run_needs_a_folder(shell: Shell) -> None:
    Path("taken").touch()
    assert (
        "train.output 'taken' cannot be written: File exists"
        in shell.refused("train", small(output="taken"))
    )


TRAIN = [sys.executable, "-m", "meshwright", "train", "job.toml"]


def wait_for(steps: int, process: subprocess.Popen[str]) -> None:
    """Until a run has written so many."""
    while not (Path("run/metrics.jsonl").exists() and len(rows()) >= steps):
        assert process.poll() is None
        time.sleep(0.02)


def ranks(process: subprocess.Popen[str]) -> list[int]:
    """Of a run: the process of each."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in path.read_text().split()]


def second_rank(gets: int, timeout: float) -> tuple[int, str]:
    """Exit code and messages of a run whose second rank gets a signal after 15 steps."""
    with subprocess.Popen(TRAIN, stderr=subprocess.PIPE, text=True) as process:
        wait_for(15, process)
        os.kill(ranks(process)[1], gets)
        told = process.communicate(timeout=timeout)[1]
    return process.returncode, told


def test_sigterm_finishes_the_step_saves_and_ends(shell: Shell) -> None:
    """Then --resume goes on to the end as if nothing had been."""
    small(steps=1000, save_every=900)
    with subprocess.Popen(
        [*TRAIN, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(3, process)
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate(timeout=60)
        found = json.loads(out)
    assert process.returncode == 0 and 3 <= found["steps"] < 900
    assert f"after step {found['steps']} of 1000: --resume goes on" in told
    assert (
        found["checkpoint"] == f"run/step-{found['steps']:08d}"
        and len(rows()) == found["steps"]
    )
    shell("train job.toml --resume --steps", found["steps"] + 2)
    assert [row["step"] for row in rows()] == [*range(1, found["steps"] + 3)]


def test_an_interrupted_run_says_where_it_would_go_on() -> None:
    """Ctrl-C reaches all ranks and the process that forked them; nothing is saved. A shell has what
    it starts in the background ignore Ctrl-C, and so would what this test starts.
    """
    small(steps=1000, save_every=2)
    with subprocess.Popen(
        TRAIN,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        wait_for(5, process)
        os.killpg(process.pid, signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in told
    newest = max(p.name for p in Path("run").glob("step-????????"))
    assert (
        f"interrupted: the newest complete checkpoint is {newest}; --resume"
        in told
    )


def test_a_killed_rank_restarts_from_the_last_checkpoint(shell: Shell) -> None:
    """The curve of losses is the one of an undisturbed run, bit by bit."""
    small(steps=120, save_every=10, restarts=1)
    code, told = second_rank(signal.SIGKILL, timeout=100)
    assert code == 0
    assert (
        "rank 1 of 2 was killed by SIGKILL; the other ranks were ended; again from step-"
        in told
    )
    disturbed = [(row["step"], row["loss"]) for row in rows()]
    shell("train", small(steps=120, output="whole"))
    Path("run").rename("disturbed")
    Path("whole").rename("run")
    assert disturbed == [(row["step"], row["loss"]) for row in rows()]


@pytest.mark.slow
@pytest.mark.parametrize(("restarts", "code"), [(0, 3), (1, 0)])
def test_a_stopped_rank_is_named_and_ends_the_run_or_starts_it_again(
    restarts: int, code: int
) -> None:
    more = {"restarts": restarts} if restarts else {}
    small(steps=60, save_every=5, timeout=20, **more)
    found, told = second_rank(signal.SIGSTOP, timeout=200)
    assert found == code
    assert re.search(
        "no progress for 20 s: rank 1 at .*step [0-9]+, stopped by a signal, of 2 ranks; all were"
        " ended",
        told,
    )
    assert ("again from step-" in told) == bool(restarts)
    assert "Traceback" not in told
    assert [row["step"] for row in rows()] == [*range(1, len(rows()) + 1)]
    assert (len(rows()) == 60) == bool(restarts)


def test_sigterm_while_ranks_start_starts_nothing_again() -> None:
    small(steps=1000, restarts=5)
    with subprocess.Popen(TRAIN, stderr=subprocess.PIPE, text=True) as process:
        while not ranks(process):
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=60)[1]
    # 0: the ranks could already save
    assert process.returncode in (0, 3)
    assert "again" not in told and "Traceback" not in told
    assert "killed by" not in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train llama3-8b", "train needs a JOB.toml"),
        (
            "train job.toml --resume",
            "holds no checkpoint to resume from",
        ),
        ("train job.toml --tp 3", "heads 4 cannot be split 3 ways"),
        (
            "train job.toml --dp 1 --pp 2 --schedule zb-h1",
            "meshwright allows schedule gpipe, 1f1b",
        ),
        ("train job.toml --data nowhere", "nowhere.json"),
        ("data nowhere.txt -o t", "nowhere.txt cannot be read"),
    ],
)
def test_what_cannot_run_is_a_sentence(
    words: str, says: str, shell: Shell
) -> None:
    small()
    told = shell.refused(words)
    assert says in told and told.count("\n") == 1
    assert not Path("run/metrics.jsonl").exists()


def test_a_second_run_does_not_write_over_the_first(
    shell: Shell,
) -> None:
    Path("run/step-00000003").mkdir(parents=True)
    assert "holds a run already (step-00000003): --resume" in shell.refused(
        "train", small()
    )


def test_without_torch_there_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'meshwright[train]'" in shell.refused("train", small())


def test_data_makes_a_token_file(shell: Shell) -> None:
    Path("t.txt").write_text("hello", "utf-8")
    assert (
        "5 tokens" in shell("data t.txt -o tokens/t").out
        and Path("tokens/t.bin").stat().st_size == 10
    )


NONE = (
    "weight_decay",
    "clip",
    "save_every",
    "keep_every",
    "restarts",
    "check_every",
    "record",
    "profile",
    "shards",
)


@pytest.mark.parametrize("name", NONE)
def test_zero_is_none_as_the_word_is(name: str) -> None:
    assert (
        getattr(settings({name: 0}), name)
        is None
        is getattr(settings({name: "none"}), name)
    )


def test_zero_where_it_is_a_number(shell: Shell) -> None:
    """No warm-up, a rate that falls to nothing, no memory of gradients, the seed 0; they train as
    such.
    """
    zeros = {"warmup": 0, "final_lr": 0, "beta1": 0, "seed": 0}
    found = settings(zeros)
    assert {name: getattr(found, name) for name in zeros} == zeros
    shell(
        "train",
        small(
            **zeros,
            restarts=0,
            record=0,
            weight_decay=0,
            steps=3,
            lr=0.5,
        ),
    )
    assert [row["lr"] for row in rows()] == pytest.approx([0.5, 0.25, 0.0])
    assert settings(load_job("run/job.toml").train) == settings(
        load_job("job.toml").train
    )


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            {"epsilon": "4Mi"},
            "train.epsilon must be between 1e-20 and 1, not 4.1943e",
        ),
        (
            {"threads": 1000000},
            "train.threads must be between 1 and 1024, not 1000000",
        ),
        ({"beta1": 1}, "train.beta1 must be less than 1"),
        ({"max_skipped": 0}, "train.max_skipped must be at least 1"),
        ({"warmup": -1}, "train.warmup must be at least 0"),
        ({"final_lr": 1.5}, "train.final_lr must be between 0 and 1, not 1.5"),
        (
            {"final_lr": -0.5},
            "train.final_lr must be between 0 and 1, not -0.5",
        ),
        ({"timeout": 1e30}, "train.timeout must be between 0.001 and 1e"),
        ({"stepz": 1}, "stepz"),
        ({"lr": -1}, "train.lr"),
        ({"beta2": 2.0}, "train.beta2 must be less than 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    table: dict[str, Any], says: str
) -> None:
    with refusal(says):
        settings(table)


def test_metrics_that_cannot_be_written_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rank 0 may write no more to a file than a few rows; checkpoints stay as they were."""
    small(steps=60, save_every=2, keep=1)
    code = (
        "import resource, signal, sys; from meshwright.cli import main as"
        " cli\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        " resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))\nsys.exit(cli.run(['train',"
        " 'job.toml']))"
    )
    Path("run").mkdir()
    Path("run/metrics.jsonl").write_text(
        '{"step": 0, "step_time_s": 0, "cpu_s": 0, "x": "'
        + 397_000 * "x"
        + '"}\n'
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 3
    assert (
        "run/metrics.jsonl could not be written: File too large; checkpoints are as they were"
        in found.stderr
    )
    assert "Traceback" not in found.stderr and not list(
        Path("run").glob("*.part")
    )


def test_a_rise_longer_than_the_run_is_said() -> None:
    """3 of 12 steps up to the highest rate."""
    told = settings({"steps": 3, "warmup": 12}).warning
    assert "warmup 12 is longer than the 3 steps" in told
    assert told.endswith("ends at 25 % of 0.0003")
    assert settings({"steps": 12, "warmup": 12}).warning == ""


def test_a_device_on_the_command_line_wins_over_the_file(
    shell: Shell,
) -> None:
    assert (
        "train.device 'tpu' is not known; did you mean cpu?"
        in shell.refused("train", small(), "--device tpu")
    )
    if not torch.cuda.device_count():
        assert "this machine has 0" in shell.refused(
            "train", small(), "--device cuda"
        )


def test_a_job_on_standard_input_is_run_as_its_table_says(
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
) -> None:
    asked: list[Settings] = []

    def run(job: Job, how: Settings, *rest: Any) -> None:
        asked.append(how)

    text = Path(small()).read_text("utf-8")
    monkeypatch.setattr("meshwright.train.run.train", run)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    shell("train -")
    assert asked == [settings(tomllib.loads(text)["train"])]
    assert asked[0].lr != Settings().lr
