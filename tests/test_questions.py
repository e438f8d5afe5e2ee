"""Questions of practitioners: the answer is a layout that one of them would start, or says why not.

Nobody starts tp over nodes, more than 8 chunks a device, a hundred experts on every rank, slices of
a sequence on which no kernel is efficient, shardings and schedules that his software does not have,
or what fills memory to the last percent.
"""

from __future__ import annotations

import pytest

from meshwright import Job, Layout, Prediction, plan
from meshwright.layout import practice
from meshwright.prediction.certainty import has_precedent, resolution
from meshwright.search import Space, complexity

QUESTIONS = [
    ("llama3-8b", "8xh100-sxm", 128, 0, "bf16"),
    ("llama3-8b", "64xh100-sxm", 256, 0, "bf16"),
    ("llama3-8b", "256xh100-sxm", 512, 0, "bf16"),
    ("llama3-70b", "64xh100-sxm", 512, 0, "bf16"),
    ("llama3-70b", "512xh100-sxm", 512, 0, "bf16"),
    ("llama3-70b", "4096xh100-sxm", 2048, 0, "bf16"),
    ("llama3-70b", "64xa100-40", 512, 0, "bf16"),
    ("llama3-405b", "16384xh100-sxm", 2048, 0, "bf16"),
    ("llama3-405b", "16384xh100-sxm", 128, 131072, "bf16"),
    ("deepseek-v3", "256xh800", 15360, 0, "fp8"),
    ("deepseek-v3", "2048xh800", 15360, 0, "fp8"),
    ("deepseek-v3", "2048xh800", 15360, 0, "bf16"),
    ("llama3-70b", "1024xtpu-v5p", 512, 0, "bf16"),
    ("llama3-70b", "512xmi300x", 512, 0, "bf16"),
    ("llama3-405b", "2304xgb200", 1152, 0, "bf16"),
    ("deepseek-v3", "576xgb200", 4608, 0, "fp8"),
    ("mixtral-8x7b", "128xh100-sxm", 1024, 4096, "bf16"),
    ("mixtral-8x7b", "128xh100-sxm", 256, 4096, "bf16"),
    ("gpt3-175b", "1024xa100-80", 1536, 0, "bf16"),
    ("palm-540b", "6144xtpu-v4", 2048, 0, "bf16"),
    ("llama3-8b", "1xh100-sxm", 16, 0, "bf16"),
    ("qwen3-235b-a22b", "512xh100-sxm", 2048, 4096, "bf16"),
    ("llama3-8b", "8xh100-sxm", 8, 131072, "bf16"),
]
"""(model, cluster, sequences of a batch, tokens of a sequence or 0 = the model's, precision)."""
TOO_SMALL = {"1xh100-sxm"}
"""Clusters on which nothing of the question fits."""


def asked(model: str, on: str, batch: int, seq: int, precision: str) -> Job:
    return Job(model, on, batch, seq=seq, precision=precision)


def involved(l: Layout) -> tuple[int, ...]:
    """What makes a layout more involved, each by itself: the degrees that are no sizes of a batch
    or of experts count as used or not, a pipeline by its stages and chunks.
    """
    used = (l.tp, l.cp, l.ep, l.etp, l.dp_replicate)
    plain = l.pp == 1 or l.schedule in ("1f1b", "interleaved")
    return (
        *(int(n > 1) for n in used),
        int(l.pp),
        int(l.interleave),
        max(int(l.zero), 1),
        int(not plain),
        int(l.stages != "even"),
        int(l.microbatch) & (int(l.microbatch) - 1),
    )


def beats(p: Prediction, other: Prediction) -> bool:
    """Faster, and simpler in something while in nothing more involved, or less seen in published
    runs.
    """
    mine, its = (
        (not has_precedent(x.job, x.layout), *involved(x.layout))
        for x in (p, other)
    )
    fewer = all(a <= b for a, b in zip(mine, its, strict=True)) and mine != its
    return fewer and p.step_time_s < other.step_time_s


@pytest.mark.parametrize(
    "question", QUESTIONS, ids=lambda q: "-".join(map(str, q))
)
def test_the_answer_is_one_that_people_start(question: tuple) -> None:
    job = asked(*question)
    found = plan(job)
    if question[1] in TOO_SMALL:
        assert found.best is None and any(
            "would make it fit" in note for note in found.notes
        )
        return
    l: Layout = found.best.layout
    assert not practice.broken_conventions(
        job, l
    ) and not practice.not_proposed(job.profile, l)
    torus = job.cluster.network.dims[0].kind in ("ring", "line")
    assert torus or l.tp == l.placement["tp"][0], (
        "tp inside the nearest switch"
    )
    assert l.interleave <= 8 and (l.cp == 1 or job.T / l.cp >= 4096)
    experts = job.model.moe.experts if job.model.moe else 1
    assert experts / l.ep <= 32
    use = found.best.memory_bytes
    assert (
        use["needed"] <= 0.95 * use["capacity"]
        and found.best.risk_of_oom <= 0.1
    )
    simpler = [
        p
        for p in found.alternatives
        if complexity(job, p.layout) < complexity(job, l)
    ]
    assert not any(found.tie(p) for p in simpler), "of ties the simplest wins"
    assert not [
        p for p in found.alternatives if found.tie(p) and beats(p, found.best)
    ]
    for family in found.families:
        if (p := family.prediction) is None:
            continue
        if has_precedent(p.job, p.layout):
            assert found.slower(p) >= -resolution(job) / (1 - 0.05)
        else:  # no run shows it: it wins only where its slow end does
            assert (
                p.merit_s * p.interval_s[1] / p.step_time_s
                >= found.best.step_time_s
            )


@pytest.mark.parametrize(
    "question",
    [
        *(QUESTIONS[i] for i in (4, 7, 16)),
        ("gpt3-175b", "64xa100-80", 64, 0, "bf16"),
    ],
    ids=str,
)
def test_what_conventions_cost_is_said(question: tuple) -> None:
    """By a search of everything, weighed alike: what it finds faster is shown with the reason."""
    job = asked(*question)
    found = plan(job)
    free = plan(
        job,
        Space(
            schedule=("1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"),
            zero=(0, 1),
        ),
    )
    gain = free.fastest.merit_s / found.best.merit_s - 1
    if gain < -resolution(job):
        (row,) = found.outside
        assert (
            found.slower(row.prediction) <= gain + 1e-9
            and "not zb" in row.note
        )
