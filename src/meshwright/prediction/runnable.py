"""What a prediction says of software that a job names and that does not run there: frameworks of
other vendors' chips, settings that the framework has not on these chips or for this model, and
attention kernels of other chips.

Their seconds are predicted all the same, as if they ran.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..describe.chip import Chip
from ..describe.fields import ASK
from ..describe.framework import USUAL, Framework, framework, frameworks
from ..describe.job import Job
from ..describe.software import Offer, runs_kernel

NO_RUN = "does not run on"
"""What a sentence says of software that the chips do not run."""
NVIDIA = "NVIDIA"
ONLY_NVIDIA = ("fa3", "cudnn", "cudnn-fp8")
"""Attention kernels of NVIDIA's chips alone."""
OF_GPUS = ("fa1", "triton", "fa2", "efficient", *ONLY_NVIDIA)
"""Kernels that no TPU, Trainium or Gaudi runs."""
MAKES_GPUS = (NVIDIA, "AMD")


def not_there(job: Job) -> Iterator[str]:
    """Sentences on named software that does not run on these chips, or does nothing here."""
    if by := job.profile:
        yield from _framework(by, job.cluster.chip)
        if job.attention_kernel != ASK:
            yield from _kernel(by.attention, job.cluster.chip)
    for name in job.software.given:
        yield from _setting(job, name)


def _framework(by: Framework, chip: Chip) -> Iterator[str]:
    """A framework of other vendors' chips; of a vendor that no framework names nothing is known."""
    if _runs(by, chip):
        return
    if not any(chip.vendor in f.vendors for f in frameworks().values()):
        yield (
            f"no framework names chips of {chip.vendor} among those that it runs on:"
            f" {chip.name} is timed as if {by.name} did"
        )
        return
    other = frameworks()[chip.framework or USUAL]
    there = f"; {other.name} runs there" if _runs(other, chip) else ""
    yield f"{by.name} {NO_RUN} {chip.name}: it is timed as if it did{there}"


def _runs(by: Framework, chip: Chip) -> bool:
    """The framework runs on the vendor's chips, or one of the two does not say whose they are."""
    return not by.vendors or chip.vendor in ("", *by.vendors)


def _kernel(kernel: str, chip: Chip) -> Iterator[str]:
    """An attention kernel of other chips; of a vendor that nobody names nothing is known."""
    if not chip.vendor:
        return
    makers = (NVIDIA,) if kernel in ONLY_NVIDIA else MAKES_GPUS
    theirs = kernel in OF_GPUS and chip.vendor not in makers
    if theirs or not runs_kernel(kernel, chip.compute_capability):
        yield f"attention kernel {kernel} {NO_RUN} {chip.name}: it is timed as if it did"


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
            yield f"{by.name} is known to run {name} {others}, not {str(value).lower()}"
        return
    if not any(_on(o, chip.kernel_law) for o in same) and (
        chip.kernel_law or chip.vendor not in ("", NVIDIA)
    ):
        on = dict.fromkeys(c for o in same for c in o.chips)
        yield f"{by.name} runs {word} on {', '.join(on)}, not on {chip.name}"


def _on(offer: Offer, kernels: str) -> bool:
    """Chips of these kernels run it."""
    return not offer.chips or kernels in offer.chips
