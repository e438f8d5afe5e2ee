"""Which memory a row means, and that it is compared with its own kind only."""

from __future__ import annotations

from typing import Any

import pytest
from validate_rows import cases, measured, row

from meshwright import predict
from meshwright.units import parse
from meshwright_studies.validate import validate
from meshwright_studies.validate.jobs import job
from meshwright_studies.validate.measured import memory_of


@cases
def test_kinds(
    figures: dict[str, Any], software: str, kind: str, size: str
) -> None:
    found = memory_of(figures, software)
    assert found is not None
    assert (found.kind, found.bytes) == (
        kind,
        pytest.approx(parse(size, "B")),
    )


@cases
def test_what_is_no_figure(figures: dict[str, Any]) -> None:
    assert memory_of(figures, "") is None


def test_each_kind_has_its_own_prediction() -> None:
    def predicted(**figures: Any) -> float:
        [found] = validate([measured(figures)]).having("memory")
        return found.predicted or 0.0

    p = predict(job(row()), job(row()).layout)
    use, tensors = p.memory_use, p.memory_bytes["allocated"]
    assert (
        predicted(memory_max_allocated_bytes=7e10)
        == tensors
        == float(use.total)
    )
    # no context, no communicators
    assert predicted(memory_reserved_bytes=7e10) == pytest.approx(
        1.05 * tensors
    )
    assert predicted(memory_gb=70, memory_kind="nvidia-smi") == pytest.approx(
        1.05 * tensors + 1.9e9
    )
    # its recipes run with expandable segments, which lose the ends of free ranges alone
    assert predicted(memory_gb=70, memory_kind="must fit") == pytest.approx(
        1.005 * tensors + 1.9e9
    )
    assert predicted(memory_allocated_bytes=7e10) == float(
        use.weights + use.gradients + use.optimizer
    )


@pytest.mark.parametrize(
    ("figures", "software", "note"),
    [
        (
            {"memory_gb": 70},
            "torchtitan + torch.compile",
            "what its memory figure counts is not stated: taken as max reserved, which its software"
            " logs",
        ),
        (
            {"memory_params_opt_gib": 40, "memory_activations_gib": 30},
            "Megatron-Bridge",
            "its memory is a formula, not a measurement",
        ),
        (
            {"memory_gib": 70, "memory_kind": "torch max allocated"},
            "Megatron-Bridge",
            "",
        ),
    ],
)
def test_what_the_software_logs_and_what_a_formula_gives_is_noted(
    figures: dict[str, Any], software: str, note: str
) -> None:
    notes = validate([measured(figures, software=software)]).notes
    assert [*notes] == ([note] if note else [])
