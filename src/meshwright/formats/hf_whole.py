"""The language model of a multimodal config.json: its part of the file, and the tie of its two
embeddings, which in most classes of transformers the whole decides and not the part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..describe import shipped
from ..describe.read import brief
from ..errors import BadInput
from .hf_keys import classes

PARTS = ("text_config", "llm_config", "language_config")
"""Keys of the language model's part."""
NO_TOWERS = (*PARTS, "quantization_config", "generation_config")
TEXT_OF = {"mistral3": "mistral", "phi4mm": "phi3", "qwen2_audio": "qwen2"}
"""model_type of a multimodal file -> that of its text part, where it is not its own with _text."""
FLAT = ("phi4_multimodal", "phi4mm", "qwen2_vl", "qwen2_5_vl")
"""Files that have the language model's keys beside those of their towers."""
RENAMED = {"emu3_text_model": "llama"}
"""Text parts whose layers are those of another family."""
OUTER = ("architectures",)
"""Keys that speak of the whole."""
THINKER = "thinker_config"
"""Key of the one of several models that reads and writes (Qwen Omni)."""
TIED = "tie_word_embeddings"


@cache
def tie_rules() -> Mapping[str, bool | str]:
    """model_type of a whole -> who decides the tie in its class: true or false, its own key, with
    that default; "inner", the key of the text part; "either", tied where one of the two says so;
    "never".
    """
    rules: Mapping[str, bool | str] = json.loads(
        shipped.text("transformers.json")
    )["ties"]
    return rules


def tie(
    kind: str, whole: Mapping[str, Any], text: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The tie that the class of the whole builds, where it is not left to the text part, and a note
    where the file says otherwise, or says nothing and the class of the text part would decide
    otherwise. So did that of the whole in transformers 4: a file of its time whose outer part says
    nothing goes by its text part, as its weights do (Mistral Small 3.1: 23.6 billion, not 22.9). A
    class that is not known asks the whole first.
    """
    rule = tie_rules().get(kind)
    wrote = whole.get("transformers_version", text.get("transformers_version"))
    if isinstance(rule, bool) and re.match(r"[34]\.", str(wrote)):
        rule = "inner" if whole.get(TIED) is None else rule
    made = {TIED: rule} if isinstance(rule, bool) else {}
    if rule == "never":
        made = {TIED: False}
    elif TIED in whole and rule != "inner":
        made = {TIED: whole[TIED]}
    if rule == "either" and not made.get(TIED):
        made = {}
    own = classes().get(str(text["model_type"]), {"defaults": {}})["defaults"]
    counted = {**own, **text, **made}.get(TIED, False)
    pair = [part.get(TIED) for part in (whole, text)]
    alone = own.get(TIED, counted) if pair == [None, None] else counted
    if all(value in (None, counted) for value in (*pair, alone)):
        return made, []
    outside, within = ("not given" if v is None else brief(v) for v in pair)
    why = (
        "outside says; trace:FILE asks its class"
        if rule is None
        else f"{brief(counted)}, as its class builds it"
    )
    return made, [
        f"{TIED} is {outside} outside and {within} in text_config: counted as {why}"
        + "; a checkpoint that holds both matrices keeps both"
        * (counted is True)
    ]


def text_kind(kind: Any) -> Any:
    """model_type of the language model of a multimodal file that does not say it."""
    own = f"{kind}_text"
    return own if own in classes() else TEXT_OF.get(str(kind), kind)


def text_part(
    config: Mapping[str, Any],
) -> tuple[Mapping[str, Any], list[str]]:
    """The language model of a multimodal config, and a note on what it is not."""
    kind = config.get("model_type")
    if isinstance(kind, str) and isinstance(config.get(THINKER), Mapping):
        raise BadInput(
            f"config.json ({kind[:40]}): it is several language models: give its {THINKER} as a"
            f" file of its own, with model_type {kind[:40]}_thinker"
        )
    text: Any = next((config[key] for key in PARTS if key in config), None)
    inner = (
        text
        if isinstance(text, Mapping) and "num_hidden_layers" not in config
        else None
    )
    if inner is None and not (isinstance(kind, str) and kind in FLAT):
        return config, []
    outer = str(kind)[:40]
    if config.get("is_encoder_decoder"):
        raise BadInput(
            f"config.json ({outer}): is_encoder_decoder is set: only decoders are read"
        )
    parts = [
        key
        for key, value in config.items()
        if isinstance(value, Mapping) and key.endswith("_config")
    ]
    left = (
        ", ".join(
            brief(key).strip("'") for key in parts[:6] if key not in NO_TOWERS
        )
        or "towers and projectors of other media, which the file does not describe,"
    )
    notes = [
        f"only the language model of {outer} is counted: {left} and their tokens are left out"
    ]
    # older files have the language model's keys beside those of the towers
    if inner is None:
        own = {
            key: value
            for key, value in config.items()
            if key not in (*parts, *OUTER)
        }
        return {**own, "model_type": text_kind(outer)}, notes
    named = {"model_type": text_kind(kind), **inner}
    own = named["model_type"]
    if isinstance(own, str):
        named["model_type"] = RENAMED.get(own, own)
    tied, contrary = tie(outer, config, named)
    return {**named, **tied}, [*notes, *contrary]
