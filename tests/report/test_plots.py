"""Plots: labelled axes with units, a hatch for every colour, the numbers of the result."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from meshwright import Job, Layout, predict
from meshwright.catalog import model
from meshwright.cli import main as cli
from meshwright.describe.assumptions import assumptions
from meshwright.prediction.replay import replay
from meshwright.report import plots
from meshwright.sweep import Sweep, SweepPoint, sweep
from shell import Shell

JOB = Job("gpt3-175b", "64xa100-80", 64)
PREDICTIONS = [predict(JOB, Layout(tp=8, pp=p, dp=8 // p)) for p in (1, 2, 8)]


def test_bars_are_as_high_as_the_terms() -> None:
    figure = plots.layouts(PREDICTIONS, ("a", "b", "c"), "title")
    top, middle, low = figure.axes
    for x, p in enumerate(PREDICTIONS):
        for axes, total in (
            (top, p.step_time_s),
            (middle, p.memory_bytes["allocated"] / 2**30),
        ):
            heights = [
                bar.get_height()
                for bars in axes.containers
                for bar in [bars[x]]
            ]
            assert sum(heights) == pytest.approx(total)
    assert (
        top.get_ylabel() == "step time [s]"
        and middle.get_ylabel() == "memory [GiB]"
    )
    cells = [text.get_text() for text in low.texts]
    assert {"1", "2", "8", f"{100 * PREDICTIONS[0].mfu:.1f}%"} <= set(cells)


def test_a_layout_beneath_its_bar_is_said_as_on_the_card() -> None:
    layout = Layout(
        tp=8, pp=2, dp=4, schedule="interleaved", interleave=7, stages="slots"
    )
    *_, low = plots.layouts([predict(JOB, layout)]).axes
    rows = [label.get_text() for label in low.get_yticklabels()]
    cells = dict(zip(rows, (t.get_text() for t in low.texts), strict=True))
    assert (cells["chunks"], cells["stages"]) == ("7", "ends as layers")


def test_every_two_parts_differ_in_black_and_white() -> None:
    for parts in (plots.CAUSES, plots.KINDS):
        for a, b in combinations(parts, 2):
            (colour_a, hatch_a), (colour_b, hatch_b) = (
                plots.STYLE[a],
                plots.STYLE[b],
            )
            assert (
                hatch_a != hatch_b
                or abs(_grey(colour_a) - _grey(colour_b)) > 0.3
            ), (a, b)


def _grey(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_scaling() -> None:
    found = sweep(PREDICTIONS[2].job, "chips", ["64..256"], fixed=True)
    top, low = plots.scaling(found).axes
    assert (
        top.get_ylabel() == "tokens / s"
        and low.get_ylabel() == "MFU [%]"
        and low.get_xlabel() == "chips"
    )
    perfect, ours, *_ = top.lines
    assert list(ours.get_ydata()) == [
        p.tokens_per_s for _, p in found.predicted
    ]
    assert perfect.get_ydata()[-1] == pytest.approx(4 * ours.get_ydata()[0])
    (bars,) = top.containers
    for ends, (_, p) in zip(
        bars.lines[2][0].get_segments(), found.predicted, strict=True
    ):
        rates = [p.job.batch_tokens / s for s in p.interval_s[::-1]]
        assert [y for _, y in ends] == pytest.approx(rates)


def test_rates_that_differ_little_stand_on_an_axis_with_ticks() -> None:
    """Without an interval there is no bar; the title names the chips; no marker is cut off."""
    job = replace(PREDICTIONS[2].job, assumptions=assumptions("lbl-2024"))
    job = replace(job, framework=None)
    found = sweep(job, "network.nvlink.size", ["4", "8"], fixed=True)
    top, low = plots.scaling(found).axes
    rates = [p.tokens_per_s for _, p in found.predicted]
    assert max(rates) < plots.APART * min(rates)
    assert top.get_yscale() == "linear"
    assert sum(0 < y < top.get_ylim()[1] for y in top.get_yticks()) > 2
    assert not top.containers[0].has_yerr
    assert f"on {job.cluster.chips} x a100-80" in top.get_title()
    assert low.get_ylim()[1] > 1.04 * max(
        100 * p.mfu for _, p in found.predicted
    )


def test_clusters_of_other_chips_stand_side_by_side() -> None:
    clusters = ["64xh100-sxm", "64xb200"]
    found = sweep(PREDICTIONS[2].job, "on", clusters, fixed=True)
    top, _ = plots.scaling(found).axes
    assert list(top.containers[0].lines[0].get_xdata()) == [0.0, 1.0]


def test_a_sweep_over_names_is_drawn(tmp_path: Path) -> None:
    """Models whose rates lie so far apart that the axis has ticks below 0; the title names only
    what they share.
    """
    picture = tmp_path / "model.png"
    models = "model=llama3-8b,llama3-70b,llama3-405b"
    words = [
        "llama3-70b",
        "--on",
        "512xh100-sxm",
        "--batch",
        "4Mi",
        "--over",
        models,
        "-o",
        str(picture),
    ]
    assert cli.run(["sweep", *words]) == 0 and picture.stat().st_size > 10_000
    jobs = [
        replace(PREDICTIONS[2].job, model=model(name))
        for name in ("gpt3-175b", "gpt3-13b")
    ]
    found = Sweep(
        "model", tuple(SweepPoint(j.model.name, j, predict(j)) for j in jobs)
    )
    top, _ = plots.scaling(found).axes
    assert (
        "gpt3" not in top.get_title()
        and "x a100-80" in top.get_title()
        and "realistic" in top.get_title()
    )
    assert top.get_ylim()[0] == 0 and top.lines[0].get_linestyle() == "None"


def test_a_plan_lies_at_its_memory_and_its_time() -> None:
    """The best as a star with its interval, the others as dots, what its families add as squares."""
    best, other, beside = PREDICTIONS
    top, *_ = plots.plan_figure([best, other], [best, beside]).axes
    spots = [
        (line.get_marker(), *line.get_xydata()[0])
        for line in top.lines
        if line.get_marker() in ("*", "o", "s")
    ]
    assert spots == [
        (mark, p.memory_bytes["needed"] / 2**30, p.step_time_s)
        for mark, p in (("*", best), ("o", other), ("s", beside))
    ]
    assert {text.get_text() for text in top.texts} == {"1", "2"}


def test_pictures_name_their_assumptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(
        plots, "image", lambda figure, kind: drawn.append(figure) or b""
    )
    words = "plan llama3-8b --on 16xh100-sxm --batch 64seq --pp 1 --top 3"
    shell(f"{words} --assumptions lbl-2024 -o", tmp_path / "x.png")
    (one,) = drawn
    assert "lbl-2024" in one.get_suptitle()
    assert len(one.axes[-1].get_xticklabels()) == 3
    assert (
        "assumptions realistic"
        in plots.pipeline(replay(PREDICTIONS[2])).axes[0].get_title()
    )


def test_a_pipeline_has_a_box_for_every_action() -> None:
    r = replay(PREDICTIONS[2])
    (axes,) = plots.pipeline(r).axes
    boxes = sum(len(c.get_paths()) for c in axes.collections)
    assert boxes == sum(map(len, r.timeline.order))
    assert (
        axes.get_xlabel() == "time [s]"
        and axes.get_ylabel() == "pipeline rank"
    )


@pytest.mark.parametrize(
    ("kind", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml")]
)
def test_images_are_repeatable(kind: str, begin: bytes) -> None:
    images = [
        plots.image(plots.layouts(PREDICTIONS[:1]), kind) for _ in range(2)
    ]
    assert images[0] == images[1] and images[0].startswith(begin)
