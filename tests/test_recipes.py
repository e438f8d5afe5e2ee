"""Published recipes beside a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import Job, plan
from meshwright.layout import practice, rules
from meshwright.search import (
    Space,
    ran,
    recipe_families,
    recipe_layouts,
    recipes,
    shows,
)
from meshwright.sizing import sizing

NAME = "a published recipe"
BRIDGE = "megatron-bridge"


@pytest.mark.parametrize(
    "recipe", recipes(), ids=lambda r: f"{r.model}-{r.chips}x{r.chip}"
)
def test_every_recipe_is_legal_where_it_is_published_and_keeps_the_conventions(
    recipe,
) -> None:
    """What conventions are made of, they allow."""
    chips = f"{recipe.chips}x{recipe.chip}"
    batch = 8 * recipe.chips * recipe.microbatch
    job = Job(
        recipe.model, chips, batch, seq=recipe.seq, precision=recipe.precision
    )
    there, why_none = recipe_layouts(job, recipe)
    assert there, why_none
    even = [p for p in there if rules.EVEN_LAYERS.holds(p.job, p.layout)]
    if not even:
        pytest.skip(
            "its layers are dealt unevenly, with a layout of the pipeline of its own"
        )
    for p in even[:1]:
        assert not practice.broken_conventions(p.job, p.layout)


def test_a_plan_says_what_the_recipe_costs() -> None:
    """Its row is the prediction of its layout; one that cannot be laid out is named."""
    job = Job("llama3-8b", "8xh100-sxm", 64, framework=BRIDGE)
    (row,) = recipe_families(job)
    assert (
        row.name == NAME
        and row.prediction.layout.cp == 2
        and "8 x h100-sxm" in row.note
    )
    found = plan(job, Space(pp=1, zero=3))
    assert row.ran and replace(found, families=(row,)).cost_s(
        row.prediction
    ) == (row.prediction.step_time_s), (
        "it ran there, so that its risk is not counted"
    )
    (other,) = recipe_families(job.with_(seq=16384))
    assert not other.ran
    assert found.cost_s(other.prediction) == other.prediction.merit_s
    assert [f.name for f in found.families].count(NAME) == 1
    (not_here,) = recipe_families(Job("llama3-70b", "24xh100-sxm", 512))
    assert not_here.prediction is None and "not here" in not_here.note


LLAMA = {"seq": 8192, "precision": "bf16"}
(PAPER,) = (r for r in recipes() if r.chips == 16384 and r.seq == LLAMA["seq"])
PUBLISHED = {"tp": (8,), "cp": (1,), "pp": (16,), "dp": (128,), "zero": (1,)}


def test_a_published_layout_of_the_same_job_is_never_refused() -> None:
    """Llama 3 405B on 16,384 H100: its risk is reckoned above any limit, and it ran."""
    job = Job("llama3-405b", "16384xh100-sxm", "2048seq", **LLAMA)
    found = plan(job, Space(**PUBLISHED, recompute="none"))
    assert found.best and found.recipe.startswith("Llama 3")
    assert found.best.risk_of_oom > 0.1 and not found.best.fits
    assert any("it has been run" in note for note in found.notes)
    assert found.fastest is found.best
    alone = plan(job, Space(**PUBLISHED, recompute="none"), families=False)
    assert (alone.best, alone.recipe) == (found.best, found.recipe)
    free = plan(job)
    (row,) = (f for f in free.families if f.name == NAME)
    less = free.slower(row.prediction)
    assert less == pytest.approx(
        row.prediction.step_time_s / free.best.merit_s - 1
    )
    assert abs(less) < 0.1 and not free.recipe


def test_a_recipe_of_long_sequences_is_no_answer_for_short_ones() -> None:
    """Cp 16 of 131,072 tokens has been run; of 8,192 it leaves 512 tokens on a rank."""
    job = Job("llama3-405b", "65536xh100-sxm", 2048, **LLAMA)
    found = plan(job, families=False)
    assert found.best
    assert not practice.broken_conventions(found.best.job, found.best.layout)
    asked = plan(job, cp=16, tp=8, families=False)
    assert asked.best and asked.best.layout.cp == 16


LLAMA_405B = "llama31_405b_pretrain_1024gpu_h100_bf16"


def test_a_recipe_shows_nothing_of_what_needs_more_than_it_needed() -> None:
    """NVIDIA's recipe of Llama 3.1 405B keeps gradients in 2 bytes: with 4 it has not been run."""
    (recipe,) = (r for r in recipes() if LLAMA_405B in r.source)
    same = Job(
        "llama3-405b",
        "1024xh100-sxm",
        960,
        seq=8192,
        framework=BRIDGE,
    )
    for job, shown in (
        (same, True),
        (same.with_(on="16384xh100-sxm", batch=1920), True),
        (same.with_(gradients="fp32"), False),
        (same.with_(framework="megatron-core"), False),
    ):
        p = recipe_layouts(job, recipe)[0][0]
        assert ran(job, recipe)
        assert shows(job, recipe, p) is shown, (job.framework, job.precision)
    found = plan(Job("llama3-405b", "16384xh100-sxm", 1920, **LLAMA))
    assert found.best and found.best.fits and LLAMA_405B not in found.recipe


def test_the_chips_of_a_published_layout_are_a_size_of_its_run() -> None:
    """The only number of chips that its degrees fill."""
    job = Job("llama3-405b", "16384xh100-sxm", "2048seq", tokens=1e12, **LLAMA)
    space = Space(**PUBLISHED, recompute="none")
    assert sizing(job, space, deadline_s=365 * 86400.0).chips == 16384


@pytest.mark.parametrize(
    "changed",
    [
        {"cluster": "8192xh100-sxm"},
        {"seq": 16384},
        {"precision": "fp8"},
        {"framework": "torchtitan"},
        {"model": "llama3-70b"},
    ],
)
def test_a_run_shows_nothing_of_another_job(changed: dict) -> None:
    """Fewer replicas to shard over, longer sequences, other numbers, another program or model."""
    same = {
        "model": "llama3-405b",
        "cluster": "16384xh100-sxm",
        "batch": 2048,
        **LLAMA,
    }
    assert ran(Job(**same), PAPER)
    assert ran(Job(**{**same, "cluster": "16384xh200"}), PAPER)
    assert not ran(Job(**{**same, **changed}), PAPER)


def test_a_recipe_that_does_not_say_its_chunks_is_tried_with_each() -> None:
    job = Job("llama3-405b", "16384xh100-sxm", "2048seq", **LLAMA)
    found, why = recipe_layouts(job, PAPER)
    assert not why and len({p.layout.interleave for p in found}) > 2
    assert found[0].step_time_s == min(p.step_time_s for p in found)


def test_a_recipe_that_shards_weights_without_a_pipeline_is_laid_out_so() -> (
    None
):
    """Llama 3 70B on 64 GB200 keeps no weights whole; what waits in host memory is the recipe's."""
    job = Job("llama3-70b", "64xgb200", 256, seq=8192, framework=BRIDGE)
    (theirs,) = (
        r
        for r in recipes()
        if (r.chip, r.model, r.precision) == ("gb200", job.model.name, "bf16")
    )
    found, _ = recipe_layouts(job, theirs)
    assert {(p.layout.zero, p.layout.offload) for p in found} == {
        (3, "activations:20")
    }
    (row,) = recipe_families(job)
    assert row.ran and row.prediction.layout == found[0].layout
