"""Classes of runs: predictions of one class err alike, since one software family runs the same
kernels in the same order.
"""

from __future__ import annotations

EXPERTS = "experts"
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


def class_of(framework: str, experts: bool) -> str:
    """The class of a run. framework: the name of its profile, "" if the set of assumptions asks
    none.
    """
    if experts:
        return EXPERTS
    return f"{FAMILIES.get(framework, framework)}, dense".removeprefix(", ")
