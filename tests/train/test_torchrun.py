"""Under torchrun: the line that `export` writes starts two nodes (two agents on this machine);
killed or stopped ranks start again.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")
from meshwright.cli import main as cli  # noqa: E402
from meshwright.formats.toml_writer import dumps_toml  # noqa: E402
from meshwright.train.run import metrics  # noqa: E402

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.toml"
pytestmark = pytest.mark.slow


def job(output: str, timeout: float) -> str:
    """A small job whose run is `output`."""
    table = tomllib.loads(QUICKSTART.read_text("utf-8"))
    table["model"] |= {"layers": 2, "hidden": 32, "ffn": 96, "seq": 32}
    table["train"] |= {
        "steps": 60,
        "data": "synthetic",
        "eval_every": 0,
        "sample": 0,
        "save_every": 5,
        "output": output,
        "timeout": timeout,
    }
    Path(f"{output}.toml").write_text(dumps_toml(table), "utf-8")
    return f"{output}.toml"


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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = re.sub(
        "torchrun",
        f"exec {sys.executable} -m torch.distributed.run",
        capsys.readouterr().out,
        count=1,
    )
    line = line.replace("29500", str(port)).replace(
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
