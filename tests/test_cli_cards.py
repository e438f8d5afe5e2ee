"""The first screen of every verb: at most 14 lines of 80 columns in a pipe; nothing is lost
behind it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shell import SCRIPT, Shell

MOST, COLUMNS = 14, 80
ON = "llama3-8b --on 16xh100-sxm --batch 64seq"
LINE = (
    " iteration {i}/ 500 | elapsed time per iteration (ms): 99.{i} | global"
    " batch size:    64 | lm loss: 1.1E+01 | loss scale: 1.0 |\n"
)
SMALL = "--tp 1,2 --pp 1 --cp 1"
BEHIND = {
    f"predict {ON} --zero 3 --tokens 1T": (
        "time of a step",
        "fullest chip",
        "HFU",
        "nearest runs: ",
        "chip-hours",
        "overhead: checkpoints",
        "inside nvlink",
    ),
    f"plan {ON} {SMALL} --tokens 1T": (
        "time of a step",
        "families of layouts",
        "layouts ",
        "Why this layout",
        "again: meshwright predict",
        "Searched ",
        "not tried: ",
        "critical batch, ",
    ),
    f"plan {ON} {SMALL} --tokens 1T --deadline 90d": ("(chosen)",),
    f"plan {ON} {SMALL} --against tp=8": ("yours against the best",),
    "plan llama3-70b --on 8xh100-sxm --batch 64seq": ("fullest chip",),
    f"sweep {ON} {SMALL} --over chips=8..64": ("MFU", "speed-up: tokens/s"),
    f"sweep {ON} --zero 3 --fixed --over chips=8,16 --over seq=4k,8k": (
        "down, ",
    ),
    f"timeline {ON} --tp 2 --pp 4": ("microbatches held", "weight gradient"),
    "limits h100": ("closed form", "rent: epoch-h100", "microbatches"),
    "limits h100 --run 1e27": ("tensor", "rent: epoch-h100"),
    "limits h100 a100": ("ends (no grid)",),
    "limits h100 --sensitivity": ("network latency",),
    "roofline llama3-70b --on 512xtpu-v5p --batch 4M": ("X_opt", "comm sum"),
    "read run.sh --on 16xh100-sxm": ("settings understood", "layout   tp 2"),
    "compare run.log --job run.sh --on 16xh100-sxm": ("median of the log",),
    f"advise {ON} --tp 8 --zero 1": ("left out: ", "out-of-memory risk"),
    "advise run.sh --on 16xh100-sxm --steps run.log": ("microbatch 1 -> 2",),
    "catalog chips": ("USD/h", "h100-sxm"),
    "catalog chips h100-sxm": ("hierarchy.sms",),
    "catalog models": ("llama3-70b", "vocab"),
}
"""Command -> what `--all` prints of it, all of which stood on the first screen before."""


@pytest.fixture(autouse=True)
def folder(elsewhere: Path) -> None:
    """A script and a log."""
    Path("run.sh").write_text(SCRIPT, "utf-8")
    text = "".join(LINE.format(i=i) for i in range(1, 9))
    Path("run.log").write_text(text, "utf-8")


@pytest.mark.parametrize("words", BEHIND)
def test_the_first_screen_of_a_verb_is_a_card(
    words: str, shell: Shell
) -> None:
    lines = shell.answer(words).splitlines()
    assert 3 <= len(lines) <= MOST, "\n".join(lines)
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0][0] != " ", "the question"
    whole = shell.answer(f"{words} --all")
    assert whole.splitlines()[: len(lines)] == lines, "the card comes first"
    lost = [part for part in BEHIND[words] if part not in whole]
    assert not lost, whole
    assert "\x1b" not in whole, "no colours in a pipe"


def test_a_plan_says_what_was_asked_whether_and_what_else(
    shell: Shell,
) -> None:
    told = shell(f"plan {ON} --tokens 1T").out
    question, yes, *_ = told.splitlines()
    assert question == (
        "Plan llama3-8b for 1 T tokens on 16 x h100-sxm, batch 524 k (64 x 8,192)"
    )
    assert yes.startswith("  yes     fits in memory: ")
    for label in ("best", "step", "run", "or", "basis", "next", "more"):
        assert f"\n  {label:8}" in told, label
    assert "(90 %: " in told and " days (" in told and " USD (" in told
    assert told.count("\n  or ") == 2


def test_a_price_of_ones_own(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the flag, alone or by the chip's alias, and by the user's file; the flag counts."""
    job = f"{ON} --zero 3 --tokens 1T"
    mine, files = " at 2.5 USD/chip-h", " at 3 USD/chip-h"
    for price in ("2.5", "h100=2.5", "'h100-sxm=2.5 USD/h'"):
        assert mine in shell(f"predict {job} --price {price}").out, price
    Path("mine.toml").write_text("[prices]\nh100-sxm = 3\nmi300x = 1.5\n")
    monkeypatch.setenv("MESHWRIGHT_CONFIG", "mine.toml")
    assert files in shell(f"predict {job}").out
    assert mine in shell(f"predict {job} --price h100=2.5").out
    over = "--over on=16xh100-sxm,16xmi300x --fixed"
    assert "has no price" not in shell(f"sweep {job} {over}").out
    shell(f"predict {job} -o job.toml")
    monkeypatch.delenv("MESHWRIGHT_CONFIG")
    assert files in shell("predict job.toml").out, "a file says its price"


def test_the_users_file(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its framework counts where nobody names another; a key that it does not have is refused."""
    Path("mine.toml").write_text('framework = "torchtitan"\n')
    monkeypatch.setenv("MESHWRIGHT_CONFIG", "mine.toml")
    line = f"predict {ON} --zero 3"
    assert " with torchtitan" in " ".join(shell(line).out.split())
    assert "torchtitan" not in shell(f"{line} --framework fsdp").out
    Path("mine.toml").write_text("price = 3\n")
    assert "did you mean prices?" in shell.refused(line)
    monkeypatch.setenv("MESHWRIGHT_CONFIG", "none.toml")
    assert "none.toml" in shell.refused(line)


def test_a_framework_that_is_thought_to_shard_says_that_it_does_not(
    shell: Shell,
) -> None:
    """Only where nobody said a stage, also where the machine chose the framework; not of a paper,
    which has none."""
    job = "predict gpt2-xl --batch 64seq"
    for more, ddp in (
        ("--on 8xh100 --framework fsdp", True),
        ("--on 8xh100 --framework fsdp --zero 0", False),
        ("--on 8xh100 --framework fsdp --zero 3", False),
        ("--on 8xh100", False),
        ("--on 8xh100 --assumptions lbl-2024", False),
        ("--on 2xrtx-4090 --why", True),
    ):
        told = shell.answer(f"{job} {more}")
        assert ("DDP" in told) == ddp, more
        assert ("--zero 3 shards" in told) == ddp, more


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            f"timeline {ON} --zero 3",
            "without a pipeline (pp 1) no rank waits",
        ),
        (f"timeline {ON}", "does NOT fit: needs"),
        (
            f"timeline {ON} --tp 2 --pp 8",
            "free sends, but stage 7 takes",
        ),
        (
            "predict gpt2 --on 8xh100-sxm --batch 64seq --framework deepspeed-zero3",
            "layout dp 8 · ZeRO-3",
        ),
        (
            f"plan {ON} --tp 8 --pp 4 --dp 4",
            "not legal: tp 8 x cp 1 x pp 4 x dp 4 needs 128 chips, but the cluster has 16",
        ),
        (
            "plan llama3-8b --on 4xrtx-4090 --batch 64seq",
            "NeMo AutoModel (--framework automodel) would make it fit",
        ),
        (
            f"plan {ON} {SMALL} --tokens 15T --budget 5k",
            ": the money is enough for ",
        ),
        (
            f"advise {ON} --tp 2",
            f"next meshwright predict {ON} --tp 2 \\ --zero ",
        ),
        (
            f"predict {ON} --zero 3",
            f"next meshwright plan {ON} -o \\ plan.toml",
        ),
        ("limits h100 --chips 100k", "FLOP in 91.3 days: "),
        ("limits h100", "to a factor of 6 (Epoch's grid "),
        ("catalog chips --all", "memory bandwidth power price network"),
        ("catalog models --all", " 12 768 12 12 3072 50257 1024 "),
    ],
)
def test_an_answer_as_a_colleague_says_it(
    words: str, said: str, shell: Shell
) -> None:
    assert said in " ".join(shell.answer(words).split())


def test_a_run_of_several_changes_gains_or_is_none(shell: Shell) -> None:
    """Ties that lose, and pairs slower than the run, are no advice; of what fits nowhere neither
    seconds nor numerics are of use.
    """
    best = "--framework torchtitan --zero 3"
    told = shell(f"advise llama3-8b --on 8xh100-sxm --batch 64seq {best}").out
    assert " -> " in told and " pair " not in told
    (ties,) = (line for line in told.splitlines() if "  ties " in line)
    assert " -" not in ties.replace(" -> ", " to ")
    none = shell("advise llama3-8b --on 2xrtx-4090 --batch 8seq").out
    assert "no single change makes it fit" in none
    assert "\n  or " not in none and "\n  ties " not in none


def test_more_chips_that_take_longer_and_cost_more_are_no_alternative(
    shell: Shell,
) -> None:
    told = shell(
        "plan llama3-8b --on 64xh100-sxm --batch 4Mi --tokens 1T --deadline 10d"
    ).out
    answer = next(line for line in told.splitlines() if "  run " in line)
    others = [line for line in told.splitlines() if " chips: " in line]
    assert len(others) == 2, told
    days, usd = (
        [float(re.search(rf"([\d.]+) {unit}", line)[1]) for line in others]
        for unit in ("days", "k USD")
    )
    mine = [float(n) for n in re.findall(r"([\d.]+)(?: days| k USD)", answer)]
    assert all(
        d < mine[0] or u < mine[1] for d, u in zip(days, usd, strict=True)
    )


def test_a_plan_names_no_alternative_that_does_not_fit(shell: Shell) -> None:
    """The published layout of 8 chips, on two of three here, has no room."""
    told = shell("plan llama3-8b --on 3xh100-sxm --batch 96seq").out
    assert "\n  or " in told and "risk >99 %" not in told


def test_one_chip_shards_nothing(shell: Shell) -> None:
    """What FSDP calls ZeRO-2 is none on a chip that is alone."""
    told = shell("plan gpt2 --on 1xt4 --batch 32seq").out
    assert "the same with microbatch" in told and "ZeRO-2" not in told


def labels(card: str) -> set[str]:
    """What stands before the rows of a card."""
    return {line[2:9].strip() for line in card.splitlines()}


def test_what_binds_and_how_sure_it_is_stand_on_a_full_card(
    shell: Shell,
) -> None:
    """They and a batch that is not the one asked for do not give way to alternatives."""
    card = shell(
        "plan llama3-405b --on 100000xh100-sxm --batch 16.8M --tokens 15T"
    ).out
    assert len(card.splitlines()) == MOST
    assert {"batch", "bound", "basis"} <= labels(card)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("--float8 delayed", "float8 delayed changes nothing here: it acts on products in FP8"),
        ("--logits-quantised true", "it acts on products in FP8 or FP4"),
        ("--dispatcher deepep", "it acts on experts of several ranks"),
        ("--ep-overlap true", "it acts on experts of several ranks"),
        ("--full prefix", "it acts on full recomputation of layers that are"),
        ("--reduction-numbers fp32", "it acts on gradients that replicas sum in 16 bits"),
        ("--stage-message scattered", "stage_message scattered changes nothing here: it acts on"),
        ("--stage-message scattered --sequence-parallel false", ""),
        ("--full prefix --recompute full", ""),
        ("--float8 delayed --precision fp8", ""),
        ("--tp-overlap all", ""),
        ("--float8 tensorwise", ""),
    ],
)  # fmt: skip
def test_a_setting_that_changes_nothing_says_on_what_it_acts(
    shell: Shell, asked: str, says: str
) -> None:
    """One that changes the step does not, nor one that is the framework's own."""
    said = shell(f"predict {ON} --tp 2 --pp 2 --zero 1 {asked} --why").out
    assert says in said
    assert ("changes nothing here" in said) == bool(says)


def test_a_plan_says_which_setting_of_the_question_changes_nothing(
    shell: Shell,
) -> None:
    """On the card itself, not only among the causes."""
    card = shell(f"plan {ON} {SMALL} --float8 delayed").out
    assert "float8 delayed changes nothing here" in card


@pytest.mark.parametrize("verb", ["predict", f"plan --top 1 {SMALL}"])
def test_a_price_without_a_run_says_what_it_lacks(
    shell: Shell, verb: str
) -> None:
    """Money is that of a whole run."""
    line = f"{verb} {ON} --zero 3 --price h100-sxm=2"
    said = "--price changes nothing here"
    assert said in shell.answer(line)
    assert said not in shell.answer(f"{line} --tokens 1T")


def test_long_sequences_say_what_their_mfu_counts(shell: Shell) -> None:
    """Half of what it counts is never done, where nearly all is causal attention."""
    line = "predict llama3-8b --on 64xh100-sxm --batch 64seq --tp 8 --zero 1"
    far = shell.answer(f"{line} --cp 8 --seq 1Mi")
    assert "(counts full attention; HFU" in " ".join(far.split())
    assert "HFU" not in shell.answer(line)
