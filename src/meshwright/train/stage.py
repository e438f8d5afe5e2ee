"""A stage of a pipeline whose receive buffers live as long as their microbatch, so that their
number does not grow with that of the microbatches.

PyTorch 2.13 makes a buffer for every microbatch and boundary before the first and keeps it for the
run. Here one is made when its receive is posted, and let go when the microbatch is through: an
activation after its backward pass (autograd needs it until then), a gradient with the pass that
reads it. The allocator hands the bytes on, which is all that a pool of our own would do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward
from torch.distributed.pipelining._utils import _make_tensor_from_meta

from ..program.tiles import Documents

Packed = Callable[[int], tuple[Documents, ...]]
"""Number of a microbatch -> where the documents of its sequences begin."""


def one_document(microbatch: int) -> tuple[Documents, ...]:
    """Each sequence is one document."""
    return ((0,),)


class LateBufferStage(PipelineStage):
    """A `PipelineStage` that makes its receive buffers as late as it can."""

    documents: Packed = staticmethod(one_document)
    sharded = False
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
        super().backward_one_chunk(
            bwd_chunk_id, loss, full_backward, last_backward
        )
        if loss is not None and full_backward:
            loss.detach_()

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
        """One microbatch forward; the module is told of its documents."""
        module: Any = self.submod
        module.documents = self.documents(fwd_chunk_id)
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
