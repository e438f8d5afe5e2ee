"""Prices and the default framework of a command: its words, and what the user's file says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import BadInput, unknown


def prices(words: Sequence[str], chip: str = "") -> dict[str, float]:
    """Chip -> USD an hour, of --price h100-sxm=2.5 and of the user's file; a lone number is that
    of `chip`.
    """
    from .. import catalog
    from ..formats.user_file import user_file

    book = user_file().get("prices", {})
    if not isinstance(book, Mapping):
        raise BadInput("prices of the configuration must be a table")
    pairs = [(name, usd, "prices") for name, usd in book.items()]
    for word in words:
        name, equals, usd = word.rpartition("=")
        pairs.append((name if equals else chip, usd, "--price"))
    return {
        catalog.chip(name).name if catalog.has("chips", name) else _own(name, chip): _usd(usd, said)
        for name, usd, said in pairs
    }  # fmt: skip


def demand_price_of(words: Sequence[str], chip: str) -> None:
    """BadInput where --price names other chips alone: the answer would have the catalogue's price,
    and nothing would say so."""
    from .. import catalog

    named = [word.rpartition("=")[0] for word in words]
    own = [
        not name
        or name == chip
        or catalog.has("chips", name)
        and catalog.chip(name).name == chip
        for name in named
    ]
    if words and not any(own):
        raise BadInput(
            f"--price says what {', '.join(named)[:60]} costs, and the job runs on {chip}:"
            f" --price {chip}=2.5"
        )


def _own(name: str, chip: str) -> str:
    """A chip that only the job has; BadInput for one that nobody knows."""
    from .. import catalog

    if name == chip and chip:
        return name
    raise unknown("chip of --price", name, (*catalog.names("chips"), chip))


def _usd(value: object, said: str) -> float:
    """A price above 0, as a number or a text such as 2.5 or "2.5 USD/h"."""
    from ..units import parse

    usd = parse(value, "USD/h", said)  # type: ignore[arg-type]
    if not 0 < usd < 1e6:
        raise BadInput(
            f"{said} must be above 0 and below 1,000,000 USD an hour, not {usd:g}"
        )
    return usd


def by_config(given: Mapping[str, str], file: bool) -> dict[str, str]:
    """The flags, with the user's framework where neither they nor a file say one."""
    from ..formats.user_file import user_file

    name = user_file().get("framework")
    if not name or file or "framework" in given or "assumptions" in given:
        return dict(given)
    return {**given, "framework": str(name)}
