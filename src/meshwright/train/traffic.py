"""What the running program sends: every collective of this rank by kind, axis and bytes, in the words of `count`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed._tools.fake_collectives import CollectiveOp
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from .parallel import Mesh

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
"""Operator -> what `count` calls it, and its full vector: the result of a gather, the input of a scatter or an exchange, else what a rank holds."""


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which collectives are counted. Those of all ranks together are on the axis "world"."""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        names = mesh.whole.mesh_dim_names or ()
        self.axes = {mesh.whole.get_group(name).group_name: name for name in names}
        for dim, name in enumerate(mesh.replicas.mesh_dim_names or ()):
            group = mesh.replicas.get_group(dim).group_name
            if self.axes.get(group, "dp") == "dp":  # with dp = 1 the replicas are the cp ranks, and count there
                self.axes[group] = "copies" if name == "copies" else "replicas"
        if mesh.experts is not None:
            self.axes |= {mesh.experts.get_group(name).group_name: name for name in ("edp", "ep", "etp")}
        self.sent: Sent = Counter()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; count it if it is a collective. Operations on DTensors are made of local ones, which come here too."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        out = op(*args, **(kwargs or {}))
        if op.namespace in ("c10d", "_c10d_functional") and (found := FULL_VECTOR.get(op._opname)):
            kind, vector = found
            tensor = vector(args, out)
            group = CollectiveOp.get_process_group(op, args)
            axis = self.axes.get(group.group_name, "world" if group.size() == dist.get_world_size() else "pair")
            self.sent[kind, axis, tensor.numel() * tensor.element_size()] += 1
        return out

    def over(self, axis: str) -> Counter[tuple[str, int]]:
        """(kind, bytes) -> how often, on one axis."""
        found: Counter[tuple[str, int]] = Counter()
        for (kind, where, size), times in self.sent.items():
            if where == axis:
                found[kind, size] += times
        return found

    def volume(self, axis: str) -> dict[str, int]:
        """kind -> bytes of all full vectors, on one axis."""
        found: Counter[str] = Counter()
        for (kind, size), times in self.over(axis).items():
            found[kind] += size * times
        return dict(found)
