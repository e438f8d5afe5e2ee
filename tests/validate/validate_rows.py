"""A well-formed row of published runs, and ways to change it; what rows say, as data: a test reads
its cases from cases.toml, where they stand under its file and its name (without "test_"). Each is a
list of the values of the test's parameters, in their order; one value alone may stand bare.
"""

from __future__ import annotations

import copy
import inspect
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = tomllib.loads(
    Path(__file__).with_name("cases.toml").read_text("utf-8")
)
"""File -> test -> its cases."""


def cases(test: Callable[..., None]) -> Callable[..., None]:
    """The test, once for each of its cases."""
    name = test.__name__.removeprefix("test_")
    rows = CASES[Path(test.__code__.co_filename).stem][name]
    many = [row if isinstance(row, list) else [row] for row in rows]
    return pytest.mark.parametrize(
        [*inspect.signature(test).parameters], many
    )(test)


ROW: dict[str, Any] = {
    "id": "r1",
    "source": "s",
    "year": 2024,
    "model": {
        "name": "llama3-8b",
        "arch": "dense",
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn_hidden": 14336,
        "gated": True,
        "vocab": 128256,
        "seq_len": 8192,
    },
    "hardware": {
        "gpu": "H100-80GB-SXM",
        "count": 64,
        "gpus_per_node": 8,
        "intra_node": "NVLink4 900GB/s",
        "inter_node": "8x400Gb NDR InfiniBand per node",
    },
    "software": "Megatron-Bridge",
    "precision": "bf16",
    "parallel": {
        "tp": 4,
        "sp": True,
        "pp": 4,
        "vpp": 2,
        "dp": 4,
        "zero_stage": 1,
    },
    "micro_batch": 1,
    "global_batch": 128,
    "recompute": "none",
    "optimizer_sharding": "distributed optimizer",
    "measured": {"step_time_s": 3.0},
}


def measured(figures: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Such a row, of which these figures alone were measured."""
    return {**row(**changes), "measured": figures}


def row(**changes: Any) -> dict[str, Any]:
    """ROW with fields replaced; a dict is laid over the dict of that name."""
    new = copy.deepcopy(ROW)
    for name, value in changes.items():
        new[name] = (
            {**new[name], **value} if isinstance(value, dict) else value
        )
    return new
