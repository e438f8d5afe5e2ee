"""The commands that answers print: carried out as printed, each leads on and none goes round."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from meshwright import Job, Layout
from meshwright.cli.steps import target
from meshwright.errors import STARTED, command
from shell import SCRIPT, Output, Shell

ROOT = Path(__file__).parents[1]
SMALL = "--tp 1,2 --pp 1 --cp 1 --zero 1 --top 1"


def steps(said: Output) -> list[str]:
    """The commands of a card's row "next", without the program."""
    told = said.out.replace("\\\n", "")
    _, _, told = told.partition("\n  next ")
    told, _, _ = told.partition("\n  more ")
    parts = [line.split(maxsplit=1) for line in told.splitlines()]
    return [part[1] for part in parts if part[:1] == ["meshwright"]]


@pytest.fixture
def script(elsewhere: Path) -> str:
    Path("pretrain.sh").write_text(SCRIPT, "utf-8")
    return "pretrain.sh"


def test_from_a_script_to_a_script_by_next_steps_alone(
    script: str, shell: Shell
) -> None:
    [kept] = steps(shell(f"read {script}"))
    assert kept == f"read {script} --on h100-sxm -o job.toml"
    predict, plan = steps(shell(kept))
    assert predict == "predict job.toml"
    [exported] = steps(shell(predict))
    assert exported == "export job.toml --to megatron"
    assert "pretrain_gpt" in shell(exported).out
    exported, drawn = steps(shell(f"{predict} --pp 2 --dp 4 -o deep.toml"))
    assert "Timeline" in shell(drawn).out, "of a pipeline alone"
    shell(f"{plan} {SMALL}")
    exported, *_ = steps(shell("predict plan.toml --explain mfu"))
    assert exported == "export plan.toml --to megatron", "not into plan.toml"


def test_a_command_that_would_train_another_model_is_not_printed(
    script: str, shell: Shell
) -> None:
    text = SCRIPT.replace("--vocab-size 32000", "")
    Path(script).write_text(text, "utf-8")
    told = shell(f"read {script}").out
    assert "--vocab-size 128256" in told and "  next " not in told


def test_commands_are_called_as_the_program_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = runpy.run_path(str(ROOT / "run.py"), run_name="run")["started"]
    monkeypatch.chdir(ROOT)
    assert started() == "python3 run.py"
    assert f'"{STARTED}": started()' in (ROOT / "run.py").read_text("utf-8")
    monkeypatch.chdir(ROOT / "docs")
    assert started() == "python3 ../run.py"
    monkeypatch.delenv(STARTED, raising=False)
    assert command("plan x") == "meshwright plan x"
    monkeypatch.setenv(STARTED, "python3 ../run.py")
    assert command("plan x") == "python3 ../run.py plan x"


def test_every_printed_command_is(
    script: str,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(STARTED, "python3 run.py")
    read = f"read {script} --on h100-sxm"
    ended = {
        f"{read} -o job.toml": 0,
        read: 0,
        "predict job.toml": 0,
        f"plan job.toml {SMALL}": 0,
        "predict job.toml --foo": 2,
        "export config.json --to sbatch": 2,
    }
    told = ["".join(shell(line, ends=code)) for line, code in ended.items()]
    said = "\n".join(told).splitlines()
    commands = [
        line
        for line in said
        if any(f" {v} " in line for v in ("predict", "plan", "export", "read"))
        and ("  next " in line or "again:" in line or "run.py" in line)
    ]
    assert len(commands) >= 6
    assert not any("meshwright p" in line for line in commands), commands
    assert sum("python3 run.py" in line for line in commands) >= 6


def test_a_command_of_run_py_is_a_question_of_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from meshwright.web.dropped import command_words
    from meshwright.web.question import command_of

    words = "plan llama3-8b --on 64xh100-sxm --batch 1Mi"
    ours = command_words(f"meshwright {words}")
    assert ours and command_words(f"python3 run.py {words}") == ours
    monkeypatch.setenv(STARTED, "python3 run.py")
    assert command_of(ours).startswith("python3 run.py plan llama3-8b ")


def test_a_plan_that_no_money_pays_for_is_none(
    shell: Shell, tmp_path: Path
) -> None:
    """The plan of the number that was asked would read as if it were paid."""
    poor = "plan llama3-8b --on 16xh100-sxm --batch 1Mi --tokens 100G"
    line = f"{poor} {SMALL} --budget 100"
    path = tmp_path / "plan.toml"
    told = shell(f"{line} -o {path}", ends=1).out
    assert not path.exists()
    assert "  no      no size tried finishes for under 100 USD" in told
    assert "tokens/s" not in told and "USD" in told
    assert shell.json(line, ends=1)["sizing"]["chips"] is None


ON = "llama3-8b --on 16xh100-sxm --batch 1M"


def test_what_is_not_legal_is_not_said_to_lack_memory(
    shell: Shell,
) -> None:
    told = shell(f"plan {ON} --tp 3", ends=1).out
    assert told.startswith("Plan llama3-8b on 16 x h100-sxm, batch ")
    assert "  no      not legal: tp may be 1, 2, 4" in told
    assert "fit" not in told


def test_what_does_not_fit_says_what_would_and_how_to_ask_for_it(
    shell: Shell,
) -> None:
    """The proposed command has an answer; the reason stands before what was rounded."""
    words = "plan llama3-70b --on 8xa100-80 --batch 1M"
    told = shell(words, ends=1).out
    assert (
        "  no      does NOT fit: even the smallest layout needs 155 GiB where a"
        in told
    )
    assert (
        "  but     host memory (--offload optimizer) would make it fit" in told
    )
    assert told.index("would make it fit") < told.index("rounded to")
    assert "\n  closest " in told
    proposed = told.partition("  next    meshwright ")[2].partition("  more")[
        0
    ]
    again = " ".join(proposed.replace("\\\n", " ").split())
    assert again == f"{words} --offload optimizer"
    shell(again)


def test_chips_that_cut_nothing_name_the_framework_that_does(
    shell: Shell,
) -> None:
    """FSDP, which is usual on consumer cards, gathers whole layers and a whole head."""
    line = "plan llama3-8b --on 8xrtx-4090 --batch 64seq --top 1"
    other = "--framework megatron-core"
    told = " ".join(shell(line, ends=1).out.split())
    assert f"({other}) would make it fit" in told
    shell(f"{line} {other}")
    assert other not in shell(f"{line} --framework fsdp", ends=1).out


def test_a_plan_and_a_prediction_say_how_they_round(
    shell: Shell,
) -> None:
    """As many sequences, which the chips share; and how to ask for the nearest number."""
    for line in (f"predict {ON} --zero 3 --why", f"plan {ON} {SMALL} --why"):
        told = " ".join(shell(line).out.split())
        assert "rounded to 128 sequences" in told
        assert "the nearest: --batch 122seq" in told


def test_a_chip_without_a_price_says_so_and_how_to_give_one(
    shell: Shell, tmp_path: Path
) -> None:
    words = "llama3-8b --on 8xmi325x --batch 64seq --zero 1 --tokens 1G -o"
    job = tmp_path / "job.toml"
    told = shell(f"predict {words} {job}").out
    assert "no public price: --price mi325x=4.5 gives one" in told
    table = "\n[cluster.chip]\nusd_per_hour = 4.5\n"
    job.write_text(job.read_text("utf-8") + table)
    told = shell(f"predict {job}").out
    assert "at 4.5 USD/chip-h" in told and "public price" not in told


def test_limits_say_whose_price_they_take(
    shell: Shell,
) -> None:
    told = shell("limits h100 --chips 64 --all").out
    assert "rent: epoch-h100 at 3.5 USD/h (Nebius, September 2024" in told


def test_a_sweep_says_whose_price_is_missing(
    shell: Shell,
) -> None:
    words = "sweep llama3-8b --on 8xh100-sxm --batch 64seq --zero 3 --tp 1"
    over = "--pp 1 --tokens 1G --over on=8xh100-sxm,8xmi325x"
    told = shell(f"{words} {over}").out
    assert told.count("has no public price") == 1 and "mi325x has no" in told
    assert (
        "has no public price"
        not in shell(f"{words} {over} --price mi325x=2").out
    )


def test_words_of_an_answer(script: str, shell: Shell) -> None:
    """Where ranks lie, what a published run took, why device is more than needed."""
    words = "--on 16xh100-sxm --batch 64seq --zero 3"
    told = shell(f"predict llama3-8b {words} --why").out
    assert "dp: 8 inside nvlink x 2 over ib\n" in told
    odd = "--on 12xh100-sxm --batch 48seq --tp 4"
    half = shell(f"predict llama3-8b {odd} --zero 1 --why").out
    assert "tp: 4 inside nvlink · dp: 3 over ib\n" in half, "one in each of 3"
    assert "(measured " in told and "the allocator can give back" in told
    text = SCRIPT.replace(
        "--vocab-size 32000", "--tokenizer-type Llama2Tokenizer"
    )
    Path(script).write_text(text, "utf-8")
    told = shell(f"read {script} --all").out
    assert "vocabulary 32,000: that of Llama2Tokenizer" in told


@pytest.mark.parametrize(
    ("framework", "tool"),
    [
        ("fsdp", "accelerate"),
        ("deepspeed", "deepspeed"),
        ("megatron-bridge", "megatron-bridge"),
    ],
)
def test_the_file_that_is_proposed_is_the_frameworks_own(
    framework: str, tool: str
) -> None:
    """Several formats hold a plan for FSDP; the one that means it first is proposed."""
    layout = Layout(dp=64, zero=3)
    job = Job("llama3-8b", "64xh100-sxm", 256, layout, framework=framework)
    assert target(job) == tool


@pytest.mark.parametrize("zero", [1, 3])
def test_an_export_names_a_framework_that_runs_the_plan(
    zero: int, tmp_path: Path, shell: Shell
) -> None:
    """What it names predicts the plan: one of DeepSpeed's profiles has no ZeRO-3."""
    plan = tmp_path / "plan.toml"
    asked = "llama3-8b --on 64xh100-sxm --batch 64seq --recompute full"
    shell.answer(f"predict {asked} --zero {zero} -o {plan}")
    told = shell(f"export {plan} --to deepspeed -o {tmp_path}/d.json").err
    assert "--framework deepspeed to see" in told
    told = shell.answer(f"predict {plan} --framework deepspeed")
    assert "framework deepspeed" in told


@pytest.mark.parametrize("chip", ["t4", "h20"])
def test_a_host_that_nobody_measured_is_not_proposed(
    shell: Shell, chip: str
) -> None:
    """Nothing fits, and what waits in host memory has no price there: the answer is no, not a
    refusal of what nobody asked for."""
    told = shell(f"plan llama3-70b --on 8x{chip} --batch 64seq", ends=1).out
    assert "  no      does NOT fit" in told
    assert "offload" not in told
