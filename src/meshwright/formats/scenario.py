"""Scenarios of limits, from words and files: "h100", "a100/sparse", "h100-sxm@dgx-h100/sparse",
"lbl-b200-nvs8" (a network with its usual chip), "mine.toml".

A file describes one scenario; chip, network and law are names or tables:

    name = "two sites"
    chip = "h100-sxm"
    duration_s = "6 months"
    law = { name = "mine", batch = { coefficient = 4e6, exponent = 0.2, at = 3e23 } }
    [network]
    name = "two sites"
    dims = [{ name = "nvlink", size = 8, bandwidth = "450 GB/s", latency = "1 us" }, ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import catalog
from ..describe.assumptions import EPOCH, Assumptions
from ..describe.chip import Chip
from ..describe.frozen import put
from ..describe.job import PRECISIONS, Precision
from ..describe.network import Network
from ..describe.read import read
from ..errors import BadInput
from ..limits.laws import SPARSE, Law, law
from ..limits.scenario import PRESETS, Scenario, preset
from ..prediction.failures import Failures
from . import parse_toml, read_text
from .toml import thing_named as known_job

KINDS = ("", "dense", "sparse")
KNOWN = ("chips", "networks")


def load_scenario(text: str, *, files: bool = True) -> Scenario:
    """The scenario of a preset's name, of chip@network, or in a TOML file.

    files: may the text name a file (False for strangers).  Raises BadInput.
    """
    if text.lower().endswith(".toml"):
        if not files:
            raise BadInput(f"scenario {text[:80]!r}: files are not read here")
        return read_scenario(
            parse_toml(read_text(text), text), Path(text).stem
        )
    base, _, kind = text.strip().partition("/")
    preset_named = base.lower() in PRESETS
    if preset_named or not any(("@" in base, *map(_has(base), KNOWN))):
        return preset(text)
    if kind.lower() not in KINDS:
        raise BadInput(
            f"scenario {text[:80]!r} must end in /dense or /sparse, or in neither"
        )
    chip, joined = _hardware(base)
    scenario = Scenario(
        text,
        chip,
        joined,
        assumptions=fitting(chip, EPOCH),
        precision=scenario_precision(chip),
    )
    return (
        put("law.experts", SPARSE)(scenario)
        if kind.lower() == "sparse"
        else scenario
    )


def read_scenario(
    table: Mapping[str, Any], name: str = "scenario"
) -> Scenario:
    """The scenario a table describes."""
    base = read(
        Scenario,
        {"name": name, **table},
        "scenario",
        known=scenario_named,
        bare=False,
    )
    if "assumptions" not in table:
        base = replace(base, assumptions=fitting(base.chip, base.assumptions))
    return (
        base
        if "precision" in table
        else replace(base, precision=scenario_precision(base.chip))
    )


def scenario_precision(chip: Chip) -> Precision:
    """16 bits: fp16, as in the paper, or bf16 where a chip has no other."""
    return PRECISIONS[
        "fp16-pure" if "fp16" in chip.matrix_flops else "bf16-pure"
    ]


def fitting(chip: Chip, how: Assumptions) -> Assumptions:
    """The set, with a roofline where a chip's memories are not known."""
    if chip.hierarchy or how.chip.model != "hierarchy":
        return how
    return put("chip.model", "roofline")(how)


def scenario_named(cls: type, name: str) -> Any:
    """The thing of class `cls` with that name: a `Known` for `describe.read.read`."""
    if cls is Law:
        return law(name)
    if cls is Failures:
        return Failures()
    return (
        None
        if cls in (Scenario, Network) and not name
        else known_job(cls, name)
    )


def _has(name: str) -> Callable[[str], bool]:
    return lambda kind: catalog.has(kind, name)


def _hardware(text: str) -> tuple[Chip, Network]:
    """Of chip@network, a chip (on its usual network) or a network (with its usual chip)."""
    name, _, network = text.partition("@")
    if network or catalog.has("chips", name):
        chip = catalog.chip(name)
        return chip, catalog.network(network or chip.network)
    joined = catalog.network(name)
    if not joined.chip:
        raise BadInput(
            f"network {joined.name} is sold with no chip of its own: name one, such as"
            f" h100-sxm@{joined.name}"
        )
    return catalog.chip(joined.chip), joined
