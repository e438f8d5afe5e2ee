"""The job that a command's words describe, at the user's prices, and its prediction."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .config import by_config, demand_price_of, prices


def prediction_of_arguments(
    model: str, given: Mapping[str, str], price: Sequence[str] = ()
) -> Any:
    """The prediction of the arguments, with what was rounded or filled in among its notes."""
    from ..prediction.prediction import predict as compute

    notes: list[str] = []
    job = read_job(model, given, notes, price)
    notes += replicated(job, given)
    p = compute(job)
    return p.with_results(notes=(*notes, *p.notes))


SHARDING = ("fsdp", "torchtitan", "automodel", "llm-foundry")
"""Frameworks whose name says to many that everything is sharded."""


def replicated(job: Any, given: Mapping[str, str]) -> list[str]:
    """A sentence where nobody said a ZeRO stage and the framework is thought to shard."""
    layout, name = job.layout, job.profile.name if job.profile else ""
    if (
        name not in SHARDING
        or "zero" in given
        or layout.zero
        or layout.dp == 1
    ):
        return []
    return [
        f"ZeRO-0 under {name} is DDP; --zero 3 shards, as fully_shard does"
    ]


def read_job(
    model: str,
    given: Mapping[str, str],
    notes: list[str],
    price: Sequence[str],
    fill: bool = True,
) -> Any:
    """The job of the arguments; price: of chips, instead of the catalogue's."""
    from ..formats.bridge import foreign
    from ..formats.flags import is_file, read_flags

    given = by_config(given, is_file(model) or foreign(model))
    job = read_flags(model, given, notes, stdin=sys.stdin, fill=fill)
    book = prices(price, job.cluster.chip.name)
    demand_price_of(price, job.cluster.chip.name)
    if price and not job.tokens:
        notes.append(
            "--price changes nothing here: it acts on the money of a run, which needs --tokens"
        )
    return replace(job, cluster=job.cluster.priced(book))
