"""A run's folder says how it was made, and going on says what is different."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from small_runs import rows  # noqa: E402
from test_nonfinite import diverging  # noqa: E402

import meshwright  # noqa: E402
from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.training import settings  # noqa: E402
from meshwright.formats.run_folder import attempts, read_run  # noqa: E402
from meshwright.formats.toml import load_job  # noqa: E402
from meshwright.train import attempt  # noqa: E402
from meshwright.units import show  # noqa: E402
from refusals import refusal  # noqa: E402
from shell import Shell  # noqa: E402

SHORT: dict[str, Any] = {"steps": 6, "lr": 1e-3, "save_every": 3}


pytestmark = pytest.mark.usefixtures("elsewhere")


def everything(folder: str = "run") -> dict[str, bytes]:
    """All that a start which does nothing must leave as it is."""
    return {
        str(p): p.read_bytes()
        for p in Path(folder).rglob("*")
        if p.is_file() and p.name != "run.lock"
    }


def test_the_folder_of_a_run_holds_all_that_repeats_it(shell: Shell) -> None:
    """Settings that are no defaults, those of the command line, and "none" where it is not the
    default.
    """
    job = diverging(
        **SHORT, beta1=0.5, weight_decay=0.03, max_skipped="none", seed=7
    )
    shell(f"train {job} --steps 4")
    wanted, done = load_job(job), load_job("run/job.toml")
    how = settings(done.train)
    assert how.steps == 4 and how.max_skipped is None
    assert replace(how, steps=6) == settings(wanted.train)
    assert replace(done, train={}) == replace(wanted, train={})
    shell("train run/job.toml -o again")
    kept = ("step", "loss", "gradient_norm", "lr")
    assert [[r[k] for k in kept] for r in rows()] == [
        [r[k] for k in kept] for r in rows("again")
    ]
    (made,) = attempts(Path("run"))
    assert made["versions"] == {
        "meshwright": meshwright.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
    }
    assert (
        made["attempt"] == 1
        and made["after_step"] == 0
        and made["train"]["beta1"] == 0.5
    )
    assert made["layout"]["dp"] == 2 and made["order"] == {
        "data": "synthetic",
        "seq": 32,
        "seed": 7,
        "batch": 4,
    }


def test_going_on_names_what_is_different(
    shell: Shell,
) -> None:
    shell("train", diverging(**SHORT))
    assert (
        "with changed settings: train.steps 6 -> 8\n"
        in shell("train", diverging(**SHORT | {"steps": 8}), "--resume").err
    )
    other = {"steps": 9, "lr": 2e-3, "beta1": 0.5, "weight_decay": 0.9}
    told = shell("train", diverging(**SHORT | other), "--resume").err
    for words in (
        "train.lr 0.001 -> 0.002",
        "train.beta1 0.9 -> 0.5",
        "train.weight_decay 0.1 -> 0.9",
    ):
        assert words in told
    assert (
        "changed settings"
        not in shell("train job.toml --resume --steps 9").err
    )
    assert [made["after_step"] for made in attempts(Path("run"))] == [0, 6, 8]
    assert [row["attempt"] for row in rows()] == [1] * 6 + [2] * 2 + [3]


def tokens(name: str, text: str) -> str:
    Path(f"{name}.txt").write_text(text)
    assert cli.run(["data", f"{name}.txt", "-o", name]) == 0
    return name


CHANGES = {"seq": ("[job]", "[job]\nseq = 16"), "batch": ("4seq", "8seq")}
"""Of the job's file; `train` has no flags for these."""


@pytest.mark.parametrize("name", [*CHANGES, "data", "seed"])
def test_what_changes_the_samples_of_a_step_needs_a_word(
    name: str, shell: Shell
) -> None:
    tokens("mine", "some words " * 999)
    tokens("other", "other words " * 999)
    job = diverging(**SHORT, data="mine")
    shell(f"train {job}")
    before = everything()
    if name == "seed":
        diverging(**SHORT, data="mine", seed=2)
    old, new = CHANGES.get(name, ("", ""))
    Path(job).write_text(Path(job).read_text().replace(old, new))
    line = f"train {job} --resume --steps 8"
    line += " --data other" if name == "data" else ""
    told = shell.refused(line)
    assert (
        f"run cannot resume: {name} was " in told
        and f"--allow-change {name} resumes anyway" in told
    )
    assert everything() == before
    told = shell(f"{line} --allow-change {name}").err
    assert f"changed settings: {name} " in told or f"; {name} " in told
    assert len(rows()) == 8


def test_a_token_file_that_was_moved_is_the_same_and_one_that_was_rewritten_is_not(
    shell: Shell,
) -> None:
    tokens("mine", "some words " * 999)
    shell("train", diverging(**SHORT, data="mine"))
    for suffix in (".bin", ".json"):
        shutil.move(f"mine{suffix}", f"moved{suffix}")
    assert (
        "train.data mine -> moved"
        in shell("train job.toml --resume --steps 8 --data moved").err
    )
    tokens("moved", "more words " * 999)
    assert "run cannot resume: data was" in shell.refused(
        "train job.toml --resume --steps 9 --data moved"
    )


def test_one_byte_in_the_middle_of_a_token_file_is_another_file(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that nobody touched is not read again."""
    tokens("mine", "some words " * 300_000)
    shell("train", diverging(**SHORT, data="mine"))
    words = "train job.toml --resume --steps"
    row = json.loads(Path("run/attempts.jsonl").read_text())
    whole = row["order"]["data"]
    assert "SHA-256" in whole
    attempt.token_hash.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "sha256", lambda *a: "not read")
        shell(f"{words} 7")
    file = Path("mine.bin")
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    assert f"data was {whole} and is " in shell.refused(f"{words} 8")


def test_half_a_line_of_a_killed_attempt_is_given_up(tmp_path: Path) -> None:
    """As its last one is; what follows it can be read, however often the run begins again."""
    job = load_job(diverging(**SHORT, data="synthetic"))
    how = settings(job.train)
    assert attempt.begin(tmp_path, job, how, 0) == 1
    with (tmp_path / "attempts.jsonl").open("a") as file:
        file.write('{"attempt": 2, "after_')
    for number in (2, 3):
        assert attempt.begin(tmp_path, job, how, 3) == number
    assert [row["attempt"] for row in attempts(tmp_path)] == [1, 2, 3]
    assert load_job(tmp_path / "job.toml").model == job.model


@pytest.mark.parametrize("key", ["layout", "job", "order", "train", "hashed"])
def test_an_attempt_of_other_fields_is_a_sentence(
    key: str, tmp_path: Path
) -> None:
    row = json.dumps({"attempt": 1, key: [1]})
    (tmp_path / "attempts.jsonl").write_text(f"{row}\n")
    with refusal(f"{key} of an attempt must be a table"):
        attempts(tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "--resume --allow-change lr",
            "--allow-change 'lr' is not known",
        ),
        ("--allow-change data", "--allow-change belongs to --resume"),
    ],
)
def test_words_that_mean_nothing(words: str, says: str, shell: Shell) -> None:
    Path("run/step-00000003").mkdir(parents=True)
    assert says in shell.refused("train", diverging(**SHORT), words)


def test_going_on_with_nothing_to_do_or_in_vain_changes_nothing(
    shell: Shell,
) -> None:
    shell("train", diverging(**SHORT, record=1))
    before = everything()
    assert (
        "nothing is left to do: run has done 6 of 5 steps"
        in shell(
            "train job.toml --resume --steps 5 --dp 1 --pp 2 --zero 0"
        ).err
    )
    assert everything() == before
    for file in Path("run").glob("step-*/0.safetensors"):
        data = bytearray(file.read_bytes())
        data[100] ^= 1
        file.write_bytes(data)
    before = everything()
    words = "train job.toml --resume --steps 9 --dp 1 --pp 2 --zero 0"
    told = shell(words, ends=2).err
    assert (
        "contents of 0.safetensors were changed; no checkpoint before it is sound"
        in told
    )
    assert everything() == before


def test_a_finished_run_whose_last_checkpoint_is_damaged_goes_on_from_a_sound_one(
    shell: Shell,
) -> None:
    """It said that nothing was left to do, with weights that nothing can read."""
    shell("train", diverging(**SHORT, record=1))
    *_, before, last = sorted(Path("run").glob("step-*"))
    file = last / "0.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    told = shell("train job.toml --resume --dp 1 --pp 2 --zero 0").err
    assert "contents of 0.safetensors were changed" in told
    assert f"{before.name} is sound" in told
    assert "nothing is left to do" not in told
    again = shell("train job.toml --resume --dp 1 --pp 2 --zero 0").err
    assert "nothing is left to do: run has done 6 of 6 steps" in again


def test_seconds_of_another_layout_are_not_laid_beside_these(
    shell: Shell,
) -> None:
    """The run's summary, and `compare`: 6 steps of dp 2, then 3 of pp 2; medians are those of pp 2
    but its first.
    """
    shell("train", diverging(**SHORT))
    told = shell("train job.toml --resume --steps 9 --dp 1 --pp 2 --zero 0")
    last = rows()[-2:]
    want = sum(row["step_time_s"] for row in last) / 2
    assert (
        "9 steps: loss " in told.out
        and f"{show(want, 's')} a step" in told.out
    )
    assert "median of 2 under this layout" in " ".join(told.out.split())
    found = shell.json("compare run")
    assert (
        found["step_time_s"]["measured"] == pytest.approx(want)
        and found["steps"] == 9
    )
    assert any("2 of 9 steps" in why for why in found["why"])
    assert read_run("run").job.layout.pp == 2
