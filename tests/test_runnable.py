"""Software that a job names and that does not run there is said; what runs is not."""

from __future__ import annotations

import pytest

from meshwright import Job, predict
from meshwright.describe.software import Software
from meshwright.prediction.runnable import not_there

CASES = [
    (
        "llama3-8b",
        "8xh100-sxm",
        {"dispatcher": "deepep"},
        "has no effect: llama3-8b",
    ),
    (
        "llama3-8b",
        "8xh100-sxm",
        {"ep_overlap": True},
        "has no effect: llama3-8b",
    ),
    ("llama3-8b", "8xh100-sxm", {"float8": "rowwise"}, "not rowwise"),
    ("llama3-8b", "8xh100-sxm", {"float8": "delayed"}, ""),
    ("qwen3-30b-a3b", "16xmi300x", {"dispatcher": "deepep"}, "not on mi300x"),
    ("qwen3-30b-a3b", "16xgb200", {"dispatcher": "deepep"}, "not on gb200"),
    ("qwen3-30b-a3b", "16xgb200", {"dispatcher": "hybridep"}, ""),
    ("qwen3-30b-a3b", "16xh100-sxm", {"ep_overlap": False}, ""),
    ("qwen3-30b-a3b", "16xh100-sxm", {"dispatcher": "alltoall"}, ""),
    ("llama3-8b", "8xh20", {"tp_overlap": "all"}, ""),
]


@pytest.mark.parametrize(("model", "on", "said", "told"), CASES)
def test_settings(
    model: str, on: str, said: dict[str, object], told: str
) -> None:
    precision = {"precision": "fp8"} if "float8" in said else {}
    job = Job(model, on, 64, software=Software(**said), **precision)
    sentences = [*not_there(job)]
    assert len(sentences) == bool(told)
    assert all(told in sentence for sentence in sentences)


KERNELS = [
    ("8xa100-80", "fa3", True),
    ("8xb200", "fa3", True),
    ("8xh20", "fa3", False),
    ("8xa100-80", "cudnn", False),
    ("8xmi300x", "cudnn", True),
    ("8xmi300x", "fa2", False),
    ("8xtpu-v5p", "fa2", True),
    ("8xtpu-v5p", "xla", False),
    ("8xh100-sxm", "unfused", False),
]


@pytest.mark.parametrize(("on", "kernel", "told"), KERNELS)
def test_attention_kernels(on: str, kernel: str, told: bool) -> None:
    job = Job("llama3-8b", on, 64, attention_kernel=kernel)
    said = [n for n in predict(job, zero=3).notes if "does not run on" in n]
    assert bool(said) == told
