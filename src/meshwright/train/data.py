"""What is trained on: tokens in a memory-mapped file, or invented ones; the order depends on the seed alone, never on the layout.

A token file is NAME.bin, little-endian unsigned integers of 2 or 4 bytes one after the other, and NAME.json beside it:
{"format": "meshwright-tokens-1", "dtype": "uint16", "tokens": N, "vocab": V, "tokenizer": "bytes", "source": "..."}.
Sample i is tokens i T .. i T + T inclusive (its targets end one further). An epoch is a random order of all samples.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..formats import parse_json, read_text

FORMAT = "meshwright-tokens-1"
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
Tokens = NDArray[np.int64]


class Source(Protocol):
    """Samples of T + 1 tokens by their place in the run."""

    def samples(self, first: int, count: int) -> Tokens:
        """Samples first .. first + count - 1 of the run, [count, T + 1]."""


class Synthetic:
    """Tokens that can be predicted, for trials without data: each is the one before plus a step that the sample keeps, with noise."""

    def __init__(self, vocab: int, seq: int, seed: int) -> None:
        self.vocab, self.seq, self.seed = vocab, seq, seed

    def samples(self, first: int, count: int) -> Tokens:
        """As `Source.samples`; never the same twice."""
        return np.stack([self.sample(i) for i in range(first, first + count)])

    def sample(self, i: int) -> Tokens:
        """Sample i of the run."""
        random = np.random.default_rng((self.seed, i))
        steps = np.where(random.random(self.seq) < 0.1, random.integers(self.vocab, size=self.seq), 1 + i % 3)
        return np.cumsum(np.concatenate([random.integers(self.vocab, size=1), steps])) % self.vocab


class File:
    """A token file, read in place."""

    def __init__(self, path: Path, vocab: int, seq: int, seed: int) -> None:
        """vocab: of the model;  BadInput if the file is damaged or too small, or has tokens the model has not."""
        header = read_header(path)
        if header["vocab"] > vocab:
            raise BadInput(f"{path} was made with {header['vocab']} tokens, but model.vocab is only {vocab}")
        self.tokens = np.memmap(path.with_suffix(".bin"), DTYPES[header["dtype"]], "r")
        self.seq, self.seed, self.count = seq, seed, (len(self.tokens) - 1) // seq
        if self.count < 1:
            raise BadInput(
                f"{path} holds {len(self.tokens)} tokens, less than one sequence of {seq} and its last target"
            )
        self.epoch, self.order = -1, np.zeros(0, np.int64)

    def samples(self, first: int, count: int) -> Tokens:
        """As `Source.samples`."""
        return np.stack([self.sample(i) for i in range(first, first + count)])

    def sample(self, i: int) -> Tokens:
        """Sample i of the run: the i-th of its epoch's order."""
        epoch, place = divmod(i, self.count)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, np.random.default_rng((self.seed, epoch)).permutation(self.count)
        at = int(self.order[place]) * self.seq
        found: Tokens = self.tokens[at : at + self.seq + 1].astype(np.int64)
        return found


def read_header(path: Path) -> dict[str, Any]:
    """The description of a token file, checked against its size."""
    header = parse_json(read_text(path.with_suffix(".json")), str(path.with_suffix(".json")))
    right = header.get("format") == FORMAT and header.get("dtype") in DTYPES
    if not right or not all(type(header.get(k)) is int for k in ("tokens", "vocab")):
        raise BadInput(f"{path.with_suffix('.json')} does not describe a token file of meshwright data")
    try:
        size = path.with_suffix(".bin").stat().st_size
    except OSError as error:
        raise BadInput(f"{path.with_suffix('.bin')} cannot be read: {error.strerror}") from None
    if size != (want := header["tokens"] * DTYPES[header["dtype"]].itemsize):
        raise BadInput(f"{path.with_suffix('.bin')} has {size} bytes, but its header says {want}: it is damaged")
    return header


def write(path: Path, chunks: Iterable[NDArray[Any]], vocab: int, tokenizer: str, source: str) -> dict[str, Any]:
    """Write a token file chunk by chunk; its header. It appears under its name only when it is whole, the header last."""
    dtype = "uint16" if vocab <= 2**16 else "uint32"
    total = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {suffix: path.with_suffix(f"{suffix}.{os.getpid()}") for suffix in (".bin", ".json")}
    with parts[".bin"].open("wb") as file:
        for chunk in chunks:
            total += len(chunk)
            file.write(chunk.astype(DTYPES[dtype]).tobytes())
    header = {
        "format": FORMAT,
        "dtype": dtype,
        "tokens": total,
        "vocab": vocab,
        "tokenizer": tokenizer,
        "source": source,
    }
    parts[".json"].write_text(json.dumps(header, indent=1) + "\n", "utf-8")
    for suffix, part in parts.items():
        part.replace(path.with_suffix(suffix))
    return header


def encoder(tokenizer: str) -> tuple[Any, int]:
    """(text -> ids, vocabulary). "bytes": the 256 bytes of UTF-8; else the path of a Hugging Face tokenizer.json."""
    if tokenizer == "bytes":
        return lambda text: np.frombuffer(text.encode("utf-8"), np.uint8), 256
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise BadInput(
            "a tokenizer.json needs the package tokenizers: pip install tokenizers, or take --tokenizer bytes"
        ) from None
    text = read_text(tokenizer, largest=2**26)
    try:
        made = Tokenizer.from_str(text)
    except Exception as error:  # the package raises bare Exception
        raise BadInput(f"{tokenizer} is not a tokenizer.json: {str(error)[:200]}") from None
    return lambda text: np.asarray(made.encode(text).ids, np.uint32), made.get_vocab_size()


def texts(path: Path, key: str = "text") -> Iterator[str]:
    """The documents of a file: the whole of a text, or the field `key` of each line of a .jsonl."""
    try:
        with path.open(encoding="utf-8") as file:
            if path.suffix != ".jsonl":
                while piece := file.read(2**20):
                    yield piece
                return
            for number, line in enumerate(file, 1):
                row = parse_json(line, f"{path} line {number}")
                if not isinstance(row.get(key), str):
                    raise BadInput(f"{path} line {number} has no text in its field {key!r}")
                yield row[key]
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a UTF-8 text") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def prepare(path: Path, to: Path, tokenizer: str = "bytes", key: str = "text") -> dict[str, Any]:
    """Make a token file of a text or .jsonl file; its header. With bytes, documents of a .jsonl end with the byte 0."""
    encode, vocab = encoder(tokenizer)
    end = "\0" if tokenizer == "bytes" and path.suffix == ".jsonl" else ""
    return write(to, (encode(text + end) for text in texts(path, key)), vocab, tokenizer, path.name)
