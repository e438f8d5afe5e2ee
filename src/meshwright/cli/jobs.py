"""The job that a command's words describe, at the user's prices, and its prediction."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .config import by_config, prices


def prediction_of_arguments(
    model: str, given: Mapping[str, str], price: Sequence[str] = ()
) -> Any:
    """The prediction of the arguments, with what was rounded or filled in among its notes."""
    from ..prediction.prediction import predict as compute

    notes: list[str] = []
    p = compute(read_job(model, given, notes, price))
    return replace(p, notes=(*notes, *p.notes))


def read_job(
    model: str,
    given: Mapping[str, str],
    notes: list[str],
    price: Sequence[str] = (),
    fill: bool = True,
    search: bool = False,
) -> Any:
    """The job of the arguments; price: of chips, instead of the catalogue's; search: its layout is
    to be searched.
    """
    from ..formats.bridge import foreign
    from ..formats.flags import is_file, read_flags

    given = by_config(given, is_file(model) or foreign(model))
    job = read_flags(
        model, given, notes, stdin=sys.stdin, fill=fill, search=search
    )
    book = prices(price, job.cluster.chip.name)
    return replace(job, cluster=job.cluster.priced(book))
