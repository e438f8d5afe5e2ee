"""A sample of text from a checkpoint, whatever layout it was trained under: one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..describe.model import Model
from ..describe.training import Settings
from ..errors import BadInput
from ..formats.run_folder import attempts
from . import data
from .checkpoint import OWN, favours
from .export import sound
from .initial import parameters_of_stages
from .loop import decoder as decoder_of
from .model import Decoder
from .storage import Reader
from .texts import encoder, token_decoder


def generate(
    source: Path,
    prompt: str,
    count: int,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 1,
    tokenizer: str | None = None,
    own_model: str | None = None,
) -> dict[str, Any]:
    """What the newest checkpoint of a run (or one checkpoint) goes on with after a prompt.

    temperature: 0 takes the likeliest token each time;  top_k: only of so many likeliest (0: all);
    tokenizer: None: the one of the run's data;  own_model: as the run had it, for the word of a
    checkpoint imports nothing.  BadInput for what cannot be.
    """
    path, index, model = sound(source)
    name = tokenizer or of_run(path.parent)
    encode = encoder(name)
    decode = token_decoder(name)
    if encode.vocab > model.vocab:
        raise BadInput(
            f"{name} has {encode.vocab} tokens, but the model only {model.vocab}"
        )
    start = [int(i) for i in encode.encode([prompt])[0]] or [0]
    ids = list(
        sampled_tokens(
            loaded(Reader(path), model, made_of(index, own_model)),
            start=start,
            count=count,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
        )
    )
    return {
        "checkpoint": str(path),
        "step": index["step"],
        "prompt": prompt,
        "text": decode([*start, *ids]),
        "tokens": len(ids),
    }


def of_run(folder: Path) -> str:
    """The tokenizer of the data that a run was trained on last."""
    rows = attempts(folder)
    words = rows[-1].get("train", {}).get("data") if rows else None
    if not isinstance(words, str) or words == "synthetic":
        raise BadInput(
            f"{folder} does not say what its tokens are: --tokenizer does"
        )
    path = folder / "corpus" if words == "corpus" else data.files(words)[0][0]
    return str(data.read_header(path).get("tokenizer"))


def made_of(index: Mapping[str, Any], own_model: str | None) -> type[Decoder]:
    """The class of the checkpoint's model; BadInput if the user has not named it."""
    if index.get(OWN) != own_model:
        raise BadInput(
            f"the checkpoint is of {index.get(OWN) or 'our own decoder'}, not of"
            f" {own_model or 'it'}: --own-model names the model that it was trained with"
        )
    return decoder_of(Settings(own_model=own_model))


def loaded(
    reader: Reader, model: Model, of: type[Decoder] = Decoder
) -> Decoder:
    """The whole model with the weights of a checkpoint."""
    with torch.device("meta"):
        made = of(
            m=model,
            layers=range(model.layers),
            seq=model.seq,
            recompute="none",
        )
    made.to_empty(device="cpu")
    made.tie()
    wanted = {
        f"weights/{name}": p.detach()
        for name, p in parameters_of_stages(made, model)
    }
    reader.fill(wanted | favours(made, reader.shapes))
    return made


@torch.no_grad()
def sampled_tokens(
    model: Decoder,
    start: list[int],
    count: int,
    temperature: float,
    top_k: int,
    seed: int,
) -> Iterator[int]:
    """So many tokens, one after the other, each seeing those before it that the model can see."""
    random = torch.Generator().manual_seed(seed)
    ids = list(start)
    for _ in range(count):
        window = torch.tensor([ids[-model.m.seq :]])
        model.at = (range(window.shape[1]),)
        ids.append(
            chosen(
                model(window)[0, -1, : model.m.vocab],
                temperature,
                top_k,
                random,
            )
        )
        yield ids[-1]


def chosen(
    logits_V: Tensor, temperature: float, top_k: int, random: torch.Generator
) -> int:
    """A token, by its probability at this temperature among the `top_k` likeliest."""
    if temperature == 0:
        return int(logits_V.argmax())
    best = logits_V.float().topk(min(top_k or len(logits_V), len(logits_V)))
    place = torch.multinomial(
        (best.values / temperature).softmax(-1), 1, generator=random
    )
    return int(best.indices[place])
