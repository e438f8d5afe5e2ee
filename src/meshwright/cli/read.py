"""The verb `read`: what a file of another tool says, as a job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import BadInput, command
from .command import JOB_TABLES, Answer, verb

OURS = {"model_type", "cluster", "layout"}
"""Keys of a config.json of Hugging Face, and tables of a JOB.toml."""
TheirFile = Annotated[
    str,
    Parameter(
        help="A launch script, configuration or log of Megatron-LM, Megatron-Bridge, NeMo,"
        " NeMo AutoModel, Primus, torchtitan, DeepSpeed, accelerate, axolotl, MaxText, Hugging"
        " Face Trainer, LLaMA-Factory, ms-swift, ms-swift (Megatron), nanotron, GPT-NeoX,"
        " torchtune, LitGPT, OLMo, OLMo-core or Levanter."
    ),
]


@verb(
    *JOB_TABLES,
    writes="the job as .toml",
)
def read(
    file: TheirFile,
    /,
    *,
    given: Mapping[str, str],
    output: str | None,
) -> Answer:
    """Read a file of another tool: the job it describes, and every key that is not in it.

    Example: meshwright read train.sh --on 64xh100-sxm -o job.toml
    """
    from ..formats import bridge, flags, resolve
    from ..formats.toml import dump_job
    from ..report.read import reading_card, reading_report, reading_to_dict

    if not bridge.foreign(file):
        demand_theirs(file)
    if named := given.get("model_"):
        resolve.model(named)  # says that there is none
    reading = flags.read_foreign(file, given)
    full = {
        **given,
        **({"on": reading.on} if reading.on and "on" not in given else {}),
    }
    reading = replace(reading, notes=flags.notes_on(reading, given))
    needs = flags.missing(reading, full)
    notes: list[str] = []
    job = None if needs else flags.read_flags(file, given, notes)
    if output and job is None:
        raise BadInput(f"{file[:80]} {needs[0]}")
    return Answer(
        lambda: reading_to_dict(reading, job, needs),
        lambda: reading_card(
            reading, file, job, needs=needs, given=given, output=output
        ),
        lambda: reading_report(reading, job),
        files={".toml": lambda: dump_job(job)} if job else None,
    )


def demand_theirs(file: str) -> None:
    """BadInput for what needs no reading: a config.json of a model, a JOB.toml."""
    from ..formats import parse_json, parse_toml, read_text

    kind = Path(file[:4096]).suffix.lower()
    if kind not in (".json", ".toml"):
        return
    parse = parse_json if kind == ".json" else parse_toml
    keys = parse(read_text(file), file)
    if not isinstance(keys, Mapping) or not OURS & {*keys}:
        return
    model = "model_type" in keys
    what = "a model" if model else "a job of this project"
    how = " --on 64xh100-sxm --batch 4Mi" if model else ""
    plan = command(f"plan {shlex.quote(file)}{how}")
    raise BadInput(
        f"{file[:80]} describes {what}, which needs no reading: {plan}"
    )
