"""Odd words on the command line: each is refused in a sentence that says what would do, or said."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright import Job, Layout, predict
from meshwright.catalog import cluster
from meshwright.cli.main import main

LLAMA = "llama3-8b --on 64xh100 --batch 64seq"
SENTENCES = {
    f"predict {LLAMA} --seq 0": "job.seq must be at least 1, not 0",
    f"plan {LLAMA} --tokens 1T --deadline=-3d": "above 0, not -3 days",
    f"plan {LLAMA} --tokens 1T --deadline 30": "--deadline 30 has no unit: say '30 days'",
    f"sweep {LLAMA} --fixed --over chip.usd_per_hour=1e308": "between 0 and 1e+06",
    "predict missing.json --model llama3-8b --on 8xh100 --batch 8seq": (
        "missing.json cannot be read: No such file"
    ),
    "predict EleutherAI/gpt-j-6b --on 8xh100 --batch 8seq": (
        "neither a model of the catalogue nor a file here: save the config.json"
    ),
    "predict job.toml": "job: field 'batchsize' is not known; did you mean batch?",
    f"predict cfg.json {LLAMA.partition(' ')[2]}": "cfg.json: model_type 'nothing'",
    f"sweep {LLAMA} --over network.eth.bandwidth=400GB/s": "'eth' is not known; known: ib, nvlink",
    "predict llama3-8b --on 64xh1000 --batch 8seq": "did you mean h100-sxm",
    "predict llama3-8b --on 8x8xh100 --batch 8seq": "has two numbers: say 64xh100",
    "--foo": "command '--foo' is not known; known: advise, calibrate, ",
}


@pytest.mark.parametrize("words", SENTENCES, ids=range(len(SENTENCES)))
def test_odd_words_are_one_sentence_with_what_would_do(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("cfg.json").write_text("{}")
    Path("job.toml").write_text(
        'model = "llama3-8b"\ncluster = "8xh100"\n[job]\nbatchsize = "1Mi"\n'
    )
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert SENTENCES[words] in said and said.count("\n") == 1


def test_a_schedule_on_one_stage_or_of_another_framework_is_said(capsys):
    """Megatron-Core's schedules.py has 1F1B and interleaved 1F1B; one stage has no order."""
    words = f"predict {LLAMA} --schedule zbv".split()
    megatron = "megatron-core allows schedule 1f1b, interleaved, not zbv"
    alone = "schedule zbv has no effect on time with pp 1"
    assert main([*words, "--zero", "3", "--why"]) == 0
    said = capsys.readouterr().out
    assert megatron in said and alone in said
    assert main([*words, "--zero", "1", "--pp", "4", "--why"]) == 0
    said = capsys.readouterr().out
    assert megatron in said and alone not in said


def test_a_card_is_known_by_its_number():
    assert cluster("1x4090").chip == cluster("1xrtx-4090").chip


def test_adapters_are_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A base that is frozen is not predicted as if all of it were trained."""
    file = tmp_path / "lora.yml"
    file.write_text(
        "base_model: meta-llama/Meta-Llama-3-8B\nadapter: qlora\nsequence_len: 4096\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\n"
    )
    assert main(["predict", str(file), "--on", "1xrtx-4090"]) == 2
    said = capsys.readouterr().err
    assert "adapters alone (adapter): LoRA and QLoRA are not counted" in said
    words = ["llama3-8b", "--on", "1xrtx-4090", "--batch", "8seq"]
    assert main(["predict", *words, "--lora-r", "16"]) == 2
    assert "LoRA and QLoRA are not counted" in capsys.readouterr().err


def test_a_card_of_a_workstation_runs_pytorch() -> None:
    """Nobody starts Megatron on one of them."""
    for on, name in (("1xrtx-4090", "fsdp"), ("8xh100", "megatron-core")):
        job = Job("llama3-8b", on, batch=8)
        assert job.profile and job.profile.name == name


def test_a_layout_that_fsdp_does_not_run_is_another_frameworks() -> None:
    """Said in the job or beside it, the same."""
    layout = Layout(tp=2, dp=4, zero=1)
    inside = predict(Job("llama3-8b", "8xrtx-4090", 64, layout))
    beside = predict(Job("llama3-8b", "8xrtx-4090", 64), layout)
    assert inside.job.profile and inside.job.profile.name == "megatron-core"
    assert beside.step_time_s == inside.step_time_s
