"""The command line in tests: a line as it is typed, how it ends, and what it says."""

from __future__ import annotations

import json
import shlex
from typing import Any, NamedTuple

import pytest

from meshwright.cli import main as cli

SCRIPT = """torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \\
 --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --swiglu \\
 --seq-length 2048 --max-position-embeddings 2048 --bf16 \\
 --micro-batch-size 1 --global-batch-size 64 --vocab-size 32000 \\
 --tensor-model-parallel-size 2 --use-distributed-optimizer \\
 --untie-embeddings-and-output-weights --normalization RMSNorm
"""
"""A run of Megatron, as people start it."""
YES, NO, REFUSED = 0, 1, 2
"""How a command ends."""


class Output(NamedTuple):
    """What a command wrote."""

    out: str
    err: str


class Shell:
    """Runs lines in this process; a line that ends otherwise than expected fails the test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *line: object, ends: int = YES) -> Output:
        """Of a line in one part or more; words that hold blanks are in quotes."""
        code, said = self.run(*line)
        assert code == ends, f"{line} ended with {code}: {said}"
        return said

    def run(self, *line: object) -> tuple[int, Output]:
        """However it ends."""
        self.capsys.readouterr()
        code = cli.run(shlex.split(" ".join(map(str, line))))
        return code, Output(*self.capsys.readouterr())

    def answer(self, *line: object) -> str:
        """What it prints, be the answer yes or no."""
        code, said = self.run(*line)
        assert code in (YES, NO), said
        return said.out

    def json(self, *line: object, ends: int = YES) -> Any:
        """What it prints with --json."""
        return json.loads(self(*line, "--json", ends=ends).out)

    def refused(self, *line: object) -> str:
        """The one sentence with which it is refused."""
        out, err = self(*line, ends=REFUSED)
        assert (out, err.count("\n")) == ("", 1), out + err
        assert err.startswith("meshwright: ")
        return err
