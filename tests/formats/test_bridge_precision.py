"""FP8 in the words of other tools: the job has the numbers that the file says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright import Job, Layout
from meshwright.describe.job import PRECISIONS
from meshwright.describe.software import Software
from meshwright.formats import bridge, flags
from meshwright.formats.bridge import launch

EIGHT = PRECISIONS["fp8"]
WIDE = replace(EIGHT, gather_bytes=PRECISIONS["bf16"].gather_bytes)
"""FP8 products of weights that are gathered in 16 bits."""


def test_a_named_precision_with_a_field_of_its_own(tmp_path: Path) -> None:
    """The name says which numbers are changed; it is no field of them."""
    path = tmp_path / "job.toml"
    path.write_text(
        '[model]\nname = "llama3-8b"\n[cluster]\non = "8xh100-sxm"\n'
        '[job]\nbatch = "8seq"\nprecision = { name = "fp8", gather_bytes = 2 }\n',
        "utf-8",
    )
    assert flags.read_flags(str(path), {}, []).precision == WIDE


def test_what_a_run_of_bridge_saved_says_its_gradients() -> None:
    """run_config.yaml has both words, after the start, and they agree."""
    keys = {
        "ddp.grad_reduce_in_fp32": False,
        "mixed_precision.bf16": True,
        "mixed_precision.grad_reduce_in_fp32": False,
        "model.tensor_model_parallel_size": 2,
    }
    tool = bridge.tool_named("megatron-bridge")
    file = bridge.understood_as("megatron-bridge", tool.of_tree(keys, ""))
    assert file.tables["job"]["precision"] == "bf16-pure"
    assert "ddp.grad_reduce_in_fp32" not in file.left


@pytest.mark.parametrize("precision", ["bf16", "bf16-pure", "fp8", "fp8-pure"])
def test_a_recipe_is_written_with_the_gradients_of_the_plan(
    precision: str,
) -> None:
    """And without the first and last layer in 16 bits, which the recipe of current scaling has."""
    layout = Layout(dp=8, zero=1)
    job = Job(
        "llama3-8b",
        "8xh100-sxm",
        64,
        layout,
        precision=precision,
        framework="megatron-bridge",
        software=Software(
            float8="tensorwise" if "8" in precision else None,
            gradients=None if precision.endswith("-pure") else "fp32",
        ),
    )
    place = launch.Place(path="p.toml", nodes=1, ranks=8)
    text, _ = bridge.write(job, "megatron-bridge", place)
    assert ("grad_reduce_in_fp32:false" in text) == precision.endswith("-pure")
    assert ("mixed_precision=bf16_mixed" in text) == (precision == "bf16")
    assert "ddp.grad_reduce" not in text and "current_scaling" not in text
    back = bridge.read_file("run.sh", text)
    said = back.tables["job"]["precision"]
    assert PRECISIONS[said] == job.filled.precision and not back.left


def test_overlap_of_a_recipe_is_that_of_the_plan() -> None:
    """A recipe's comm_overlap sets that of ddp when the run starts, where it has one; where it has
    none, a word in it is refused by Hydra: the whole table is written.
    """
    for overlap, tensors in ((None, None), ("off", "backward")):
        job = Job(
            "llama3-8b",
            "8xh100-sxm",
            64,
            Layout(tp=2, dp=4, zero=1),
            framework="megatron-bridge",
            software=Software(dp_overlap=overlap, tp_overlap=tensors),
        )
        place = launch.Place(path="p.toml", nodes=1, ranks=8)
        text, _ = bridge.write(job, "megatron-bridge", place)
        assert "comm_overlap=null" in text and "ddp.overlap" not in text
        assert ("overlap_grad_reduce:false" in text) == (overlap == "off")
        back = bridge.read_file("run.sh", text)
        told = back.tables["software"]
        assert told.get("dp_overlap") == overlap
        # the profile has all of it by itself, which a recipe of the library may not
        assert told["tp_overlap"] == (tensors or "all")
