"""The decoders of `torch_models.py` cut over a mesh by PyTorch's own parts: DTensor (tp),
all-to-all (ep), gathers (cp), FSDP (dp).

Sequence parallel: norms and residuals on 1/tp of the sequence, all-gather before column-parallel
and reduce-scatter after row-parallel matrices. Without it they are whole and an all-reduce closes
each pair.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import (
    all_gather_single_autograd,
    all_to_all_single_autograd,
    reduce_scatter_single_autograd,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as fn
from torch.utils.checkpoint import checkpoint
from torch_models import (
    Block,
    Core,
    Experts,
    Grouped,
    Head,
    Kernel,
    activation,
    norm_of,
)

from meshwright import Model

Plan = dict[str, Any]


class Stage(nn.Module):
    """A part of a decoder: some layers, with the embedding in front and the head behind if it is an
    end of the model.
    """

    def __init__(self, m: Model, layers: range, kernel: Kernel) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == m.layers
        self.embedding = nn.Embedding(m.vocab, m.hidden) if first else None
        self.positions = (
            nn.Embedding(m.seq, m.hidden)
            if first and m.positions == "learned"
            else None
        )
        self.embedding_norm = (
            norm_of(m) if first and m.embedding_norm else None
        )
        self.layers = nn.ModuleList(Block(m, i, kernel) for i in layers)
        self.head = Head(m) if last else None

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
            x = (
                x
                if self.positions is None
                else x + self.positions(torch.arange(x.shape[1]))
            )
            x = x if self.embedding_norm is None else self.embedding_norm(x)
        for block in self.layers:
            x = block(x)
        return x if self.head is None else self.head(x)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Loss on fp32 logits whose vocabulary stays cut over tp."""
    return fn.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def step(stage: Stage, tokens: Tensor) -> None:
    """Forward and backward of one microbatch of a stage that is the whole model."""
    with loss_parallel():
        cross_entropy(stage(tokens), tokens).backward()


def tensor_parallel(
    stage: Stage, m: Model, mesh: DeviceMesh, sequence: bool
) -> None:
    """Cut a stage over the tp mesh, in place."""
    cut = Shard(1) if sequence else Replicate()
    plan: Plan = {}
    if stage.embedding is not None:
        plan["embedding"] = RowwiseParallel(
            input_layouts=Replicate(), output_layouts=cut
        )
    if stage.head is not None:
        plan["head.logits"] = ColwiseParallel(
            input_layouts=cut, output_layouts=Shard(-1), use_local_output=False
        )
    if sequence:
        for name in ("head.norm", "embedding_norm"):
            if getattr(stage, name.split(".")[0]) is not None:
                plan[name] = SequenceParallel(use_local_output=True)
    parallelize_module(stage, mesh, plan)
    for block in stage.layers:
        parallelize_module(block, mesh, block_plan(block, cut, m))
        localise(block, mesh, cut, m)


def block_plan(block: Block, cut: Any, m: Model) -> Plan:
    """How the modules of a block are cut."""
    column = ColwiseParallel(input_layouts=cut)
    row = RowwiseParallel(output_layouts=cut)
    plan: Plan = {
        f"{part}.up": column
        for part in ("ffn", "shared")
        if hasattr(block, part)
    }
    plan |= {
        f"{part}.down": row
        for part in ("ffn", "shared")
        if hasattr(block, part)
    }
    alone = ["norms." + str(i) for i in range(len(block.norms))]
    if m.mla:
        up = ("q_up", "kv_up") if m.mla.q_lora_rank else ("q", "kv_up")
        plan |= {f"attention.{name}": column for name in up}
        alone += [
            f"attention.{name}"
            for name in ("q_down", "q_norm", "kv_down", "kv_norm")
            if hasattr(block.attention, name)
        ]
    else:
        plan["attention.qkv"] = column
    plan["attention.out"] = row
    if hasattr(block, "experts"):
        alone.append("experts.router")
    if m.moe and m.moe.shared_gate:
        alone.append("shared.gate")
    if isinstance(cut, Shard):
        dims = {"experts.router": 0}
        plan |= {
            name: SequenceParallel(
                sequence_dim=dims.get(name, 1), use_local_output=True
            )
            for name in alone
        }
    return plan | parallel_block_plan(cut) if len(block.norms) == 1 else plan


def parallel_block_plan(cut: Any) -> Plan:
    """Attention and feed-forward side by side: one gather for both, one sum of both."""
    row = RowwiseParallel(output_layouts=Partial(), use_local_output=False)
    return {
        "into": PrepareModuleInput(
            input_layouts=(cut,), desired_input_layouts=(Replicate(),)
        ),
        "out_of": PrepareModuleInput(
            input_layouts=(Partial(),),
            desired_input_layouts=(cut,),
            use_local_output=True,
        ),
        "attention.qkv": ColwiseParallel(),
        "ffn.up": ColwiseParallel(),
        "attention.out": row,
        "ffn.down": row,
    }


def localise(block: Block, mesh: DeviceMesh, cut: Any, m: Model) -> None:
    """Heads of this rank, and the one exchange of latent attention that no matrix makes."""
    block.attention.H //= mesh.size()
    if m.mla:
        block.attention.rotary = Rotary(mesh, cut)
    else:
        block.attention.K //= mesh.size()


class Rotary(nn.Module):
    """The rotary part of the key, made from this rank's tokens, for the heads of all ranks."""

    def __init__(self, mesh: DeviceMesh, cut: Any) -> None:
        super().__init__()
        self.mesh, self.cut = mesh, cut

    def forward(self, x: Tensor) -> Tensor:
        whole = DTensor.from_local(x, self.mesh, [self.cut]).redistribute(
            placements=[Replicate()]
        )
        return whole.to_local(grad_placements=[Partial()])


class ExpertParallel(nn.Module):
    """Experts spread over the ranks of `ep`, each cut over the ranks of `etp`; balanced routing."""

    def __init__(self, experts: Experts, m: Model, ep: Any, etp: Any) -> None:
        super().__init__()
        assert m.moe
        self.router, self.k, self.gated, self.ep, self.etp = (
            experts.router,
            experts.k,
            experts.gated,
            ep,
            etp,
        )
        self.here, width = (
            m.moe.experts // ep.size(),
            m.moe.expert_ffn // (etp.size() if etp else 1),
        )
        self.up = Grouped(
            self.here,
            m.hidden,
            width * (2 if m.gated else 1),
            m.moe.expert_bias,
        )
        self.down = Grouped(self.here, width, m.hidden, m.moe.expert_bias)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        share, chosen = self.router(tokens).softmax(-1).topk(self.k)
        order = chosen.flatten().argsort()
        got = all_to_all_single_autograd(
            tokens[order // self.k], None, None, self.ep
        )
        got = all_gather_single_autograd(got, 0, self.etp) if self.etp else got
        sources = self.ep.size() * (self.etp.size() if self.etp else 1)
        by_expert = (
            got.unflatten(0, (sources, self.here, -1))
            .transpose(0, 1)
            .flatten(1, 2)
        )
        done = self.down(activation(self.up(by_expert), self.gated))
        done = done.unflatten(1, (sources, -1)).transpose(0, 1).flatten(0, 2)
        done = (
            reduce_scatter_single_autograd(done, "sum", 0, self.etp)
            if self.etp
            else done
        )
        back = all_to_all_single_autograd(
            done, None, None, self.ep
        ) * share.flatten()[order].unsqueeze(-1)
        return (
            torch.zeros_like(tokens)
            .index_add(0, order // self.k, back)
            .view_as(x)
        )


def expert_parallel(stage: Stage, m: Model, ep: Any, etp: Any = None) -> None:
    """Spread the experts of a stage over process groups, in place."""
    for block in stage.layers:
        if hasattr(block, "experts"):
            block.experts = ExpertParallel(block.experts, m, ep, etp)


class ContextCore(nn.Module):
    """Attention of this rank's queries to the keys and values of all cp ranks, which are gathered
    and, in backward, gathered again.
    """

    def __init__(self, core: Core, group: Any) -> None:
        super().__init__()
        self.core, self.group = core, group

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        result: Tensor = checkpoint(
            self.attend, q, k, v, use_reentrant=False, preserve_rng_state=False
        )
        return result

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kv = torch.cat([k, v], dim=-1).movedim(2, 0).contiguous()
        whole = all_gather_single_autograd(kv, 0, self.group).movedim(0, 2)
        k, v = whole.split([k.shape[-1], v.shape[-1]], dim=-1)
        result: Tensor = self.core(q, k, v)
        return result


def context_parallel(stage: Stage, group: Any) -> None:
    """Gather keys and values over cp, in place; the program runs on 1/cp of the sequence."""
    for block in stage.layers:
        block.attention.core = ContextCore(block.attention.core, group)
