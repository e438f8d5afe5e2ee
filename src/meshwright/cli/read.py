"""The verb `read`: what a file of another tool says, as a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import BadInput
from .command import Json, output, verb

TheirFile = Annotated[
    str,
    Parameter(
        help="A launch script or configuration of Megatron-LM, Megatron-Bridge or NeMo, torchtitan,"
        " DeepSpeed, accelerate, axolotl, MaxText or nanotron."
    ),
]


@verb("model", "cluster", "job", "software", "layout")
def read(
    file: TheirFile,
    /,
    *,
    given: Mapping[str, str],
    json: Json = False,
    output: Annotated[str | None, output("the job as .toml")] = None,
) -> int:
    """Read a file of another tool: the job it describes, and every key that is not in it.

    Example: meshwright read train.sh --on 64xh100-sxm -o job.toml
    """
    from ..formats import bridge, flags
    from ..formats.toml import dump_job
    from ..report import console
    from ..report.read import report, to_dict

    if output and not output.endswith(".toml"):
        raise BadInput(
            f"-o {output[:80]} must end in .toml: the job is written there"
        )
    found = bridge.read(file, chips=flags.chips_of(given))
    full = {
        **given,
        **({"on": found.on} if found.on and "on" not in given else {}),
    }
    needs = flags.missing(found, full)
    notes: list[str] = []
    job = None if needs else flags.read_flags(file, given, notes)
    if output:
        if job is None:
            raise BadInput(f"{file[:80]} {needs[0]}")
        Path(output).write_text(dump_job(job), "utf-8")
    data = console.envelope("read", to_dict(found, job, needs))
    console.show_json(data) if json else console.show(
        report(found, file, job, needs, given, output)
    )
    return 0
