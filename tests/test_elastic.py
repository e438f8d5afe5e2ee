"""What a better machine would change, and in what two layouts differ."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from meshwright import Dim, Job, Layout, Prediction, predict
from meshwright.formats.flags import layout_of
from meshwright.prediction.elastic import elasticities, seconds_by_cause
from shell import Shell

JOB = Job("llama3-8b", "16xh100-sxm", 32)
MINE = predict(JOB, Layout(tp=8, dp=2, zero=1))


def test_each_number_by_itself_is_a_prediction_on_such_a_machine() -> None:
    found = {e.name: e.change for e in elasticities(MINE)}
    assert {*found} == {"flops", "hbm", "memory", "nvlink", "ib", "latency"}
    assert all(change <= 1e-12 for change in found.values()), (
        "no better machine is slower"
    )
    near, far = JOB.cluster.network.dims
    doubled = replace(near, bandwidth=2 * near.bandwidth), far
    assert found["nvlink"] == pytest.approx(change(MINE, *doubled))
    assert found["nvlink"] < found["ib"], "tp 8 sends inside the node"
    changes = [e.change for e in elasticities(MINE)]
    assert changes == sorted(changes)


def change(p: Prediction, *dims: Dim) -> float:
    """By these dimensions of the network."""
    network = replace(p.job.cluster.network, dims=dims)
    on = replace(p.job.cluster, network=network)
    other = predict(replace(p.job, cluster=on), p.layout)
    return other.merit_s / p.merit_s - 1


def test_half_the_latency_is_half_of_each() -> None:
    """Under a set whose collectives pay it for every message."""
    paper = predict(replace(JOB, assumptions="lbl-2024"), MINE.layout)
    found = {e.name: e.change for e in elasticities(paper)}["latency"]
    dims = JOB.cluster.network.dims
    shorter = (replace(each, latency=each.latency / 2) for each in dims)
    assert found == pytest.approx(change(paper, *shorter)) and found < -1e-4


def test_the_difference_of_two_layouts_is_split_by_cause() -> None:
    best = predict(JOB, Layout(dp=16, zero=3))
    parts = seconds_by_cause(MINE, best)
    assert sum(parts.values()) == pytest.approx(
        MINE.step_time_s - best.step_time_s
    )
    assert parts["tp_comm"] == MINE.time_s["tp_comm"]


def test_why_mine_is_worse(shell: Shell, tmp_path) -> None:
    """By words and by file: the same layout, the same difference."""
    asked = "plan llama3-8b --on 16xh100-sxm --batch 32seq --pp 1"
    file = tmp_path / "mine.toml"
    file.write_text("[layout]\ntp = 8\nzero = 1\n")
    for mine in ("tp=8 zero=1", str(file)):
        out = shell(f"{asked} --why --against '{mine}'").out
        assert "yours against the best" in out
        assert re.search(
            r"yours: tp 8 · dp 2 · ZeRO-1: [\d.]+ s, [\d.]+ % slower", out
        )
    assert "heads 32 cannot be split 3 ways" in shell.refused(
        f"{asked} --against tp=3"
    )
    assert "tpp" in shell.refused(f"{asked} --against tpp=3")


def test_a_plan_of_a_job_says_what_its_own_layout_costs(
    shell: Shell, tmp_path
) -> None:
    """Nobody has to name it; words change it, and what they do not name stays; replicas follow."""
    file = tmp_path / "job.toml"
    text = (
        '[model]\nname = "llama3-8b"\n[cluster]\non = "16xh100-sxm"\n[job]\nbatch = "32seq"\n'
        '[layout]\ntp = 4\npp = 2\ndp = 2\nzero = 1\nrecompute = "full"\n'
    )
    file.write_text(text)
    less = "--pp 1 --cp 1 --top 1"
    asked = f"plan {file} {less}"
    slower = r"([\d.]+ % slower|[\d.]+ times as long)"
    tail = rf"ZeRO-1 · full recomputation: [\d.]+ s, {slower}"
    for more, said in (
        ("", "tp 4 · pp 2 · dp 2 · 1f1b · "),
        ("--on 32xh100-sxm", "tp 4 · pp 2 · dp 4 · 1f1b · "),
        ("--against tp=2", "tp 2 · pp 2 · dp 4 · 1f1b · "),
        ("--against 'tp=8 pp=1'", "tp 8 · dp 2 · "),
    ):
        out = shell(f"{asked} {more} --why").out
        assert re.search(f"yours: {said}{tail}", out)
    best = tmp_path / "best.toml"
    shell(f"{asked} -o {best}")
    assert "this is the best" in shell(f"plan {best} {less}").out
    file.write_text(text.replace("tp = 4", "tp = 3"))
    out = " ".join(shell(asked).out.split())
    assert (
        "the layout of the file is ignored" in out
        and "cannot be split 3 ways" in out
    )


def test_without_pipelines_their_words_go_too() -> None:
    """Own layout interleaved: "pp=1" is still a layout."""
    own = Layout(tp=2, pp=2, dp=4, schedule="interleaved", interleave=2)
    assert layout_of("pp=1", JOB, own) == Layout(tp=2, dp=8)
    assert layout_of("pp=4", JOB, own) == replace(own, pp=4, dp=2)
