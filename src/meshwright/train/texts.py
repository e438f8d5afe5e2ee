"""From a text to a token file: a text, JSON with a document a line, either of them packed, or the
small real text that is on every machine.

Tokens are the bytes of UTF-8, or those of a Hugging Face tokenizer.json (package tokenizers, which
has it in Rust). The small text is the documentation strings of the running Python's standard
library, about 1 MB of English. They are read by parsing the sources (nothing is imported or run),
in the order of their names, so one Python version always gives one text.
"""

from __future__ import annotations

import ast
import bz2
import fcntl
import gzip
import json
import lzma
import re
import stat
import sys
import sysconfig
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..formats import LARGEST, parse_json, read_text
from .data import DTYPES, FORMAT, read_header, sibling

PART = ".part"
"""Ending of a file that is being written."""
PIECE = 2**20
"""Characters of a text that are tokenized at once."""


PACKED: dict[str, Any] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""Ending of a packed text -> what opens it."""
LINES = (".jsonl", ".json", ".ndjson", ".jsonlines")
"""Endings of JSON with a document a line; C4 has .json.gz."""
NO_TEXT = (".zst", ".parquet", ".zip", ".tar")


HALF = re.compile("[\ud800-\udfff]")
"""Of a character that JSON writes as two, such as \\ud83d\\ude00, where a text was cut between."""
LINE_END = re.compile(r"(?:\n|\r(?!\n))(?=\S)")
"""Where a line begins: after LF, CR LF, or CR alone."""


def write_texts(
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
    tokens, about = (sibling(path, f"{s}{PART}") for s in (".bin", ".json"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tokens.open("ab") as file:
            # whoever else writes this one keeps it; what a killed one left is written over
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            try:
                header["tokens"] = sum(
                    file.write(chunk.astype(DTYPES[dtype]).tobytes())
                    for chunk in chunks
                )
                header["tokens"] //= DTYPES[dtype].itemsize
                if not header["tokens"]:
                    raise BadInput(f"{source} holds no text")
                file.flush()
                about.write_text(json.dumps(header, indent=1) + "\n", "utf-8")
                tokens.replace(sibling(path, ".bin"))
                about.replace(sibling(path, ".json"))
            finally:
                tokens.unlink(missing_ok=True)
                about.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    return header


def texts(path: Path, key: str = "text") -> Iterator[str]:
    """The documents of JSON lines, their field `key`, or the pieces of a text, each of about a
    megabyte and cut where a line begins.

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


def endings(path: Path) -> tuple[str, str]:
    """(ending of a text, ending of its packing), in lower case; empty where there is none."""
    first, last = ["", "", *map(str.lower, path.suffixes)][-2:]
    return (first, last) if last in PACKED else (last, "")


def is_jsonl(path: Path) -> bool:
    """Whether a text is JSON with a document a line, packed or not."""
    return endings(path)[0] in LINES


def opener(path: Path) -> Callable[..., TextIO]:
    """What opens it, unpacked; BadInput for what is no text."""
    kind, packed = endings(path)
    if kind in NO_TEXT:
        raise BadInput(
            f"{path} is not a text: meshwright data reads a text or a .jsonl, or one packed as"
            f" {', '.join(PACKED)}"
        )
    open_: Callable[..., TextIO] = PACKED.get(packed, open)
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
    """The texts of JSON lines; blank lines, as between files put together, hold none."""
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
        if half := HALF.search(row[key]):
            raise BadInput(
                f"{path} line {number} holds half of a character, {ascii(half[0])}: no UTF-8 has it"
            )
        yield row[key]


def prepare(
    path: Path,
    to: Path,
    tokenizer: str = "bytes",
    key: str = "text",
    end: str | None = None,
) -> dict[str, Any]:
    """Make a token file of a text or of JSON lines; its header. Documents of JSON lines end with
    the tokenizer's end-of-text (`end`).

    Memory does not grow with the file: a few megabytes of text are held at once.
    """
    encode = encoder(tokenizer, end, is_jsonl(path))
    return write_texts(
        to,
        chunks=encode.stream(texts(path, key)),
        vocab=encode.vocab,
        tokenizer=tokenizer,
        source=path.name,
        end=encode.end,
        end_id=encode.end_id,
    )


def docstrings() -> Iterator[str]:
    """The docstrings of each single-file module of the standard library, one text a module."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with warnings.catch_warnings():
            # of the compiler, about the sources
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
        paragraphs = [
            ast.get_docstring(node)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        ]
        if text := "\n\n".join(filter(None, paragraphs)):
            yield f"{path.stem}\n\n{text}\n\n"


def corpus(path: Path) -> dict[str, Any]:
    """Write the corpus as a token file of bytes, unless it is there already; its header."""
    if sibling(path, ".json").exists():
        return read_header(path)
    version = f"docstrings of the standard library of Python {sys.version.split()[0]}"
    encode = encoder("bytes")
    return write_texts(
        path,
        chunks=encode.stream(docstrings()),
        vocab=encode.vocab,
        tokenizer="bytes",
        source=version,
    )


Ids = NDArray[Any]
BATCH = 2**22
"""Characters that are handed to the tokenizer at once."""
LARGEST_TOKENIZER = 2**26
"""Bytes of a tokenizer.json."""
ENDS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|end_of_sentence|>",
)
"""What tokenizers call the end of a document, GPT-2's name first."""


@dataclass(frozen=True)
class Encoder:
    """A tokenizer, and what it puts after each document."""

    encode: Callable[[list[str]], list[Ids]]
    """Ids of each text, without the special tokens that a tokenizer may add around one."""
    vocab: int
    end: str | None
    """Name of the token after each document; None: nothing."""
    end_id: int | None

    def stream(self, texts: Iterable[str]) -> Iterator[Ids]:
        """The ids of texts one after the other; some megabytes of text are encoded at once, on all
        cores.
        """
        batch: list[str] = []
        size = 0
        for text in texts:
            batch.append(text)
            size += len(text)
            if size >= BATCH:
                yield self.together(batch)
                batch, size = [], 0
        yield self.together(batch)

    def together(self, batch: list[str]) -> Ids:
        """The ids of a few texts, each with its end."""
        after = [] if self.end_id is None else [np.array([self.end_id])]
        return np.concatenate(
            [
                np.zeros(0, np.uint32),
                *(
                    part
                    for ids in self.encode(batch)
                    for part in (ids, *after)
                ),
            ]
        )


def encoder(
    tokenizer: str, end: str | None = None, documents: bool = False
) -> Encoder:
    """ "bytes" (documents end with the byte 0), or the path of a tokenizer.json.

    end: the token after each document, "none" for nothing; None: the one of ENDS that the tokenizer
    has. documents: the texts are documents. BadInput if there is no such file or token.
    """
    if tokenizer == "bytes":
        if end not in (None, "none"):
            raise BadInput(
                f"--end {end[:40]!r}: documents of bytes end with the byte 0, or with --end none"
            )
        byte = "\\0" if documents and end is None else None
        return Encoder(_bytes, 256, byte, None if byte is None else 0)
    made = _read(tokenizer)
    known: dict[str, int] = made.get_vocab()
    if end not in (None, "none") and end not in known:
        raise BadInput(f"--end {end[:40]!r} is not a token of {tokenizer}")
    end = end or next((name for name in ENDS if name in known), None)
    if documents and end is None:
        raise BadInput(
            f"{tokenizer} has none of {', '.join(ENDS)}: name the token that ends a document with"
            " --end, or --end none"
        )
    end = end if documents and end != "none" else None

    def encode(texts: list[str]) -> list[Ids]:
        with sentences(f"{tokenizer} cannot encode this text"):
            return [
                np.asarray(encoding.ids)
                for encoding in made.encode_batch_fast(
                    texts, add_special_tokens=False
                )
            ]

    if not known:
        raise BadInput(f"{tokenizer} has no tokens")
    return Encoder(
        encode,
        max(known.values()) + 1,
        end,
        None if end is None else known[end],
    )


def token_decoder(tokenizer: str) -> Callable[[list[int]], str]:
    """The way back: ids -> text. Bytes that are no UTF-8 become the sign for that."""
    if tokenizer == "bytes":
        return lambda ids: bytes(i for i in ids if i < 256).decode(
            "utf-8", "replace"
        )
    made = _read(tokenizer)
    return lambda ids: str(made.decode(ids))


def _bytes(texts: list[str]) -> list[Ids]:
    return [np.frombuffer(text.encode("utf-8"), np.uint8) for text in texts]


def _read(path: str) -> Any:
    """The tokenizer in a file; it cuts nothing off and fills nothing up, whatever the file says."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadInput(
            "a tokenizer.json needs the package tokenizers: pip install 'meshwright[train]', or"
            " take --tokenizer bytes"
        ) from None
    text = read_text(path, largest=LARGEST_TOKENIZER)
    with sentences(f"{path} is not a tokenizer.json"):
        made = Tokenizer.from_str(text)
        made.no_truncation()
        made.no_padding()
    return made


@contextmanager
def sentences(what: str) -> Iterator[None]:
    """Whatever the package raises becomes a sentence; it raises bare Exception, and BaseException
    where its Rust code panics.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, GeneratorExit):
        raise
    except BaseException as error:
        raise BadInput(
            f"{what}: {' '.join(str(error).split())[:200]}"
        ) from None
