"""The trainer's cross entropy against PyTorch's: rows in pieces, padded vocabularies, tp ranks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import each_rank  # noqa: E402
from torch.nn import functional as fn  # noqa: E402

from meshwright.train import loss as module  # noqa: E402
from meshwright.train.loss import Columns, loss  # noqa: E402

N, V, REAL = 12, 10, 7


def drawn(
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    logits = (5 * torch.randn(2, N // 2, V)).to(dtype)
    return logits, torch.randint(REAL, (2, N // 2))


def expected(
    logits: torch.Tensor, target: torch.Tensor, real: int = V, z: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's loss of the first `real` columns, and the gradient of three times it and its
    z-loss.
    """
    x = logits.clone().requires_grad_()
    value = fn.cross_entropy(
        x[..., :real].flatten(0, 1).float(), target.flatten()
    )
    of_z = z * x[..., :real].float().logsumexp(-1).square().mean()
    (3 * (value + of_z)).backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return value.detach(), x.grad


@pytest.mark.parametrize("at_once", [1, 3 * V, 2**24])
@pytest.mark.parametrize("real", [V, REAL])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_cross_entropy(
    dtype: torch.dtype,
    real: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", at_once)
    logits, target = drawn(dtype)
    before, x = logits.clone(), logits.requires_grad_()
    value = loss(x, target, Columns(0, real))
    (3 * value).backward()  # type: ignore[no-untyped-call]
    want, gradient = expected(before, target, real)
    assert value.item() == pytest.approx(want.item(), abs=1e-6)
    torch.testing.assert_close(
        x.grad, gradient, atol=1e-6 if dtype is torch.float32 else 2e-3, rtol=0
    )
    assert torch.equal(x.detach(), before), (
        "the logits are still needed elsewhere"
    )


def test_columns_over_ranks() -> None:
    """Three ranks with four columns each, of which the last three pad a vocabulary of nine."""
    torch.manual_seed(1)
    whole, target = 5 * torch.randn(N, 12), torch.randint(9, (N,))

    def work(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        rank = dist.get_rank()
        x = whole[:, 4 * rank : 4 * rank + 4].clone().requires_grad_()
        columns = Columns(
            4 * rank, min(9 - 4 * rank, 4), dist.group.WORLD, z=0.1
        )
        value = loss(x[None], target[None], columns)
        (3 * value).backward()  # type: ignore[no-untyped-call]
        return value.detach(), x.grad

    want, gradient = expected(whole[None], target[None], 9, z=0.1)
    found = each_rank(work, 3)
    assert all(
        value.item() == pytest.approx(want.item(), abs=1e-6)
        for value, _ in found
    )
    got = torch.cat([grad for _, grad in found], dim=1)
    torch.testing.assert_close(got, gradient[0], atol=1e-6, rtol=0)
