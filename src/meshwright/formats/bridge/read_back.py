"""What a writer made is read again, and is the plan that it was made of.

Keys that a format's own reader takes for another value of any field would start another run than
the one that was planned: a value that a writer does not know is refused here, whatever its field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from ...describe.batch import parse_batch
from ...describe.framework import Framework, framework
from ...describe.job import Job
from ...describe.layout import Layout
from ...describe.read import read
from ...describe.recompute import recompute, resolve
from ...describe.software import Software
from ...errors import BadInput
from ...layout.stages import stage_count, stage_layers
from ...schedule import get as schedule_named
from ..toml import thing_named
from .reading import FileKeys, understood
from .table import Format


def demand_same(
    format: Format,
    job: Job,
    keys: Mapping[str, Any],
) -> None:
    """BadInput for each field that the keys say otherwise than the job."""
    program = job.framework or framework(format.frameworks[0])
    back = _read(format, job, keys)
    planned, written = meant(job, program), meant(back, program)
    for f in fields(Software):
        # what software does by itself was planned for nobody; what kernel a norm is, the code of
        # the tool's model says
        if getattr(job.software, f.name) is None and (
            job.framework is None or f.name == "norm"
        ):
            del planned[f"software.{f.name}"]
    tells = {
        path: value for path, value in planned.items() if path in format.cells
    }
    wrong = [
        f"{format.title} cannot express {path} = {value}: what is written means {written[path]}"
        for path, value in tells.items()
        if value != written[path] and not format.cells[path].script
    ]
    if wrong:
        free = job.framework is None and any(" layout." in w for w in wrong)
        runs = f"; plan --framework {program.name} finds a layout that it runs"
        raise BadInput("; ".join(wrong) + (runs if free else ""))


def _read(
    format: Format,
    job: Job,
    keys: Mapping[str, Any],
) -> Job:
    """The job in the keys, on the plan's machine; a model that they leave out is the plan's."""
    seeds = {
        "layers": job.model.layers,
        **({"moe": {}} if job.model.moe else {}),
    }
    chips = int(job.layout.chips)
    said = FileKeys(dict(keys), chips, known={"model": seeds})
    file = understood(format, said)
    for key, why in file.left.items():
        path = next((p for p, c in format.cells.items() if key in c.keys), key)
        raise BadInput(
            f"{format.title} cannot express this {path}: {key}: {why}"
        )
    tables = file.tables
    given = dict(tables.get("job", {}))
    batch = given.pop("batch", f"{job.batch}seq")
    degrees = dict(tables.get("layout", {}))
    degrees.pop("placement", None)  # where ranks lie is asked in `writing`
    layout = read(Layout, degrees, "layout", thing_named).filling(chips)
    rest = {
        "seq": job.seq,
        **given,
        "batch": 1,
        "framework": job.framework,
        "model": job.model,
        "cluster": job.cluster,
        "layout": layout,
        "software": read(
            Software, tables.get("software", {}), "software", thing_named
        ),
    }
    back = read(Job, rest, "job", thing_named)
    count, _ = parse_batch(batch, back.T, back.cluster.chips)
    return replace(back, batch=count)


def meant(job: Job, program: Framework) -> dict[str, Any]:
    """Field -> what it comes to: what is not said is what the program does by itself."""
    l, software = job.layout, job.software
    alone = {f"layout.{f.name}": getattr(l, f.name) for f in fields(Layout)}
    del alone["layout.placement"]
    alone |= dict(_layout(job, program))
    for f in fields(Software):
        given = getattr(software, f.name)
        own = getattr(program, f.name)
        alone[f"software.{f.name}"] = own if given is None else given
    if job.precision.compute != "fp8":
        alone["software.float8"] = None
    kernel = job.attention_kernel
    return {
        **alone,
        "job.seq": job.T,
        "job.batch": job.batch,
        "job.precision": job.precision,
        "job.optimizer": replace(job.optimizer, name=""),
        "job.attention_kernel": program.attention
        if kernel == "framework"
        else kernel,
    }


def _layout(job: Job, program: Framework) -> Iterator[tuple[str, Any]]:
    """Fields of a layout that say the same in several words, or nothing where a degree is 1."""
    l = job.layout
    piped = l.pp > 1
    schedule = schedule_named(l.schedule)
    chosen = recompute(l.recompute)
    yield (
        "layout.recompute",
        f"{resolve(l.recompute, program.selective)}:{chosen.layers}",
    )
    yield "layout.schedule", l.schedule if piped else None
    yield "layout.interleave", schedule.chunks(l.interleave) if piped else 1
    yield "layout.microbatch_group", l.microbatch_group or l.pp
    stages = (
        stage_layers(job.model.layers, stage_count(l), l.stages)
        if piped
        else ()
    )
    yield "layout.stages", [len(stage) for stage in stages]
    if l.tp == 1:
        yield "layout.sequence_parallel", None
    if l.cp == 1:
        yield "layout.cp_exchange", None
