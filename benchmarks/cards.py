"""Lines, columns and words of the first screen of every verb: in a pipe, on a terminal of 120
columns, and on one of 60.

    python benchmarks/cards.py          the table; exit code 1 if a card is larger than it may be
    python benchmarks/cards.py --read   the cards themselves, to read them aloud
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from meshwright.cli.main import main as run
from meshwright.report.card import MOST, NARROW, WIDE

SCRIPT = """torchrun --nproc_per_node 8 --nnodes 32 pretrain_gpt.py \\
 --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672 \\
 --group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm \\
 --seq-length 8192 --max-position-embeddings 8192 --vocab-size 128256 --bf16 \\
 --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 512 \\
 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 --sequence-parallel \\
 --use-distributed-optimizer --recompute-activations --train-iters 500000
"""
STEP = " iteration {i}/ 500 | elapsed time per iteration (ms): 2112{i}.0 | global batch size: 512 |\n"
QUESTIONS = (
    "plan llama3-70b --on 1024xh100 --batch 4Mi --tokens 15T --price h100=2.5",
    "plan llama-30b --on 512xh100 --batch 4M --tokens 2T --deadline 30d",
    "plan llama3-8b --on 64xh100 --batch 4M --tokens 1T --budget 90k",
    "plan deepseek-v3 --on 2048xh800 --batch 15360seq --seq 4096 --tokens 14.8T",
    "plan llama3-8b --on 1xrtx-4090 --batch 64seq",
    "plan llama3-8b --on 64xh100 --batch 64seq --tp 3",
    "sweep llama3-8b --on 64xh100 --batch 1Mi --over assumptions=realistic,lbl-2024",
    "predict llama3-70b --on 1024xh100 --batch 4Mi --tp 8 --pp 4 --interleave 4 --zero 1",
    "predict gpt3-6.7b --on 8xv100-32 --batch 64seq --tp 8 --precision fp16",
    "predict run.sh --on h100",
    "advise run.sh --on h100",
    "advise run.sh --on h100 --steps run.log",
    "sweep llama3-70b --on 64xh100 --batch 4Mi --over chips=64..1024",
    "sweep run.sh --on h100 --over interleave=1,2,5,10",
    "sweep llama3-8b --on 64xh100 --batch 1Mi --over chips=32,64 --over seq=4k,8k",
    "timeline gpt3-175b --on 64xa100-80 --batch 64seq --tp 8 --pp 8",
    "limits h100",
    "limits h100 --run 1e29",
    "limits v100 a100 h100",
    "roofline llama3-70b --on 8960xtpu-v5p --batch 4M",
    "read run.sh",
    "read run.sh --on h100",
    "compare run.log --job run.sh --on h100",
    "timeline plan.toml",
    "catalog chips",
    "catalog chips h100-sxm",
    "catalog models llama3-70b",
)
"""One of each verb that answers in a card at least; files are written before."""
PLAN = (
    "predict llama3-8b --on 16xh100 --batch 64seq --tp 2 --zero 1 -o plan.toml"
)
PATH = re.compile(r"^\s+\S+( \\)?$")
"""A line of one word, which no width can break."""


class Terminal(io.StringIO):
    """A text that calls itself a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Size(NamedTuple):
    """Lines, columns and words of a text."""

    lines: int
    columns: int
    words: int


def screen(question: str, columns: int | None) -> str:
    """What a question prints on a terminal of so many columns; None: into a pipe."""
    out = Terminal() if columns else io.StringIO()
    os.environ |= {"COLUMNS": str(columns or NARROW), "NO_COLOR": "1"}
    errors = io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        run(shlex.split(question))
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    if not text:
        raise SystemExit(f"{question}: {errors.getvalue()}")
    return text


def size(text: str) -> Size:
    """Of the lines that a width can break the widest."""
    lines = text.splitlines()
    wide = max(len(line) for line in lines if not PATH.match(line))
    return Size(len(lines), wide, len(text.split()))


def main() -> int:
    """Print a row a question; 1 if one is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", action="store_true", help="the cards")
    read = parser.parse_args().read
    os.chdir(tempfile.mkdtemp())
    Path("run.sh").write_text(SCRIPT)
    Path("run.log").write_text("".join(STEP.format(i=i) for i in range(1, 9)))
    screen(PLAN, None)
    large = 0
    print("lines columns words | of 120: lines columns | of 60 | question")
    for question in QUESTIONS:
        texts = [screen(question, columns) for columns in (None, 120, 60)]
        pipe, wide, narrow = map(size, texts)
        fine = (
            max(pipe.lines, wide.lines) <= MOST
            and pipe.columns <= NARROW
            and wide.columns <= WIDE
            and narrow.columns <= 60
        )
        large += not fine
        print(
            f"{pipe.lines:5} {pipe.columns:7} {pipe.words:5} | {wide.lines:13} {wide.columns:7} |"
            f" {narrow.lines:2} {narrow.columns:2} | {question}{'' if fine else '  TOO LARGE'}"
        )
        if read:
            print(texts[0])
    print(f"{len(QUESTIONS)} questions, {large} too large")
    return bool(large)


if __name__ == "__main__":
    sys.exit(main())
