"""accelerate's YAML: processes, FSDP, the sizes of its mesh. Model and batch are the script's."""

from __future__ import annotations

from ..torchrun import PORT
from . import launch
from .shared import (
    Out,
)
from .table import get
from .tool import Tool

NAME = "accelerate"


class Accelerate(Tool):
    """accelerate's YAML."""

    named = False

    def head(self, at: launch.Place) -> Out:
        """What its launcher is told beside the plan."""
        return {"num_machines": at.nodes}

    def starter(self, at: launch.Place) -> str:
        """The words that start the ranks of a node."""
        words = f"accelerate launch --config_file {get(NAME).config}"
        if at.nodes == 1:
            return words
        # this rendezvous numbers the nodes itself: --machine_rank is demanded, and not read
        meets = f'--main_process_ip "{at.head}" --main_process_port {PORT}'
        return f"{words} --rdzv_backend c10d --machine_rank 0 {meets}"
