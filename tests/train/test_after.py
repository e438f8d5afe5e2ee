"""What a run leaves for its reader: a picture, a sample of text, TensorBoard's events."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
from jobs import LLAMA, job  # noqa: E402
from small_runs import described  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.formats.run_folder import metrics  # noqa: E402
from meshwright.train.log import TAGS  # noqa: E402
from shell import Shell


class Writer:
    """As TensorBoard's, but it keeps a line an event."""

    def __init__(self, folder: str, purge_step: int) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.file = (Path(folder) / f"{purge_step}.jsonl").open("w")

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """One event."""
        self.file.write(json.dumps([tag, value, step]) + "\n")

    def close(self) -> None:
        """The end."""
        self.file.close()


def written(**train: Any) -> str:
    """A job on one rank that learns a text of one sentence."""
    Path("text.txt").write_text("to be or not to be, " * 200, "utf-8")
    assert cli.run(["data", "text.txt", "-o", "text"]) == 0
    said = {"steps": 3, "data": "text", "eval_every": 2, "lr": 1e-3, **train}
    return described(job(LLAMA, Layout(dp=1, microbatch=8)), **said)


def test_a_run_leaves_a_picture_a_sample_and_events(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
) -> None:
    monkeypatch.chdir(tmp_path)
    board: Any = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    named = written(sample=7, tensorboard=True)
    found = shell.json(f"train {named}")
    text = Path("run/sample.txt").read_text("utf-8")
    assert found["sample"] == text and text
    picture = Path("run/loss.svg").read_text("utf-8")
    assert "<svg" in picture
    rows = metrics(Path("run/metrics.jsonl"))
    events = [
        json.loads(line)
        for line in Path("run/tensorboard/1.jsonl").read_text().splitlines()
    ]
    losses = [e[1:] for e in events if e[0] == "loss/training"]
    assert losses == [[row["loss"], row["step"]] for row in rows]
    held = [step for tag, _, step in events if tag == "loss/held out"]
    assert held == [2, 3]


def test_tensorboard_itself_reads_what_is_written(
    elsewhere: Path, shell: Shell
) -> None:
    """By its own reader, where the package is installed; a run that goes on is one curve."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing import event_accumulator

    named = written(tensorboard=True, save_every=2)
    shell(f"train {named}")
    shutil.rmtree("run/step-00000003")
    shell(f"train {named} --resume --steps 5")
    reader = event_accumulator.EventAccumulator("run/tensorboard")
    reader.Reload()
    rows = metrics(Path("run/metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    for column, tag in TAGS.items():
        want = {r["step"]: r[column] for r in rows if column in r}
        found = {e.step: e.value for e in reader.Scalars(tag)}
        assert found == pytest.approx(want, rel=1e-6)


def test_a_picture_that_cannot_be_written_is_a_line(
    elsewhere: Path, shell: Shell
) -> None:
    """The run is done, and its checkpoint there: it ends as one that went well."""
    Path("run/loss.svg").mkdir(parents=True)
    said = shell("train", written()).err
    assert "no picture of the losses: loss.svg cannot be written: Is a" in said
    assert Path("run/step-00000003").is_dir()


def test_tensorboard_that_is_not_there_is_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shell: Shell,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert "pip install tensorboard" in shell.refused(
        "train", written(tensorboard=True)
    )
    assert not Path("run/metrics.jsonl").exists()
