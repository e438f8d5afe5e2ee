"""Loading a sharded checkpoint on four ranks under another layout: the bytes that each rank hashes,
as Linux counts them (`rchar` of /proc/self/io), those that it copies out of the mapped files, and its
CPU seconds.

    python benchmarks/load.py [--gb 6] [-o benchmarks/load.md]

Four ranks that shard everything (dp 4, ZeRO-3) write a checkpoint of a model with as many parameters
as make up the size, 12 bytes each; four with tp 2 and pp 2 load it. It lies in a temporary folder and
is removed. Memory: 16 bytes a parameter.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from meshwright import Job, Layout, Model, cluster
from meshwright.describe.training import Settings
from meshwright.train import checkpoint
from meshwright.train.initial import local
from meshwright.train.launch import fork_ranks
from meshwright.train.loop import Trainer
from meshwright.train.storage import Beating

WRITTEN = Layout(dp=4, zero=3, microbatch=1)
READ = Layout(tp=2, pp=2, dp=1, microbatch=1)
BYTES = 12
"""Of a parameter in a checkpoint: weight and two moments in fp32."""
SPARE = 1.2
"""Of the size of the checkpoint: room that the disk must have."""
HIDDEN, FFN, VOCAB = 1536, 4096, 16384


def job(gigabytes: float, layout: Layout) -> Job:
    """Of a model whose checkpoint has about this size."""
    ends = 2 * VOCAB * HIDDEN
    of_layer = 4 * HIDDEN**2 + 3 * HIDDEN * FFN
    layers = max(2, round((gigabytes * 1e9 / BYTES - ends) / of_layer))
    m = Model(
        "load", layers, HIDDEN, 12, FFN, VOCAB, 128, kv_heads=12, dropout=False
    )
    return Job(m, cluster("4xh100-sxm"), 4, layout, precision="fp32")


def write(wanted: Job, folder: Path, device: torch.device) -> None:
    """A checkpoint of weights that no other tensor has: its rank and number."""
    trainer = Trainer(wanted, settings(folder), device, fresh=False)
    for number, p in enumerate(trainer.parameters().values()):
        local(p.detach()).fill_(number + dist.get_rank() / 4)
    checkpoint.save(trainer, folder, 1, 1)


def read(wanted: Job, folder: Path, device: torch.device) -> None:
    """Load it and leave what that took."""
    trainer = Trainer(wanted, settings(folder), device, fresh=False)
    trainer.state(next(iter(trainer.parameters().values())))
    before, cpu = bytes_read(), time.process_time()
    needed = counted(
        partial(checkpoint.load, trainer, folder / "step-00000001")
    )
    row = {
        "rank": dist.get_rank(),
        "share": sum(
            local(x).nbytes for x in checkpoint.state(trainer).values()
        ),
        "rows": needed,
        "all": bytes_read() - before,
        "cpu_s": time.process_time() - cpu,
    }
    (folder / f"{row['rank']}.json").write_text(json.dumps(row))


def counted(load: Any) -> int:
    """Bytes that this rank copies out of chunks."""
    whole = Beating.resolve_tensor
    read = []

    def noted(self: Beating, item: Any) -> Any:
        target = whole(self, item)
        read.append(target.nbytes)
        return target

    Beating.resolve_tensor = noted  # type: ignore[method-assign]
    try:
        load()
    finally:
        Beating.resolve_tensor = whole  # type: ignore[method-assign]
    return sum(read)


def bytes_read() -> int:
    """By this process, from files and pipes."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def settings(folder: Path) -> Settings:
    """Of both."""
    return Settings(output=str(folder), async_save=False)


def main() -> int:
    """Write, load, print; 1 if bytes were hashed or copied twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=6.0)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    room = shutil.disk_usage(tempfile.gettempdir()).free
    if room < SPARE * given.gb * 1e9:
        raise SystemExit(f"{room / 1e9:.1f} GB are free: too few")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fork_ranks(partial(write, job(given.gb, WRITTEN), folder), 4)
        files = list((folder / "step-00000001").glob("*.safetensors"))
        size = sum(file.stat().st_size for file in files)
        fork_ranks(partial(read, job(given.gb, READ), folder), 4)
        rows = [
            json.loads((folder / f"{rank}.json").read_text())
            for rank in range(4)
        ]
    text = table(rows, size)
    print(text)
    if given.output:
        given.output.write_text(text, "utf-8")
    return int(sum(row["rows"] + row["all"] for row in rows) > 3 * size)


def table(rows: list[dict[str, Any]], size: int) -> str:
    """The file that is written."""
    lines = [
        "# Loading a checkpoint under another layout",
        "",
        "Written by `benchmarks/load.py` (which says what is measured):"
        f" {size / 1e9:.2f} GB in 4 files of dp 4 ZeRO-3, loaded by tp 2 pp 2.",
        "",
        "| rank | its state, GB | compared with hashes, GB | copied, GB |"
        " copied / state | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['rank']} | {row['share'] / 1e9:.3f} | {row['all'] / 1e9:.3f}"
            f" | {row['rows'] / 1e9:.3f} | {row['rows'] / row['share']:.2f}"
            f" | {row['cpu_s']:.1f} |"
        )
    every = sum(row["all"] for row in rows)
    need = sum(row["rows"] for row in rows)
    lines += [
        "",
        f"In all: compared {every / size:.3f} times the checkpoint,"
        f" copied {need / size:.3f} times.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
