"""Each value that only runs tell, taken from other laboratories' runs than those that are judged by
it.

    python benchmarks/elsewhere.py                      a table by laboratory to stdout
    python benchmarks/elsewhere.py -o docs/physics.md   written between its markers

For each laboratory the marked values (`ablation.marked`) are estimated on the rows of all others:
least squares on the logarithm of predicted over measured with every source weighing alike, from a
value of no runs (PLAIN) with the width SPREAD, in steps that follow the change of each prediction
with each value. A value that the others do not show so falls back to where it would stand without
any. Then the laboratory's own rows are predicted with them. Nothing of this is used anywhere: the
catalogue keeps its values.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from ablation import stats, table, written

from meshwright.describe import framework as profiles
from meshwright.describe import kernels as constants
from meshwright.describe.assumptions import REALISTIC, Assumptions
from meshwright.validate import published, validate

BEGIN = "<!-- made by: python benchmarks/elsewhere.py -->"
LABS = {
    "vtrain-single": "vtrain",
    "vtrain-multi": "vtrain",
    "bigscience-tr11": "bigscience",
    "bigscience-tr3m": "bigscience",
}
"""Sources of one laboratory go out together; others are their own."""
STEP = 1.05
"""Change of a value for its effect."""
NOISE = 0.08
"""Width of what the laws leave unexplained, as a logarithm."""


class Value(NamedTuple):
    """One marked number: where it stands in the catalogue."""

    kind: str
    """kernels, framework or host."""
    names: tuple[str, ...]
    """Chips or frameworks that share it."""
    field: str
    plain: float
    """Where it would stand without any run."""
    spread: float
    """Width of the logarithm about it."""


VALUES = (
    Value("kernels", ("a100",), "clock", 0.85, 0.1),
    Value("kernels", ("h100", "h200"), "clock", 0.85, 0.1),
    Value("kernels", ("v100",), "clock", 0.85, 0.1),
    Value("framework", ("megatron-2021", "megatron-deepspeed"), "host_s", 0.7e-3, 0.3),
    Value("framework", ("deepspeed-zero3",), "gather_share", 1.0, 1.0),
    Value("host", (), "backward", 2.0, 0.2),
)


def now(value: Value) -> float:
    """What the catalogue says."""
    if value.kind == "kernels":
        return float(getattr(constants.every()[value.names[0]], value.field))
    if value.kind == "framework":
        return float(getattr(profiles.frameworks()[value.names[0]], value.field))
    return float(getattr(REALISTIC.chip.host, value.field))


def changed(values: Mapping[Value, float]) -> Assumptions:
    """The set, and in this process the catalogue, with other values."""
    how = REALISTIC
    for of, number in values.items():
        if of.kind == "host":
            how = replace(
                how, chip=replace(how.chip, host=replace(how.chip.host, **{of.field: number}))
            )
        else:
            every: dict[str, Any] = (
                constants.every() if of.kind == "kernels" else profiles.frameworks()
            )
            every.update({name: replace(every[name], **{of.field: number}) for name in of.names})
    return how


def rows(values: Mapping[int, float]) -> dict[str, tuple[str, float]]:
    """Row -> its source and the logarithm of predicted over measured. values: place in VALUES ->
    number.
    """
    found = validate(
        published(), changed({VALUES[place]: number for place, number in values.items()})
    )
    return {r.id: (r.source, float(np.log(r.ratio))) for r in found.having("step_time") if r.ratio}


def apart(values: Mapping[int, float]) -> dict[str, tuple[str, float]]:
    """The same in a process of its own, which may change what it has read."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(rows, (values,))


def effects(base: Mapping[str, tuple[str, float]]) -> np.ndarray:
    """Rows by values: change of the logarithm of a prediction with that of a value."""
    columns = []
    for place, value in enumerate(VALUES):
        other = apart({place: now(value) * STEP})
        columns.append([(other[id][1] - log) / np.log(STEP) for id, (_, log) in base.items()])
    return np.array(columns).T


def estimated(error: np.ndarray, effect: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Changes of the logarithms of the values that the rows of positive weight ask for, large
    errors counting less (Huber).
    """
    start = np.log([now(v) for v in VALUES])
    plain, spread = np.log([v.plain for v in VALUES]), np.array([v.spread for v in VALUES])
    x = np.zeros(len(VALUES))
    for _ in range(20):
        left = error + effect @ x
        w = weight / np.maximum(np.abs(left) / NOISE, 1.0) / NOISE**2
        normal = effect.T @ (w[:, None] * effect) + np.diag(spread**-2.0)
        x = np.linalg.solve(normal, -effect.T @ (w * error) + (plain - start) / spread**2)
    return x


def judged() -> Iterator[tuple[str, ...]]:
    """A line for each laboratory: its rows with the catalogue's values, and with those that the
    others' rows give.
    """
    base = apart({})
    effect, error = effects(base), np.array([log for _, log in base.values()])
    labs = [LABS.get(source, source) for source, _ in base.values()]
    share = Counter(source for source, _ in base.values())
    weight = np.array([share[source] ** -0.5 for source, _ in base.values()])
    weight *= 300 / weight.sum()  # rows of one source err alike: about so many are independent
    every: dict[bool, list[float]] = {False: [], True: []}
    for lab in sorted(set(labs)):
        out = np.array([other == lab for other in labs])
        x = estimated(error, effect, np.where(out, 0.0, weight))
        new = {place: float(now(value) * np.exp(x[place])) for place, value in enumerate(VALUES)}
        there = apart(new)
        mine = [id for id, one in zip(base, out, strict=True) if one]
        before, after = ([float(np.exp(found[id][1])) for id in mine] for found in (base, there))
        every[False] += before
        every[True] += after
        numbers = ", ".join(f"{number:.3g}" for number in new.values())
        yield (lab, str(len(mine)), *_shown(before), *_shown(after), numbers)
    yield ("all", str(len(every[False])), *_shown(every[False]), *_shown(every[True]), "")


def _shown(ratios: list[float]) -> tuple[str, str]:
    found = stats(ratios)
    return f"{100 * found['median_abs_error']:.1f}", f"{100 * found['bias']:+.1f}"


def tables() -> str:
    """The values as they are, and the table by laboratory."""
    names = "; ".join(f"{v.field} of {', '.join(v.names) or v.kind} {now(v):.3g}" for v in VALUES)
    header = (
        "laboratory",
        "rows",
        "as they are: median",
        "bias",
        "from others: median",
        "bias",
        "values",
    )
    return f"As they are: {names}. Errors in percent.\n\n{table(header, list(judged()))}"


if __name__ == "__main__":
    written(__doc__, BEGIN, tables)
