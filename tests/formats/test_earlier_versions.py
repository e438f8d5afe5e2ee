"""What earlier versions wrote is read, or refused with a sentence.

`earlier/N`: a plan, a prediction and a machine file as the last commits with schema meshwright/N
wrote them (of llama3-8b on 64 H100, of examples/quickstart.toml and of its cluster).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright import predict
from meshwright.formats import flags, run_folder
from meshwright.formats.machine import load_machine
from meshwright.formats.toml import load_job
from refusals import refusal
from shell import Shell

HERE = Path(__file__).parent / "earlier"
VERSIONS = pytest.mark.parametrize("version", ["1", "2", "3"])


@VERSIONS
def test_a_plan_is_the_job_it_was(version: str) -> None:
    job = load_job(HERE / version / "plan.toml")
    assert job.model.name == "llama3-8b" and job.batch == 128
    assert job.layout.dp == 64 and job.layout.zero >= 2
    assert predict(job).step_time_s > 0


@VERSIONS
def test_a_plan_is_exported(version: str, shell: Shell) -> None:
    plan = str(HERE / version / "plan.toml")
    assert (
        "--global-batch-size 128" in shell(f"export {plan} --to megatron").out
    )


@VERSIONS
def test_a_machine_file_is_a_machine(version: str) -> None:
    path = HERE / version / "machine.toml"
    assert load_machine(path).chip.matrix_flops == {"fp32": 1e11}
    given = {"on": f"4x{path}", "batch": "8seq", "precision": "fp32"}
    assert flags.read_flags("gpt2", given).cluster.chips == 4


@VERSIONS
def test_a_result_is_no_model(version: str, shell: Shell) -> None:
    path = str(HERE / version / "predict.json")
    words = f"predict {path} --on 8xh100-sxm --batch 64seq"
    said = shell.refused(words)
    assert "a result of meshwright predict" in said and ".toml" in said


def test_records_of_another_version_are_refused(tmp_path: Path) -> None:
    """A folder without records is read; one with records of another schema names it."""
    (tmp_path / "job.toml").write_text((HERE / "1/plan.toml").read_text())
    row = {"step": 1, "loss": 2.0, "step_time_s": 1.0, "cpu_s": 1.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert run_folder.read_run(tmp_path).metrics[0]["loss"] == 2.0
    record = tmp_path / "record"
    record.mkdir()
    (record / "rank-0.jsonl").write_text('{"schema": "meshwright-record/0"}\n')
    with refusal("meshwright-record/1"):
        run_folder.read_run(tmp_path)
