"""What the backward pass of a layer computes again instead of keeping: named parts, in all layers
or in some.

    none    selective    full    layernorm+moe_act    full:4    save_qkv_proj

A part is a set of operations by their names in `count`; parts are joined by "+". ":4" means the
first 4 layers of every chunk of the model on a device (Megatron Core's `recompute_method =
"block"`). From the same set follow the work that is done twice and the bytes that stay
(`count.recompute`).

Sources: Megatron Core, `recompute_granularity`, `recompute_modules`, `recompute_num_layers`
(transformer_config.py); torchtitan, `selective_ac_option = "op"`
(distributed/activation_checkpoint.py); MaxText, `remat_policy` (utils/maxtext_utils.py, commit
e591f30).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from ..errors import BadInput, unknown

RECOMPUTE = ("none", "selective", "full")
"""Words that every framework has; what "selective" means there, a framework says
(`Counting.selective`).
"""


class RecomputedPart(NamedTuple):
    """Operations that run again, by patterns of their names."""

    again: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    """Those of them whose results stay, so that they do not run again."""
    every_second: bool = False
    """The result of every second matrix product stays too."""
    inner: bool = False
    """Only what lies inside the operations is dropped; their results stay."""
    unfused: bool = False
    """Only of operations that keep more inside than a fused kernel does (`Op.selective`)."""
    unread: str = "again"
    """What happens to results that no backward pass reads, such as that of the product that ends
    a layer: only its sum with the residual is, by the next layer. They are made "again" with the
    rest; or what ends the layer is not ("prefix"), or none of them is, nor kept though it has a
    name that is ("never").
    """


EVERYTHING = ("*",)
QKV = (
    "attention/qkv",
    "attention/q",
    "attention/q up",
    "attention/q down",
    "attention/kv up",
    "attention/kv down",
    "attention/gate",
    "linear/in",
    "linear/decay *",
    "linear/gate *",
    "ssm/in",
    "ssm/x",
    "ssm/dt",
    "conv/in",
)
OUT = ("attention/out", "linear/out", "ssm/out", "conv/out")
CORE = ("attention/core",)
CONTEXT = (*CORE, "linear/scan", "ssm/scan", "indexer/scores")
UP = ("ffn/up", "experts/up", "shared/up")
DOWN = ("ffn/down", "experts/down", "shared/down")
MLP = (
    "ffn/up",
    "ffn/up bias",
    "ffn/activation",
    "ffn/activation dropout",
    "ffn/down",
)
LATENT = (
    "attention/q",
    "attention/q norm",
    "attention/q up",
    "attention/kv norm",
    "attention/kv up",
    "attention/rotary",
)

FULL: dict[str, RecomputedPart] = {
    "whole": RecomputedPart(EVERYTHING),
    # torch.utils.checkpoint, use_reentrant=False: early stop, once all that was saved is there
    "prefix": RecomputedPart(EVERYTHING, unread="prefix"),
    # JAX, _src/ad_checkpoint.py: remat_partial_eval and remat_dce drop what nobody reads
    "needed": RecomputedPart(EVERYTHING, unread="never"),
}
"""What a framework means by "full" (`Counting.full`)."""
PARTS: dict[str, RecomputedPart] = {
    "full": FULL["whole"],
    # Megatron Core's modules
    "core_attn": RecomputedPart(CORE, inner=True),
    # Megatron-LM until Megatron Core, model/transformer.py: flash attention never runs again
    "scores": RecomputedPart(CORE, inner=True, unfused=True),
    "layernorm": RecomputedPart(
        ("attention/norm", "linear/norm", "ssm/norm", "conv/norm", "ffn/norm")
    ),
    "mla_up_proj": RecomputedPart(LATENT),
    "mlp": RecomputedPart(MLP),
    "moe": RecomputedPart(("experts/*", "shared/*")),
    "moe_act": RecomputedPart(("experts/activation",)),
    "shared_experts": RecomputedPart(("shared/*",)),
    # torchtitan, operation by operation
    "op": RecomputedPart(EVERYTHING, CONTEXT, every_second=True),
    # MaxText's policies, which keep the results of some products: several words keep those of each
    **{
        word: RecomputedPart(EVERYTHING, kept, unread="never")
        for word, kept in {
            "save_qkv_proj": QKV,
            "save_out_proj": OUT,
            "save_context": CONTEXT,
            "save_mlpwi": UP,
            "save_mlpwo": DOWN,
            "save_dot_except_mlp": (*QKV, *OUT),
            "save_dot_with_context_except_mlp": (*QKV, *OUT, *CONTEXT),
            "save_dot_except_mlpwi": (*QKV, *OUT, *DOWN),
            "minimal": (*QKV, *OUT, *UP, *DOWN),
            "minimal_with_context": (*QKV, *OUT, *UP, *DOWN, *CONTEXT),
        }.items()
    },
}
"""Words of frameworks -> operations; the name of an operation is a part too."""

OF_MIXERS = {
    "attention": (
        *(
            "norm",
            "qkv",
            "qkv bias",
            "q",
            "q up",
            "q down",
            "q norm",
            "kv up",
            "kv down",
        ),
        *(
            "kv norm",
            "down bias",
            "qk norm",
            "rotary",
            "core",
            "gate",
            "gated",
        ),
        *("inner norm", "out", "bias", "dropout", "post norm", "residual"),
    ),
    "indexer": ("queries", "key", "norm", "weights", "scores"),
    "linear": (
        *(
            "norm",
            "in",
            "decay down",
            "decay up",
            "gate down",
            "gate up",
            "conv",
            "scan",
        ),
        *("head norm", "gated", "out", "dropout", "post norm", "residual"),
    ),
    "ssm": (
        *(
            "norm",
            "in",
            "in bias",
            "conv",
            "x",
            "x norm",
            "dt",
            "dt bias",
            "scan",
            "gated",
        ),
        *("inner norm", "out", "bias", "dropout", "post norm", "residual"),
    ),
    "conv": (
        *(
            "norm",
            "in",
            "in bias",
            "gate in",
            "taps",
            "gate out",
            "out",
            "bias",
        ),
        *("dropout", "post norm", "residual"),
    ),
}
"""What mixes tokens -> its operations."""
OF_FEED_FORWARDS = {
    "ffn": (
        *(
            "norm",
            "up",
            "up bias",
            "activation",
            "activation dropout",
            "inner norm",
            "down",
        ),
        *("bias", "dropout", "post norm", "residual"),
    ),
    "experts": (
        *(
            "router",
            "narrow",
            "dispatch",
            "etp",
            "up",
            "up bias",
            "activation",
            "down",
        ),
        *("down bias", "combine", "wide", "post norm"),
    ),
    "shared": ("up", "up bias", "activation", "inner norm", "down", "gate"),
}
OPERATIONS = tuple(
    f"{scope}/{name}"
    for scope, names in {**OF_MIXERS, **OF_FEED_FORWARDS}.items()
    for name in names
)
"""Operations of a layer by their names in `count`."""


class Recompute(NamedTuple):
    """A choice, read."""

    words: tuple[str, ...]
    """Parts by name, in the order of their names; none = nothing is computed again."""
    layers: int
    """So many layers of each chunk, the first; 0 = all."""

    @property
    def parts(self) -> str:
        """The parts in one word: what `count` and `cost` know a layer's recomputation by."""
        return "+".join(self.words) or "none"

    @property
    def text(self) -> str:
        """The words of a layout for it."""
        return f"{self.parts}:{self.layers}" if self.layers else self.parts

    @property
    def whole(self) -> bool:
        """The layer runs again as one, with what it keeps inside."""
        return any(
            part_of_word(word).again == EVERYTHING
            for word in self.words
            if word != "selective"
        )


def part_of_word(word: str) -> RecomputedPart:
    """The operations of one word."""
    return PARTS.get(word) or FULL.get(word) or RecomputedPart((word,))


def parts_of(text: str) -> list[RecomputedPart]:
    """The operations of words joined by "+"; those of MaxText's policies are one part, which keeps
    what each of them does.
    """
    parts = [part_of_word(word) for word in text.split("+") if word != "none"]
    keeping = [p for p in parts if p.keeps and p.unread == "never"]
    if len(keeping) < 2:
        return parts
    kept = tuple(name for part in keeping for name in part.keeps)
    others = [part for part in parts if part not in keeping]
    return [keeping[0]._replace(keeps=kept), *others]


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Is this operation one of them?"""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@cache
def recompute(text: str) -> Recompute:
    """What a layout's text says; BadInput for a part that no layer has."""
    if not isinstance(text, str):
        raise BadInput(
            f"layout.recompute must be a text, not {str(text)[:40]!r}"
        )
    names, colon, count = text.strip().partition(":")
    layers = int(count) if count.strip().isdigit() else 0
    if colon and not layers:
        raise BadInput(
            f"layout.recompute {text[:40]!r}: after the colon comes a number of layers, such as"
            " full:4"
        )
    words = {word.strip() for word in names.split("+")} - {""}
    for word in sorted(words - {*RECOMPUTE, *PARTS, *OPERATIONS}):
        every = (*RECOMPUTE, *PARTS, *OPERATIONS)
        raise unknown("layout.recompute", word, every, first=RECOMPUTE)
    if not words:
        raise BadInput(
            "layout.recompute needs a word: none, selective, full or parts joined by +"
        )
    if len(words) > 1 and (alone := words & {"none", "full"}):
        raise BadInput(
            f"layout.recompute {text[:40]!r}: {min(alone)} cannot be combined with others"
        )
    words -= {"none"}
    return Recompute(tuple(sorted(words)), layers if words else 0)


def resolve(text: str, selective: str, full: str = "whole") -> str:
    """The parts of a text, "selective" and "full" as a framework means them."""
    meant = {"selective": selective}
    if full != "whole":
        meant["full"] = full
    words = recompute(text).words
    return "+".join(meant.get(word, word) for word in words) or "none"
