"""What a row says it computes again in the backward pass, as none, selective (the core of attention) or full.

A policy between them is taken as the nearest and said so in a note: as full if at least half of the matrix products of
the layers (by FLOPs, as `count` counts them) run again, else as what it resembles. Words that are not understood are
refused, never read as "none". A JAX run that names no policy keeps unknown tensors: its memory is not judged.

Sources: Megatron Core, `--recompute-granularity`, `--recompute-method`, `--recompute-modules` (megatron/training/
arguments.py); MaxText, `remat_policy` (src/maxtext/utils/maxtext_utils.py, configs/base.yml, commit e591f30);
torchtitan, `activation_checkpoint` (torchtitan/distributed/activation_checkpoint.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ..count.model import operations
from ..describe.model import Model
from ..errors import BadInput
from .words import is_jax, named

HALF = 0.5
"""Share of the matrix products from which on full is nearer than none."""

QKV, OUT = r"attention/(?:qkv|[qk]v? up|[qk]v? down|q|kv)$", r"attention/out$"
UP, DOWN = r"(?:ffn|experts|shared)/up$", r"(?:ffn|experts|shared)/down$"
"""Matrix products by their names in `count`."""

MODULES: dict[str, tuple[str, ...]] = {
    "core_attn": (),
    "layernorm": (),
    "moe_act": (),
    "mla_up_proj": (r"attention/(?:q|kv) up$",),
    "mlp": (r"ffn/",),
    "moe": (r"experts/", r"shared/"),
    "shared_experts": (r"shared/",),
}
"""Module of Megatron Core -> the matrix products that run again with it."""

POLICIES: dict[str, tuple[str, ...]] = {
    "minimal_with_context_and_quantization": (QKV, OUT, UP, DOWN),
    "minimal_with_quantization": (QKV, OUT, UP, DOWN),
    "minimal_with_context": (QKV, OUT, UP, DOWN),
    "minimal_offloaded": (QKV, OUT, UP, DOWN),
    "minimal_flash": (QKV, OUT, UP, DOWN),
    "minimal": (QKV, OUT, UP, DOWN),
    "qkv_proj_offloaded": (QKV,),
    "save_dot_with_context_except_mlp": (QKV, OUT),
    "save_dot_except_mlpwi": (QKV, OUT, DOWN),
    "save_dot_except_mlp": (QKV, OUT),
    "save_qkv_proj": (QKV,),
    "save_out_proj": (OUT,),
    "full": (),
}
"""Policy of MaxText -> the matrix products whose results it keeps; a name stands before those that it begins with."""

UNSAID = re.compile(
    r"^(?:not (?:stated|given|known|reported|specified|said)|unstated|unspecified|unknown|n/?a|-|\?)\b[\W_]*|^[-?]$"
)
NONE = re.compile(
    r"^(?:none|no|not|off|false|disabled?|never|without|w/o|0(?!\.))\b|\b(?:granularity|recomput\w*|checkpoint\w*|remat\w*)\W{1,3}(?:off|none|disabled|false)\b"
)
WHOLE = re.compile(
    r"\bfull\b|\buniform\b|\b(?:all|every|each) (?:transformer )?(?:layer|block)s?\b|\bper[- ](?:layer|block)\b|\bwhole layers?\b"
)
SOME = re.compile(r"checkpoint|remat|recomput|^(?:true|yes|on|enabled|1|all)\b")
CORE = re.compile(
    r"core[ _-]?att|att\w*[ _-]core|^selective(?: (?:recomput\w*|activation\w*|checkpoint\w*|remat\w*))*$|granularity selective$"
)
OPERATIONS = re.compile(r"\bsac\b|\bop[ -]?level|selective\W{0,3}op\b|\bper[- ]op\b")
MAXTEXT = re.compile(r"\bminimal\b|\bsave_(?:dot|qkv|out)_|\bqkv_proj_offloaded\b")
"""Names that only MaxText has for its policies."""
OFFLOADED = r"offload|(?:checkpoint|activation)\w* (?:in|on|to) (?:the )?(?:cpu|host)"
NAMED_LISTS = re.compile(r"\[([^\]]*)\]")

NUMBERS = {"other": 2, "second": 2, "2nd": 2, "third": 3, "3rd": 3}
EVERY_NTH = re.compile(r"every (other|second|third|\d+(?:nd|rd|th)) (layer|block|matmul|matrix)")
OF_ALL = re.compile(r"(\d+) ?(?:/|of|out of) ?(?:the )?(\d+) (?:transformer )?(?:layers|blocks)")
PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?% of (?:the |all )?(?:transformer )?(?:layers|blocks)")
PER_STAGE = re.compile(
    r"(?:first|last|block,?|only|num[_ -]layers) ?[=:]? ?(\d+)\b|(\d+) (?:transformer )?(?:layers|blocks) (?:per|of each|of every)"
)


class Policy(NamedTuple):
    """What runs again, as far as a layout can say it."""

    mode: str
    """none, selective or full."""
    note: str = ""
    """What the mode does not say of the row's own words; "" if it says it all."""
    memory: bool = True
    """What stays on the device is known."""


def policy(said: object, software: str, model: Model, layers: float) -> Policy:
    """The policy a row names; BadInput if its words are not understood.

    said: the row's field;  layers: of one chunk of the pipeline, that "first 5 layers" is a share of.
    """
    words = spoken(said)
    if is_jax(software) or (MAXTEXT.search(words) and not NAMED_LISTS.search(words)):
        return _of_jax(words, model)
    assumed = UNSAID.sub("", words)
    if not assumed:
        return Policy("none", "recomputation is not stated: taken as none")
    found = _read(assumed, software, model, layers)
    if assumed != words and not found.note:
        found = found._replace(note=f"recomputation is not stated: taken as {found.mode}, which the row assumes")
    if named(OFFLOADED, words):
        return found._replace(note=_between(words, found.mode), memory=False)
    return found


def spoken(said: object) -> str:
    """A field in lower-case words: a text, a list of modules, settings by name, yes or no; "" for what is none of them."""
    if isinstance(said, bool):
        return str(said).lower()
    if isinstance(said, (list, tuple)):
        names = [name for name in said[:100] if isinstance(name, str)]
        return f"selective modules [{', '.join(names)[:400].lower()}]" if names else "none"
    if isinstance(said, Mapping):
        settings = [(key, v) for key, v in list(said.items())[:20] if isinstance(v, (bool, int, float, str, list))]
        words = " ".join(f"{key} {spoken(v) if isinstance(v, list) else v}" for key, v in settings)
        return words[:400].lower()
    text = said[:400] if isinstance(said, str) else ""
    return " ".join("".join(c for c in text if c.isprintable()).lower().split())


def _read(words: str, software: str, model: Model, layers: float) -> Policy:
    """A policy of a framework that does not run JAX."""
    if NONE.search(words):
        return Policy("none")
    if (of_layers := _layers(words, layers)) is not None:
        return of_layers
    if names := _modules(words):
        return _listed(words, names, model)
    plainly = (
        words.startswith("selective")
        and "torchtitan" in software
        and not CORE.search(words.replace("selective", "", 1))
    )
    if OPERATIONS.search(words) or plainly:
        return Policy(_nearest(_operations(words)), _between(words, _nearest(_operations(words))))
    if CORE.search(words):
        return Policy("selective")
    if words.startswith("selective") or "granularity selective" in words:
        return Policy("selective", _between(words, "selective"))
    if WHOLE.search(words):
        return Policy("full")
    if SOME.search(words):
        return Policy("full", _between(words, "full"))
    raise BadInput(
        f"recomputation {words[:60]!r} is not known; none, selective, full, some of the layers, or modules of Megatron Core are"
    )


def _layers(words: str, layers: float) -> Policy | None:
    """Whole layers, but only some of them."""
    if "uniform" in words:  # every layer runs again; only inputs of groups are kept
        coarse = re.search(r"\b([2-9]|\d\d+)\b", words)
        return Policy("full", _between(words, "full") if coarse else "")
    share = None
    if (nth := EVERY_NTH.search(words)) and nth[2] in ("layer", "block"):
        share = 1 / max(NUMBERS.get(nth[1]) or int(re.sub(r"\D", "", nth[1])), 1)
    elif of := OF_ALL.search(words):
        share = int(of[1]) / max(int(of[2]), 1)
    elif percent := PERCENT.search(words):
        share = float(percent[1]) / 100
    elif some := PER_STAGE.search(words):
        share = int(some[1] or some[2]) / max(layers, 1.0)
    if share is None:
        return None
    again = "selective" if words.startswith("selective") else "full"
    mode = again if share >= HALF else "none"
    return Policy(mode, "" if share >= 1 or share == 0 else _between(words, mode))


def _modules(words: str) -> list[str]:
    """The modules that the words list, known or not."""
    if listed := NAMED_LISTS.search(words):
        return [name for item in listed[1].split(",") if (name := item.strip(" '\"`"))]
    if not re.match("selective|modules?\\b", words) or re.search("save|keep|store", words):
        return []  # what follows is prose
    return re.findall(rf"\b(?:{'|'.join(sorted(MODULES, key=len, reverse=True))})\b", words)


def _listed(words: str, names: list[str], model: Model) -> Policy:
    """Selective recomputation of modules; core_attn alone is what selective means."""
    known, strange = [n for n in names if n in MODULES], [n for n in names if n not in MODULES]
    if not known:
        raise BadInput(f"recomputed module {names[0][:40]!r} is not known; {', '.join(MODULES)} are")
    if strange:
        mode = _nearest(_share(model, tuple(pattern for name in known for pattern in MODULES[name])))
        return Policy(mode, f"recomputed module {strange[0][:40]!r} is not known and left out", memory=False)
    if set(known) == {"core_attn"}:
        return Policy("selective")
    mode = _nearest(_share(model, tuple(pattern for name in known for pattern in MODULES[name])))
    return Policy(mode, _between(words, mode))


def _operations(words: str) -> float:
    """Share of the matrix products that operation-level checkpointing runs again: torchtitan keeps every second result."""
    if re.search(r"\b(?:saves?|keeps?|all) (?:all |every )?(?:matmuls?|matrix products?)\b(?!.* every)", words):
        return 0.0
    nth = EVERY_NTH.search(words)
    return 1 - 1 / max(NUMBERS.get(nth[1]) or int(re.sub(r"\D", "", nth[1])), 1) if nth else HALF


def _nearest(share: float) -> str:
    return "full" if share >= HALF else "selective"


def _of_jax(words: str, model: Model) -> Policy:
    """One of MaxText's policies: names of the results that stay; what else there is runs again."""
    for name, kept in POLICIES.items():
        if re.search(rf"(?<![\w-]){re.sub('_', '[ _-]', name)}(?![\w-])", words):
            mode = _nearest(1 - _share(model, kept))
            exact = name == "full" and not named(OFFLOADED, words)
            return Policy(mode, "" if exact else _between(words, mode), not named(OFFLOADED, words))
    mode = "none" if NONE.search(words) else "full"
    default = "none" if mode == "none" else "full, MaxText's default"
    return Policy(
        mode, f"names no known remat policy: its time is taken with {default}, its memory is not judged", False
    )


@lru_cache(maxsize=1024)
def _share(model: Model, patterns: tuple[str, ...]) -> float:
    """Share of the matrix products of all layers, by FLOPs of the forward pass, whose names match one of the patterns."""
    products = [
        (op.name, float(op.forward.matrix) * n)
        for op, n in operations(replace(model, mtp_layers=0))
        if op.kind == "matmul" and not op.name.startswith("head/")
    ]
    total = sum(flops for _, flops in products)
    return sum(f for name, f in products if any(re.match(p, name) for p in patterns)) / total if total else 0.0


def _between(words: str, mode: str) -> str:
    return f"recomputation {words[:90]!r} is taken as {mode}, the nearest that a layout can say"
