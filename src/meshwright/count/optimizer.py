"""The optimizer's pass over the parameters a device updates."""

from __future__ import annotations

from ..describe.job import Job
from ..describe.model import Model
from ..num import Num, maximum, minimum
from .model import operations
from .work import Pass


def update(job: Job, parameters: Num, sharded: bool = False) -> Pass:
    """Read gradient and state, write state and weight; the gradient is read once more for its norm.

    parameters: how many this device updates;  sharded: weights are (ZeRO-3).
    """
    o = job.optimizer
    moved = (
        2 * job.gradient_bytes
        + 2 * job.state_bytes
        + weight_written(job, sharded)
    ) * parameters
    return Pass(
        0.0,
        o.flops * parameters,
        moved,
        kernel="optimizer",
        sizes=(parameters,),
    )


def weight_written(job: Job, sharded: bool) -> float:
    """Bytes of the weight beside the master that an update writes: none where a shard is it."""
    alone = sharded and job.master_is_weight
    return 0.0 if alone else job.precision.weight_bytes


def newton_schulz(rows: Num, columns: Num, iterations: int) -> Num:
    """FLOPs that make one matrix X[m, n], m <= n, orthogonal: each iteration A = X X^T, B = b A + c
    A A, X = a X + B X.

    2 m^2 n + 2 m^3 + 2 m^2 n an iteration. Source: Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon
    """
    m = minimum(rows, columns)
    n = maximum(rows, columns)
    return iterations * 2 * m * m * (2 * n + m)


def orthogonal_flops(model: Model, iterations: int) -> float:
    """FLOPs of orthogonalising every matrix of the layers, each worked on once; queries, keys and
    values, gate and up are one matrix each.
    """
    return sum(
        n
        * float(
            product.copies
            * newton_schulz(product.out, product.inner, iterations)
        )
        for op, n in operations(model)
        for product in op.forward.products
        if not op.name.startswith(("embedding", "head"))
    )
