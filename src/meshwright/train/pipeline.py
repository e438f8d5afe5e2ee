"""The order of the microbatches of one step: PyTorch's pipeline schedules, or plain accumulation
where there is one stage.

An engine runs this rank's tokens and targets, [m b, T] each; afterwards the gradients of its stages
are those of the mean loss over the replica's batch, averaged over replicas; losses and gradients
are times the scale of fp16. It returns the loss of each of the m microbatches where the last stage
is, else nothing. Under `torch.no_grad` it makes forward passes only.

A stage's receive buffers live as long as their microbatch, so that their number does not grow with
that of the microbatches. PyTorch 2.13 makes one for every microbatch and boundary before the first
and keeps it for the run. Here one is made when its receive is posted, and let go when the
microbatch is through: an activation after its backward pass (autograd needs it until then), a
gradient with the pass that reads it. The allocator hands the bytes on, which is all that a pool of
our own would do.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward
from torch.distributed.pipelining._utils import _make_tensor_from_meta
from torch.distributed.pipelining.schedules import (
    PipelineScheduleSingle,
    get_schedule_class,
)

from ..describe.job import Job
from ..describe.layout import Layout
from ..layout.stages import stage_count
from ..program.messages import reduced_at_once
from ..schedule import get as schedule_named
from .loss import Columns, loss
from .model import Decoder
from .optimizer import Criterion, Scaler
from .parallel import RankMesh
from .record import Recorder


def criterion(
    job: Job, layout: Layout, mesh: RankMesh, scaler: Scaler, z: float = 0.0
) -> Criterion:
    """The loss of one microbatch (times the scale of fp16), from logits whose vocabulary is cut
    over tp. z: as in `Columns`.
    """
    tp = int(layout.tp)
    m = job.model
    here = m.padded_vocab // tp
    first = mesh.index("tp") * here
    group = mesh.group("tp") if tp > 1 else None
    columns = Columns(first, min(max(m.vocab - first, 0), here), group, z)
    return scaler.scaled(lambda logits, target: loss(logits, target, columns))


class Accumulation:
    """Microbatches one after the other, where a rank has the whole model. Gradients are reduced
    after the last one, or (ZeRO 2 and 3) after each.
    """

    def __init__(
        self,
        stage: Decoder,
        layout: Layout,
        criterion: Criterion,
        recorder: Recorder,
    ) -> None:
        self.stage, self.layout = stage, layout
        self.criterion, self.recorder = criterion, recorder

    def run(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """Gradients of all of them; their losses."""
        losses = []
        b = int(self.layout.microbatch)
        count = len(tokens) // b
        for i, (x, y) in enumerate(
            zip(torch.split(tokens, b), torch.split(targets, b), strict=True)
        ):
            last = i == count - 1
            if isinstance(self.stage, FSDPModule):
                self.stage.set_requires_gradient_sync(
                    last or reduced_at_once(self.layout)
                )
                self.stage.set_reshard_after_backward(
                    last or self.layout.zero == 3
                )
            self.stage.begin(i * b, b)
            with self.recorder.part("F", 0, i):
                loss = self.criterion(self.stage(x), y)
            if torch.is_grad_enabled():
                with self.recorder.part("B", 0, i):
                    (loss / count).backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return losses


class Pipeline:
    """Microbatches through the stages of all pp ranks, in the order of one of PyTorch's
    schedules.
    """

    def __init__(
        self,
        stages: dict[int, Decoder],
        layout: Layout,
        group: ProcessGroup,
        criterion: Criterion,
        recorder: Recorder,
    ) -> None:
        """group: the ranks of the pp axis."""
        self.stages, self.layout, self.group = stages, layout, group
        self.criterion, self.recorder = criterion, recorder
        self.schedules: dict[int, Any] = {}
        """By the number of microbatches, which grows with the batch."""

    def run(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """As `Accumulation.run`; losses where the last stage is."""
        count = len(tokens) // int(self.layout.microbatch)
        if count not in self.schedules:
            self.schedules[count] = self.schedule(count)
        first = 0 in self.stages
        last = stage_count(self.layout) - 1 in self.stages
        losses: list[Tensor] = []
        inputs = (tokens,) if first else ()
        at_end = {"target": targets, "losses": losses} if last else {}
        schedule = self.schedules[count]
        run = schedule.step if torch.is_grad_enabled() else schedule.eval
        run(*inputs, return_outputs=False, **at_end)
        return [loss.detach() for loss in losses]

    def schedule(self, microbatches: int) -> Any:
        """PyTorch's schedule over the stages of this rank."""
        stages = [
            LateBufferStage(
                stage,
                number,
                layout=self.layout,
                group=self.group,
                recorder=self.recorder,
            )
            for number, stage in self.stages.items()
        ]
        order = schedule_named(self.layout.schedule)
        schedule_class: Any = get_schedule_class(str(order.torch_name))
        single = issubclass(schedule_class, PipelineScheduleSingle)
        return schedule_class(
            stages[0] if single else stages,
            microbatches,
            loss_fn=self.recorder.longer(self.criterion),
            scale_grads=True,
        )


def ends(stage: Decoder, layout: Layout) -> tuple[Tensor, Tensor]:
    """(input, output) of a stage for one microbatch, without storage: so stages need not find out
    by a trial run.
    """
    b = int(layout.microbatch)
    T = stage.length
    tp = int(layout.tp)
    shard = T // (tp if layout.sequence_parallel else 1)
    tokens = torch.empty(b, T, dtype=torch.int64, device="meta")
    hidden = torch.empty(
        b,
        shard,
        stage.m.hidden,
        dtype=stage.dtype,
        device="meta",
        requires_grad=True,
    )
    logits = torch.empty(
        b,
        T,
        stage.m.padded_vocab // tp,
        dtype=stage.dtype,
        device="meta",
        requires_grad=True,
    )
    return (
        hidden if stage.embedding is None else tokens,
        hidden if stage.head is None else logits,
    )


class LateBufferStage(PipelineStage):
    """A `PipelineStage` that makes its receive buffers as late as it can. What PyTorch's schedules
    call for an action of the pipeline is a part of the record.
    """

    def __init__(
        self,
        stage: Decoder,
        number: int,
        layout: Layout,
        group: ProcessGroup,
        recorder: Recorder,
    ) -> None:
        """group: the ranks of the pp axis."""
        super().__init__(
            stage,
            number,
            stage_count(layout),
            next(stage.parameters()).device,
            *ends(stage, layout),
            group=group,
        )
        self.sequences, self.recorder = int(layout.microbatch), recorder
        self.sharded = reduced_at_once(layout)
        """ZeRO 2 and 3: gradients are reduced after each microbatch, and kept as shards."""

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: torch.Tensor | None = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> None:
        """One microbatch backward. Schedules keep every loss to the end of the step, and its graph
        would keep what the stage was sent.
        """
        kind = "B" if full_backward else "I"
        with self.recorder.part(kind, self.stage_index, bwd_chunk_id):
            super().backward_one_chunk(
                bwd_chunk_id, loss, full_backward, last_backward
            )
            if loss is not None and full_backward:
                loss.detach_()

    def backward_weight_one_chunk(
        self, bwd_chunk_id: int, last_backward: bool = False
    ) -> None:
        """The half of a microbatch's backward pass that makes the gradients of weights."""
        with self.recorder.part("W", self.stage_index, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        """Gradients over the replicas, where a schedule asks for it."""
        with self.recorder.part("reduce", self.stage_index):
            super().perform_reduce_grad(grad_scale_factor)

    def backward_maybe_with_nosync(
        self,
        backward_type: str,
        bwd_kwargs: dict[str, Any],
        last_backward: bool = False,
    ) -> Any:
        """One microbatch backward. PyTorch's own keeps the gradients of a stage whole until the
        last one, whatever FSDP shards.
        """
        module = self.submod
        if not (
            self.sharded
            and backward_type == "full"
            and isinstance(module, FSDPModule)
        ):
            return super().backward_maybe_with_nosync(
                backward_type, bwd_kwargs, last_backward
            )
        # what was copied to be reduced is let go
        module.set_is_last_backward(True)
        module.set_reshard_after_backward(False)
        module.set_requires_gradient_sync(True)
        through = (
            bwd_kwargs["stage_output"],
            bwd_kwargs["output_grads"],
            bwd_kwargs["input_values"],
        )
        return stage_backward(*through), None

    def forward_one_chunk(
        self, fwd_chunk_id: int, *args: Any, **options: Any
    ) -> Any:
        """One microbatch forward; the module is told which sequences of the step they are."""
        module: Any = self.submod
        with self.recorder.part("F", self.stage_index, fwd_chunk_id):
            module.begin(fwd_chunk_id * self.sequences, self.sequences)
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def _setup_forward_recv_info(
        self, num_microbatches: int, has_backward: bool
    ) -> None:
        with Nowhere(self):
            super()._setup_forward_recv_info(num_microbatches, has_backward)
        self._let_go(self.args_recv_info)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        with Nowhere(self):
            super()._setup_backward_recv_info(num_microbatches)
        self._let_go(self.grad_recv_info)

    def _let_go(self, infos: dict[int, Any]) -> None:
        for info in (info for of_chunk in infos.values() for info in of_chunk):
            info.buffer = None

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """The receives of a microbatch's activations, into new buffers."""
        self._make(self.args_recv_info[fwd_chunk_id])
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """The receives of a microbatch's gradients, into new buffers."""
        if self.has_backward and not self.is_last:
            self._make(self.grad_recv_info[bwd_chunk_id])
        return super().get_bwd_recv_ops(bwd_chunk_id)

    # PyTorch 2.13 evaluates no schedule in a V: two stages of a rank hand on gradients all the same
    def get_local_bwd_output(self, mb_index: int) -> Any:
        """What goes back to the stage before, which is here; None in an evaluation."""
        if not self.has_backward:
            return None
        return super().get_local_bwd_output(mb_index)  # type: ignore[no-untyped-call]

    def set_local_bwd_input(self, grads: Any, mb_index: int) -> None:
        """Take what comes back from the stage behind, which is here; nothing in an evaluation."""
        if self.has_backward:
            super().set_local_bwd_input(grads, mb_index)

    def _make(self, infos: tuple[Any, ...]) -> None:
        for info in infos:
            if not info.is_root_arg and info.tensor_meta is not None:
                info.buffer = _make_tensor_from_meta(
                    info.tensor_meta, self.device
                )

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> Any:
        received = super()._retrieve_recv_activations(fwd_chunk_id)
        self._let_go({0: self.args_recv_info[fwd_chunk_id]})
        return received

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> Any:
        received = super()._retrieve_recv_grads(bwd_chunk_id)
        self._let_go({0: self.grad_recv_info[bwd_chunk_id]})
        return received


class Nowhere:
    """While this is open, a stage makes tensors without storage."""

    def __init__(self, stage: PipelineStage) -> None:
        self.stage, self.device = stage, stage.device

    def __enter__(self) -> None:
        self.stage.device = torch.device("meta")

    def __exit__(self, *error: object) -> None:
        self.stage.device = self.device
