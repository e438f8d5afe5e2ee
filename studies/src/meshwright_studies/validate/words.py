"""What the words of published rows mean: the table data/runs/words.toml, and what no table can say
of precision, sharding and schedule (recomputation: `recompute`).

Defaults, where a row does not say: bf16 (fp16 on chips without it); replicated Adam; 1F1B,
interleaved if there are virtual stages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from meshwright.describe.holding import Holding
from meshwright.describe.job import OPTIMIZERS, Optimizer
from meshwright.describe.layout import Layout

from ..shipped import shipped_table
from .rows import Row, sharding_of_row, text_of_row

JAX = re.compile(r"\b(?:maxtext|jax|pax(?:ml)?|levanter|t5x|easylm)\b")
KERNEL_LIST = re.compile(r"kernels?[=:] ?(\w[\w.]*(?: ?\+ ?[\w. ]+)?)")
DATED = re.compile(r"(20[12]\d)-?(0[1-9]|1[0-2])(?!\d)")
T = TypeVar("T")
Values = Sequence[tuple[T, str]]
"""(value, what says so)."""


@dataclass(frozen=True)
class Rule:
    """What holds of the rows that meet every condition which is named."""

    name: str = ""
    says: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    framework: Sequence[str] = ()
    since: float | None = None
    until: float | None = None
    dated_since: int | None = None
    dated_before: int | None = None
    sets: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def holds(
        self,
        text: Mapping[str, str],
        year: float | None,
        framework: str = "",
    ) -> bool:
        """Does it hold of a row with these texts (`texts_of_row`), of that year and framework?"""
        since, until = self.since, self.until
        after, before = self.dated_since, self.dated_before
        dates = [int(y + m) for y, m in DATED.findall(text["source_ref"])]
        return (
            all(re.search(p, text[name]) for name, p in self.says.items())
            and not any(re.search(p, text[n]) for n, p in self.lacks.items())
            and (not self.framework or framework in self.framework)
            # a row without a year, or a source without a date, meets no bound
            and (since is None or (year is not None and year >= since))
            and (until is None or (year is not None and year < until))
            and (after is None or max(dates, default=0) >= after)
            and (before is None or max(dates, default=before) < before)
        )


@dataclass(frozen=True)
class Words:
    """How a row may speak of a setting."""

    values: Values[Any]
    field: str = ""
    topic: str = ""
    """What names the setting at all; a row that names it with no value of `values` gets a note."""
    within: Sequence[str] = ("software", "recipe", "notes")


@dataclass(frozen=True)
class Table:
    """The words that are known."""

    frameworks: Sequence[Rule]
    settings: Sequence[Words]
    gradients: Words
    exchange: Words
    """`Layout.cp_exchange`."""
    kernels: Words
    precision: Words
    recompute: Mapping[str, Any]
    """Modules and policies of frameworks (`recompute`)."""
    links: Mapping[str, Any]
    """What joins chips (`hardware`)."""
    habits: Sequence[Rule]
    optimizers: Sequence[Rule]
    """What an optimizer keeps that is none of `optimizer`."""
    wide_gathers: Sequence[Rule]
    """Runs in FP8 or FP4 whose weights are gathered, and kept, in 16 bits (`Rule.holds`)."""

    @property
    def read(self) -> list[str]:
        """Patterns of all words of a program that mean something."""
        rules = (*self.frameworks, *self.habits, *self.wide_gathers)
        return [
            *(words.topic for words in self.settings),
            *(pattern for _, pattern in self.kernels.values),
            *(
                says[name]
                for rule in rules
                for says in (rule.says, rule.lacks)
                for name in ("software", "kernels")
                if name in says
            ),
        ]


@lru_cache(maxsize=1)
def word_table() -> Table:
    """The table that comes with the package."""
    data = shipped_table("runs/words.toml")
    return Table(
        frameworks=[Rule(**each) for each in data["frameworks"]],
        settings=[Words(**each) for each in data["settings"]],
        gradients=Words(**data["gradients"]),
        exchange=Words(**data["exchange"]),
        kernels=Words(**data["kernels"]),
        precision=Words(**data["precision"]),
        recompute=data["recompute"],
        links=data["links"],
        habits=[Rule(**each) for each in data["habits"]],
        optimizers=[Rule(**each) for each in data["optimizers"]],
        wide_gathers=[Rule(**each) for each in data["wide_gathers"]],
    )


def texts_of_row(row: Row) -> dict[str, str]:
    """The texts of a row that speak of its software, by the names that the table has for them."""
    names = ("software", "precision", "recipe", "notes", "source_ref")
    text = {
        name: text_of_row(row, name)
        for name in (*names, "attention_kernel", "model.attention")
    }
    sharding = sharding_of_row(row)
    listed = KERNEL_LIST.search(text["software"])
    return {
        **text,
        "sharding": sharding,
        "stack": f"{text['software']} {sharding}",
        "kernels": text["attention_kernel"] or (listed[1] if listed else ""),
    }


def first_value(
    values: Values[T],
    text: str,
    speaks: Callable[[str, str], object] = re.search,
) -> T | None:
    """The first value that a text speaks of."""
    return next((value for value, p in values if speaks(p, text)), None)


def speaks_of(pattern: str, words: str) -> bool:
    """Do the words speak of it, and not of its absence ("no ...", "without ...", "pre-...", "...
    disabled")?
    """
    before = (
        r"(?<!\bno )(?<!\bnot )(?<!\bno-)(?<!\bnon-)(?<!without )(?<!w/o )(?<!\bpre-)(?<!\bpre"
        r" )(?<!before )(?<!before the )"
    )
    after = r"(?!\w*[\s=:(]{0,3}(?:off|false|disabled|none)\b)"
    return re.search(rf"{before}(?:{pattern}){after}", words) is not None


def is_jax(software: str) -> bool:
    """MaxText and other trainers on JAX."""
    return JAX.search(software) is not None


def optimizer(row: Row, fsdp: bool, holding: Holding) -> Optimizer:
    """Adam with an fp32 master. FSDP's fp32 shard is the master, 16 bytes a parameter in all: where
    the framework does not say so, 2 are counted as weight; one whose weights are their own master
    (`Holding.narrow_moments`) says what Adam keeps.
    """
    text = texts_of_row(row)
    for rule in word_table().optimizers:
        if rule.holds(text, year=None):
            return replace(OPTIMIZERS["adamw"], **rule.sets)
    says = holding.shard_is_master or holding.narrow_moments
    return (
        replace(OPTIMIZERS["adamw"], state_bytes=10.0)
        if fsdp and not says
        else OPTIMIZERS["adamw"]
    )


def exchange_in_words(row: Row) -> str:
    """How ranks of cp give each query its keys, as the row says it; the usual one if it does
    not.
    """
    known = word_table().exchange
    text = " ".join(text_of_row(row, name) for name in known.within)
    return first_value(known.values, text) or Layout().cp_exchange


def zero_in_words(stage: object, sharding: str) -> int:
    """ZeRO stage: the number if given, else from the words."""
    if isinstance(stage, int) and stage in range(4):
        return stage
    if number := re.search(r"zero[- ]?([0-3])", sharding):
        return int(number[1])
    if "grad_op" in sharding:
        return 2
    return 3 if "fsdp" in sharding else 1 if "distributed" in sharding else 0


def is_fsdp(sharding: str, software: str) -> bool:
    """PyTorch's FSDP or JAX's: the fp32 shard is the master copy (Megatron's and DeepSpeed's keep a
    separate one).
    """
    return "fsdp" in sharding and "megatron" not in f"{sharding} {software}"


def schedule(words: str, pp: int, interleave: int) -> tuple[str, int]:
    """(schedule, interleave) of a pipeline of pp stages."""
    if pp == 1:
        return "1f1b", 1
    if "dualpipe" in words:
        return "dualpipev", 2
    if re.search(r"zb-?v|v-(half|min)", words):
        return "zbv", 2
    if re.search(r"zb|zero[- ]?bubble", words):
        return (
            ("interleaved-zb", interleave)
            if interleave > 1
            else ("zb-h2", 1)
            if re.search(r"2p|h2", words)
            else ("zb-h1", 1)
        )
    if interleave > 1:
        return "interleaved", interleave
    return ("gpipe", 1) if re.search(r"gpipe|afab", words) else ("1f1b", 1)
