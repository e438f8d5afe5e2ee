"""Numbers that no kernel, data sheet or code gives: fitted to published runs, shared by all of
them.

catalog/fitted.toml says of each where it stands in the catalogue, what it would be without any run
(prior, with the width of its logarithm) and what runs make of it, with the range over the
laboratories left out in turn and the laboratories without which it falls back to its prior. The
catalogue's own files keep the priors; what they say is replaced, or multiplied, as it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from . import shipped
from .frozendict import FrozenDict

T = TypeVar("T")


@dataclass(frozen=True)
class Parameter:
    """One fitted number."""

    name: str
    where: tuple[str, ...]
    """Place and field, such as kernels/a100:clock, frameworks/megatron-2021:host_s,
    set/chip:host.backward."""
    prior: float
    spread: float
    """Width of the logarithm about the prior."""
    least: float
    most: float
    source: str
    """Of the prior."""
    value: float
    range: tuple[float, float] = (0.0, 0.0)
    """Over the fits with a laboratory left out."""
    without: tuple[str, ...] = ()
    """Laboratories without which it falls back to its prior."""
    times: bool = False
    """It multiplies what the catalogue says."""
    unit: str = ""

    @property
    def places(self) -> tuple[str, ...]:
        """Where it stands, without the field."""
        return tuple(
            dict.fromkeys(place.split(":")[0] for place in self.where)
        )


@cache
def fitted_table() -> dict[str, Any]:
    """catalog/fitted.toml as it stands."""
    return shipped.shipped_table("fitted.toml")


@cache
def fitted_parameters() -> tuple[Parameter, ...]:
    """Every fitted number."""
    return tuple(
        _parameter(name, row)
        for name, row in fitted_table()["parameters"].items()
    )


def _parameter(name: str, row: Mapping[str, Any]) -> Parameter:
    lists = {
        key: tuple(value)
        for key, value in row.items()
        if isinstance(value, list)
    }
    least, most = lists.pop("bounds")
    rest = {
        key: value for key, value in row.items() if not isinstance(value, list)
    }
    return Parameter(
        **{"name": name, **rest, **lists, "least": least, "most": most}
    )


def values() -> dict[str, float]:
    """Name -> fitted value."""
    return {of.name: of.value for of in fitted_parameters()}


def with_fitted(
    place: str, thing: T, to: Mapping[str, float] | None = None
) -> T:
    """A thing of the catalogue with its fitted numbers. to: name -> value; None = as fitted."""
    known = values() if to is None else to
    for of in fitted_parameters():
        for where in of.where:
            if where.startswith(f"{place}:") and of.name in known:
                path = where.split(":")[1].split(".")
                thing = _with(thing, path, known[of.name], of)
    return thing


def _with(thing: T, path: list[str], value: float, of: Parameter) -> T:
    """The thing with another number in one field, however deep."""
    name, *rest = path
    old: Any = getattr(thing, name)
    changes: dict[str, Any] = {}
    if rest:
        changes[name] = _with(old, rest, value, of)
    else:
        changes[name] = old * value if of.times else value
        if hasattr(thing, "sources"):
            sources: Any = thing.sources
            changes["sources"] = FrozenDict({**sources, name: _origin(of)})
    return replace(thing, **changes)  # type: ignore[type-var]


def _origin(of: Parameter) -> FrozenDict[str, str]:
    note = f"{of.range[0]:.3g} to {of.range[1]:.3g} with a laboratory left out, prior {of.prior:g}"
    return FrozenDict(
        {
            "source": "fitted to published runs (catalog/fitted.toml)",
            "date": date(),
            "note": note,
        }
    )


def date() -> str:
    """Date of the fit."""
    return str(fitted_table()["date"])
