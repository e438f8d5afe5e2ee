"""One trainer per rank: its stages, their gradients, their update."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.training import Settings
from ..layout.placement import placed
from ..layout.stages import stage_count, stage_layers, stage_numbers
from ..program.operations import recomputation
from ..program.tiles import Documents, chunks
from ..schedule import get as schedule_named
from . import gradients, registry
from .balance import Balance
from .initial import initialise, local
from .model import Decoder
from .moe import MixtureOfExperts
from .optimizer import Scaler, optimizer, ready
from .parallel import cut_stage, mesh
from .pipeline import Accumulation, Pipeline, criterion
from .record import Recorder


@dataclass(frozen=True)
class Result:
    """What one step says about itself, the same on every rank."""

    loss: float
    """Mean over the tokens of the global batch, before the update."""
    gradient_norm: float | None
    """Of all parameters, before clipping; None where it is not a number (the update is then
    skipped).
    """
    lr: float
    loss_scale: float
    """1 but for fp16."""
    skipped: int = 0
    """Updates skipped in the whole run, this one included."""
    extra: tuple[float, ...] = ()
    """Sums over ranks of what `Trainer.extra` gave."""


class Trainer:
    """A job on this rank. Every rank of the run makes one and calls the same methods in the same
    order.
    """

    def __init__(
        self,
        job: Job,
        settings: Settings,
        device: torch.device,
        fresh: bool = True,
    ) -> None:
        """fresh: weights are drawn; else they are to be filled before the first step."""
        self.job, self.settings, self.device, self.fresh = (
            job,
            settings,
            device,
            fresh,
        )
        self.layout: Layout = placed(job.layout, job.cluster.sizes)
        self.recorder = Recorder(device)
        self.scaler = Scaler(job.precision.compute == "fp16", settings)
        self.mesh = mesh(
            self.layout,
            device.type,
            settings.shards or 0,
            job.model.moe is not None,
        )
        self.count = stage_count(self.layout)
        self.microbatches = job.batch // int(
            self.layout.dp * self.layout.microbatch
        )
        numbers = stage_numbers(self.layout, self.mesh.index("pp"))
        self.stages = {number: self.build(number) for number in numbers}
        self.tied = (
            gradients.Tied(
                self.stages,
                self.last_rank(),
                self.mesh.group("pp"),
            )
            if job.model.tied_embeddings
            else None
        )
        self.criterion = criterion(
            job,
            layout=self.layout,
            mesh=self.mesh,
            scaler=self.scaler,
            z=settings.z_loss or 0.0,
        )
        self.engine: Accumulation | Pipeline = (
            Accumulation(
                self.stages[0], self.layout, self.criterion, self.recorder
            )
            if self.layout.pp == 1
            else Pipeline(
                self.stages,
                layout=self.layout,
                group=self.mesh.group("pp"),
                criterion=self.criterion,
                recorder=self.recorder,
            )
        )
        self.optimizer = optimizer(self.stages.values(), settings, device)
        self.samples = 0
        """Sequences that all steps so far were made of, under whatever layouts."""
        self.ahead = (
            device.type == "cuda"
            and not self.scaler.on
            and hasattr(self.optimizer, "_step_supports_amp_scaling")
        )
        """Steps are made without waiting for the device: it decides itself whether gradients may
        be used, and their loss and norm are known later. Loss scaling has to know them at once.
        """
        self.balance = self.make_balance()
        self.extra: Callable[[], list[float]] = list
        """Numbers of this rank that are summed over ranks in the same message as loss and norm."""

    def make_balance(self) -> Balance | None:
        """How the loads of experts are evened out, if they are."""
        s = self.settings
        mesh = self.mesh
        moe = self.job.model.moe
        if moe is None or not (
            s.balance_loss or s.balance_bias or s.router_z_loss
        ):
            return None
        over = {
            name: mesh.axis(name).size()
            for name in mesh.whole.mesh_dim_names or ()
        }
        among = [n for n, size in over.items() if size > 1 and n != "pp"]

        def weight() -> float:
            # PyTorch's schedules divide by the number of microbatches later
            many = self.microbatches if self.layout.pp == 1 else 1
            return self.scaler.scale / many

        balance = Balance(
            coefficient=s.balance_loss or 0.0,
            rate=s.balance_bias or 0.0,
            weight=weight,
            sequence=tuple(mesh.group(n) for n in among if n in ("tp", "cp")),
            batch=tuple(mesh.group(n) for n in among),
            parts=over["tp"],
            z=s.router_z_loss or 0.0,
        )
        balance.attach(self.expert_layers(), moe.experts, self.device)
        return balance

    def build(self, number: int) -> Decoder:
        """One stage, cut over the mesh, with its first weights."""
        job = self.job
        layout = self.layout
        layers = stage_layers(
            job.model.layers, self.count, self.layout.stages
        )[number]
        with torch.device("meta"):
            way = recomputation(layout.recompute)
            stage = decoder(self.settings)(
                m=job.model, layers=layers, seq=job.T, recompute=way
            )
        cut_stage(stage, job, layout, self.mesh)
        if self.settings.compile:
            stage.compile_blocks()
        stage.to_empty(device=self.device)
        stage.tie()
        if self.fresh:
            initialise(stage, job.model, self.settings.seed)
        return stage

    def last_rank(self) -> int:
        """Place on the pp axis of the rank with the last stage."""
        return (
            0
            if self.layout.pp == 1
            or schedule_named(self.layout.schedule).folded
            else int(self.layout.pp) - 1
        )

    def share(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        """(inputs, targets) of this rank, of sequences with one token more than is trained on."""
        at = chunks(self.job.T, int(self.layout.cp), self.mesh.index("cp"))
        both = (whole[:, :-1], whole[:, 1:])
        x, y = (
            torch.cat([part[:, r.start : r.stop] for r in at], 1)
            for part in both
        )
        return x, y

    def pack(self, documents: tuple[Documents, ...]) -> None:
        """Where the documents of this rank's sequences of the next step begin; one entry: the same
        for all.
        """
        for stage in self.stages.values():
            stage.packed = documents

    def accumulate(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """Gradients of the whole batch, from this rank's part of it, [B/dp, T/cp]; the losses of
        its microbatches on the last stage.
        """
        self.optimizer.zero_grad(set_to_none=True)
        if self.balance:
            self.balance.begin(self.expert_layers())
        self.microbatches = len(tokens) // int(self.layout.microbatch)
        with self.recorder.part("pipeline"):
            losses = self.run(tokens, targets)
        with self.recorder.part("settle"):
            gradients.settle(self.stages, self.layout)
            if self.tied:
                self.tied.sum()
        return losses

    def run(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        """All microbatches through the stages, and back unless gradients are off; their losses on
        the last stage.
        """
        # from pinned memory, without waiting for the copy
        both = (
            x.to(self.device, non_blocking=True) for x in (tokens, targets)
        )
        return self.engine.run(*both)

    def mean(self, losses: list[Tensor]) -> Tensor:
        """This rank's part of the mean of all ranks' losses, fp64, []; 0 where there are none."""
        if not losses:
            return torch.zeros((), dtype=torch.float64, device=self.device)
        mean = torch.stack([local(x).double() for x in losses]).mean()
        return mean / float(self.layout.tp * self.layout.cp * self.layout.dp)

    def sums(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """`accumulate`, then [loss, squared norm of the gradient] of the whole batch, both times
        the scale, and what is `extra`, the same on every rank; fp64, on the device. It is the one
        message of a step to all ranks.
        """
        losses = self.accumulate(tokens, targets)
        with self.recorder.part("norm"):
            squares = gradients.squares(self.stages, self.layout)
            sums = torch.stack([self.mean(losses), squares.to(self.device)])
            if extra := self.extra():
                sums = torch.cat([sums, to_device(extra, self.device)])
            dist.all_reduce(sums)
            return sums

    def update(self, step: int, norm: float, loss: float = 0.0) -> None:
        """Clip and step, unless the gradients are not to be used.

        norm, loss: of all ranks, so that every rank decides the same.
        """
        clip, scale = self.settings.clip, self.scaler.scale
        if not self.scaler.update(norm, loss):
            return
        factor = (
            clip / norm if clip is not None and norm > clip else 1.0
        ) / scale
        if factor != 1:
            with self.recorder.part("clip"):
                gradients.scale_gradients(self.stages, factor)
        self.optimizer_step(step)

    def update_ahead(self, step: int, sums: Tensor) -> None:
        """An update that the device itself decides on, so that nobody waits for it: fused AdamW
        makes no step where `found_inf` is 1, and counts none.
        """
        clip = self.settings.clip
        used = sums[:2].isfinite().all().float()
        if clip is not None:
            with self.recorder.part("clip"):
                factor = (clip / sums[1].sqrt()).clamp(max=1.0)
                gradients.scale_gradients(self.stages, factor.float())
        self.optimizer.found_inf = 1 - used  # type: ignore[attr-defined]
        self.optimizer_step(step, used)

    def optimizer_step(self, step: int, used: Tensor | None = None) -> None:
        """One step of the optimizer, and of the biases of experts by their loads. used: 0 on the
        device if the step is skipped.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.settings, step)
        with self.recorder.part("optimizer"):
            self.optimizer.step()
        if self.balance:
            self.balance.settle(self.expert_layers(), used)

    def launch(
        self, step: int, tokens: Tensor, targets: Tensor
    ) -> Callable[[], Result]:
        """One optimizer step; what gives its result, once that is known."""
        scale = self.scaler.scale
        self.samples += len(tokens) * int(self.layout.dp)
        copy = HostCopy(sums := self.sums(tokens, targets))

        def numbers() -> tuple[float, float, list[float]]:
            total, squares, *extra = copy.numbers()
            return total / scale, math.sqrt(squares) / scale, extra

        if self.ahead:
            self.update_ahead(step, sums)
        else:
            loss, norm, _ = numbers()
            self.update(step, norm, loss)

        def result() -> Result:
            loss, norm, extra = numbers()
            if (
                self.ahead
            ):  # the device decided: a skipped update is counted now
                self.scaler.update(norm, loss)
            return Result(
                loss,
                gradient_norm=norm if math.isfinite(norm) else None,
                lr=rate(self.settings, step),
                loss_scale=scale,
                skipped=self.scaler.skipped,
                extra=tuple(extra),
            )

        known = None if self.ahead else result()
        return lambda: known or result()

    def step(self, step: int, tokens: Tensor, targets: Tensor) -> Result:
        """One optimizer step, waited for."""
        return self.launch(step, tokens, targets)()

    def expert_layers(self) -> list[MixtureOfExperts]:
        """The layers with experts."""
        return [
            mixture
            for stage in self.stages.values()
            for mixture in stage.mixtures.values()
        ]

    def parameters(self) -> dict[str, nn.Parameter]:
        """Name -> parameter, over the stages of this rank. A tied head that stands alone keeps its
        own name here.
        """
        return {
            name: p
            for stage in self.stages.values()
            for name, p in stage.named_parameters()
        }

    def state(self, p: nn.Parameter) -> dict[str, Any]:
        """What the optimizer keeps for a parameter; made, as zeros, if it has not run yet."""
        ready(self.optimizer)
        state: dict[str, Any] = self.optimizer.state[p]
        return state


def decoder(s: Settings) -> type[Decoder]:
    """The class of the stages."""
    own: type[Decoder] = (
        registry.imported_part("own_model", s.own_model)
        if s.own_model
        else Decoder
    )
    return own


def rate(s: Settings, step: int) -> float:
    """Learning rate of a step: a linear rise, then what the schedule says, down to final_lr of it
    at the last step.
    """
    if step < s.warmup:
        return s.lr * (step + 1) / s.warmup
    if s.schedule == "constant":
        return s.lr
    falls = s.steps - s.warmup
    if s.schedule == "wsd":
        falls = min(falls, s.decay or -(-s.steps // 10))
    # the last step with the whole rate
    first = s.steps - falls - (s.schedule == "wsd")
    done = min(max((step - first) / max(s.steps - 1 - first, 1), 0.0), 1.0)
    left = (
        0.5 * (1 + math.cos(math.pi * done))
        if s.schedule == "cosine"
        else 1.0 - done
    )
    return s.lr * (s.final_lr + (1 - s.final_lr) * left)


class HostCopy:
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
