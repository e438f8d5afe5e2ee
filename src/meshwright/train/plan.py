"""What a run was asked to do, after everything about it was checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..describe.job import Job
from ..prediction.prediction import Prediction
from . import checkpoint
from .settings import Settings


@dataclass(frozen=True)
class RunPlan:
    """What is run, and what was said before."""

    job: Job
    settings: Settings
    predicted: Prediction
    resume: Path | None
    """The checkpoint to go on from."""
    allowed: tuple[str, ...] = ()
    """What of `attempt.ORDER` a resumed run may change."""

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        return Path(self.settings.output)

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return (
            self.resume is not None
            and checkpoint.steps_of(self.resume) >= self.settings.steps
        )
