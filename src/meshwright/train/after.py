"""What a run leaves for its reader when it ends: a picture of its losses, and a sample of text."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import torch

from ..formats.run_folder import metrics
from .generate import generate
from .launch import fork_ranks
from .plan import RunPlan

PICTURE = "loss.svg"
SAMPLE = "sample.txt"


def leave(plan: RunPlan, alone: bool) -> None:
    """Write them into the folder of the run. alone: this process forks its ranks, so it must not
    compute itself.
    """
    picture(plan)
    if plan.settings.sample and plan.settings.data == "synthetic":
        print("no sample: data synthetic is no text", file=sys.stderr)
    elif plan.settings.sample:
        write = partial(sample, plan)
        if alone:
            fork_ranks(write, 1, threads=plan.settings.threads)
        else:
            write(torch.device("cpu"))


def picture(plan: RunPlan) -> None:
    """The losses; where matplotlib is not installed, a line that says so."""
    rows = metrics(plan.folder / "metrics.jsonl")
    if not any(row["loss"] is not None for row in rows):
        return
    try:
        from ..report.losses import losses
        from ..report.plots import image
    except ImportError:
        print(
            f"no picture of the losses: pip install 'meshwright[plot]' draws {PICTURE}",
            file=sys.stderr,
        )
        return
    figure = losses(rows, plan.job.model.name)
    (plan.folder / PICTURE).write_bytes(image(figure, ".svg"))


def sample(plan: RunPlan, device: torch.device) -> None:
    """Text from the newest checkpoint."""
    count = plan.settings.sample or 0
    text = generate(plan.folder, "", count, temperature=0.8)
    (plan.folder / SAMPLE).write_text(text["text"], "utf-8")


def sample_text(folder: Path) -> str | None:
    """The sample that was written."""
    path = folder / SAMPLE
    return path.read_text("utf-8") if path.exists() else None
