"""Families of frameworks: programs that run the same kernels in the same order, and hold the same
tensors, err alike.
"""

FAMILIES = {
    "megatron-core": "Megatron Core",
    "megatron-bridge": "Megatron Core",
    "megatron-2021": "Megatron-LM to 2022, Megatron-DeepSpeed",
    "megatron-deepspeed": "Megatron-LM to 2022, Megatron-DeepSpeed",
    "deepspeed-zero3": "ZeRO-3 of 2021",
    "deepspeed": "DeepSpeed",
    "fsdp": "FSDP",
    "torchtitan": "FSDP",
    "automodel": "FSDP",
    "llm-foundry": "FSDP",
    "maxtext": "XLA",
}
"""Framework -> its family; one that stands alone is its own."""


def framework_family(framework: str) -> str:
    """The family of a framework; "" of none."""
    return FAMILIES.get(framework, framework)
