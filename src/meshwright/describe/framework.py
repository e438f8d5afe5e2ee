"""What the software does: what a framework keeps, counts and overlaps, and which layouts it can run.

A set of assumptions leaves to the framework what it has no answer of its own to (`ASK`); `answered` fills that in. The profiles lie in
catalog/frameworks, each field with its source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any

from ..errors import unknown
from .assumptions import Assumptions, HidePass, left_open
from .choices import Choices
from .fields import Checked, Unit
from .frozen import FrozenDict, shown
from .read import read

ANSWERS = {
    "count": ("gathered_inputs", "gathered_keys", "backward_needs", "weight_gradient", "rotary", "stage_message"),
    "overlap": {"dp": "gradient_overlap", "pp": "send_overlap", "step_barrier": "step_barrier"},
    "memory": ("resident", "framework_bytes"),
}
"""Joint of a set -> the fields a framework answers (field of the set -> field of the framework, where the names differ)."""


@dataclass(frozen=True)
class Framework(Checked):
    """The profile of a framework. Fields that a set of assumptions asks for are described there (`describe.assumptions`)."""

    name: str
    gathered_inputs: str
    gathered_keys: str
    backward_needs: str
    weight_gradient: str
    rotary: str
    stage_message: str
    gradient_overlap: HidePass
    """`Overlap.dp`."""
    send_overlap: str
    """`Overlap.pp`."""
    step_barrier: str
    resident: str
    framework_bytes: Annotated[float, Unit("B")]
    choices: tuple[Choices, ...] = ()
    """Layouts it can run: those that one of these allows; empty = all."""
    rules: tuple[str, ...] = ()
    """Names of rules (`layout.trainable`) that its layouts keep beside those of all."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=FrozenDict)
    """Where each field is from."""

    __repr__ = shown

    def __post_init__(self) -> None:
        """Mappings are frozen."""
        super().__post_init__()
        frozen = {name: FrozenDict(origin) for name, origin in self.sources.items()}
        object.__setattr__(self, "sources", FrozenDict(frozen))

    def answer(self, joint: str, name: str) -> Any:
        """Its answer to a field of a set."""
        fields: Any = ANSWERS[joint]
        return getattr(self, fields[name] if isinstance(fields, dict) else name)


def asked(how: Assumptions) -> tuple[tuple[str, str], ...]:
    """(joint, field) of what a set leaves to the framework."""
    every = ((joint, name) for joint, names in ANSWERS.items() for name in names)
    found = ((joint, name, getattr(getattr(how, joint), name)) for joint, name in every)
    return tuple((joint, name) for joint, name, value in found if value is None or left_open(value))


@lru_cache(maxsize=1024)
def answered(how: Assumptions, by: Framework) -> Assumptions:
    """The set with the framework's answers in place of its questions."""
    found: dict[str, dict[str, Any]] = {}
    for joint, name in asked(how):
        found.setdefault(joint, {})[name] = by.answer(joint, name)
    joints: dict[str, Any] = {joint: replace(getattr(how, joint), **fields) for joint, fields in found.items()}
    return replace(how, **joints) if joints else how


@cache
def frameworks() -> dict[str, Framework]:
    """name -> profile."""
    folder = resources.files("meshwright") / "catalog" / "frameworks"
    found = {}
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        name = file.name.removesuffix(".toml")
        found[name] = read(Framework, {"name": name, **tomllib.loads(file.read_text("utf-8"))}, f"framework {name}")
    return found


def framework(name: str) -> Framework:
    """The profile of that name; BadInput names the nearest ones."""
    if name not in frameworks():
        raise unknown("framework", name, frameworks())
    return frameworks()[name]
