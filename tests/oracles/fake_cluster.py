"""A cluster of any size in one process: PyTorch's fake process group, tensors without storage, and a record of every collective.

The program that runs inside is the real one of one rank: DTensor, FSDP and pipeline stages issue their collectives, nothing travels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from math import prod
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fake_collectives import CollectiveOp
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import flop_registry

Sent = Counter[tuple[str, str, int]]
"""(kind, axis, bytes of the full vector) -> how often."""
FULL_VECTOR: dict[str, tuple[str, Callable[[Any, Any], torch.Tensor]]] = {
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
"""Operator -> what `count` calls it, and its full vector: the result of a gather, the input of a scatter, else what a rank holds."""


class Record(TorchDispatchMode):
    """Collectives and matrix FLOPs of this rank. Operations on DTensors are passed on to the local ones they are made of."""

    def __init__(self, axes: dict[str, str]) -> None:
        super().__init__()
        self.axes = axes
        self.sent: Sent = Counter()
        self.flops = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        out = op(*args, **(kwargs or {}))
        if op._overloadpacket in flop_registry:
            self.flops += flop_registry[op._overloadpacket](*args, **(kwargs or {}), out_val=out)
        if op.namespace in ("c10d", "_c10d_functional") and (found := FULL_VECTOR.get(op._opname)):
            kind, vector = found
            tensor = vector(args, out)
            group = CollectiveOp.get_process_group(op, args).group_name
            self.sent[kind, self.axes[group], tensor.numel() * tensor.element_size()] += 1
        return out

    def over(self, axis: str) -> Counter[tuple[str, int]]:
        """(kind, bytes) -> how often, on one axis."""
        found: Counter[tuple[str, int]] = Counter()
        for (kind, where, size), n in self.sent.items():
            if where == axis:
                found[kind, size] += n
        return found

    def volume(self, kind: str, axis: str) -> int:
        """Bytes of all full vectors of a kind on an axis."""
        return sum(size * n for (k, size), n in self.over(axis).items() if k == kind)


@contextmanager
def fake_cluster(rank: int = 0, **axes: int) -> Iterator[tuple[DeviceMesh, Record]]:
    """The mesh of `axes` (slowest first, such as dp=2, tp=4) as rank `rank` sees it, and the record of what it sends; bf16."""
    before = torch.get_default_dtype()
    dist.init_process_group("fake", rank=rank, world_size=prod(axes.values()), store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
        record = Record({mesh.get_group(axis).group_name: axis for axis in axes})
        with patched(), FakeTensorMode(allow_non_fake_inputs=True), record:
            torch.set_default_dtype(torch.bfloat16)
            yield mesh, record
    finally:
        torch.set_default_dtype(before)
        _clear_sharding_prop_cache()  # plans that name the groups of this cluster
        dist.destroy_process_group()


@contextmanager
def patched() -> Iterator[None]:
    """What PyTorch 2.13 needs to run its own parts on tensors without storage.

    Meshes do real arithmetic on their ranks; shapes of DTensors are worked out outside the record, else global work would be booked
    as local; stages agree on static shapes by a tensor, which here has no value.
    """
    with ExitStack() as stack:
        for name in ("__init__", "__getitem__", "_concatenate"):
            stack.enter_context(replaced(DeviceMesh, name, unset_fake_temporarily))
        stack.enter_context(replaced(ShardingPropagator, "_propagate_tensor_meta_non_cached", _disable_current_modes))
        for name in ("_warmup_forward_vote", "_warmup_backward_result"):
            stack.enter_context(mock.patch.object(PipelineStage, name, lambda *a, **k: SimpleNamespace(item=lambda: 1)))
        yield


def replaced(owner: Any, name: str, around: Callable[[], Any]) -> Any:
    """A patch that runs the method `name` of `owner` inside the context `around()`."""
    original = getattr(owner, name)

    @wraps(original)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with around():
            return original(*args, **kwargs)

    patch = staticmethod(inside) if isinstance(owner.__dict__[name], staticmethod) else inside
    return mock.patch.object(owner, name, patch)
