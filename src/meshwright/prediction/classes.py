"""Classes of runs: predictions of one class err alike, since one family of software runs the same
kernels, in the same order, on the same kind of chip.
"""

from __future__ import annotations

from ..describe.chip import Chip

EXPERTS = "experts"
DENSE = "dense"
FAMILIES = {
    "megatron-core": "Megatron Core",
    "megatron-bridge": "Megatron Core",
    "megatron-2021": "Megatron-LM to 2022, Megatron-DeepSpeed",
    "megatron-deepspeed": "Megatron-LM to 2022, Megatron-DeepSpeed",
    "deepspeed-zero3": "ZeRO-3 of 2021",
    "fsdp": "FSDP",
    "torchtitan": "FSDP",
    "llm-foundry": "FSDP",
    "maxtext": "XLA",
}
"""Framework -> its family; one that stands alone is its own."""
CHIPS = {
    "v100": "Volta",
    "a100": "Ampere",
    "h100": "Hopper",
    "h200": "Hopper",
    "b200": "Blackwell",
    "b300": "Blackwell",
    "gb200": "Blackwell",
    "gb300": "Blackwell",
    "tpu": "TPU",
}
"""Kernels of a chip (`Chip.kernel_law`) -> its family; one without is its own."""


def chip_family(chip: Chip) -> str:
    """The family of a chip."""
    return CHIPS.get(chip.kernel_law, chip.kernel_law or chip.name)


def framework_family(framework: str) -> str:
    """The family of a framework; "" of none."""
    return FAMILIES.get(framework, framework)


def class_of(chip: Chip, framework: str, experts: bool) -> str:
    """The class of a run: chips, software and kind of model. framework: the name of its profile, ""
    if the set of assumptions asks none.
    """
    return class_named(
        chip_family(chip), framework, EXPERTS if experts else DENSE
    )


def class_named(family: str, framework: str, kind: str) -> str:
    """The class of a family of chips, the name of a framework and a kind of model."""
    names = (family, framework_family(framework), kind)
    return ", ".join(name for name in names if name)
