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
    from ..web.prices import chip_named

    book = user_file().get("prices", {})
    if not isinstance(book, Mapping):
        raise BadInput("prices of the configuration must be a table")
    pairs = [(name, usd, "prices") for name, usd in book.items()]
    for word in words:
        name, _, usd = word.rpartition("=")
        pairs.append((name or chip, usd, "--price"))
    chips = (*catalog.names("chips"), chip)
    rates = {}
    for name, usd, said in pairs:
        which = chip_named(name, chips)
        if which is None:
            raise unknown("chip of --price", name, chips)
        rates[which] = _usd(usd, said)
    return rates


def demand_price_of(words: Sequence[str], chip: str) -> None:
    """BadInput where --price names other chips alone: the answer would have the catalogue's price,
    and nothing would say so."""
    from ..web.prices import chip_named

    named = [word.rpartition("=")[0] for word in words]
    if words and not any(chip_named(name or chip, (chip,)) for name in named):
        raise BadInput(
            f"--price says what {', '.join(named)[:60]} costs, and the job runs on {chip}:"
            f" --price {chip}=2.5"
        )


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
