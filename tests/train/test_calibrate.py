"""`calibrate` at its smallest: it measures, goes on after an interruption, and writes a file that
`predict` takes.
"""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import profile  # noqa: E402

from by_hand import GPT2_CONFIG  # noqa: E402
from meshwright.cli.main import main  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.formats.machine import load_machine  # noqa: E402
from meshwright.measure import engine, kernels, run  # noqa: E402
from meshwright.units import KIB  # noqa: E402
from shell import Shell  # noqa: E402


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    least = [
        replace(k, quick=tuple((p[0], p[-1]) for p in k.quick))
        for k in kernels.KERNELS
        if k.name in ("matmul", "norm", "add", "embedding")
    ]
    monkeypatch.setattr(kernels, "KERNELS", tuple(least))
    monkeypatch.setattr(engine, "QUICK_BYTES", (2**10, 2**14))
    monkeypatch.setattr(
        engine, "KINDS", ("all_gather", "reduce_scatter", "send")
    )
    monkeypatch.setattr(run, "QUICK_FLAT", (2**8, 2**12))
    monkeypatch.setattr(engine, "LAYERS", (2, 3))
    monkeypatch.setattr(engine, "MICROBATCHES", (1, 2))
    only = {1: {"plain": Layout(dp=1)}, 2: {"zero1": Layout(dp=2, zero=1)}}
    monkeypatch.setattr(engine, "engine_layouts", lambda ranks: only[ranks])
    monkeypatch.setattr(run.Wanted, "least_s", 0.002)


def test_it_writes_a_machine_that_predict_takes(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    out, real, seen = tmp_path / "machine.toml", run.on_ranks, []

    def interrupted(work: Any, ranks: int, device: str) -> Any:
        seen.append(ranks)
        if len(seen) == 5:
            raise KeyboardInterrupt
        return real(work, ranks, device)

    monkeypatch.setattr(run, "on_ranks", interrupted)
    words = ["calibrate", "--quick", "--ranks", "2", "-o", str(out)]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 130
    # settings and four items
    assert (
        not out.exists()
        and len(json.loads(out.with_name("machine.toml.part").read_text()))
        == 1 + 4
    )
    shell(*words)
    total = len(list(run.items(run.Wanted("cpu", ("fp32",), (2,), True))))
    assert (
        len(seen) == 5 + total - 4
        and not out.with_name("machine.toml.part").exists()
    )
    machine = load_machine(out)
    assert set(machine.engine) == {"plain", "zero1"}
    table = machine.chip.kernels["fp32/matmul forward"]
    assert (
        table.seconds[-1] > table.seconds[0] > 0
        and table.residual is not None
        and table.sources["*"]["date"]
    )
    axes = [
        machine.chip.kernels[f"fp32/embedding {of}"].axes
        for of in ("forward", "backward")
    ]
    assert axes == [("tokens", "width"), ("tokens", "width", "rows")]
    # a process with torch and no context of a GPU, forked from this one, whose memory it has too
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    assert 5e7 < machine.chip.context_bytes < here + 5e8
    assert (
        machine.network.dims[0]
        .collectives["all_gather/cpu"]
        .fit.startswith("2 ranks: ")
    )
    (tmp_path / "config.json").write_text(GPT2_CONFIG)
    words = [
        "predict",
        str(tmp_path / "config.json"),
        "--on",
        f"2x{out}",
        "--batch",
        "4seq",
        "--precision",
        "fp32",
        "--assumptions",
        "pytorch",
        "--zero",
        "1",
    ]
    found = shell.json(*words)
    assert found["cpu_time_s"]["compute"] > 0 and any(
        "measured range" in note for note in found["notes"]
    )


@pytest.mark.parametrize(
    "words",
    [
        "--device tpu",
        "--ranks 2,²",
        "--ranks 0",
        "-o no/such/folder/m.toml",
        "--precision fp12",
        "--ranks two",
        "-o machine.json",
        "--read x.txt --on cray",
    ],
)
def test_mistakes_are_sentences(words: str, shell: Shell) -> None:
    assert shell.refused(f"calibrate {words}").startswith("meshwright: ")


def test_a_real_trace_is_read(tmp_path: Path) -> None:
    from meshwright.formats import kineto

    x = torch.randn(128, 128)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profile:
        for _ in range(3):
            torch.nn.functional.gelu(x @ x)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    found = kineto.load_kernels(tmp_path / "trace.json")
    assert found["gemm"].calls >= 3 and found["elementwise"].calls >= 3


def test_the_norm_is_measured_as_the_trainer_makes_it() -> None:
    """Without copies of the gradients in fp64, which would take twice as long as the update."""
    a, b = (
        [torch.ones(1000, requires_grad=grad) for _ in "ab"]
        for grad in (True, False)
    )
    step = kernels.adamw(a, b)
    with profile(record_shapes=True) as found:
        step()
    copies = [
        e.input_shapes for e in found.events() if e.name == "aten::_to_copy"
    ]
    assert copies and [1000] not in [shapes[0] for shapes in copies]
