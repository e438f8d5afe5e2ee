"""Weights of Hugging Face: model.safetensors (or its shards) beside config.json, read under any
layout. Nothing pickled is read.

Each rank reads the bytes of its own slices and no others. Which tensor is which:
`formats.hf_weights`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..describe.model import Model
from ..errors import BadInput
from ..formats import parse_json, read_text
from ..formats.hf import read_hf
from ..formats.hf_config import model_differences, with_defaults
from ..formats.hf_weights import (
    BODY,
    BUFFERS,
    Table,
    TensorPlace,
    weight_place,
    weight_tables,
)
from . import watchdog
from .initial import local, parameters_of_stages, region
from .model import Decoder

ONE = "model.safetensors"
HEAD = "lm_head.weight"
INDEX = "model.safetensors.index.json"
MUST = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "is_encoder_decoder": False,
}
"""Keys of config.json that change what is computed, and the only value we compute."""
OF_FAMILY: dict[str, dict[str, Any]] = {
    "qwen2_moe": {"norm_topk_prob": True, "mlp_only_layers": []},
    "qwen3_moe": {"norm_topk_prob": True, "mlp_only_layers": []},
    "olmo": {"clip_qkv": None},
}
"""The same of single families: the weights of a token's experts add up to 1."""
DEFAULTS = {"norm_topk_prob": False}
"""What transformers takes where a file says nothing, if that is not what we compute."""
_GEMMA = "its embedding is multiplied by the root of the hidden size and its norms by 1 + weight"
NOT_COMPUTED = {
    "gemma": _GEMMA,
    "gemma2": f"{_GEMMA}, logits and scores go through a tanh, and a layer has four norms",
    "gemma3": f"{_GEMMA}, and a layer has four norms",
    "gemma3_text": f"{_GEMMA}, and a layer has four norms",
}
"""Families that the blocks of `model` do not make, and why."""
NUMBERS = ("F32", "F16", "BF16", "F64")


def package() -> Any:
    """Hugging Face's safetensors; BadInput where it is not installed."""
    try:
        import safetensors.torch
    except ImportError:
        raise BadInput(
            "weights need the package safetensors: pip install 'meshwright[train]'"
        ) from None
    return safetensors


def _open(path: Path) -> Any:
    """A safetensors file, mapped into memory; BadInput if it is not one."""
    files = package()
    try:
        return files.safe_open(path, framework="pt")
    except (files.SafetensorError, OSError, ValueError) as error:
        raise BadInput(
            f"{path} is not a safetensors file, or it is damaged: {str(error)[:200]}"
        ) from None


@dataclass(frozen=True)
class WeightFolder:
    """A folder of weights whose names and shapes have been checked against a model."""

    tensors: Mapping[str, Any]
    """Name of a tensor, as our tables spell it -> its slices, read when they are asked for."""
    table: Table

    def read(self, ours: str, rows: int, part: tuple[slice, ...]) -> Tensor:
        """Elements `part` of our parameter `ours`, whose first dimension in the file is `rows` long
        (less than ours if that is padded).
        """
        where = weight_place(self.table, ours)
        assert where is not None
        if where.each:
            every = range(part[0].start, part[0].stop)
            read = [self.tensors[where.named(e)][part[1:]] for e in every]
            return (
                torch.stack(read)
                if read
                else torch.empty(0, *(s.stop - s.start for s in part[1:]))
            )
        first = slice(
            where.part * rows + min(part[0].start, rows),
            where.part * rows + min(part[0].stop, rows),
        )
        source = self.tensors[where.name]
        values: Tensor = (
            source[part[1], first].T
            if where.transposed
            else source[(first, *part[1:])]
        )
        return values


def check(folder: Path, m: Model) -> WeightFolder:
    """The weights of a folder, compared with a model: config.json, every name, every shape.
    BadInput if they are of another model.
    """
    config = parse_json(
        read_text(folder / "config.json"), str(folder / "config.json")
    )
    kind = config.get("model_type")
    if kind not in weight_tables():
        why = NOT_COMPUTED.get(str(kind))
        raise BadInput(
            f"weights of {folder} are of family {str(kind)[:40]!r}: only"
            f" {', '.join(weight_tables())} are read"
            f"{f'; {kind} is not trained: {why}' if why else ''}"
        )
    theirs = read_hf(config, m.name)
    if wrong := model_differences(m, theirs):
        words = ", ".join(
            f"{name} {getattr(with_defaults(theirs), name)}, not {getattr(with_defaults(m), name)}"
            for name in wrong
        )
        raise BadInput(
            f"weights of {folder} are of a model with {words}; config ="
            f" {str(folder / 'config.json')!r} in [model] takes it as it is"
        )
    for key, value in (MUST | OF_FAMILY.get(str(kind), {})).items():
        if config.get(key, DEFAULTS.get(key, value)) != value:
            raise BadInput(
                f"weights of {folder}: {key} = {config[key]!r} in config.json is not computed here"
            )
    weights = WeightFolder(
        _tensors(folder, weight_tables()[str(kind)]),
        weight_tables()[str(kind)],
    )
    _compare(folder, weights, m, str(kind))
    return weights


def _tensors(folder: Path, table: Table) -> dict[str, Any]:
    """Tensors of a folder by their names as the table spells them."""
    if (folder / INDEX).is_file():
        shards = parse_json(
            read_text(folder / INDEX), str(folder / INDEX)
        ).get("weight_map")
        if not isinstance(shards, Mapping) or not all(
            isinstance(file, str) for file in shards.values()
        ):
            raise BadInput(f"{folder / INDEX} has no weight_map of texts")
        paths = {folder / Path(file).name for file in shards.values()}
    elif (folder / ONE).is_file():
        paths = {folder / ONE}
    else:
        raise BadInput(
            f"{folder} holds neither {ONE} nor {INDEX} (pickled weights are not read)"
        )
    if missing := [path.name for path in sorted(paths) if not path.is_file()]:
        raise BadInput(f"{folder} lacks {missing[0]}, which its {INDEX} names")
    tensors = {
        name: file.get_slice(name)
        for file in map(_open, sorted(paths))
        for name in file.keys()  # noqa: SIM118
    }
    body = next(
        match[0] for row in table.values() if (match := BODY.match(row.name))
    )
    if any(name.startswith(body) for name in tensors):
        return tensors
    return {
        name if name == HEAD else body + name: tensor
        for name, tensor in tensors.items()
    }


def _compare(
    folder: Path, weights: WeightFolder, m: Model, family: str
) -> None:
    """Every parameter is there in its shape and as a number, and nothing is left over."""
    left = {name for name in weights.tensors if not BUFFERS.fullmatch(name)}
    # a second copy of the embedding
    left -= {HEAD} if m.tied_embeddings else set()
    every = tensors(m, family)
    for name, parts in every.items():
        if name not in weights.tensors:
            raise BadInput(f"weights of {folder} have no {name}")
        _right(folder, name, weights.tensors[name], file_shape(parts))
    if extra := sorted(left - set(every)):
        raise BadInput(
            f"weights of {folder} hold {extra[0]}, which this model does not have"
        )


Parts = list[tuple[str, TensorPlace, list[int], int]]
"""Of one tensor of the files: (our name, where it stands, our shape, rows of it that count), in the
order of the parts.
"""


def tensors(m: Model, family: str) -> dict[str, Parts]:
    """Name of each tensor of the files of a family -> what it is made of."""
    with torch.device("meta"):
        whole = Decoder(m, range(m.layers), 1)
    by_name: dict[str, Parts] = {}
    for name, p in parameters_of_stages(whole, m):
        where = weight_place(weight_tables()[family], name)
        if where is None:
            raise BadInput(f"{family} has no place for {name}")
        length = weight_rows(name, p, m)
        for e in range(length if where.each else 1):
            by_name.setdefault(where.named(e), []).append(
                (
                    name,
                    replace(where, part=e) if where.each else where,
                    list(p.shape),
                    length,
                )
            )
    return {
        name: sorted(parts, key=lambda part: part[1].part)
        for name, parts in by_name.items()
    }


def file_shape(parts: Parts) -> list[int]:
    """Shape of a tensor of the files: one expert's, or the parts one after the other."""
    _, where, shape, rows = parts[0]
    if where.each:
        return shape[1:]
    whole = [rows * where.parts, *shape[1:]]
    return whole[::-1] if where.transposed else whole


def weight_rows(name: str, p: Tensor, m: Model) -> int:
    """Length of a parameter's first dimension without padding of the vocabulary."""
    return (
        m.vocab if name in ("embedding.weight", "head.weight") else p.shape[0]
    )


def _right(folder: Path, name: str, tensor: Any, want: list[int]) -> None:
    """A tensor of the files has numbers, and the shape that the model needs."""
    if tensor.get_dtype() not in NUMBERS:
        raise BadInput(
            f"weights of {folder}: {name} is of type {tensor.get_dtype()}, not one of"
            f" {', '.join(NUMBERS)}"
        )
    if (shape := list(tensor.get_shape())) != want:
        raise BadInput(
            f"weights of {folder}: {name} has shape {shape}, but the model needs {want}"
        )


@torch.no_grad()
def fill(stage: nn.Module, m: Model, weights: WeightFolder) -> None:
    """Copy this rank's slices into a stage; rows that only pad the vocabulary keep their first
    values.
    """
    for name, p in parameters_of_stages(stage, m):
        watchdog.beat(f"reading {name}"[:48])
        mine = local(p)
        values = weights.read(name, weight_rows(name, p, m), region(p))
        if mine.numel() and values.numel():
            mine.narrow(0, 0, values.shape[0]).copy_(values)


def load(stages: Mapping[int, nn.Module], m: Model, folder: Path) -> None:
    """First weights of a run from a folder. The folder was checked before the ranks started; here
    only names are looked up.
    """
    weights = check(folder, m)
    for stage in stages.values():
        fill(stage, m, weights)
