"""What the running program of this rank computes, sends and holds: matrix FLOPs, every collective
by kind, axis and bytes, in the words of `count`, and the bytes of all live tensors.

A tensor's storage counts from the operation that made it until nothing refers to it. Views count
once. What an operation uses inside itself, and what an allocator leaves between tensors, does not
show here.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.distributed._tools.fake_collectives import CollectiveOp
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from .attention import opened
from .parallel import RankMesh

Sent = Counter[tuple[str, str, int]]
"""(kind, axis, bytes of the full vector) -> how often."""
FULL_VECTOR: dict[str, tuple[str, Callable[[Any, Any], Tensor]]] = {
    "all_gather_into_tensor": ("all_gather", lambda args, out: out),
    "_allgather_base_": ("all_gather", lambda args, out: args[0]),
    "reduce_scatter_tensor": ("reduce_scatter", lambda args, out: args[0]),
    "_reduce_scatter_base_": ("reduce_scatter", lambda args, out: args[1]),
    "all_reduce": ("all_reduce", lambda args, out: args[0]),
    "all_reduce_": ("all_reduce", lambda args, out: args[0]),
    "allreduce_": ("all_reduce", lambda args, out: args[0][0]),
    "all_to_all_single": ("all_to_all", lambda args, out: args[0]),
    "send": ("send", lambda args, out: args[0][0]),
}
"""Operator -> what `count` calls it, and its full vector: the result of a gather, the input of a
scatter or an exchange, else what a rank holds.
"""


def _attention(
    q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any
) -> int:
    return int(sdpa_flop_count(q.shape, k.shape, v.shape))  # type: ignore[no-untyped-call]


def _attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any
) -> int:
    return int(sdpa_backward_flop_count(grad.shape, q.shape, k.shape, v.shape))  # type: ignore[no-untyped-call]


FLOPS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""What PyTorch 2.13's own table of formulas lacks. As in it, the causal mask saves nothing."""


def _flops(op: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Matrix FLOPs of one operation, two a multiply-add."""
    if formula := FLOPS.get(op._overloadpacket):
        return formula(*args, **kwargs)
    known = flop_registry.get(op._overloadpacket)
    return int(known(*args, **kwargs, out_val=out)) if known else 0


class TrafficCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which FLOPs and collectives are counted; "world" is the group of all ranks.

    A group of one rank sends nothing."""

    def __init__(self, axes: Mapping[str, str]) -> None:
        """axes: name of a process group -> axis (`axes_of` a mesh)."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.axes = axes
        self.sent: Sent = Counter()
        self.flops = 0

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation and count it. Operations on DTensors are made of local ones, which come
        here too.
        """
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        out = opened(self, op, args, kwargs or {})
        self.flops += _flops(op, args, kwargs or {}, out)
        if op.namespace in ("c10d", "_c10d_functional") and (
            collective := FULL_VECTOR.get(op._opname)
        ):
            kind, vector = collective
            tensor = vector(args, out)
            group = CollectiveOp.get_process_group(op, args)
            if group.size() == 1:
                return out
            # one group serves all axes that span the world; only experts exchange
            axis = (
                "ep"
                if kind == "all_to_all"
                else self.axes.get(
                    group.group_name,
                    "world",
                )
            )
            self.sent[kind, axis, tensor.numel() * tensor.element_size()] += 1
        return out


def axes_of(mesh: RankMesh) -> dict[str, str]:
    """Name of a process group -> axis, for the groups of a run."""
    axes: dict[str, str] = {
        mesh.group(name).group_name: name
        for name in mesh.whole.mesh_dim_names or ()
    }
    for dim, name in enumerate(mesh.replicas.mesh_dim_names or ()):
        group = mesh.replicas.get_group(dim)
        # the replicas are the cp ranks, and count there
        alone = mesh.axis("dp").size() == 1 and mesh.axis("cp").size() > 1
        axis = "copies" if name == "copies" else "cp" if alone else "replicas"
        axes[group.group_name] = axis
    if mesh.experts is not None:
        for name in ("edp", "ep"):
            axes.setdefault(mesh.experts.get_group(name).group_name, name)
    return axes


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
