"""Rows whose source is silent on the microbatch or the chunks of a pipeline: one fixed rule, and
what other choices give.

Tables 1 and 2 of Narayanan et al. 2021 print the layout of a run without them. The rule, the same
for all rows:

    p = 1: the largest microbatch of 1, 2, 4, 8 that fits            p > 1: microbatch 1
    p > 1: v chunks a device, the largest of 1 to 4 with L divisible by p v; where that is 1 (23
           layers a stage), a chunk for each layer

    silent on recomputation: nothing is computed again

Such rows are judged, and fitted to only where the row says that a fit may use it: the table of
Megatron-LM's README for the H100 is the only source of 16-bit Megatron runs on parts of 700 W.
Beside the prediction stand the fastest and the slowest of all choices that could have run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.compare.as_run import predict_as_run
from meshwright.describe.assumptions import REALISTIC, Assumptions
from meshwright.errors import BadInput
from meshwright.layout.rules import SCHEDULE

from .jobs import Described, job_and_notes
from .rows import Row, demand_whole, table_of_row, whole_of_row

MICROBATCHES = (1, 2, 4, 8)
CHUNKS = (1, 2, 3, 4)
SAID = {
    "micro_batch": "microbatch",
    "parallel.vpp": "chunks",
    "recompute": "recomputation",
}
"""What the rule fills in: name of the field as `missing` lists it -> what it is."""


@dataclass(frozen=True)
class Filled:
    """A row with the rule's choice, and the step times [s] of every choice that could have run,
    fastest and slowest.
    """

    about: Described
    range_s: tuple[float, float]


def silent(row: Row) -> tuple[str, ...]:
    """What the rule fills in of a row; () if its source leaves nothing open, or more than the rule
    knows.
    """
    missing = row.get("missing")
    if not isinstance(missing, (list, tuple)) or not missing:
        return ()
    return (
        tuple(missing)
        if all(isinstance(name, str) and name in SAID for name in missing)
        else ()
    )


def held_out(row: Row) -> bool:
    """Judged, but no fit may use it: it says so, or its configuration is completed by the rule and
    it does not say that a fit may.
    """
    allowed = row.get("fit")
    return allowed is False or (bool(silent(row)) and allowed is not True)


def filled(row: Row, assumptions: Assumptions) -> Filled:
    """The row by the rule; BadInput if nothing legal is left."""
    could: dict[tuple[int, int], tuple[Described, bool]] = {}
    times: list[float] = []
    for microbatch, chunks in open_choices(row):
        about = job_and_notes(with_choice(row, microbatch, chunks))
        try:
            prediction = predict_as_run(about.under(assumptions))
        except BadInput:
            continue
        if SCHEDULE.holds(prediction.job, prediction.layout):
            could[microbatch, chunks] = about, prediction.fits
            times += [prediction.step_time_s] if prediction.fits else []
    chosen = by_rule(
        row, {choice: fits for choice, (_, fits) in could.items()}
    )
    about, fits = could[chosen]
    times = times or [predict_as_run(about.under(assumptions)).step_time_s]
    return Filled(
        about.noted(note(row, *chosen, fits)), (min(times), max(times))
    )


def described(row: Row) -> Described:
    """A row as a job of the default set; what its source is silent on by the rule."""
    return filled(row, REALISTIC).about if silent(row) else job_and_notes(row)


def open_choices(row: Row) -> Iterator[tuple[int, int]]:
    """(microbatch, chunks) that the row leaves open, that cut its layers evenly, and whose
    microbatches stages share out, as Megatron-LM asked of interleaving to 2024.
    """
    open_ = silent(row)
    each = whole_of_row(row, "global_batch", 1) / whole_of_row(
        row, "parallel.dp", 1
    )
    pp = whole_of_row(row, "parallel.pp", 1)
    layers = demand_whole(row, "model.layers")
    stated = (
        whole_of_row(row, "micro_batch", 1),
        whole_of_row(row, "parallel.vpp", 1),
    )
    chunks_of = [v for v in CHUNKS if layers % (pp * v) == 0] or [1]
    if chunks_of == [1] and layers % pp == 0:
        chunks_of = [1, layers // pp]
    for microbatch in MICROBATCHES if "micro_batch" in open_ else stated[:1]:
        for chunks in (
            chunks_of if "parallel.vpp" in open_ and pp > 1 else stated[1:]
        ):
            if chunks == 1 or each % (pp * microbatch) == 0:
                yield microbatch, chunks


def by_rule(row: Row, fits: Mapping[tuple[int, int], bool]) -> tuple[int, int]:
    """The rule's choice among those that are legal."""
    if not fits:
        raise BadInput("no microbatch of 1, 2, 4, 8 divides its batch")
    pp = whole_of_row(row, "parallel.pp", 1)
    least = min(microbatch for microbatch, _ in fits)
    if pp > 1:
        return max(choice for choice in fits if choice[0] == least)
    return max(
        (choice for choice, fit in fits.items() if fit), default=(least, 1)
    )


def with_choice(row: Row, microbatch: int, chunks: int) -> dict[str, Any]:
    """The row with all of it stated."""
    again = {"recompute": "none"} if "recompute" in silent(row) else {}
    return {
        **row,
        **again,
        "micro_batch": microbatch,
        "parallel": {**table_of_row(row, "parallel"), "vpp": chunks},
    }


def note(row: Row, microbatch: int, chunks: int, fits: bool) -> str:
    """What the rule put in the place of what is missing."""
    put = {
        "micro_batch": f"microbatch {microbatch}",
        "parallel.vpp": f"{chunks} chunks a device",
        "recompute": "none",
    }
    names = [
        name
        for name in silent(row)
        if name != "parallel.vpp" or whole_of_row(row, "parallel.pp", 1) > 1
    ]
    said = " and ".join(SAID[name] for name in names)
    words = " and ".join(put[name] for name in names)
    return f"its source does not say the {said}: {words} by a fixed rule" + (
        "" if fits else ", which does not fit"
    )
