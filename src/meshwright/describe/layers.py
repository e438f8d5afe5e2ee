"""A model is a list of layers; each names what mixes its tokens and what feeds forward.

    pattern = ["3*linear+experts", "full+experts"]        repeated until there are all layers

A word is [times*]mixer[+feed-forward]. Without a feed-forward a layer has that of `Model`: dense in
the first `moe.dense_layers`, experts after them. A model without a pattern has full attention, or
windows as `window` and `full_every` say.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from .model import Model
from .pattern import MIXERS, pattern_words


class Kind(NamedTuple):
    """What varies from layer to layer of one model."""

    window: int | None
    """Tokens that attention sees; None = all."""
    moe: bool
    """The feed-forward is a mixture of experts."""
    mixer: str = "full"
    """A word of `MIXERS`, or several joined by "&"."""
    ffn: bool = True
    """It has a feed-forward."""

    @property
    def mixers(self) -> tuple[str, ...]:
        """One after the other."""
        return tuple(self.mixer.split("&"))


@lru_cache(maxsize=4096)
def kinds(model: Model) -> tuple[Kind, ...]:
    """The kind of each of the L layers, in order; a traced one is named by its number."""
    if model.traced:
        return tuple(
            Kind(None, model.traced.kinds[i].experts, str(i), ffn=False)
            for i in model.traced.order
        )
    dense = model.moe.dense_layers if model.moe else 0
    every = _written(model) if model.pattern else _spaced(model)
    layer_kinds = []
    for i, (mixer, ffn) in enumerate(every):
        experts = ffn == "experts" or (
            ffn is None and model.moe is not None and i >= dense
        )
        window = model.window if mixer == "sliding" else None
        layer_kinds.append(Kind(window, experts, mixer, ffn != "none"))
    return tuple(layer_kinds)


def _written(model: Model) -> list[tuple[str, str | None]]:
    one = [
        (mixer, ffn)
        for times, mixer, ffn in pattern_words(model.pattern)
        for _ in range(times)
    ]
    return (one * -(-model.layers // len(one)))[: model.layers]


def _spaced(model: Model) -> list[tuple[str, str | None]]:
    """One layer in `full_every` sees everything, where there is a window."""
    whole = "sparse" if model.sparse else "full"
    every = model.full_every

    def mixer(i: int) -> str:
        wide = model.window is None or (every > 0 and i % every == every - 1)
        return whole if wide else "sliding"

    return [(mixer(i), None) for i in range(model.layers)]


@lru_cache(maxsize=4096)
def leading(model: Model) -> int:
    """Layers before the first one with experts, where all after it have them; else 0."""
    every = kinds(model)
    first = next((i for i, kind in enumerate(every) if kind.moe), 0)
    return first if all(kind.moe for kind in every[first:]) else 0


@lru_cache(maxsize=4096)
def sorts(model: Model) -> tuple[Kind, ...]:
    """The kinds of its layers, each once: that of the last layer, then the others from the first
    on."""
    every = kinds(model)
    return tuple(dict.fromkeys((every[-1], *every)))


class Among(tuple[tuple[float, ...], ...]):
    """How many layers of each kind, as in `sorts`, are among the first n, for every n from 0 on."""

    _hash: int

    def __hash__(self) -> int:
        """Asked for often, and as long as the model."""
        if not hasattr(self, "_hash"):
            self._hash = super().__hash__()
        return self._hash


@lru_cache(maxsize=4096)
def among(model: Model) -> Among:
    """The counts of kinds among the first n layers of a model."""
    every = kinds(model)
    return Among(
        tuple(accumulate((float(one == kind) for one in every), initial=0.0))
        for kind in sorts(model)
    )


@lru_cache(maxsize=4096)
def totals(model: Model) -> tuple[float, ...]:
    """How many layers of each kind it has, in the order of `sorts`."""
    every = Counter(kinds(model))
    return tuple(float(every[kind]) for kind in sorts(model))


def mix(model: Model) -> dict[str, int]:
    """What the layers are, in natural words -> how many; the most frequent first."""
    words = {kind: layer_in_words(model, kind) for kind in sorts(model)}
    each = Counter(words[kind] for kind in kinds(model))
    return dict(each.most_common())


def layer_in_words(model: Model, kind: Kind) -> str:
    """A layer in natural words: linear attention (gated delta net) + experts."""
    if model.traced:
        return f"traced kind {int(kind.mixer) + 1}" + (
            " + experts" if kind.moe else ""
        )
    parts = [
        " beside ".join(_mixer(model, word, kind) for word in kind.mixers)
    ]
    if kind.ffn:
        parts.append("experts" if kind.moe else "dense feed-forward")
    return " + ".join(text for text in parts if text) or "nothing"


def _mixer(model: Model, word: str, kind: Kind) -> str:
    if word == "full" and model.mla:
        return "latent attention"
    if word == "sparse" and model.sparse:
        return f"sparse attention (top {model.sparse.top_k:,})"
    if word == "sliding":
        return f"sliding attention ({kind.window:,} tokens)"
    if word == "linear" and model.linear:
        return f"linear attention ({LINEAR[model.linear.kind]})"
    if word == "ssm" and model.ssm:
        return {"mamba2": "Mamba-2", "mamba": "Mamba"}[model.ssm.kind]
    return "" if word == "none" else MIXERS[word]


LINEAR = {
    "delta": "gated delta net",
    "lightning": "lightning",
    "gated": "mLSTM",
}
