"""The runs behind figures 7 to 18, as the captions and the authors' scripts say them
(`published/megatron_figures.toml`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from meshwright.describe.model import Model

from ... import shipped
from .tables import shaped


@dataclass(frozen=True)
class Runs:
    """What the runs of a figure have in common, and what varies."""

    name: str
    layers: int
    hidden: int
    heads: int
    gpus: int
    chunks: int = 1
    """Of an interleaved pipeline, a device."""
    varied: tuple[int, ...] = ()
    """Along the x axis, where that is not the batch."""
    batches: tuple[int, ...] = ()
    """Sequences."""

    @property
    def model(self) -> Model:
        """The GPT of the figure."""
        return shaped(self.name, self.layers, self.hidden, self.heads)


@cache
def runs_of(figure: int) -> Runs:
    """The runs of a figure of the paper."""
    text = shipped.shipped_text("published/megatron_figures.toml")
    fields: dict[str, Any] = tomllib.loads(text)["figure"][str(figure)]
    for name in ("varied", "batches"):
        fields[name] = tuple(fields.get(name, ()))
    return Runs(**fields)
