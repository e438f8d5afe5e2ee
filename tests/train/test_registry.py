"""Parts of one's own, as docs/train.md shows them: model, optimizer, data set and logger."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from jobs import LLAMA, job  # noqa: E402
from small_runs import described  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.formats.run_folder import metrics  # noqa: E402
from meshwright.train import registry  # noqa: E402
from meshwright.train.storage import Reader  # noqa: E402
from shell import Shell

PAGE = Path(__file__).parents[2] / "docs" / "train.md"
JOB = job(LLAMA, Layout(dp=2, zero=2, microbatch=4))
OWN = {
    "own_model": "mine:Model",
    "own_optimizer": "mine:optimizer",
    "data": "mine:Counting",
    "logger": "mine:Logger",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example of the page as mine.py, and a job."""
    section = PAGE.read_text("utf-8").partition(
        "## Your own model, optimizer, data or logger"
    )[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code
    (tmp_path / "mine.py").write_text(code[1], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    described(JOB)
    return tmp_path


def words(**given: Any) -> list[str]:
    """Flags for fields of [train]."""
    return [
        word
        for name, value in given.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def losses(folder: str) -> list[float]:
    return [row["loss"] for row in metrics(Path(folder, "metrics.jsonl"))]


@pytest.mark.parametrize("field", [*registry.CODE, *registry.PATHS])
def test_code_that_only_a_file_names_is_not_run(
    field: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job from elsewhere is data: the module stays away until a flag names it."""
    (folder / "theirs.py").write_text("raise SystemExit(99)", "utf-8")
    named = described(JOB, steps=2, **{field: "theirs:it"})
    assert cli.run(["train", named]) == 2
    flag = field.replace("_", "-")
    assert f"--{flag} theirs:it" in capsys.readouterr().err
    assert "theirs" not in sys.modules


def test_parts_of_ones_own(folder: Path, shell: Shell) -> None:
    """They are used, a resumed run goes on bit by bit, and a checkpoint imports nothing."""
    few = words(**OWN, lr=0.3, warmup=1, lr_schedule="constant")
    shell("train job.toml", *few, *words(steps=6))
    assert losses("run")[-1] < losses("run")[0] - 0.3
    lines = Path("run/losses.txt").read_text("utf-8").split("\n")
    assert lines[:-1] == [f"{i} {x}" for i, x in enumerate(losses("run"), 1)]
    every = Reader(Path("run/step-00000006")).shapes
    kinds = {name.partition("/")[0] for name in every}
    assert kinds == {"weights", "momentum_buffer"}
    other = words(output="other", steps=4)
    shell("train job.toml", *few, *other)
    again = ["--resume", *words(output="other", steps=6), "--zero", "1"]
    shell("train job.toml", *few, *again)
    assert losses("other") == losses("run")
    sample = "generate run --tokenizer bytes --length 3"
    assert "is of mine:Model, not of it" in shell.refused(sample)
    shell(f"{sample} --own-model mine:Model")
    assert "a model of one's own" in shell.refused(
        "export run --to safetensors -o w"
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"own_model": "nobody:Model"}, "train.own_model 'nobody:Model' cannot be imported:"),
        ({"own_optimizer": "mine:nothing"}, "train.own_optimizer 'mine:nothing' cannot be"),
        ({"logger": "run/logger"}, "train.logger 'run/logger' is not known"),
        ({"own_model": "mine:Model", "tp": 2, "dp": 1}, "train.own_model is not cut over tp"),
        ({"own_model": "mine:Model", "weights": "w"}, "leave one out"),
        ({"data": "mine:Counting", "eval_every": 2}, "holds nothing out: name train.eval_data"),
        ({"data": "mine:Counting", "documents": "true"}, "keeps documents of token files"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(
    given: dict[str, Any],
    says: str,
    folder: Path,
    shell: Shell,
) -> None:
    assert says in shell.refused("train job.toml", *words(**given))
    assert not Path("run").exists()


def test_entry_points_are_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that is named is loaded; a path is a path."""
    one = EntryPoint("ours", "json:loads", registry.GROUP)
    none = EntryPoint("broken", "nobody:x", registry.GROUP)
    monkeypatch.setattr(registry, "declared", lambda: EntryPoints([one, none]))
    assert registry.imported_part("logger", "ours") is json.loads
    assert registry.is_own("ours") and registry.is_own("a.b:C")
    for path in ("tokens/a", "a 0.7, b 0.3", "corpus", "C:/a", None):
        assert not registry.is_own(path)


def test_nothing_but_training_imports_it(folder: Path, shell: Shell) -> None:
    (folder / "mine.py").write_text("raise SystemExit('imported')")
    described(JOB, **OWN)
    shell("predict job.toml")
    shell("plan job.toml -o plan.toml")
    assert 'own_model = "mine:Model"' in Path("plan.toml").read_text()
