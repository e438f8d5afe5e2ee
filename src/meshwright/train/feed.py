"""The batches of a run: which samples a step trains on, and those of evaluations. Step s trains on
the samples after those of the steps before it, under any layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ..describe.job import Job
from ..describe.training import Settings
from ..errors import BadInput
from ..program.tiles import Documents
from . import data, registry, texts
from .attempt import RunPlan
from .data import (
    Blend,
    File,
    Source,
    Synthetic,
    batch_of,
    opened,
)
from .loop import Trainer

T = TypeVar("T")
Batch = tuple[Tensor, Tensor, tuple[Documents, ...]]
"""Inputs, targets, and where documents begin, of one rank."""


def source(job: Job, settings: Settings) -> Source:
    """Where samples come from."""
    if registry.is_own(settings.data):
        return own(job, settings, "data")
    if settings.data == "synthetic":
        return Synthetic(job.model.vocab, job.T, settings.seed)
    return token_files(job, settings)


def token_files(
    job: Job, settings: Settings, evaluation: bool = False
) -> File | Blend:
    """The samples of the run's token files without those held out for evaluation, or these."""
    return opened(
        tokens(settings),
        vocab=job.model.vocab,
        seq=job.T,
        seed=settings.seed,
        held_out=held_out(job, settings),
        evaluation=evaluation,
    )


def own(job: Job, s: Settings, field: str) -> Source:
    """A data set of the user's."""
    made: Source = registry.imported_part(field, getattr(s, field))(
        vocab=job.model.vocab, seq=job.T, seed=s.seed
    )
    return made


def tokens(settings: Settings) -> str:
    """The token files; the default one is made if it is not there yet."""
    if settings.data != "corpus":
        return settings.data
    texts.corpus(path := Path(settings.output) / "corpus")
    return str(path)


def held_out(job: Job, settings: Settings) -> int:
    """Samples at the end of the data that are not trained on."""
    apart = settings.eval_data is not None or settings.data == "synthetic"
    return (
        0
        if apart or not settings.eval_every
        else settings.eval_batches * job.batch
    )


def of_evaluation(job: Job, settings: Settings) -> Source:
    """Where the samples of evaluations come from: the same ones each time."""
    m, s = job.model, settings
    if registry.is_own(s.eval_data):
        return own(job, s, "eval_data")
    if s.eval_data is not None:
        return opened(s.eval_data, m.vocab, job.T, s.seed, evaluation=True)
    if s.data == "synthetic":
        return Synthetic(m.vocab, job.T, s.seed + 1)
    return token_files(job, s, evaluation=True)


def batches(plan: RunPlan, trainer: Trainer, first: int) -> Iterator[Batch]:
    """This rank's batch of each step, from step `first` on: the samples after those that the
    trainer has had. The batches of a ramp are the layout's; another may have made those before.
    """
    job = plan.job
    s = plan.settings
    samples = source(job, s)
    ends = end_token(s)
    done = trainer.samples
    for step in range(first, s.steps):
        size = batch_of(job, s, step)
        yield batch(trainer, samples, first=done, size=size, ends=ends)
        done += size


def prefetched(source: Iterator[T]) -> Iterator[T]:
    """What a source gives; a thread gets the next while this one is worked on."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield item


def batch(
    trainer: Trainer, samples: Source, first: int, size: int, ends: int | None
) -> Batch:
    """This rank's part of a batch of `size` samples from `first` on. ends: the token after each
    document, if documents are not to see each other.
    """
    rows = size // int(trainer.layout.dp)
    rows_BT = samples.samples(first + trainer.mesh.replica * rows, rows)
    if rows_BT.shape != (want := (rows, trainer.job.T + 1)):
        raise BadInput(
            f"train.data gives token ids of shape {list(rows_BT.shape)}, not {list(want)}"
        )
    low, high, vocab = rows_BT.min(), rows_BT.max(), trainer.job.model.vocab
    if low < 0 or high >= vocab:  # a GPU says only that it failed, and later
        raise BadInput(
            f"samples {first} to {first + size - 1} of the data hold token ids from {low} to"
            f" {high}, but model.vocab is {vocab}: they are damaged, or another tokenizer's"
        )
    x, y = trainer.share(torch.from_numpy(rows_BT))
    if trainer.device.type == "cuda":
        x = x.pin_memory()
        y = y.pin_memory()
    return (
        x,
        y,
        ((0,),) if ends is None else data.begins(rows_BT[:, :-1], ends),
    )


def end_token(settings: Settings) -> int | None:
    """The token after each document, where documents are kept apart; BadInput if those of
    evaluations end otherwise.
    """
    if not settings.documents:
        return None
    if settings.data == "synthetic":
        raise BadInput(
            "train.documents needs documents: data synthetic has none"
        )
    end = data.end_of(tokens(settings))
    apart = settings.eval_data
    if apart and not registry.is_own(apart) and data.end_of(apart) != end:
        raise BadInput(
            f"train.documents: eval_data {apart!r} ends documents by another token than data"
        )
    return end
