"""One case for each policy that frameworks document, and for words that are none."""

from __future__ import annotations

from typing import Any

import pytest
from validate_rows import cases, row

from meshwright import Layout
from meshwright_studies.validate import validate
from meshwright_studies.validate.recompute import modules, policy
from meshwright_studies.validate.words import word_table
from refusals import refusal

MAXTEXT = "maxtext (jax)"


@cases
def test_what_a_layout_can_say_has_no_note(said: object, mode: str) -> None:
    assert policy(said, "megatron-lm", 8.0)[:3] == (mode, "", True)
    assert Layout(recompute=mode).recompute == mode


@pytest.mark.parametrize(
    ("said", "software", "mode", "words"),
    [
        (
            "selective modules ['layernorm', 'frob']",
            "",
            "layernorm",
            "'frob' is not known",
        ),
        (
            "full, activations offloaded to CPU",
            "megatron-lm",
            "full",
            "nearest",
        ),
        ("full, checkpoints in CPU", "megatron-lm", "full", "nearest"),
    ],
)
def test_what_is_read_in_part_is_said_and_its_memory_not_judged(
    said: str, software: str, mode: str, words: str
) -> None:
    found = policy(said, software, 32.0)
    assert found.mode == mode and words in found.note and not found.memory


@cases
def test_what_lies_between_is_the_nearest_and_said(
    said: object, mode: str
) -> None:
    found = policy(said, "megatron-lm", 8.0)
    assert (found.mode, found.memory) == (mode, True)
    assert mode in found.note


@cases
def test_unknown_words_are_refused_not_taken_as_none(said: object) -> None:
    with refusal("not known"):
        policy(said, "megatron-lm", 8.0)


def test_a_row_with_unknown_words_is_skipped_with_a_sentence() -> None:
    v = validate([row(recompute="frobnicate")])
    assert "recomputation 'frobnicate' is not known" in next(iter(v.skipped))
    assert not v.having("step_time")


@pytest.mark.parametrize(
    ("said", "mode", "away"),
    [
        ("qkv_proj_offloaded", "save_qkv_proj", "results"),
        ("minimal_offloaded", "minimal", "results"),
        ("full, inputs offloaded", "full", "activations"),
        ("full, not offloaded", "full", "none"),
        (
            "save_qkv_proj and save_context",
            "save_qkv_proj+save_context",
            "none",
        ),
    ],
)
def test_what_maxtext_moves_to_host_memory(
    said: str, mode: str, away: str
) -> None:
    assert policy(said, MAXTEXT, 32.0) == (mode, "", True, away)


@cases
def test_policies_of_maxtext(said: str, mode: str) -> None:
    assert policy(said, MAXTEXT, 32.0)[:3] == (mode, "", True)


def test_the_names_of_maxtext_say_that_it_is_maxtext() -> None:
    assert policy("save_dot_except_mlp", "", 32.0) == policy(
        "save_dot_except_mlp", MAXTEXT, 32.0
    )


@cases
def test_jax_without_a_known_policy_has_no_answer_on_memory(
    said: object, mode: str
) -> None:
    found = policy(said, MAXTEXT, 32.0)
    assert (
        found.mode == mode
        and "no known remat policy" in found.note
        and not found.memory
    )


def test_fields_that_are_null_say_nothing() -> None:
    said = {"granularity": "selective", "modules": None}
    assert policy(said, "megatron-lm", 8.0)[:3] == ("selective", "", True)
    assert policy("selective", "torchtitan", 8.0)[:3] == ("op", "", True)
    for software in ("megatron-lm", MAXTEXT):
        assert policy(None, software, 8.0) == policy("", software, 8.0)


def test_every_policy_and_module_is_read() -> None:
    for name, word in word_table().recompute["policies"].items():
        assert policy(name, MAXTEXT, 32.0).mode == word
    assert all(
        policy([name], "megatron-lm", 8.0).mode == name for name in modules()
    )


def maxtext(**changes: Any) -> dict[str, Any]:
    """A row of MaxText that no v5e can hold without recomputation."""
    return row(
        software="MaxText (JAX)",
        hardware={
            "gpu": "TPUv5e",
            "gpus_per_node": 256,
            "intra_node": "ICI 2D torus",
            "count": 256,
        },
        parallel={"tp": 1, "pp": 1, "vpp": 1, "dp": 256, "zero_stage": 3},
        micro_batch=16,
        global_batch=4096,
        measured={"step_time_s": 3.0, "memory_gib": 12},
        **changes,
    )


def test_out_of_memory_is_unknown_where_the_policy_is() -> None:
    for said in (None, "", "frobnicate"):
        v = validate([maxtext(recompute=said)])
        o = v.overall["out_of_memory"]
        assert (o["unknown"], o["false_positives"], o["rows"]) == (1, 0, 1)
        assert [
            r.predicted for r in v.rows if r.quantity == "out_of_memory"
        ] == [None]
        assert v.having("step_time") and not v.having("memory")
        assert any("no known remat policy" in note for note in v.notes)


def test_out_of_memory_has_an_answer_where_the_policy_is_known() -> None:
    o = validate([maxtext(recompute="minimal")]).overall["out_of_memory"]
    assert (o["unknown"], o["false_positives"]) == (0, 1)


def test_notes_are_counted_by_row() -> None:
    rows = [
        row(recompute="activation checkpointing"),
        {**row(recompute="activation checkpointing"), "id": "r2"},
        row(),
    ]
    d = validate(rows).to_dict()
    [(note, ids)] = d["notes"].items()
    assert "is taken as full" in note and ids == ["r1", "r2"]
