"""A steady step on a GPU waits for nothing, has nothing on the host, and sends what is counted:
shown on a device that is not there (fake_cuda.py, which has the table of all layouts).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from fake_cuda_step import waits  # noqa: E402

SCRIPT = Path(__file__).with_name("fake_cuda.py")
pytestmark = pytest.mark.oracle


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_steady_steps() -> None:
    """Dense over tp and pp, ZeRO-3, and experts, whose counts are read once a layer and pass; and
    context parallelism as `gpu-check` runs it, in a precision that GPUs have a kernel for.
    """
    layouts = ["tp2 pp2", "dp2 zero3", "dp2 ep2", "gpu-check cp2"]
    told = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", *layouts],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert told.returncode == 0, told.stderr[-2000:]
    rows = {(r["layout"], r["rank"]): r for r in json.loads(told.stdout)}
    assert rows.keys() == {
        ("tp2 pp2", 0),
        ("tp2 pp2", 3),
        ("dp2 zero3", 0),
        ("dp2 ep2", 0),
        ("gpu-check cp2", 0),
    }
    for row in rows.values():
        assert row["waits"] == row["on_host"] == {} and row["unlike"] == []
        assert row["collectives"] > 20
    assert rows["dp2 ep2", 0]["reads"] == 4 * 2, "4 layers, 2 microbatches"


def test_what_waits() -> None:
    """As PyTorch's CUDA kernels do: reading a number, copies that are not queued, masks."""
    host, mask = torch.ones(3), torch.tensor([True, False, True])
    both, gpu = {"cpu", "cuda"}, {"cuda"}
    assert waits("_local_scalar_dense", gpu, (host,), {})
    assert not waits("_local_scalar_dense", {"cpu"}, (host,), {})
    assert waits("_to_copy", both, (host,), {})
    assert not waits("_to_copy", both, (host,), {"non_blocking": True})
    assert not waits("copy_", both, (host, host, True), {})
    assert waits("index", gpu, (host, [mask]), {})
    assert waits("index_put_", gpu, (host, [mask], host), {})
    assert not waits("index_put_", gpu, (host, [mask], host[0]), {})
    assert waits("repeat_interleave", gpu, (host,), {})
    assert not waits("repeat_interleave", gpu, (host,), {"output_size": 3})
