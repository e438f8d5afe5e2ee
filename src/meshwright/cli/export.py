"""The verb `export`: a job, or the weights of a run, in the words of another tool."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..errors import BadInput, command, unknown
from .command import JSON, Answer, Shown, output, show_answer, verb, word

if TYPE_CHECKING:
    from ..describe.job import Job
    from ..formats.bridge.launch import Place
    from ..formats.bridge.table import Format
    from ..formats.sbatch import Slurm
    from ..formats.torchrun import Launch

OWN_TRAINER = (
    "this script starts meshwright train; for another program give --starts, such as --starts"
    " megatron"
)
BATCH = ("sbatch", "jobset", "skypilot")
"""Files of a cluster, which start another tool's program, or ours."""
OURS = (*BATCH, "torchrun", "safetensors", "chakra")
THEIRS = (
    "megatron",
    "megatron-bridge",
    "torchtitan",
    "torchtitan-toml",
    "deepspeed",
    "accelerate",
    "axolotl",
    "maxtext",
    "nanotron",
    "gpt-neox",
)
"""Those of catalog/bridges.toml, which takes too long to read for the help of every verb."""
FORMATS = (*OURS, *THEIRS)
STARTS = (*BATCH, "torchrun", *THEIRS)
"""Those that start a job."""
TAKEN_BY = {
    "partition": ("sbatch",),
    "account": ("sbatch",),
    "time": ("sbatch",),
    "container": BATCH,
    "starts": BATCH,
    "per-node": STARTS,
    "restarts": STARTS,
    "device": STARTS,
    "base": THEIRS,
    "numbers": ("safetensors",),
}
"""Option -> the formats that have it."""
CALLED = {
    "slurm": "sbatch",
    "huggingface": "safetensors",
    "hf": "safetensors",
    "nemo": "megatron-bridge",
    "megatron-lm": "megatron",
    "kubernetes": "jobset",
    "k8s": "jobset",
    "sky": "skypilot",
    "astra-sim": "chakra",
    "et": "chakra",
}
"""What people call a format -> its name."""
JobFile = Annotated[
    str,
    Parameter(
        help=(
            "A JOB.toml with a layout, such as plan -o writes; for safetensors the folder of a run,"
            " or of a checkpoint."
        )
    ),
]
To = Annotated[str, word(f"{', '.join(FORMATS)}.", "NAME")]
PerNode = Annotated[
    int | None,
    word(
        "Ranks of one node; default: the GPUs of a server of the network.", "N"
    ),
]
Restarts = Annotated[
    int | None,
    word(
        "How often ranks are restarted after a failure; default: 3.",
        "N",
    ),
]
Partition = Annotated[str | None, word("Of Slurm.", "NAME")]
Account = Annotated[str | None, word("Of Slurm.", "NAME")]
Time = Annotated[
    str | None, word("Limit of one start in Slurm, such as 24:00:00.", "TIME")
]
Device = Annotated[
    str | None,
    word("cpu or cuda; default: what the chips of the plan are.", "DEVICE"),
]
Starts = Annotated[
    str | None,
    word(
        f"Whose program a batch script starts: meshwright, or {', '.join(THEIRS)}; default: that"
        " of the plan's framework, if it names one.",
        "NAME",
    ),
]
Numbers = Annotated[
    str | None, word("Of weights: fp32 (default) or bf16.", "NAME")
]
Base = Annotated[
    str | None,
    word(
        "Your own file in that format: the plan is written into it, and every other key stays.",
        "FILE",
    ),
]
Container = Annotated[
    str | None,
    word("Image in which ranks run (of Slurm: with pyxis).", "IMAGE"),
]


@verb()
def export(
    job: JobFile,
    /,
    *,
    to: To,
    per_node: PerNode = None,
    restarts: Restarts = None,
    device: Device = None,
    partition: Partition = None,
    account: Account = None,
    time: Time = None,
    container: Container = None,
    starts: Starts = None,
    base: Base = None,
    numbers: Numbers = None,
    json: Annotated[bool, JSON["json"]] = False,
    output: Annotated[str | None, output("the text")] = None,
) -> int:
    """Write a job as the file of another tool (megatron, torchtitan, ...), as what starts it
    (sbatch, jobset, skypilot, or the torchrun command of each node), its step as a trace for
    ASTRA-sim (chakra), or the weights of a run (safetensors).

    Example: meshwright export plan.toml --to sbatch --partition gpu --time 24:00:00 -o plan.sbatch
    """
    from ..formats import cluster_file, sbatch, torchrun
    from ..report import console, files

    _known(to)
    demand_taken(
        to,
        {
            "partition": partition,
            "account": account,
            "time": time,
            "container": container,
            "starts": starts,
            "per-node": per_node,
            "restarts": restarts,
            "device": device,
            "base": base,
            "numbers": numbers,
        },
    )
    if to == "safetensors":
        made = weights(job, output, numbers or "fp32")
        return show_answer("export", made, Shown(json))
    if to == "chakra":
        return show_answer("export", traces(job, output), Shown(json))
    slurm = None
    if to == "sbatch":
        slurm = sbatch.Slurm(partition, account, time, container)
    onto: dict[str, object] = {}
    if their := program(job, to, starts):
        if restarts is not None or device is not None:
            raise BadInput(
                "--restarts and --device are for meshwright train, not for "
                + their
            )
        text, place, described, onto = foreign_job(
            job, their, per_node=per_node, to=to, slurm=slurm, base=base
        )
        nodes, ranks = place.nodes, place.ranks
    else:
        launch = launch_of_file(job, per_node, restarts, device)
        nodes, ranks, described = launch.nodes, launch.ranks, launch.job
        if slurm:
            text = sbatch.write_sbatch(launch, slurm)
        elif to in BATCH:
            text = cluster_file.of_trainer(launch)
        else:
            text = torchrun.write_torchrun(launch) + "\n"
    if wrap := cluster_file.FILES.get(to):
        text = wrap(
            cluster_file.NodeScript(
                text,
                name=described.model.name,
                nodes=nodes,
                gpus=ranks,
                chip=described.cluster.chip,
                image=container,
            )
        )
    if output:
        count = f": {nodes * ranks:,} ranks on {nodes:,} nodes"
        files.write(output, text, count)
    if to in BATCH and not their and starts is None:
        print(OWN_TRAINER, file=sys.stderr)
    if json:
        data = {
            "to": to,
            "nodes": nodes,
            "ranks_per_node": ranks,
            "text": text,
            **onto,
        }
        console.show_json(console.envelope("export", data))
    elif not output:
        sys.stdout.write(text)
    return 0


def _known(to: str) -> None:
    """BadInput for a format that we do not write."""
    if to.lower() in CALLED:
        raise BadInput(
            f"--to {to!r} is not known; did you mean {CALLED[to.lower()]}?"
        )
    if to not in FORMATS:
        raise unknown("--to", to, FORMATS)


def demand_taken(to: str, given: Mapping[str, object]) -> None:
    """BadInput for an option that the format does not have."""
    for name, value in given.items():
        if value is None or to in TAKEN_BY[name]:
            continue
        which = {
            STARTS: "what starts a job",
            THEIRS: "a file of another tool",
        }.get(TAKEN_BY[name], f"--to {' or '.join(TAKEN_BY[name])}")
        raise BadInput(f"--{name} is for {which}: {to} has no such option")


def program(path: str, to: str, starts: str | None) -> str | None:
    """The format of another tool's program that is started; None for our trainer."""
    if to in THEIRS:
        return to
    if starts is not None:
        if starts not in (*THEIRS, "meshwright"):
            raise unknown("--starts", starts, (*THEIRS, "meshwright"))
        return starts if starts in THEIRS else None
    if to not in BATCH or not path.endswith(".toml"):
        return None
    from ..formats import parse_toml, read_text
    from ..formats.bridge import table

    said = parse_toml(read_text(path), path).get("job", {})
    named = said.get("framework") if isinstance(said, dict) else None
    if named == table.UNNAMED:
        return None
    its = table.written().items()
    return next((n for n, f in its if named in f.frameworks), None)


def foreign_job(
    path: str,
    name: str,
    per_node: int | None,
    to: str,
    slurm: Slurm | None,
    base: str | None,
) -> tuple[str, Place, Job, dict[str, object]]:
    """(text, where it runs, the job, what became of the base) of a job in the words of another
    tool's program.

    to: what the file is for; base: a file that the job is written into.
    """
    from ..formats import bridge, flags
    from ..formats.bridge import table
    from ..formats.export import launch_place as placed

    if not path.endswith(".toml") and not bridge.foreign(path):
        raise BadInput(
            f"export needs a JOB.toml, not {path[:60]!r}: {command('plan ... -o plan.toml')}"
            " writes one"
        )
    notes: list[str] = []
    job = flags.read_flags(path, {}, notes)
    onto: dict[str, object] = {}
    place = placed(job, name, per_node, slurm, batch=to in BATCH)
    if base is None:
        place = replace(place, path=path)
        text, script = bridge.write(job, name, place)
    else:
        made = bridge.write_onto(job, name, place, base)
        text, script, onto = made.text, made.script, made.to_dict()
        notes += made.sentences(base)
    if (
        job.framework is None
        and job.usual_framework not in table.get(name).frameworks
    ):
        notes.append(
            f"this plan is for {job.usual_framework}: predict it with --framework"
            f" {running_framework(job, table.get(name))} to see what it takes there"
        )
    if left := [name for name in job.train if name != "device"]:
        notes.append(
            f"the table [train] is for {command('train')} and not written here: {', '.join(left)}"
        )
    if script:
        notes.append(f"the training script says itself: {', '.join(script)}")
    for note in notes:
        print(note, file=sys.stderr)
    return text, place, job, onto


def running_framework(job: Job, format: Format) -> str:
    """The framework of the format that runs the job's layout; the first, if none does."""
    from ..describe.choices import refusal
    from ..describe.framework import framework

    able = (
        name
        for name in format.frameworks
        if not any(refusal(framework(name).choices, job.layout, name))
    )
    return next(able, format.frameworks[0])


def weights(run: str, output: str | None, numbers: str) -> Answer:
    """Write model.safetensors and config.json, which Hugging Face transformers loads, into the
    folder `output`.
    """
    from ..units import show
    from .train import need_torch

    if not output:
        raise BadInput(
            "export --to safetensors needs the folder of the weights: -o FOLDER"
        )
    need_torch()
    from ..train.export import export_checkpoint

    try:
        result = export_checkpoint(Path(run), Path(output), numbers=numbers)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{output[:200]} cannot be written: {getattr(error, 'strerror', None) or error}"
        ) from None
    sentence = (
        f"{result['tensors']} tensors ({show(result['weights_bytes'], 'B')}) of"
        f" {result['checkpoint']} as {result['family']} in {result['output']}, {result['files']}"
        f" file{'s' * (result['files'] > 1)} and config.json"
    )
    return Answer(lambda: {"to": "safetensors", **result}, lambda: sentence)


def traces(path: str, output: str | None) -> Answer:
    """Write a Chakra trace of each rank into the folder `output`."""
    from ..formats import flags
    from ..formats.chakra_step import write_chakra
    from ..prediction.prediction import predict

    if not output:
        raise BadInput(
            "export --to chakra needs the folder of the traces: -o FOLDER"
        )
    notes: list[str] = []
    prediction = predict(flags.read_flags(path, {}, notes))
    step = f"{output}/step"
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
        ranks, nodes = write_chakra(prediction, step)
    except OSError as error:
        raise BadInput(
            f"{output[:200]} cannot be written: {error.strerror}"
        ) from None
    for note in notes:
        print(note, file=sys.stderr)
    data = {"to": "chakra", "ranks": ranks, "nodes": nodes, "workload": step}
    sentence = (
        f"{nodes:,} nodes of {ranks:,} ranks in {output}: AstraSim_Analytical_Congestion_Aware"
        f" --workload-configuration={step} --comm-group-configuration={step}.groups.json ..."
    )
    return Answer(lambda: data, lambda: sentence)


def launch_of_file(
    path: str, per_node: int | None, restarts: int | None, device: str | None
) -> Launch:
    """How the job in a file is started; BadInput for what `train` would refuse, and for what cannot
    be started so.
    """
    from ..describe.training import settings
    from ..formats import parse_toml, read_text, torchrun
    from ..formats.toml import load_job
    from ..prediction.prediction import predict
    from ..train import rules

    if not path.endswith(".toml"):
        raise BadInput(
            f"export needs a JOB.toml, not {path[:60]!r}: {command('plan ... -o plan.toml')}"
            " writes one"
        )
    tables = parse_toml(read_text(path), path)
    if "layout" not in tables:
        raise BadInput(
            f"{path} has no table [layout]: {command('plan')} {path} -o plan.toml writes the best"
            " one"
        )
    restarts = torchrun.Launch.restarts if restarts is None else restarts
    if restarts < 0:
        raise BadInput(f"--restarts must be at least 0, not {restarts}")
    notes: list[str] = []
    job = load_job(path, notes=notes).filled
    how = settings(job.train)
    given = how.device if "device" in job.train else None
    device = torchrun.launch_device(job, given, device)
    how = replace(how, device=device)
    rules.demand(job, how, int(job.layout.chips))
    rules.demand_chip(predict(job), how)
    nodes, ranks = torchrun.nodes(job, per_node)
    if device == "cpu":
        notes.append(
            "these ranks run on CPUs, as --device or [train] device asks"
        )
    for note in notes:
        print(note, file=sys.stderr)
    return torchrun.Launch(
        job,
        path,
        nodes,
        ranks=ranks,
        device=device,
        threads=how.threads,
        restarts=restarts,
    )
