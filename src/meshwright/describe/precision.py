"""Which numbers are computed, kept and sent; the usual ways by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .fields import BY_NAME, Checked, OneOf, finder

Compute = Annotated[
    str, OneOf("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
]
"""Numbers that matrix units multiply."""


@dataclass(frozen=True)
class Precision(Checked):
    """Number formats of what is computed, kept and sent.

    >>> from meshwright import Job, Precision
    >>> numbers = Job("llama3-8b", "8xh100-sxm", batch=64, precision="fp8").precision
    >>> isinstance(numbers, Precision), numbers.compute
    (True, 'fp8')
    """

    compute: Compute = "bf16"
    """Precision of the matrix products: a key of `Chip.matrix_flops`."""
    weight_bytes: float = 2.0
    """Bytes a weight takes in the forward pass."""
    gradient_bytes: float = 4.0
    """Bytes a gradient takes while it is accumulated and reduced."""
    activation_bytes: float = 2.0
    gather_bytes: float = 2.0
    """Bytes a weight takes on the wire when shards are gathered."""
    input_bytes: float | None = None
    """Bytes an input of a linear layer takes while it is kept for its weight gradient; None =
    `activation_bytes`.
    """

    @property
    def name(self) -> str:
        """Its name in `PRECISIONS`; empty if it has none."""
        return next(
            (name for name, numbers in PRECISIONS.items() if numbers == self),
            "",
        )

    @property
    def kept_input_bytes(self) -> float:
        """`input_bytes`, or those of any activation."""
        return (
            self.activation_bytes
            if self.input_bytes is None
            else self.input_bytes
        )


FP8_BLOCK = 1 + 1 / 32
"""Bytes of an FP8 number: one, and a scale of one byte for every 32 (OCP Microscaling Formats 1.0,
2023).
"""
FP4_BLOCK = 1 / 2 + 1 / 16
"""Bytes of an FP4 number: half, and a scale of one byte for every 16 (NVFP4, Transformer Engine
2.8, 2025).
"""

PRECISIONS = {
    "bf16": Precision(),
    "fp16": Precision("fp16"),
    "bf16-pure": Precision("bf16", gradient_bytes=2.0),
    "fp16-pure": Precision("fp16", gradient_bytes=2.0),
    "fp8": Precision("fp8", gather_bytes=1.0, input_bytes=FP8_BLOCK),
    "fp4": Precision("fp4", gather_bytes=1.0, input_bytes=FP4_BLOCK),
    "fp8-pure": Precision(
        "fp8", gradient_bytes=2.0, gather_bytes=1.0, input_bytes=FP8_BLOCK
    ),
    "fp4-pure": Precision(
        "fp4", gradient_bytes=2.0, gather_bytes=1.0, input_bytes=FP4_BLOCK
    ),
    "tf32": Precision(
        "tf32",
        weight_bytes=4.0,
        gradient_bytes=4.0,
        activation_bytes=4.0,
        gather_bytes=4.0,
    ),
    "fp32": Precision(
        "fp32",
        weight_bytes=4.0,
        gradient_bytes=4.0,
        activation_bytes=4.0,
        gather_bytes=4.0,
    ),
}
"""bf16/fp16: mixed precision with fp32 gradients and master weights (Megatron-LM, which sums those
of fp16 in 16 bits: `Job.gradient_bytes`); -pure: gradients in 2 bytes. fp8, fp4: inputs of
linear layers are kept quantised, other activations, weights and logits in 16 bits (Transformer
Engine).
"""


def precision(name: str) -> Precision:
    """The numbers of that name; BadInput names the nearest ones."""
    numbers: Precision = finder("precision", PRECISIONS)(name)
    return numbers


BY_NAME[Precision] = precision
