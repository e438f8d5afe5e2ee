"""The width of the risk of running out of memory: told by measured memory, judged where it has not
looked.
"""

from __future__ import annotations

import sys
from functools import cache
from math import pi, sqrt
from pathlib import Path

import pytest

from meshwright import Job, assumptions, predict
from meshwright.describe.framework import framework
from meshwright.describe.memory_error import (
    SourceError,
    family_error,
    memory_errors,
)
from meshwright_studies.validate import Validation, published, validate
from meshwright_studies.validate.memory_errors import source_errors

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import memory_risk  # noqa: E402


@cache
def whole() -> Validation:
    return validate(published())


def test_the_catalogue_has_what_published_memory_is_off_by() -> None:
    now, kept = source_errors(whole()), memory_errors()
    assert now.keys() == kept.keys()
    for name, one in now.items():
        assert kept[name].framework == one.framework
        assert kept[name].layouts == one.layouts
        assert kept[name].error == pytest.approx(one.error, rel=0.02)


def test_a_family_errs_by_its_sources_and_by_all_as_one_more() -> None:
    errors = {
        "a": SourceError("fsdp", 3, 0.1),
        "b": SourceError("torchtitan", 5, 0.3),
        "c": SourceError("maxtext", 2, 0.2),
    }
    # families: (0.01 + 0.09) / 2 and 0.04
    prior = (0.05 + 0.04) / 2
    assert family_error("FSDP", errors) == pytest.approx(
        sqrt((prior + 0.01 + 0.09) / 3)
    )
    assert family_error("XLA", errors) == pytest.approx(
        sqrt((prior + 0.04) / 2)
    )
    assert family_error("Megatron Core", errors) == pytest.approx(sqrt(prior))


def test_a_framework_answers_how_wide_its_risk_is() -> None:
    """The standard deviation of a logistic of width w is w pi / sqrt(3)."""
    core, fsdp = framework("megatron-core"), framework("torchtitan")
    assert core.risk_width < fsdp.risk_width
    assert core.risk_width * pi / sqrt(3) == pytest.approx(
        family_error("Megatron Core")
    )
    # alone in its family, and nobody measured it
    alone = framework("maxtext").risk_width
    assert alone == framework("unknown").risk_width
    assert assumptions("realistic").memory.risk_width is None
    job = Job("llama3-8b", "8xh100-sxm", 64, framework="torchtitan")
    assert predict(job).job.how.memory.risk_width == fsdp.risk_width


def test_families_judge_runs_of_others_better_than_one_width() -> None:
    """Each run is judged by the memory of other sources; 0.04 had the least Brier score of one
    width for all on the same runs.
    """
    by_family, one = (
        {
            line[0]: [float(figure) for figure in line[1:]]
            for line in memory_risk.lines()
        }[name]
        for name in ("by family, its source left out", "0.04 for all")
    )
    brier, score, _, *others = by_family
    assert brier < one[0] and score < one[1]
    assert others[0] <= one[3] and others[1] < one[4]
    # as many failures as 15 that happened, within a factor of two
    assert 7.5 < others[2] < 30.0
