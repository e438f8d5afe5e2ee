"""What communication costs once part of it hides behind compute."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import NamedTuple

from ..describe.assumptions import Hide, HidePass
from ..num import Num, maximum, minimum
from .load import Load


class Exposed(NamedTuple):
    """Seconds that a scope takes longer."""

    shown: Num
    """What of the communication sticks out."""
    slowdown: Num
    """Compute that is slower while the rest of it runs."""

    @property
    def total(self) -> Num:
        """What shows, and what the work is slower by."""
        return self.shown + self.slowdown

    def __add__(self, other: Exposed) -> Exposed:  # type: ignore[override]
        return Exposed(
            self.shown + other.shown, self.slowdown + other.slowdown
        )

    def __mul__(self, times: Num) -> Exposed:  # type: ignore[override]
        return Exposed(self.shown * times, self.slowdown * times)


def behind(work: Num, own: Load, hidden: Load, how: HidePass) -> Exposed:
    """Communication beside `work` seconds that contain the collectives `own`. One call a scope: a
    budget is spent once.

    Exposed is what outlasts the share of the work that may hide it, and what does not fit on the
    links beside `own`:

        shown = max(h - share t, (1 - most) h,                   most: of h that may hide
                    max_d(own_d + h_d) - t, 0)                   links "shared": by dimension
                                 own + h - t                     "serial": one after the other

    It never falls when work, links or communication take longer, by less than what they take longer
    themselves; and with shared links t + shown is at least the busy seconds of every dimension.
    """
    shown = _outlasts(
        work,
        hidden.seconds,
        how,
    )
    if how.links == "serial":
        shown = maximum(shown, own.seconds + hidden.seconds - work)
    if how.links == "shared":
        shown = maximum(shown, (own.busy + hidden.busy).most - work)
    return _exposed(
        minimum(shown, hidden.seconds),
        hidden.seconds,
        how,
    )


def outlasting(work: Num, hidden: Num, how: Hide) -> Exposed:
    """What outlasts the work on links that nothing else uses meanwhile: max(h - share t, (1 - most)
    h).
    """
    return _exposed(
        _outlasts(work, hidden, how),
        hidden,
        how,
    )


def _outlasts(work: Num, hidden: Num, how: Hide) -> Num:
    return maximum(
        hidden - how.share * work,
        (1.0 - how.most) * hidden,
    )


Hidden = dict[Hide, Load]
"""What a device sends in a step, by what it hides behind."""


def merge_budgets(several: Iterable[Hidden]) -> Hidden:
    """What hides alike has one budget."""
    hidden_by: Hidden = {}
    for loads in several:
        for how, load in loads.items():
            hidden_by[how] = (
                hidden_by[how] + load if how in hidden_by else load
            )
    return hidden_by


def sum_loads(loads: Hidden) -> Load:
    """One after the other."""
    return reduce(Load.__add__, loads.values())


def excess(work: Num, sent: Hidden) -> Num:
    """Seconds that work takes longer for what outlasts it; each second hides once."""
    longer: list[Num] = []
    for how, load in sent.items():
        if how.scope == "none":
            longer.append(load.seconds)
            continue
        exposed = outlasting(work, load.seconds, how)
        longer.append(exposed.total)
        work = work - (load.seconds - exposed.shown)
    return reduce(add, longer)


def _exposed(shown: Num, hidden: Num, how: Hide) -> Exposed:
    """With the slowdown of what hides."""
    return Exposed(shown, how.slow * (hidden - shown) if how.slow else 0.0)


def summa(panel: Num, work: Num, panels: Num) -> Num:
    """Exposed seconds of a SUMMA product: the first panel's broadcasts, and what of all of them
    outlasts the product's work.

    panel: seconds of one panel's broadcasts;  work: seconds of the whole product.  S + max(nb S -
    X, 0). Source: Subramanian et al. 2024, section 3.4 (prologue and exposed time), as its code
    adds them up.
    """
    return panel + maximum(panels * panel - work, 0.0)
