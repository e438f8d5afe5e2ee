"""Prices of one's own: dollars for an hour of a chip, by the names that `on` takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .. import catalog
from ..describe.chip import MOST_USD
from ..describe.job import Job
from ..errors import BadInput, unknown

Prices = Mapping[str, float]


def chip_named(name: str, chips: Iterable[str]) -> str | None:
    """Which of these chips a name means: "A100 80GB" and "16xa100" are a100-80."""
    what = name.strip()
    if what in chips:
        return what
    if catalog.COUNT.match(what):
        what = catalog.split_count(what)[1]
    if catalog.has("networks", what):
        what = catalog.network(what).chip
    if not catalog.has("chips", what):
        return None
    chip = catalog.chip(what).name
    return chip if chip in chips else None


def by_chip(prices: Prices, chips: Iterable[str]) -> dict[str, float]:
    """Chip -> its price.  BadInput for a name that is none of these chips."""
    chips = sorted({*chips})
    rates: dict[str, float] = {}
    for name, rate in prices.items():
        chip = chip_named(name, chips)
        if chip is None:
            raise unknown("prices: chip", name, chips)
        positive(name, rate)
        if rates.get(chip, rate) != rate:
            raise BadInput(
                f"prices: {chip} is said twice, {rates[chip]:g} and {rate:g} USD/h"
            )
        rates[chip] = rate
    return rates


def positive(name: str, rate: float) -> None:
    """A price is a number above 0, and one that a chip may have.  Raises BadInput."""
    if not 0 < rate <= MOST_USD:
        raise BadInput(
            f"prices: {name[:80]!r} must cost more than 0 and at most {MOST_USD:,.0f} USD/h, not"
            f" {rate:g}"
        )


def price_of_job(job: Job, prices: Prices) -> float | None:
    """What these prices say of the job's chip; those of other chips are for other clusters.
    BadInput for a name that is no chip's.
    """
    chip = job.cluster.chip.name
    return by_chip(prices, (chip, *catalog.names("chips"))).get(chip)


def with_price(job: Job, rate: float | None) -> Job:
    """The job on chips at this price; None: at the catalogue's."""
    if rate is None:
        return job
    prices = {job.cluster.chip.name: rate}
    return replace(
        job, cluster=job.cluster.priced(prices, "a price of one's own")
    )
