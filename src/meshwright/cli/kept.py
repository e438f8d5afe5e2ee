"""Whose layout a sweep takes at every value: the one that a file has, or the best that a search
finds.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..errors import BadInput, MeshwrightError
from ..formats import LARGEST, STDIN
from .config import by_config, prices

if TYPE_CHECKING:
    from ..describe.job import Job
    from ..search import Space

KEPT = "layout: that of the file at every value; --replan searches the best"
NAMED = "searched at every value, but for {}; --fixed predicts the layout as it is given"


class Swept(NamedTuple):
    """What a sweep varies."""

    job: Job
    space: Space | None
    fixed: bool
    notes: list[str]
    """Whose layout it is, where somebody named one, and what was rounded."""
    prices: Mapping[str, float]
    """Of chips, instead of the catalogue's."""


def swept(
    model: str,
    given: Mapping[str, str],
    fixed: bool,
    replan: bool,
    price: Sequence[str] = (),
    over: Sequence[str] = (),
) -> Swept:
    """The job of a sweep, and whether its layout stays.

    fixed: the layout stays, whoever gave it; replan: it does not, though a file has one. Without
    either the layout of a file stays, unless lists or ranges ask for a search. over: fields and
    values; a batch in tokens is rounded to what the most chips of a search share evenly.
    Raises BadInput.
    """
    # not for the help of a verb: every format of a job comes with them
    from ..describe.choices import FIELDS
    from ..formats.bridge import foreign
    from ..formats.flags import is_file, job_and_space, read_flags

    if fixed and replan:
        raise BadInput(
            "--fixed keeps the layout and --replan searches: give one"
        )
    stdin = io.StringIO(sys.stdin.read(LARGEST + 1) if model == STDIN else "")
    many = [
        n for n in FIELDS if any(x in given.get(n, "") for x in (",", ".."))
    ]
    file = is_file(model) or foreign(model)
    keep = fixed or (
        file and not replan and not many and _has_layout(model, given, stdin)
    )
    if keep:
        stdin.seek(0)
        job, book = _at_prices(price, read_flags(model, given, [], stdin))
        return Swept(
            job,
            space=None,
            fixed=True,
            notes=[] if fixed else [KEPT],
            prices=book,
        )
    stdin.seek(0)
    described, space = job_and_space(given)
    named = ", ".join(f"{n} {given[n]}" for n in FIELDS if n in given)
    notes = [NAMED.format(named)] if named else []
    described = by_config(_with_most_chips(described, over), file)
    read = read_flags(model, described, notes, stdin, fill=False)
    job, book = _at_prices(price, read)
    return Swept(job, space, fixed=False, notes=notes, prices=book)


def _with_most_chips(
    given: Mapping[str, str], over: Sequence[str]
) -> Mapping[str, str]:
    """The arguments on the most chips that a sweep over chips asks for."""
    from ..formats.flags import COUNTED
    from ..sweep import parse, values

    on = COUNTED.fullmatch(given.get("on", ""))
    asked = [
        values(texts) for field, texts in map(parse, over) if field == "chips"
    ]
    chips = [int(n) for n in sum(asked, []) if str(n).isdecimal()]
    if not on or not chips:
        return given
    return {**given, "on": f"{max(chips)}{on[2]}"}


def _at_prices(price: Sequence[str], job: Job) -> tuple[Job, dict[str, float]]:
    """(the job at the user's prices, these prices)."""
    book = prices(price, job.cluster.chip.name)
    return replace(job, cluster=job.cluster.priced(book)), book


def _has_layout(
    model: str, given: Mapping[str, str], stdin: io.StringIO
) -> bool:
    """Whether a file says how its job is laid out."""
    # not for the help of a verb
    from ..describe.choices import FIELDS
    from ..describe.layout import Layout
    from ..formats.flags import read_flags

    own = {n: text for n, text in given.items() if n not in FIELDS}
    try:
        job = read_flags(model, own, [], stdin, fill=False)
    except MeshwrightError:
        return False  # said where the job is read
    return job.layout != Layout()
