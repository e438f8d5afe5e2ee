"""Where torch.distributed.checkpoint keeps tensors: safetensors files and a JSON index, with
hashes; no pickle anywhere.

A checkpoint is a folder. Each rank writes one file RANK.safetensors, which has the offset of each
chunk in its header as PyTorch's HuggingFaceStorageReader looks for it; index.json says for every
tensor its dtype, shape and chunks (offset and shape of the chunk, file, first byte among the data),
and for every file its size, that of its header and its SHA-256: {"format":
"meshwright-checkpoint-2", "step": 100, "tensors": {name: {"dtype", "shape", "chunks": [...]}},
"files": {name: {"bytes", "header", "sha256"}}, "sha256": of all the rest}. Format 1 had files
RANK.bin without a header.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.storage import (
    StorageReader,
    StorageWriter,
    WriteResult,
)
from torch.futures import Future

from ..errors import BadInput
from . import watchdog

FORMAT = "meshwright-checkpoint-2"
FORMATS = (FORMAT, "meshwright-checkpoint-1")
FILE = re.compile(r"(0|[1-9]\d*)\.(safetensors|bin)")
SHARDS = "DCP_SHARDING_INFO"
"""Key of a header under which torch.distributed.checkpoint keeps the offsets of chunks."""
TYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""What safetensors calls them."""
INDEX = "index.json"
DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float64,
        torch.int64,
    )
}
LARGEST_INDEX = 2**30
LARGEST = 2**50
"""Of bytes, elements and steps."""
BLOCK = 2**22


class Damaged(BadInput):
    """A checkpoint is not as it was written; another one may be."""


class Plain:
    """What DCP asks of a storage that has nothing to say to it."""

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept between checkpoints."""

    def prepare_local_plan(self, plan: Any) -> Any:
        """The plan stays as it is."""
        return plan

    def prepare_global_plan(self, plans: Any) -> Any:
        """The plans stay as they are."""
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Only folders given to the constructor."""
        return False


class Writer(Plain, StorageWriter):
    """Writes this rank's chunks into a folder; the coordinator makes the folder, writes the index
    last and then publishes it.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        about: dict[str, Any],
        publish: Callable[[Path], None],
    ) -> None:
        """about: goes into the index as it is;  publish: what the coordinator does with the
        complete folder.
        """
        self.folder, self.rank, self.about, self.publish = (
            folder,
            rank,
            about,
            publish,
        )

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """An empty folder; no rank writes before all have heard of the global plan, so before it
        stands.
        """
        if is_coordinator:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> Future[list[WriteResult]]:
        """One file a rank, on the disk when this returns."""
        name = f"{self.rank}.safetensors"
        results = []
        at = 0
        digest = hashlib.sha256()
        future: Future[list[WriteResult]] = Future()
        tensors: list[Any] = [
            (item.index, planner.resolve_data(item)) for item in plan.items
        ]
        head = header([(index.fqn, index.offset, x) for index, x in tensors])
        with (self.folder / name).open("wb") as file:
            parts: Iterator[Any] = (as_bytes(x) for _, x in tensors)
            for data in chain((head,), parts):
                file.write(data)
                digest.update(data)
            file.flush()
            os.fsync(file.fileno())
        for index, x in tensors:
            where = {"file": name, "at": at, "shape": list(x.shape)}
            results.append(WriteResult(index, x.nbytes, where))
            at += x.nbytes
        about = {
            "bytes": len(head) + at,
            "header": len(head),
            "sha256": digest.hexdigest(),
        }
        for result in results:
            result.storage_data.update(about=about)
        future.set_result(results)
        return future

    def finish(
        self, metadata: Metadata, results: list[list[WriteResult]]
    ) -> None:
        """The index of all ranks' chunks, all of which are on the disk."""
        tensors: dict[str, Any] = {}
        files: dict[str, Any] = {}
        for result in (r for of_rank in results for r in of_rank):
            about: Any = metadata.state_dict_metadata[result.index.fqn]
            entry = {
                "dtype": str(about.properties.dtype).removeprefix("torch."),
                "shape": list(about.size),
                "chunks": [],
            }
            where = result.storage_data
            files[where["file"]] = where["about"]
            offset = list(result.index.offset or [0] * len(about.size))
            chunk = {
                "offset": offset,
                "shape": where["shape"],
                "file": where["file"],
                "at": where["at"],
            }
            tensors.setdefault(result.index.fqn, entry)["chunks"].append(chunk)
        index = {
            "format": FORMAT,
            **self.about,
            "tensors": tensors,
            "files": files,
        }
        with (self.folder / INDEX).open("w", encoding="utf-8") as file:
            json.dump(sealed(index), file)
            file.flush()
            os.fsync(file.fileno())
        sync(self.folder)
        self.publish(self.folder)


class Reader(Plain, StorageReader):
    """Reads chunks by the index; each rank reads the bytes it needs."""

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        """index: of `read_index`."""
        self.folder, self.index = folder, index
        self.bytes = 0
        """Read so far."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index in torch's words."""
        return Metadata(
            {
                name: _metadata(entry)
                for name, entry in self.index["tensors"].items()
            }
        )

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """The folder stands already."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy each piece from its chunk to its place."""
        for item in plan.items:
            watchdog.beat(f"reading {item.storage_index.fqn}"[:48])
            piece = self.read_piece(
                item.storage_index, item.storage_offsets, item.lengths
            )
            target = planner.resolve_tensor(item).detach()
            target.copy_(piece)
            planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def read_piece(
        self, where: MetadataIndex, offsets: Any, lengths: Any
    ) -> Tensor:
        """A part of a chunk: the rows that it spans are read, and no other bytes."""
        first, rows = (offsets[0], lengths[0]) if offsets else (0, None)
        piece = self.read_chunk(where, first, rows)
        for dim in range(1, len(offsets)):
            piece = piece.narrow(dim, offsets[dim], lengths[dim])
        return piece

    def read_chunk(
        self, where: MetadataIndex, first: int = 0, rows: int | None = None
    ) -> Tensor:
        """One chunk as it was written, or so many of its rows."""
        entry = self.index["tensors"][where.fqn]
        offset = list(where.offset or [0] * len(entry["shape"]))
        chunk = next(c for c in entry["chunks"] if c["offset"] == offset)
        dtype = DTYPES[entry["dtype"]]
        shape = list(chunk["shape"])
        width = math.prod(shape[1:]) * dtype.itemsize
        if rows is not None:
            shape[0] = rows
        head = self.index["files"][chunk["file"]].get("header", 0)
        with (self.folder / chunk["file"]).open("rb") as file:
            file.seek(head + chunk["at"] + first * width)
            data = bytearray(file.read(math.prod(shape) * dtype.itemsize))
        self.bytes += len(data)
        if not data:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(data, dtype=dtype).reshape(shape)


def header(tensors: list[tuple[str, Any, Tensor]]) -> bytes:
    """The header of a safetensors file of (name, offset in the whole tensor, chunk), in order."""
    about = dict[str, Any]()
    offsets = dict[str, Any]()
    at = 0
    for name, offset, x in tensors:
        where = [at, at := at + x.nbytes]
        about[name] = {
            "dtype": TYPES[x.dtype],
            "shape": list(x.shape),
            "data_offsets": where,
        }
        offsets[name] = {"saved_offsets": list(offset or [0] * x.dim())}
    words = {"format": "pt", SHARDS: json.dumps(offsets)}
    text = json.dumps({"__metadata__": words, **about}).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    return len(text).to_bytes(8, "little") + text


def as_bytes(x: Tensor) -> memoryview:
    """The tensor's elements in order; not a copy where the tensor is in order already."""
    data: Any = (
        x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    )
    return memoryview(data)


def sync(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _metadata(entry: dict[str, Any]) -> TensorStorageMetadata:
    chunks = [
        ChunkStorageMetadata(torch.Size(c["offset"]), torch.Size(c["shape"]))
        for c in entry["chunks"]
    ]
    return TensorStorageMetadata(
        TensorProperties(DTYPES[entry["dtype"]]),
        torch.Size(entry["shape"]),
        chunks,
    )


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a checkpoint, its shape and arithmetic checked; Damaged if it is not one of
    ours, or not whole.
    """
    try:
        if size_of(folder / INDEX) > LARGEST_INDEX:
            raise Damaged(
                f"{folder / INDEX} is too large to be the index of a checkpoint"
            )
        index = json.loads((folder / INDEX).read_text("utf-8"))
    except OSError:
        raise Damaged(
            f"{folder} is not a checkpoint: it has no {INDEX} (pickled checkpoints are not read)"
        ) from None
    except (ValueError, RecursionError):  # a pickle, or half a file
        raise Damaged(
            f"{folder / INDEX} is damaged: it is not JSON (pickled checkpoints are not read)"
        ) from None
    if (
        not isinstance(index, dict)
        or index.get("format") not in FORMATS
        or index != sealed(index)
        or not _sound(index)
    ):
        raise Damaged(
            f"{folder / INDEX} is not the index of a {FORMAT}, or it is damaged"
        )
    return index


def sealed(index: dict[str, Any]) -> dict[str, Any]:
    """The index with its own SHA-256: of its JSON without it, keys in order."""
    bare = {key: value for key, value in index.items() if key != "sha256"}
    return {
        **bare,
        "sha256": hashlib.sha256(
            json.dumps(bare, sort_keys=True).encode()
        ).hexdigest(),
    }


def size_of(path: Path) -> int:
    """Bytes of a plain file; OSError for a link, which may lead out of the checkpoint, or a device
    or pipe, which may never end.
    """
    about = path.lstat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return about.st_size


def _sound(index: dict[str, Any]) -> bool:
    """Everything is there, of the right kind, and inside its file and tensor; the chunks of a
    tensor cover it once, those of a file fill it.
    """
    try:
        files = index["files"]
        names = all(FILE.fullmatch(name) for name in files)
        heads = {name: about.get("header", 0) for name, about in files.items()}
        sizes = {
            name: about["bytes"] - heads[name] for name, about in files.items()
        }
        names = names and _whole(*heads.values())
        left = dict(sizes)
        tensors = all(
            _covered(entry, sizes, left) for entry in index["tensors"].values()
        )
        return (
            names
            and tensors
            and _whole(index["step"], *sizes.values())
            and not any(left.values())
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _whole(*numbers: Any) -> bool:
    """Whole numbers of a possible size."""
    return all(type(n) is int and 0 <= n < LARGEST for n in numbers)


def _covered(
    entry: dict[str, Any], sizes: dict[str, int], left: dict[str, int]
) -> bool:
    """The chunks lie within their files (name -> bytes) and make up the tensor; their bytes are
    taken from `left`.
    """
    width = DTYPES[entry["dtype"]].itemsize
    shape = entry["shape"]
    chunks = entry["chunks"]
    for chunk in chunks:
        if not _whole(*chunk["offset"], *chunk["shape"], chunk["at"], *shape):
            return False
        inside = all(
            a + n <= whole
            for a, n, whole in zip(
                chunk["offset"], chunk["shape"], shape, strict=True
            )
        )
        size = math.prod(chunk["shape"]) * width
        if not inside or chunk["at"] + size > sizes[chunk["file"]]:
            return False
        left[chunk["file"]] -= size
    elements = math.prod(shape)
    full = [chunk for chunk in chunks if math.prod(chunk["shape"])]
    return (
        elements < LARGEST
        and sum(math.prod(c["shape"]) for c in full) == elements
        and _apart(full, len(shape) - 1)
    )


def _apart(chunks: list[dict[str, Any]], dim: int) -> bool:
    """No two chunks share an element. Chunks are cells of a grid: those whose ranges in a dimension
    meet must differ in the dimensions before it.
    """
    if len(chunks) < 2:
        return True
    if dim < 0:
        return False
    groups: list[list[dict[str, Any]]] = []
    end = -1
    for chunk in sorted(chunks, key=lambda chunk: chunk["offset"][dim]):
        if chunk["offset"][dim] >= end:
            groups.append([])
        groups[-1].append(chunk)
        end = max(end, chunk["offset"][dim] + chunk["shape"][dim])
    return all(_apart(group, dim - 1) for group in groups)


def verify(
    folder: Path, index: dict[str, Any], share: int = 0, shares: int = 1
) -> None:
    """Read every file (or this share of them) and compare size and hash; Damaged names the one that
    was cut or changed.
    """
    for name in sorted(index["files"])[share::shares]:
        about = index["files"][name]
        digest = hashlib.sha256()
        size = 0
        try:
            size_of(folder / name)
            with (folder / name).open("rb") as file:
                while block := file.read(BLOCK):
                    watchdog.beat(f"checking {name} of {folder.name}")
                    digest.update(block)
                    size += len(block)
        except OSError:
            raise Damaged(
                f"checkpoint {folder} is damaged: {name} is missing or not a plain file"
            ) from None
        if size != about["bytes"]:
            raise Damaged(
                f"checkpoint {folder} is damaged: {name} has {size} bytes instead of"
                f" {about['bytes']}"
            )
        if digest.hexdigest() != about["sha256"]:
            raise Damaged(
                f"checkpoint {folder} is damaged: the contents of {name} were changed"
            )
