"""torchtitan's configuration in TOML, which it read to 0.2. The fields are those of its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...describe.job import PRECISIONS, Job
from ...errors import BadInput
from . import torchtitan
from .reading import FileKeys
from .shared import Out, name_of
from .tool import Tool
from .torchtitan import FP8, MX, P

NAME = "torchtitan-toml"
DEGREES = (
    *("data_parallel_replicate_degree", "data_parallel_shard_degree"),
    *("tensor_parallel_degree", "enable_async_tensor_parallel"),
    *("context_parallel_degree", "pipeline_parallel_degree"),
    *("pipeline_parallel_schedule", "fsdp_reshard_after_forward"),
)


def older(name: str) -> str:
    """The section that a setting of parallelism stood in before it had one (2024)."""
    outer = name.startswith(("pipeline", "context", "enable_async"))
    return f"{'experimental' if outer else 'training'}.{name}"


OLDER = {
    "training.batch_size": "training.local_batch_size",
    "training.data_parallel_degree": P + "data_parallel_shard_degree",
    **{older(name): P + name for name in DEGREES},
}
"""Key of 2024 -> that of 0.2."""
HEAD = "output"
"""The module of the head; lm_head from 0.3 on."""


def write_flavor(job: Job, out: Out) -> None:
    out["model.name"], out["model.flavor"] = name_of(job, NAME).split("/")


def write_output_chunks(job: Job, out: Out) -> None:
    torchtitan.write_chunks(job, out, HEAD)


def write_converters(job: Job, out: Out) -> None:
    """bf16, fp32, or FP8 with weights gathered in 8 or 16 bits."""
    numbers = job.precision
    if numbers.compute != "fp8":
        torchtitan.write_precision(job, out)
        return
    if numbers.gradient_bytes != PRECISIONS["fp8"].gradient_bytes:
        raise BadInput(
            f"torchtitan trains with fp32 gradients, not {numbers.name or numbers.compute}"
        )
    small = numbers == PRECISIONS["fp8"]
    if not small and numbers.gather_bytes != PRECISIONS["bf16"].gather_bytes:
        raise BadInput(
            f"torchtitan gathers weights in 8 or 16 bits, not {numbers.gather_bytes}"
        )
    mx = job.software.float8 == "mxfp8"
    out["model.converters"] = [MX[0] if mx else FP8[0]]
    if small:
        out["quantize.linear.float8.enable_fsdp_float8_all_gather"] = True


class TorchtitanToml(Tool):
    """torchtitan's TOML."""

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The keys by their later names; those of 2024 had the degrees beside the batch."""
        named = {OLDER.get(key, key): value for key, value in keys.items()}
        if named.pop("float8.enable_float8_linear", False) is True:
            named["model.converters"] = ["float8"]
        return FileKeys(named)
