"""How the layers of a model are dealt to the stages of a pipeline: by a rule, or one by one.

    even    slots    rest    1,2*30,0    Et|(tt|)*30L

`even`: as many in each stage; where they do not divide, the last stage has one fewer, then the
first, then those before the last. `slots`: embedding and loss count as a layer each, and are dealt
with the others. `rest`: all stages but the last are as full as the fullest, and it has the rest,
beside its loss and its multi-token prediction. Else the layers of every stage, in the order of the
model: numbers, or Megatron Core's words (E embedding, t a layer, m multi-token prediction, L loss;
`|` between two stages).

Sources: Megatron Core, `account_for_embedding_in_pipeline_split`, `account_for_loss_in_pipeline_
split` (both together: slots), `num_layers_in_last_pipeline_stage` (rest) and
`pipeline_model_parallel_layout`; NVIDIA Megatron-Bridge deals DeepSeek-V3 and Kimi K2 so that the
last stage has the rest (recipes/deepseek/deepseek_v3.py, recipes/kimi/kimi_k2.py, 067f987df).
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from ..errors import BadInput

RULES = ("even", "slots", "rest")
"""Ways to deal any number of layers."""
MOST_STAGES = 4096
"""Stages that a list may name."""
REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,4})|([EtmL|])\*(\d{1,4})")
"""Of Megatron Core's words: (tt|)*30, t*4."""


class StageChoice(NamedTuple):
    """A choice, read."""

    text: str
    """As a layout holds it."""
    layers: tuple[int, ...] = ()
    """Of each stage; none: the rule of this name deals them."""


def read_stages(text: str | StageChoice) -> StageChoice:
    """What a layout's text says; BadInput for what names no stages."""
    return text if isinstance(text, StageChoice) else _read(text)


@cache
def _read(text: str) -> StageChoice:
    if not isinstance(text, str):
        raise BadInput(f"layout.stages must be a text, not {str(text)[:40]!r}")
    words = "".join(text.split())
    if words in RULES:
        return StageChoice(words)
    of_words = bool(re.search("[EtL|]", words))
    layers = _of_megatron(words) if of_words else _of_numbers(words)
    if len(layers) > MOST_STAGES:
        raise BadInput(
            f"layout.stages names {len(layers)} stages; at most {MOST_STAGES} are read"
        )
    return StageChoice(_short(layers), layers)


def _of_numbers(words: str) -> tuple[int, ...]:
    """1,2*30,0: a stage of one layer, thirty of two, one of none."""
    counts: list[int] = []
    for word in words.split(","):
        if not re.fullmatch(r"\d{1,5}(\*\d{1,4})?", word):
            raise BadInput(
                f"layout.stages must be {', '.join(RULES)}, or the layers of each stage such as"
                f" 7,8*14,7, not {words[:40]!r}"
            )
        layers, _, times = word.partition("*")
        counts += [int(layers)] * int(times or 1)
    return tuple(counts)


def _of_megatron(words: str) -> tuple[int, ...]:
    """Et|(tt|)*30L: the same in Megatron Core's words."""
    written = words.replace(",", "")
    while (match := REPEATED.search(written)) and len(
        written
    ) < MOST_STAGES * 64:
        part, times = (
            (match[1], match[2]) if match[2] else (match[3], match[4])
        )
        written = (
            written[: match.start()]
            + part * int(times)
            + written[match.end() :]
        )
    if not re.fullmatch(r"E[t|]*m*L", written):
        raise BadInput(
            f"layout.stages {words[:40]!r}: say {', '.join(RULES)}, or layers such as 7,8*14,7; in"
            " Megatron's words E begins the first stage, t is a layer, | stands between stages, and"
            " L, after any m, ends the last"
        )
    return tuple(stage.count("t") for stage in written.split("|"))


def _short(layers: tuple[int, ...]) -> str:
    """Equal neighbours written once."""
    runs: list[list[int]] = []
    for n in layers:
        if runs and runs[-1][0] == n:
            runs[-1][1] += 1
        else:
            runs.append([n, 1])
    return ",".join(
        f"{n}*{times}" if times > 1 else str(n) for n, times in runs
    )
