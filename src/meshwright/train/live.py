"""The memory of a running program: bytes of all live tensors, the largest sum so far, and what that
sum was made of.

A tensor's storage counts from the operation that made it until nothing refers to it. Views count
once. What an operation uses inside itself, and what an allocator leaves between tensors, does not
show here.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .attention import opened


class Site(NamedTuple):
    """Where tensors come from."""

    made_by: str
    """The operation; in the backward pass with the autograd node that ran it."""
    shape: tuple[int, ...]
    dtype: str


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which storages are followed. `hold` tells it of tensors that were there
    before.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.peak = 0, 0
        self.sites: Counter[Site] = Counter()
        """Bytes that live now, by where they come from."""
        self.at_peak: Counter[Site] = Counter()
        self._storages: dict[int, tuple[Any, int, Site]] = {}
        self._fresh = False
        self._resize = mock.patch.object(
            torch.UntypedStorage,
            "resize_",
            self._resized(torch.UntypedStorage.resize_),
        )

    def __enter__(self) -> Any:
        self._resize.start()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._resize.stop()
        self._note()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation and follow what it made. Operations on DTensors are made of local ones,
        which come here too.
        """
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        # waiting gives back what it was given, of which fake tensors make another
        waits = op is torch.ops._c10d_functional.wait_tensor.default
        out = args[0] if waits else opened(self, op, args, kwargs or {})
        self.hold(tree_leaves(out), op._opname)
        return out

    def hold(self, tensors: Iterable[Any], made_by: str) -> None:
        """Follow these tensors (of DTensors the local part) from now on."""
        for x in tensors:
            if isinstance(x, DTensor):
                x = x._local_tensor
            if (
                isinstance(x, Tensor)
                and x.device.type != "meta"  # a shape, which takes no bytes
                and (key := (storage := x.untyped_storage())._cdata)
                not in self._storages
            ):
                node = torch._C._current_autograd_node()
                site = Site(
                    f"{made_by} in {node.name()}" if node else made_by,
                    tuple(x.shape),
                    str(x.dtype)[6:],
                )
                self._storages[key] = (
                    weakref.ref(storage, partial(self._gone, key)),
                    0,
                    site,
                )
                self._set(key, storage.nbytes())

    def forget_peak(self) -> None:
        """The peak starts again from what lives now."""
        self.peak, self._fresh = self.now, True

    def _set(self, key: int, size: int) -> None:
        reference, before, site = self._storages[key]
        if size < before:
            self._note()
        self._storages[key] = reference, size, site
        self.sites[site] += size - before
        self.now += size - before
        if self.now > self.peak:
            self.peak, self._fresh = self.now, True

    def _gone(self, key: int, _: Any) -> None:
        self._set(key, 0)
        del self._storages[key]

    def _note(self) -> None:
        """The peak is about to pass: remember what it was made of."""
        if self._fresh:
            self.at_peak, self._fresh = +self.sites, False

    def _resized(self, original: Any) -> Any:
        def resize_(storage: Any, size: int) -> Any:
            result = original(storage, size)
            if storage._cdata in self._storages:
                self._set(storage._cdata, size)
            return result

        return resize_
