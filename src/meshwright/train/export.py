"""A checkpoint as Hugging Face weights: model.safetensors, or shards and their index, and
config.json, which transformers loads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..describe.model import Model
from ..describe.read import read
from ..errors import BadInput, unknown
from ..formats.hf_config import write_hf
from . import checkpoint
from .storage import Reader
from .weights import INDEX, ONE, Parts, file_shape, package, tensors

CONFIG = "config.json"
SHARD_BYTES = 5 * 10**9
"""Largest file, as `save_pretrained` of transformers wrote them for years."""
NUMBERS = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Of the files; bf16 is the nearest to what was trained, ties to even."""


def export_checkpoint(
    source: Path,
    to: Path,
    largest: int = SHARD_BYTES,
    numbers: str = "fp32",
) -> dict[str, Any]:
    """Write the weights of a run's newest checkpoint, or of one checkpoint; what was written.

    largest: bytes of a file;  numbers: of NUMBERS.  BadInput if there is no sound checkpoint, no
    family that expresses the model, or `to` holds weights.
    """
    if numbers not in NUMBERS:
        raise unknown("--numbers", numbers, NUMBERS)
    dtype = NUMBERS[numbers]
    files = package()
    path, index, model = sound(source)
    if index.get(checkpoint.OWN):
        raise BadInput(
            f"checkpoint {path} is of {index[checkpoint.OWN]}, a model of one's own: Hugging Face"
            " has no place for it"
        )
    config = write_hf(model) | {
        "dtype": str(dtype).removeprefix("torch."),
    }
    if any((to / name).exists() for name in (ONE, INDEX, CONFIG)):
        raise BadInput(f"{to} holds weights already: take another folder")
    reader = Reader(path)
    if any(name.startswith(checkpoint.FAVOUR) for name in reader.shapes):
        raise BadInput(
            f"checkpoint {path} chooses experts with biases (train.balance_bias), for which"
            f" {config['model_type']} has no place"
        )
    demand_finite(reader)
    to.mkdir(parents=True, exist_ok=True)
    every = tensors(model, str(config["model_type"]))
    shards = list(split(every, largest // dtype.itemsize))
    names = shard_names(len(shards))
    total = dtype.itemsize * sum(map(elements, every.values()))
    try:
        for name, shard in zip(names, shards, strict=True):
            made = {n: x.to(dtype) for n, x in _gather(reader, shard).items()}
            files.torch.save_file(made, to / name, metadata={"format": "pt"})
        if len(shards) > 1:
            where = {
                tensor: name
                for name, shard in zip(names, shards, strict=True)
                for tensor in shard
            }
            sizes = {"total_size": total}
            put_json(to / INDEX, {"metadata": sizes, "weight_map": where})
        put_json(to / CONFIG, config)
    except (OSError, files.SafetensorError) as error:
        for name in (*names, INDEX, CONFIG):  # half of them are no weights
            (to / name).unlink(missing_ok=True)
        raise OSError(str(error)) from None
    return {
        "checkpoint": str(path),
        "step": index["step"],
        "family": config["model_type"],
        "tensors": len(every),
        "files": len(shards),
        "weights_bytes": total,
        "output": str(to),
    }


def shard_names(count: int) -> list[str]:
    """What transformers calls so many files."""
    if count == 1:
        return [ONE]
    return [
        f"model-{n:05d}-of-{count:05d}.safetensors"
        for n in range(1, count + 1)
    ]


def put_json(path: Path, table: dict[str, Any]) -> None:
    """Write a table, indented as transformers does."""
    text = json.dumps(table, indent=2, sort_keys=True)
    path.write_text(text + "\n", "utf-8")


def demand_finite(reader: Reader) -> None:
    """BadInput if a weight is not a finite number; one by one, before anything is written."""
    for name in reader.shapes:
        of_model = name.startswith("weights/")
        if of_model and not torch.isfinite(reader.whole(name)).all():
            raise BadInput(
                f"checkpoint {reader.folder} holds numbers that are not finite, in {name}"
            )


def sound(source: Path) -> tuple[Path, dict[str, Any], Model]:
    """The checkpoint meant (the folder itself, or the newest in a run's), its index and its model;
    BadInput if a byte of it is not as written, which names the newest sound one of a run before it.
    """
    one = checkpoint.NAME.fullmatch(source.name)
    steps = [source] if one else checkpoint.complete(source)
    if not steps:
        raise BadInput(
            f"{source} is neither a checkpoint nor the folder of a run that has one"
        )
    path, index, damage = checkpoint.newest_sound(
        steps, checkpoint.sound_index
    )
    if damage:
        raise BadInput(f"{damage}; {path} is sound")
    model = read(Model, index.get("model"), "the checkpoint's model")
    return path, index, model


def split(every: dict[str, Parts], largest: int) -> Iterator[dict[str, Parts]]:
    """The tensors in their order, as many to a file as fit. largest: elements of a file."""
    shard: dict[str, Parts] = {}
    filled = 0
    for name, parts in every.items():
        if shard and filled + elements(parts) > largest:
            yield shard
            shard, filled = {}, 0
        shard[name] = parts
        filled += elements(parts)
    yield shard


def elements(parts: Parts) -> int:
    """Of a tensor."""
    return math.prod(file_shape(parts))


def _gather(reader: Reader, shard: dict[str, Parts]) -> dict[str, Tensor]:
    """The tensors of one file."""
    source = {
        f"weights/{ours}": torch.empty(shape)
        for parts in shard.values()
        for ours, _, shape, _ in parts
    }
    reader.fill(source)
    made = {}
    for name, parts in shard.items():
        pieces = [
            source[f"weights/{ours}"][where.part]
            if where.each
            else source[f"weights/{ours}"][:count]
            for ours, where, _, count in parts
        ]
        tensor = torch.cat(pieces)
        made[name] = (
            tensor.T if parts[0][1].transposed else tensor
        ).contiguous()
    return made
