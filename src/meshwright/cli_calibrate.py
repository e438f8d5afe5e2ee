"""The verb `calibrate`: measure this machine, or read measurements of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .cli_train import need_torch
from .command import Json, verb, word
from .errors import BadInput

Device = Annotated[str, word("cpu (gloo) or cuda (NCCL).", "DEVICE")]
Precisions = Annotated[str, word("Precisions of the kernels: fp32, bf16, fp16, or several with commas.", "LIST")]
Ranks = Annotated[str, word("Sizes of groups for collectives and parallelism.", "LIST")]
Quick = Annotated[bool, word("Fewer and smaller sizes, for a first look.")]
File = Annotated[str, Parameter(name=["--output", "-o"], help="The machine file, for --on 4x./machine.toml.")]


@verb()
def calibrate(
    *, device: Device = "cpu", precision: Precisions = "fp32", ranks: Ranks = "2,4", quick: Quick = False, output: File = "machine.toml",
    json: Json = False,
) -> int:  # fmt: skip
    """Measure this machine: kernels, collectives, and what PyTorch's engine costs beside them.

    Example: meshwright calibrate -o machine.toml; meshwright predict llama3-8b --on 4x./machine.toml --batch 8seq --assumptions pytorch
    """
    from .formats.machine import dump_machine
    from .report import console
    from .report.machine import report, to_dict

    need_torch()
    from .train.measure.run import calibrate as measure
    from .train.measure.run import part_of, save

    to = Path(output[:4096])
    if to.suffix != ".toml":
        raise BadInput(f"-o {output[:80]!r} must end in .toml")
    machine = measure(wanted(device, precision, ranks, quick), to)
    save(to, dump_machine(machine, "Measured by meshwright calibrate; use it as --on 4x./" + to.name))
    part_of(to).unlink(missing_ok=True)
    console.show_json(console.envelope("calibrate", to_dict(machine, str(to)))) if json else console.show(
        *report(machine, str(to))
    )
    return 0


def wanted(device: str, precision: str, ranks: str, quick: bool) -> Any:
    """What is to be measured; BadInput for what cannot be."""
    import torch

    from .train.measure.run import DTYPES, Wanted

    if device not in ("cpu", "cuda"):
        raise BadInput(f"--device must be cpu or cuda, not {device[:40]!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: PyTorch finds no GPU on this machine")
    precisions = tuple(name.strip() for name in precision.split(","))
    if wrong := [name for name in precisions if name not in DTYPES]:
        raise BadInput(f"--precision {wrong[0][:40]!r} is not measured: take {', '.join(DTYPES)}")
    sizes = sorted({int(n) for n in ranks.split(",") if n.strip().isdigit()} - {1})
    if not all(n.strip().isdigit() for n in ranks.split(",")) or sizes and sizes[-1] > 64:
        raise BadInput(f"--ranks must be group sizes such as 2,4 (1 for none), at most 64, not {ranks[:40]!r}")
    have = torch.cuda.device_count() if device == "cuda" else 64
    return Wanted(device, precisions, tuple(n for n in sizes if n <= have), quick)
