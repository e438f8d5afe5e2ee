"""What `compare` computes, on invented runs whose truth is known."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_folders import OPTIMIZER_S, SLOWER, pipeline_run

from layouts import cut
from meshwright import Job, predict
from meshwright.compare import RecordedRun, compare
from meshwright.compare.links import links
from meshwright.compare.terms import causes
from meshwright.compare.virtual import Virtual, on_the_clock, virtual
from meshwright.describe.assumptions import PYTORCH
from meshwright.describe.measured import Overhead
from meshwright.formats.run_folder import read_run
from meshwright.schedule import SCHEDULES, get
from refusals import refusal
from shell import Shell

LAYOUTS = {
    "gpipe": cut("pp4 gpipe"),
    "1f1b": cut("pp4 1f1b"),
    "interleaved": cut("pp4 interleave2 interleaved"),
    "interleaved-zb": cut("pp4 interleave2 interleaved-zb"),
    "zbv": cut("pp4 zbv"),
    "dualpipev": cut("pp4 dualpipev"),
}


Passes = list[tuple[float, float, float]]


def ran(folder: Path, name: str, passes: Passes) -> RecordedRun:
    """What is recorded of a run under one of the layouts."""
    return read_run(pipeline_run(folder, LAYOUTS[name], passes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a run of four equal stages under 1F1B."""
    equal = [(1.0, 1.0, 1.0)] * 4
    return pipeline_run(tmp_path / "run", LAYOUTS["1f1b"], equal)


@pytest.fixture
def run(folder: Path) -> RecordedRun:
    """What is recorded of it."""
    return read_run(folder)


@pytest.mark.parametrize("name", LAYOUTS)
def test_bubbles_of_a_run_are_those_of_its_schedule(
    name: str, tmp_path: Path
) -> None:
    """Equal stages: the replay of the records gives the closed form, whatever the clock says."""
    layout = LAYOUTS[name]
    chunks = int(get(name).chunks(layout.interleave))
    f, i, w = 1.0, 1.25, 0.75
    equal = [(f / chunks, i / chunks, w / chunks)] * 4 * chunks
    found = compare(ran(tmp_path, name, equal)).virtual
    assert found
    expected = SCHEDULES[name].bubble(4, 8, layout.interleave, f, i, w) / (
        8 * (f + i + w)
    )
    assert found.bubble.as_planned
    assert (
        found.bubble.expected
        == pytest.approx(expected)
        == found.bubble.closed_form
    )
    assert (
        found.bubble.measured
        == pytest.approx(expected)
        == found.bubble.measured_raw
    )
    assert found.step_s == pytest.approx(
        8 * (f + i + w) * (1 + expected) + OPTIMIZER_S
    )


def test_causes_and_remainder_add_up_to_the_measured_step(
    tmp_path: Path,
) -> None:
    passes = [(1.0, 1.0, 1.0), (1.0, 1.5, 1.0)] * 2
    found = compare(ran(tmp_path, "1f1b", passes))
    step = found.step
    assert step and step.rank in (1, 3)
    by = {cause.name: cause for cause in step.causes}
    assert by["forward"].measured_s == pytest.approx(8) and by[
        "backward"
    ].measured_s == pytest.approx(20)
    assert by["optimizer"].measured_s == pytest.approx(OPTIMIZER_S)
    assert sum(
        cause.measured_s or 0 for cause in step.causes
    ) + step.remainder_s == pytest.approx(step.measured_s, rel=1e-12)
    assert sum(step.remainder.values()) == pytest.approx(step.remainder_s)
    assert sum(cause.predicted_s for cause in step.causes) == pytest.approx(
        found.predicted.step_time_s
    )
    assert step.remainder["within actions"] == pytest.approx((SLOWER - 1) * 28)
    assert found.contention == pytest.approx(SLOWER)
    told = [line for line in found.why() if " instead of " in line]
    longer = {
        line.partition(" took ")[0]: ": " in line.partition(" instead of ")[2]
        for line in told
    }
    assert longer
    for name, explained in longer.items():
        cause = by[name]
        assert explained == ((cause.measured_s or 0.0) > cause.predicted_s)
    assert found.crowd == (4, 2) and any(
        "4 threads of ranks share 2 cores" in why for why in found.why()
    )


def test_predicted_causes_add_up_where_messages_slow_kernels_down() -> None:
    p = predict(Job("llama3-8b", "64xh100-sxm", batch=512), zero=3)
    rows = causes(p)
    assert p.time_s["overlap_slowdown"] > 0 < rows["forward"]
    assert sum(rows.values()) == pytest.approx(p.step_time_s, rel=1e-12)


def test_a_straggler_is_named_by_its_rank(tmp_path: Path) -> None:
    """The third of four equal stages takes twice as long; then none does, though all are slow."""
    slow = [(1.0, 1.0, 1.0)] * 2 + [(2.0, 2.0, 2.0), (1.0, 1.0, 1.0)]
    why = [*compare(ran(tmp_path / "slow", "1f1b", slow)).why()]
    named = [line for line in why if "straggler" in line]
    assert len(named) == 1 and named[0].startswith("rank 2 on ")
    assert not any("the machine is slower" in line for line in why)
    even = [(2.0, 2.0, 2.0)] * 4
    why = [*compare(ran(tmp_path / "even", "1f1b", even)).why()]
    assert not any("straggler" in line for line in why)


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_a_slow_link_is_named_by_its_ranks(name: str, tmp_path: Path) -> None:
    """Half a second on every message between the second and third rank; then on all of them, when
    no link is slower than the others.
    """
    layout = LAYOUTS[name]
    p = int(layout.pp)
    bad, every = (
        (1, 2) if p > 2 else (0, 1),
        [(r, r + 1) for r in range(p - 1)],
    )
    passes = [(1.0, 1.0, 1.0)] * int(p * layout.interleave)
    slow = pipeline_run(tmp_path / "slow", layout, passes, late={bad: 0.5})
    found = links(read_run(slow))
    assert found[bad] == pytest.approx(0.5)
    why = [line for line in compare(read_run(slow)).why() if "link" in line]
    assert len(why) == 1, why
    assert f"between rank {bad[0]} on here and rank {bad[1]} on here" in why[0]
    assert "500 ms" in why[0]
    quick = pipeline_run(tmp_path / "quick", layout, passes)
    assert not any("link" in line for line in compare(read_run(quick)).why())
    if len(every) > 1:
        even = dict.fromkeys(every, 0.5) | {(0, p - 1): 0.5}
        all_slow = pipeline_run(tmp_path / "all", layout, passes, late=even)
        assert not any(
            "link" in line for line in compare(read_run(all_slow)).why()
        )


def test_what_a_run_does_beside_its_steps_is_named(folder: Path) -> None:
    """A third of the time goes to data, next to none to checkpoints."""
    rows = [
        json.loads(line)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    for row in rows:
        row |= {
            "elapsed_s": 30.0,
            "data_s": 10.0,
            "checkpoint_s": 0.1,
            "eval_s": 0.0,
        }
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows)
    )
    why = [*compare(read_run(folder)).why()]
    assert any(
        "33 % of the time the run waits for its data, 10 s a step" in line
        for line in why
    )
    assert not any(
        "checkpoints" in line or "evaluates" in line for line in why
    )


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("job.toml", None, "not a run folder"),
        ("metrics.jsonl", "", "no finished step"),
        ("metrics.jsonl", '{"step": 1}\n', "step_time_s must be a number"),
        (
            "metrics.jsonl",
            "oops\n{}\n",
            "metrics.jsonl, line 1: not a line of JSON",
        ),
        ("record/rank-0001.jsonl", None, "not those of ranks 0 to 3"),
        ("record/rank-0001.jsonl", "{}\n", "is not the record of a rank"),
        (
            "record/rank-0001.jsonl",
            '{"schema": "meshwright-record/1", "place": {}}\n',
            "rank must be a number",
        ),
        (
            "metrics.jsonl",
            '{"step": 1, "cpu_s": 1, "step_time_s": 1' + 400 * "0" + "}\n",
            "step_time_s must be a number",
        ),
    ],
)
def test_bad_run_folders_are_refused_with_a_sentence(
    file: str,
    text: str | None,
    says: str,
    folder: Path,
    shell: Shell,
) -> None:
    (folder / file).unlink() if text is None else (folder / file).write_text(
        text
    )
    assert says in shell.refused(f"compare {folder}")


def test_one_measured_step_is_said_and_gives_no_scale(
    tmp_path: Path, shell: Shell
) -> None:
    """A scale needs three steps beside the first: with fewer the card does not send anybody to ask
    for one.
    """
    equal = [(1.0, 1.0, 1.0)] * 4
    folder = pipeline_run(tmp_path / "run", LAYOUTS["1f1b"], equal, steps=4)
    card = shell(f"compare {folder}").out
    assert "(median of the run)" in card and "calibrate --from" in card
    rows = (folder / "metrics.jsonl").read_text().splitlines(True)
    (folder / "metrics.jsonl").write_text("".join(rows[:2]))
    card = shell(f"compare {folder}").out
    assert "(1 step of 2)" in card and "calibrate" not in card


def test_a_step_is_recorded_once(folder: Path) -> None:
    file = folder / "record" / "rank-0001.jsonl"
    lines = file.read_text().splitlines(True)
    file.write_text("".join([*lines, lines[1]]))
    with refusal("must follow each other, each once"):
        read_run(folder)


def with_more_ranks(
    run: RecordedRun, busy: dict[tuple[str, int], float]
) -> RecordedRun:
    """The run with copies of its ranks at other places: (axis, index) -> how many times as long
    their actions take.
    """
    ranks = list(run.ranks)
    for (axis, index), factor in busy.items():
        for rank in run.ranks:
            steps = tuple(
                replace(
                    s,
                    parts=tuple(
                        p._replace(busy_s=p.busy_s * factor) for p in s.parts
                    ),
                )
                for s in rank.steps
            )
            ranks.append(
                replace(
                    rank,
                    rank=len(ranks),
                    place={**rank.place, axis: index},
                    steps=steps,
                )
            )
    return replace(run, ranks=tuple(ranks))


def test_the_slowest_of_a_tensor_parallel_group_sets_its_pace(
    run: RecordedRun,
) -> None:
    alone, pair = virtual(run), virtual(with_more_ranks(run, {("tp", 1): 2.0}))
    assert pair.raw.makespan_s == pytest.approx(2 * alone.raw.makespan_s)
    assert len(pair.raw.order) == 4, "one pipeline"


def test_replicas_are_pipelines_of_their_own(run: RecordedRun) -> None:
    """The median one is shown; medians of actions are over all of them."""
    alone, three = (
        virtual(run),
        virtual(with_more_ranks(run, {("dp", 1): 1.5, ("dp", 2): 4.0})),
    )
    for line in (three.raw, three.typical):
        assert line.makespan_s == pytest.approx(1.5 * alone.raw.makespan_s)
    assert three.bubble.measured == pytest.approx(alone.bubble.measured)


@pytest.fixture
def interleaved(tmp_path: Path) -> RecordedRun:
    """Eight stages in two chunks a rank."""
    return ran(tmp_path, "interleaved", [(0.5, 0.6, 0.4)] * 8)


def slower(run: RecordedRun, times: Callable[[int, int], float]) -> Virtual:
    """With each action taking so many times its seconds; times(step, action)."""

    def step(k: int, s: Any) -> Any:
        parts = (
            p._replace(busy_s=p.busy_s * times(k, i))
            for i, p in enumerate(s.parts)
        )
        return replace(s, parts=tuple(parts))

    ranks = (
        replace(r, steps=tuple(step(k, s) for k, s in enumerate(r.steps)))
        for r in run.ranks
    )
    return virtual(replace(run, ranks=tuple(ranks)))


def test_noise_moves_the_raw_bubble_and_not_the_typical_one(
    interleaved: RecordedRun,
) -> None:
    noise = random.Random(1)
    quiet = virtual(interleaved).bubble
    noisy = slower(interleaved, lambda *_: noise.choice([1, 1, 1, 1.3])).bubble
    assert noisy.measured == pytest.approx(quiet.measured)
    assert abs(noisy.measured_raw - quiet.measured_raw) > 1e-3


def test_one_long_action_a_step_leaves_the_steady_bubble_as_it_was(
    interleaved: RecordedRun,
) -> None:
    """In each of three steps another action of every rank takes twice its time; what is slow in
    every step stays.
    """

    def longer(odd: tuple[int, int, int], always: int) -> Virtual:
        return slower(
            interleaved, lambda k, i: 2 if i in (odd[k], always) else 1
        )

    quiet, noisy, slow = (
        virtual(interleaved).bubble,
        longer((1, 3, 5), -1).bubble,
        longer((1, 3, 5), 4).bubble,
    )
    assert noisy.measured_steady == pytest.approx(quiet.measured_steady)
    assert noisy.measured_raw > quiet.measured_raw + 1e-3
    assert slow.measured_steady > quiet.measured_steady + 1e-3


def test_ranks_that_ran_different_actions_are_refused(
    run: RecordedRun,
) -> None:
    other = with_more_ranks(run, {("tp", 1): 1.0})
    last = other.ranks[-1]
    less = replace(
        last, steps=tuple(replace(s, parts=s.parts[1:]) for s in last.steps)
    )
    with refusal("does not hold the same actions as its neighbours"):
        virtual(replace(other, ranks=(*other.ranks[:-1], less)))
    first = replace(
        run.ranks[0],
        steps=tuple(replace(s, parts=s.parts[1:]) for s in run.ranks[0].steps),
    )
    with refusal("deadlock"):
        virtual(replace(run, ranks=(first, *run.ranks[1:])))


def test_an_order_that_is_not_the_plans_is_told(
    tmp_path: Path, shell: Shell
) -> None:
    folder = pipeline_run(
        tmp_path / "run", LAYOUTS["gpipe"], [(1.0, 1.0, 1.0)] * 4
    )
    job = folder / "job.toml"
    job.write_text(job.read_text().replace('"gpipe"', '"1f1b"'))
    assert not virtual(read_run(folder)).bubble.as_planned
    assert (
        "in another order than the schedule"
        in shell(f"compare {folder} --all").out
    )


def test_clocks_of_ranks_are_aligned(run: RecordedRun) -> None:
    """A rank that began its step a second later did everything a second later."""
    late = replace(
        run.ranks[2],
        steps=tuple(
            replace(s, began_unix_s=s.began_unix_s + 1)
            for s in run.ranks[2].steps
        ),
    )
    line, moved = (
        on_the_clock(run.ranks, 0),
        on_the_clock((*run.ranks[:2], late, run.ranks[3]), 0),
    )
    assert line.start_s[0][0] == 0 and line.makespan_s == pytest.approx(
        SLOWER * virtual(run).raw.makespan_s, abs=1e-5
    )
    assert [
        b - a for a, b in zip(line.start_s[2], moved.start_s[2], strict=True)
    ] == pytest.approx([1] * 16, abs=1e-5)


@pytest.mark.parametrize("kind", ["png", "svg", "json"])
def test_timelines_are_drawn_one_above_the_other(
    kind: str, tmp_path: Path, shell: Shell
) -> None:
    folder = pipeline_run(
        tmp_path / "run", LAYOUTS["zbv"], [(0.5, 0.5, 0.5)] * 8
    )
    told = shell(f"compare {folder} --all -o", tmp_path / f"x.{kind}").out
    for name in (
        "predicted",
        "measured on the clock",
        "measured in virtual time",
    ):
        assert f"\n{name}: " in told
    data = (tmp_path / f"x.{kind}").read_bytes()
    assert data.startswith(
        {"png": b"\x89PNG", "svg": b"<?xml", "json": b"{"}[kind]
    )
    if kind == "json":
        slices = [
            e
            for e in json.loads(data)["traceEvents"]
            if e["ph"] == "X" and e["tid"] == 0
        ]
        assert {e["pid"] for e in slices} == {*range(12)} and len(
            slices
        ) == 3 * 4 * 8 * 2 * 3


def test_unequal_stages_count_as_idle_time_but_not_with_equally_busy_ranks(
    tmp_path: Path,
) -> None:
    passes = [(1.0, 1.0, 1.0), (1.25, 1.25, 1.25)] * 2
    found = virtual(ran(tmp_path, "1f1b", passes))
    assert found.typical.busy_s == [24, 30, 24, 30]
    assert (
        found.bubble.measured
        == pytest.approx(found.typical.makespan_s / 27 - 1)
        == found.bubble.expected
    )
    assert (
        found.bubble.balanced
        == pytest.approx(3 / 8)
        == found.bubble.closed_form
    )
    assert found.bubble.measured > 0.45


def test_both_halves_of_split_backward_passes_count(tmp_path: Path) -> None:
    step = compare(ran(tmp_path, "zbv", [(0.5, 0.75, 0.25)] * 8)).step
    assert step
    by = {cause.name: cause.measured_s for cause in step.causes}
    assert by["forward"] == pytest.approx(8) and by[
        "backward"
    ] == pytest.approx(16)


def test_predicted_cpu_seconds_are_shown_where_a_machine_was_calibrated(
    tmp_path: Path,
) -> None:
    found = compare(ran(tmp_path, "1f1b", [(1.0, 1.0, 1.0)] * 4))
    assert found.to_dict()["cpu_s"] == {
        "predicted": None,
        "measured": pytest.approx(96),
    }
    job = found.run.job
    cost = Overhead((1.0,), (0.5,), (0.0,), (0.0,), (0.0,))
    machine = replace(job.cluster, engine={"plain": cost, "1f1b": cost})
    known = compare(
        replace(
            found.run, job=replace(job, cluster=machine, assumptions=PYTORCH)
        )
    )
    assert (
        known.cpu_s
        == pytest.approx(sum((known.predicted.cpu_time_s or {}).values()))
        and known.cpu_s > 0
    )
