"""Which memory a row means, and that it is compared with its own kind only."""

from __future__ import annotations

from typing import Any

import pytest
from validate_rows import cases, row

from meshwright import predict
from meshwright.units import parse
from meshwright_studies.validate import validate
from meshwright_studies.validate.jobs import job
from meshwright_studies.validate.measured import memory_of

GIB = 2.0**30


@cases
def test_kinds(
    measured: dict[str, Any], software: str, kind: str, size: str
) -> None:
    found = memory_of(measured, software)
    assert found is not None
    assert (found.kind, found.bytes) == (
        kind,
        pytest.approx(parse(size, "B")),
    )


@cases
def test_what_is_no_figure(measured: dict[str, Any]) -> None:
    assert memory_of(measured, "") is None


def test_each_kind_has_its_own_prediction() -> None:
    def predicted(**measured: Any) -> float:
        [found] = validate([{**row(), "measured": measured}]).having("memory")
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


def test_what_the_software_logs_and_what_a_formula_gives_is_noted() -> None:
    v = validate(
        [
            {
                **row(),
                "software": "torchtitan + torch.compile",
                "measured": {"memory_gb": 70},
            }
        ]
    )
    assert list(v.notes) == [
        "what its memory figure counts is not stated: taken as max reserved, which its software"
        " logs"
    ]
    v = validate(
        [
            {
                **row(),
                "measured": {
                    "memory_params_opt_gib": 40,
                    "memory_activations_gib": 30,
                },
            }
        ]
    )
    assert list(v.notes) == ["its memory is a formula, not a measurement"]
    assert not validate(
        [
            {
                **row(),
                "measured": {
                    "memory_gib": 70,
                    "memory_kind": "torch max allocated",
                },
            }
        ]
    ).notes
