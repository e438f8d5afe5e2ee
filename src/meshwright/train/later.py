"""Numbers of a device that the host reads when they have come, without waiting before."""

from __future__ import annotations

import torch
from torch import Tensor


class Later:
    """The numbers of a tensor. On a GPU their copy is queued behind the work that makes them."""

    def __init__(self, x: Tensor) -> None:
        self.host, self.copied = x, None
        if x.device.type == "cuda":
            self.host = torch.empty(
                x.shape, dtype=x.dtype, device="cpu", pin_memory=True
            )
            self.host.copy_(x, non_blocking=True)
            self.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.copied.record()

    def numbers(self) -> list[float]:
        """On the host, once they are there."""
        if self.copied is not None:
            self.copied.synchronize()
        values: list[float] = self.host.tolist()
        return values


def to_device(numbers: list[float], device: torch.device) -> Tensor:
    """Numbers of the host on the device, without waiting for it."""
    host = torch.tensor(numbers, dtype=torch.float64)
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
