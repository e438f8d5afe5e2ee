"""The trainer's steps on a CUDA device that is not there: PyTorch's fake tensors and fake process
group, one rank in one process, and a device that does nothing (fake_cuda.cpp).

    python tests/train/fake_cuda.py [LAYOUT ...] [-o benchmarks/fake_cuda.md]

Of a steady step (the second) in bf16 it counts the calls that make the host wait for the GPU,
tensors that are on the host and should not be, and collectives, beside those that
`program.messages` counts. The layouts are those of test_semantics.py. Exit code 1 if a row is not
as it should be. Needs g++. What it cannot see: values, time, streams, kernels.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADED_FIRST = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")


def make_device() -> None:
    """Put the device in place. PyTorch asks for one when it is imported, so before that."""
    assert "torch" not in sys.modules
    spec = find_spec("torch")
    assert spec and spec.submodule_search_locations
    torch = Path(spec.submodule_search_locations[0])
    for name in LOADED_FIRST:
        ctypes.CDLL(str(torch / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "fake_cuda.so"
        words = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC"]
        where = [f"-I{torch / 'include'}", f"-L{torch / 'lib'}"]
        source = str(HERE / "fake_cuda.cpp")
        of = [source, "-o", str(made), "-lc10", "-ltorch_cpu"]
        subprocess.run([*words, *where, *of], check=True)
        ctypes.CDLL(str(made))


@dataclass(frozen=True)
class Found:
    """A steady step of one rank."""

    layout: str
    rank: int
    waits: dict[str, int]
    """Call that waits for the device -> how often."""
    reads: int
    """Counts of tokens of experts that are read on the host."""
    allowed_reads: int
    """One a layer with experts and pass."""
    on_host: dict[str, int]
    """Operation on a tensor that should not be on the host -> how often."""
    collectives: int
    unlike: list[str]
    """Collectives that are not as counted; of dense models."""

    @property
    def right(self) -> bool:
        """All of it."""
        wrong = self.waits or self.on_host or self.unlike
        return not wrong and self.reads <= self.allowed_reads


def table(rows: list[Found]) -> str:
    """In Markdown."""
    head = [
        "layout",
        "rank",
        "waits for the GPU",
        "reads of experts (allowed)",
        "tensors on the host",
        "collectives",
        "as counted",
    ]
    cells = [
        [
            row.layout,
            str(row.rank),
            str(sum(row.waits.values())),
            f"{row.reads} ({row.allowed_reads})",
            str(sum(row.on_host.values())),
            str(row.collectives),
            "-" if row.allowed_reads else "no" if row.unlike else "yes",
        ]
        for row in rows
    ]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def main() -> int:
    """Run the layouts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layouts", nargs="*")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not shutil.which("g++"):
        parser.error("needs g++")
    make_device()
    import fake_cuda_step as steps

    warnings.simplefilter("ignore")
    named = given.layouts or steps.EVERY
    tasks = [(name, rank) for name in named for rank in steps.ranks(name)]
    # a process each: threads of PyTorch's engine keep what they knew of a process group
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        rows = pool.starmap(steps.steady, tasks, chunksize=1)
    if given.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print(table(rows))
    if given.output:
        said = (__doc__ or "").partition("\n\n    python")[0]
        given.output.write_text(
            f"# Steps on a GPU that is not there\n\n{said}\n\n"
            f"Written by `tests/train/fake_cuda.py`: a steady step in bf16.\n\n{table(rows)}",
            "utf-8",
        )
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]  # as pytest has them
    sys.exit(main())
