"""What a prediction says of software that a job names and that does not run there: settings that
the framework has not on these chips or for this model, and attention kernels of other chips.

Their seconds are predicted all the same, as if they ran.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..describe.framework import framework
from ..describe.job import Job
from ..describe.software import Offer

NVIDIA = "NVIDIA"
KERNEL_OF = {
    "fa3": ("h100", "h20", "h200"),
    "cudnn": (),
}
"""Attention kernel of NVIDIA's chips alone -> the kernels of those that it runs on (Chip.
kernel_law); empty: any of them. FlashAttention-3: Shah et al. 2024, arXiv 2407.08608, Hopper."""
OF_GPUS = ("fa1", "fa2", "fa3", "cudnn")
"""Kernels that no TPU, Trainium or Gaudi runs."""
MAKES_GPUS = (NVIDIA, "AMD")


def not_there(job: Job) -> Iterator[str]:
    """Sentences on named software that does not run on these chips, or does nothing here."""
    yield from _kernel(job)
    for name in job.software.given:
        yield from _setting(job, name)


def _kernel(job: Job) -> Iterator[str]:
    """An attention kernel of other chips; of a vendor that nobody names nothing is known."""
    kernel, chip = job.attention_kernel, job.cluster.chip
    if not chip.vendor or not job.fused_attention:
        return
    own = KERNEL_OF.get(kernel)
    theirs = kernel in OF_GPUS and chip.vendor not in MAKES_GPUS
    other = own is not None and (
        chip.vendor != NVIDIA
        or bool(own and chip.kernel_law and chip.kernel_law not in own)
    )
    if theirs or other:
        yield f"attention kernel {kernel} does not run on {chip.name}: it is timed as if it did"


def _setting(job: Job, name: str) -> Iterator[str]:
    """A setting that the framework does not offer here."""
    if job.profile is None:
        return
    by = job.framework or framework(job.usual_framework)
    value, chip = getattr(job.software, name), job.cluster.chip
    of = tuple(o for o in by.offers if o.setting == name)
    if not of or value == getattr(by, name):
        return
    word = f"{name} {str(value).lower()}"
    same = [o for o in of if o.meant == value]
    if not same:
        known = dict.fromkeys((getattr(by, name), *(o.meant for o in of)))
        others = ", ".join(str(v).lower() for v in known if v is not None)
        if value is not False and value != "off":
            yield f"{by.name} has {name} {others}, not {str(value).lower()}"
        return
    experts = bool(job.model.moe)
    if not experts and all(o.models == "experts" for o in same):
        yield f"{word} has no effect: {job.model.name} has no experts"
    elif not any(_on(o, chip.kernel_law) for o in same) and (
        chip.kernel_law or chip.vendor not in ("", NVIDIA)
    ):
        on = dict.fromkeys(c for o in same for c in o.chips)
        yield f"{by.name} runs {word} on {', '.join(on)}, not on {chip.name}"


def _on(offer: Offer, kernels: str) -> bool:
    """Chips of these kernels run it."""
    return not offer.chips or kernels in offer.chips
