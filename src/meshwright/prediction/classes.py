"""Classes of runs: predictions of one class err alike, since one family of software runs the same
kernels, in the same order, in the same numbers, on the same kind of chip.
"""

from __future__ import annotations

from ..count.model import kind_counts
from ..describe.chip import Chip
from ..describe.families import framework_family
from ..describe.layout import Layout
from ..describe.model import Model

SHARDS = 2
"""ZeRO stage from which a replica does not hold its gradients whole."""
WIDTHS = {
    "bf16": "16 bits",
    "fp16": "16 bits",
    "int8": "FP8",
    "fp8": "FP8",
    "fp4": "FP4",
}
"""Precision -> the numbers that it runs alike with."""
EXPERTS = "experts"
DENSE = "dense"
CHIPS = {
    "v100": "Volta",
    "a100": "Ampere",
    "h100": "Hopper",
    "h20": "Hopper",
    "h200": "Hopper",
    "b200": "Blackwell",
    "b300": "Blackwell",
    "gb200": "Blackwell",
    "gb300": "Blackwell",
    "tpu": "TPU",
    "tpu-v6e": "TPU",
    "tpu-7x": "TPU",
}
"""Kernels of a chip (`Chip.kernel_law`) -> its family; one without is its own."""
UNTESTED = {
    "linear": "scans of linear attention",
    "sparse": "indexers",
    "ssm": "scans of state spaces",
}
"""Mixer -> what of it no measurement is known of, and no published run of the evidence has."""


def chip_family(chip: Chip) -> str:
    """The family of a chip."""
    return CHIPS.get(chip.kernel_law, chip.kernel_law or chip.name)


def class_named(family: str, framework: str, kind: str, precision: str) -> str:
    """The class of a family of chips, the name of a framework, a kind of model and a precision."""
    names = (
        family,
        framework_family(framework),
        kind,
        precision_width(precision),
    )
    return ", ".join(name for name in names if name)


def untested_mixers(model: Model) -> list[str]:
    """What layers of a model mix tokens by, of which no measurement is known."""
    kinds = (kind for part in kind_counts(model) for kind, _ in part)
    words = {word for kind in kinds for word in kind.mixers}
    return [what for word, what in UNTESTED.items() if word in words]


def precision_width(precision: str) -> str:
    """Numbers that run by the same kernels at the same rate."""
    return WIDTHS.get(precision, precision)


def sharding(layout: Layout) -> str:
    """How a layout shards its weights or gradients, and what else cuts it; "" where each replica
    holds both whole (ZeRO 0 and 1).
    """
    if layout.zero < SHARDS:
        return ""
    cuts = [axis for axis in ("tp", "cp", "pp") if getattr(layout, axis) > 1]
    return " ".join([f"ZeRO-{layout.zero}", *cuts])
