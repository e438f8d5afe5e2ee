"""The verb `roofline` from outside."""

from __future__ import annotations

import json

import pytest

from meshwright import roofline
from shell import Shell

LINE = "roofline llama3-8b --on 64xtpu-v5p --batch 4M"


def test_tables(shell):
    out = shell(f"{LINE} --all").out
    for word in ("FSDP", "best sum", "best max", "X_opt", "ring"):
        assert word in out
    assert "rounded to 488 sequences" in out


BOOK = (
    "roofline llama2-13b --on 4096xtpu-v5p --seq 32k --shape 16x16x16 --batch"
)


def test_the_headline_leaves_out_what_does_not_fit(shell):
    """10M tokens: the states of DP alone keep 122 GiB on a chip of 95; FSDP hides its messages and
    has room. 1M: nothing does both, whatever a pipeline's own messages do.
    """
    out = shell(f"{BOOK} 10M").out
    assert "yes     compute-bound at this batch with FSDP: dp 4096" in out
    assert "no room: dp 4096" in out
    out = shell(f"{BOOK} 1M").out
    assert "  no      DP, FSDP, TP and FSDP+TP are" in out
    assert "yes: 8 stages" in out


def test_a_split_is_judged_by_the_edition_it_is_best_for(shell):
    words = "roofline llama3-70b --on 8960xtpu-v5p --batch 488seq"
    rows = shell(words).out.splitlines()
    (best,) = (row for row in rows if "FSDP+TP, best max" in row)
    assert "2.71 M" in best and "maybe: dp 1120" in best


def test_a_degree_of_one_is_no_way_to_cut(shell):
    out = shell("roofline qwen3-30b-a3b --on 64xh100-sxm --batch 1M").out
    assert "  tp      the communication of any degree shows" in out
    assert "at most 1 " not in out


def test_chips_that_fill_no_nodes_are_counted_as_they_are(shell):
    """20 in nodes of 8 were 24: as many lie in each of five nodes, as `predict` takes them."""
    out = shell("roofline llama3-8b --on 20xh100-sxm --batch 120seq").out
    assert "on 4 x 5 h100-sxm at 983 k tokens a step (49,152 a" in out
    assert "FSDP: dp 20" in out and "dp 24" not in out


def test_nothing_communicates_on_one_chip(shell):
    """70 B parameters have no room there, which no message is to blame for; 8 B have, a few
    sequences at a time.
    """
    words = "--on 1xh100-sxm --batch 8seq"
    out = shell(f"roofline llama3-8b {words}").out
    assert "yes     nothing communicates on one chip, and it fits" in out
    assert "in 4 microbatches" in " ".join(out.split())
    out = shell(f"roofline llama3-70b {words}").out
    assert "no      nothing communicates, but it does not fit" in out
    assert "tp      one chip has no other to communicate with" in out
    assert "communication-bound" not in out
    out = shell(f"roofline gpt2 {words}").out
    assert "yes     nothing communicates on one chip, and it fits" in out


def test_panels_name_the_edition_of_their_threshold():
    pytest.importorskip("matplotlib")
    r = roofline("llama3-70b", "8960xtpu-v5p", "4M")
    from meshwright.report.roofline_plots import roofline_plot

    figure = roofline_plot(r)
    titles = [ax.get_title() for ax in figure.axes if ax.get_visible()]
    title = next(t for t in titles if "best sum" in t)
    assert title.endswith("below 3.25M tokens (either edition)")
    (legend,) = figure.legends
    names = [t.get_text() for t in legend.get_texts()]
    assert names[-2:] == ["the batch asked for, 4.00M", "communication binds"]


def test_json(shell):
    words = "--json --layer mlp --shorthand --shape 2x4x8"
    data = json.loads(shell(f"{LINE} {words}").out)
    shown = [data[k] for k in ("shape", "kinds", "layer", "batch_tokens")]
    assert shown == [[2, 4, 8], ["line"] * 3, "mlp", 488 * 8192]
    fsdp = data["schemes"][1]
    tokens = pytest.approx(64 * 459e12 / (3 * 90e9), rel=1e-9)
    assert fsdp["name"] == "FSDP" and fsdp["least_batch_sum_tokens"] == tokens


@pytest.mark.parametrize("kind", ["json", "csv", "png", "svg"])
def test_files(tmp_path, kind, shell):
    shell(f"{LINE} -o", tmp_path / f"r.{kind}")
    assert (tmp_path / f"r.{kind}").stat().st_size > 300


def test_a_yes_says_that_sequences_are_cut(shell: Shell) -> None:
    """488 sequences of 8,192 tokens on 1,120 replicas; of ten times as many each has whole ones."""
    line = "roofline llama3-70b --on 8960xtpu-v5p --batch"
    few = " ".join(shell(f"{line} 4M").out.split())
    assert (
        "yes compute-bound at this batch with FSDP+TP: dp 1120, tp 8; context parallelism"
        " (not counted) must cut its 488 sequences" in few
    )
    many = shell(f"{line} 80M").out
    assert "yes" in many and "must cut" not in many
