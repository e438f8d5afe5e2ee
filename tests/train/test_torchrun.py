"""Under torchrun: the line that `export` writes starts two nodes (two agents on this machine);
killed or stopped ranks start again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
from small_runs import free_port, small  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.train.run import metrics  # noqa: E402

pytestmark = pytest.mark.slow


def job(output: str, timeout: float) -> str:
    """A small job whose run is `output`."""
    return small(f"{output}.toml", steps=60, output=output, timeout=timeout)


def ranks(agents: list[subprocess.Popen[bytes]]) -> list[int]:
    """The processes that train."""
    children = [
        Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
        .read_text()
        .split()
        for agent in agents
    ]
    return [int(pid) for of_one in children for pid in of_one]


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_ranks_start_again(
    nodes: int,
    blow: signal.Signals,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        cli.run(
            [
                "export",
                job("run", 15.0),
                "--to",
                "torchrun",
                "--per-node",
                str(2 // nodes),
            ]
        )
        == 0
    )
    line = re.sub(
        "torchrun",
        f"exec {sys.executable} -m torch.distributed.run",
        capsys.readouterr().out,
        count=1,
    )
    line = line.replace("29500", free_port()).replace(
        "--shutdown-timeout=240", "--shutdown-timeout=3"
    )
    environment = {**os.environ, "HEAD": "localhost", "RUN": "test"}
    assignments, _, command = line.partition("exec ")
    words = ["bash", "-c", f"export {assignments}; exec {command}"]
    agents = [subprocess.Popen(words, env=environment) for _ in range(nodes)]
    try:
        while len(metrics(Path("run/metrics.jsonl"))) < 12:
            assert all(agent.poll() is None for agent in agents)
            time.sleep(0.02)
        os.kill(ranks(agents)[-1], blow)
        assert [agent.wait(200) for agent in agents] == [0] * nodes
    finally:
        for agent in agents:
            agent.kill()
    found = [
        (row["step"], row["loss"])
        for row in metrics(Path("run/metrics.jsonl"))
    ]
    assert cli.run(["train", job("whole", 60.0)]) == 0
    assert found == [
        (row["step"], row["loss"])
        for row in metrics(Path("whole/metrics.jsonl"))
    ]
