"""Text -> token ids: the bytes of UTF-8, or a Hugging Face tokenizer.json (package tokenizers,
which has it in Rust).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..formats import read_text

Ids = NDArray[Any]
BATCH = 2**22
"""Characters that are handed to the tokenizer at once."""
LARGEST = 2**26
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
        raise BadInput(f"--end {end[:40]!r} is no token of {tokenizer}")
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


def decoder(tokenizer: str) -> Callable[[list[int]], str]:
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
    text = read_text(path, largest=LARGEST)
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
