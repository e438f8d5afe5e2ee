"""The command line as a user meets it: results, exit codes, one sentence for every mistake."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from meshwright.catalog import model
from meshwright.cli import jobs
from meshwright.cli import main as cli
from meshwright.cli.command import VERBS
from meshwright.errors import BadInput

LLAMA = ["llama3-8b", "--on", "64xh100-sxm", "--batch", "1Mi"]
SHARDED = [*LLAMA, "--tp", "2", "--zero", "1"]
CONTRACT = {
    "step_time_s",
    "interval_s",
    "tokens_per_s",
    "tokens_per_s_per_chip",
    "model_flops_per_s_per_chip",
    "mfu",
    "hfu",
    "time_s",
    "memory_bytes",
    "fits",
    "train_time_s",
    "cost_usd",
    "layout",
    "assumptions",
}


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    """The JSON a command prints."""
    capsys.readouterr()
    assert cli.run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence with which a command is refused."""
    assert cli.run([*words]) == 2
    caught = capsys.readouterr()
    assert (
        caught.out == ""
        and caught.err.count("\n") == 1
        and caught.err.startswith("meshwright: ")
    )
    return caught.err


def process(
    *words: str, **options: object
) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "meshwright", *words],
        capture_output=True,
        text=True,
        **options,
    )  # type: ignore[call-overload]


def test_predict_prints_the_contract(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ask(capsys, "predict", *SHARDED, "--tokens", "1T")
    assert data["schema"] == "meshwright/4" and data["verb"] == "predict"
    assert set(data) >= CONTRACT
    assert sum(data["time_s"].values()) == pytest.approx(data["step_time_s"])
    assert data["layout"]["dp"] == 32, "dp takes what tp leaves"
    assert data["useful_time_s"] == pytest.approx(1e12 / data["tokens_per_s"])
    lost = sum(data["lost_s"].values())
    assert data["train_time_s"] == pytest.approx(data["useful_time_s"] + lost)
    for name in ("train_time_{}s", "cost_{}usd", "energy_{}j"):
        low, high = data[name.format("interval_")]
        assert low < data[name.format("")] < high


def test_predict_prints_a_readable_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["predict", *SHARDED, "--all"]) == 0
    text = capsys.readouterr().out
    for words in (
        "step time",
        "tokens/s, ",
        "per chip",
        "MFU",
        "fits",
        "compute",
        "bubble" if "pp 2" in text else "dp_comm",
        "activations",
    ):
        assert words in text
    assert "\x1b" not in text, "no colours in a pipe"


TOO_BIG = ["llama3-70b", "--on", "8xh100-sxm", "--batch", "64seq"]


def test_what_does_not_fit_is_said_first_and_ends_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["predict", *TOO_BIG]) == 1
    text = capsys.readouterr().out
    assert "short" in text and text.index("does NOT fit") < text.index(
        "tokens/s"
    )
    assert cli.run(["predict", *TOO_BIG, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["fits"] is False and data["step_time_s"] > 0, (
        "predicted all the same"
    )


def test_idle_chips_are_said_before_the_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "predict",
        "llama3-8b",
        "--on",
        "64xh100-sxm",
        "--batch",
        "64seq",
        "--zero",
        "3",
        "--dp",
        "8",
    ]
    assert cli.run(words) == 0
    text = capsys.readouterr().out
    assert text.count("56 of 64 chips are idle") == 1, "said once"
    assert text.index("chips are idle") < text.index("tokens/s")
    assert "56 of 64 chips are idle" in ask(capsys, *words)["notes"]


def test_a_rounded_batch_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    data = ask(
        capsys,
        "predict",
        "llama3-8b",
        "--on",
        "8xh100-sxm",
        "--batch",
        "1M",
        "--tp",
        "2",
        "--zero",
        "3",
    )
    assert data["batch_sequences"] == 122
    assert any("rounded to 122 sequences" in note for note in data["notes"])


def test_8k_tokens_are_8192_wherever_a_length_is_given(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    exact = ask(capsys, "predict", *SHARDED, "--seq", "8192")
    found = ask(capsys, "predict", *SHARDED, "--seq", "8k")
    assert (
        found["seq_tokens"] == 8192
        and found["step_time_s"] == exact["step_time_s"]
    )
    said = "seq: 8k are 8,192 tokens (in lengths of sequences k is 1,024, as in 8k and 128k)"
    assert said in found["notes"] and not any(
        "seq" in note for note in exact["notes"]
    )
    tables = (
        '[job]\nbatch = "64seq"\nseq = "16k"\n[model]\nname = "llama3-8b"\nseq ='
        ' "4k"\n[cluster]\non = "64xh100-sxm"\n'
    )
    (tmp_path / "job.toml").write_text(
        tables + "[layout]\ntp = 4\ndp = 16\nzero = 3"
    )
    notes = ask(capsys, "predict", str(tmp_path / "job.toml"))["notes"]
    assert "seq: 16k are 16,384" in " ".join(
        notes
    ) and "seq: 4k are 4,096" in " ".join(notes)
    swept = ask(
        capsys, "sweep", *SHARDED, "--fixed", "--over", "seq=4k,8Ki,32768"
    )["points"]
    assert (
        [p["value"] for p in swept]
        == [p["prediction"]["seq_tokens"] for p in swept]
        == [4096, 8192, 32768]
    )
    assert "must be a whole number, not '8.1k'" in refusal(
        capsys, "predict", *SHARDED, "--seq", "8.1k"
    )


def test_interleave_alone_means_the_interleaved_schedule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = ask(
        capsys,
        "predict",
        *LLAMA,
        "--pp",
        "4",
        "--interleave",
        "2",
        "--zero",
        "1",
    )
    assert data["layout"]["schedule"] == "interleaved"


FLAGS = [
    "--tp",
    "2",
    "--pp",
    "2",
    "--dp",
    "16",
    "--schedule",
    "gpipe",
    "--microbatch",
    "2",
    "--recompute",
    "full",
]
FILE = """
[model]
name = "llama3-8b"
[cluster]
on = "64xh100-sxm"
[job]
batch = "1Mi"
precision = "fp8"
[layout]
tp = 2
pp = 2
dp = 16
schedule = "gpipe"
microbatch = 2
recompute = "full"
"""


def test_a_file_and_a_command_line_are_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(FILE)
    flags = ask(capsys, "predict", *LLAMA, *FLAGS, "--precision", "fp8")
    assert ask(capsys, "predict", str(job)) == flags


def test_flags_are_laid_over_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(FILE)
    changed = ask(
        capsys,
        "predict",
        str(job),
        "--recompute",
        "none",
        "--batch",
        "64seq",
        "--headroom",
        "0.5",
    )
    flags = ask(
        capsys,
        "predict",
        "llama3-8b",
        "--on",
        "64xh100-sxm",
        "--batch",
        "64seq",
        *FLAGS[:-2],
        "--precision",
        "fp8",
        "--headroom",
        "0.5",
    )
    assert changed == flags


def test_a_job_on_standard_input() -> None:
    done = process("predict", "-", "--json", input=FILE)
    assert (
        done.returncode == 0 and json.loads(done.stdout)["layout"]["tp"] == 2
    )


def test_a_config_beside_a_job_file(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
    }
    config |= {
        "intermediate_size": 1024,
        "vocab_size": 1000,
        "max_position_embeddings": 1024,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "job.toml").write_text(
        'model.config = "config.json"\ncluster.on = "8xh100-sxm"\njob.batch = "8seq"\n'
    )
    from_file = ask(capsys, "predict", str(tmp_path / "job.toml"))
    from_flags = ask(
        capsys,
        "predict",
        str(tmp_path / "config.json"),
        "--on",
        "8xh100-sxm",
        "--batch",
        "8seq",
    )
    assert from_file == from_flags and from_file["layout"]["dp"] == 8


def test_the_written_job_predicts_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = str(tmp_path / "out.toml")
    first = ask(capsys, "predict", *SHARDED, "-o", job)
    second = ask(capsys, "predict", job)
    assert {k: v for k, v in first.items() if k != "notes"} == {
        k: v for k, v in second.items() if k != "notes"
    }


def test_written_json_is_what_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    assert ask(capsys, "predict", *SHARDED, "-o", str(path)) == json.loads(
        path.read_text()
    )


def test_plan_finds_and_explains(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = ask(capsys, "plan", *LLAMA, "--tp", "1,2,4", "--top", "3")
    assert set(data) >= {
        "best",
        "alternatives",
        "searched",
        "feasible",
        "rejected",
        "elapsed_s",
    }
    assert data["best"]["layout"]["tp"] in (1, 2, 4)
    slower = [p["slower"] for p in data["alternatives"]]
    assert slower == sorted(slower) and len(slower) == 2
    assert [
        f["name"] for f in data["families"] if f["prediction"] == data["best"]
    ]
    assert (
        cli.run(
            [
                "plan",
                *LLAMA,
                "--tp",
                "1,2,4",
                "--top",
                "3",
                "--all",
                "-o",
                str(tmp_path / "plan.toml"),
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    for words in (
        "of the step is compute",
        "second: ",
        "Searched ",
        "again: meshwright predict llama3-8b",
    ):
        assert words in text
    again = next(
        line for line in text.splitlines() if line.startswith("again: ")
    ).removeprefix("again: meshwright ")
    for words in (
        shlex.split(again),
        ["predict", str(tmp_path / "plan.toml")],
    ):
        found = ask(capsys, *words)
        assert (found["step_time_s"], found["layout"]) == (
            data["best"]["step_time_s"],
            data["best"]["layout"],
        )


def test_plan_keeps_constraints(capsys: pytest.CaptureFixture[str]) -> None:
    data = ask(
        capsys,
        "plan",
        *LLAMA,
        "--tp",
        "2..4",
        "--pp",
        "2",
        "--schedule",
        "1f1b,gpipe",
        "--zero",
        "0",
        "--recompute",
        "full",
    )
    for p in (data["best"], *data["alternatives"]):
        l = p["layout"]
        assert (l["pp"], l["zero"], l["recompute"]) == (2, 0, "full")
        assert l["tp"] in (2, 4) and l["schedule"] in ("1f1b", "gpipe")


@pytest.mark.parametrize(
    ("interleave", "found"), [("1", {1, 2}), ("4", {4}), ("2,4", {2, 4})]
)
def test_an_interleave_is_a_constraint_too(
    interleave: str, found: set[int], capsys: pytest.CaptureFixture[str]
) -> None:
    data = ask(capsys, "plan", *LLAMA, "--pp", "4", "--interleave", interleave)
    assert {
        p["layout"]["interleave"]
        for p in (data["best"], *data["alternatives"])
    } <= found


@pytest.mark.parametrize(
    "impossible",
    [
        "--tp 3",
        "--pp 9999",
        "--interleave 3",
        "--dp 999",
        "--recompute selective --pp 7",
        "--ep 2",
        "--etp 2",
    ],
)
def test_impossible_constraints_are_no_layout(
    impossible: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", *LLAMA, *impossible.split()]) in (0, 1)
    text = capsys.readouterr().out
    assert text.splitlines()[1].startswith(("  yes", "  no "))
    assert "  no      not legal: " in text or "fits in memory" in text


def test_plan_under_several_assumptions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "--assumptions",
        "realistic,megatron-2021",
        "--pp",
        "1",
        "--top",
        "1",
    ]
    data = ask(capsys, "plan", *LLAMA, *words)
    assert list(data["plans"]) == ["realistic", "megatron-2021"]
    best = [plan["best"]["assumptions"] for plan in data["plans"].values()]
    assert best == ["realistic", "megatron-2021"]


def test_a_file_of_one_job_takes_one_assumption_set(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [
        "plan",
        *LLAMA,
        "--pp",
        "1",
        "--top",
        "1",
        "--assumptions",
        "realistic,lbl-2024",
        "-o",
    ]
    assert "give one assumption set" in refusal(
        capsys, *words, str(tmp_path / "x.toml")
    )
    assert cli.run([*words, str(tmp_path / "x.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert [row["assumptions"] for row in rows] == ["realistic", "lbl-2024"]


NOT_TAKEN = {
    "plan": ("--placement",),
    "timeline": ("--tokens",),
    "roofline": ("--optimizer", "--tokens", "--attention-kernel", "--tp"),
}


@pytest.mark.parametrize("verb", NOT_TAKEN)
def test_help_lists_what_a_verb_takes(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--batch" in text and not [
        flag for flag in NOT_TAKEN[verb] if flag in text.split()
    ]
    for flag in NOT_TAKEN[verb]:
        assert flag in refusal(capsys, verb, *LLAMA, flag, "1")


def test_the_catalogue_says_what_is_stated_and_what_is_a_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["catalog", "models", "llama3-70b", "--all"]) == 0
    rows = {
        line.split()[0]: line
        for line in capsys.readouterr().out.splitlines()
        if line.strip()
    }
    assert "500000" in rows["rope_base"] and "config.json" in rows["rope_base"]
    assert (
        rows["norm_epsilon"].split()[-1] == "default"
        and "default" not in rows["layers"]
    )


@pytest.mark.parametrize(
    "name",
    ["llama3-8b", "llama3-70b", "llama3-405b", "llama3.2-1b", "llama3.2-3b"],
)
def test_llama_3_turns_with_base_500000(name: str) -> None:
    """rope_theta of the config.json of every Llama 3, 3.1 and 3.2; Llama 2 has 10,000."""
    assert (
        model(name).rope_base == 500_000
        and model("llama2-7b").rope_base == 10_000
    )


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.run(
            ["plan", "llama3-70b", "--on", "1xh100-sxm", "--batch", "8seq"]
        )
        == 1
    )
    text = capsys.readouterr().out
    assert "does NOT fit: even the smallest layout" in text
    assert "closest" in text


def test_sweep(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    data = ask(
        capsys,
        "sweep",
        *LLAMA,
        "--over",
        "chips=16..64",
        "--fixed",
        "--zero",
        "3",
        "-o",
        str(table),
    )
    assert [p["value"] for p in data["points"]] == [16, 32, 64]
    assert [p["prediction"]["layout"]["dp"] for p in data["points"]] == [
        16,
        32,
        64,
    ]
    assert table.read_text().splitlines()[0].startswith("chips,step_time_s,")
    assert (
        cli.run(
            [
                "sweep",
                "llama3-70b",
                "--on",
                "1xh100-sxm",
                "--batch",
                "8seq",
                "--over",
                "chips=1,2",
            ]
        )
        == 1
    )


def test_timeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    data = ask(
        capsys,
        "timeline",
        *LLAMA,
        "--pp",
        "4",
        "--interleave",
        "2",
        "-o",
        str(trace),
    )
    assert data["exact_s"] == pytest.approx(data["closed_form_s"], rel=0.05)
    assert json.loads(trace.read_text())["traceEvents"]


def test_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "catalog", "chips", "h100-sxm")["hbm_bytes"] > 79e9
    for kind in ("chips", "networks", "models", "frameworks"):
        assert len(ask(capsys, "catalog", kind)[kind]) > 3
        assert cli.run(["catalog", kind]) == 0
    assert cli.run(["catalog", "framework", "torchtitan", "--all"]) == 0
    assert "arXiv 2410.06511" in capsys.readouterr().out
    assert cli.run(["catalog", "networks", "dgx-h100"]) == 0
    assert "450 GB/s" in capsys.readouterr().out


MISTAKES = {
    "predict": "MODEL",
    "bogus": "command 'bogus' is not known; known: ",
    "plann llama3-8b": "did you mean plan",
    "plan llama3-8b --gpus 8": "--on says how many chips and which, such as --on 8xh100-sxm",
    "predict llama3-8b --on 8xh100-sxm --batch -5seq": "batch '-5seq' must be between 1",
    "predict llama3-8b --on 8xh100-sxm --batch 4M --tp 1,2": (
        "--tp takes one whole number here, not '1,2'"
    ),
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp eight": (
        "--tp takes whole numbers: one, a list 1,2,4 or a range 1..16, not 'eight'"
    ),
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp 1..x": (
        "--tp takes whole numbers: one, a list 1,2,4 or a range 1..16, not '1..x'"
    ),
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp -4..8": (
        "--tp takes whole numbers: one, a list 1,2,4 or a range 1..16, not '-4..8'"
    ),
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp 0..8": "layout.tp must be at least 1, not 0",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --zero 0..5": (
        "layout.zero must be between 0 and 3, not 5"
    ),
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp 1..1000000000": (
        "--tp 1..1000000000 must rise, by at most 1,048,576"
    ),
    "predict llama3-8b --on 8xh100-sxm --batch 4M --tp 3": "tp may be 1, 2, 4",
    "predict llama3-8b --on 8xh100-sxm --batch 4M --dp 8 --ep 2": (
        "experts 1 cannot be split 2 ways: ep may be 1"
    ),
    "predict llama3-8b --on 8xh100-sxm --batch 4M --dp 8 --etp 2": (
        "expert ffn 1 cannot be split 2 ways: etp may be 1"
    ),
    "predict llama3-8b --on 8xh100-sxm --batch 4M --tp x": (
        "--tp takes one whole number here, not 'x'"
    ),
    "predict llama3-8b --on 8xh100-sxm --batch 4M --bogus 3": "--bogus",
    "limits h100 --month 3": "unknown option --month; did you mean --months?",
    "predict llama3-8b --on 8xh100-sxm --batch 4M --tp": "--tp",
    "predict llama3-8b --on 8xh100-sxm": "--batch",
    "predict llama3-8b --batch 4M": "--on",
    "predict llama3-8 --on 8xh100-sxm --batch 4M": "did you mean",
    "predict llama3-8b --on 8xh100 --batch 4M --network nope": "nope",
    "predict llama3-8b --on 8xh100-sxm --batch 4M --explain nope": "term 'nope'",
    "predict llama3-8b --on 8xh100-sxm --batch 4M -o x.docx": ".toml",
    "predict llama3-8b --on 8xh100-sxm --batch 4M -o /no/such/folder/x.json": "folder",
    "predict nowhere.toml": "nowhere.toml",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp 4..2": "--tp",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --tp 1..999999999": "--tp",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --schedule nope": "nope",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --placement tp=1x1": "--placement",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --assumptions nope": "nope",
    "plan llama3-8b --on 8xh100-sxm --batch 4M --top 0": "--top",
    "sweep llama3-8b --on 8xh100-sxm --batch 4M --over chips": "chips=64..4096",
    "sweep llama3-8b --on 8xh100-sxm --batch 4M --over bogus=1": "bogus",
    "sweep llama3-8b --on 8xh100-sxm --batch 4M --over chips=9..1": "9..1",
    "timeline gpt3-175b --on 1xa100-80 --batch 999999999seq": "actions",
    "catalog bogus": "bogus",
    "catalog chips bogus": "bogus",
    "catalog llama3-8b": "meshwright catalog models llama3-8b",
    "catalog h100": "meshwright catalog chips h100",
    "reproduce bogus": "bogus",
    "validate nowhere.json": "nowhere.json",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MISTAKES[words] in refusal(capsys, *words.split())


def test_other_tools_spellings(capsys: pytest.CaptureFixture[str]) -> None:
    """Megatron's flags mean what they mean there: its batch counts sequences."""
    theirs = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size=4 --vpp 2 --micro-batch-size"
        " 2 --gbs 128 --zero-stage 1"
    )
    ours = (
        "--tp 2 --pp 4 --interleave 2 --microbatch 2 --batch 128seq --zero 1"
    )
    job = ["predict", "llama3-8b", "--on", "64xh100-sxm"]
    assert ask(capsys, *job, *theirs.split()) == ask(
        capsys, *job, *ours.split()
    )
    assert (
        ask(capsys, *job, "--zero", "3", "--global-batch-size=128")[
            "batch_sequences"
        ]
        == 128
    )


def test_an_alias_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    data = ask(capsys, "predict", "llama3.1-8b", *SHARDED[1:])
    assert "llama3.1-8b is llama3-8b of the catalogue" in data["notes"]
    assert ask(capsys, "catalog", "chip", "h100") == ask(
        capsys, "catalog", "chips", "h100-sxm"
    )


def test_a_row_has_one_value_a_cell(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    data = ask(
        capsys, "plan", *LLAMA, "--pp", "1", "--top", "2", "-o", str(path)
    )
    row = next(csv.DictReader(path.read_text().splitlines()))
    assert [
        float(row[f"interval_{end}_s"]) for end in ("low", "high")
    ] == data["best"]["interval_s"]
    assert row["layout.placement.dp"] == "x".join(
        map(str, data["best"]["layout"]["placement"]["dp"])
    )
    assert not [cell for cell in row.values() if cell[:1] in ("[", "(", "{")]


def test_a_plan_on_fewer_chips_says_how(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(FILE)
    told = refusal(capsys, "predict", str(job), "--on", "32xh100-sxm")
    assert (
        "takes 64 chips, but 32xh100-sxm has 32" in told
        and "or give --dp 8" in told
    )
    assert (
        cli.main(
            ["predict", str(job), "--on", "32xh100-sxm", "--dp", "8", "--json"]
        )
        == 1
    ), "half as many do not hold it"
    assert json.loads(capsys.readouterr().out)["chips"] == 32


def test_a_bug_is_one_sentence_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "run", lambda words: 1 / 0)
    assert cli.main(["predict"]) == 2
    assert "internal error" in capsys.readouterr().err
    monkeypatch.setenv("MESHWRIGHT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["predict"])


def test_an_interruption_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(words: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run", interrupted)
    assert cli.main([]) == 130
    assert capsys.readouterr() == ("", "")


def test_missing_matplotlib_is_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshwright.report.files.find_spec", lambda name: None)
    assert "pip install 'meshwright[plot]'" in refusal(
        capsys, "predict", *SHARDED, "-o", "x.png"
    )


def test_a_broken_pipe_is_quiet() -> None:
    command = (
        f"{sys.executable} -m meshwright catalog models --json | head -c 10"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert len(done.stdout) == 10 and done.stderr == ""


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    done = process(
        "predict", *SHARDED, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.returncode == 0 and done.stderr == ""
    assert "?" not in done.stdout, "a card needs no Unicode"
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    full = process("predict", *SHARDED, "--why", env=env).stdout
    assert "###" in full and "?" not in full.replace("·", "")[-800:]


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*filter(None, [verb]), "--help"]) == 0
    text = capsys.readouterr().out
    assert all(
        name in text for name in (VERBS if not verb else ["Usage", verb])
    )


def test_every_field_has_help() -> None:
    from meshwright.formats.options import flags

    assert [flag.name for flag in flags() if not flag.help] == []
    assert {flag.name for flag in flags()} >= {
        "tp",
        "placement",
        "batch",
        "attention_kernel",
        "on",
        "network",
    }


def test_the_help_names_every_format_of_the_table() -> None:
    from meshwright.cli.export import THEIRS
    from meshwright.formats.bridge import table

    assert tuple(table.written()) == THEIRS


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_file_is_written_though_nobody_reads(
    words: list[str], tmp_path: Path
) -> None:
    """As with `| head -0`: the reader is gone before the first line."""
    file = tmp_path / "job.toml"
    command = [sys.executable, "-m", "meshwright", "predict", *LLAMA, *words]
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*command, "-o", str(file)],
        stdout=written,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(written)
    assert file.is_file() and done.stderr == f"wrote {file}\n"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from meshwright.cli.main import main; main(['plan', '--help']);"
        " print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {
        "numpy",
        "matplotlib",
        "torch",
        "starlette",
        "meshwright.search",
        "meshwright.formats.bridge",
        "meshwright.formats.hf",
    }
    assert "meshwright.cli.main" in loaded, (
        "the list is the one of that process"
    )


def test_the_three_errors_of_the_family(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise BadInput("two\nlines")

    monkeypatch.setattr(jobs, "read_job", broken)
    assert refusal(capsys, "predict", *LLAMA) == "meshwright: two lines\n"


def test_each_field_of_train_is_a_flag(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of `train` and of `plan`, whose file keeps what it said; mistakes are named as in a file."""
    from meshwright.cli.command import app
    from meshwright.describe.fields import fields_of
    from meshwright.describe.training import Settings
    from meshwright.formats.options import flags

    mine = [flag for flag in flags() if flag.table == "train"]
    assert [flag.field for flag in mine] == [*fields_of(Settings)]
    for verb in ("train", "plan"):
        shown = {
            name
            for one in app[verb].assemble_argument_collection()
            for name in one.names
        }
        missing = {flag.spelled for flag in mine} - shown
        assert not missing, (verb, missing)
    assert "Default: 0.0003." in next(f.help for f in mine if f.name == "lr")
    said = ["--lr", "3", "--lr-schedule", "wsd", "--warmup", "0"]
    kept = tmp_path / "kept.toml"
    assert cli.run(["plan", *LLAMA, *said, "-o", str(kept)]) == 0
    how = tomllib.loads(kept.read_text("utf-8"))["train"]
    assert how["lr"] == 3 and how["schedule"] == "wsd"
    assert how["warmup"] == 0 and "steps" not in how
    capsys.readouterr()
    why = refusal(capsys, "plan", *LLAMA, "--lr-schedule", "cosin")
    assert "train.schedule 'cosin' is not known; did you mean cosine?" in why


def test_the_list_of_verbs_makes_no_options() -> None:
    """`--help` shows names and first sentences: neither descriptions nor options are loaded."""
    code = "import sys; from meshwright.cli.main import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {
        "numpy",
        "meshwright.describe.job",
        "meshwright.describe.assumptions",
        "meshwright.formats.options",
    }
    assert "meshwright.cli.plan" in loaded
