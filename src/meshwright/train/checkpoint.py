"""Checkpoints: weights and optimizer state by global name, so that any layout resumes from any
other.

step-00000100/ appears under its name only when it is complete (written as step-00000100.part,
synced, renamed); older ones are pruned after that (renamed to .old, deleted), but those of every
`keep_every` steps. Every file is compared with its hash before anything of it is used. A state that
is not finite is neither written nor gone on from.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.staging import (
    AsyncStager,
    DefaultStager,
    StagingOptions,
)
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as save_now
from torch.nn.utils import get_total_norm

from ..describe.read import to_dict
from ..errors import BadInput, MeshwrightError
from .data import samples_before
from .initial import local, parameters_of_stages
from .loop import Trainer
from .model import Decoder
from .optimizer import count, kept
from .storage import (
    Damaged,
    Reader,
    Writer,
    read_index,
    sync,
    verify,
)

NAME = re.compile(r"step-(\d{8})")
PART, OLD = ".part", ".old"
OWN = "own_model"
FAVOUR = "favour"
"""Biases of experts, where loads are balanced by them: favour/layers.3, [E]."""


class SaveFailed(MeshwrightError):
    """A checkpoint could not be written; those before it are as they were."""

    exit_code = 3


class NotFinite(MeshwrightError):
    """The run has left the numbers: another try from the same checkpoint would end the same way."""

    exit_code = 3
    again = False


def state(trainer: Trainer) -> dict[str, Tensor]:
    """What a checkpoint holds: name -> tensor, "weights/layers.0..." and what the optimizer keeps
    for each of their elements (of AdamW exp_avg and exp_avg_sq).
    """
    tensors: dict[str, Tensor] = {}
    for stage in trainer.stages.values():
        tensors |= state_of(trainer, stage)
    return tensors


def state_of(trainer: Trainer, stage: Decoder) -> dict[str, Tensor]:
    """The part of one stage. Where a rank has the first and the last stage of a model with tied
    embeddings, both have the one matrix, under one name.
    """
    tensors: dict[str, Tensor] = {}
    for name, p in parameters_of_stages(stage, stage.m):
        tensors[f"weights/{name}"] = p.detach()
        tensors |= {
            f"{kind}/{name}": x
            for kind, x in kept(p, trainer.state(p)).items()
        }
    return tensors | {
        f"{FAVOUR}/layers.{number}": mixture.favour_E
        for number, mixture in stage.mixtures.items()
        if mixture.favour_E is not None
    }


def favours(
    stage: Decoder, shapes: Mapping[str, list[int]]
) -> dict[str, Tensor]:
    """Biases of a stage's experts that a checkpoint has. Where loads are balanced no more, experts
    are still chosen by them, and they stay as they are.
    """
    named = {}
    for number, mixture in stage.mixtures.items():
        if (name := f"{FAVOUR}/layers.{number}") in shapes:
            if mixture.favour_E is None:
                device = mixture.router.weight.device
                E = mixture.experts.count
                mixture.favour_E = torch.zeros(E, device=device)
            named[name] = mixture.favour_E
    return named


def finite(trainer: Trainer) -> bool:
    """Whether every number that a checkpoint would hold is finite, on all ranks: one look at each,
    no copy.
    """
    parts = [
        part for x in state(trainer).values() if (part := local(x)).numel()
    ]
    largest = float(get_total_norm(parts, math.inf)) if parts else 0.0
    sound = torch.tensor(float(math.isfinite(largest)), device=trainer.device)
    dist.all_reduce(sound, dist.ReduceOp.MIN)
    return bool(sound)


def stager(device: torch.device) -> AsyncStager | None:
    """What copies the state to the CPU before a thread writes it: of a GPU into pinned memory, made
    once and kept for the next save, for copies into other memory are several times as slow. None:
    PyTorch's own.
    """
    if device.type != "cuda":
        return None
    how = StagingOptions(
        use_pinned_memory=True,
        use_shared_memory=False,  # no other process reads it
        use_async_staging=False,  # the next update must not change what is copied
        use_non_blocking_copy=True,
    )
    return DefaultStager(how)


class Saver:
    """Writes the checkpoints of a run. Every rank makes one and calls the same methods at the same
    steps.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: Path,
        keep: int,
        background: bool = False,
        keep_every: int | None = None,
    ) -> None:
        """keep: newest checkpoints that stay;  background: `save` copies the state and returns, a
        thread of each rank writes it.

        keep_every: those of every so many steps stay for good.
        """
        self.trainer, self.folder, self.background = (
            trainer,
            folder,
            background,
        )
        self.publish = partial(publish, keep=keep, keep_every=keep_every)
        limit = timedelta(seconds=2 * trainer.settings.timeout)
        # the steps use the others while threads confer in it
        self.group = dist.new_group(backend="gloo", timeout=limit)
        self.written: Future[Any] | None = None
        self.stager = stager(trainer.device)
        self.path = folder
        if dist.get_rank() == 0:
            clean(folder)

    def save(self, step: int) -> Path:
        """Save a run that has done `step` steps, once the previous save is done; the path that will
        appear when it is complete.

        Raises NotFinite, and writes nothing, if a weight or a moment is not a finite number.
        """
        self.wait()
        if not finite(self.trainer):
            raise NotFinite(
                f"after step {step} a weight or a moment is not finite: it is not saved,"
                f" {newest(self.folder)}"
            )
        self.path = self.folder / f"step-{step:08d}"
        part = self.path.with_suffix(PART)
        writer = Writer(
            part, dist.get_rank(), about(self.trainer, step), self.publish
        )
        how: Any = {
            "planner": DefaultSavePlanner(flatten_state_dict=False),
            "process_group": self.group,
        }
        if self.background:
            started: Any = async_save(
                state(self.trainer),
                storage_writer=writer,
                async_stager=self.stager,
                **how,
            )
            self.written = started
        else:
            self.finish(
                partial(
                    save_now, state(self.trainer), storage_writer=writer, **how
                )
            )
        return self.path

    def check(self) -> None:
        """Raises SaveFailed if the save in the background has failed."""
        if self.written is not None and self.written.done():
            self.wait()

    def wait(self) -> None:
        """Until the save in the background is done. Raises SaveFailed."""
        written, self.written = self.written, None
        if written is not None:
            self.finish(written.result)

    def finish(self, write: Callable[[], object]) -> None:
        """Write; SaveFailed says in a sentence what went wrong on which rank."""
        try:
            write()
        except CheckpointException as error:
            rank, (why, _) = next(iter(error.failures.items()))
            # half a checkpoint would keep a full disk full
            if dist.get_rank() == 0:
                shutil.rmtree(self.path.with_suffix(PART), ignore_errors=True)
            reason = (
                getattr(why, "strerror", None)
                or f"{type(why).__name__}: {why}"
            )
            raise SaveFailed(
                f"{self.path} could not be written by rank {rank}: {reason}; {newest(self.folder)}"
            ) from None


def save(trainer: Trainer, folder: Path, step: int, keep: int) -> Path:
    """Write one checkpoint and wait for it; its path."""
    return Saver(trainer, folder, keep).save(step)


def about(trainer: Trainer, step: int) -> dict[str, Any]:
    """What a checkpoint says of its run: the steps it has done, the sequences that they were made
    of, and what `_index_of` compares.
    """
    return {
        "step": step,
        "samples": trainer.samples,
        "scaler": trainer.scaler.state(),
        **identity(trainer),
    }


def identity(trainer: Trainer) -> dict[str, Any]:
    """What must not change between the parts of a run."""
    return {
        "seed": trainer.settings.seed,
        "model": to_dict(trainer.job.model),
        "batch": trainer.job.batch,
        OWN: trainer.settings.own_model,
    }


def publish(part: Path, keep: int, keep_every: int | None = None) -> None:
    """Give a complete checkpoint its name, then drop all but the newest `keep` and those of every
    `keep_every` steps.

    No name ever stands for half a checkpoint.
    """
    whole = part.with_suffix("")
    if whole.exists():  # of an earlier run that was resumed from before it
        drop(whole)
    part.rename(whole)
    sync(whole.parent)
    # a later one is damaged, else the run would have gone on from it: it counts for none
    before = [p for p in complete(whole.parent) if p.name <= whole.name]
    for old in before[:-keep]:
        if not keep_every or steps_of(old) % keep_every:
            drop(old)


def drop(path: Path) -> None:
    """Delete a checkpoint; it loses its name first."""
    gone = path.with_suffix(OLD)
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def clean(folder: Path) -> None:
    """Delete what killed runs left half written or half deleted."""
    for left in (*folder.glob(f"step-*{PART}"), *folder.glob(f"step-*{OLD}")):
        shutil.rmtree(left, ignore_errors=True)


def complete(folder: Path) -> list[Path]:
    """The finished checkpoints of a folder, oldest first."""
    return (
        sorted(
            path for path in folder.glob("step-*") if NAME.fullmatch(path.name)
        )
        if folder.is_dir()
        else []
    )


def steps_of(path: Path) -> int:
    """The steps a checkpoint has done, by its name."""
    return int(path.name.removeprefix("step-"))


def newest(folder: Path) -> str:
    """The words for the newest complete checkpoint."""
    steps = complete(folder)
    return (
        f"the newest complete checkpoint is {steps[-1].name}"
        if steps
        else "no checkpoint is complete"
    )


T = TypeVar("T")


def newest_sound(
    steps: Sequence[Path], look: Callable[[Path], T]
) -> tuple[Path, T, Damaged | None]:
    """The newest of these checkpoints (oldest first) that `look` does not find damaged, what it
    gave, and what is wrong with the newest of all; Damaged if none is sound.
    """
    first: Damaged | None = None
    for path in reversed(steps):
        try:
            return path, look(path), first
        except Damaged as error:
            first = first or error
    without = "; no checkpoint before it is sound" if len(steps) > 1 else ""
    raise Damaged(f"{first}{without}")


def sound_index(path: Path) -> dict[str, Any]:
    """The index of a checkpoint every byte of which is as written; Damaged if one is not."""
    verify(path, index := read_index(path))
    return index


def resume(
    trainer: Trainer, newest: Path, changed: Collection[str] = ()
) -> int:
    """Go on from this checkpoint, or, where it is damaged, from the newest sound one before it,
    which is said; the steps it has done. BadInput if there is none.
    """
    path, done, damage = newest_sound(
        [p for p in complete(newest.parent) if p.name <= newest.name]
        or [newest],
        lambda path: load(trainer, path, changed),
    )
    if damage and dist.get_rank() == 0:
        print(f"{damage}; going on from {path.name} instead", file=sys.stderr)
    return done


def load(trainer: Trainer, path: Path, changed: Collection[str] = ()) -> int:
    """Fill weights and optimizer state from a checkpoint, under whatever layout it was written; the
    steps it has done.

    changed: what of `identity` may differ. All ranks together read and compare every byte once
    before anything changes; then each reads the rows that it needs. Raises Damaged on all of them.
    """
    index, reader = examined(trainer, path, changed)
    for stage in trainer.stages.values():
        biases = favours(stage, reader.shapes)
        wanted = state_of(trainer, stage)
        for name in set(wanted) - set(biases):
            if name.startswith(FAVOUR):  # the run balances from here on
                wanted.pop(name)
        reader.fill(wanted)
    before = samples_before(trainer.job, trainer.settings, index["step"])
    trainer.samples = index.get("samples", before)  # older ones do not say
    trainer.scaler.load(index["scaler"])
    for p in trainer.parameters().values():
        count(trainer.state(p), index["step"] - trainer.scaler.skipped)
    if not finite(trainer):
        raise Damaged(
            f"checkpoint {path} holds weights or moments that are not finite"
        )
    return int(index["step"])


def examined(
    trainer: Trainer, path: Path, changed: Collection[str]
) -> tuple[dict[str, Any], Reader]:
    """The index of a checkpoint of this model all of whose bytes are right, and what reads it. The
    first rank looks at index and headers; each compares its share of the files.
    """
    index = from_first(partial(_index_of, trainer, path, changed))
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, damage(path, index))
    if wrong := next((one for one in every if one is not None), None):
        raise wrong
    metadata = from_first(lambda: Reader(path).metadata)
    return dict(index), Reader(path, metadata)


def from_first(look: Callable[[], Any]) -> Any:
    """What the first rank sees, or the refusal that it meets, on all of them."""
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[1] = look()
        except MeshwrightError as refused:
            outcome[0] = refused
    dist.broadcast_object_list(outcome, src=0)
    if outcome[0] is not None:
        raise outcome[0]
    return outcome[1]


def damage(path: Path, index: dict[str, Any]) -> Damaged | None:
    """What is wrong with this rank's share of the files."""
    try:
        verify(path, index, dist.get_rank(), dist.get_world_size())
    except Damaged as error:
        return error
    return None


def _index_of(
    trainer: Trainer, path: Path, changed: Collection[str]
) -> dict[str, Any]:
    """The index of a checkpoint of this model and this order of the data, but for what is
    `changed`; BadInput if it is of another.
    """
    index = read_index(path)
    for what, value in identity(trainer).items():
        if what not in changed and index.get(what) != value:
            raise BadInput(
                f"checkpoint {path} was written with another {what} than this job has"
            )
    return index
