"""A language model of transformers from its configuration, on the meta device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ..describe.model import Model
from ..errors import BadInput, brief
from .exact import Uneven
from .model import in_16_bits_or_32, traced_model

TOKENS = 256
"""T of the first of three passes: chunks of state spaces are that long."""
LONGEST = 8192
REMOTE = "auto_map"
NEXT_TOKENS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_layers")
FAILS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What code raises that settings lead astray."""
IMPLEMENTATION = "batched_mm"
"""The experts of each token as one batched product: no loop over what data choose."""


def build_model(config: Mapping[str, Any]) -> Model:
    """The Model of a configuration; BadInput for one that transformers does not know, or whose code
    does not run without numbers.
    """
    given, text, notes = configured(config)
    longest = int(getattr(text, "max_position_embeddings", None) or 0)
    longest = longest if longest > 0 else 2048
    name = str(config.get("_name_or_path") or config.get("model_type"))

    def at(tokens: int, dtype: torch.dtype) -> Model:
        with torch.device("meta"):
            module = built(given, text, dtype)

        def run(T: int) -> Callable[[], Any]:
            ids = torch.zeros(1, T, dtype=torch.long, device="meta")
            return partial(module, input_ids=ids)

        return traced_model(
            module,
            run,
            min(tokens, longest // 3),
            name=name.rstrip("/").split("/")[-1][:80],
            seq=min(longest, LONGEST),
            notes=(*notes, *class_notes(config, text)),
        )

    try:
        made = in_16_bits_or_32(lambda dtype: at(TOKENS, dtype))
    except Uneven:  # products that grow evenly only beyond some length
        made = in_16_bits_or_32(lambda dtype: at(4 * TOKENS, dtype))
        shortest = min(4 * TOKENS, longest // 3)
        note = (
            f"its products grow evenly only from about {shortest:,} tokens on"
        )
        made = replace(made, notes=(*made.notes, note))
    except FAILS as error:
        text = (str(error).strip().splitlines() or [""])[0]
        raise BadInput(
            f"the code of {brief(config.get('model_type'))} does not run on these settings without"
            f" numbers ({type(error).__name__}: {brief(text)[:200]})"
        ) from error
    return with_layers_said(made, config)


def with_layers_said(made: Model, config: Mapping[str, Any]) -> Model:
    """The model, with a note where other layers ran than its file states."""
    inner = config.get("text_config")
    table = inner if isinstance(inner, Mapping) else config
    stated = table.get("num_hidden_layers")
    if not isinstance(stated, int) or stated == made.layers:
        return made
    note = (
        f"num_hidden_layers is {stated}, and {made.layers} layers ran in the trace: those that ran"
        " are counted"
    )
    return replace(made, notes=(*made.notes, note))


def configured(config: Mapping[str, Any]) -> tuple[Any, Any, list[str]]:
    """(configuration, that of its language model, notes)."""
    from transformers import CONFIG_MAPPING
    from transformers import __version__ as version

    kind = config.get("model_type")
    notes = []
    if REMOTE in config:
        notes.append(
            "auto_map names code that comes with the weights: it is not run; counted is the class"
            f" of transformers {version}"
        )
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        remote = (
            "; its code comes with the weights (auto_map), which is not run"
            if REMOTE in config
            else ""
        )
        raise BadInput(
            f"model_type {brief(kind)} is not in transformers {version} either{remote}: what would"
            " count it is a class of that name in a newer transformers, or"
            " meshwright.model_of(module, tokens) for its PyTorch code"
        )
    own = {
        k: v
        for k, v in config.items()
        if k not in (REMOTE, "quantization_config")
    }
    if "quantization_config" in config:
        notes.append("quantization_config: weights are counted unquantised")
    given = CONFIG_MAPPING[kind].from_dict(own)
    text = given.get_text_config(decoder=True)
    demand_read(config, given, text)
    if may_tie_otherwise(given, text):
        text.tie_word_embeddings = ties_as_built(given, text)
    for one in (given, text):
        one._experts_implementation = IMPLEMENTATION
        one.use_cache = False
    if getattr(given, "is_encoder_decoder", False):
        raise BadInput("is_encoder_decoder is set: only decoders are traced")
    return given, text, notes


def demand_read(config: Mapping[str, Any], given: Any, text: Any) -> None:
    """Raise BadInput for sizes of the language model that stand where its class does not look, and
    takes its own instead.
    """
    if given is text or isinstance(config.get("text_config"), Mapping):
        return
    elsewhere = vars(type(given)()).keys() | {"model_type"}
    for key, value in config.items():
        taken = getattr(text, key, value)  # None: switched off by another key
        sizes = isinstance(value, int) and isinstance(taken, int)
        here = key not in elsewhere and not key.endswith("_id")
        if sizes and here and taken != value:
            raise BadInput(
                f"{key} {value} stands outside text_config, where the class of"
                f" {brief(config['model_type'])} does not look: it would be built with {taken}"
            )


def may_tie_otherwise(given: Any, text: Any) -> bool:
    """Whether the class of the whole may tie where its language model alone does not, or not: some
    never tie, though both say so.
    """
    parts = () if given is text else (given, text)
    return any(getattr(c, "tie_word_embeddings", None) for c in parts)


def ties_as_built(given: Any, text: Any) -> bool:
    """What the class of the whole makes of the two: most take the outer one, some the inner, some
    either, some none.
    """
    outer, inner = (
        bool(getattr(c, "tie_word_embeddings", False)) for c in (given, text)
    )
    try:
        whole = whole_class(given)
    except Exception as error:  # towers that do not build
        if outer == inner:
            return inner
        raise BadInput(
            f"tie_word_embeddings is {outer} outside and {inner} in text_config, and the class that"
            f" would say which counts does not build: {str(error)[:120]}"
        ) from None
    for part in whole.modules() if whole else ():  # the whole first
        ends: Any = part
        head = getattr(ends, "get_output_embeddings", lambda: None)()
        if head is not None:
            return bool(head.weight is ends.get_input_embeddings().weight)
    return inner


def whole_class(given: Any) -> nn.Module | None:
    """The class with its towers, on the meta device; None if no language model is among them."""
    import transformers

    kinds = ("MultimodalLM", "ImageTextToText", "Seq2SeqLM", "CausalLM")
    for kind in (*kinds, "PreTraining"):
        auto = getattr(transformers, f"AutoModelFor{kind}", None)
        if auto and type(given) in auto._model_mapping.keys():  # noqa: SIM118
            with torch.device("meta"):
                made: nn.Module = auto.from_config(given)
            return made
    return None


def built(
    given: Any, text: Any, dtype: torch.dtype = torch.bfloat16
) -> nn.Module:
    """The class for language modelling: of the text part where it has one, else of the whole."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    tried = (
        (AutoModelForCausalLM, text),
        (AutoModelForCausalLM, given),
        (AutoModelForImageTextToText, given),
    )
    for auto, config in tried:
        if type(config) in auto._model_mapping.keys():  # noqa: SIM118
            made: nn.Module = auto.from_config(
                config, attn_implementation="eager", dtype=dtype
            )
            take_numbers(made, dtype)
            return made
    raise BadInput(
        f"transformers has no class for language modelling of {type(text).__name__}"
    )


def take_numbers(module: nn.Module, dtype: torch.dtype) -> None:
    """Leave only shapes of what a class makes in memory whatever the device is, as
    torch.FloatTensor does; what is shared stays shared.
    """
    made: dict[int, nn.Parameter] = {}
    for child in module.modules():
        for name, p in child.named_parameters(recurse=False):
            if not p.is_meta:
                empty = torch.empty_like(p, device="meta", dtype=dtype)
                one = made.setdefault(id(p), nn.Parameter(empty))
                setattr(child, name, one)


def class_notes(config: Mapping[str, Any], text: Any) -> list[str]:
    """Notes on what the file states and the class does otherwise."""
    notes = []
    inner = config.get("text_config")
    table = inner if isinstance(inner, Mapping) else config
    # what a class takes is there without a file, or taken out of what the file says
    extra = vars(text).keys() - vars(type(text)()).keys()
    unread = [
        k
        for k in table
        if k in extra
        and k != "model_type"
        and not k.startswith(("_", "rope", "torch_dtype"))
    ]
    if unread:
        notes.append(f"its class has no setting {', '.join(unread[:6])}")
    notes += [
        f"{key} {table[key]}: layers that predict further tokens are not in its class, and are left"
        " out"
        for key in NEXT_TOKENS
        if table.get(key)
    ]
    outer = config.get("tie_word_embeddings")
    within = (
        inner.get("tie_word_embeddings")
        if isinstance(inner, Mapping)
        else None
    )
    if outer is not None and within is not None and outer != within:
        notes.append(
            f"tie_word_embeddings is {outer} outside and {within} in text_config; counted as the"
            " class builds it"
        )
    return notes
