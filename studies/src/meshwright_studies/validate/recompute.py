"""What a row says it computes again in the backward pass, in the words of a layout
(`describe.recompute`).

What a layout cannot say (groups of layers, tensors in host memory) is taken as the nearest and said
so in a note. Words that are not understood are refused, never read as "none". A JAX run that names
no policy keeps unknown tensors: its memory is not judged.

Sources: Megatron Core, `--recompute-granularity`, `--recompute-method`, `--recompute-modules`
(megatron/training/ arguments.py); MaxText, `remat_policy` (src/maxtext/utils/maxtext_utils.py,
configs/base.yml, commit e591f30); torchtitan, `activation_checkpoint`
(torchtitan/distributed/activation_checkpoint.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from meshwright.errors import BadInput

from .words import is_jax, speaks_of, word_table

EVERY_PRODUCT = "minimal_with_context"
"""Keeps the results of all matrix products and of attention."""

UNSAID = re.compile(
    r"^(?:not"
    r" (?:stated|given|known|reported|specified|said)|unstated|unspecified|unknown|n/?a|-|\?)\b"
    r"[\W_]*|^[-?]$"
)
NONE = re.compile(
    r"^(?:none|no|not|off|false|disabled?|never|without|w/o|0(?!\.))\b"
    r"|\b(?:granularity|recomput\w*|checkpoint\w*|remat\w*)\W{1,3}(?:off|none|disabled|false)\b"
)
WHOLE = re.compile(
    r"\bfull\b|\buniform\b|\b(?:all|every|each) (?:transformer )?(?:layer|block)s?\b|\bper[-"
    r" ](?:layer|block)\b|\bwhole layers?\b"
)
SOME = re.compile(
    r"checkpoint|remat|recomput|^(?:true|yes|on|enabled|1|all)\b"
)
CORE = re.compile(
    r"core[ _-]?att|att\w*[ _-]core|^selective(?:"
    r" (?:recomput\w*|activation\w*|checkpoint\w*|remat\w*))*$|granularity selective$"
)
OPERATIONS = re.compile(
    r"\bsac\b|\bop[ -]?level|selective\W{0,3}op\b|\bper[- ]op\b"
)
MAXTEXT = re.compile(
    r"\bminimal\b|\bsave_(?:dot|qkv|out)_|\bqkv_proj_offloaded\b"
)
"""Names that only MaxText has for its policies."""
OFFLOADED = (
    r"offload|(?:checkpoint|activation)\w* (?:in|on|to) (?:the )?(?:cpu|host)"
)
NAMED_LISTS = re.compile(r"\[([^\]]*)\]")

NUMBERS = {"other": 2, "second": 2, "2nd": 2, "third": 3, "3rd": 3}
EVERY_NTH = re.compile(
    r"every (other|second|third|\d+(?:nd|rd|th)) (layer|block|matmul|matrix)"
)
OF_ALL = re.compile(
    r"(\d+) ?(?:/|of|out of) ?(?:the )?(\d+) (?:transformer )?(?:layers|blocks)"
)
PERCENT = re.compile(
    r"(\d+(?:\.\d+)?) ?% of (?:the |all )?(?:transformer )?(?:layers|blocks)"
)
PER_STAGE = re.compile(
    r"(?:first|last|block,?|only|num[_ -]layers) ?[=:]? ?(\d+)\b|(\d+) (?:transformer"
    r" )?(?:layers|blocks) (?:per|of each|of every)"
)


class Policy(NamedTuple):
    """What runs again, as far as a layout can say it."""

    mode: str
    """`Layout.recompute`."""
    note: str = ""
    """What the mode does not say of the row's own words; "" if it says it all."""
    memory: bool = True
    """What stays on the device is known."""
    offload: str = "none"
    """`Layout.offload`: what of it waits in host memory."""


def policy(said: object, software: str, layers: float) -> Policy:
    """The policy a row names; BadInput if its words are not understood.

    said: the row's field;  layers: of one chunk of the pipeline, that "first 5 layers" is a share
    of.
    """
    words = spoken(said)
    if is_jax(software) or (
        MAXTEXT.search(words) and not NAMED_LISTS.search(words)
    ):
        return _of_jax(words)
    assumed = UNSAID.sub("", words)
    if not assumed:
        return Policy("none", "recomputation is not stated: taken as none")
    policy = _read(assumed, software, layers)
    if assumed != words and not policy.note:
        policy = policy._replace(
            note=f"recomputation is not stated: taken as {policy.mode}, which the row assumes"
        )
    if speaks_of(OFFLOADED, words):
        return policy._replace(note=_between(words, policy.mode), memory=False)
    return policy


def spoken(said: object) -> str:
    """A field in lower-case words: a text, a list of modules, settings by name, yes or no; "" for
    what is none of them.
    """
    if isinstance(said, bool):
        return str(said).lower()
    if isinstance(said, (list, tuple)):
        names = [name for name in said[:100] if isinstance(name, str)]
        return (
            f"selective modules [{', '.join(names)[:400].lower()}]"
            if names
            else "none"
        )
    if isinstance(said, Mapping):
        settings = [
            (key, v)
            for key, v in list(said.items())[:20]
            if isinstance(v, (bool, int, float, str, list))
        ]
        words = " ".join(
            f"{key} {spoken(v) if isinstance(v, list) else v}"
            for key, v in settings
        )
        return words[:400].lower()
    text = said[:400] if isinstance(said, str) else ""
    return " ".join(
        "".join(c for c in text if c.isprintable()).lower().split()
    )


def _read(words: str, software: str, layers: float) -> Policy:
    """A policy of a framework that does not run JAX."""
    if NONE.search(words):
        return Policy("none")
    if (of_layers := _layers(words, layers)) is not None:
        return of_layers
    if names := _modules(words):
        return _listed(names)
    plainly = (
        words.startswith("selective")
        and "torchtitan" in software
        and not CORE.search(words.replace("selective", "", 1))
    )
    if OPERATIONS.search(words) or plainly:
        return _operations(words)
    if CORE.search(words):
        return Policy("core_attn" if "att" in words else "selective")
    if words.startswith("selective") or "granularity selective" in words:
        return Policy("selective", _between(words, "selective"))
    if WHOLE.search(words):
        return Policy("full")
    if SOME.search(words):
        return Policy("full", _between(words, "full"))
    raise BadInput(
        f"recomputation {words[:60]!r} is not known; none, selective, full, some of the layers, or"
        " modules of Megatron Core are"
    )


def _layers(words: str, layers: float) -> Policy | None:
    """Whole layers, but only some of them."""
    # every layer runs again; only inputs of groups are kept
    if "uniform" in words:
        coarse = re.search(r"\b([2-9]|\d\d+)\b", words)
        return Policy("full", _between(words, "full") if coarse else "")
    some = None
    if (nth := EVERY_NTH.search(words)) and nth[2] in ("layer", "block"):
        some = layers / max(
            NUMBERS.get(nth[1]) or int(re.sub(r"\D", "", nth[1])), 1
        )
    elif of := OF_ALL.search(words):
        some = layers * int(of[1]) / max(int(of[2]), 1)
    elif percent := PERCENT.search(words):
        some = layers * float(percent[1]) / 100
    elif first := PER_STAGE.search(words):
        some = float(first[1] or first[2])
    if some is None:
        return None
    again = "selective" if words.startswith("selective") else "full"
    whole = round(some)
    mode = (
        "none"
        if not whole
        else again
        if whole >= layers
        else f"{again}:{whole}"
    )
    return Policy(
        mode, "" if abs(some - whole) < EXACT else _between(words, mode)
    )


EXACT = 1e-9
"""A number of layers is whole, but for rounding."""


def modules() -> Sequence[str]:
    """Modules of Megatron Core that a row may name."""
    return tuple(word_table().recompute["modules"])


def _modules(words: str) -> list[str]:
    """The modules that the words list, known or not."""
    if listed := NAMED_LISTS.search(words):
        return [
            name
            for item in listed[1].split(",")
            if (name := item.strip(" '\"`"))
        ]
    if not re.match("selective|modules?\\b", words) or re.search(
        "save|keep|store", words
    ):
        return []  # what follows is prose
    return re.findall(
        rf"\b(?:{'|'.join(sorted(modules(), key=len, reverse=True))})\b", words
    )


def _listed(names: list[str]) -> Policy:
    """Selective recomputation of modules."""
    known = sorted({*names} & {*modules()})
    strange = [n for n in names if n not in known]
    if not known:
        raise BadInput(
            f"recomputed module {names[0][:40]!r} is not known; {', '.join(modules())} are"
        )
    note = (
        f"recomputed module {strange[0][:40]!r} is not known and left out"
        if strange
        else ""
    )
    return Policy("+".join(known), note, memory=not strange)


def _operations(words: str) -> Policy:
    """Operation-level checkpointing: torchtitan keeps the result of every second matrix product;
    some keep all.
    """
    if re.search(
        r"\b(?:saves?|keeps?|all) (?:all |every )?(?:matmuls?|matrix products?)\b(?!.* every)",
        words,
    ):
        return Policy(EVERY_PRODUCT)
    nth = EVERY_NTH.search(words)
    second = nth is None or NUMBERS.get(nth[1]) == 2
    return Policy("op", "" if second else _between(words, "op"))


def _of_jax(words: str) -> Policy:
    """One of MaxText's policies: names of the results that stay; what else there is runs again."""
    named, rest = [], words
    for name, word in word_table().recompute["policies"].items():
        pattern = rf"(?<![\w-]){re.sub('_', '[ _-]', name)}(?![\w-])"
        if re.search(pattern, rest):
            named.append((name, word))
            rest = re.sub(pattern, "", rest)
    if named:
        away = "none"
        if any(name.endswith("offloaded") for name, _ in named):
            away = "results"  # inputs of layers stay
        elif speaks_of(OFFLOADED, words):
            away = "activations"
        return Policy("+".join(word for _, word in named), offload=away)
    mode = "none" if NONE.search(words) else "full"
    default = "none" if mode == "none" else "full, MaxText's default"
    return Policy(
        mode,
        f"names no known remat policy: its time is taken with {default}, its memory is not judged",
        False,
    )


def _between(words: str, mode: str) -> str:
    return f"recomputation {words[:90]!r} is taken as {mode}, the nearest that a layout can say"
