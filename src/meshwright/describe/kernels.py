"""What the kernels of a kind of chip reach, by shape: constants of the laws in `cost/` that
`ChipTime.model` "by-shape" asks for.

The data lie in catalog/kernels, one file a kind of chip, each number with its source; a chip names
its kind (`Chip.kernel_law`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from . import fitted, shipped
from .fields import (
    FROM_0,
    Amount,
    AnyShare,
    Checked,
    Name,
    Range,
    Seconds,
    Share,
    SIUnit,
    Sources,
    finder,
    origins,
)
from .frozen import short_repr
from .read import read
from .software import Recipe

GENERIC = "generic"
"""Kernels of a chip that nobody measured: no law of shapes beyond the tiles; its rate is
`Chip.sustained`.
"""


ESTIMATE = "estimate"
"""How the source of a number begins that is not measured."""


@dataclass(frozen=True)
class FusedAttention(Checked):
    """A fused attention kernel: rate share / (1 + length / T) of the 16-bit peak."""

    share: float
    """Of the 16-bit matrix peak, for long sequences."""
    length: Amount
    """Tokens of a sequence at which it reaches half of `share`."""
    backward: float
    """Rate of the backward pass over that of the forward pass."""
    narrow: float = 0.0
    """Rate with heads of at most 64 over that with wider ones; 0: `Kernels.narrow`."""
    backward_window: bool = True
    """The backward pass leaves out what lies outside a window; else it takes what a causal mask
    leaves."""


@dataclass(frozen=True)
class Kernels(Checked):
    """Constants of the kernels of one kind of chip."""

    name: Name
    units: int
    """Multiprocessors: tiles of an output that are computed at once."""
    share: Share
    """Of the 16-bit matrix peak that large products reach at the clock the peak is quoted at."""
    depth: Amount
    """Inner width k at which a product takes twice as long as its arithmetic: 1 + depth / k."""
    waves: AnyShare
    """Of the units that the last wave of tiles leaves idle, what is paid for."""
    clock: Share
    """Share of the kernels' rate that 16-bit products in long loops hold."""
    training: Share
    """Share of that clock that a training step holds, in which messages and copies run beside
    products and the slowest chip sets the pace.
    """
    power_w: Annotated[float, SIUnit("W"), FROM_0]
    """Power limit of the parts that were measured; 0 = none."""
    power_exponent: AnyShare
    """Clock under another limit, or of products that take another power: (limit / (power_w
    power))^exponent.
    """
    fp8_power: Annotated[float, Range(0.1, 2.0)]
    """Power of FP8 products at full clock over that of 16-bit ones at theirs."""
    fp4_power: Annotated[float, Range(0.1, 2.0)]
    """The same of FP4."""
    memory: Share
    """Share of the memory bandwidth that kernels reach."""
    loss: Share
    """Of that share, what kernels of the loss reach on rows of logits."""
    added: AnyShare
    """Of the shorter of arithmetic and memory traffic, what does not hide behind the longer."""
    added_sums: AnyShare
    """The same of sums in fp32 that a product adds its result to: their tiles are read and written
    when its arithmetic ends.
    """
    launch_s: Seconds
    """Between two kernels."""
    fp8: float
    """Share of the FP8 peak over `share`."""
    fp4: float
    """The same of FP4."""
    fp8_backward: Annotated[float, Range(1.0, 2.0)]
    """Seconds of FP8 products of a backward pass over those of the same shape in a forward pass:
    software has their sums promoted to full precision on the way (split accumulator), which takes
    time on chips that sum FP8 in fewer bits.
    """
    quantise: Mapping[Recipe, Amount]
    """Recipe of FP8 -> bytes moved for each element of an activation or an output gradient that is
    quantised; weights: half of it.
    """
    quantised_weight: Mapping[Recipe, Amount]
    """Recipe of FP8 or FP4 -> bytes of a weight as products read it: along its rows, and along its
    columns for the gradient of their input, where one copy does not serve both.
    """
    turned: Mapping[Recipe, Amount]
    """Recipe of FP8 or FP4 -> bytes moved for each element of a tensor that tp ranks gathered
    quantised, to read it along its columns."""
    attention: Mapping[Name, FusedAttention]
    """Fused kernel -> its law; one that is not listed runs as the last that is."""
    narrow: float
    """Rate of fused attention with heads of at most 64 over that with wider ones, of kernels that
    say nothing else (`FusedAttention.narrow`)."""
    scores: Share
    """Share of the 16-bit peak that the products of unfused attention reach."""
    alignment: Annotated[float, Range(0.0, 4.0)]
    """Exponent of (largest power of two in the width of a head / 8), where that is less than 1."""
    experts: Share
    """Rate of products of experts over that of others."""
    unaligned: Share
    """The same again where 128 does not divide the width of an expert's input or output."""
    expert_s: Seconds
    """What each expert after the first adds to a product: they are launched one by one."""
    crowd: Amount
    """Tokens that a product of an expert costs more than those it has: a tile of rows in which two
    experts meet is computed for both."""
    crowd_weights: Amount
    """The same of the product which makes the gradients of an expert's weights."""
    sources: Sources = origins()

    __repr__ = short_repr

    @property
    def held(self) -> float:
        """Share of the kernels' rate that 16-bit products hold in training."""
        return self.clock * self.training

    @property
    def estimated(self) -> bool:
        """Nobody measured the rate of its products."""
        return str(self.sources.get("share", {}).get("source", "")).startswith(
            ESTIMATE
        )

    def runs_as(self, kernel: str) -> str:
        """The fused kernel whose law is taken for this one."""
        return kernel if kernel in self.attention else [*self.attention][-1]

    def fused(self, kernel: str) -> FusedAttention:
        """The law of a fused kernel."""
        return self.attention[self.runs_as(kernel)]


@cache
def all_kernels() -> dict[str, Kernels]:
    """name -> constants, all of the catalogue, with those that runs tell."""
    return {
        name: fitted.with_fitted(f"kernels/{name}", of)
        for name, of in as_written().items()
    }


@cache
def as_written() -> dict[str, Kernels]:
    """name -> constants of the catalogue's files, before any run."""
    files = shipped.tables("kernels")
    common = files.pop("common")
    made = {}
    for name, own in files.items():
        table = {"name": name, **common, **own}
        table["sources"] = {
            **common.get("sources", {}),
            **own.get("sources", {}),
        }
        made[name] = read(Kernels, table, f"kernels {name}")
    return made


def kernels(name: str) -> Kernels:
    """The constants of that name; BadInput names the nearest ones."""
    constants: Kernels = finder("kernels", all_kernels())(name)
    return constants
