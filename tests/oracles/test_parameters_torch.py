"""Parameters against those of a real torch module on the meta device, small models and catalogue
models at full size.
"""

from __future__ import annotations

import pytest

from meshwright import Model, catalog
from meshwright.count.model import operations, parameters

torch = pytest.importorskip("torch")
import architectures  # noqa: E402
from torch_models import Decoder, NextToken  # noqa: E402

pytestmark = pytest.mark.oracle
FULL_SIZE = (
    "gpt3-175b",
    "llama3-8b",
    "llama3-70b",
    "llama3-405b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "qwen3-8b",
    "qwen3-235b-a22b",
    "gemma2-9b",
    "gemma3-27b",
    "falcon-7b",
    "falcon-180b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "olmo2-32b",
    "bloom-176b",
    "glm4.5",
)


def numel(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def decoder(model: Model) -> Decoder:
    with torch.device("meta"):
        return Decoder(model)


@pytest.mark.parametrize(
    "model", architectures.ALL, ids=lambda m: m.name.split(":")[0]
)
def test_small_models(model: Model) -> None:
    module = decoder(model)
    assert parameters(model) == numel(module) - numel(module.mtp)


@pytest.mark.parametrize("name", FULL_SIZE)
def test_catalogue_models_at_full_size(name: str) -> None:
    model = catalog.model(name)
    module = decoder(model)
    assert parameters(model) == numel(module) - numel(module.mtp)


def test_next_token_block() -> None:
    """The block that predicts a token further has its own layer, norms and projection, and shares
    embedding and head.
    """
    model = architectures.DEEPSEEK
    with torch.device("meta"):
        block = NextToken(model, lambda q, k, v, window: v)
    total = sum(op.weights * n for op, n in operations(model))
    # ours has a norm of its own before the shared head, as DeepSeek's checkpoint does
    final_norm = model.hidden
    assert total - parameters(model) == numel(block) + final_norm
