"""Checkpoints: weights and optimizer state by global name, so that any layout resumes from any other.

step-00000100/ appears under its name only when it is complete (written as step-00000100.part, synced, renamed); older ones are pruned
after that. Every file is compared with its hash before anything of it is used.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.state_dict_loader import load as read_state
from torch.distributed.checkpoint.state_dict_saver import save as write_state

from ..errors import BadInput, MeshwrightError
from ..spec.read import to_dict
from .initial import parameters
from .loop import Trainer
from .storage import Reader, Writer, read_index, verify

NAME = re.compile(r"step-(\d{8})")
MOMENTS = ("exp_avg", "exp_avg_sq")


def state(trainer: Trainer) -> dict[str, Tensor]:
    """What a checkpoint holds: name -> tensor, "weights/layers.0..." and both moments of AdamW."""
    found: dict[str, Tensor] = {}
    for stage in trainer.stages.values():
        for name, p in parameters(stage, stage.m):
            found[f"weights/{name}"] = p.detach()
            found |= {f"{kind}/{name}": trainer.state(p)[kind] for kind in MOMENTS}
    return found


def save(trainer: Trainer, folder: Path, step: int, keep: int) -> Path:
    """Write the checkpoint of a run that has done `step` steps, then delete all but the newest `keep`; its path."""
    whole, part = folder / f"step-{step:08d}", folder / f"step-{step:08d}.part"
    first = dist.get_rank() == 0
    if first:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    dist.barrier()
    about = {
        "step": step,
        "seed": trainer.settings.seed,
        "model": to_dict(trainer.job.model),
        "batch": trainer.job.batch,
    }
    writer = Writer(part, dist.get_rank(), about)
    write_state(state(trainer), storage_writer=writer, planner=DefaultSavePlanner(flatten_state_dict=False))
    if first:
        if whole.exists():  # of an earlier run that was resumed from before it
            shutil.rmtree(whole)
        part.rename(whole)
        sync(folder)
        for old in complete(folder)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
    dist.barrier()
    return whole


def sync(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def complete(folder: Path) -> list[Path]:
    """The finished checkpoints of a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if NAME.fullmatch(path.name)) if folder.is_dir() else []


def load(trainer: Trainer, path: Path) -> int:
    """Fill weights and optimizer state from a checkpoint, under whatever layout it was written; the steps it has done.

    Rank 0 reads and compares every byte first, so BadInput is raised before anything changes.
    """
    words: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            verify(path, index := read_index(path))
            fits(trainer, path, index)
        except MeshwrightError as error:
            words = [str(error)]
    dist.broadcast_object_list(words, src=0)
    if words[0]:
        raise BadInput(words[0])
    index = read_index(path)
    try:
        read_state(
            state(trainer), storage_reader=Reader(path, index), planner=DefaultLoadPlanner(flatten_state_dict=False)
        )
    except CheckpointException as error:
        raise BadInput(
            f"checkpoint {path} does not hold this model: {str(next(iter(error.failures.values()))[0])[:200]}"
        ) from None
    for p in trainer.parameters().values():
        trainer.state(p)["step"].fill_(float(index["step"]))
    return int(index["step"])


def fits(trainer: Trainer, path: Path, index: dict[str, Any]) -> None:
    """The checkpoint is of this model and this order of the data; BadInput if not."""
    mine = {"model": to_dict(trainer.job.model), "batch": trainer.job.batch, "seed": trainer.settings.seed}
    for what, value in mine.items():
        if index.get(what) != value:
            raise BadInput(f"checkpoint {path} was written with another {what} than this job has")
