"""Buckets: parameters whose gradients, or sharded weights, replicas exchange in one collective.

A framework lays gradients side by side and closes a bucket once it has so many; a bucket of more
than a layer waits less often for the hops of a ring, and the last one leaves later.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..describe.framework import Framework
from ..describe.layout import Layout
from ..num import Num, maximum, minimum, sum_of
from .parameters import Parameters
from .zero import is_sharded

NONE = Parameters(0.0, 0.0)


def bucket(
    by: Framework | None, layout: Layout, whole: Parameters
) -> Parameters:
    """Dense parameters of a bucket, and those of experts, which have buckets of their own, at
    least. None where each unit is gathered by itself (ZeRO-3), or where papers add up.

    whole: the least that a device of the pipeline holds, which no bucket exceeds.

    Source: NVIDIA/Megatron-LM@00119989, core/distributed/distributed_data_parallel.py. Stages after
    the first have one bucket there, as their collectives are not on the critical path; here all
    have those of the first.
    """
    if not by or is_sharded(layout.zero, "weights"):
        return NONE
    of_dp = by.bucket_a_replica * layout.replicas / layout.cp
    least = maximum(by.bucket_size or by.holding.bucket_elements, of_dp)
    return Parameters(*(minimum(least, n) for n in whole))


def lacking(
    least: Parameters, parts: Iterable[tuple[Num, Parameters]]
) -> Parameters:
    """What a bucket has beside some parts, each so often."""
    often, weights = zip(*parts, strict=True)
    return Parameters(
        *(
            maximum(size - sum_of(zip(often, each, strict=True)), 0.0)
            for size, each in zip(
                least, zip(*weights, strict=True), strict=True
            )
        )
    )
