"""What a command says of itself: errors as JSON, the line that does it again, one batch in a table
of sizes and in the plan under it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from meshwright.cli.main import main
from shell import Shell

Capture = pytest.CaptureFixture[str]
SCRIPT = (
    "torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py --tensor-model-parallel-size 2"
    " --use-distributed-optimizer --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336"
    " --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --swiglu"
    " --disable-bias-linear --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000"
)


def test_a_plan_where_nothing_fits_says_what_would_though_it_is_compared(
    shell: Shell,
) -> None:
    words = "plan llama3-70b --on 8xa100-40 --batch 64seq"
    alone = shell(words, ends=1).out
    compared = shell(f"{words} --against tp=8", ends=1).out
    what_would, *_ = alone.partition("  closest")
    assert what_would and compared.startswith(what_would)
    assert "--against has nothing to compare with" in compared


def test_the_line_that_plans_a_script_again_names_what_is_not_usual(
    tmp_path: Path, shell: Shell
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(SCRIPT)
    out = shell(f"plan {script} --on 64xh100-sxm --top 1 --why").out
    (line,) = [x for x in out.splitlines() if "again: " in x]
    again = shlex.split(line.partition("meshwright ")[2])
    # the script says nothing of them
    assert not {"--offload", "--microbatch-group", "--panels"} & {*again}
    assert step_of(out) == step_of(shell(*again, "--why").out)


def step_of(out: str) -> list[str]:
    """The seconds of a card, with their unit."""
    return next(
        x for x in out.splitlines() if x.startswith("  step ")
    ).split()[1:3]


def test_even_stages_are_proposed_and_not_demanded(capsys: Capture) -> None:
    """80 layers on 3 stages run, 27 on the fullest."""
    words = (
        "predict llama3-70b --on 24xh200 --batch 96seq --tp 8 --pp 3 --zero 1"
    )
    main([*words.split(), "--why"])
    said = capsys.readouterr().out
    assert "for even stages pp may be 1, 2, 4, 5" in said


def test_the_chosen_row_of_a_deadline_is_the_plan_under_it(
    shell: Shell,
) -> None:
    """4M tokens are 489 sequences, or 512 or 480 where more of the chips share them: one batch for
    all numbers of chips."""
    words = "plan llama3-8b --on 64xh100 --batch 4M --tokens 1T --deadline 30d"
    data = shell.json(words)
    (row,) = [
        r
        for r in data["sizing"]["tried"]
        if r["chips"] == data["sizing"]["chips"]
    ]
    assert row["train_time_s"] == data["best"]["train_time_s"]
    assert any(note.startswith("batch: 4,000,000") for note in data["notes"])
