"""Parameters against those of a real torch module on the meta device."""

from __future__ import annotations

import pytest

from meshwright import Model
from meshwright.count.model import operations, parameters

torch = pytest.importorskip("torch")
import architectures  # noqa: E402
from torch_models import Decoder, NextToken  # noqa: E402

pytestmark = pytest.mark.oracle


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
