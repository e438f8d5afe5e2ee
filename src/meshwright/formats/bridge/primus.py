"""Primus's YAML: settings of one of four trainers, over files of Primus that it names.

`modules.pre_trainer` has the trainer (`framework`), the file of its usual settings (`config`), that
of the model (`model`) and what is otherwise (`overrides`). The table ([primus] of
catalog/bridges.toml) has the usual settings and the models; the rest is read as the trainer's own.

Source: github.com/AMD-AGI/Primus, primus/configs, fd1eeab (2026-08), MIT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ... import catalog
from ...errors import BadInput
from .reading import FileKeys, ForeignFile, decided_elsewhere, understood
from .table import get, wrapper

MODULE = re.compile(r"modules\.(\w+)\.framework")
NAMED = re.compile(r"\$\{\w+:([^}]*)\}")
"""A text that the environment may set, and what it is otherwise."""
FLOAT8 = "-fp8"
"""End of the name of a model whose layers torchtitan converts."""


@dataclass(frozen=True)
class Wrapped:
    """A trainer's settings inside a file of Primus."""

    format: str
    """The trainer's."""
    keys: dict[str, Any]
    stem: str
    """What the model's file is called."""
    model: str | None
    """Our name of it."""


def mine(keys: Mapping[str, Any]) -> bool:
    """A module that names its framework."""
    return any(map(MODULE.fullmatch, keys))


def unwrapped(keys: Mapping[str, Any], where: str) -> Wrapped:
    """The settings that the trainer runs with.  Raises BadInput for another trainer, and for usual
    settings that are not known here.
    """
    table = wrapper("primus")
    modules = [m[1] for m in map(MODULE.fullmatch, keys) if m]
    if len(modules) > 1:
        raise BadInput(
            f"{where[:80]} has modules {', '.join(modules)}: one is read"
        )
    module = f"modules.{modules[0]}."
    framework, config, model = (
        NAMED.sub(r"\1", str(keys.get(module + name, "")))
        for name in ("framework", "config", "model")
    )
    known = table["trainers"].get(framework)
    if known is None:
        raise BadInput(
            f"Primus: the framework {framework[:40]!r} is not read:"
            f" {', '.join(table['trainers'])} are"
        )
    if config != known["config"]:
        raise BadInput(
            f"Primus: the usual settings of {config[:60]!r} are not known here: those of"
            f" {known['config']} are"
        )
    own = {
        key.removeprefix(module + "overrides."): value
        for key, value in keys.items()
        if key.startswith(module + "overrides.")
    }
    stem = model.removesuffix(".yaml")
    settings = {**known.get("defaults", {}), **own}
    if stem.endswith(FLOAT8):
        stem = stem.removesuffix(FLOAT8)
        settings.setdefault("model.converters", ["float8"])
    if known.get("recipe"):
        settings["recipe"] = str(settings.pop(known["recipe"], ""))
    ours = table["models"].get(stem.lower().replace(".", ""))
    return Wrapped(known["format"], settings, stem, ours)


def with_experts_asked(said: FileKeys, wrapped: Wrapped) -> FileKeys:
    """The file of a model with experts may set their degree, which the run's own need not say."""
    model = wrapped.model
    if model is None or catalog.model(model).moe is None:
        return said
    asked = decided_elsewhere(
        get(wrapped.format), ("layout.ep",), said.keys, "model"
    )
    return replace(said, elsewhere={**said.elsewhere, **asked})


def understood_as_primus(said: FileKeys, wrapped: Wrapped) -> ForeignFile:
    """What was read, with the model, and Primus's own keys among those of the trainer."""
    table, trainer = wrapper("primus"), get(wrapped.format)
    format = replace(
        trainer,
        harmless=(*trainer.harmless, *table["harmless"]),
        matters={**table["matters"], **trainer.matters},
        notes=(*trainer.notes, OPEN),
    )
    file = understood(format, said)
    if "model" in file.tables:
        return file
    missing = (
        f"trains {wrapped.stem[:60]} of Primus, which is not in the catalogue: give it, such as"
        " --model config.json"
    )
    return replace(file, missing=(missing,))


OPEN = "what the file leaves open is as Primus's own file of the trainer says"
