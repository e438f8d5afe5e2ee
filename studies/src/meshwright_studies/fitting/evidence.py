"""The text of catalog/evidence.toml and of catalog/runs/seen.csv, from left-out predictions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from json import dumps

from meshwright.formats.toml import dump_job
from meshwright.prediction.certainty import PublishedRun

from ..validate.rows import Row, plain
from ..validate.silent import described
from . import intervals
from .intervals import BEYOND, DECLARED
from .seen import Seen

HEAD = """\
# How sure predictions are. Written by `meshwright fit`; a test compares.
# low, high: 5 % and 95 % quantiles of ln(measured / predicted) over the width of the prediction,
# runs of a source weighted as their errors correlate, and widened as for a further laboratory;
# predictions left out their laboratory (docs/accuracy.md).
"""


def evidence_toml(of: Sequence[Seen], name: str) -> str:
    """The TOML of an assumption set: all runs pooled, how unsure each part is, then each class."""
    ends = intervals.ends(of)
    own = intervals.after_scale(of)
    most = {
        "chips": max(s.run.chips for s in of),
        "tokens": max(s.run.tokens for s in of),
    }
    lines = [
        f"[{name}]",
        f"low = {ends.low:.3f}",
        f"high = {ends.high:.3f}",
        *_counted(of),
        f"own = {{ low = {own.low:.3f}, high = {own.high:.3f} }}",
        f"pair = {intervals.pair(of, ends):.3f}",
        f"resolution = {intervals.resolution(of):g}",
        f"most = {{ chips = {most['chips']}, tokens = {most['tokens']} }}",
        "",
        f"[{name}.unsure]",
        *(
            f"{part} = {value:.3g}  # {why}"
            for part, (value, why) in {**DECLARED, **BEYOND}.items()
        ),
    ]
    for kind in sorted({one.kind for one in of}):
        mine = [one for one in of if one.kind == kind]
        lines += ["", f'[{name}.classes."{kind}"]', *_counted(mine)]
    return "\n".join(lines) + "\n"


def _counted(of: Sequence[Seen]) -> list[str]:
    sources = ", ".join(
        f'"{name}"' for name in sorted({one.source for one in of})
    )
    return [f"rows = {len(of)}", f"sources = [{sources}]"]


def evidence_table(of: Sequence[Seen]) -> str:
    """The CSV of the runs, for the nearest ones to a question."""
    head = "# Published runs beside left-out predictions. Written with catalog/evidence.toml.\n"
    lines = [
        ",".join(PublishedRun._fields),
        *(",".join(map(_cell, one.run)) for one in of),
    ]
    return head + "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return f'"{text}"' if "," in text else text


def descriptions(rows: Sequence[Row], ids: Collection[str]) -> str:
    """The JSON of how runs were made: id -> source_ref, software, and the job as a job file."""
    made = {}
    for row in rows:
        if (name := plain(row, "id")[:120]) in ids:
            made[name] = {
                "source_ref": str(row.get("source_ref", ""))[:200],
                "software": str(row.get("software", ""))[:80],
                "job": dump_job(described(row).job),
            }
    lines = (f"{dumps(name)}: {dumps(row)}" for name, row in made.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
