"""Metrics for TensorBoard, by its own writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import BadInput

FOLDER = "tensorboard"
TAGS = {
    "loss": "loss/training",
    "eval_loss": "loss/held out",
    "gradient_norm": "optimizer/gradient norm",
    "lr": "optimizer/learning rate",
    "skipped": "optimizer/updates skipped",
    "sequences": "data/sequences a step",
    "tokens_per_s": "speed/tokens per s",
    "mfu": "speed/MFU",
    "step_time_s": "speed/step s",
    "data_s": "speed/data s",
    "checkpoint_s": "speed/checkpoint s",
    "fullest_rank_bytes": "memory/fullest rank bytes",
}
"""Column of metrics.jsonl -> where TensorBoard shows it."""


def writer() -> Any:
    """TensorBoard's class; BadInput where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            "train.tensorboard needs TensorBoard: pip install tensorboard"
        ) from None
    return SummaryWriter


class EventFile:
    """The events of a run in its folder tensorboard/."""

    def __init__(self, run: Path, first: int) -> None:
        """first: steps the run has done; what an earlier attempt wrote after them is hidden."""
        self.events = writer()(str(run / FOLDER), purge_step=first + 1)

    def write(self, row: Mapping[str, Any]) -> None:
        """One step."""
        for name, tag in TAGS.items():
            if row.get(name) is not None:
                self.events.add_scalar(tag, row[name], row["step"])

    def close(self) -> None:
        """The end of the run."""
        self.events.close()
