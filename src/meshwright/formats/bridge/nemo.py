"""NeMo 1's YAML of a GPT model: its words for Megatron's arguments.

Source: github.com/NVIDIA/NeMo r2.0.0, nlp_language_modeling/conf/megatron_gpt_config.yaml;
models/language_modeling/megatron_gpt_model.py and megatron_base_model.py; apex,
DistributedFusedAdam, for what its optimizer overlaps by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...errors import BadInput
from .reading import FileKeys
from .table import get
from .tool import Tool

CONVERTS = ("run.huggingface_ckpt_path", "run.nemo_file_name")
"""Keys of the launcher's stages that convert a checkpoint."""
SIBLING = re.compile(r"\$\{\.(\w+)\}")
PRODUCT = re.compile(r"\$\{multiply:\s*(\d+),\s*(\d+)\}")


class Nemo(Tool):
    """Recognised by its table; its keys are said in Megatron's words."""

    def of_tree(self, keys: Mapping[str, Any], where: str) -> FileKeys:
        """The settings of the model, and the ranks of its trainer."""
        model = {
            key.removeprefix("model."): resolved(keys, key)
            for key in keys
            if key.startswith("model.")
        }
        trains = any(key.startswith("optim.") for key in model)
        if not trains or {*CONVERTS} & {*keys}:
            raise BadInput(
                f"{where[:80]} evaluates or converts a model and trains none"
            )
        if not model.get("activations_checkpoint_granularity", True):
            for key in (
                "method",
                "num_layers",
            ):  # of a granularity that is off
                model.pop(f"activations_checkpoint_{key}", None)
        if model.get("override_vocab_size"):
            model["make_vocab_size_divisible_by"] = 1  # they are the rows
        if model.get("virtual_pipeline_model_parallel_size"):
            model.setdefault("overlap_p2p_comm", False)
        else:
            model.pop("overlap_p2p_comm", None)
        model["precision"] = keys.get("trainer.precision", 32)
        out: dict[str, Any] = {}
        renamed = get(self.name).older
        for key, words in get(self.name).words.items():
            out |= translated(key, model.pop(key, None), words)
        for key, value in model.items():
            if value is not None:
                out[renamed.get(key, key)] = value
        demand_values(out)
        if on := out.pop("fp8", None):
            kind = "e4m3" if out.get("fp8_e4m3") else "hybrid"
            out |= {"fp8_format": kind} if on is True else {}
        counts = [keys.get(f"trainer.{n}") for n in ("devices", "num_nodes")]
        devices, nodes = (n if isinstance(n, int) else 0 for n in counts)
        return FileKeys(out, devices * (nodes or 1) or None)


def resolved(keys: Mapping[str, Any], key: str) -> Any:
    """A value, with `${.other}` and `${multiply:4, ${.other}}` filled in."""
    value = keys[key]
    if not isinstance(value, str) or "${" not in value:
        return value
    section = key.rpartition(".")[0]
    text = SIBLING.sub(
        lambda m: str(keys.get(f"{section}.{m[1]}", m[0])), value
    )
    text = PRODUCT.sub(lambda m: str(int(m[1]) * int(m[2])), text)
    return int(text) if text.isdecimal() else text


def demand_values(arguments: Mapping[str, Any]) -> None:
    """BadInput for a setting whose value stands in another file."""
    for key in get("nemo").read_keys & {*arguments}:
        if "${" in str(arguments[key]):
            raise BadInput(
                f"NeMo 1: {key} {arguments[key]!s:.60} stands for what the file does not say: write"
                " its value"
            )


def translated(
    key: str, value: object, words: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What a word is in Megatron's arguments.  Raises BadInput for one that is not predicted."""
    if value is None:
        return {}
    word = str(value).lower()
    if word not in words:
        raise BadInput(
            f"NeMo 1: {key} {word[:40]} is not predicted: {', '.join(words)} are"
        )
    return words[word]
