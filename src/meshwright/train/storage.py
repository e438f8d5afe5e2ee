"""Where torch.distributed.checkpoint keeps tensors: safetensors files, which PyTorch's Hugging Face
reader reads, under seals; no pickle anywhere.

A checkpoint is a folder. Each rank writes one file, whose header says of each chunk what it is and
where in its tensor it lies; index.json, written last, says what the run is and seals each file by
its size and hash: {"format": "meshwright-checkpoint-3", "step": 100, "files": {name: {"bytes",
"sha256"}}, "sha256": of all the rest}.
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
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import (
    ReadItem,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.state_dict_loader import load as read_state
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from ..errors import BadInput
from . import watchdog

FORMAT = "meshwright-checkpoint-3"
FILE = re.compile(r"[\w-]+\.safetensors")
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
LARGEST_INDEX = 2**30
LARGEST = 2**50
"""Of bytes and steps."""
BLOCK = 2**22


class Damaged(BadInput):
    """A checkpoint is not as it was written; another one may be."""


class Beating(DefaultLoadPlanner):
    """Plans what is read; the watchdog hears of each piece."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False)

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Where it goes."""
        watchdog.beat(f"reading {read_item.storage_index.fqn}"[:48])
        place: Tensor = super().resolve_tensor(read_item)
        return place


class Writer(StorageWriter):
    """Writes this rank's chunks into a folder; the coordinator makes the folder, writes the index
    last and then publishes it.

    PyTorch's own writer of safetensors puts a whole file together in memory before it writes it,
    so that a rank's state is there once more, and its files differ from run to run in the order of
    their header.
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

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept between checkpoints."""

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """An empty folder; no rank writes before all have heard of the global plan, so before it
        stands.
        """
        if is_coordinator:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The plan stays as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The plans stay as they are."""
        return plans

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> Future[list[WriteResult]]:
        """One file a rank, on the disk when this returns."""
        name = f"{self.rank}.safetensors"
        tensors: list[Any] = [
            (item.index, planner.resolve_data(item)) for item in plan.items
        ]
        head = header([(index.fqn, index.offset, x) for index, x in tensors])
        parts: Iterator[Any] = (as_bytes(x) for _, x in tensors)
        digest = hashlib.sha256()
        with (self.folder / name).open("wb") as file:
            for data in chain((head,), parts):
                file.write(data)
                digest.update(data)
            file.flush()
            os.fsync(file.fileno())
            seal = {"bytes": file.tell(), "sha256": digest.hexdigest()}
        future: Future[list[WriteResult]] = Future()
        future.set_result(
            [WriteResult(at, x.nbytes, {name: seal}) for at, x in tensors]
        )
        return future

    def finish(
        self, metadata: Metadata, results: list[list[WriteResult]]
    ) -> None:
        """The index of all ranks' files, all of which are on the disk."""
        files: dict[str, Any] = {}
        for result in chain.from_iterable(results):
            files |= result.storage_data
        index = {"format": FORMAT, **self.about, "files": files}
        with (self.folder / INDEX).open("w", encoding="utf-8") as file:
            json.dump(sealed(index), file)
            file.flush()
            os.fsync(file.fileno())
        sync(self.folder)
        self.publish(self.folder)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Only folders given to the constructor."""
        return False


class Reader(HuggingFaceStorageReader):
    """PyTorch's reader; each rank reads the bytes it needs."""

    def __init__(self, folder: Path, metadata: Metadata | None = None) -> None:
        """folder: of files whose seals are whole;  metadata: what another rank has found in their
        headers. Damaged if a tensor is not all there.
        """
        super().__init__(str(folder))
        self.folder = folder
        self.metadata = metadata or self.examined()

    def examined(self) -> Metadata:
        """What the headers of the files say."""
        try:
            metadata = super().read_metadata()
        except Exception as error:  # whatever safetensors finds wrong
            raise Damaged(
                f"checkpoint {self.folder} is damaged: {error}"
            ) from None
        for name, about in metadata.state_dict_metadata.items():
            chunks: Any = getattr(about, "chunks", ())
            size: Any = getattr(about, "size", ())
            if sum(math.prod(c.sizes) for c in chunks) != math.prod(size):
                raise Damaged(
                    f"checkpoint {self.folder} is damaged: {name} is not whole"
                )
        return metadata

    def read_metadata(self) -> Metadata:
        """For PyTorch's loader, on every rank."""
        return self.metadata

    @property
    def shapes(self) -> dict[str, list[int]]:
        """Name of a tensor -> its shape."""
        every: dict[str, Any] = self.metadata.state_dict_metadata
        return {name: list(about.size) for name, about in every.items()}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Read these, each rank the part that it holds; BadInput if there is none of that name and
        shape.
        """
        for name, x in tensors.items():
            if (there := self.shapes.get(name)) != [*x.shape]:
                raise BadInput(
                    f"checkpoint {self.folder} does not hold this model: {name} is"
                    f" {there or 'missing'}, not {[*x.shape]}"
                )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            read_state(tensors, storage_reader=self, planner=Beating())

    def whole(self, name: str) -> Tensor:
        """A tensor put together from the chunks of all ranks."""
        tensor = torch.empty(self.shapes[name])
        self.fill({name: tensor})
        return tensor


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
        or index.get("format") != FORMAT
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
    """Step, scaler and files are there and of the right kind."""
    try:
        files, _ = index["files"], index["scaler"]
        sizes = [about["bytes"] for about in files.values()]
        return all(map(FILE.fullmatch, files)) and all(
            type(n) is int and 0 <= n < LARGEST
            for n in (index["step"], *sizes)
        )
    except (KeyError, TypeError, AttributeError):
        return False


def verify(
    folder: Path, index: dict[str, Any], share: int = 0, shares: int = 1
) -> None:
    """Read every file (or this share of them) and compare size and hash; Damaged names the one that
    was cut, changed or added.
    """
    stray = {path.name for path in folder.glob("*.safetensors")}
    if stray := stray - set(index["files"]):
        raise Damaged(
            f"checkpoint {folder} is damaged: {min(stray)} is not one of its files"
        )
    for name in sorted(index["files"])[share::shares]:
        about = index["files"][name]
        try:
            size = size_of(folder / name)
            digest = sha256(folder / name, f"checking {name} of {folder.name}")
        except OSError:
            raise Damaged(
                f"checkpoint {folder} is damaged: {name} is missing or not a plain file"
            ) from None
        if size != about["bytes"]:
            raise Damaged(
                f"checkpoint {folder} is damaged: {name} has {size} bytes instead of"
                f" {about['bytes']}"
            )
        if digest != about["sha256"]:
            raise Damaged(
                f"checkpoint {folder} is damaged: the contents of {name} were changed"
            )


def sha256(path: Path, words: str) -> str:
    """Of a whole file. words: what the watchdog hears as it is read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            watchdog.beat(words)
            digest.update(block)
    return digest.hexdigest()
