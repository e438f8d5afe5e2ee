"""What a prediction says about itself: how sure it is, what follows from its step time."""

from __future__ import annotations

import importlib
from dataclasses import replace
from math import prod
from typing import Any

import pytest

from by_hand import FREE, MODEL, by_hand
from meshwright import Job, Layout, MoE, predict
from meshwright.count.model import model_flops
from meshwright.describe.assumptions import REALISTIC, Assumptions

MODULES = [
    importlib.import_module(f"meshwright.prediction.{name}")
    for name in ("prediction", "result")
]


SHARDED = Layout(zero=3)


def some(
    model: str = "llama3-8b",
    on: str = "64xh100-sxm",
    batch: int = 64,
    **fields: Any,
) -> Job:
    """Sharded replicas, of which nothing needs to be said; with other values."""
    return Job(model, on, batch, **{"layout": SHARDED, **fields})


@pytest.mark.parametrize(
    "job",
    [
        some(tokens=1e12),
        some(
            "mixtral-8x7b",
            layout=Layout(tp=2, pp=2, microbatch=2, ep=8, zero=1),
            tokens=15e12,
        ),
        some("llama3-70b", "64xtpu-v5p", 128, tokens=1e12),
        some("llama3-70b", layout=Layout(tp=2, pp=4), tokens=1e13),
        some(layout=Layout(dp=32, zero=3, recompute="full"), tokens=1e12),
        some("gpt3-175b", "64xa100-80", assumptions="lbl-2024", tokens=1e12,
             layout=Layout(tp=8, pp=8)),
        some(layout=Layout(tp=2, cp=2, zero=1)),
    ],
)  # fmt: skip
def test_the_fields_of_a_prediction_follow_from_each_other(job: Job) -> None:
    """Each figure of `--json` from others, and from what the job says; what has no length, price or
    evidence has none of what would need it."""
    p = predict(job)
    said, layout, chip = p.to_dict(), p.layout, job.cluster.chip
    chips, seconds = said["chips"], said["step_time_s"]
    peak = chip.peak(job.precision.compute)
    tokens = job.batch * job.T
    expected = {
        "chips": job.cluster.chips,
        "batch_sequences": job.batch,
        "seq_tokens": job.T,
        "batch_tokens": tokens,
        "step_time_s": sum(said["time_s"].values()),
        "tokens_per_s": tokens / seconds,
        "tokens_per_s_per_chip": tokens / seconds / chips,
        "model_flops_per_s_per_chip": said["mfu"] * peak,
        "microbatches": job.batch / layout.dp / layout.microbatch,
        "replayed_s": None if "lbl" in job.assumptions.name else seconds,
    }
    assert {k: said[k] for k in expected} == pytest.approx(expected)
    assert said["mfu"] * peak * seconds * chips == pytest.approx(
        model_flops(job.model, job.T) * tokens
    )
    assert sum(said["layer_kinds"].values()) == job.model.layers
    assert (said["parameters"] > said["active_parameters"]) == bool(
        job.model.moe
    )
    bytes_ = said["memory_bytes"]
    kinds = said["memory_by_stage_bytes"].values()
    fullest = max(kinds, key=lambda kind: sum(kind.values()))
    assert fullest.items() <= bytes_.items()
    assert bytes_["allocated"] == pytest.approx(sum(fullest.values()))
    more = [bytes_[k] for k in ("allocated", "needed", "capacity")]
    assert said["fits"] == (said["risk_of_oom"] <= p.risk_accepted)
    assert said["fits"] == (more == sorted(more))
    assert bytes_["allocated"] <= bytes_["reserved"] <= bytes_["device"]
    assert said["layout"]["placement"].keys() >= {"tp", "pp", "dp"}
    for axis, ranks in said["layout"]["placement"].items():
        assert prod(ranks) == said["layout"][axis]
    # of a whole run
    length = ("useful", "train")
    useful, whole = (said[f"{name}_time_s"] for name in length)
    if not job.tokens:
        of_run = ("lost_s", "chip_hours", "energy_j", "cost_usd")
        assert {useful, whole, *(said[name] for name in of_run)} == {None}
    else:
        assert useful == pytest.approx(job.tokens / said["tokens_per_s"])
        lost = sum((said["lost_s"] or {}).values())
        assert whole == pytest.approx(useful + lost)
        assert bool(lost) == bool(said["evidence"])
        assert said["chip_hours"] == pytest.approx(whole * chips / 3600)
        known = (
            chip.power_w * whole * chips,
            chip.usd_per_hour * whole * chips / 3600,
        )
        for name, value in zip(("energy_j", "cost_usd"), known, strict=True):
            assert said[name] == (pytest.approx(value) if value else None)
    assert bool(said["interval_s"]) == bool(said["evidence"])
    sure = said["evidence"] and [x / seconds for x in said["interval_s"]]
    for name, value in (
        ("train_time_interval_s", whole),
        ("cost_interval_usd", said["cost_usd"]),
        ("energy_interval_j", said["energy_j"]),
    ):
        wide = [x * value for x in sure] if sure and value else None
        assert said[name] == (wide and pytest.approx(tuple(wide)))
    if sure:
        assert 0 < sure[0] < 1 < sure[1] and said["evidence"]["rows"] > 0


NOTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("less than one step", {"tokens": 64 * 8192 - 1}, {"tokens": 64 * 8192}),
    ("than the whole web", {"tokens": 3.2e15}, {"tokens": 3.1e15}),
    ("recompute full:33 is full: a stage has 32 layers", {"recompute": "full:33"},
     {"recompute": "full:32"}),
    ("mlp:40 is mlp: a stage has 32 layers", {"recompute": "mlp:40"}, {"recompute": "mlp:32"}),
    ("full:9 is full: a stage has 8 layers in a chunk",
     {"pp": 2, "interleave": 2, "schedule": "interleaved", "zero": 1, "recompute": "full:9"},
     {"pp": 2, "interleave": 2, "schedule": "interleaved", "zero": 1, "recompute": "full:8"}),
    ("interleave 2 has no effect on time with pp 1",
     {"schedule": "interleaved", "interleave": 2},
     {"schedule": "interleaved", "interleave": 2, "pp": 2, "zero": 1}),
    ("cp_exchange ring changes nothing here: cp is 1", {"cp_exchange": "ring"},
     {"cp_exchange": "ring", "cp": 2}),
    ("panels 4 changes nothing here: it acts on scheme summa", {"panels": 4}, {"panels": 1}),
    ("are padded to", {"seq": 8190, "cp": 4}, {"seq": 8184, "cp": 4}),
    ("without its 5 Newton-Schulz", {"optimizer": "muon"}, {"optimizer": "adamw"}),
    ("runs out of memory", {"zero": 0}, {"zero": 2}),
    ("1 of 64 chips is idle", {"dp": 63, "batch": 63}, {"dp": 64}),
    ("window of 4,096: a choice", {"model": "gemma2-9b", "cp": 2},
     {"model": "gemma2-9b"}),
    ("chip l40s is unmeasured", {"on": "64xl40s"}, {"on": "64xa100-80"}),
]  # fmt: skip
"""(Words, fields under which a note has them, others beside those that have not)."""


@pytest.mark.parametrize(("words", "fields", "others"), NOTED)
def test_a_note_stands_where_its_condition_holds_and_nowhere_beside(
    words: str, fields: dict[str, Any], others: dict[str, Any]
) -> None:
    """Once; what lies next to it has none that ends so."""

    def notes(named: dict[str, Any]) -> list[str]:
        of_job = {k: v for k, v in named.items() if not hasattr(SHARDED, k)}
        of_layout = {k: v for k, v in named.items() if k not in of_job}
        return [*predict(some(**of_job), replace(SHARDED, **of_layout)).notes]

    assert sum(words in note for note in notes(fields)) == 1
    end = words.rpartition(": ")[2]
    assert not any(end in note for note in notes(others))
    assert not predict(some()).notes


@pytest.mark.parametrize("name", ["realistic", "lbl-2024", "epoch-2024"])
@pytest.mark.parametrize(
    "choice",
    [
        *({"zero": stage} for stage in (1, 2, 3)),
        {"sequence_parallel": False},
        {"cp_exchange": "ring"},
        {"panels": 4},
    ],
    ids=str,
)
def test_what_several_ranks_choose_is_nothing_to_one(
    name: str, choice: dict[str, Any]
) -> None:
    """Seconds and bytes by kind, and the leaves of both trees."""
    job = Job("gpt2-xl", "1xh100-sxm", 4, assumptions=name)
    alone, other = (predict(job, Layout(**c)) for c in ({}, choice))
    assert other.time_s == alone.time_s
    assert other.memory_bytes == alone.memory_bytes
    trees = [
        [(t.name, t.value) for _, t in (*p.term.walk(), *p.memory_term.walk())]
        for p in (alone, other)
    ]
    assert trees[0] == trees[1]


def test_utilisation_is_work_over_time_and_peak() -> None:
    """One chip, one sequence, two layers: 3 s each at the peak; the model's FLOPs count attention
    once, uncut.
    """
    p = by_hand(Layout())
    assert p.step_time_s == pytest.approx(6.0)
    assert p.mfu == pytest.approx(1.0)
    # 8 s, a third more work
    assert by_hand(Layout(recompute="full")).hfu == pytest.approx(1.0)
    assert by_hand(Layout(recompute="full")).mfu == pytest.approx(6 / 8)
    assert p.tokens_per_s == pytest.approx(128 / 6)


def test_a_token_passes_the_active_parameters() -> None:
    """Of four experts two, and the router of all."""
    p = by_hand(Layout(), model=replace(MODEL, moe=MoE(4, 2, 64)))
    said = p.to_dict()
    for name, experts in (("parameters", 4), ("active_parameters", 2)):
        layer = 4 * 64 * 64 + 64 * 4 + experts * 2 * 64 * 64
        assert said[name] == 2 * layer


def test_a_step_is_counted_once_whether_it_fits_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The note on what does not fit changes nothing that was computed."""
    counted = []
    count = MODULES[0].count_microbatch

    def once(*args: Any, **how: Any) -> Any:
        counted.append(args)
        return count(*args, **how)

    for module in MODULES:
        monkeypatch.setattr(module, "count_microbatch", once)
    for zero, fits in ((3, True), (0, False)):
        layout = Layout(dp=64, zero=zero, recompute="full")
        p = predict(Job("llama3-8b", "64xh100-sxm", 64), layout)
        other = replace(p)
        assert p.fits is fits and p.replayed_s > 0 and len(counted) == 1
        assert any("runs out" in note for note in p.notes) is not fits
        assert other.to_dict() == p.to_dict() and len(counted) == 2
        counted.clear()


def test_chunks_of_a_device_that_is_alone_are_said_to_change_nothing() -> None:
    job = Job("llama3-70b", "64xh100-sxm", 128)
    alone = Layout(tp=8, dp=8, zero=1)
    chunks = {"interleave": 4, "schedule": "interleaved"}
    plain, named = predict(job, alone), predict(job, replace(alone, **chunks))
    assert (named.time_s, named.memory_bytes) == (
        plain.time_s,
        plain.memory_bytes,
    )
    [note] = {*named.notes} - {*plain.notes}
    assert note.startswith("interleave 4 has no effect on time with pp 1")
    piped = predict(job, replace(alone, dp=4, pp=2, **chunks))
    assert not [note for note in piped.notes if "interleave" in note]


def test_an_mfu_above_the_peak_says_what_the_set_does_not_time() -> None:
    """Olmo 2 7B: of a token's FLOPs 6 V D are the head's, 6 L (4 D^2 + 3 D F) those of the layers'
    matrices, 12 L T D those of attention.
    """
    layout = Layout(tp=4, cp=2, microbatch=4, zero=3)
    job = Job("olmo2-7b", "8xa100-80", 64, layout, seq=4096)
    p = predict(replace(job, assumptions="scaling-book-sum"))
    V, L, D, F, T = 100_352, 32, 4096, 11_008, 4096
    head = 6 * V * D
    layers = 6 * L * (4 * D * D + 3 * D * F) + 12 * L * T * D
    share = f"{100 * head / (head + layers):.1f} %"
    (note,) = (n for n in p.notes if n.startswith("MFU is above 100 %"))
    assert p.mfu > 1 and "scaling-book-sum do not time embedding" in note
    assert share in note
    assert not any("MFU" in note for note in predict(job).notes)


def test_an_optimizer_on_the_host_that_nobody_times_is_said() -> None:
    layout = Layout(tp=4, dp=16, zero=1, offload="optimizer")
    job = Job("llama3-8b", "64xh100-sxm", 64, layout)
    free = "do not time the optimizer step"
    said = predict(replace(job, assumptions="lbl-2024")).notes
    assert any(free in note for note in said)
    assert not any(free in note for note in predict(job).notes)
    here = replace(job, layout=replace(layout, offload="none"))
    said = predict(replace(here, assumptions="lbl-2024")).notes
    assert not any(free in note for note in said)


def test_a_set_without_communication_is_no_advice_on_where_degrees_go() -> (
    None
):
    """Tensor parallelism across nodes costs what it costs inside one."""

    def asked(how: Assumptions, **layout: Any) -> list[str]:
        job = Job("gpt3-175b", "64xselene", 64, assumptions=how)
        return [
            note
            for note in predict(job, Layout(**layout)).notes
            if "cannot say where to place" in note
        ]

    wide = {"tp": 32, "pp": 2, "sequence_parallel": False}
    (said,) = asked(FREE, **wide)
    assert "free have no communication" in said and "tp 32" in said
    assert not asked(FREE, tp=1, pp=8, dp=8)
    assert not asked(REALISTIC, **wide)
