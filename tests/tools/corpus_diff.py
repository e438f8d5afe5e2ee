"""What differs between two corpora: rows, fields, how far; summed up by verb and field."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

Answers = dict[str, dict[str, Any]]
LONGEST = 160
"""Characters of a text that is shown."""


class Change(NamedTuple):
    """One field of one answer; absent numbers count as 0."""

    ask: str
    field: str
    before: Any
    after: Any

    @property
    def share(self) -> float | None:
        """Relative change of a number, inf if it was 0; None for texts."""
        if isinstance(self.before, str) or isinstance(self.after, str):
            return None
        if self.before == 0:
            return float("inf")
        return (
            self.after / self.before - 1 if self.after != self.before else 0.0
        )

    def beyond(self, tolerance: float) -> bool:
        """The change counts."""
        return self.share is None or not abs(self.share) <= tolerance

    def __str__(self) -> str:
        if self.share is None:
            return f"{self.field}: {str(self.before)[:LONGEST]!r} -> {str(self.after)[:LONGEST]!r}"
        return f"{self.field}: {self.before:.17g} -> {self.after:.17g} ({percent(self.share)})"


def changes(before: Answers, after: Answers) -> Iterator[Change]:
    """Every field that is not the same to the last digit."""
    for line, old in before.items():
        new = after.get(line, {"refused": "not asked"})
        if ("refused" in old) != ("refused" in new):
            yield Change(
                line,
                "refused",
                old.get("refused", "answered"),
                new.get("refused", "answered"),
            )
            continue
        for field in dict.fromkeys([*old, *new]):
            a, b = (x.get(field, 0) for x in (old, new))
            if a != b and not (a != a and b != b):
                yield Change(line, field, a, b)


def percent(share: float) -> str:
    """+1.23 %, with enough digits to see the smallest."""
    if share == float("inf"):
        return "new"
    return f"{100 * share:+.3g} %"


def report(found: list[Change], asked: int, rows: int) -> str:
    """The summary by verb and field, and the first rows in full."""
    if not found:
        return f"none of {asked} answers changed"
    changed = Counter(
        line.split()[0] for line in dict.fromkeys(c.ask for c in found)
    )
    lines = [
        f"{sum(changed.values())} of {asked} answers changed:"
        f" {', '.join(f'{n} {k}' for k, n in changed.items())}"
    ]
    lines += [f"  {text}" for text in summary(found)]
    by_row: dict[str, list[Change]] = defaultdict(list)
    for change in found:
        by_row[change.ask].append(change)
    for line, mine in list(by_row.items())[:rows]:
        lines += ["", line, *(f"    {change}" for change in mine[:24])]
        lines += [f"    ... and {len(mine) - 24} more fields"] * (
            len(mine) > 24
        )
    if rows and len(by_row) > rows:
        lines += ["", f"... and {len(by_row) - rows} more answers (--rows)"]
    return "\n".join(lines)


def summary(found: list[Change]) -> Iterator[str]:
    """One line for each verb and field: how many rows, from how much to how much."""
    groups: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in found:
        field = ".".join(
            "#" if part.isdigit() else part for part in change.field.split(".")
        )
        groups[change.ask.split()[0], field].append(change)
    for (verb, field), mine in groups.items():
        shares = sorted(c.share for c in mine if c.share is not None)
        rows = len({c.ask for c in mine})
        how = (
            f"{percent(shares[0])} .. {percent(shares[-1])}, median {percent(median(shares))}"
            if shares
            else "text"
        )
        yield f"{verb:8} {field:32} {rows:4} rows: {how}"
