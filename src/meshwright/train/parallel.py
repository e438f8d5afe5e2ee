"""Spread a stage over ranks: which rank stands where, tensor and sequence parallelism of weights
that are DTensors, context parallelism by gathered keys, experts by all-to-all, ZeRO by FSDP2.

ZeRO over the replicas (dp x cp): 0 `replicate` (gradients all-reduced), 1 and 2 `fully_shard` with
weights gathered once a step, 3 `fully_shard` with weights gathered for each pass. Experts have
replicas of their own (edp). When gradients are reduced is the business of `pipeline`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed._functional_collectives import (
    all_gather_single_autograd,
    wait_tensor,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.attention import SDPBackend

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.ranks import EXPERTS, OUTER_FIRST, grid
from ..program.tiles import chunks
from .attention import Rows, attend
from .model import Decoder
from .tensor_parallel import layer

Plan = dict[str, Any]
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Numbers that products are computed in while weights and gradients stay fp32."""


@dataclass(frozen=True)
class RankMesh:
    """The ranks of a run, by axis."""

    whole: DeviceMesh
    """(pp, dp, cp, tp); with HSDP (pp, copies, dp, cp, tp)."""
    replicas: DeviceMesh
    """The ranks among which a weight is synchronised: dp x cp; with HSDP two axes, (copies,
    shards).
    """
    experts: DeviceMesh | None = None
    """(pp, edp, ep, etp), where the model has experts."""

    def axis(self, name: str) -> DeviceMesh:
        """The ranks that differ from this one in one axis."""
        return self.whole[name]

    def index(self, name: str) -> int:
        """This rank's place on an axis."""
        return int(self.whole.get_local_rank(name))

    @property
    def replica(self) -> int:
        """Which 1/dp of the batch is this rank's."""
        if "copies" not in (self.whole.mesh_dim_names or ()):
            return self.index("dp")
        return self.index("copies") * self.axis("dp").size() + self.index("dp")

    def group(self, name: str) -> ProcessGroup:
        """The process group of an axis."""
        return self.whole.get_group(name)


def mesh(
    layout: Layout, device: str, shards: int = 0, moe: bool = False
) -> RankMesh:
    """The mesh of a placed layout. shards: dp ranks that share out the state (HSDP); 0 = all of
    them. moe: the model has experts.
    """
    ranks = grid(layout)
    names = OUTER_FIRST
    if hybrid := bool(shards) and shards < layout.dp:
        pp, dp, cp, tp = ranks.shape
        ranks = ranks.reshape(pp, dp // shards, shards, cp, tp)
        names = ("pp", "copies", "dp", "cp", "tp")
    whole = DeviceMesh(device, ranks, mesh_dim_names=names)
    inner = (
        whole["dp"]
        if layout.cp == 1
        else whole["dp", "cp"]._flatten("replicas")
    )
    experts = (
        DeviceMesh(device, grid(layout, EXPERTS), mesh_dim_names=EXPERTS)
        if moe
        else None
    )
    if not hybrid:
        return RankMesh(whole, inner, experts)
    return RankMesh(
        whole, whole["copies", "dp" if layout.cp == 1 else "replicas"], experts
    )


def cut_stage(stage: Decoder, job: Job, layout: Layout, m: RankMesh) -> None:
    """Cut a stage (on the meta device) over the mesh, in place."""
    if layout.tp > 1:
        tensor_parallel(stage, m.axis("tp"), layout.sequence_parallel)
        stage.tie()
    if layout.cp > 1:
        context_parallel(stage, m.group("cp"), m.index("cp"))
    if layout.ep > 1 and m.experts is not None:
        expert_parallel(stage, m.experts["ep"])
    data_parallel(stage, job, layout, m)


def tensor_parallel(
    stage: Decoder, tp: DeviceMesh, sequence_parallel: bool
) -> None:
    """Layers as `tensor_parallel.layer` cuts them; vocabulary-parallel embedding, head and loss.

    sequence_parallel: norms and residuals on 1/tp of the sequence, and stages hand on these shards;
    else whole on every rank.
    """
    cut: Any = Shard(1) if sequence_parallel else Replicate()
    if sequence_parallel:
        stage.part, stage.parts = tp.get_local_rank(), tp.size()
    plan: Plan = {
        "embedding": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=cut
        ),
        "head": ColwiseParallel(input_layouts=cut, output_layouts=Shard(-1)),
    }
    if sequence_parallel:
        plan["positions"] = SequenceParallel(
            sequence_dim=0, use_local_output=True
        )
        plan["norm"] = SequenceParallel(use_local_output=True)
    parallelize_module(
        stage,
        tp,
        {
            name: how
            for name, how in plan.items()
            if getattr(stage, name) is not None
        },
    )
    if stage.embedding is not None:
        # torch.compile takes no tensor that is still on its way
        stage.embedding.register_forward_hook(
            lambda module, given, x: wait_tensor(x)  # type: ignore[no-untyped-call]
        )
    for block in stage.blocks:
        layer(block, tp, sequence_parallel)


def expert_parallel(stage: Decoder, ep: DeviceMesh) -> None:
    """Each ep rank keeps E/ep experts of every layer."""
    for experts in stage.experts:
        experts.group = ep.get_group()
        for maps in experts.children():
            for name, p in maps.named_parameters():
                maps.register_parameter(
                    name, nn.Parameter(distribute_tensor(p, ep, [Shard(0)]))
                )


def attend_to_all(
    q_BTHh: Tensor,
    k_BTKh: Tensor,
    v_BTKh: Tensor,
    rows: Rows,
    kernels: Sequence[SDPBackend],
    group: ProcessGroup,
) -> Tensor:
    """Attention of this rank's queries to the keys and values of all cp ranks, gathered here and
    reduce-scattered in backward.
    """
    kv_TBKh = torch.cat([k_BTKh, v_BTKh], dim=-1).transpose(0, 1).contiguous()
    every = in_order(
        all_gather_single_autograd(kv_TBKh, 0, group), group.size()
    )
    k_BSKh, v_BSKh = every.transpose(0, 1).chunk(2, dim=-1)
    return attend(q_BTHh, k_BSKh, v_BSKh, rows=rows, kernels=kernels)


def in_order(x_S: Tensor, cp: int) -> Tensor:
    """What cp ranks hold of a sequence, one after the other, in the order of the sequence: each
    holds a chunk of its first half and the mirrored one of its second (`tiles.chunks`).
    """
    first, second = x_S.view(cp, 2, -1, *x_S.shape[1:]).unbind(1)
    return torch.cat([first.flatten(0, 1), second.flip(0).flatten(0, 1)])


def context_parallel(stage: Decoder, group: ProcessGroup, index: int) -> None:
    """The stage works on the index-th share of the sequence."""
    stage.at = chunks(stage.length, group.size(), index)
    for block in stage.blocks:
        block.attention.core = partial(attend_to_all, group=group)


def data_parallel(
    stage: Decoder, job: Job, layout: Layout, m: RankMesh
) -> None:
    """Synchronise gradients over the replicas, layer by layer, and shard what the ZeRO stage says;
    mixed precision lives here too.
    """
    mixed = HALF.get(job.precision.compute)
    stage.dtype = mixed or torch.float32
    edp = m.experts["edp"] if m.experts is not None else None
    if (
        m.replicas.size() == 1
        and (edp is None or edp.size() == 1)
        and not mixed
    ):
        return
    policy = (
        MixedPrecisionPolicy(mixed, torch.float32)
        if mixed
        else MixedPrecisionPolicy()
    )

    def over(part: Any, ranks: DeviceMesh) -> None:
        if layout.zero == 0:
            replicate(part, mesh=ranks, mp_policy=policy)
        else:
            cut = partial(evenly, ranks=ranks.size(-1))
            fully_shard(
                part,
                mesh=ranks,
                mp_policy=policy,
                reshard_after_forward=layout.zero == 3,
                shard_placement_fn=cut,
            )

    if edp is not None:
        for experts in stage.experts:
            over(experts, edp)
    for part in (*stage.blocks, *end_modules(stage), stage):
        over(part, m.replicas)


def end_modules(stage: Decoder) -> list[list[nn.Module]]:
    """What a stage holds outside its layers, in groups that are gathered and reduced together:
    embedding and learned positions; last norm and head. One matrix that is both stays with the
    stage itself.
    """
    if (
        stage.embedding is not None
        and stage.head is not None
        and stage.m.tied_embeddings
    ):
        return []
    groups = ((stage.embedding, stage.positions), (stage.norm, stage.head))
    present = (
        [part for part in group if part is not None] for group in groups
    )
    return [group for group in present if group]


def evenly(p: nn.Parameter, ranks: int) -> Shard:
    """ZeRO cuts a weight along its first dim that the ranks divide (whole experts, if they do), so
    that nothing is padded; the first if none is.
    """
    shape = p.to_local().shape if isinstance(p, DTensor) else p.shape
    return Shard(
        next((dim for dim, n in enumerate(shape) if n % ranks == 0), 0)
    )
