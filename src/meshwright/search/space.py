"""The layouts a search looks at: which values each field may take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..describe.choices import FIELDS, Choices, Value, Values, first_few
from ..describe.fields import Checked, Object, fields_of
from ..describe.frozen import FrozenDict
from ..describe.frozendict import EMPTY
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.offload import Offload, offload
from ..describe.read import read
from ..describe.software import Software
from ..errors import BadInput, brief

DEGREES = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "etp",
    "microbatch",
    "panels",
    "interleave",
)


PLACED_AXES = ("tp", "cp", "pp")
"""Axes whose place in the network is chosen; dp takes what they leave of each dimension."""


SEARCH_FIELDS = {
    name: field.kind.searched
    for name, field in fields_of(Layout).items()
    if field.kind.searched
}
"""Fields that tables and options hold: no other one can be limited, so that none is passed over in
silence.
"""


ONE_VALUE = tuple(name for name, how in SEARCH_FIELDS.items() if how.together)
"""Fields of which one search takes one value, as of the scheme; a plan takes several."""


USUAL = Choices(
    {name: how.usual for name, how in SEARCH_FIELDS.items() if how.usual}
)
"""What a search takes of the fields that nobody limits; of all others whatever is legal."""


@dataclass(frozen=True, init=False)
class Space(Checked):
    """The layouts that a search may choose: those with one of these values for every field.

    >>> from meshwright import Space
    >>> Space(tp=(4, 8), zero=1).values("zero")
    (1,)
    """

    choices: Choices
    """What was asked for; the rest is `USUAL`, or what a set of assumptions takes
    (`strategies`).
    """
    placements: bool
    """Try every placement of the axes on the network; False: only the canonical one (tp nearest,
    then cp, dp, pp).
    """
    relaxed: bool | None
    """False: degrees multiply up to all chips and divide the batch. True: any dp, a padded last
    microbatch, idle chips. None: strict, on fewer chips if all of them cannot be used evenly, or
    only slowly (`search.fewer_chips`). Stages may be uneven in all three (1f1b and its like run
    with as many layers a stage as one says); of chunked schedules papers ask for even ones.
    """
    software: Object = EMPTY
    """Setting of the software -> the values that a plan may choose of it; none: as the job has
    it.
    """

    def __init__(
        self,
        choices: Choices | None = None,
        placements: bool = True,
        relaxed: bool | None = None,
        software: Mapping[str, Any] = EMPTY,
        **fields: Any,
    ) -> None:
        """fields: values of fields of a layout, over those of `choices`; None: not limited."""
        chosen = Choices(
            {
                name: in_order(name, values)
                for name, values in Choices(choices or {}, **fields).items()
            }
        )
        if unknown := [name for name in chosen if name not in SEARCH_FIELDS]:
            raise BadInput(
                f"{unknown[0]} is not searched: it can only be given to predict"
            )
        for name, value in (
            ("choices", chosen),
            ("placements", placements),
            ("relaxed", relaxed),
            ("software", settings_of(software)),
        ):
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def without_software(self) -> Space:
        """The same layouts, under the job's own software."""
        return replace(self, software=FrozenDict())

    def but(self, **fields: Any) -> Space:
        """The same space with other values for some fields; None: not limited."""
        return replace(self, choices=self.choices.but(**fields))

    def part(self, **fields: Iterable[Value] | None) -> Space | None:
        """The part of the space with these values for each field (None: no limit); None if that is
        empty.
        """
        own = {
            name: tuple(v for v in values if space_allows(v, self, name))
            for name, values in fields.items()
            if values is not None
        }
        return self.but(**own) if all(own.values()) else None

    def values(self, name: str) -> Any:
        """The values that a field may have, or None for all."""
        return self.choices.get(name, USUAL.get(name))

    @property
    def host_memory(self) -> Offload:
        """What all its layouts keep in host memory."""
        return offload(str(self.values("offload")[0]))

    @property
    def scheme(self) -> str:
        """The one scheme of its tables."""
        schemes = self.values("scheme")
        if len(schemes) != 1:
            raise BadInput(
                f"one search takes one scheme, not {first_few(schemes)}: plan takes several"
            )
        return str(schemes[0])


def settings_of(software: Mapping[str, Any]) -> FrozenDict[str, Any]:
    """Setting -> its values, as `Software` holds them; BadInput for what it cannot hold."""
    return FrozenDict(
        {
            name: tuple(
                getattr(read(Software, {name: value}, "software"), name)
                for value in (
                    values if isinstance(values, (list, tuple)) else [values]
                )
            )
            for name, values in software.items()
        }
    )


def in_order(name: str, values: Values) -> Values:
    """Values of a field in the order in which ties are broken, whatever order they are named in:
    the usual ones first, as `USUAL` has them, then ascending.
    """
    usual = USUAL.get(name, ())
    return tuple(
        sorted(
            values,
            key=lambda v: (usual.index(v) if v in usual else len(usual), v),
        )
    )


def demand_space(space: object) -> Space:
    """A space that leaves every field a value; BadInput for anything else."""
    if not isinstance(space, Space):
        raise BadInput(
            f"a Space is needed, such as Space(tp=(4, 8)), not {brief(space)}"
        )
    for name, values in space.choices.items():
        if not values:
            raise BadInput(f"space.{name} must have at least one value")
    return space


def constrain(
    job: Job, space: Space | None, fields: Mapping[str, Any]
) -> tuple[Job, Space]:
    """A job with other values of some fields, and a space that leaves those of a layout only these
    values. BadInput for a field that neither has.
    """
    asked = Space() if space is None else demand_space(space)
    layout = {name: v for name, v in fields.items() if name in FIELDS}
    other = {name: v for name, v in fields.items() if name not in FIELDS}
    return (
        job.with_(**other) if other else job,
        demand_space(asked.but(**layout)) if layout else asked,
    )


def space_allows(value: Value, space: Space, name: str) -> bool:
    """Whether a space leaves a value to a field."""
    values = space.values(name)
    return values is None or value in values
