"""One rank's part of a run, from its first step to its last checkpoint.

On a GPU the host is a step ahead: what a step came to is read, and written down, when the next one
has been launched. Before a checkpoint, an evaluation or the end it is read at once.

An evaluation is the loss on text that is not trained on, under the layout of the run: forward
passes only, in the order of the run's schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from . import checkpoint, rules, watchdog, weights
from .attempt import RunPlan
from .feed import (
    Batch,
    batch,
    batches,
    end_token,
    of_evaluation,
    prefetched,
)
from .initial import check_replicas
from .launch import collect, collected, same_bits
from .log import RunLog, Spans, Stop, Usage, kept_on_disk, of_all
from .loop import Result, Trainer
from .model import Decoder
from .record import Recording


class Launch(NamedTuple):
    """A step that is under way, or done."""

    done: int
    """Steps of the run, this one included."""
    began: float
    result: Callable[[], Result]


def work(plan: RunPlan, device: torch.device) -> None:
    """What every rank does."""
    Session(plan, device).run()


class Session:
    """The trainer of a rank, and everything around its steps."""

    def __init__(self, plan: RunPlan, device: torch.device) -> None:
        """Weights are there afterwards: drawn, read, or those of a checkpoint."""
        self.plan, s = plan, plan.settings
        self.usage = Usage(Stop(), device)
        watchdog.beat("starting")
        if s.deterministic:
            same_bits()
        if device.type == "cuda":
            total = torch.cuda.get_device_properties(device).total_memory
            rules.demand_room(plan.predicted, s, float(total), "this GPU")
        self.trainer = Trainer(plan.job, s, device, fresh=draws(plan))
        self.trainer.extra = self.usage.numbers
        self.first = 0
        if plan.resume:
            self.first = checkpoint.resume(
                self.trainer, plan.resume, plan.allowed
            )
        elif s.weights:
            stages = self.trainer.stages
            weights.load(stages, plan.job.model, Path(s.weights))
        self.log = RunLog(plan, self.first)
        self.saver = checkpoint.Saver(
            self.trainer,
            folder=plan.folder,
            keep=s.keep,
            background=s.async_save,
            keep_every=s.keep_every,
        )
        self.recording = Recording(plan.folder, self.trainer, self.first)
        self.spans = Spans()
        self.waiting: Launch | None = None
        self.last_result_s = 0.0
        """When the last result was known."""

    def run(self) -> None:
        """Make all steps that are left, unless the run is asked to end."""
        source = prefetched(batches(self.plan, self.trainer, self.first))
        with collected():
            for step in range(self.first, self.plan.settings.steps):
                with self.spans.span("data_s"), self.recording.data(step):
                    given = next(source)
                last = self.step(step, given)
                self.record()
                if last:
                    break
                collect(step + 1)
        watchdog.beat("last checkpoint")
        self.saver.wait()
        self.log.close()

    def step(self, step: int, given: Batch) -> bool:
        """One step, and what belongs to it; whether it was the last."""
        launch = self.launch(step, given)
        if step == self.first:  # before ranks meet again, and write records
            with kept_on_disk(self.recording.file):
                self.recording.give_up_old()
            self.log.begin()
        asked = self.waiting is not None and self.report(self.waiting)
        self.waiting = launch
        last = asked or launch.done == self.plan.settings.steps
        if not (
            last or not self.trainer.ahead or self.needs_result(launch.done)
        ):
            return False
        self.waiting = None
        last = self.report(launch, last) or last
        self.save(launch.done, last)
        if last and launch.done < self.plan.settings.steps:
            self.log.say(
                f"asked to end (SIGTERM) after step {launch.done} of"
                f" {self.plan.settings.steps}: --resume goes on from there"
            )
        return last

    def launch(self, step: int, given: Batch) -> Launch:
        """Begin a step."""
        x, y, documents = given
        watchdog.beat(f"step {step + 1}")
        began = time.perf_counter()
        with self.recording.step(step), self.usage.step():
            self.trainer.pack(documents)
            result = self.trainer.launch(step, x, y)
        return Launch(step + 1, began, result)

    def needs_result(self, done: int) -> bool:
        """Whether something after this step needs to know how it went."""
        s = self.plan.settings
        every = s.check_every, s.eval_every, s.save_every, s.keep_every
        return any(due(done, n) for n in every)

    def report(self, launch: Launch, last: bool = False) -> bool:
        """Write down what a step came to; whether the run is asked to end after it."""
        result = {**vars(launch.result())}
        spent = of_all(result.pop("extra"))
        now = time.perf_counter()
        s = self.plan.settings
        seconds, self.last_result_s = (
            now - max(launch.began, self.last_result_s),
            now,
        )
        self.record()  # also of a step after which something fails
        if due(launch.done, s.check_every):
            check_replicas(self.trainer.stages, launch.done)
        asked = spent["stop"] > 0
        if s.eval_every and (last or asked or due(launch.done, s.eval_every)):
            with self.spans.span("eval_s"):
                result = {**result, "eval_loss": self.evaluation()}
        self.log.write(
            launch.done,
            result=result,
            seconds=seconds,
            spent=spent,
            spans=self.spans.taken(),
        )
        self.demand_finite(launch.done)
        return asked

    def record(self) -> None:
        """Write what is recorded of the last step, if anything is."""
        with kept_on_disk(self.recording.file):
            self.recording.flush()

    def save(self, done: int, last: bool) -> None:
        """A checkpoint, if one is due."""
        s = self.plan.settings
        if last or due(done, s.save_every) or due(done, s.keep_every):
            watchdog.beat(f"checkpoint after step {done}")
            self.log.sync()
            with self.spans.span("checkpoint_s"):
                self.saver.save(done)
        self.saver.check()

    def evaluation(self) -> float:
        """The loss on what is not trained on."""
        plan = self.plan
        samples = of_evaluation(plan.job, plan.settings)
        ends = end_token(plan.settings)
        B = plan.job.batch
        return evaluate(
            self.trainer,
            (
                batch(
                    self.trainer,
                    samples=samples,
                    first=number * B,
                    size=B,
                    ends=ends,
                )
                for number in range(plan.settings.eval_batches)
            ),
        )

    def demand_finite(self, done: int) -> None:
        """Raise NotFinite, on all ranks, when so many updates in a row were skipped that the run is
        beyond help.

        A checkpoint that is still being written is finished first: it is the last sound one.
        """
        most = self.plan.settings.max_skipped
        skipped = self.trainer.scaler.in_a_row
        if most is not None and skipped >= most:
            self.saver.wait()
            raise checkpoint.NotFinite(
                f"the gradients or the loss were not finite in {skipped} steps one after the other,"
                f" up to step {done}: the run ends (train.max_skipped);"
                f" {checkpoint.newest(self.plan.folder)};"
                " a smaller train.lr, or train.clip, may help"
            )


def draws(plan: RunPlan) -> bool:
    """Whether first weights are drawn: nothing else fills them, or not the rows that pad the
    vocabulary.
    """
    m = plan.job.model
    imported = plan.settings.weights is not None and m.padded_vocab == m.vocab
    return not (plan.resume or imported)


def due(done: int, every: int | None) -> bool:
    """Whether what is done every so many steps is to be done after this one."""
    return bool(every) and done % (every or 1) == 0


@torch.no_grad()
def evaluate(trainer: Trainer, batches: Iterable[Batch]) -> float:
    """Mean loss over batches of the job's size, of which each rank gives its part; the same on
    every rank.
    """
    losses: list[Tensor] = []
    for tokens, targets, documents in batches:
        watchdog.beat("evaluating")
        trainer.pack(documents)
        losses += trainer.run(tokens, targets)
    for stage in trainer.stages.values():
        reshard(stage)
    total = trainer.mean(losses)
    dist.all_reduce(total)
    return float(total) / trainer.scaler.scale


def reshard(stage: Decoder) -> None:
    """Weights that were gathered are shards again, as between steps."""
    for module in stage.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
