"""The contract of `validate`: its fields, what it skips, and that no file of runs can break it."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from validate_rows import ROW, measured, row

from meshwright_studies import shipped
from meshwright_studies.validate import (
    Validation,
    out_of_scope,
    published,
    validate,
)
from meshwright_studies.validate.markdown import markdown
from meshwright_studies.validate.result import TIMES
from meshwright_studies.validate.silent import silent
from refusals import refusal

DOCS = Path(__file__).parents[2] / "docs" / "accuracy.md"
STATS = {
    "rows",
    "median_abs_error",
    "mean_abs_error",
    "p90_abs_error",
    "bias",
    "coverage",
}


@cache
def whole() -> Validation:
    return validate(published())


def test_fields_of_the_contract() -> None:
    d = json.loads(json.dumps(whole().to_dict(), allow_nan=False))
    assert {"rows", "sources", "overall", "skipped"} <= set(d)
    assert set(d["rows"][0]) == {
        "id",
        "source",
        "quantity",
        "predicted",
        "measured",
        "ratio",
        "interval",
        "skipped",
    }
    assert {"step_time", "memory", "out_of_memory", "ranking"} <= set(
        d["overall"]
    )
    assert set(d["overall"]["ranking"]) == {
        "groups",
        "spearman_median",
        "regret_mean",
        "pairs",
        "pairs_in_order",
    }
    parts = (
        *d["sources"].values(),
        *d["classes"].values(),
        d["overall"]["step_time"],
    )
    assert all(set(s) == STATS for s in parts)
    assert set(d["overall"]["memory"]) == STATS | {"layouts"}


def test_every_published_row_in_scope_is_judged() -> None:
    """973 step times that a fit may use; Tables 1 and 2 of Narayanan et al. and torchtitan's 405B
    beside them.
    """
    assert whole().overall["step_time"]["rows"] == 973
    assert whole().held_out["step_time"]["rows"] == 22
    # classes without any time have their memory there
    timed = {r.kind for r in whole().having(*TIMES)}
    assert sum(
        s["rows"] for kind, s in whole().by("kind").items() if kind in timed
    ) == len(whole().having(*TIMES))


def test_rows_that_were_fitted_are_said_to_be() -> None:
    """All but those held out are what the shared numbers were fitted to; a row of one's own is not."""
    assert whole().fitted == 973 == whole().to_dict()["fitted"]
    assert validate([ROW]).fitted == 0


def test_few_published_rows_are_skipped_and_each_with_its_reason() -> None:
    v = whole()
    compared = {r.id for r in v.rows if r.skipped is None}
    assert len(published()) > 1000
    assert len(compared) > 0.9 * len(published())
    assert sum(v.skipped.values()) == sum(1 for r in v.rows if r.skipped)


def test_every_run_is_a_yes_or_a_no_of_out_of_memory() -> None:
    o = whole().overall["out_of_memory"]
    ran = sum(
        1
        for r in published()
        if {"step_time", "tflops/mfu"} & set(r["judge"])
        or {"step_time_s", "tokens_per_s_per_gpu"} & set(r["measured"])
        if not silent(r)  # by the rule they fit
        and not out_of_scope(r)
    )
    out = sum(1 for r in published() if r["measured"].get("oom"))
    assert o["true_positives"] + o["false_negatives"] == out
    assert o["false_positives"] + o["true_negatives"] == ran


def test_memory_of_rows_measured_by_the_allocator_is_close() -> None:
    """SimuMax's B200 rows are allocated bytes of known layouts, where nothing has to be guessed."""
    ratios = [
        r.ratio
        for r in whole().having("memory")
        if r.source == "simumax-b200" and r.ratio
    ]
    assert len(ratios) == 43
    assert all(0.85 < r < 1.1 for r in ratios)


def test_one_row() -> None:
    found = Counter(r.quantity for r in validate([ROW]).rows)
    assert found == {"step_time": 1, "out_of_memory": 1}
    [time] = validate([ROW]).having("step_time")
    assert time.measured == 3.0
    assert time.ratio == pytest.approx((time.predicted or 0) / 3.0)


@pytest.mark.parametrize(
    ("figures", "seconds"),
    [
        ({"step_time_s": 2.5}, 2.5),
        ({"tokens_per_s": 128 * 8192 / 4}, 4.0),
        ({"tokens_per_s_per_gpu": 128 * 8192 / 64 / 4}, 4.0),
        ({"samples_per_s": 32}, 4.0),
        ({"samples_per_s_per_gpu": 0.5}, 4.0),
    ],
)
def test_step_time_from_what_was_measured(
    figures: dict[str, float], seconds: float
) -> None:
    [time] = validate([measured(figures)]).having("step_time")
    assert time.measured == pytest.approx(seconds)


def test_step_time_from_flops_needs_to_know_which() -> None:
    def seconds(kind: str) -> float | None:
        figures = {"tflops_per_gpu": 400, "tflops_kind": kind}
        found = validate([measured(figures)]).having("step_time")
        return found[0].measured if found else None

    full, causal, hardware = (
        seconds("model (full attention)"),
        seconds("model (causal attention)"),
        seconds("hardware (4/3)"),
    )
    # 6 x 8.03e9 parameters less the embedding, + 12 L D T of attention: 5.79e10 FLOPs a token
    assert full == pytest.approx(
        5.79e10 * 128 * 8192 / (400e12 * 64), rel=2e-3
    )
    assert causal is not None and hardware is not None
    assert causal < full < hardware < full * 4 / 3
    assert seconds("crude 8*P estimator") is None
    assert seconds("") is None


def test_rows_out_of_scope_are_counted_apart() -> None:
    v = validate(
        [row(), {**row(), "task": "lora"}, {**row(), "complete": False}]
    )
    assert len({r.id for r in v.rows}) == 1
    assert sum(v.outside.values()) == 2
    assert v.skipped == {}


def test_what_a_simulator_gave_is_no_run() -> None:
    """vTrain's file of single nodes (VIA-Research/vTrain@f8dda84, MIT, data/ground_truth_single.csv)
    has 1,024 wide models of 12 layers, tp 4, a sequence a microbatch, in milliseconds by
    microbatches: each line follows from two others to the nanosecond, as no machine does it.
    """
    by_microbatches = {2: 89.842873, 4: 178.434627, 8: 355.618135}
    each = (by_microbatches[4] - by_microbatches[2]) / 2
    assert by_microbatches[8] == pytest.approx(
        by_microbatches[4] + 4 * each, abs=1e-6
    )
    [row_of_16] = [r for r in published() if r["id"] == "vtrain-single-006"]
    assert 1e3 * row_of_16["measured"]["step_time_s"] == pytest.approx(
        by_microbatches[8] + 8 * each, abs=1e-6
    )
    assert whole().outside == {"simulation, not pre-training": 80}
    assert not any(r.source == "vtrain-single" for r in whole().rows)


def test_a_skipped_row_says_why() -> None:
    [only] = validate([row(model={"arch": "hybrid-mamba"})]).rows
    assert only.skipped == "state-space layers are not described yet"
    assert validate([row(parallel={"dp": 100})]).rows[0].skipped


def test_layouts_of_one_workload_are_ranked() -> None:
    rows = [
        row(
            parallel={"tp": tp, "pp": 1, "vpp": 1, "dp": 64 // tp},
            measured={"step_time_s": s},
        )
        for tp, s in ((1, 1.0), (2, 2.0), (8, 3.0))
    ]
    r = validate(rows).overall["ranking"]
    assert r["groups"] == 1
    other = [
        {**r, "global_batch": 256} if i == 0 else r for i, r in enumerate(rows)
    ]
    # another batch is another workload
    assert validate(other).overall["ranking"]["groups"] == 0


def test_collectives_of_a_table() -> None:
    v = validate(shipped.DATA / "runs" / "perlmutter.csv")
    assert v.overall["collective_time"]["rows"] > 800
    assert set(v.by("source")) == {
        "perlmutter allgather",
        "perlmutter reducescatter",
        "perlmutter allreduce",
    }
    assert v.rows[0].id.endswith("-1")
    # tables of runs are left out where there are no runs
    assert "## Time, by source" in markdown(v)


def test_docs_hold_the_tables_of_the_command() -> None:
    page = DOCS.read_text("utf-8")
    begin, end = (
        "<!-- made by: meshwright validate -o tables.md -->",
        "<!-- end -->",
    )
    assert (
        page.split(begin)[1].split(end)[0].strip() == markdown(whole()).strip()
    ), "run meshwright validate -o tables.md again"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "3",
        '{"rows": 3}',
        "[" * 100_000,
        '"x"',
        "null",
        "\x00",
        "[[]]",
    ],
)
def test_a_file_that_holds_no_runs_is_one_sentence(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "runs.json"
    file.write_text(text)
    with refusal():
        validate(file)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with refusal():
        validate(tmp_path / "none.json")
    with refusal():
        validate(tmp_path)


WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        [
            "nan",
            "1e400",
            "full",
            "nvl99999",
            "999999999x9Gb per node",
            "ICI 3D torus",
            "PCIe 9",
            "TPUv5p",
            "moe-mla",
            "V100",
            "MaxText (JAX)",
            "DeepSpeed",
            "first 99999999999999999999999 layers",
            "1/0 layers",
            "selective modules ['mlp', 'x']",
            "every 0th layer, 7 % of layers",
            "max reserved",
            "shard group 0",
            "9" * 300 + "Gb/s DGX A100",
            "0x0TB/s per node",
            "A100-9999GB",
            "0 GB A100",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
PATHS = (
    [(k,) for k in ROW]
    + [(k, f) for k, v in ROW.items() if isinstance(v, dict) for f in v]
    + [
        ("model", "experts"),
        ("model", "top_k"),
        ("model", "mla"),
        ("model", "mtp_layers"),
        ("model", "head_dim"),
        ("parallel", "ep"),
        ("parallel", "etp"),
        ("parallel", "cp"),
        ("parallel", "schedule"),
        ("measured", "memory_gb"),
        ("measured", "memory_kind"),
        ("measured", "memory_allocated_bytes"),
        ("measured", "mem-max-reserved-gib"),
        ("parallel", "fsdp"),
        ("notes",),
        ("measured", "oom"),
        ("judge",),
        ("attention_kernel",),
        ("model", "attention"),
    ]
)


def test_a_number_next_to_none_is_none() -> None:
    """Memory of 1e-308 GB: predicted over measured would be infinite."""
    wild = row()
    wild["measured"]["memory_gb"] = 1e-308
    json.dumps(validate([wild]).to_dict(), allow_nan=False)


@settings(
    max_examples=600, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(
    st.lists(st.tuples(st.sampled_from(PATHS), WILD), min_size=1, max_size=4)
)
def test_no_row_breaks_it(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    wild = row()
    for path, value in changes:
        if len(path) == 1:
            wild[path[0]] = value
        elif isinstance(wild[path[0]], dict):
            wild[path[0]][path[1]] = value
    json.dumps(validate([wild]).to_dict(), allow_nan=False)
