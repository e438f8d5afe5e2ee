"""Words of a command line as people type them: flags of other tools, and numbers below zero.

Megatron-LM's and Megatron-Bridge's names stand for ours; they are not shown in the help.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..describe.recompute import PARTS
from ..errors import BadInput

SAME = {
    "tp": (
        "tensor-model-parallel-size",
        "tensor-parallel-size",
        "tensor-parallel",
    ),
    "pp": (
        "pipeline-model-parallel-size",
        "pipeline-parallel-size",
        "pipeline-parallel",
    ),
    "cp": ("context-parallel-size", "context-parallel"),
    "dp": ("data-parallel-size", "data-parallel"),
    "ep": (
        "expert-model-parallel-size",
        "expert-parallel-size",
        "expert-parallel",
    ),
    "etp": ("expert-tensor-parallel-size",),
    "microbatch": ("micro-batch-size", "mbs"),
    "interleave": ("vpp", "virtual-pipeline-model-parallel-size"),
    "microbatch-group": ("microbatch-group-size-per-virtual-pipeline-stage",),
    "cp-exchange": ("cp-comm-type",),
    "stages": ("pipeline-model-parallel-layout",),
    "recompute": ("recompute-modules",),
    "sequence-parallel": ("sp",),
    "zero": ("zero-stage",),
    "seq": ("seq-length", "sequence-length"),
    "batch": ("global-batch-size", "gbs"),
    "steps": ("measured", "step-time", "measured-step-time"),
}
"""flag -> what other tools call it."""
OURS = {
    f"--{theirs}": f"--{ours}"
    for ours, names in SAME.items()
    for theirs in names
}
IN_SEQUENCES = ("--global-batch-size", "--gbs")
"""Batches that are a bare number of sequences there."""
MACHINE = ("--gpus", "--num-gpus", "--chips", "--nodes", "--world-size")
"""What --on says."""
OWN = {"limits": ("--chips",)}
"""command -> flags of these that it has itself."""
MODULES = "--recompute-modules"
"""A list of words there."""
BELOW_ZERO = re.compile(r"-[\d.]")


def translate(words: Sequence[str]) -> list[str]:
    """The words as this command spells them.  Raises BadInput for flags whose meaning another flag
    has.
    """
    out: list[str] = []
    for word in modules_joined(words):
        flag, equals, value = word.partition("=")
        if flag in MACHINE and flag not in OWN.get(words[0], ()):
            raise BadInput(
                f"{flag} is not known: --on says how many chips and which, such as --on 8xh100-sxm"
            )
        previous = out[-1] if out else ""
        if not word and previous.startswith("--") and "=" not in previous:
            raise BadInput(
                f"{previous} is given an empty value: give it one, or leave it out"
            )
        if previous in IN_SEQUENCES or flag in IN_SEQUENCES and equals:
            number = value if equals else word
            out[-1:] = [
                *(out[-1:] if equals else []),
                f"--batch={number}{'seq' * number.isdecimal()}",
            ]
        elif (
            BELOW_ZERO.match(word)
            and previous.startswith("--")
            and "=" not in previous
        ):
            out[-1] = f"{previous}={word}"  # a value, not a flag
        else:
            out.append(
                word
                if flag in IN_SEQUENCES
                else OURS.get(flag, flag) + equals + value
            )
    return out


def modules_joined(words: Sequence[str]) -> list[str]:
    """The words with Megatron Core's modules to recompute, several words there, as one value."""
    out: list[str] = []
    inside = False
    for word in words:
        if inside and word in PARTS:
            out[-1] += word if out[-1].endswith("=") else f"+{word}"
            continue
        inside = word.partition("=")[0] == MODULES
        out.append(
            f"{word}="
            if word == MODULES
            else word.replace(",", "+")
            if inside
            else word
        )
    return [
        word.rstrip("=") if word == f"{MODULES}=" else word for word in out
    ]
