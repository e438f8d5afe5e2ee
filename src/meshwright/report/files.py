"""Results written to files; the suffix of the name picks the format."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .._version import __version__
from ..errors import BadInput
from ..formats import perfetto, schedule_csv, torchrun
from ..formats.toml import dump_job
from ..grid import Grid
from ..limits.answer import Limits, bill
from ..prediction.prediction import Prediction
from ..prediction.replay import Replay
from ..prediction.table import Table
from ..roofline import Roofline
from ..schedule import get as schedule_named
from ..search import Plan
from ..sweep import Sweep
from .figures import figure_of, predictions_of
from .text import seconds

Writers = Mapping[str, Callable[[], str | bytes]]
"""suffix -> what makes the content of the file."""
PLOTS = (".png", ".svg")


def suffix(output: str | None, allowed: Sequence[str]) -> str:
    """The suffix of an output file ("" without one); BadInput if it is not allowed or the file
    cannot be written there.

    Called before anything is computed, so that a long search does not end in a refusal.
    """
    if output is None:
        return ""
    path = Path(output[:4096])
    kind = path.suffix.lower()
    if kind not in allowed:
        raise BadInput(
            f"-o {output[:80]!r} must end in {' or '.join(allowed)}"
        )
    try:
        fine = path.parent.is_dir() and not path.is_dir()
    except (OSError, ValueError):
        fine = False
    if not fine:
        raise BadInput(
            f"-o {output[:80]!r} cannot be written: its folder does not exist, or it is a folder"
            " itself"
        )
    if kind in PLOTS and find_spec("matplotlib") is None:
        raise BadInput("plots need matplotlib: pip install 'meshwright[plot]'")
    return kind


def write(path: str, content: str | bytes, said: str = "") -> None:
    """Write a file, and say so on stderr, with what is said of it; BadInput where that fails."""
    data = content if isinstance(content, bytes) else content.encode("utf-8")
    try:
        Path(path).write_bytes(data)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"-o {path[:80]!r} cannot be written: {why}") from None
    print(f"wrote {path}{said}", file=sys.stderr)


def json_text(data: Mapping[str, Any]) -> str:
    """JSON for people and programs; never NaN, which is not JSON."""
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a header line; columns in the order they first appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def of_predictions(
    predictions: Sequence[Prediction], others: Sequence[Prediction] = ()
) -> Writers:
    """The job of the first layout, the best; a row and a bar for each; several also as time
    against memory, with others.
    """
    best, *more = predictions

    def bars() -> Any:
        from . import plots

        job = best.job
        title = (
            f"{job.model.name} on {job.cluster.machine}, {job.batch:,} sequences of {job.T:,},"
            f" {job.under_words}"
        )
        if more:
            return plots.plan_figure(predictions, others, title)
        return plots.layouts(predictions, (), title)

    return {
        ".toml": lambda: job_file(best),
        ".csv": lambda: csv_text([flat(p.to_dict()) for p in predictions]),
        **drawn(bars),
    }


def drawn(make: Callable[[], Any]) -> Writers:
    """A figure in each kind of picture; make: draws it, where matplotlib may be imported."""

    def image(kind: str) -> bytes:
        from . import plots

        return plots.image(make(), kind)

    return {kind: partial(image, kind) for kind in PLOTS}


def job_file(best: Prediction) -> str:
    """The JOB.toml of a prediction: what was predicted as a comment, and the job; where its ranks
    run too, if no file said it.
    """
    job = best.job
    device = torchrun.of_vendor(best.job)
    cluster = (
        job.cluster.name or f"{job.cluster.chips}x{job.cluster.chip.name}"
    )
    step = f"{seconds(best.step_time_s)} a step under {job.assumptions.name}"
    said = f"# {job.model.name} on {cluster}: {step}, predicted by meshwright {__version__}"
    line = "".join(c if c.isprintable() else "?" for c in said) + "\n\n"
    train = {**({"device": device} if device else {}), **job.train}
    return line + dump_job(replace(job, train=train))


def of_result(result: Any) -> Writers:
    """Its rows and its figure."""
    return {
        ".csv": lambda: csv_text(flat_rows(result)),
        **drawn(partial(figure_of, result)),
    }


def of_replay(replay: Replay) -> Writers:
    """A Perfetto trace, the order for PyTorch's pipelining, a Gantt chart."""
    layout = replay.prediction.layout
    t = replay.timeline

    def order() -> str:
        schedule = schedule_named(layout.schedule)
        return schedule_csv.write_order(
            t.order, schedule.placement(int(layout.pp), int(layout.interleave))
        )

    return {
        ".json": lambda: json.dumps(
            perfetto.write_trace(
                t, f"{replay.prediction.job.model.name}, {layout.schedule}"
            )
        ),
        ".csv": order,
        **drawn(partial(figure_of, replay)),
    }


def flat_rows(answer: Any) -> list[dict[str, Any]]:
    """One flat row for each prediction in a result."""
    if isinstance(answer, (Prediction, Plan)):
        return [flat(p.to_dict()) for p in predictions_of(answer)]
    if isinstance(answer, Sweep):
        return answer.rows()
    if isinstance(answer, Grid):
        return [*answer.rows]
    if isinstance(answer, Table):
        return list(answer.rows())
    return [flat(row) for row in _records(answer)]


def _records(answer: Any) -> Iterator[dict[str, Any]]:
    """The parts of a result that stand in rows: runs of a curve, ways to cut a layer, causes of a
    run, actions of a pipeline.
    """
    if isinstance(answer, Limits):
        for line in answer.lines:
            for p in line.curve.points:
                d = p.to_dict()
                yield {
                    "scenario": line.scenario.name,
                    **{k: v for k, v in d.items() if not isinstance(v, dict)},
                    **d["degrees"],
                    **d["step"],
                    **bill(p, line.scenario),
                }
    elif isinstance(answer, Roofline):
        for scheme in answer.to_dict()["schemes"]:
            yield {k: v for k, v in scheme.items() if k != "curve"}
    elif isinstance(answer, Replay):
        yield from _actions(answer)
    else:
        data = answer.to_dict()
        yield {"name": "step", **data["step_time_s"]}
        yield from (data["causes"] or {"rows": ()})["rows"]


def _actions(replay: Replay) -> Iterator[dict[str, Any]]:
    """One action of a rank a row."""
    t = replay.timeline
    for rank, actions in enumerate(t.order):
        for k, action in enumerate(actions):
            yield {
                "rank": rank,
                "kind": action.kind,
                "stage": t.stages[rank][k],
                "microbatch": action.microbatch,
                "start_s": t.start_s[rank][k],
                "end_s": t.end_s[rank][k],
            }


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one row with dotted names and one scalar a cell."""
    row: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{key}.")
        elif key.startswith("interval"):  # both ends, also where there is none
            low, high = value or ("", "")
            name, _, unit = key.rpartition("_")
            row |= {
                f"{prefix}{name}_low_{unit}": low,
                f"{prefix}{name}_high_{unit}": high,
            }
        elif isinstance(value, (list, tuple)) and any(
            isinstance(x, Mapping) for x in value
        ):
            for i, each in enumerate(value, 1):
                row |= flat(each, f"{prefix}{key}.{i}.")
        elif isinstance(value, (list, tuple)):
            texts = any(isinstance(each, str) for each in value)
            row[prefix + key] = ("; " if texts else "x").join(map(str, value))
        else:
            row[prefix + key] = value
    return row
