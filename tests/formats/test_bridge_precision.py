"""FP8 in the words of other tools: the job has the numbers that the file says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.describe.job import PRECISIONS
from meshwright.formats import bridge, flags

MEGATRON = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 256
 --num-attention-heads 4 --seq-length 128 --vocab-size 512 --swiglu --micro-batch-size 1
 --global-batch-size 8 --bf16 --use-distributed-optimizer """
TITAN = """torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b
 --training.seq_len 128 --training.local_batch_size 1 --model.converters """
AXOLOTL = """base_model: meta-llama/Meta-Llama-3-8B
sequence_len: 128
micro_batch_size: 1
bf16: true
fp8: true
dp_shard_size: 8
"""
EIGHT = PRECISIONS["fp8"]
WIDE = replace(EIGHT, gather_bytes=PRECISIONS["bf16"].gather_bytes)
"""FP8 products of weights that are gathered in 16 bits."""


@pytest.mark.parametrize(
    ("name", "text", "numbers"),
    [
        ("m.sh", MEGATRON + "--fp8-format hybrid", WIDE),
        ("m.sh", MEGATRON + "--fp8-format e4m3 --fp8-recipe mxfp8", WIDE),
        ("m.sh", MEGATRON + "--fp8-format hybrid --fp8-param-gather", EIGHT),
        ("t.sh", TITAN + "quantize.linear.float8", WIDE),
        ("a.yaml", AXOLOTL, WIDE),
    ],
)
def test_eight_bit_products_and_what_is_gathered(
    name: str, text: str, numbers: object, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text.replace("\n ", " \\\n "), "utf-8")
    job = flags.read_flags(str(path), {"on": "8xh100-sxm"}, [])
    assert job.precision == numbers


def test_a_named_precision_with_a_field_of_its_own(tmp_path: Path) -> None:
    """The name says which numbers are changed; it is no field of them."""
    path = tmp_path / "job.toml"
    path.write_text(
        '[model]\nname = "llama3-8b"\n[cluster]\non = "8xh100-sxm"\n'
        '[job]\nbatch = "8seq"\nprecision = { name = "fp8", gather_bytes = 2 }\n',
        "utf-8",
    )
    assert flags.read_flags(str(path), {}, []).precision == WIDE


def test_a_switch_needs_no_value(tmp_path: Path) -> None:
    """A flag of torchtitan that stands alone switches on."""
    path = tmp_path / "t.sh"
    path.write_text(
        "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
        " --training.seq_len 128 --training.local_batch_size 1"
        " --parallelism.tensor_parallel_degree 2 --parallelism.enable_sequence_parallel",
        "utf-8",
    )
    found = bridge.read_file(str(path))
    assert found.tables["layout"]["sequence_parallel"] is True
    assert not found.left
