"""Tensor and sequence parallelism of a layer, on plain tensors (Shoeybi et al. 2019; Korthikanti et
al. 2022): column-parallel into, row-parallel out of attention and feed-forward.

Weights are DTensors, which the optimizer, FSDP and checkpoints go by; what is computed of them is
this rank's part, taken as a layer begins, and what is exchanged is written out here. Through
DTensor's own dispatch a layer takes the host several times as long, and so it does where DTensors
go into a compiled layer (benchmarks/layer_host.md).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.nn import functional as fn

from .model import Attention, Block
from .moe import MixtureOfExperts

ops = torch.ops._c10d_functional


class TensorRanks:
    """The tp ranks, and how the residual stream lies over them."""

    def __init__(self, mesh: DeviceMesh, sequence: bool) -> None:
        """sequence: each has 1/tp of the tokens; else all have all."""
        self.mesh, self.sequence = mesh, sequence
        self.size, self.first = mesh.size(), mesh.get_local_rank() == 0
        self.name: Any = mesh.get_group().group_name

    def gathered(self, x_BTD: Tensor) -> Tensor:
        """Tokens of all ranks gathered, in order."""
        B, T, D = x_BTD.shape
        n = self.size
        every = ops.all_gather_into_tensor(x_BTD.contiguous(), n, self.name)
        whole: Tensor = ops.wait_tensor(every).view(n, B, T, D)
        return whole.transpose(0, 1).reshape(B, n * T, D)

    def scattered(self, x_BTD: Tensor) -> Tensor:
        """The sum over ranks of this rank's tokens."""
        B, T, D = x_BTD.shape
        n = self.size
        parts = x_BTD.view(B, n, T // n, D).transpose(0, 1)
        parts = parts.reshape(n * B, T // n, D)
        shard: Tensor = ops.wait_tensor(
            ops.reduce_scatter_tensor(parts, "sum", n, self.name)
        )
        return shard

    def summed(self, x: Tensor) -> Tensor:
        """The sum over ranks."""
        total: Tensor = ops.wait_tensor(
            ops.all_reduce(x.contiguous(), "sum", self.name)
        )
        return total


class Into(torch.autograd.Function):
    """The residual stream on its way into column-parallel matrices: whole; its gradient is the sum
    of what the ranks have.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: TensorRanks) -> Tensor:
        """Gathered, where its tokens are shared out."""
        ctx.ranks = ranks
        return ranks.gathered(x) if ranks.sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Back to the ranks."""
        ranks = ctx.ranks
        how = ranks.scattered if ranks.sequence else ranks.summed
        return how(grad), None


class OutOf(torch.autograd.Function):
    """What row-parallel matrices make: the sum over ranks, to the residual stream."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: TensorRanks) -> Tensor:
        """Summed, and shared out if tokens are."""
        ctx.ranks = ranks
        return ranks.scattered(x) if ranks.sequence else ranks.summed(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Whole again."""
        ranks = ctx.ranks
        return ranks.gathered(grad) if ranks.sequence else grad, None


class Biased(torch.autograd.Function):
    """A bias that one rank adds before the sum, while its gradient is the same on all. Apart from
    `OutOf`: the second half of a backward pass runs whatever a weight hangs on again, and would
    gather again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, adds: bool) -> Tensor:
        """adds: this is the rank."""
        return x + bias if adds else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Of all tokens."""
        return grad, grad.flatten(0, -2).sum(0), None


def cut(
    module: Any, ranks: TensorRanks, sums: bool = False, **how: Placement
) -> None:
    """Give parameters their placement on the ranks. sums: gradients on a rank are parts
    of a sum; else those of its part.
    """
    module.sums = sums
    for name, placement in how.items():
        if (p := getattr(module, name, None)) is not None:
            whole = distribute_tensor(p, ranks.mesh, [placement])
            module.register_parameter(name, nn.Parameter(whole))


def take_parts(block: nn.Module) -> None:
    """Take the parts as the layer begins: FSDP has gathered its weights by then, and what is
    compiled (inside, in `Block.run`) begins later.

    A part is an attribute of its module, which Python finds before the parameter of that name.
    """
    every: list[Any] = [m for m in block.modules() if hasattr(m, "sums")]

    def take(block: nn.Module, given: Any) -> None:
        for module in every:
            for name, p in module._parameters.items():
                if p is not None:
                    vars(module)[name] = LocalWeight.apply(p, module.sums)  # type: ignore[no-untyped-call]

    block.register_forward_pre_hook(take)


class LocalWeight(torch.autograd.Function):
    """`DTensor.to_local` without its description of the gradient made anew in every backward pass,
    which is a third of an eager layer's time on the host.
    """

    @staticmethod
    def forward(ctx: Any, p: DTensor, sums: bool) -> Tensor:
        ctx.spec, ctx.sums = p._spec, sums
        local = p._local_tensor
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The gradient of the whole weight."""
        spec, whole = ctx.spec, cast(Any, DTensor)
        if ctx.sums:
            meta = spec.tensor_meta
            spec = DTensorSpec(spec.mesh, (Partial(),), tensor_meta=meta)
        return whole(grad.contiguous(), spec, requires_grad=False), None


def column_parallel(linear: Any, ranks: TensorRanks) -> None:
    """Each rank makes its share of the features, of an input that is whole."""
    cut(linear, ranks, weight=Shard(0), bias=Shard(0))


def row_parallel(linear: Any, ranks: TensorRanks) -> None:
    """Each rank takes its share of the features in; the sum is handed on."""
    cut(linear, ranks, weight=Shard(1), bias=Replicate())

    def forward(x: Tensor) -> Any:
        y = fn.linear(x, linear.weight)
        if linear.bias is not None:
            y = Biased.apply(y, linear.bias, ranks.first)  # type: ignore[no-untyped-call]
        return OutOf.apply(y, ranks)  # type: ignore[no-untyped-call]

    linear.forward = forward


def sum_gradients(module: Any, ranks: TensorRanks) -> None:
    """For a module whose weights all ranks hold, while each has other rows (tokens, or heads):
    their gradients are parts of a sum.
    """
    cut(module, ranks, sums=True, weight=Replicate(), bias=Replicate())


def whole_input(module: nn.Module, ranks: TensorRanks) -> None:
    """A module takes the whole of what the residual stream has."""

    def gather(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        x, *rest = given
        return (Into.apply(x, ranks), *rest)  # type: ignore[no-untyped-call]

    module.register_forward_pre_hook(gather)


def layer(block: Block, tp: DeviceMesh, sequence: bool) -> None:
    """Cut a layer, in place."""
    ranks = TensorRanks(tp, sequence)
    attention: Attention = block.attention
    for linear in (attention.wq, attention.wk, attention.wv):
        column_parallel(linear, ranks)
    row_parallel(attention.wo, ranks)
    whole_input(attention, ranks)
    for of_heads in (attention.q_norm, attention.k_norm):
        if of_heads is not None:
            sum_gradients(of_heads, ranks)
    if sequence:
        sum_gradients(block.attention_norm, ranks)
        sum_gradients(block.ffn_norm, ranks)
    if isinstance(block.ffn, MixtureOfExperts):
        mixture(block.ffn, ranks)
    else:
        dense(block.ffn, ranks)
    take_parts(block)


def dense(ffn: Any, ranks: TensorRanks) -> None:
    """A feed-forward."""
    column_parallel(ffn.up, ranks)
    if ffn.gate is not None:
        column_parallel(ffn.gate, ranks)
    row_parallel(ffn.down, ranks)
    whole_input(ffn, ranks)


def mixture(moe: MixtureOfExperts, ranks: TensorRanks) -> None:
    """Each rank routes its own tokens; shared experts are cut as a feed-forward is."""
    sum_gradients(moe.router, ranks)
    if moe.shared_gate is not None:
        sum_gradients(moe.shared_gate, ranks)
    if moe.shared is not None:
        dense(moe.shared, ranks)
