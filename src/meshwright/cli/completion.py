"""The verb `completion`: what a shell needs to complete commands and flags."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from ..errors import unknown
from .command import app, verb

SHELLS = ("bash", "zsh", "fish")
Shell = Annotated[str, Parameter(help=f"{', '.join(SHELLS)}.")]


@verb()
def completion(shell: Shell = "bash", /) -> int:
    """Print the completion script of a shell.

    Example: meshwright completion bash > ~/.local/share/bash-completion/completions/meshwright
    """
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    script = app.generate_completion(
        prog_name="meshwright",
        shell=shell,  # type: ignore[arg-type]
    )
    sys.stdout.write(script)
    return 0
