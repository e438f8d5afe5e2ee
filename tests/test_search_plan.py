"""What `plan` answers: layouts that something can run, on numbers that divide, and sentences where
there are none.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from math import gcd, inf
from pathlib import Path

import pytest

from meshwright import (
    Cluster,
    Dim,
    Layout,
    Model,
    Network,
    plan,
    predict,
)
from meshwright.describe.assumptions import REALISTIC
from meshwright.describe.batch import ROUNDED, SHARED, parse_batch
from meshwright.describe.framework import framework as profile
from meshwright.describe.job import OPTIMIZERS, PRECISIONS, Job
from meshwright.layout import rules
from meshwright.layout.placement import placed
from meshwright.prediction.certainty import resolution
from meshwright.search import Space, brute, search
from meshwright.step import oom
from meshwright.sweep import vary
from shell import Shell
from spaces import CHIP

EXACT = replace(REALISTIC, name="exact")
"""The same numbers of a set that was compared with no runs: no two layouts are ties."""


UNFILLED = [
    ("olmo2-13b", "20xh100-sxm", 40),
    ("gpt2", "9xh100-sxm", 9),
    ("gpt2-xl", "25xa100-40", 5),
    ("llama-30b", "52xa100-40", 52),
]


@pytest.mark.parametrize(("name", "on", "batch"), UNFILLED)
def test_chips_that_fill_no_nodes(name: str, on: str, batch: int) -> None:
    """A strict search finds what brute force finds, each on all chips and where `predict` puts it;
    a relaxed one finds nothing slower.
    """
    job = Job(name, on, batch)
    space = Space(relaxed=False, schedule="1f1b", zero=(1, 3), cp=1)
    found = search(job, space, 10)
    assert found.rows and found.rows == brute(job, space, 10).rows
    for layout in found.layouts:
        assert layout.chips == job.cluster.chips
        bare = replace(layout, placement={})
        assert placed(bare, job.cluster.sizes) == layout
    wide = search(job, replace(space, relaxed=True), 1)
    assert wide.rows[0].merit <= found.rows[0].merit


@pytest.mark.parametrize("relaxed", [False, True])
def test_the_front_of_time_and_memory(relaxed: bool) -> None:
    """Every point is the fastest of all layouts that need a tenth less memory than the one before;
    after the last there is none. Not asked for, there is none."""
    net = Network("n", (Dim("near", 4e11, 1e-6, 4), Dim("far", 5e10, 5e-6)))
    job = Job(
        Model("m", 8, 1024, 8, 4096, 1000, 512),
        Cluster(CHIP, net, 8),
        16,
        assumptions=EXACT,
    )
    space = Space(
        schedule=("1f1b", "interleaved"), interleave=(1, 2), zero=(0, 1, 3),
        recompute=("none", "full"), sequence_parallel=True, cp=1,
        microbatch=(1, 2), relaxed=relaxed,
    )  # fmt: skip
    assert plan(job, space, top=1).pareto is None
    front = plan(job, space, top=1, pareto=True).pareto
    assert front and len(front) > 2
    layouts = brute(job, space, 100_000).layouts
    every = [
        (p.memory_bytes["allocated"], p.step_time_s)
        for p in (predict(job, layout) for layout in layouts)
    ]
    for one, leaner in zip(front, [*front[1:], None], strict=True):
        less = [
            seconds
            for bytes_, seconds in every
            if bytes_ <= one.memory_bytes["allocated"] * 0.9
        ]
        if leaner:
            assert leaner.step_time_s == pytest.approx(min(less), rel=1e-12)
        else:
            assert not less or len(front) == 8


ASKED = [
    ("llama3-70b", "500xh100-sxm", 512),
    ("llama3-8b", "100xh100-sxm", 512),
    ("llama3-8b", "4096xgb200", 2048),
    ("llama3-405b", "1000xa100-80", 512),
    ("mixtral-8x7b", "1000xa100-80", 128),
    ("llama3-70b", "1024xh100-sxm", 512),
]


@pytest.mark.parametrize(("name", "on", "batch"), ASKED)
def test_a_default_answer_divides_the_batch_and_names_idle_chips_first(
    name: str, on: str, batch: int
) -> None:
    found = plan(Job(name, on, batch), top=3)
    for p in (found.best, *found.alternatives):
        assert not rules.broken(
            p.job, p.layout, (*rules.ALWAYS, rules.EVEN_BATCH)
        )
        used, chips = int(p.layout.chips), p.job.cluster.chips
        assert (used < chips) == bool(found.idle)
        assert not found.idle or found.idle.startswith(
            f"{chips - used:,} of {chips:,} chips"
        )
        assert not found.idle or found.to_dict()["notes"][0] == found.idle


@pytest.mark.parametrize(
    "job",
    [
        Job("llama3-8b", "16xh100-sxm", 64, tokens=1e12),
        Job("mixtral-8x7b", "32xh100-sxm", 64),
        Job("gpt3-175b", "64xa100-80", 64, assumptions="lbl-2024"),
    ],
)
def test_the_fields_of_a_plan_follow_from_predictions(job: Job) -> None:
    """What ranks a layout is its time over its chance to fit; a change of the software is another
    prediction of the same layout; every layout that is counted fits, is too big or bounded away.
    """
    found = plan(job, top=6, pareto=True)
    said, best, near = found.to_dict(), found.answer, 1 + resolution(job)
    ranked = [best, *found.alternatives]
    assert [
        one["layout"] for one in (said["best"], *said["alternatives"])
    ] == [p.to_dict()["layout"] for p in ranked]

    def cost(one: dict) -> float:
        return one["step_time_s"] / (1 - one["risk_of_oom"])

    costs = [cost(one) for one in said["alternatives"]]
    mine = cost(said["best"])
    least = min(mine, *costs)
    assert costs == sorted(costs) and mine <= least * near
    beside = [(one, cost(one)) for one in said["alternatives"]]
    beside += [
        (row, cost(row["prediction"]))
        for row in said["families"]
        if row["prediction"]
    ]
    for one, merit in beside:
        assert one["slower"] == pytest.approx(merit / mine - 1, abs=1e-9)
        assert one["tie"] == (merit <= least * near and merit * near >= mine)
    counts = said["rejected"]["memory"] + said["rejected"]["bound"]
    assert said["searched"] == said["feasible"] + counts
    assert said["closest"] is None and said["recipe"] is None
    pairs = [
        (one["step_time_s"], one["memory_bytes"]["allocated"])
        for one in said["pareto"]
    ]
    assert pairs == sorted(pairs)
    assert pairs[0][0] <= best.step_time_s
    assert pairs[0][1] <= best.memory_bytes["allocated"]
    for (_, wide), (_, lean) in pairwise(pairs):
        assert lean <= 0.9 * wide
    changes, whole = said["software"]["changes"], said["software"]["together"]
    assert bool(changes) == bool(job.profile)
    merits = []
    for one in (*changes, *filter(None, [whole])):
        software = replace(job.software, **one["settings"])
        layout = best.layout
        if one is whole:
            layout = found.tuned.prediction.layout
        other = predict(replace(best.job, software=software), layout)
        words = [
            f"--{name.replace('_', '-')} {value}".lower()
            for name, value in one["settings"].items()
        ]
        assert one["flags"] == " ".join(words)
        assert one["layout"] == other.to_dict()["layout"]
        for name in ("step_time_s", "interval_s", "risk_of_oom"):
            assert one[name] == getattr(other, name)
        assert one["change"] == pytest.approx(
            other.step_time_s / best.step_time_s - 1
        )
        assert one["numerics"] == bool(
            {*one["settings"]} & {"gradients", "float8"}
        )
        merits.append(other.merit_s / best.merit_s - 1)
    if whole:
        assert merits.pop() <= -0.01 and not whole["numerics"]
    assert merits == sorted(merits) and all(abs(m) >= 5e-4 for m in merits)
    rest = [*said["elasticities"]]
    assert [
        (one["name"], one["words"], one["change"])
        for one in rest[: len(changes)]
    ] == [(one["flags"], one["flags"], one["change"]) for one in changes]
    moved = [one["change"] for one in rest[len(changes) :]]
    assert moved == sorted(moved) and bool(moved) == bool(found.families)


@pytest.mark.parametrize("chips", [896, 1000])
def test_leaves_that_are_not_full_keep_no_node_idle(chips: int) -> None:
    """125 nodes in leaves of 32 with a spine that is no slower are as good as 125 nodes on one
    network, and 112 are used without leave: 28 in each leaf.
    """
    flat = plan(Job("llama3-70b", f"{chips}xh100-sxm", 512), top=1)
    leaves = plan(Job("llama3-70b", f"{chips}xsuperpod-h100", 512), top=1)
    assert leaves.best.layout.chips == flat.best.layout.chips == 896
    tie = 1 + resolution(leaves.best.job)
    assert leaves.best.step_time_s <= tie * flat.best.step_time_s
    assert bool(leaves.idle) == (chips > 896)


def test_faster_links_slow_no_answer_by_more_than_a_tie() -> None:
    """The simplest of a tie may be slower on a faster machine than that of a slower one, the
    fastest of all layouts never.
    """
    job = Job("llama3-70b", "512xh100-sxm", 512)
    fastest = answer = inf
    tie = 1 + resolution(job)
    for gbit in (200, 400, 800, 1600):
        rate = f"{gbit} Gbit/s"
        found = plan(vary(job, "network.ib.bandwidth", rate), top=2)
        assert found.fastest.merit_s <= fastest * (1 + 1e-12)
        assert found.best.merit_s <= min(fastest, answer) * tie
        fastest, answer = found.fastest.merit_s, found.best.merit_s


@pytest.mark.parametrize("tokens", [15e6, 4e6, 1e6, 123456789.0])
@pytest.mark.parametrize("chips", [8, 1000, 1024, 2304, 4096])
def test_tokens_are_rounded_to_sequences_that_the_chips_share(
    tokens: float, chips: int
) -> None:
    """No number of sequences within the tolerance has more in common with the chips (5 % where all
    chips share them, or each has one or none); sequences are never rounded.
    """
    count, said = parse_batch(str(tokens), 4096, chips)
    shared = gcd(count, chips)
    far = SHARED if shared == min(count, chips) else ROUNDED
    least, most = tokens / 4096 * (1 - far), tokens / 4096 * (1 + far)
    assert least <= count <= most and said and f"{count:,} sequences" in said
    assert shared == max(
        gcd(n, chips) for n in range(int(least) + 1, int(most) + 1)
    )
    assert parse_batch(f"{count + 1}seq", 4096, chips) == (count + 1, None)
    assert parse_batch(4096 * 1831 * 2, 4096, chips) == (3662, None)


def test_decimal_millions_are_never_meant_to_the_last_sequence() -> None:
    """64 M tokens happen to be 15,625 whole sequences, which share nothing with any power of two;
    who gives the number itself means it.
    """
    count, said = parse_batch("64M", 4096, 2048)
    assert count == 16384 and "+4.9 %" in said
    assert parse_batch("64M", 4096, 125) == (15625, None)
    for exact in (64_000_000, "64000000", "15625seq"):
        assert parse_batch(exact, 4096, 2048) == (15625, None)


def test_what_would_make_it_fit_is_the_least_and_true() -> None:
    """24 chips are enough for what 8 cannot hold (not 32)."""
    job = Job("llama3-70b", "8xh100-sxm", 64)
    notes = plan(job).notes
    assert any(note.startswith("24 chips") for note in notes)
    assert search(
        replace(job, cluster=replace(job.cluster, chips=24)), Space(), 1
    ).rows
    assert not search(
        replace(job, cluster=replace(job.cluster, chips=16)), Space(), 1
    ).rows


def test_lighter_numbers_and_optimizers_are_suggested_where_they_help() -> (
    None
):
    """Chips of one size after the other: what is suggested makes it fit, what is not does not."""
    net = Network("n", (Dim("near", 4e11, 1e-6),))
    small = Model("m", 4, 1024, 8, 4096, 1000, 16384)
    suggested = set()
    for share in (0.55, 0.65, 0.75, 0.85, 0.95):
        base = Job(
            small,
            Cluster(replace(CHIP, hbm_bytes=1e12), net, 1),
            1,
            assumptions=_bare(),
        )
        least = predict(base, Layout(recompute="full")).memory_bytes[
            "allocated"
        ]
        job = oom.with_room_for(base, least * share)
        notes = plan(job).notes
        for words, lighter in (
            (
                "--precision bf16-pure",
                replace(job, precision=PRECISIONS["bf16-pure"]),
            ),
            (
                "--optimizer adamw-no-master",
                replace(job, optimizer=OPTIMIZERS["adamw-no-master"]),
            ),
            (
                "--optimizer adafactor",
                replace(job, optimizer=OPTIMIZERS["adafactor"]),
            ),
        ):
            named = any(words in note for note in notes)
            assert named == bool(search(lighter, Space(), 1).rows), (
                share,
                words,
            )
            suggested |= {words} if named else set()
    assert len(suggested) == 3


@pytest.mark.parametrize("batch", [4, 64])
def test_a_batch_that_keeps_more_chips_from_helping_is_named(
    batch: int,
) -> None:
    """FSDP shards over dp, which a batch of 4 sequences holds at 4: no number of chips fits, and
    as many more sequences do. 64 sequences leave room for more chips as they are.
    """
    job = replace(Job("llama3-8b", "4xrtx-4090", batch), seq=2048)
    space = Space(recompute=("full",), zero=3, tp=1, cp=1, pp=1)
    (note,) = (n for n in plan(job, space).notes if "of this kind" in n)
    chips = int(re.search(r"(\d+) chips of this kind", note)[1])
    grown = replace(job, batch=batch * chips // 4)

    def fits(asked: Job, on: int) -> bool:
        at = replace(asked, cluster=replace(asked.cluster, chips=on))
        return bool(search(at, space, 1).rows)

    limits = "a batch of 4, which limits dp" in note
    assert limits == (batch == 4) == (not fits(job, chips))
    if limits:
        assert f"would with a batch of {grown.batch}" in note
        assert fits(grown, chips)
        assert not any(fits(job, n) for n in (8, 32, 128))


def _bare():
    return replace(
        REALISTIC, memory=replace(REALISTIC.memory, framework_bytes=0.0)
    )


def test_the_answer_says_among_what_it_is_the_fastest() -> None:
    job = Job("llama3-8b", "8xh100-sxm", 16)
    free, pinned = plan(job), plan(job, Space(zero=1, tp=2))
    relaxed = plan(job, Space(zero=1, tp=2, relaxed=True))
    assert "uneven batches (--relaxed)" in pinned.untried
    assert "cut unevenly" not in relaxed.untried
    assert (
        "1f1b, interleaved" in free.tried
        and "gpipe" in free.untried
        and "zbv" in free.untried
    )
    assert (
        "ZeRO 1;" in pinned.tried
        and "tp 2" in pinned.tried
        and "ZeRO 0, 2, 3" in pinned.untried
    )
    # all in a row, and further ones that divide 32 layers
    assert "(interleave 2 to 8, 16, 32)" in pinned.tried
    told = {
        "tried": free.tried,
        "not_tried": free.untried,
        "kept": list(free.kept),
    }
    assert free.to_dict()["space"] == told


@pytest.mark.parametrize(
    ("name", "on", "runs"),
    [
        ("llama3.2-1b", "64xh100-sxm", True),  # sharded, one stage
        ("llama3-8b", "64xh100-sxm", True),
        # autograd keeps more than Megatron Core does
        ("llama3-70b", "64xh100-sxm", False),
    ],
)
def test_plan_says_where_export_refuses_its_answer(
    name: str,
    on: str,
    runs: bool,
    tmp_path: Path,
    shell: Shell,
) -> None:
    """A best layout without a note starts; one that the trainer's own memory refuses has its
    sentence in a note.
    """
    file, chips = tmp_path / "plan.toml", on.split("x")[0]
    line = f"plan {name} --on {on} --batch {chips}seq -o {file}"
    notes = shell.json(line)["notes"]
    export = shell(f"export {file} --to torchrun", ends=0 if runs else 2)
    refused = export.err.removeprefix("meshwright: ").strip()
    said = [note for note in notes if "meshwright train cannot run" in note]
    assert (
        said == []
        if runs
        else refused and any(refused in note for note in said)
    )


NOWHERE_LEGAL = {
    "cp": ({"cp": (3,)}, ["cp may be 1, 2, 4, 8 here, not 3"]),
    "dp": ({"dp": (3,)}, ["dp may be 1, 2, 4, 8 here, not 3"]),
    "two by themselves": (
        {"tp": (3,), "cp": (5,)},
        [
            "tp may be 1, 2, 4, 8 here, not 3",
            "cp may be 1, 2, 4, 8 here, not 5",
        ],
    ),
    "two together": (
        {"tp": (8,), "pp": (4,)},
        [
            "tp 8 x cp 1 x pp 4 x dp 1 needs 32 chips, but the cluster has 8: tp x cp x pp may be"
            " at most 8",
            "tp may be 1, 2 beside the rest, not 8",
            "pp may be 1 beside the rest, not 4",
        ],
    ),
    "a microbatch that does not divide the batch": (
        {"microbatch": (3,)},
        ["microbatch may be 1, 2, 4, 8 (the nearest) here, not 3"],
    ),
    "experts that a dense model has not": (
        {"ep": (2,)},
        [
            "ep may be 1 here, not 2",
            "llama3-8b has no experts: ep may be 1",
        ],
    ),
    "what has no nearest value": (
        {"stages": ("5,6",), "pp": (2,)},
        [
            "layout.stages 5,6 assigns 11 layers to 2 stages, but pp 2 has 2 and the model 32"
            " layers",
        ],
    ),
}


@pytest.mark.parametrize("framework", ["megatron-core", "meshwright"])
@pytest.mark.parametrize("case", NOWHERE_LEGAL)
def test_where_nothing_is_legal_the_values_at_fault_are_named_with_the_nearest(
    case: str, framework: str
) -> None:
    asked, sentences = NOWHERE_LEGAL[case]
    found = plan(
        replace(
            Job("llama3-8b", "8xh100-sxm", 64), framework=profile(framework)
        ),
        Space(**asked),
    )
    assert found.best is None
    first = f"no combination of degrees is legal: {sentences[0]}"
    said = [note for note in found.notes if "not tried" not in note]
    assert said[: len(sentences)] == [first, *sentences[1:]]


@pytest.mark.parametrize(
    ("chips", "more"), [(96, ""), (192, " (the nearest)")]
)
def test_values_that_were_all_tried_are_all_there_are(
    chips: int, more: str
) -> None:
    """All 12 divisors of 96 are tried, and of the 14 of 192 the first 12."""
    found = plan(Job("llama3-8b", f"{chips}xh100-sxm", chips), Space(ep=5))
    assert found.notes[0].endswith(f"ep may be 1{more} here, not 5")


def test_what_decides_is_said_before_what_does_not() -> None:
    """A rule that no combination keeps comes first, though others are asked before it; what a user
    named beyond the strategies, and what is not tried, come after the reason.
    """
    found = plan(
        Job("llama3-8b", "501xh100-sxm", 512),
        Space(tp=3, schedule="gpipe"),
    )
    said = " ".join(found.notes)
    assert found.best is None and "cannot be split 3 ways" in found.notes[0]
    assert said.index("3 ways") < said.index("not tried")
    assert said.index("not tried") < said.index("searched as asked")


def test_a_schedule_that_is_at_fault_is_named() -> None:
    """DualPipeV needs two microbatches for each of its stages: 8 replicas of one microbatch have
    one stage.
    """
    found = plan(
        Job("llama3-8b", "8xh100-sxm", 256),
        Space(schedule="dualpipev", dp=8, microbatch=32),
    )
    assert any(
        "schedule may be " in note and note.endswith("not dualpipev")
        for note in found.notes
    )
