"""Published recipes beside a plan."""

from __future__ import annotations

import pytest

from meshwright import Job, plan
from meshwright.describe.layout import Layout
from meshwright.layout import practice, rules
from meshwright.search import Space
from meshwright.search.recipes import NAME, layout, nearest, published, recipes


@pytest.mark.parametrize(
    "recipe", recipes(), ids=lambda r: f"{r.model}-{r.chips}x{r.chip}"
)
def test_every_recipe_is_legal_where_it_is_published_and_keeps_the_conventions(
    recipe,
) -> None:
    """What conventions are made of, they allow."""
    chips = f"{recipe.chips}x{recipe.chip}"
    batch = 8 * recipe.chips
    job = Job(
        recipe.model, chips, batch, seq=recipe.seq, precision=recipe.precision
    )
    there = layout(job, recipe)
    if not rules.EVEN_LAYERS.holds(job, there):
        pytest.skip(
            "its layers are dealt unevenly, with a layout of the pipeline of its own"
        )
    assert not rules.broken(job, there)
    found = practice.broken(
        job, Layout(**{**there.__dict__, "placement": _near(job, there)})
    )
    assert not found
    assert layout(job, nearest(job)).tp >= 1


def _near(job: Job, l: Layout) -> dict:
    from meshwright.layout.placement import placed

    return placed(l, job.cluster.sizes).placement


def test_the_nearest_recipe_is_of_the_model_and_family_of_chips() -> None:
    """Precision first, then the chip, then numbers of chips and tokens."""
    llama = nearest(Job("llama3-70b", "512xh100-sxm", 512))
    assert (llama.tp, llama.cp, llama.pp, llama.v) == (4, 2, 4, 5)
    long = nearest(Job("llama3-405b", "16384xh100-sxm", 128, seq=131072))
    assert (long.tp, long.cp, long.pp) == (8, 16, 16)
    assert nearest(Job("llama3-70b", "512xa100-80", 512)) is None, (
        "none for such chips"
    )
    assert nearest(Job("gpt2", "8xh100-sxm", 8)) is None


def test_a_plan_says_what_the_recipe_costs() -> None:
    """Its row is the prediction of its layout; one that cannot be laid out is named."""
    job = Job("llama3-8b", "8xh100-sxm", 64)
    (row,) = published(job, 1.0)
    assert (
        row.name == NAME
        and row.prediction.layout.cp == 2
        and "8 x h100-sxm" in row.note
    )
    assert row.slower == pytest.approx(row.prediction.merit_s - 1.0)
    found = plan(job, Space(pp=(1,), zero=(3,)))
    assert [f.name for f in found.families].count(NAME) == 1
    (not_here,) = published(Job("llama3-70b", "24xh100-sxm", 512), 1.0)
    assert not_here.prediction is None and "not here" in not_here.note
