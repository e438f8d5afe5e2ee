"""ZeRO: what replicas cut instead of copying it, and how often in a step of m microbatches they
exchange weights and gradients for that.

    stage  cut over the replicas  weights are gathered        gradients are reduced
    0      -                      -                           once, to all of them
    1      optimizer state        once                        once, each shard to its owner
    2      gradients too          once                        after every microbatch
    3      weights too            before every pass: 2 m      after every microbatch

A framework that frees the weights of stage 2 after each microbatch gathers them before each forward
pass.

Source: Rajbhandari et al. 2020, arXiv 1910.02054, sections 5 and 7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..num import Num

CUT_FROM = {"weights": 3, "gradients": 2, "optimizer": 1}
"""What lives on a device for the whole run -> the first stage that cuts it over the replicas."""


def is_sharded(zero: int, kind: str) -> bool:
    """Whether a stage cuts the weights, the gradients or the state of the optimizer."""
    return zero >= CUT_FROM[kind]


def gathers(
    zero: int, each_microbatch: bool = False
) -> tuple[float, float, float]:
    """How often the weights of a device are gathered before (the first forward pass of a step, each
    of the other m - 1, each of the m backward passes): 1 or 0. each_microbatch: weights of ZeRO-2
    are freed after each microbatch.
    """
    if is_sharded(zero, "weights"):
        return 1.0, 1.0, 1.0
    again = each_microbatch and is_sharded(zero, "gradients")
    return float(is_sharded(zero, "optimizer")), float(again), 0.0


def over_step(passes: tuple[Any, Any, Any], m: Num) -> Any:
    """The sum over a step of m microbatches of what comes before each of its passes, in the order
    of `gathers`."""
    first, forward, backward = passes
    return first + forward * (m - 1.0) + backward * m


def reductions(zero: int, m: Num) -> Num:
    """How often the gradients of a device are reduced in m microbatches."""
    return m if is_sharded(zero, "gradients") else 1.0


class States(NamedTuple):
    """Bytes that live for the whole run on one device."""

    weights: Num
    gradients: Num
    optimizer: Num

    @property
    def total(self) -> Num:
        """Bytes of all three."""
        return self.weights + self.gradients + self.optimizer

    @property
    def checkpoint(self) -> Num:
        """What a run that starts again needs: no gradients."""
        return self.weights + self.optimizer


def state_bytes(
    weight: float,
    gradient: float,
    state: float,
    full: Num,
    split: Num,
    zero: int,
) -> States:
    """Bytes of `full` parameters, of which a replica owns the shard `split`, with so many bytes of
    weight (w), gradient (g) and optimizer state (s) each. On N replicas, a parameter:

        ZeRO-0  w + g + s          ZeRO-2  w + (g + s) / N
        ZeRO-1  w + g + s / N      ZeRO-3  (w + g + s) / N
    """

    def parameters(kind: str) -> Num:
        return split if is_sharded(zero, kind) else full

    return States(
        parameters("weights") * weight,
        parameters("gradients") * gradient,
        parameters("optimizer") * state,
    )
