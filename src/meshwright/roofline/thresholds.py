"""Where communication starts to bind, in closed form.

B tokens on N = X Y chips, X of them data parallel (DP, FSDP) and Y tensor parallel. A chip does C
FLOP/s; its data-parallel collectives run at W M_X, its tensor-parallel ones at W M_Y bytes/s: a_x =
C/(W M_X), a_y = C/(W M_Y).
One layer, forward pass:

    T_math = f B/(N C)     T_data = w/(Y W M_X)     T_tensor = a B/(X W M_Y)

with f FLOPs and a bytes a token, w bytes of weights; F = f/a and d = w/f (`work.Layer`; d = 1 for
the book's layer). edition: "sum", mesh axes one after the other, or "max", beside each other (the
larger counts). All functions take numbers or arrays. Source: How To Scale Your Model, parts 5 and
12; d and general F follow by the same algebra.
"""

from __future__ import annotations

from ..num import Num, sqrt
from .work import Layer

WORSE = {"sum": 4.0, "max": 1.0}
"""edition -> how many more tokens than if the larger counts: at the best split both times are
equal, their sum is twice one, and tokens go with the square."""


def intensity(flops_per_s: Num, bytes_per_s: Num) -> Num:
    """FLOPs a chip does while one byte arrives: C/W."""
    return flops_per_s / bytes_per_s


def data_tokens(layer: Layer, a: Num) -> Num:
    """Tokens each data-parallel shard (B/X) needs so that DP or FSDP is compute-bound: d a."""
    return layer.density * a


def tensor_degree(layer: Layer, a: Num, below: Num = 0.0) -> Num:
    """Largest compute-bound tensor-parallel degree: Y < F/a; exactly, with the factor (Y - s)/Y of
    a group whose slowest level joins units of s chips, Y < s + F/a."""
    return below + layer.width / a


def mixed_tokens(layer: Layer, a_x: Num, a_y: Num, edition: str) -> Num:
    """Tokens a chip (B/N) needs at the best split: 4 d a_x a_y/F if times add up, a quarter of it
    if the larger counts."""
    return WORSE[edition] * layer.density * a_x * a_y / layer.width


def best_split(
    layer: Layer, batch: Num, chips: Num, a_x: Num, a_y: Num
) -> Num:
    """X that balances both collectives: sqrt(B N a_y/(d F a_x)); the same in both editions."""
    return sqrt(batch * chips * a_y / (layer.density * layer.width * a_x))


def best_ratio(
    layer: Layer, batch: Num, chips: Num, a_x: Num, a_y: Num, edition: str
) -> Num:
    """T_math/T_comms at the best split: sqrt(B F/(d N a_x a_y)), half of it if times add up."""
    return sqrt(batch / (chips * mixed_tokens(layer, a_x, a_y, edition)))
