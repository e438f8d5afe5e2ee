"""Hugging Face config.json -> Model, for the decoder families people train.

Old and new spellings are read (`n_embd`, `num_local_experts`, nested `text_config`, ...), and keys
left out are the defaults of the family's class. `hf_families` says what each family is, `hf_keys`
what becomes of keys that no family reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..describe.model import Model
from ..describe.read import brief, read
from ..errors import BadInput
from ..trace import hf as trace
from . import parse_json, read_text
from .hf_common import LONGEST, rotary_positions
from .hf_families import HfFamily, common, families
from .hf_keys import (
    EVERYWHERE,
    Config,
    classes,
    family_table,
    missing_sizes,
    rename_keys,
)
from .hf_layers import FULL, arrange, layer_count, words_of_list
from .hf_whole import text_part

__all__ = ["at_length", "families", "load_hf", "read_hf"]
HEADS = (
    r"(Pre|PreTrained)?Model|DoubleHeadsModel"
    r"|For\w*(Classification|Answering|MultipleChoice|RewardModel|ProcessRewardModel|Embedding)"
)
"""What stands after a family's name in classes that have its blocks, but another output than the
language model's.
"""
NO_NAMES = (
    *("", "config", "configs", "data", "hf", "home", "in", "input", "inputs"),
    *("llm", "llms", "model", "models", "root", "src", "tmp", "work"),
)
"""Folders that hold a model and are not called after it."""
STORED = (
    "quantization_config says how the file's weights are stored; training computes and keeps them"
    " as --precision says"
)
"""The note on a checkpoint in few bits: no adapter is trained on frozen weights here."""
CAPPED = "seq: "
"""How the note on a length begins that the file does not say."""


def load_hf(path: str | Path, by_code: bool = False) -> Model:
    """The model in a config.json, or in a directory that holds one; its name is that of the
    directory or file, or what the file says where that is "in" or "models".

    by_code: count it by a trace of its code, even if a table knows it.
    """
    file = Path(path)
    # read_text says what is wrong with the path
    with suppress(OSError, ValueError):
        file = file / "config.json" if file.is_dir() else file
    folder = Path(
        os.path.abspath(file)
    ).parent.name  # ../config.json has one too
    name = file.stem if file.name != "config.json" else folder
    if name.lower() in NO_NAMES:
        name = ""
    data = parse_json(read_text(file), str(file)[:200])
    if "schema" in data and "verb" in data:
        raise BadInput(
            f"{str(file)[:80]} is a result of meshwright {brief(data['verb']).strip(chr(39))}, not"
            " a model: plan -o plan.toml writes a job that every verb takes, and report shows a"
            " result"
        )
    try:
        return (trace_model if by_code else by_table)(data, name)
    except BadInput as error:
        said = str(error).removeprefix("config.json")
        raise BadInput(
            str(error) if said == str(error) else f"{file.name}{said}"
        ) from None


def by_table(config: Mapping[str, Any], name: str) -> Model:
    """The model by its family's table; where that refuses the file, what its own code builds of it,
    if that is installed.
    """
    try:
        return read_hf(config, name)
    except BadInput as refusal:
        if not trace.installed():
            raise
        try:
            model = trace_model(config, name)
        except BadInput as error:
            known = config.get("model_type") in families()
            raise (refusal if known else error) from None
        if config.get("model_type") not in families():
            return model
        why = f"counted by a trace of its code, since {str(refusal)[:300]}"
        return replace(model, notes=(why, *model.notes))


def read_hf(config: Mapping[str, Any], name: str = "") -> Model:
    """The Model that a config.json describes; its `notes` say what was left out.

    Its sequences have min(max_position_embeddings, 8192) tokens, because the former is what the
    model can be served with after long-context tuning, not what it was trained on (learned
    positions: their number). Raises BadInput for an unknown architecture, and for whatever is
    missing, malformed or not expressible.
    """
    text, notes = text_part(config)
    kind = text.get("model_type")
    if not isinstance(kind, str) or kind not in families():
        raise _unknown(kind)
    family = families()[kind]
    c = _config(text, kind, family)
    shared = {"layers": layer_count(c)} | rotary_positions(c)
    fields = arrange(shared | common().fields(c) | family.fields(c))
    if "layer_types" not in c.asked:  # its class knows of nothing else
        words_of_list(c, "layer_types", {FULL: "full"})
    if fields["activation"] == (
        "silu" if fields.get("gated", True) else "gelu"
    ):
        del fields["activation"]  # the usual one
    own_notes = fields.pop("notes", ())
    fields["name"] = name or _own_name(text) or kind
    longest = fields.pop("longest", 0) or c.whole(
        "max_position_embeddings", "n_positions", "seq_length", default=2048
    )
    learned = fields.get("positions") == "learned"
    fields["seq"] = longest if learned else min(longest, LONGEST)
    model = read(
        Model, {k: v for k, v in fields.items() if v is not None}, c.where
    )
    shape = {**vars(model), "kv_heads": model.K, "head_dim": model.h}
    if model.moe:
        shape["experts"] = model.moe.experts
    return replace(
        model,
        notes=(
            *notes,
            *own_notes,
            *_architecture(c, family),
            *c.unread(shape),
            *missing_sizes(c, model.moe is not None),
            *next_token_note(model),
            *(
                [STORED]
                if {**config, **text}.get("quantization_config")
                else []
            ),
            *([length_note(longest)] if longest > fields["seq"] else []),
        ),
    )


def trace_model(config: Mapping[str, Any], name: str) -> Model:
    """The model that its own code in transformers says."""
    if not trace.installed():
        raise BadInput(
            "a trace of a model's code needs transformers and torch: pip install 'meshwright[hf]'"
        )
    model = trace.read_traced(config, name)
    longest = max(
        (
            int(part.get("max_position_embeddings") or 0)
            for part in (config, config.get("text_config"))
            if isinstance(part, Mapping)
            and isinstance(part.get("max_position_embeddings"), int)
        ),
        default=0,
    )
    if longest <= model.seq:
        return model
    return replace(model, notes=(*model.notes, length_note(longest)))


def length_note(longest: int) -> str:
    """The note on the length that is taken: a file says only how long a text may be."""
    return (
        f"{CAPPED}how long a text may be ({longest:,} tokens) is not what training uses: sequences"
        f" of {LONGEST:,} are taken; --seq gives another length"
    )


def next_token_note(model: Model) -> Iterator[str]:
    """The note on blocks that the file describes for training and transformers does not train."""
    if n := model.mtp_layers:
        yield (
            f"{n} next-token block{'s' * (n > 1)} (mtp_layers) like the last layer"
            f" {'are' if n > 1 else 'is'} trained too, as by its authors: part of the time and"
            " memory, not of the parameters; transformers trains none"
        )


def at_length(model: Model) -> Model:
    """The model where a job says its length itself: without the note on the one that was taken."""
    kept = tuple(n for n in model.notes if not n.startswith(CAPPED))
    return replace(model, notes=kept) if kept != model.notes else model


def _config(text: Mapping[str, Any], kind: str, family: HfFamily) -> Config:
    """The file under the names of its class, with the class's defaults."""
    where = f"config.json ({kind})"
    of = classes()[family.like or kind]
    # either may be the field
    names = [
        (a, b) if b in of["defaults"] else (b, a)
        for a, b in of["aliases"].items()
    ]
    given = family.table("defaults")
    also = (*family.row.get("also", ()), *family.row.get("unused", ()))
    defaults = {**({} if family.like else of["defaults"]), **given}
    known = frozenset((*of["defaults"], *given, *also, *EVERYWHERE))
    aliases = {**dict(names), **family.table("aliases")}
    return Config(
        rename_keys(text, aliases, where),
        defaults,
        where,
        known,
    )


def _unknown(kind: object) -> BadInput:
    """The sentence for a family that is not read; it must not tempt anyone to write another's
    name.
    """
    if kind is None:
        return BadInput(
            "config.json has no model_type, which names the model's code: nothing says how its"
            " other fields are to be read"
        )
    name = kind[:80] if isinstance(kind, str) else brief(kind)
    if reason := family_table()["undescribed"].get(name):
        return BadInput(
            f"config.json ({name}): a layer has {reason}, which this description of a model cannot"
            f" express; {trace.INSTALL}"
        )
    return BadInput(
        f"config.json: model_type {name!r} is not known (read are {len(families())} families, from"
        f" gpt2 and llama to deepseek_v32 and qwen3_next{_alike(name)}); model_type names the"
        " model's code, so the name of another family would give wrong counts;"
        f" {trace.INSTALL}"
    )


def _alike(name: str) -> str:
    """Families whose names begin alike."""
    stem = re.split(r"[\d_-]", name)[0]
    names = [
        kind for kind in families() if len(stem) > 2 and kind.startswith(stem)
    ]
    return f"; of that name {', '.join(names[:6])}" if names else ""


def _own_name(config: Mapping[str, Any]) -> str:
    name = config.get("_name_or_path")
    return name.rstrip("/").split("/")[-1] if isinstance(name, str) else ""


def spelling(name: str) -> str:
    """The name of a class without capitals and underscores."""
    return name.replace("_", "").lower()


def _architecture(c: Config, family: HfFamily) -> Iterator[str]:
    """A note if `architectures` names a class with another output; BadInput if it names another
    model.
    """
    names = c.listed("architectures") or []
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise BadInput(
            f"{c.where}: architectures must be names of classes, not {brief(wrong[0])}"
        )
    own = family.classes or (
        classes()[family.like or c.data["model_type"]]["class"],
    )
    # authors write Ernie4_5_ForCausalLM, and transformers Ernie4_5ForCausalLM
    spelled = [spelling(name) for name in own]
    if not names or any(spelling(name) in spelled for name in names):
        return
    if names[0].endswith(own):
        yield (
            f"{c.where}: architectures says {brief(names[0])}, counted as {own[0]}: what it adds to"
            " that or leaves out cannot be told from this file"
        )
        return
    stem = re.sub("(ForCausalLM|LMHeadModel)$", "", own[0])
    if not re.fullmatch(re.escape(stem) + f"({HEADS})", names[0]):
        raise BadInput(
            f"{c.where}: architectures says {brief(names[0])}, another model than {own[0]}: "
            "what it adds or leaves out cannot be told from this file"
        )
    yield (
        f"{c.where}: architectures says {brief(names[0])}, counted as {own[0]} with a language"
        " model's output head"
    )
