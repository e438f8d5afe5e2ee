"""Another engine carries a plan out: its configuration, log, lock, hang and seals. A stand-in for
torchrun plays the engine; the last test, which runs when asked for, has torchtitan itself.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshwright.cli.main import main
from meshwright.formats.toml import load_job
from meshwright.train import guard

JOB = """
[model]
name = "llama3-debug"
[cluster]
chips = 2
[cluster.chip]
name = "core"
matrix_flops = { fp32 = "100 GFLOP/s" }
vector_flops = "2 GFLOP/s"
hbm_bytes = "16 GiB"
hbm_bandwidth = "15 GB/s"
[cluster.network]
name = "gloo"
dims = [{ name = "host", bandwidth = "2 GB/s", latency = "100 us" }]
[layout]
dp = 2
zero = 3
microbatch = 2
[job]
batch = "4seq"
seq = 128
precision = "fp32"
framework = "torchtitan"
[software]
compiled = false
[train]
steps = 8
lr = 1e-3
save_every = 4
sample = 10
timeout = "3 s"
output = "titan"
"""
STAND_IN = r'''#!{python}
"""torchrun of an engine that trains nothing: a line a step, a checkpoint every few."""
import os, signal, sys, time
from pathlib import Path

words = sys.argv[1:]
value = dict(zip(words, words[1:], strict=False))
folder = Path(value["--dump_folder"])
(folder / "words").write_text("\n".join(words))
fault = os.environ.get("FAULT", "")
steps, tokens = int(value["--training.steps"]), 256.0
for step in range(1, steps + 1):
    print(f"[titan] step: {{step:2}}  loss: {{8 - step / 10:.5f}}  grad_norm: 1.0  memory: 0.70GiB(4.4%)"
          f"  tps: {{tokens / (9 if step == 1 else 0.25):,.0f}}  tflops: 0.1  mfu: 0.1%", flush=True)
    if step % int(value["--checkpoint.interval"]) == 0:
        there = folder / "checkpoint" / f"step-{{step}}"
        there.mkdir(parents=True)
        (there / "__0_0.distcp").write_bytes(bytes([step]) * 100)
        (there / ".metadata").write_text("all")
    if fault == "fails" and step == 3:
        print("[rank0]: Traceback (most recent call last):", file=sys.stderr)
        sys.exit("[rank0]: torch.OutOfMemoryError: CUDA out of memory")
    if fault in ("hangs", "sleeps") and step == 3:
        if fault == "hangs" and not os.fork():
            os.execve(sys.executable, ["rank", "-c", "import os; os.kill(os.getpid(), 19)"],
                      {{**os.environ, "RANK": "1"}})
        time.sleep(600)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, and a torchrun on the PATH."""
    (tmp_path / "job.toml").write_text(JOB)
    torchrun = tmp_path / "bin" / "torchrun"
    torchrun.parent.mkdir()
    torchrun.write_text(STAND_IN.format(python=sys.executable))
    torchrun.chmod(torchrun.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{torchrun.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*words: str) -> int:
    """Exit code of a start with torchtitan."""
    return main(["train", "job.toml", "--engine", "torchtitan", *words])


def flat(text: str) -> str:
    """Text with its white space joined."""
    return " ".join(text.split())


def test_a_plan_runs_is_compared_and_scales(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One command: 4 x 128 tokens a step on two ranks, 0.25 s of 256 tokens each."""
    assert train("--json", "--engine-flags=--dataloader.dataset c4") == 0
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert told["step_time_s"]["measured"] == pytest.approx(0.25)
    ratio = 0.25 / told["step_time_s"]["predicted"]
    # the median of seven steady steps, and one that came out as predicted
    assert told["scale"] == pytest.approx(ratio ** (7 / 8), rel=2e-3)
    assert "not told train.sample" in flat(err)
    run = folder / "titan"
    words = (run / "words").read_text().split("\n")
    value = dict(zip(words, words[1:], strict=False))
    assert value["--config"] == "llama3_debugmodel"
    assert value["--training.steps"] == "8"
    assert value["--parallelism.data_parallel_shard_degree"] == "2"
    assert value["--checkpoint.interval"] == "4"
    assert value["--dataloader.dataset"] == "c4"
    assert any(word.endswith("torchtitan_on_cpu.py") for word in words)
    # the folder is read by the verbs that a run ends with
    assert main(["compare", "titan"]) == 0
    assert "run as predicted?" in flat(capfd.readouterr().out)
    again = main(
        ["predict", "job.toml", "--on", "2x./titan/ours.toml", "--json"]
    )
    assert again == 0
    scaled = json.loads(capfd.readouterr().out)["step_time_s"]
    assert scaled == pytest.approx(
        told["step_time_s"]["predicted"] * told["scale"], rel=1e-3
    )
    assert load_job(run / "job.toml").train["lr"] == 1e-3


def test_who_fails_is_named(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Exit code 3, with the last error of the log."""
    monkeypatch.setenv("FAULT", "fails")
    assert train() == 3
    err = flat(capfd.readouterr().err)
    assert "exit code 1: torch.OutOfMemoryError: CUDA out of memory" in err
    assert train() == 2
    assert "holds a run already" in capfd.readouterr().err


def test_who_hangs_is_named_and_nobody_is_left(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A rank that a signal has stopped keeps all waiting; it is accused, and ended too."""
    monkeypatch.setenv("FAULT", "hangs")
    assert train() == 3
    err = flat(capfd.readouterr().err)
    assert "no word for 3 s: rank 1, stopped by a signal, of 1 ranks" in err
    ranks = subprocess.run(
        ["ps", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout
    assert str(folder) not in ranks


def test_one_run_in_a_folder_and_sigterm_ends_all(folder: Path) -> None:
    """A second start is refused while the engine lives; SIGTERM ends it, and frees the folder."""
    # the first must not be ended as silent before the second has started
    patient = JOB.replace('timeout = "3 s"', 'timeout = "60 s"')
    (folder / "job.toml").write_text(patient)
    words = ["train", "job.toml", "--engine", "torchtitan"]
    command = [sys.executable, "-m", "meshwright", *words]
    first = subprocess.Popen(
        command,
        env={**os.environ, "FAULT": "sleeps"},
        stderr=subprocess.PIPE,
        text=True,
    )
    log = folder / "titan" / "train.log"
    until = time.monotonic() + 60
    while not log.is_file() and time.monotonic() < until:
        time.sleep(0.05)
    second = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True
    )
    assert second.returncode == 2
    assert f"process {first.pid}" in second.stderr
    first.send_signal(signal.SIGTERM)
    assert "SIGTERM" in first.communicate(timeout=60)[1]
    assert first.returncode == 3
    assert train("--resume", "--steps", "4") == 0


def test_a_changed_checkpoint_is_set_aside(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Sealed when the run ends; one byte later the engine would have read it without a word."""
    assert train() == 0
    checkpoints = folder / "titan" / "checkpoint"
    assert {p.name for p in guard.complete(checkpoints)} == {
        "step-4",
        "step-8",
    }
    assert guard.set_aside(checkpoints) == []
    path = checkpoints / "step-8" / "__0_0.distcp"
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    capfd.readouterr()
    [sentence] = guard.set_aside(checkpoints)
    assert "step-8 is damaged: __0_0.distcp was changed" in sentence
    assert {p.name for p in guard.complete(checkpoints)} == {"step-4"}
    (checkpoints / guard.SEALS).write_text("[")
    assert train("--resume") == 2
    assert "no checkpoint" in flat(capfd.readouterr().err)


def test_what_no_engine_runs_is_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A name, a device, a missing torchrun."""
    for words, sentence in (
        (("--engine", "torchtitian"), "did you mean torchtitan?"),
        (("--engine-flags=--x",), "--engine-flags belongs to --engine"),
    ):
        assert main(["train", "job.toml", *words]) == 2
        assert sentence in flat(capfd.readouterr().err)
    monkeypatch.setenv("PATH", "/nowhere")
    assert train() == 2
    assert "torchrun, which is not on the PATH" in capfd.readouterr().err


TITAN = os.environ.get("TORCHTITAN", "")
"""Folder of executables of an environment with torchtitan 0.3.0, triton and torch 2.13."""


@pytest.mark.slow
@pytest.mark.skipif(not TITAN, reason="TORCHTITAN names no environment")
def test_torchtitan_itself(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its debug model on two CPU ranks: trained, compared, scaled, its checkpoints sealed."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = [t for o in vars(json).values() if (t := inspect.getdoc(o))]
    assets = folder / "tests" / "assets"
    for name in ("tokenizer", "c4_test"):
        (assets / name).mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    marks = ["<|begin_of_text|>", "<|end_of_text|>"]
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=2000, special_tokens=marks, initial_alphabet=alphabet
        ),
    )
    tokenizer.save(str(assets / "tokenizer" / "tokenizer.json"))
    (assets / "tokenizer" / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": marks[0], "eos_token": marks[1]})
    )
    lines = [json.dumps({"text": text}) for text in texts * 20]
    (assets / "c4_test" / "data.json").write_text("\n".join(lines))
    job = JOB.replace('timeout = "3 s"', 'timeout = "300 s"')
    (folder / "job.toml").write_text(job)
    (folder / "bin" / "torchrun").unlink()
    monkeypatch.setenv("PATH", f"{TITAN}:{os.environ['PATH']}")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert shutil.which("torchrun")
    assert train("--json", "--engine-flags=--validator.no-enable") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["kind"] == "torchtitan"
    assert told["steps"] == 8
    assert 0.1 < told["scale"] < 100
    sealed = guard.known(folder / "titan" / "checkpoint")
    assert sorted(sealed) == ["step-4", "step-8"]
