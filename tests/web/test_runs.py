"""Runs beside their predictions: on the page while they train, and as one file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
sys.path.insert(0, str(Path(__file__).parents[1] / "compare"))

from asking import ask  # noqa: E402
from run_folders import pipeline_run  # noqa: E402

from meshwright import Layout  # noqa: E402
from meshwright.web.app import app  # noqa: E402
from meshwright.web.recorded import recorded_report  # noqa: E402
from shell import Shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    passes = [(1.0, 1.25, 0.75)] * 4
    return pipeline_run(
        tmp_path / "mine", Layout(pp=4, schedule="1f1b"), passes, steps=5
    )


def test_a_run_grows_while_it_is_watched(folder: Path) -> None:
    served = app((), {"mine": folder})
    assert ask("folders", {}, served).json["runs"] == ["mine"]
    first = ask("folder", {"run": "mine"}, served).json
    assert first["series"]["step"] == [1, 2, 3, 4, 5]
    assert (
        first["comparison"]["step_time_s"]["measured"]
        == first["series"]["step_time_s"][0]
    )
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(
            '{"step": 6, "loss": 0.5, "step_time_s": 9.0, "cpu_s": 8.0}\n{"step": 7, "lo'
        )
    again = ask("folder", {"run": "mine"}, served).json
    assert again["series"]["step"] == [1, 2, 3, 4, 5, 6], (
        "never kept; a half line does not count"
    )
    assert again["series"]["loss"][-1] == 0.5


def test_only_named_folders_are_shown(folder: Path) -> None:
    served = app((), {"mine": folder})
    for name in ("other", "../mine", str(folder), ""):
        reply = ask("folder", {"run": name}, served)
        assert "not shown here" in reply.refused


def test_a_dropped_folder_says_what_the_folder_itself_does(
    folder: Path,
) -> None:
    names = ("job.toml", "attempts.jsonl", "metrics.jsonl")
    files = {n: folder / n for n in names if (folder / n).exists()}
    for file in (folder / "record").glob("rank-*.jsonl"):
        files[f"record/{file.name}"] = file
    texts = {name: file.read_text("utf-8") for name, file in files.items()}
    told = ask("run_files", {"files": texts}).json
    served = app((), {"mine": folder})
    own = ask("folder", {"run": "mine"}, served).json
    assert len(texts) > 4 and told["comparison"]["causes"]
    assert own["comparison"]["run"] == "mine", "its name, no path"
    for one in (told, own):
        one["folder"] = one["comparison"]["run"] = ""
    assert told == own


PEEKS = """
model = "/etc/x.json"
[cluster]
on = "8xh100-sxm"
[job]
batch = "8seq"
"""
"""A job whose model is a file of this machine."""


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "the run' is not a run folder"),
        ({"../job.toml": ""}, "is not read of a run"),
        ({"record/../../x": ""}, "is not read of a run"),
        ({"job.toml": PEEKS}, "is not known"),
        ({"job.toml": "[", "metrics.jsonl": "{"}, "job.toml"),
    ],
)
def test_what_is_no_run_is_refused(files: dict[str, str], said: str) -> None:
    reply = ask("run_files", {"files": files})
    assert said in reply.refused and "/tmp" not in reply.refused


def test_a_run_without_a_step_is_predicted(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("")
    told = ask("folder", {"run": "mine"}, app((), {"mine": folder})).json
    assert told["comparison"] is None
    assert told["prediction"]["step_time_s"] > 0


def test_a_run_as_one_file(folder: Path) -> None:
    text = recorded_report(str(folder), lambda what, share: None)
    assert '"folders{}"' in text and '"step_time_s"' in text


@pytest.mark.parametrize("words", ["nowhere", ".", "--port 70000", "--port x"])
def test_serve_refuses_in_a_sentence(words: str, shell: Shell) -> None:
    assert shell.refused(f"serve {words}").count("\n") == 1


def test_a_log_that_is_dropped_stands_beside_the_question() -> None:
    line = "iteration {}/ 9 | elapsed time per iteration (ms): {} | loss: 9.0"
    text = "\n".join(
        line.format(i, ms) for i, ms in enumerate((9e4, 5e3, 5e3))
    )
    question = {"model": "llama3-8b", "on": "8xh100-sxm", "batch": "64seq"}
    told = ask(
        "log", {"text": text, "question": question, "layout": {"tp": "2"}}
    ).json
    assert told["comparison"]["step_time_s"]["measured"] == 5.0
    assert told["comparison"]["layout"]["tp"] == 2
    assert told["series"]["step_time_s"] == [90.0, 5.0, 5.0]
    refused = ask("log", {"text": "nothing", "question": question})
    assert refused.status == 422 and "no steps" in refused.json["error"]
