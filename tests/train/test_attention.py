"""Attention by tiles against scores, mask and softmax written out: values and gradients."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from meshwright import catalog  # noqa: E402
from meshwright.program.tiles import Documents, chunks, seen_window, tiles  # noqa: E402
from meshwright.train.attention import attend, kernel_order  # noqa: E402
from meshwright.train.model import Attention, AttentionContext  # noqa: E402

S, H, K, h = 48, 4, 2, 8


def by_hand(
    q: Any,
    k: Any,
    v: Any,
    at: tuple[range, ...],
    window: int,
    documents: list[Documents],
) -> Any:
    """Every score, those hidden set to minus infinity."""
    k, v = (x.repeat_interleave(H // K, 2) for x in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(h)
    i, j = (
        torch.cat([torch.arange(part.start, part.stop) for part in at])[
            :, None
        ],
        torch.arange(S),
    )
    found = []
    for b, begins in enumerate(documents):
        of = torch.bucketize(torch.arange(S), torch.tensor(begins), right=True)
        seen = (of[i] == of[j]) & (j <= i) & (i - j < window)
        weights = scores[b].masked_fill(~seen, -torch.inf).softmax(-1)
        found.append(weights @ v[b].transpose(0, 1))
    return torch.stack(found).transpose(1, 2)


@pytest.mark.parametrize("cp", [1, 2, 4])
def test_it_is_masked_attention(cp: int) -> None:
    rng = random.Random(cp)
    torch.manual_seed(cp)
    for window in (1, 2, 7, 16, 47, 48):
        at = chunks(S, cp, rng.randrange(cp))
        documents: list[Documents] = [
            tuple(sorted({0, *(rng.randrange(1, S) for _ in range(n))}))
            for n in (0, 3)
        ]
        q = torch.randn(2, S // cp, H, h, requires_grad=True)
        k, v = (torch.randn(2, S, K, h, requires_grad=True) for _ in "kv")
        rows = tuple(
            tiles(at, S, True, seen_window(window, S), begins)
            for begins in documents
        )
        got, want = (
            attend(q, k, v, rows),
            by_hand(q, k, v, at, window, documents),
        )
        torch.testing.assert_close(got, want, atol=2e-6, rtol=0)
        gradient = torch.randn_like(got)
        found = torch.autograd.grad(got, (q, k, v), gradient)
        expected = torch.autograd.grad(want, (q, k, v), gradient)
        for x, y in zip(found, expected, strict=True):
            torch.testing.assert_close(x, y, atol=1e-5, rtol=0)


def whole(length: int) -> Any:
    """The tiles of one causal document without a window."""
    return (tiles((range(length),), length, True, None),)


def test_cudnn_comes_first_on_hopper_and_newer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What PyTorch would take, FlashAttention-2, is the slower one there; on older chips, and where
    there is no CUDA, cuDNN's is not asked."""
    device = torch.device("cuda")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for capability, first in {
        (8, 0): SDPBackend.FLASH_ATTENTION,
        (9, 0): SDPBackend.CUDNN_ATTENTION,
        (10, 0): SDPBackend.CUDNN_ATTENTION,
    }.items():
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda d, c=capability: c
        )
        kernel_order.cache_clear()
        assert kernel_order(device)[0] == first
    kernel_order.cache_clear()
    assert SDPBackend.CUDNN_ATTENTION not in kernel_order(torch.device("cpu"))


def test_the_kernel_that_comes_first_runs() -> None:
    q = k = v = torch.randn(1, 16, 2, 8)
    ran = {}
    for order in ([SDPBackend.FLASH_ATTENTION], [SDPBackend.MATH]):
        with Calls() as calls:
            attend(q, k, v, whole(16), order)
        ran[order[0]] = any("flash" in name for name in calls.seen)
    assert ran == {SDPBackend.FLASH_ATTENTION: True, SDPBackend.MATH: False}


class Calls(TorchDispatchMode):
    """The operations that run, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.add(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


def test_no_tensor_is_copied_into_another_layout() -> None:
    """Narayanan et al. 2021, section 4.2, keep [s, b, a, h] so that nothing is transposed in memory;
    here kernels read [b, s, a, h] by strides, forward and backward.
    """
    m = replace(catalog.model("megatron-1.7b"), hidden=64, heads=4, ffn=256)
    layer = Attention(m, None)
    x = torch.randn(2, 32, 64, requires_grad=True)
    with Calls() as calls:
        layer(x, AttentionContext(None, {None: whole(32)})).sum().backward()
    moved = {"aten.clone", "aten.copy_", "aten._to_copy", "aten.contiguous"}
    assert not moved & calls.seen
    assert any("attention" in name for name in calls.seen)
