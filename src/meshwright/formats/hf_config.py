"""Model -> the config.json of Hugging Face transformers that describes it. What no family expresses
is refused.

A family is tried by writing its file and reading it back: it fits if `read_hf` gives the same model
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..describe.layers import kinds
from ..describe.model import Model
from ..errors import BadInput
from .formulas import FieldNames, worked_out
from .hf import read_hf
from .hf_families import is_formula, whole_row
from .hf_keys import family_table

Config = dict[str, Any]
OF_TOKENIZER: Config = {
    "bos_token_id": None,
    "eos_token_id": None,
    "dtype": "float32",
}
"""A checkpoint does not know its tokenizer's special tokens; the families' defaults would be
wrong.
"""
NOT_COMPUTED = (
    "name",
    "seq",
    "vocab_multiple",
    "sources",
    "dropout",
    "notes",
)
"""Fields of a Model that do not change what its weights compute."""
OMITTED = object()
"""Of a key that the file does not have."""


def layer_types(m: Model) -> list[str]:
    """What each layer attends to, where some see a window."""
    every = m.full_every
    return [
        "full_attention"
        if every and i % every == every - 1
        else "sliding_attention"
        for i in range(m.layers)
    ]


def row_values(what: Any, names: FieldNames) -> Any:
    """A value of a row: formulas worked out, keys of inner tables only where they have a value."""
    if isinstance(what, Mapping):
        made = {key: row_values(value, names) for key, value in what.items()}
        return {k: v for k, v in made.items() if v is not None}
    return worked_out(what.strip("= "), names) if is_formula(what) else what


def config_of(family: str, m: Model) -> Config:
    """The config.json of a model as a family has it.  Raises BadInput where it cannot."""
    row = whole_row(family_table()["written"][family])
    # what the names in the formulas of a written row stand for: fields of the model
    names = FieldNames(m, {"omitted": OMITTED, "layer_types": layer_types(m)})
    if not worked_out(row.pop("when", "True"), names):
        raise BadInput(f"{m.name[:60]} is no {family}")
    row.pop("is", None)
    made = {key: row_values(what, names) for key, what in row.items()}
    return {k: v for k, v in made.items() if v is not OMITTED}


def with_defaults(m: Model) -> Model:
    """A model with its defaults written out."""
    return replace(m, kv_heads=m.K, head_dim=m.h, activation=m.act)


def model_differences(a: Model, b: Model) -> list[str]:
    """Names of the fields in which two models compute different things."""
    names = [f.name for f in fields(Model) if f.name not in NOT_COMPUTED]
    keys = [
        name
        for name in names
        if getattr(with_defaults(a), name) != getattr(with_defaults(b), name)
        and not (name == "ffn" and all(kind.moe for kind in kinds(a)))
    ]
    return [
        *keys,
        *(
            ["seq"]
            if a.positions == b.positions == "learned" and a.seq != b.seq
            else []
        ),
    ]


def write_hf(m: Model) -> Config:
    """The config.json of a model; BadInput names what the nearest family cannot express."""
    nearest: tuple[int, str, list[str]] | None = None
    families = [*family_table()["written"]]
    for family in families:
        try:
            config = {**config_of(family, m), **OF_TOKENIZER}
            wrong = model_differences(m, read_hf(config))
        except BadInput:
            continue
        if not wrong:
            return config
        if nearest is None or len(wrong) < nearest[0]:
            nearest = len(wrong), family, wrong
    why = (
        f": {nearest[1]} is nearest, but differs in {', '.join(nearest[2])}"
        if nearest
        else ""
    )
    raise BadInput(
        f"model {m.name[:60]} cannot be written as one of {', '.join(families)}{why}"
    )
