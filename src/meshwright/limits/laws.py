"""Scaling laws as data: from the width of a model to its depth, experts, training data and batch.

    layers   L = depth(D F)             experts  E = experts(D F), or 1          F = ffn_ratio D
    tokens   = tokens_per_parameter N   batch    b = E^s batch(T) tokens

T: FLOPs of the whole training.

A law rounds depth, experts and batch to numbers with small odd factors (`mantissas` times a power
of two), so that they can be divided; without mantissas it is smooth. Source of the laws: Erdil &
Schneider-Joseph 2024, arXiv 2411.01137, sections 2.3 and 6; DeepSeek-AI 2024 for its batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from ..count.mlp2d import mlp2d_parameters, training_flops
from ..describe.fields import Amount, Checked, Name, Prose, Range, SIUnit
from ..errors import unknown
from ..num import Num, maximum
from ..units import LENGTH

MOST_DOUBLINGS = 60
Values = Any
"""A number, or a column of them (Num, for fields that are indexed)."""


@dataclass(frozen=True)
class Power(Checked):
    """A power law: coefficient (x / at)^exponent."""

    coefficient: float
    exponent: Annotated[float, Range(-2.0, 2.0)] = 0.0
    at: float = 1.0

    def __call__(self, x: Num) -> Num:
        return self.coefficient * (x / self.at) ** self.exponent


@dataclass(frozen=True)
class Law(Checked):
    """How a model and its training grow."""

    name: Name
    batch: Power
    """Tokens of a step, from the training FLOPs of the whole run, for a dense model."""
    depth: Power = Power(0.10056, 0.3751)
    """Blocks, from D F."""
    experts: Power | None = None
    """Experts of a block, from D F; a token meets one of them. None = dense."""
    batch_experts: Annotated[float, Range(0.0, 2.0)] = 0.5
    """Exponent s by which the batch grows with the number of experts."""
    ffn_ratio: float = 4.0
    """F / D."""
    tokens_per_parameter: float = 20.0
    """Training tokens for each parameter, experts that a token does not meet included."""
    seq: Annotated[float, SIUnit(LENGTH)] = 2048.0
    """A step has whole sequences of this length."""
    mantissas: tuple[int, ...] = (1, 3, 5, 7, 9)
    """Depth, experts and batch are rounded to these times a power of two; none = not rounded."""
    source: Prose = ""
    stated_growth: Amount | None = None
    """What the paper takes for `growth`, in round numbers; None: what follows from the
    exponents.
    """

    @property
    def growth(self) -> float:
        """a: tokens of a batch for each layer grow as T^a. With L ~ (D F)^d and T ~ N^2,
        N ~ L D F, that is the batch's exponent less d / (2 (1 + d)).
        """
        d = self.depth.exponent
        follows = self.batch.exponent - d / (2 * (1 + d))
        return follows if self.stated_growth is None else self.stated_growth

    def training(
        self, parameters: Num, flops_per_token: Num, experts: Num
    ) -> tuple[Values, Values, Values]:
        """Training of a model: FLOPs T and tokens of the whole run, and tokens of a step."""
        tokens = self.tokens_per_parameter * parameters
        T = flops_per_token * tokens
        sequences = experts**self.batch_experts * self.batch(T) / self.seq
        whole = experts * round_to(sequences / experts, self.mantissas)
        return T, tokens, whole * self.seq


class LawShape(NamedTuple):
    """Models of a law: numbers or columns."""

    D: Values
    F: Values
    L: Values
    E: Values
    parameters: Values
    flops: Values
    """Training FLOPs of the whole run."""
    batch: Values
    """Tokens of a step."""
    tokens: Values
    """Tokens of the whole run."""

    @property
    def steps(self) -> Values:
        """Optimizer steps of the run."""
        return self.tokens / self.batch

    def at(self, index: Any) -> LawShape:
        """The rows at `index`."""
        return LawShape(*(column[index] for column in self))


def shape(law: Law, D: Values) -> LawShape:
    """The models of width D that a law asks for."""
    F = law.ffn_ratio * D
    L = round_to(law.depth(D * F), law.mantissas)
    E = round_to(law.experts(D * F), law.mantissas) if law.experts else D / D
    N = mlp2d_parameters(L, E, D, F)
    T, tokens, batch = law.training(N, training_flops(L, D, F), E)
    return LawShape(
        D, F, L, E=E, parameters=N, flops=T, batch=batch, tokens=tokens
    )


def round_to(x: Values, mantissas: tuple[int, ...]) -> Values:
    """The nearest f 2^k with f among the mantissas, the smaller one of two equally near; x itself
    (at least 1) if there are none."""
    if not mantissas:
        return maximum(x, 1.0)
    grid = np.unique(np.outer(mantissas, 2.0 ** np.arange(MOST_DOUBLINGS)))
    # beyond the grid the nearest is its end
    above = np.clip(np.searchsorted(grid, x), 1, len(grid) - 1)
    low = grid[above - 1]
    high = grid[above]
    nearest = np.where(x - low <= high - x, low, high)
    return nearest if isinstance(x, np.ndarray) else float(nearest)


LEAST_WIDTH = 12288.0
"""Of GPT-3."""
WIDER = 128.0
"""The widest model over it."""


def widths() -> Any:
    """Model widths of the paper's curves: odd numbers up to 15 times 2^11 ... 2^21, between the
    width of GPT-3 and 128 times that."""
    grid = np.unique(np.outer(np.arange(1, 16, 2), 2.0 ** np.arange(11, 22)))
    return grid[(grid >= LEAST_WIDTH) & (grid <= WIDER * LEAST_WIDTH)]


SMOOTH_GRID = 8
"""Widths to a doubling on a smooth curve."""


def smooth_widths() -> Any:
    """Model widths of a smooth curve: powers of 2^(1/8), as wide as the paper's grid."""
    steps = math.log2(WIDER) * SMOOTH_GRID
    return LEAST_WIDTH * 2.0 ** (np.arange(steps + 1) / SMOOTH_GRID)


def growing_experts(number: float) -> Power:
    """So many experts at the width of GPT-3, growing with the square root of the weights of a
    layer.
    """
    return Power(number, 0.5, 4 * LEAST_WIDTH**2)


SPARSE = growing_experts(8.0)
FIT = (3.67, 1e6, 0.27)
"""a, n, p of L = a (N / n)^p, the fit of figure 10 to the models of Hoffmann et al. 2022."""
FITTED_DEPTH = Power(
    FIT[0] ** (1 / (1 - FIT[2])), FIT[2] / (1 - FIT[2]), FIT[1] / 3
)
"""That fit solved for L with N = 12 D^2 L = 3 D F L, attention counted: half as many layers as the
law of the same paper at every width (198 and 95 at that of GPT-3, which has 96)."""
EPOCH = "Erdil & Schneider-Joseph 2024, arXiv 2411.01137"
LAWS = {
    law.name: law
    for law in (
        Law(
            "baseline",
            Power(2.0**22, 1 / 6, 3e23),
            source=f"{EPOCH}, section 6: 4M tokens at 3e23 FLOP, b ~ T^(1/6)",
            stated_growth=0.0,
        ),
        Law(
            "deepseek",
            Power(0.2920, 0.3271),
            source="DeepSeek-AI 2024, arXiv 2401.02954: 0.2920 T^0.3271",
            stated_growth=0.2,
        ),
        Law(
            "fixed",
            Power(2.0**22),
            batch_experts=0.0,
            source=f"{EPOCH}, section 6.3: 4M tokens whatever the size",
        ),
    )
}


def law(name: str) -> Law:
    """The law of that name; BadInput names the nearest ones."""
    if name not in LAWS:
        raise unknown("scaling law", name, LAWS)
    return LAWS[name]
