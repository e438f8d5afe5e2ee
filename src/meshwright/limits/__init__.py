"""How far training scales: the largest run in a given time, where utilisation falls and why, the
smallest cluster."""

from .answer import (
    Limit,
    Limits,
    bill,
    largest_run,
    limits,
    parallelism_split,
    smallest_cluster,
)
from .curve import Curve, Point, curve
from .laws import LAWS, Law, Power, law
from .scenario import Scenario, preset, presets
from .sensitivity import CHANGES, Sensitivity, sensitivity

__all__ = [
    "CHANGES",
    "LAWS",
    "Curve",
    "Law",
    "Limit",
    "Limits",
    "Point",
    "Power",
    "Scenario",
    "Sensitivity",
    "bill",
    "curve",
    "largest_run",
    "law",
    "limits",
    "preset",
    "presets",
    "sensitivity",
    "smallest_cluster",
    "parallelism_split",
]
