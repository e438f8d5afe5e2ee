"""What the tables of torchtune, LitGPT, OLMo and Levanter cannot say: names of models in paths and
functions, and numbers that the weights are kept in.
"""

from __future__ import annotations

import re

from .keys import Keys
from .shared import hub_model, model_named, vocabulary_named


def torchtune_model(k: Keys) -> object:
    """The function that builds it: torchtune.models.llama3_1.lora_llama3_1_8b."""
    path = str(k.get("model._component_", "")).removeprefix(
        "torchtune.models."
    )
    name = re.sub(r"\.(q?lora_)", ".", path)
    return model_named(k, name) if name else None


def litgpt_model(k: Keys) -> object:
    """Its name, or the last two folders of its checkpoint: checkpoints/meta-llama/Llama-3.2-1B."""
    folders = str(k.get("checkpoint_dir", "")).strip("/").split("/")
    name = k.get("model_name") or "/".join(folders[-2:])
    return hub_model(k, name)


def olmo_tokens(k: Keys) -> float | None:
    """Of 4e12T; steps, and epochs of data that nobody knows, are left open."""
    word = str(k.get("max_duration", ""))
    return float(word[:-1]) if re.fullmatch(r"[\d.e+]+T", word) else None


TOKENIZERS = {
    "gpt2": 50257,
    "*llama-2*": 32000,
    "*llama-3*": 128256,
    "*mistral-7b-v0.1": 32000,
    "eleutherai/gpt-neox-20b": 50277,
}
"""Pattern of a tokenizer's name on Hugging Face -> its words, which are the rows."""


NUMBERS = {
    **dict.fromkeys(("f32", "float32", "full"), "fp32"),
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
}
"""Of jmp's policies (github.com/google-deepmind/jmp)."""


TUNED = (
    "model_name_or_path is a setting of fine-tuning, whose program may train adapters alone: all"
    " weights are taken to be trained"
)
"""examples/alpaca and examples/alpaca-lora of Levanter have the same keys."""


def levanter_model(k: Keys) -> object:
    """That of Hugging Face, where the file takes its sizes from there."""
    named = k.get("initialize_from_hf"), k.get("model_name_or_path")
    names = [name for name in named if isinstance(name, str)]
    if not names or not k.switch(
        "use_hf_model_config", "model.type" not in k.said
    ):
        return None
    if "model_name_or_path" in k.said:
        k.notes.append(TUNED)
    return hub_model(k, names[0])


def levanter_vocab(k: Keys) -> int | None:
    """Rows of the embedding, from the tokenizer's name; a model of Hugging Face has its own."""
    if not any(key.startswith("model.") for key in k.said):
        return None
    said = k.get("data.tokenizer") or k.get("tokenizer")
    # `data: !include FILE` leaves the tokenizer to that file
    name = str(said or ("" if isinstance(k.get("data"), str) else "gpt2"))
    return vocabulary_named(k, TOKENIZERS, name)


def levanter_precision(k: Keys) -> str:
    """Of "p=f32,c=bfloat16" (jmp): numbers of the weights, and of the products."""
    word = k.word("trainer.mp", "f32")
    parts = dict(pair.split("=", 1) for pair in word.split(",") if "=" in pair)
    compute, kept = (NUMBERS.get(parts.get(key, word)) for key in ("c", "p"))
    if compute is None or kept is None:
        k.unreadable(
            "trainer.mp", f"{word[:40]} is not a jmp policy that is predicted"
        )
    if compute != "bf16":
        return "fp32"
    return "bf16" if kept == "fp32" else "bf16-pure"
