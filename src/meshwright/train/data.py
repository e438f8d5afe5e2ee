"""What is trained on: tokens in a memory-mapped file, or invented ones; the order depends on the
seed alone, never on the layout.

A token file is NAME.bin, little-endian unsigned integers of 2 or 4 bytes one after the other, and
NAME.json beside it: {"format": "meshwright-tokens-1", "dtype": "uint16", "tokens": N, "vocab": V,
"tokenizer": "bytes", "source": "..."}. Sample i is tokens i T .. i T + T inclusive (its targets end
one further). An epoch is a random order of all samples.

A batch may grow from `ramp_batch` sequences to that of the job over `ramp_steps` steps, by whole
microbatches of all replicas (Brown et al. 2020, GPT-3, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..describe.job import Job
from ..describe.training import Settings
from ..errors import BadInput
from ..formats import parse_json, read_text

FORMAT = "meshwright-tokens-1"
DTYPES: dict[str, np.dtype[Any]] = {
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
}
Tokens = NDArray[np.int64]


class Source(Protocol):
    """Samples of T + 1 tokens by their place in the run."""

    def samples(self, first: int, count: int) -> Tokens:
        """Samples first .. first + count - 1 of the run, [count, T + 1]."""


class Samples:
    """A source that knows each sample by its place."""

    def samples(self, first: int, count: int) -> Tokens:
        """Samples `first` to `first + count` (`Source.samples`)."""
        return np.stack([self.sample(i) for i in range(first, first + count)])

    def sample(self, i: int) -> Tokens:
        """Sample i of the run, [T + 1]."""
        raise NotImplementedError


class Synthetic(Samples):
    """Tokens that can be predicted, for trials without data: each is the one before plus a step
    that the sample keeps, with noise.
    """

    def __init__(self, vocab: int, seq: int, seed: int) -> None:
        self.vocab, self.seq, self.seed = vocab, seq, seed

    def sample(self, i: int) -> Tokens:
        """Sample i of the run."""
        random = np.random.default_rng((self.seed, i))
        steps = np.where(
            random.random(self.seq) < 0.1,
            random.integers(self.vocab, size=self.seq),
            1 + i % 3,
        )
        return (
            np.cumsum(
                np.concatenate([random.integers(self.vocab, size=1), steps])
            )
            % self.vocab
        )


ROUNDS = 6
"""4 make it as good as its round function (Luby and Rackoff); two more cost a microsecond."""
MASK = 2**64 - 1


def splitmix64(x: int) -> int:
    """64 bits, each of which depends on all of x (SplitMix64, Steele et al. 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@dataclass(frozen=True)
class Shuffle:
    """A random order of 0 .. count - 1."""

    count: int
    seed: int
    epoch: int

    def __getitem__(self, i: int) -> int:
        """The place of the i-th."""
        half = max(1, ((self.count - 1).bit_length() + 1) // 2)
        low = (1 << half) - 1
        keys = [
            splitmix64(splitmix64(splitmix64(self.seed) ^ self.epoch) + n)
            for n in range(ROUNDS)
        ]
        while True:
            left, right = i >> half, i & low
            for key in keys:
                left, right = right, left ^ (splitmix64(key ^ right) & low)
            i = left << half | right
            if i < self.count:
                return i


class File(Samples):
    """A token file, read in place."""

    def __init__(
        self,
        path: Path,
        vocab: int,
        seq: int,
        seed: int,
        held_out: int = 0,
        evaluation: bool = False,
    ) -> None:
        """vocab: of the model;  held_out: so many samples at its end are for evaluation;
        evaluation: these are read, in their order and again from the first after the last (of a
        file that holds none out, all), and not the others in a random order.  BadInput if the file
        is damaged or too small, or has tokens the model has not.
        """
        header = read_header(path)
        if header["vocab"] > vocab:
            raise BadInput(
                f"{path} was made with {header['vocab']} tokens, but model.vocab is only {vocab}"
            )
        whole = (header["tokens"] - 1) // seq
        trained = whole - held_out
        if whole < 1:
            raise BadInput(
                f"{path} holds {header['tokens']} tokens, less than one sequence of {seq} and its"
                " last target"
            )
        if trained < 1:
            raise BadInput(
                f"{path} holds {whole} sequences of {seq} tokens: none is left to train on"
                f" after {held_out} for evaluation (train.eval_batches, train.eval_data)"
            )
        self.tokens = np.memmap(
            sibling(path, ".bin"), DTYPES[header["dtype"]], "r"
        )
        self.seq, self.seed = seq, seed
        apart = evaluation and held_out > 0
        self.first = trained if apart else 0
        self.count = held_out if apart else trained
        self.order = None if evaluation else Shuffle(self.count, seed, 0)

    def sample(self, i: int) -> Tokens:
        """Sample i of the run: the i-th of its epoch's order."""
        epoch, place = divmod(i, self.count)
        if self.order is not None:
            if epoch != self.order.epoch:
                self.order = Shuffle(self.count, self.seed, epoch)
            place = self.order[place]
        start = (self.first + place) * self.seq
        sample: Tokens = self.tokens[start : start + self.seq + 1].astype(
            np.int64
        )
        return sample


class Blend(Samples):
    """Several token files, each with its share of the samples, evenly mixed: after any number of
    samples each file has given its share of them, rounded.
    """

    def __init__(self, files: Sequence[File], shares: Sequence[float]) -> None:
        self.files, self.shares = files, shares

    def sample(self, i: int) -> Tokens:
        """Sample i of the run."""
        file, place = self.whose(i)
        return self.files[file].sample(place)

    def whose(self, i: int) -> tuple[int, int]:
        """(file, how many samples it gave before): the first file takes a sample whenever its share
        of all so far passes a whole number, the second so of what is left, and so on.
        """
        left = sum(self.shares)
        for file, share in enumerate(self.shares[:-1]):
            before, after = (math.floor(n * share / left) for n in (i, i + 1))
            if after > before:
                return file, before
            i = i - before
            left = left - share
        return len(self.shares) - 1, i


def files(data: str) -> list[tuple[Path, float | None]]:
    """Token files, with their shares: "tokens/a" or "tokens/a 0.7, tokens/b 0.3"; None: by their
    sizes. BadInput if only some have one, or one is not a number above 0.
    """
    parts: list[tuple[Path, float | None]] = []
    for part in data.split(","):
        name, _, share = part.strip().rpartition(" ")
        try:
            parts.append(
                (Path(name.strip()), float(share))
                if name
                else (Path(share), None)
            )
        except ValueError:
            parts.append((Path(part.strip()), None))
    shares = [share for _, share in parts]
    if None in shares and any(share is not None for share in shares):
        raise BadInput(
            f"train.data {data!r} must say the share of every file, or of none"
        )
    if any(share is not None and not 0 < share < math.inf for share in shares):
        raise BadInput(
            f"train.data {data!r}: a share must be a number above 0"
        )
    return parts


def opened(
    data: str,
    vocab: int,
    seq: int,
    seed: int,
    held_out: int = 0,
    evaluation: bool = False,
) -> File | Blend:
    """The samples of one or several token files, `held_out` of them for evaluation, each file its
    share of these. evaluation: as `File` has it.
    """
    named = files(data)
    if len(named) == 1:
        return File(
            named[0][0],
            vocab,
            seq,
            seed=seed,
            held_out=held_out,
            evaluation=evaluation,
        )
    sizes = [
        share or float(read_header(path)["tokens"]) for path, share in named
    ]
    parts = [math.ceil(held_out * size / sum(sizes)) for size in sizes]
    each = [
        File(
            path,
            vocab,
            seq,
            seed=seed + i,
            held_out=part,
            evaluation=evaluation,
        )
        for i, ((path, _), part) in enumerate(zip(named, parts, strict=True))
    ]
    return Blend(each, sizes)


def begins(samples: Tokens, end: int) -> tuple[tuple[int, ...], ...]:
    """Where documents begin in each sequence: at its first token, and after each `end`."""
    starts = (
        (0, *(int(i) + 1 for i in np.flatnonzero(row[:-1] == end)))
        for row in samples
    )
    return tuple(starts)


def end_of(named: str) -> int:
    """The token after each document of token files; BadInput if they have none, or several."""
    known = set()
    for path, _ in files(named):
        end = read_header(path).get("end_id")
        if type(end) is not int:
            raise BadInput(
                f"train.documents: {path} does not say which token ends a document; make it of a"
                " .jsonl with this version of meshwright data"
            )
        known.add(end)
    if len(known) > 1:
        raise BadInput(
            f"train.documents: the files of {named!r} end documents by other tokens"
        )
    return known.pop()


def sibling(path: Path, suffix: str) -> Path:
    """NAME.bin or NAME.json of a token file; BadInput for what has no name, such as "."."""
    if not path.name:
        raise BadInput(f"{str(path)!r} is not a token file: it has no name")
    # a dot in a name is a part of it: books.v1 is not books.v2
    name = path.name.removesuffix(".bin").removesuffix(".json")
    return path.with_name(name + suffix)


def read_header(path: Path) -> dict[str, Any]:
    """The description of a token file, checked against its size."""
    about = sibling(path, ".json")
    tokens = sibling(path, ".bin")
    if not about.exists():
        raise BadInput(
            f"token file {path}: there is no {about}; `meshwright data` makes token files of text"
        )
    header = parse_json(read_text(about), str(about))
    right = header.get("format") == FORMAT and header.get("dtype") in DTYPES
    if not right or not all(
        type(header.get(k)) is int for k in ("tokens", "vocab")
    ):
        raise BadInput(
            f"{about} does not describe a token file of meshwright data"
        )
    try:
        size = tokens.stat().st_size
    except OSError as error:
        raise BadInput(f"{tokens} cannot be read: {error.strerror}") from None
    if size != (want := header["tokens"] * DTYPES[header["dtype"]].itemsize):
        raise BadInput(
            f"{tokens} has {size} bytes, but its header says {want}: it is damaged"
        )
    return header


def least_batch(job: Job) -> int:
    """Sequences of one microbatch of every replica: what a batch grows by."""
    return int(job.layout.dp * job.layout.microbatch)


def batch_of(job: Job, s: Settings, step: int) -> int:
    """Sequences that a step trains on."""
    if s.ramp_batch is None or s.ramp_steps is None or step >= s.ramp_steps:
        return job.batch
    grown = (job.batch - s.ramp_batch) * step // s.ramp_steps
    return s.ramp_batch + grown // least_batch(job) * least_batch(job)


def samples_before(job: Job, s: Settings, step: int) -> int:
    """Sequences of all steps before this one."""
    ramp = min(step, s.ramp_steps or 0)
    grown = sum(batch_of(job, s, earlier) for earlier in range(ramp))
    return grown + (step - ramp) * job.batch


def wrong_ramp(job: Job, s: Settings) -> list[str]:
    """Why the batch cannot grow so."""
    if s.ramp_batch is None and s.ramp_steps is None:
        return []
    if s.ramp_batch is None or s.ramp_steps is None:
        return ["train.ramp_batch and train.ramp_steps belong together"]
    if s.ramp_batch >= job.batch or s.ramp_batch % least_batch(job):
        return [
            f"train.ramp_batch must be a multiple of {least_batch(job)} (microbatches of all"
            f" replicas) and less than the batch of {job.batch}, not {s.ramp_batch}"
        ]
    return []


def batch_sizes(job: Job, s: Settings) -> set[int]:
    """Batch sizes of all steps."""
    return {batch_of(job, s, step) for step in range((s.ramp_steps or 0) + 1)}
