"""The words of a model's layers: what mixes tokens and what feeds forward.

    pattern = ["3*linear+experts", "full+experts"]        repeated until there are all layers

A word is [times*]mixer[+feed-forward].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..errors import BadInput

MIXERS = {
    "full": "full attention",
    "sliding": "sliding attention",
    "sparse": "sparse attention",
    "chosen": "sparse attention to the keys that the layer before chose",
    "linear": "linear attention",
    "ssm": "state space",
    "conv": "convolution",
    "none": "no mixer",
}
"""Words of a pattern -> as a person says it. Two joined by "&" stand side by side (Falcon-H1)."""
FEED_FORWARDS = ("dense", "experts", "none")
NEEDS = {
    "sliding": "window",
    "sparse": "sparse",
    "chosen": "sparse",
    "linear": "linear",
    "ssm": "ssm",
    "conv": "conv",
}
"""Mixer -> the field of a model that says its shape."""
WORD = re.compile(
    r"(?:([1-9]\d{0,4}) ?[*x] ?)?([a-z]+(?:&[a-z]+)*)(?:\+([a-z]+))?"
)


def pattern_words(pattern: Sequence[str]) -> list[tuple[int, str, str | None]]:
    """(times, mixer, feed-forward) of each word; BadInput for one that is none."""
    parts = []
    for text in pattern:
        match = WORD.fullmatch(text)
        mixers = match[2].split("&") if match else []
        if match is None or any(m not in MIXERS for m in mixers):
            raise BadInput(
                f"pattern: {text[:60]!r} is not a layer: write"
                " [times*]mixer[+feed-forward], such as"
                f" 3*linear+experts, of {', '.join(MIXERS)} and {', '.join(FEED_FORWARDS)}"
            )
        if match[3] is not None and match[3] not in FEED_FORWARDS:
            raise BadInput(
                f"pattern: feed-forward {match[3][:40]!r} is none of {', '.join(FEED_FORWARDS)}"
            )
        parts.append((int(match[1] or 1), match[2], match[3]))
    return parts


def shortest_pattern(every: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The shortest pattern of a list of (mixer, feed-forward)."""
    layers = [f"{mixer}+{ffn}" for mixer, ffn in every]
    count = len(layers)
    period = next(
        (
            n
            for n in range(1, count)
            if all(layers[i] == layers[i % n] for i in range(count))
        ),
        count,
    )
    runs: list[tuple[int, str]] = []
    for word in layers[:period]:
        if runs and runs[-1][1] == word:
            runs[-1] = (runs[-1][0] + 1, word)
        else:
            runs.append((1, word))
    return tuple(
        word if times == 1 else f"{times}*{word}" for times, word in runs
    )
