"""The command line as a user meets it: results, exit codes, one sentence for every mistake."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from meshwright import BadInput
from meshwright.cli import jobs
from meshwright.cli import main as cli
from meshwright.cli.command import VERBS
from shell import Shell

LLAMA = "llama3-8b --on 64xh100-sxm --batch 1Mi"
SHARDED = f"{LLAMA} --tp 2 --zero 1"
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


def process(line: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "meshwright", *line.split()],
        capture_output=True,
        text=True,
        **options,
    )  # type: ignore[call-overload]


def test_predict_prints_the_contract(shell: Shell) -> None:
    data = shell.json(f"predict {SHARDED} --tokens 1T")
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


def test_what_does_not_fit_is_said_first_and_ends_with_1(shell: Shell) -> None:
    line = "predict llama3-70b --on 8xh100-sxm --batch 64seq"
    text = shell(line, ends=1).out
    assert "short" in text and text.index("does NOT fit") < text.index(
        "tokens/s"
    )
    data = shell.json(line, ends=1)
    assert data["fits"] is False and data["step_time_s"] > 0, (
        "predicted all the same"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("predict llama3-8b --on 64xh100 --zero 3 --dp 8", "56 of 64 chips are"),
        ("predict llama3-8b --on 9xh100 --zero 3 --dp 8", "1 of 9 chips is"),
        ("plan llama3-8b --on 100xh100", "4 of 100 chips are"),
    ],
)  # fmt: skip
def test_idle_chips_are_said_once_and_before_the_numbers(
    line: str, said: str, shell: Shell
) -> None:
    text = shell(f"{line} --batch 128seq").out
    assert text.count(" idle ") == text.count(f"{said} idle") == 1
    assert text.index(said) < text.index("tokens/s")
    notes = shell.json(f"{line} --batch 128seq")["notes"]
    assert any(f"{said} idle" in note for note in notes)


def test_8k_tokens_are_8192_wherever_a_length_is_given(
    shell: Shell, tmp_path: Path
) -> None:
    exact = shell.json(f"predict {SHARDED} --seq 8192")
    found = shell.json(f"predict {SHARDED} --seq 8k")
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
    notes = " ".join(shell.json("predict", tmp_path / "job.toml")["notes"])
    assert "seq: 16k are 16,384" in notes and "seq: 4k are 4,096" in notes
    over = "--fixed --over seq=4k,8Ki,32768"
    swept = shell.json(f"sweep {SHARDED} {over}")["points"]
    assert (
        [p["value"] for p in swept]
        == [p["prediction"]["seq_tokens"] for p in swept]
        == [4096, 8192, 32768]
    )
    why = shell.refused(f"predict {SHARDED} --seq 8.1k")
    assert "must be a whole number, not '8.1k'" in why


def test_interleave_alone_means_the_interleaved_schedule(shell: Shell) -> None:
    data = shell.json(f"predict {LLAMA} --pp 4 --interleave 2 --zero 1")
    assert data["layout"]["schedule"] == "interleaved"


FLAGS = "--tp 2 --pp 2 --dp 16 --schedule gpipe --microbatch 2"
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


def test_a_file_and_a_command_line_are_one_and_flags_are_laid_over_it(
    shell: Shell, tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(FILE)
    line = f"predict {LLAMA} {FLAGS} --precision fp8"
    flags = shell.json(f"{line} --recompute full")
    assert shell.json(f"predict {job}") == flags
    more = "--recompute none --batch 64seq --headroom 0.5"
    changed = shell.json(f"predict {job} {more}")
    assert changed == shell.json(
        line.replace("1Mi", "64seq") + " --headroom 0.5"
    )


def test_a_job_on_standard_input() -> None:
    done = process("predict - --json", input=FILE)
    assert (
        done.returncode == 0 and json.loads(done.stdout)["layout"]["tp"] == 2
    )


def test_a_config_beside_a_job_file(shell: Shell, tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "intermediate_size": 1024,
        "vocab_size": 1000,
        "max_position_embeddings": 1024,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "job.toml").write_text(
        'model.config = "config.json"\ncluster.on = "8xh100-sxm"\njob.batch = "8seq"\n'
    )
    from_file = shell.json("predict", tmp_path / "job.toml")
    from_flags = shell.json(
        f"predict {tmp_path}/config.json --on 8xh100-sxm --batch 8seq"
    )
    assert from_file == from_flags and from_file["layout"]["dp"] == 8


def test_the_written_job_predicts_the_same(
    shell: Shell, tmp_path: Path
) -> None:
    job = tmp_path / "out.toml"
    first = shell.json(f"predict {SHARDED} -o {job}")
    second = shell.json(f"predict {job}")
    assert first | {"notes": []} == second | {"notes": []}


def test_written_json_is_what_is_printed(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    printed = shell.json(f"predict {SHARDED} -o {path}")
    assert printed == json.loads(path.read_text())


def test_plan_finds_and_explains(shell: Shell, tmp_path: Path) -> None:
    line = f"plan {LLAMA} --tp 1,2,4 --top 3"
    data = shell.json(line)
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
    text = shell(f"{line} --all -o {tmp_path}/plan.toml").out
    for words in (
        "the next family (",
        "families of layouts ",
        "Searched ",
        "again: meshwright predict llama3-8b",
    ):
        assert words in text
    again = next(
        line for line in text.splitlines() if line.startswith("again: ")
    ).removeprefix("again: meshwright ")
    for line in (again, f"predict {tmp_path}/plan.toml"):
        found = shell.json(line)
        assert (found["step_time_s"], found["layout"]) == (
            data["best"]["step_time_s"],
            data["best"]["layout"],
        )


def test_plan_keeps_constraints(shell: Shell) -> None:
    data = shell.json(
        f"plan {LLAMA} --tp 2..4 --pp 4 --interleave 2,4 --schedule"
        " interleaved,breadth-first --zero 0 --recompute full"
    )
    for p in (data["best"], *data["alternatives"]):
        l = p["layout"]
        assert (l["pp"], l["zero"], l["recompute"]) == (4, 0, "full")
        assert l["tp"] in (2, 4) and l["interleave"] in (2, 4)
        assert l["schedule"] in ("interleaved", "breadth-first")


def test_a_plan_is_under_one_set(shell: Shell) -> None:
    """Several are refused by the command that lays them side by side."""
    why = shell.refused(f"plan {LLAMA} --assumptions realistic,lbl-2024")
    assert "meshwright sweep ... --over assumptions=realistic,lbl-2024" in why


NOT_TAKEN = {
    "plan": ("--placement",),
    "timeline": ("--tokens",),
    "roofline": ("--optimizer", "--tokens", "--attention-kernel", "--tp"),
}


@pytest.mark.parametrize("verb", NOT_TAKEN)
def test_help_lists_what_a_verb_takes(verb: str, shell: Shell) -> None:
    text = shell(f"{verb} --help").out
    assert "--batch" in text and not [
        flag for flag in NOT_TAKEN[verb] if flag in text.split()
    ]
    for flag in NOT_TAKEN[verb]:
        assert flag in shell.refused(f"{verb} {LLAMA} {flag} 1")


def test_the_catalogue_says_what_is_stated_and_what_is_a_default(
    shell: Shell,
) -> None:
    text = shell("catalog models llama3-70b --all").out
    rows = {
        line.split()[0]: line for line in text.splitlines() if line.strip()
    }
    assert "500000" in rows["rope_base"] and "config.json" in rows["rope_base"]
    assert (
        rows["norm_epsilon"].split()[-1] == "default"
        and "default" not in rows["layers"]
    )


def test_sweep(shell: Shell, tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    shell(f"sweep {LLAMA} --over chips=16..64 --fixed --zero 3 -o {table}")
    assert table.read_text().splitlines()[0].startswith("chips,step_time_s,")
    big = "llama3-70b --on 1xh100-sxm --batch 8seq"
    shell(f"sweep {big} --over chips=1,2", ends=1)


def test_catalog(shell: Shell) -> None:
    assert shell.json("catalog chips h100-sxm")["hbm_bytes"] > 79e9
    for kind in ("chips", "networks", "models", "frameworks"):
        assert len(shell.json(f"catalog {kind}")[kind]) > 3
        shell(f"catalog {kind}")
    paper = "arXiv 2410.06511"
    assert paper in shell("catalog framework torchtitan --all").out
    assert "450 GB/s" in shell("catalog networks dgx-h100").out


def test_other_tools_spellings(shell: Shell) -> None:
    """Megatron's flags mean what they mean there: its batch counts sequences."""
    theirs = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size=4 --vpp 2 --micro-batch-size"
        " 2 --gbs 128 --zero-stage 1 --sp false"
    )
    ours = (
        "--tp 2 --pp 4 --interleave 2 --microbatch 2 --batch 128seq --zero 1"
        " --sequence-parallel false"
    )
    job = "predict llama3-8b --on 64xh100-sxm"
    assert shell.json(f"{job} {theirs}") == shell.json(f"{job} {ours}")
    found = shell.json(f"{job} --zero 3 --global-batch-size=128")
    assert found["batch_sequences"] == 128


def test_an_alias_says_what_it_is(shell: Shell) -> None:
    data = shell.json(f"predict {SHARDED.replace('llama3', 'llama3.1')}")
    assert "llama3.1-8b is llama3-8b of the catalogue" in data["notes"]
    short, whole = "catalog chip h100", "catalog chips h100-sxm"
    assert shell.json(short) == shell.json(whole)


def test_a_row_has_one_value_a_cell(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    best = shell.json(f"plan {LLAMA} --pp 1 --top 2 -o {path}")["best"]
    row = next(csv.DictReader(path.read_text().splitlines()))
    ends = [float(row[f"interval_{end}_s"]) for end in ("low", "high")]
    assert ends == best["interval_s"]
    assert row["layout.placement.dp"] == "x".join(
        map(str, best["layout"]["placement"]["dp"])
    )
    assert not [cell for cell in row.values() if cell[:1] in ("[", "(", "{")]


def test_a_plan_on_fewer_chips_says_how(shell: Shell, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(FILE)
    told = shell.refused(f"predict {job} --on 32xh100-sxm")
    assert "takes 64 chips, but 32xh100-sxm has 32" in told
    assert "or give --dp 8" in told
    # half as many do not hold it
    found = shell.json(f"predict {job} --on 32xh100-sxm --dp 8", ends=1)
    assert found["chips"] == 32


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
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshwright.report.files.find_spec", lambda name: None)
    why = shell.refused(f"predict {SHARDED} -o x.png")
    assert "pip install 'meshwright[plot]'" in why


def test_a_broken_pipe_is_quiet() -> None:
    command = (
        f"{sys.executable} -m meshwright catalog models --json | head -c 10"
    )
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert len(done.stdout) == 10 and done.stderr == ""


def test_a_terminal_without_unicode() -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = process(f"predict {SHARDED}", env=env)
    assert done.returncode == 0 and done.stderr == ""
    assert "?" not in done.stdout, "a card needs no Unicode"
    full = process(f"predict {SHARDED} --why", env=env).stdout
    assert "###" in full and "?" not in full.replace("·", "")[-800:]


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(verb: str, shell: Shell) -> None:
    text = shell(f"{verb} --help").out
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


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_file_is_written_though_nobody_reads(
    more: str, tmp_path: Path
) -> None:
    """As with `| head -0`: the reader is gone before the first line."""
    file = tmp_path / "job.toml"
    line = f"-m meshwright predict {LLAMA} {more} -o {file}"
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, *line.split()],
        stdout=written,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(written)
    assert file.is_file() and done.stderr == f"wrote {file}\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@pytest.mark.parametrize("more", ["", "--json"])
def test_an_output_on_a_full_disk_is_one_sentence(more: str) -> None:
    line = f"-m meshwright predict {LLAMA} {more}"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    said = "the output cannot be written: No space left on device"
    assert done.returncode == 2 and done.stderr == f"meshwright: {said}\n"


@pytest.mark.parametrize(
    ("words", "here", "never"),
    [
        (
            ["plan", "--help"],
            "meshwright.cli.main",
            "numpy matplotlib torch starlette meshwright.search"
            " meshwright.formats.bridge meshwright.formats.hf",
        ),
        # names and first sentences: neither descriptions nor options are loaded
        (
            ["--help"],
            "meshwright.cli.plan",
            "numpy meshwright.describe.job meshwright.describe.assumptions"
            " meshwright.formats.options",
        ),
    ],
)
def test_help_loads_nothing_heavy(
    words: list[str], here: str, never: str
) -> None:
    code = f"import sys; from meshwright.cli.main import main; main({words}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {*never.split()}
    assert here in loaded, "the list is the one of that process"


@pytest.mark.parametrize("of", ["bash", "zsh", "fish"])
def test_completion_knows_verbs_and_flags(of: str, shell: Shell) -> None:
    text = shell(f"completion {of}").out
    assert "predict" in text and "microbatch" in text


def test_the_three_errors_of_the_family(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise BadInput("two\nlines")

    monkeypatch.setattr(jobs, "read_job", broken)
    assert shell.refused(f"predict {LLAMA}") == "meshwright: two lines\n"


def test_each_field_of_train_is_a_flag(shell: Shell, tmp_path: Path) -> None:
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
    kept = tmp_path / "kept.toml"
    shell(f"plan {LLAMA} --lr 3 --lr-schedule wsd --warmup 0 -o {kept}")
    how = tomllib.loads(kept.read_text("utf-8"))["train"]
    assert how["lr"] == 3 and how["schedule"] == "wsd"
    assert how["warmup"] == 0 and "steps" not in how
    why = shell.refused(f"plan {LLAMA} --lr-schedule cosin")
    assert "train.schedule 'cosin' is not known; did you mean cosine?" in why
