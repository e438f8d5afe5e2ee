"""The table [train] of a JOB.toml goes wherever the job goes."""

from __future__ import annotations

import io
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from meshwright.formats.toml import dump_job, load_job
from refusals import refusal
from shell import Shell

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.toml"
TABLE = tomllib.loads(QUICKSTART.read_text("utf-8"))["train"]


def job(tmp_path: Path, train: str, **tables: Any) -> str:
    """A file of a job on eight H100."""
    path = tmp_path / "job.toml"
    more = "\n".join(tables.values())
    path.write_text(
        f'[model]\nname = "llama3-8b"\n[cluster]\non = "8xh100-sxm"\n[job]\nbatch = "64seq"\n'
        f"{more}\n[train]\n{train}\n"
    )
    return str(path)


def written(path: Path) -> dict[str, Any]:
    """The table of a file."""
    table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))["train"]
    return table


@pytest.mark.parametrize("verb", ["plan", "predict"])
def test_a_file_that_is_written_holds_it_unchanged(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """From a file, and from standard input."""
    out = tmp_path / "p.toml"
    shell(f"{verb} {QUICKSTART} -o {out}")
    assert written(out) == TABLE
    out.unlink()
    text = io.StringIO(QUICKSTART.read_text("utf-8"))
    monkeypatch.setattr(sys, "stdin", text)
    shell(f"{verb} - -o {out}")
    assert written(out) == TABLE


def test_a_job_is_its_file() -> None:
    mine = load_job(QUICKSTART)
    assert dict(mine.train) == TABLE
    assert load_job(tomllib.loads(dump_job(mine))) == mine


def test_the_device_is_said_where_the_file_does_not(
    tmp_path: Path, shell: Shell
) -> None:
    out = tmp_path / "p.toml"
    for given, device in (("lr = 1e-4", "cuda"), ('device = "cpu"', "cpu")):
        words = f"--tp 1 --pp 1 --zero 3 -o {out}"
        shell("plan", job(tmp_path, given), words)
        assert written(out) == {**tomllib.loads(given), "device": device}


@pytest.mark.parametrize("verb", ["plan", "predict", "sweep", "train"])
def test_a_field_that_the_trainer_does_not_know_is_a_sentence(
    verb: str, tmp_path: Path, shell: Shell
) -> None:
    more = ["--over", "chips=8,16"] if verb == "sweep" else []
    told = shell.refused(verb, job(tmp_path, "learning_rate = 1e-3"), *more)
    assert "train: field 'learning_rate' is not known" in told
    assert "train.steps" in shell.refused(
        verb, job(tmp_path, "steps = 0"), *more
    )


def test_what_cannot_be_a_setting_is_refused_in_python() -> None:
    tables = tomllib.loads(QUICKSTART.read_text("utf-8"))
    for value in ([1, 2], {"lr": 1}):
        with refusal(r"train.lr must be (a number|one value)"):
            load_job({**tables, "train": {"lr": value}})
    with refusal(r"train must be a table"):
        load_job({**tables, "train": 3})
    with refusal(r"job: field 'train' is not known"):
        load_job({**tables, "job": {**tables["job"], "train": {}}})


def test_files_of_other_tools_say_that_it_is_not_in_them(
    tmp_path: Path, shell: Shell
) -> None:
    layout = "[layout]\ndp = 8\nzero = 1"
    path = job(tmp_path, 'lr = 1e-4\nsteps = 5\ndevice = "cuda"', more=layout)
    assert (
        "the table [train] is for meshwright train and not written here:"
        " lr, steps\n"
    ) in shell(f"export {path} --to megatron").err
    path = job(tmp_path, 'device = "cuda"', more=layout)
    assert "[train]" not in shell(f"export {path} --to megatron").err
