"""Runs that no fit may use: Tables 1 and 2 of Narayanan et al. 2021, by one rule where neither the
paper nor its scripts say how they were called.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from validate_rows import cases, row

from meshwright.describe.assumptions import REALISTIC
from meshwright_studies import shipped
from meshwright_studies.fitting.runs import runs
from meshwright_studies.validate import Validation, published, validate
from meshwright_studies.validate.jobs import job_and_notes
from meshwright_studies.validate.silent import (
    filled,
    held_out,
    open_choices,
    silent,
)

TABLES = json.loads(shipped.shipped_text("published/megatron.json"))


@cache
def megatron() -> dict[str, Any]:
    """The sixteen rows by id."""
    return {
        r["id"]: r
        for r in published()
        if r["source"].startswith("megatron2021") and held_out(r)
    }


@cache
def judged() -> Validation:
    return validate([*megatron().values(), row()])


def seconds(r: dict[str, Any]) -> float:
    """The step time of a row that leaves nothing open."""
    (found,) = validate([{**r, "missing": [], "fit": True}]).having(
        "step_time"
    )
    assert found.predicted
    return found.predicted


def test_the_rows_are_those_of_the_paper() -> None:
    shown = [
        (
            p["tp"],
            p["pp"],
            r["hardware"]["count"],
            r["global_batch"],
            r["measured"]["tflops_per_gpu"],
        )
        for r in megatron().values()
        for p in [r["parallel"]]
    ]
    first = [
        (t, p, n, batch, rate)
        for _, _, t, p, n, batch, rate, _, _ in TABLES["table_1"]
    ]
    second = [
        (8, parallel // 8, n, batch, rate)
        for scheme, _, _, _, parallel, batch, n, _, rate, _ in TABLES[
            "table_2"
        ]
        if scheme == "PTD"
    ]
    assert shown == [*first, *second]


@pytest.mark.parametrize("id", sorted(megatron()))
def test_seconds_are_the_papers_flops_over_its_rate(id: str) -> None:
    """F = 96 B s l h^2 (1 + s/6h + V/16lh), hardware FLOPs with full recomputation."""
    r = megatron()[id]
    m, n = r["model"], r["hardware"]["count"]
    L, h, s, V = m["layers"], m["hidden"], m["seq_len"], m["vocab"]
    flops = (
        96
        * r["global_batch"]
        * s
        * L
        * h**2
        * (1 + s / (6 * h) + V / (16 * L * h))
    )
    (found,) = (
        c for c in judged().rows if c.id == id and c.quantity == "step_time"
    )
    assert found.measured == pytest.approx(
        flops / (n * r["measured"]["tflops_per_gpu"] * 1e12), rel=1e-6
    )


@cases
def test_pipelines_take_microbatch_1_and_the_most_chunks_of_1_to_4_that_divide(
    id: str, chunks: int
) -> None:
    """48 layers on 2 stages: 4; 60 on 4: 3; 80 on 8: 2; 96 on 16 and 105 on 35: 3; 128 on 64: 2; 96
    on 12: 4.
    """
    r = megatron()[f"megatron2021-{id}"]
    open_ = {
        **r,
        "micro_batch": None,
        "parallel": {**r["parallel"], "vpp": None},
        "missing": ["micro_batch", "parallel.vpp"],
    }
    layout = filled(open_, REALISTIC).about.job.layout
    assert (layout.microbatch, layout.interleave) == (1, chunks)


def test_table_1_ran_as_the_authors_scripts_say() -> None:
    """NVIDIA/Megatron-LM@de7dc40f, examples/sc21/run_table_1.sh: MBS, and layers of a stage over
    --num-layers-per-virtual-pipeline-stage, which 39B and 1T do not give.
    """
    said = {
        "1.7B": (16, 1), "3.6B": (16, 1), "7.5B": (16, 1), "18.4B": (8, 1),
        "39.1B": (4, 1), "76.1B": (2, 15 // 5), "145.6B": (2, 10 // 5),
        "310.1B": (1, 6 // 3), "529.6B": (1, 3 // 1), "1008B": (1, 1),
    }  # fmt: skip
    first = [r for id, r in megatron().items() if "t1" in id]
    layouts = {
        r["model"]["name"].removeprefix("GPT "): job_and_notes(r).job.layout
        for r in first
    }
    assert {
        name: (l.microbatch, l.interleave) for name, l in layouts.items()
    } == said
    assert not any(map(silent, first))


@pytest.mark.parametrize(
    ("seq", "batch", "microbatch"),
    [(2048, 128, 8), (2048, 32, 2), (65536, 128, 1)],
)
def test_without_a_pipeline_the_largest_microbatch_that_fits(
    seq: int, batch: int, microbatch: int
) -> None:
    """8B on 16 replicas: short sequences fit by eights; 32 of them are 2 for a replica; of long
    ones 2 are too many.
    """
    r = row(
        model={"seq_len": seq},
        parallel={"pp": 1, "vpp": None, "dp": 16},
        micro_batch=None,
        global_batch=batch,
        missing=["micro_batch", "parallel.vpp"],
    )
    assert filled(r, REALISTIC).about.job.layout.microbatch == microbatch


def test_a_microbatch_that_the_source_states_stays() -> None:
    assert {
        microbatch
        for microbatch, _ in open_choices(megatron()["megatron2021-t2-007"])
    } == {1}


def test_the_range_is_over_all_choices_that_could_have_run() -> None:
    """12 stages of 384 microbatches: 1, 2 and 4 chunks cut 96 layers, and 4 are the fastest."""
    r = megatron()["megatron2021-t2-007"]
    alone = [
        seconds({**r, "parallel": {**r["parallel"], "vpp": v}})
        for v in (1, 2, 4)
    ]
    low, high = filled(r, REALISTIC).range_s
    assert (low, high) == (min(alone), max(alone))
    assert low < high


def test_microbatches_that_an_interleaved_pipeline_cannot_share_out_are_no_choice() -> (
    None
):
    """m = 3 over p = 4 has 1F1B only (Megatron-LM: m must be a multiple of p), so chunks change
    nothing.
    """
    odd = row(
        parallel={"vpp": None}, global_batch=12, missing=["parallel.vpp"]
    )
    plain = seconds({**odd, "parallel": {**odd["parallel"], "vpp": 1}})
    assert filled(odd, REALISTIC).range_s == (plain, plain)
    assert filled(odd, REALISTIC).about.job.layout.interleave == 1


def test_what_is_held_out_counts_by_itself() -> None:
    assert judged().overall["step_time"]["rows"] == 1  # the other row
    assert judged().held_out["step_time"]["rows"] == 16
    assert set(judged().by("source")) == {"s"}
    # the rule looks at what fits: no test of that; table 1 and the other row are
    assert judged().overall["out_of_memory"]["rows"] == 11
    held = {row["id"] for row in megatron().values()}
    assert held and not held & {run.id for run in runs(published())}


def test_a_held_out_run_shows_the_range_of_what_is_open() -> None:
    ranges = 0
    for run in judged().held_out["rows"]:
        assert (run["range"] is None) == ("t1" in run["id"])
        if run["range"]:
            low, high = run["range"]
            assert low * (1 - 1e-9) <= run["predicted"] <= high * (1 + 1e-9)
            ranges += 1
    assert ranges == 6


@cases
def test_what_the_rule_does_not_know_stays_outside(missing: object) -> None:
    r = row(complete=False, missing=missing)
    assert silent(r) == ()
    assert validate([r]).rows == ()


def test_a_row_that_says_so_is_held_out_though_complete() -> None:
    v = validate([row(fit=False)])
    assert v.overall["step_time"]["rows"] == 0
    assert v.held_out["step_time"]["rows"] == 1
    assert v.held_out["rows"][0]["range"] is None


def test_a_table_that_a_fit_may_use_says_so() -> None:
    """Megatron-LM's README for the H100: no recomputation, microbatch 1 in pipelines with a chunk for
    each of 23 layers where 2 to 4 do not divide them; one stage takes the largest that fits."""
    rows = {r["id"]: r for r in published() if "readme" in r["source"]}
    assert len(rows) == 9 and not any(map(held_out, rows.values()))
    assert {one.id for one in runs([*rows.values()])} == {*rows}
    of = {
        name: filled(r, REALISTIC).about.job.layout for name, r in rows.items()
    }
    first, deep = (of[f"megatron-readme-h100-{n}"] for n in ("001", "006"))
    assert (first.microbatch, first.recompute) == (4, "none")
    assert (deep.microbatch, deep.interleave) == (1, 23)
    closed = {**rows["megatron-readme-h100-001"], "fit": None}
    assert held_out(closed) and runs([closed]) == ()
