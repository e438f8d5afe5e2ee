"""Memory, each layout once and with its source left out: what is fitted, and that a source never
fits itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from validate_rows import ROW, measured

from meshwright_studies.validate import validate
from meshwright_studies.validate.comparison import (
    BACKWARD,
    Constants,
    CountedFigure,
)
from meshwright_studies.validate.layouts import fitted, once

TRUE = Constants(0.03, 0.9, 3.0e9)
GB = 1e9


@dataclass(frozen=True)
class Run:
    """A made-up figure: tensors of 10 GB and 1 GB of temporaries for each unit of the backward
    share.
    """

    source: str
    measured: float
    kind: str = "device"
    same: tuple[object, ...] = ()
    size: float = 10 * GB

    @property
    def figure(self) -> CountedFigure:
        return CountedFigure(
            self.kind,
            tuple(self.size + share * GB for share in BACKWARD),
            0.0,
            0.02,
            5 * GB,
        )

    @property
    def predicted(self) -> float:
        return self.figure.under(Constants(0.05, 0.6, 1.9 * GB))


def runs(source: str, c: Constants = TRUE) -> list[Run]:
    """Figures of three kinds of a machine with these constants."""
    sizes = [
        (kind, size * GB)
        for kind in ("allocated", "reserved", "device")
        for size in (10, 30, 60)
    ]
    plain = [
        Run(source, 1.0, kind, (kind, size), size) for kind, size in sizes
    ]
    return [
        Run(source, r.figure.under(c), r.kind, r.same, r.size) for r in plain
    ]


def test_each_kind_of_figure_counts_its_own() -> None:
    kinds = ("states", "allocated", "reserved", "device", "needed")
    found = [Run("", 1.0, kind).figure.under(TRUE) / GB for kind in kinds]
    assert found == pytest.approx(
        [5, 10.9, 10.9 * 1.03, 10.9 * 1.03 + 3, 10.9 * 1.02 + 3]
    )


def test_the_constants_of_a_machine_are_found() -> None:
    assert fitted([runs("a"), runs("b")]) == TRUE
    assert fitted([]) is None


def test_a_source_is_predicted_by_the_others() -> None:
    """The odd one is predicted with what fits the rest, and cannot hide its own error."""
    odd = Constants(0.08, 0.0, 1.0e9)
    found = once([*runs("a"), *runs("b"), *runs("odd", odd)])
    assert found["sources"]["odd"]["constants"] == TRUE._asdict()
    assert found["sources"]["odd"]["left_out"]["median_abs_error"] > 0.02
    assert once([*runs("a"), *runs("b")])["left_out"][
        "median_abs_error"
    ] == pytest.approx(0)


def test_a_layout_counts_once() -> None:
    """Three batches of one layout, with the median of their ratios, and another layout."""
    many = [Run("a", 12e9 * share, same=("one",)) for share in (0.9, 1.0, 1.3)]
    found = once([*many, Run("a", 12e9, same=("other",))])["once"]
    assert found["rows"] == 2
    assert found["bias"] == pytest.approx(many[0].predicted / 12e9 - 1)


def test_runs_that_differ_in_their_batch_only_are_one_layout() -> None:
    figures = {"memory_gib": 20, "memory_kind": "torch max allocated"}
    twice = 2 * ROW["global_batch"]
    v = validate(
        [
            measured(figures),
            measured(figures, global_batch=twice),
            measured(figures, micro_batch=2, global_batch=twice),
        ]
    )
    assert v.overall["memory"]["rows"] == 3
    assert v.overall["memory"]["layouts"]["once"]["rows"] == 2
