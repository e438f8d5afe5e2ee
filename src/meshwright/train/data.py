"""What is trained on: tokens in a memory-mapped file, or invented ones; the order depends on the
seed alone, never on the layout.

A token file is NAME.bin, little-endian unsigned integers of 2 or 4 bytes one after the other, and
NAME.json beside it: {"format": "meshwright-tokens-1", "dtype": "uint16", "tokens": N, "vocab": V,
"tokenizer": "bytes", "source": "..."}. Sample i is tokens i T .. i T + T inclusive (its targets end
one further). An epoch is a random order of all samples.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import json
import lzma
import math
import os
import re
import signal
import stat
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..formats import LARGEST, parse_json, read_text
from .lock import running
from .shuffle import Shuffle
from .tokenizer import encoder

FORMAT = "meshwright-tokens-1"
DTYPES: dict[str, np.dtype[Any]] = {
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
}
Tokens = NDArray[np.int64]
PIECE = 2**20
"""Characters of a text that are tokenized at once."""
PACKED: dict[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""Ending of a packed text -> what opens it."""
LINE_END = re.compile(r"(?:\n|\r(?!\n))(?=\S)")
"""Where a line begins: after LF, CR LF, or CR alone."""


class Source(Protocol):
    """Samples of T + 1 tokens by their place in the run."""

    def samples(self, first: int, count: int) -> Tokens:
        """Samples first .. first + count - 1 of the run, [count, T + 1]."""


class Synthetic:
    """Tokens that can be predicted, for trials without data: each is the one before plus a step
    that the sample keeps, with noise.
    """

    def __init__(self, vocab: int, seq: int, seed: int) -> None:
        self.vocab, self.seq, self.seed = vocab, seq, seed

    def samples(self, first: int, count: int) -> Tokens:
        """`Source.samples` of random tokens; never the same twice."""
        return np.stack([self.sample(i) for i in range(first, first + count)])

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


class File:
    """A token file, read in place."""

    def __init__(
        self, path: Path, vocab: int, seq: int, seed: int, held_out: int = 0
    ) -> None:
        """vocab: of the model;  held_out: so many samples at its end are for evaluation;  BadInput
        if the file is damaged or too small, or has tokens the model has not.
        """
        header = read_header(path)
        if header["vocab"] > vocab:
            raise BadInput(
                f"{path} was made with {header['vocab']} tokens, but model.vocab is only {vocab}"
            )
        self.seq, self.seed, self.whole = (
            seq,
            seed,
            (header["tokens"] - 1) // seq,
        )
        self.count = self.whole - held_out
        if self.whole < 1:
            raise BadInput(
                f"{path} holds {header['tokens']} tokens, less than one sequence of {seq} and its"
                " last target"
            )
        if self.count < 1:
            raise BadInput(
                f"{path} holds {self.whole} sequences of {seq} tokens: none is left to train on"
                f" after {held_out} for evaluation (train.eval_batches, train.eval_data)"
            )
        self.tokens = np.memmap(
            sibling(path, ".bin"), DTYPES[header["dtype"]], "r"
        )
        self.order = Shuffle(self.count, seed, 0)

    def samples(self, first: int, count: int) -> Tokens:
        """Samples `first` to `first + count` of this source (`Source.samples`)."""
        return np.stack([self.sample(i) for i in range(first, first + count)])

    def sample(self, i: int) -> Tokens:
        """Sample i of the run: the i-th of its epoch's order."""
        epoch, place = divmod(i, self.count)
        if epoch != self.order.epoch:
            self.order = Shuffle(self.count, self.seed, epoch)
        return self.at(self.order[place])

    def held(self, i: int) -> Tokens:
        """Sample i of those for evaluation (again from the first after the last); of a file that
        holds none out, of all.
        """
        left = self.whole - self.count
        return self.at(self.count + i % left if left else i % self.whole)

    def at(self, place: int) -> Tokens:
        """The sample at a place of the file."""
        start = place * self.seq
        sample: Tokens = self.tokens[start : start + self.seq + 1].astype(
            np.int64
        )
        return sample


class Blend:
    """Several token files, each with its share of the samples, evenly mixed: after any number of
    samples each file has given its share of them, rounded.
    """

    def __init__(self, files: Sequence[File], shares: Sequence[float]) -> None:
        self.files, self.shares = files, shares

    def samples(self, first: int, count: int) -> Tokens:
        """Samples `first` to `first + count` of this source (`Source.samples`)."""
        return np.stack([self.sample(i) for i in range(first, first + count)])

    def sample(self, i: int) -> Tokens:
        """Sample i of the run."""
        file, place = self.whose(i)
        return self.files[file].sample(place)

    def held(self, i: int) -> Tokens:
        """Sample i of those for evaluation."""
        file, place = self.whose(i)
        return self.files[file].held(place)

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


class HeldOut:
    """The samples of a source that are for evaluation, in their order."""

    def __init__(self, source: File | Blend) -> None:
        self.source = source

    def samples(self, first: int, count: int) -> Tokens:
        """Samples `first` to `first + count` of this source (`Source.samples`)."""
        return np.stack(
            [self.source.held(i) for i in range(first, first + count)]
        )


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
    data: str, vocab: int, seq: int, seed: int, held_out: int = 0
) -> File | Blend:
    """The samples of one or several token files, `held_out` of them for evaluation, each file its
    share of these.
    """
    named = files(data)
    if len(named) == 1:
        return File(
            named[0][0], vocab=vocab, seq=seq, seed=seed, held_out=held_out
        )
    sizes = [
        share or float(read_header(path)["tokens"]) for path, share in named
    ]
    parts = [math.ceil(held_out * size / sum(sizes)) for size in sizes]
    each = [
        File(path, vocab, seq, seed=seed + i, held_out=part)
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
        header = read_header(path)
        end = (
            0
            if header.get("tokenizer") == "bytes" and header.get("end")
            else None
        )
        end = header.get("end_id", end)
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
        raise BadInput(f"{str(path)!r} is no token file: it has no name")
    return path.with_suffix(suffix)


def read_header(path: Path) -> dict[str, Any]:
    """The description of a token file, checked against its size."""
    about = sibling(path, ".json")
    tokens = sibling(path, ".bin")
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


def write(
    path: Path,
    chunks: Iterable[NDArray[Any]],
    vocab: int,
    tokenizer: str,
    source: str,
    end: str | None = None,
    end_id: int | None = None,
) -> dict[str, Any]:
    """Write a token file chunk by chunk; its header. It appears under its name only when it is
    whole, the header last.

    end, end_id: the token after each document.  BadInput if there is no token, or the file cannot
    be written; then nothing of it is left.
    """
    dtype = "uint16" if vocab <= 2**16 else "uint32"
    header: dict[str, Any] = {
        "format": FORMAT,
        "dtype": dtype,
        "tokens": 0,
        "vocab": vocab,
        "tokenizer": tokenizer,
        "source": source,
        **({"end": end, "end_id": end_id} if end is not None else {}),
    }
    parts = {
        suffix: sibling(path, f"{suffix}.{os.getpid()}")
        for suffix in (".bin", ".json")
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        clean(path)
        with unwinding(), parts[".bin"].open("wb") as file:
            header["tokens"] = sum(
                file.write(chunk.astype(DTYPES[dtype]).tobytes())
                for chunk in chunks
            )
        header["tokens"] //= DTYPES[dtype].itemsize
        if not header["tokens"]:
            raise BadInput(f"{source} holds no text")
        parts[".json"].write_text(json.dumps(header, indent=1) + "\n", "utf-8")
        for suffix, part in parts.items():
            part.replace(path.with_suffix(suffix))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()
    return header


@contextmanager
def unwinding() -> Iterator[None]:
    """A context in which SIGTERM ends this process as an error does: what it began is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(
        signal.SIGTERM, lambda number, frame: sys.exit(128 + number)
    )
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def clean(path: Path) -> None:
    """Delete what processes that are gone had begun."""
    for left in path.parent.glob(f"{glob.escape(path.stem)}.*.*"):
        kind, _, pid = left.name.removeprefix(f"{path.stem}.").partition(".")
        if kind in ("bin", "json") and pid.isdigit() and not running(int(pid)):
            left.unlink(missing_ok=True)


def texts(path: Path, key: str = "text") -> Iterator[str]:
    """The documents of a .jsonl, its field `key` line by line, or the pieces of a text, each of
    about a megabyte and cut where a line begins.

    A text is its characters: line ends stay as they are, and a byte-order mark, which is none of
    them, is skipped.
    """
    demand_plain(path)
    try:
        with opener(path)(
            path, "rt", encoding="utf-8-sig", newline=""
        ) as file:
            yield from (
                documents(file, path, key) if is_jsonl(path) else pieces(file)
            )
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a UTF-8 text") from None
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise BadInput(f"{path} is damaged: {error}") from None


def is_jsonl(path: Path) -> bool:
    """Whether a text is a .jsonl, packed or not."""
    names = path.suffixes
    if names and names[-1] in PACKED:
        names = names[:-1]
    return names[-1:] == [".jsonl"]


def opener(path: Path) -> Callable[..., TextIO]:
    """What opens it, unpacked; BadInput for what is no text."""
    if path.suffix in (".zst", ".parquet", ".zip", ".tar"):
        raise BadInput(
            f"{path} is no text: meshwright data reads a text or a .jsonl, or one packed as"
            f" {', '.join(PACKED)}"
        )
    open_: Callable[..., TextIO] = PACKED.get(path.suffix, open)
    return open_


def demand_plain(path: Path) -> None:
    """BadInput for what is no file, or may never end."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} cannot be read: {why}") from None
    if stat.S_ISDIR(kind):
        raise BadInput(
            f"{path} is a folder: meshwright data reads one file, and train.data takes several"
        )
    if not stat.S_ISREG(kind):
        raise BadInput(
            f"{path} is a pipe or a device, which may never end: meshwright data reads plain files"
        )


def pieces(file: TextIO) -> Iterator[str]:
    """A text in pieces: a tokenizer sees whole lines, and the blanks before a line with it (unless
    a line is longer than a piece).
    """
    rest = ""
    while more := file.read(PIECE):
        rest += more
        cuts = [
            match.end()
            for match in LINE_END.finditer(rest, max(0, len(rest) - PIECE))
        ]
        at = cuts[-1] if cuts else (len(rest) if len(rest) >= 2 * PIECE else 0)
        if at:
            yield rest[:at]
            rest = rest[at:]
    if rest:
        yield rest


def documents(file: TextIO, path: Path, key: str) -> Iterator[str]:
    """The texts of a .jsonl; blank lines, as between files put together, hold none."""
    number = 0
    # no line is held that is longer than a description may be
    while line := file.readline(LARGEST + 1):
        number += 1
        if not line.strip():
            continue
        row = parse_json(line, f"{path} line {number}")
        if not isinstance(row.get(key), str):
            raise BadInput(
                f"{path} line {number} has no text in its field {key!r}"
            )
        yield row[key]


def prepare(
    path: Path,
    to: Path,
    tokenizer: str = "bytes",
    key: str = "text",
    end: str | None = None,
) -> dict[str, Any]:
    """Make a token file of a text or .jsonl file; its header. Documents of a .jsonl end with the
    tokenizer's end-of-text (`end`).

    Memory does not grow with the file: a few megabytes of text are held at once.
    """
    encode = encoder(tokenizer, end, is_jsonl(path))
    return write(
        to,
        chunks=encode.stream(texts(path, key)),
        vocab=encode.vocab,
        tokenizer=tokenizer,
        source=path.name,
        end=encode.end,
        end_id=encode.end_id,
    )
