"""What the host adds to a layer whose kernels are shorter than their launches.

    t = (w^4 + host^4)^(1/4)            launches ahead of the device
    t = w + host                        blocking launches (CUDA_LAUNCH_BLOCKING=1)

w: seconds on the device;  host: seconds in which the host launches them. The longer one rules;
where both are alike they wait for each other now and then. Where the host waits for each kernel,
the device waits for each launch. A layer's backward pass is one queue,
whose kernels, weight gradients among them, wait for all of its launches; a weight gradient that
zero bubble runs apart waits for half of them. Source: form and exponent of this project, after Bang
et al. 2024 (vTrain, arXiv 2312.12391), single node.
"""

from __future__ import annotations

from ..describe.assumptions import ChipTime
from ..num import Num, sqrt, where

SOURCE = "host-bound layers: this project, after Bang et al. 2024 (vTrain), arXiv 2312.12391"


def left(how: ChipTime, parts: float | None = None) -> float:
    """Share of the launches that CUDA graphs leave. parts: of those that graphs of parts of a layer
    leave, where they are not those of the whole layer.
    """
    host = how.host
    some = host.parts if parts is None else parts
    return {"off": 1.0, "parts": some, "full": host.full}[
        how.stack.cuda_graphs
    ]


def host_seconds(
    how: ChipTime,
    part: str,
    experts: bool,
    collectives: tuple[Num, Num] = (0.0, 0.0),
    dispatched: bool = False,
) -> tuple[Num, Num]:
    """(forward, backward) seconds of the host for one "layer", or for the "embedding" or the
    "head". collectives: those that each pass launches;  dispatched: tokens go to their experts by
    a kernel that sorts them too.
    """
    host = how.host
    stack = how.stack
    share = {"layer": 1.0, "embedding": host.embedding, "head": host.head}[
        part
    ]
    each = stack.host_s * share * left(how)
    if experts and stack.host_s:
        ways = host.dispatched if dispatched else 1.0
        # what has one shape in all steps is captured with the layer
        routed = None if stack.routing == "padded" else host.routed
        each = each + host.experts_s * ways * left(how, routed)
    call = host.collective_s * left(how) if stack.host_s else 0.0
    ahead, back = collectives
    return each + call * ahead, each * host.backward + call * back


def every_step(how: ChipTime, layers: Num) -> Num:
    """Seconds of the host in each step beside its passes: what a step does once (the loss and the
    norm read, the next batch), and the optimizer's launches, tensor by tensor. layers: of a device.
    """
    stack = how.stack
    launched = layers * how.host.update * stack.host_s
    return (stack.step_s + launched) * left(how)


def host_excess(work: Num, host: Num, launches: str = "ahead") -> Num:
    """Seconds by which a pass outlasts its kernels. launches: `Software.launches`."""
    if isinstance(host, float) and host == 0.0:
        return 0.0
    if launches == "blocking":
        return where(work > 0, host, 0.0)
    square = work * work
    least = host * host
    return where(
        work > 0, sqrt(sqrt(square * square + least * least)) - work, 0.0
    )
