"""One decoder family of transformers: what of a config.json makes which field of a Model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .hf_keys import Fields
from .hf_parts import Part


@dataclass(frozen=True)
class HfFamily:
    """How one `model_type` is read."""

    fixed: Fields = field(default_factory=dict)
    """Model fields that are the same in all its models."""
    extra: Part = lambda c: {}
    """Model fields that depend on the file."""
    defaults: Fields = field(default_factory=dict)
    """Defaults that are not among the fields of the class."""
    also: tuple[str, ...] = ()
    """Keys that the model's code or older versions read, though they are no fields of the class."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Older name of a key -> its name."""
    like: str = ""
    """The class whose keys it has, if transformers has none of that name; then nothing may be left
    out but `defaults`.
    """
    classes: tuple[str, ...] = ()
    """Names of its language model's class, where they are not that of transformers."""
