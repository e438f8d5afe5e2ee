"""A weight matrix in the numbers of a job."""

from __future__ import annotations

from ..num import Num
from .blocks import PLAIN, SILENT, Matrix, Messages, matmul
from .microbatch import DeviceMicrobatch
from .work import Op


def linear(
    microbatch: DeviceMicrobatch,
    name: str,
    T: Num,
    k: Num,
    n: Num,
    matrix: Matrix = PLAIN,
    sent: Messages = SILENT,
) -> Op:
    """`blocks.matmul` of T tokens from k to n features, in bytes and FLOPs as this job counts
    them."""
    numbers = microbatch.numbers_of(matrix)
    return matmul(name, T, k, n, numbers=numbers, matrix=matrix, sent=sent)
