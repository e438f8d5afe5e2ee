"""The layers of a config.json one by one: what their attention and their feed-forward are.

Files say it by a list (`layer_types`, `mlp_layer_types`), by a period, or not at all; then it is
what the class of transformers makes of it. All end as the words of `describe.layers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..describe.pattern import shortest_pattern
from ..describe.read import brief
from ..errors import BadInput
from .hf_keys import Config, Fields, family_table

FULL = "full_attention"
SLIDING = "sliding_attention"
"""What `layer_types` of most classes may say of a layer."""
ATTENTION = "attention"
"""The table of words that most classes have."""
MOST_LAYERS = 100_000
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def layer_count(c: Config) -> int:
    """How many layers."""
    layers = c.whole(*LAYER_KEYS)
    if not 1 <= layers <= MOST_LAYERS:
        raise BadInput(
            f"{c.where}: layers must be between 1 and {MOST_LAYERS:,}, not {layers:,}"
        )
    return layers


def words_of_list(
    c: Config, key: str, names: Mapping[str, str]
) -> list[str] | None:
    """A word for each layer from a list of the file; None if there is none."""
    given = c.listed(key)
    if given is None:
        return None
    layers = layer_count(c)
    # some files list the next-token layers too
    if len(given) == layers + c.whole("num_nextn_predict_layers", default=0):
        given = given[:layers]
    if len(given) != layers:
        raise BadInput(
            f"{c.where}: {key} lists {len(given)} layers, num_hidden_layers is {layers}"
        )
    if other := [
        kind
        for kind in given
        if not isinstance(kind, str) or kind not in names
    ]:
        raise c.refuse(f"{key} has {brief(other[0])}")
    return [names[kind] for kind in given]


def vocabulary(name: str) -> Mapping[str, str]:
    """What a list of layers may say -> our words, by the name of the table of words."""
    words: Mapping[str, str] = family_table()["words"][name]
    return words


def windows(
    c: Config,
    default: Sequence[str],
    key: str = "sliding_window",
    names: Mapping[str, str] | None = None,
) -> Fields:
    """Mixers by `layer_types`, or as the class has them; `key` says how wide sliding ones see.

    names: what the list may say -> our words; None: as most classes have it.
    """
    names = names or vocabulary(ATTENTION)
    mixers = words_of_list(c, "layer_types", names) or list(default)
    window = c.whole(key, default=0)
    if "sliding" in mixers and not window:
        raise BadInput(
            f"{c.where}: layer_types has {SLIDING}, but {key} is {brief(c.get(key))}"
        )
    return {"mixers": mixers, "window": window or None}


def sliding(c: Config, default: Sequence[str] = ()) -> Fields:
    """Full and sliding attention. default: what the class has where no `layer_types` say it (none:
    a window in all layers, if there is one).
    """
    layers = layer_count(c)
    used = c.whole("sliding_window", default=0) and c.flag(
        "use_sliding_window", default=True
    )
    usual = (
        (list(default) or ["sliding"] * layers) if used else ["full"] * layers
    )
    fields = windows(c, usual)
    if "layer_types" not in c.defaults and fields["mixers"] != usual:
        raise c.refuse(
            "its class takes no layer_types, and they are not what it does"
        )
    return fields


def rotary_layers(c: Config, period: int) -> list[bool]:
    """Layers with rotary positions: those of `no_rope_layers`, or all but each period-th."""
    layers = layer_count(c)
    each = c.whole("no_rope_layer_interval", default=period) or 1
    given = c.listed("no_rope_layers")
    if not given:
        return [bool((i + 1) % each) for i in range(layers)]
    if len(given) < layers:
        raise BadInput(
            f"{c.where}: no_rope_layers lists {len(given)} layers,"
            f" num_hidden_layers is {layers}"
        )
    return [bool(turned) for turned in given[:layers]]


def arrange(fields: Fields) -> Fields:
    """Fields of a model from those of its readers: `mixers` and `ffns`, a word for each layer,
    become a window in evenly spaced layers, leading dense layers, or a pattern.
    """
    layers = fields["layers"]
    left = dict(fields)
    if left.get("out_bias") == left.get("bias", False):
        left.pop("out_bias", None)  # one word for both
    mixers = left.pop("mixers", None) or ["full"] * layers
    usual = "experts" if left.get("moe") else "dense"
    ffns = left.pop("ffns", None) or [usual] * layers
    if "experts" not in ffns:
        left.pop("moe", None)
    dense = next(
        (i for i, kind in enumerate(ffns) if kind == "experts"), layers
    )
    regular = "none" not in ffns and all(
        kind == "experts" for kind in ffns[dense:]
    )
    if regular and 0 < dense < layers:
        left["moe"] = {**left["moe"], "dense_layers": dense}
    if "sliding" not in mixers:
        left.pop("window", None)
    period = spacing(mixers)
    if regular and period is not None:
        return {**left, "full_every": period} if period != 1 else left
    every = (
        shortest_pattern(zip(mixers, ffns, strict=True))
        if not regular
        else mixer_pattern(mixers)
    )
    return {**left, "pattern": every}


def spacing(mixers: Sequence[str]) -> int | None:
    """One layer in how many attends to everything where the others have windows: 1 all, 0 none;
    None: they are not evenly spaced, or of other kinds.
    """
    if not set(mixers) <= {"full", "sliding"}:
        return None
    full = [i for i, kind in enumerate(mixers) if kind == "full"]
    period = full[0] + 1 if full else 0
    even = [
        i for i in range(len(mixers)) if period and i % period == period - 1
    ]
    return period if full == even else None


def mixer_pattern(mixers: Sequence[str]) -> tuple[str, ...]:
    """A pattern that leaves the feed-forward to the model."""
    return tuple(
        word.removesuffix("+")
        for word in shortest_pattern((kind, "") for kind in mixers)
    )
