"""The verb `calibrate`: measure this machine, read measurements of another one, or take the scale
of an installation from a few steps.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ..errors import BadInput
from .command import Answer, verb, word
from .train import need_torch

Device = Annotated[str, word("cpu (gloo) or cuda (NCCL).", "DEVICE")]
Precisions = Annotated[
    str,
    word(
        "Precisions of the kernels: fp32, bf16, fp16, or several with commas.",
        "LIST",
    ),
]
Ranks = Annotated[
    str, word("Sizes of groups for collectives and parallelism.", "LIST")
]
Quick = Annotated[bool, word("Fewer and smaller sizes, for a first look.")]
Read = Annotated[
    tuple[str, ...],
    word(
        "Instead of measuring: output of nccl-tests, CSV of collectives, or traces of"
        " torch.profiler (.json).",
        "FILE",
    ),
]
On = Annotated[
    str | None,
    word(
        "With --read of collectives: the catalogue's chip or network they were measured on; with"
        " --from SCRIPT: its cluster, such as 256xh100.",
        "CHIP",
    ),
]
File = Annotated[
    str | None,
    Parameter(
        name=["--output", "-o"],
        help="The machine file, for --on 4x./machine.toml.",
    ),
]
Steps = Annotated[
    tuple[str, ...],
    Parameter(
        name="--from",
        help="Instead of measuring: three or more measured steps of your machines, as rows of runs"
        " (.json), a folder of a run, or a JOB.toml with --steps. The result is one scale factor.",
        negative=(),
    ),
]
Seconds = Annotated[
    str | None,
    word(
        "With --from JOB.toml: seconds of its steps, such as 1.21,1.23,1.20, or the log of its run"
        " (Megatron-LM, Megatron-Bridge, NeMo, torchtitan).",
        "LIST",
    ),
]
MACHINE = "machine.toml"

READERS: dict[str, Callable[[str], Iterable[Any]]] = {}
"""Suffix -> reader of a file of measured steps (`compare.installation.Step`). Packages beside this
one add theirs: `.json`, rows of runs, is that of meshwright-studies.
"""

MOST_RANKS = 64
"""Of one group on this machine."""


@verb()
def calibrate(
    *,
    device: Device = "cpu",
    precision: Precisions = "fp32",
    ranks: Ranks = "2,4",
    quick: Quick = False,
    read: Read = (),
    on: On = None,
    from_: Steps = (),
    steps: Seconds = None,
    output: File = None,
) -> Answer:
    """Measure this machine: kernels, collectives, and what PyTorch's engine costs beside them.

    Examples: meshwright calibrate -o machine.toml; meshwright predict llama3-8b --on
    4x./machine.toml --batch 8seq --assumptions pytorch
    meshwright calibrate --from job.toml --steps 1.21,1.23,1.20 -o ours.toml; meshwright plan
    llama3-8b --on 64x./ours.toml --batch 1Mi
    """
    from ..formats import write_whole
    from ..formats.machine import dump_machine
    from ..report import files
    from ..report.machine import machine_card, machine_report, machine_to_dict

    if read and from_:
        raise BadInput(
            "--read and --from cannot be combined: give one of them"
        )
    output = output or MACHINE
    if from_:
        return from_steps(from_, seconds=steps, on=on, output=output)
    if read:
        return from_files(read, on, output)
    need_torch()
    from ..measure.run import calibrate as measure
    from ..measure.run import part_of

    files.suffix(output, (".toml",))
    to = Path(output)
    machine = measure(measurements(device, precision, ranks, quick), to)
    write_whole(
        to,
        dump_machine(
            machine,
            "Measured by meshwright calibrate; use it as --on 4x./" + to.name,
        ),
    )
    part_of(to).unlink(missing_ok=True)
    return Answer(
        lambda: machine_to_dict(machine, str(to)),
        lambda: machine_card(machine, str(to)),
        lambda: machine_report(machine),
    )


def from_steps(
    paths: tuple[str, ...],
    seconds: str | None,
    on: str | None,
    output: str,
) -> Answer:
    """The scale of an installation, in a machine file."""
    from ..compare.installation import installation
    from ..compare.installation import steps as read
    from ..formats.bridge import foreign
    from ..formats.machine import dump_machine
    from ..report import files
    from ..report.machine import scale_card

    files.suffix(output, (".toml",))
    logged = bool(seconds) and Path(str(seconds)[:4096]).is_file()
    if logged and (len(paths) > 1 or Path(paths[0]).suffix in READERS):
        raise BadInput(
            "--steps LOG is of one job: --from job.toml --steps LOG"
        )
    times = (
        logged_steps(str(seconds), paths[0], on)
        if logged
        else positive_numbers(seconds)
    )
    measured = [
        step
        for path in paths
        for step in (
            READERS[Path(path).suffix](path)
            if Path(path).suffix in READERS and not foreign(path)
            else read(path, times, on)
        )
    ]
    machine = installation(measured)
    remark = f"Scaled by measured steps (meshwright calibrate --from); --on 64x./{output}"
    files.write(output, dump_machine(machine, remark))
    of = machine.installation
    ratios = [step.ratio for step in measured]
    data = {
        "scale": of.scale,
        "steps": of.steps,
        "ratios": ratios,
        "file": output,
    }
    chips = (on or "").partition("x")[0]
    same = f"{shlex.quote(paths[0])} --on {chips}x./{output}"
    other = f"llama3-8b --on 64x./{output} --batch 1Mi"
    later = f"plan {same if chips.isdigit() else other}"
    return Answer(
        lambda: data,
        lambda: scale_card(
            ratios, of.scale, of.steps, path=output, later=later
        ),
    )


def logged_steps(log: str, path: str, on: str | None) -> list[float]:
    """Seconds of the steady steps in the log of another tool's run; path: of its job, on: the
    cluster of a script.
    """
    from ..compare.logged import compare_log
    from ..formats import flags
    from ..formats.logs import read_log, steps_of
    from ..prediction.prediction import predict

    steps = steps_of(read_log(log), log[:80])
    job = flags.read_flags(path, {"on": on} if on else {}, [])
    return compare_log(log, steps, predict(job)).steady_s


def positive_numbers(text: str | None) -> list[float]:
    """Positive numbers of a list; BadInput for anything else."""
    try:
        measured = [
            float(word) for word in (text or "").split(",") if word.strip()
        ]
    except ValueError:
        measured = [-1.0]
    if not all(0 < number < 1e9 for number in measured):
        raise BadInput(
            f"--steps must be seconds such as 1.21,1.23,1.20, not {str(text)[:60]!r}"
        )
    return measured


def measurements(device: str, precision: str, ranks: str, quick: bool) -> Any:
    """What is to be measured; BadInput for what cannot be."""
    import torch

    from ..measure.run import DTYPES, Wanted

    if device not in ("cpu", "cuda"):
        raise BadInput(f"--device must be cpu or cuda, not {device[:40]!r}")
    # is_available would start CUDA before ranks are forked
    if device == "cuda" and not torch.cuda.device_count():
        raise BadInput("--device cuda: PyTorch finds no GPU on this machine")
    precisions = tuple(name.strip() for name in precision.split(","))
    if wrong := [name for name in precisions if name not in DTYPES]:
        raise BadInput(
            f"--precision {wrong[0][:40]!r} is not measured: take {', '.join(DTYPES)}"
        )
    sizes = sorted(
        {int(n) if n.strip().isdecimal() else 0 for n in ranks.split(",")}
    )
    if not 1 <= sizes[0] <= sizes[-1] <= MOST_RANKS:
        raise BadInput(
            f"--ranks must be group sizes such as 2,4 (1 for none), at most {MOST_RANKS}, not"
            f" {ranks[:40]!r}"
        )
    have = torch.cuda.device_count() if device == "cuda" else MOST_RANKS
    return Wanted(
        device, precisions, tuple(n for n in sizes if 1 < n <= have), quick
    )


def from_files(paths: tuple[str, ...], on: str | None, output: str) -> Answer:
    """Measurements of other machines: classes of kernels of traces, fits of collectives; with --on
    also a machine file of these.
    """
    from rich.console import Group

    from ..formats import kineto, nccl_tests
    from ..formats.machine import dump_machine
    from ..report import files
    from ..report.machine import (
        collectives,
        collectives_to_dict,
        kernels_table,
        kernels_to_dict,
    )

    names = [name.strip() for path in paths for name in path.split(",")]
    traces = [name for name in names if name.endswith((".json", ".json.gz"))]
    samples = [
        s
        for name in names
        if name not in traces
        for s in nccl_tests.load_samples(name)
    ]
    measured = {name: kineto.load_kernels(name) for name in traces}
    fits = nccl_tests.lines_by_group(samples)
    if on is not None:
        if not samples:
            raise BadInput(
                "--on needs collectives to read: output of nccl-tests, or a CSV"
            )
        files.suffix(output, (".toml",))
        machine = dump_machine(with_collectives(on, samples, names))
        files.write(output, machine)
    left = nccl_tests.untabled(samples)
    said = [f"use: --on 64x./{output} --assumptions pytorch"]
    if left:
        said += [
            f"note: {', '.join(left)} by formula: a table is of one node, or of one rank a node"
        ]
    return Answer(
        lambda: {
            "collectives": collectives_to_dict(fits),
            "kernels": kernels_to_dict(measured),
            "by_formula": left,
        },
        lambda: Group(
            *([collectives(fits)] if fits else []),
            *(kernels_table(name, of) for name, of in measured.items()),
            *said * (on is not None),
        ),
    )


def with_collectives(on: str, samples: list[Any], files: list[str]) -> Any:
    """One chip of the catalogue on its network, whose first dimension (in a node) and second (one
    rank a node) have these collectives.
    """
    from dataclasses import replace

    from ..formats import nccl_tests, resolve

    cluster = resolve.cluster(f"1x{on}")
    sources = {
        "*": {
            "source": "measured collectives: "
            + ", ".join(Path(name).name for name in files)[:400]
        }
    }
    dims = [
        replace(
            dim,
            collectives=nccl_tests.tables_by_ranks(samples, level, sources),
        )
        if level < 2
        else dim
        for level, dim in enumerate(cluster.network.dims)
    ]
    if not any(dim.collectives for dim in dims):
        raise BadInput(
            "no collective of a group inside a node, or of one rank a node, was measured at two"
            f" sizes, but of {', '.join(nccl_tests.untabled(samples)) or 'one size'}: a machine"
            " file keeps these"
        )
    network = replace(
        cluster.network,
        dims=tuple(dims),
        name=cluster.network.name + ", measured collectives",
    )
    return replace(cluster, network=network)
