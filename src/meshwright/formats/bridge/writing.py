"""From a job to a foreign file. What its format cannot say is refused; no field is dropped."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator
from typing import Any

from ...describe.framework import framework
from ...describe.job import ONE_DEVICE, Job
from ...describe.layout import AXES, Layout
from ...describe.model import Model
from ...describe.software import Software
from ...errors import BadInput
from ...layout.placement import launched, lays_out, lies
from ...layout.sequence import length
from . import cells
from .read_back import demand_same
from .shared import STAGES_NEARER, numerics, value_in_words, worded
from .table import UNSAID, Format

PLACEMENT = "layout.placement"
ABOUT = ("name", "notes", "sources")
"""Fields of a model that describe no work."""
SAID = ("model", "job.seq", "job.batch", "layout.microbatch")
"""What a training script must be told in any case, if the file does not say it."""
IN_NUMBERS = ("fp32", "half")
"""Words of `Software.gradients`, which the precision of the job says too; another is refused."""
APART = ("model", "layout", "software")
"""Fields of a job that are gone through one by one."""
NOT_RUN = ("cluster", "assumptions", "framework", "headroom", "train")
"""Fields of a job that say where it runs and how it is predicted; the software runs the others."""


def keys_of(
    format: Format,
    job: Job,
    apart: Container[str] = (),
) -> tuple[dict[str, Any], list[str]]:
    """(their keys with values, sentences on what the training script must say).

    apart: fields that are not written, since the file says them already.
    Raises BadInput with a sentence for each field that the format cannot say, or whose value its
    own reader takes for another.
    """
    if job.model.traced and "model" not in format.cells:
        raise BadInput(
            f"model {job.model.name} is counted by a trace of its PyTorch code, and a file of"
            f" {format.title} has fields for layers of {format.title} alone: formats without fields"
            " of a model, such as accelerate, hold the layout"
        )
    if job.software.gradients in IN_NUMBERS:
        job = dataclasses.replace(
            job, software=dataclasses.replace(job.software, gradients=None)
        )
    m = job.model
    if "model.head_dim" not in format.cells and m.h * m.heads == m.hidden:
        # what a model without the field has
        job = dataclasses.replace(
            job, model=dataclasses.replace(m, head_dim=None)
        )
    l = job.layout
    if l.dp % l.dp_replicate:
        raise BadInput(
            f"dp_replicate {l.dp_replicate} must divide dp {l.dp:g}: each group of shards has as"
            " many ranks"
        )
    out: dict[str, Any] = {}
    refused = [*_framework(format, job), *_placed(format, job)]
    script = []
    for path, value, default in fields(job, whole="model" not in format.cells):
        cell = format.cells.get(path)
        if value is None and cell and cell.default is not UNSAID:
            value = _own(job, path) if cells.means(cell, job) else None
        if path == "layout.sequence_parallel" and job.layout.tp == 1:
            continue  # it means nothing on one rank
        if path in apart:
            continue
        try:
            if cell is None:
                demand_default(format, path, value, default)
            elif cell.script:
                if value != default or path in SAID:
                    script.append(
                        f"{cell.script} = {value_for_author(path, value)}"
                    )
            elif cell.always is not UNSAID:
                demand_default(format, path, value, cell.always)
            else:
                cells.write_cell(
                    format,
                    path,
                    cell,
                    value=value,
                    default=default,
                    job=job,
                    out=out,
                )
        except BadInput as error:
            refused.append(str(error))
    if placement := format.cells.get(PLACEMENT):
        cells.function_named(placement.writer)(job, out)
    script += _numerics(format, job, out)
    if job.layout.dp_replicate > 1 and not job.layout.zero:
        refused.append(
            "dp_replicate shards over part of dp, and zero 0 shards nothing"
        )
    if (whole := int(length(job, job.layout))) != job.T:
        refused.append(
            f"seq {job.T:,} has no whole chunks for cp {job.layout.cp:g}, and this plan pads it,"
            f" which no file says: plan with --seq {whole}"
        )
    refused += _idle(job.layout)
    if refused:
        raise BadInput("; ".join(dict.fromkeys(refused)))
    out = {format.names.get(key, key): value for key, value in out.items()}
    demand_same(format, job, out)
    return out, script


def _own(job: Job, path: str) -> Any:
    """What the framework of a plan does by itself, where the plan names one."""
    table, _, name = path.partition(".")
    asked = table == "software" and job.framework
    return getattr(job.profile, name) if asked else None


def _numerics(format: Format, job: Job, out: dict[str, Any]) -> list[str]:
    """Writes rotary positions and epsilons over those of a model that the format names; what it has
    no key for is said.
    """
    model = format.cells.get("model")
    if model is None or model.script:
        return []
    script = []
    for name, (value, theirs) in numerics(job, format).items():
        cell = format.cells.get(f"model.{name}")
        if cell is None or cell.writer:
            script.append(f"{name} = {worded(value)} ({theirs})")
        else:
            out[cell.keys[0]] = value
    return script


def value_for_author(path: str, value: Any) -> str:
    """A value as the training script's author reads it."""
    if path == "job.tokens":
        return f"{value:,.0f} tokens"
    return str(getattr(value, "name", value))


def fields(job: Job, whole: bool) -> Iterator[tuple[str, Any, Any]]:
    """(path, value, default) of everything a run is made of; whole: of the model field by field."""
    if whole:
        for f in dataclasses.fields(Model):
            if f.name not in ABOUT:
                yield (
                    f"model.{f.name}",
                    getattr(job.model, f.name),
                    _default(f),
                )
    else:
        yield "model", job.model, None
    for f in dataclasses.fields(Layout):
        if f.name != "placement":
            alone = getattr(ONE_DEVICE, f.name)
            yield f"layout.{f.name}", getattr(job.layout, f.name), alone
    for f in dataclasses.fields(Job):
        if f.name not in (*APART, *NOT_RUN):
            value = job.T if f.name == "seq" else getattr(job, f.name)
            yield f"job.{f.name}", value, _default(f)
    for f in dataclasses.fields(Software):
        yield f"software.{f.name}", getattr(job.software, f.name), None


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.default is not dataclasses.MISSING:
        return f.default
    return (
        None
        if f.default_factory is dataclasses.MISSING
        else f.default_factory()
    )


def demand_default(
    format: Format, path: str, value: Any, default: Any
) -> None:
    """BadInput for a value that the format has no key for."""
    if value == default:
        return
    if path.startswith("model.") and not isinstance(value, (str, int, float)):
        raise BadInput(
            f"{format.title} has no key for {path}, which this model has"
        )
    if default is None:
        raise BadInput(
            f"{format.title} has no key for {path} = {value_in_words(path, value)}:"
            f" leave {path.rpartition('.')[2]} out, and it is the framework's own"
        )
    raise cells.value_refusal(
        format, path, value, others=[str(default).lower()], why=""
    )


def _idle(l: Layout) -> Iterator[str]:
    """Fields of a pipeline that say something of chunks which are not there."""
    if l.pp == 1 and l.interleave > 1:
        yield f"interleave {l.interleave} needs pp > 1"
    if l.interleave == 1 and l.microbatch_group:
        yield f"microbatch_group {l.microbatch_group} needs interleave > 1"


def _framework(format: Format, job: Job) -> list[str]:
    """A plan for one framework is not written for another."""
    if job.framework is None or job.framework.name in format.frameworks:
        return []
    mine = job.framework.name
    return [
        f"this plan is for {mine}, and {format.title} runs {', '.join(format.frameworks)}:"
        f" predict it with --framework {format.frameworks[0]} first"
    ]


def _placed(format: Format, job: Job) -> list[str]:
    """Ranks lie as the launcher of one of the format's frameworks lays them out; where none says
    how, in the order tp, cp, dp, pp, nearest first. In some formats pp may lie nearer than dp.
    """
    layout, on = job.layout, job.cluster
    mesh = [by for by in map(framework, format.frameworks) if by.mesh]
    if any(lays_out(by, launched(job, layout), on) for by in mesh):
        return []
    orders = [AXES, *([STAGES_NEARER] if PLACEMENT in format.cells else [])]
    if not mesh and any(lies(layout, on.sizes, order) for order in orders):
        return []
    other = ", or dp behind pp" if len(orders) > 1 else ""
    how = (
        f"fills each slice of {on.sizes[0]}"
        if mesh
        else f"lays ranks out with tp nearest, then cp, dp and pp{other}"
    )
    return [
        f"{format.title} {how}, and this placement is another one: leave placement out of the"
        " layout, and predict it so"
    ]
