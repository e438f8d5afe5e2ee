"""Time of what waits in host memory: copies over the link between chip and host, and the optimizer
on the host's cores.

A link carries either way at the same time, so that the activations of one layer leave while the
next is computed, and come back while the layer behind it is. D bytes over a link of h B/s:

    forward pass of a layer    max(F, D / h)     backward pass    max(B, D / h)

Sources: Transformer Engine, cpu_offload.py: copies on a stream of their own, spread over the layers
of the model; DeepSpeed, ZeRO-Offload (Ren et al. 2021, arXiv 2101.06840): gradients go to the host,
its cores update what they have, weights come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..count import optimizer
from ..describe.chip import Chip
from ..describe.job import Job
from ..describe.offload import Offload
from ..num import Num, maximum, minimum, with_name
from .causes import Causes, Seconds

COPIES = "activations to host memory and back"
"""What a term calls by how much copies outlast the passes beside them."""


def copy_seconds(chip: Chip, size: Num) -> Num:
    """Seconds of a copy of so many bytes, one way."""
    return size / (chip.host_bandwidth * chip.host_reached)


class Away(NamedTuple):
    """Activations that wait in host memory."""

    chip: Chip
    choice: Offload
    share: float
    """Of the layers."""

    @property
    def whole(self) -> bool:
        """All that such a layer keeps leaves."""
        return self.choice.inputs and self.choice.results

    def leaving(self, kept: Num, entry: Num) -> Num:
        """Bytes that leave of a layer which keeps so many, its input among them."""
        inputs = minimum(entry, kept)
        inside = kept - inputs
        return self.choice.inputs * inputs + self.choice.results * inside

    def outlasting(self, leaves: Num, passes: Sequence[Num]) -> Causes:
        """What the copies of so many bytes outlast of a layer's two passes, one way beside each:
        traffic of memory.
        """
        takes = copy_seconds(self.chip, leaves)
        # copies run beside the pass: only what outlasts it is paid
        shown = (maximum(takes - seconds, 0.0) for seconds in passes)
        return Causes(
            *(
                Seconds(memory=with_name(each, COPIES, passes[0]))
                for each in shown
            )
        )


def offload_update(job: Job, parameters: Num) -> Num:
    """Seconds in which the host updates so many parameters of a device, one after the other: their
    gradients go there, states and weights are read and written, weights come back."""
    chip = job.cluster.chip
    p = job.precision
    moved = optimizer.update(job, parameters).memory
    copied = (job.gradient_bytes + p.weight_bytes) * parameters
    return copy_seconds(chip, copied) + moved / chip.host_memory_bandwidth
