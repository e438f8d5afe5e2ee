"""Every text in a description comes from a list, or is said to be free; a wrong one is a sentence
wherever it is given.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import typing
from typing import Any

import pytest

import meshwright.describe
from meshwright import (
    cluster,
    model,
)
from meshwright.describe.fields import Checked, FieldKind, fields_of
from meshwright.describe.framework import Framework, framework
from meshwright.describe.kernels import Kernels, kernels
from meshwright.describe.read import read
from meshwright.limits import laws, scenario
from meshwright.limits.scenario import preset
from meshwright.prediction import failures
from refusals import refusal

ROOMS = [
    importlib.import_module(f"meshwright.describe.{m.name}")
    for m in pkgutil.iter_modules(meshwright.describe.__path__)
]
DESCRIPTIONS = [
    thing
    for room in (*ROOMS, failures, laws, scenario)
    for thing in vars(room).values()
    if isinstance(thing, type)
    and issubclass(thing, Checked)
    and thing is not Checked
    and thing.__module__ == room.__name__
]


def texts(kind: FieldKind) -> list[FieldKind]:
    """The kinds of texts that a field holds: its own, or of its keys and entries."""
    if kind.type is str:
        return [kind]
    return [text for part in kind.parts for text in texts(part)]


FIELDS = {
    f"{cls.__name__}.{name}": cls
    for cls in DESCRIPTIONS
    for name, field in fields_of(cls).items()
    if texts(field.kind)
}
CHOICES = {
    field: kind.words
    for field, cls in FIELDS.items()
    for kind in texts(fields_of(cls)[field.split(".")[1]].kind)
    if kind.words
}


def test_every_text_has_its_list_or_is_free() -> None:
    for cls in DESCRIPTIONS:
        for field in fields_of(cls).values():
            for kind in texts(field.kind):
                said = (bool(kind.words), kind.free, kind.reader is not None)
                assert sum(said) == 1, field.where
    assert {
        "Counting.gathered_keys",
        "Counting.backward_needs",
        "ChipTime.model",
        "Layout.placement",
        "Chip.matrix_flops",
        "Scenario.schedules",
    } <= set(CHOICES)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "NetworkTime": {"collective": "book"},
    "HidePass": {"scope": "pass"},
    "TracedOp": {"name": "o", "kind": "vector"},
    "Model": {
        "name": "m",
        "layers": 1,
        "hidden": 8,
        "heads": 1,
        "ffn": 8,
        "vocab": 8,
        "seq": 8,
    },
    "Chip": {
        "name": "c",
        "matrix_flops": {"bf16": 1.0},
        "vector_flops": 1.0,
        "hbm_bytes": 1.0,
        "hbm_bandwidth": 1.0,
    },
    "Dim": {"name": "d", "bandwidth": 1.0, "latency": 0.0},
    "Job": {
        "model": model("gpt2"),
        "cluster": cluster("8xh100-sxm"),
        "batch": 8,
    },
    "RopeScaling": {"kind": "linear"},
    "Linear": {"heads": 1, "key_dim": 8, "value_dim": 8},
    "StateSpace": {"inner": 8, "state": 8},
    "Offer": {"setting": "dispatcher", "value": "deepep", "since": "2025"},
    "Framework": {
        field.name: getattr(framework("meshwright"), field.name)
        for field in dataclasses.fields(Framework)
    },
    "Kernels": {
        field.name: getattr(kernels("h100"), field.name)
        for field in dataclasses.fields(Kernels)
    },
    "Scenario": {
        field.name: getattr(preset("h100"), field.name)
        for field in dataclasses.fields(preset("h100"))
    },
}
"""What a description needs besides the field in question."""


@pytest.mark.parametrize("field", sorted(CHOICES))
def test_a_wrong_text_cannot_be_made(field: str) -> None:
    """In Python and from plain data: a sentence with the field and the nearest valid values, never
    the other branch of an if.
    """
    cls, name = FIELDS[field], field.split(".")[1]
    kind, nearly = (
        str(typing.get_type_hints(cls)[name]),
        CHOICES[field][0][:-1] + "q",
    )
    wrong: Any = (
        {nearly: (1, 1)}
        if "Mapping" in kind
        else (nearly,)
        if "tuple" in kind
        else nearly
    )
    given = {**ARGUMENTS.get(cls.__name__, {}), name: wrong}
    for make in (lambda: cls(**given), lambda: read(cls, given)):
        with refusal(f"{name}.*is not known; (did you mean|known: )"):
            make()


@pytest.mark.parametrize("field", sorted(CHOICES))
def test_every_listed_text_can_be_made(field: str) -> None:
    cls, name = FIELDS[field], field.split(".")[1]
    kind = str(typing.get_type_hints(cls)[name])
    for text in CHOICES[field]:
        value: Any = (
            dict.fromkeys(CHOICES[field], (1,))
            if name == "placement"
            else {text: 1.0}
            if "Mapping" in kind
            else (text,)
            if "tuple" in kind
            else text
        )
        cls(**{**ARGUMENTS.get(cls.__name__, {}), name: value})
