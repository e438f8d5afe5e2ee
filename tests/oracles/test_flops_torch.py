"""FLOPs of every operation, forward and backward, against PyTorch's FLOP counter on meta
tensors.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from meshwright import Model, catalog
from meshwright.count.model import REFERENCE, model_flops, operations

pytest.importorskip("torch")
import architectures  # noqa: E402
from torch_flops import Flops, counted  # noqa: E402
from torch_models import flash, unfused  # noqa: E402

pytestmark = pytest.mark.oracle
KERNELS = {"flash": flash, "unfused": unfused}
MODELS = pytest.mark.parametrize(
    "model", architectures.ALL, ids=lambda m: m.name.split(":")[0]
)


def ours(model: Model, T: int, kernel: str) -> tuple[Flops, Flops]:
    """Matrix FLOPs by operation, summed over layers; PyTorch counts attention uncut by the mask, 2k
    a dot product.
    """
    forward: Counter[str] = Counter()
    backward: Counter[str] = Counter()
    for op, n in operations(model, T, REFERENCE, kernel):
        if op.forward.matrix:
            forward[op.name] += int(op.forward.matrix * n)
            backward[op.name] += int(op.backward.matrix * n)
    return dict(forward), dict(backward)


@MODELS
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_operation_of_small_models(model: Model, kernel: str) -> None:
    assert ours(model, 32, kernel) == counted(model, 32, KERNELS[kernel])


@pytest.mark.parametrize(
    ("name", "T"),
    [
        ("gpt3-175b", 2048),
        ("llama3-8b", 8192),
        ("llama3-405b", 8192),
        ("mixtral-8x7b", 4096),
        ("deepseek-v3", 4096),
        ("qwen3-235b-a22b", 4096),
        ("gemma2-9b", 8192),
        ("falcon-180b", 2048),
        ("gpt-oss-120b", 4096),
    ],
)
def test_every_operation_of_real_models(name: str, T: int) -> None:
    """At full width and length; a few layers of each kind are enough, more only repeat them."""
    model = catalog.model(name)
    model = replace(
        model,
        layers=min(
            model.layers, 4 + (model.moe.dense_layers if model.moe else 0)
        ),
    )
    assert ours(model, T, "flash") == counted(model, T, flash)


@MODELS
def test_model_flops_are_the_counter_s_total(model: Model) -> None:
    """The numerator of MFU: what the counter says without recomputed scores, a token (the counter
    knows no windows).
    """
    model = replace(model, window=None)
    forward, backward = counted(model, 32, unfused)
    assert model_flops(model, 32) * 32 == sum(forward.values()) + sum(
        backward.values()
    )
