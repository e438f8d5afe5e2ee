"""What a fit writes into the catalogue: catalog/fitted.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.describe.fitted import Parameter

from .fit import Fit

HEAD = """\
# Numbers that only runs tell, shared by all of them. Written by `meshwright fit`.
# prior: what it would be without any run, as the catalogue's own files have it; spread: width of
# its logarithm; range: over the fits with a laboratory left out; without: the laboratories without
# which it falls back to its prior (one: it rests on that laboratory alone). [without], [families],
# [pairs]: all numbers with the runs of a laboratory, of a family of chips, or of a family of chips
# under a family of frameworks left out.

"""


def fitted_text(
    of: Sequence[Parameter], fit: Fit, date: str, runs: int, laboratories: int
) -> str:
    """The text of the file."""
    head = f'date = "{date}"\nruns = {runs}\nlaboratories = {laboratories}\n'
    numbers = "".join(f"\n{_table(p, fit)}" for p in of)
    return (
        HEAD
        + head
        + numbers
        + "".join(_groups(*group) for group in fit.left_out.items())
    )


def _groups(key: str, of: Mapping[str, Mapping[str, float]]) -> str:
    """The values without each group of runs."""
    parts = []
    for name, values in of.items():
        lines = (f'"{which}" = {value:g}' for which, value in values.items())
        parts.append(f'\n[{key}."{name}"]\n' + "\n".join(lines) + "\n")
    return "".join(parts)


def _table(p: Parameter, fit: Fit) -> str:
    low, high = fit.range(p.name)
    lines = [
        f'[parameters."{p.name}"]',
        f"where = [{_texts(p.where)}]",
        *(["times = true"] if p.times else []),
        *([f'unit = "{p.unit}"'] if p.unit else []),
        f"prior = {p.prior:g}",
        f"spread = {p.spread:g}",
        f"bounds = [{p.least:g}, {p.most:g}]",
        f'source = "{p.source}"',
        f"value = {fit.values[p.name]:g}",
        f"range = [{low:g}, {high:g}]",
        f"without = [{_texts(fit.identified_by(p))}]",
    ]
    return "\n".join(lines) + "\n"


def _texts(of: Sequence[str]) -> str:
    return ", ".join(f'"{text}"' for text in of)
