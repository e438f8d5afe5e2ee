"""What `plan` proposes for the trainer's framework is what the trainer accepts, `export` starts and
`predict` says again.

The benchmark benchmarks/loop.py does the same for eight jobs and runs the program itself beside it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "loop.py"
NEAR = 0.05


def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_loop", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmark_loop"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "words",
    [
        "llama3.2-1b --on 24xa100-80 --batch 96seq",
        "llama3-70b --on 64xh100-sxm --batch 64seq --tp 8 --pp 4",
    ],
)
def test_a_plan_is_run_as_it_was_planned(words: str, tmp_path: Path) -> None:
    row = benchmark().loop(words, tmp_path / "plan.toml", oracle=False)
    assert (row["exit"], row["export"], row["predict"], row["differs"]) == (
        0,
        0,
        0,
        [],
    )
    assert 'framework = "meshwright"' in (tmp_path / "plan.toml").read_text(
        "utf-8"
    )
    assert abs(row["walk"]) <= NEAR


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "llama3-70b --on 8xh100-sxm --batch 64seq",
            "even the smallest layout does not fit: .*; the trainer holds .* GiB optimizer",
        ),
        (
            "llama2-13b --on 8xa100-40 --batch 4096seq --pp 8 --recompute none",
            "the trainer holds .* GiB activations",
        ),
        (
            "deepseek-v2-lite --on 8xh100-sxm --batch 64seq",
            "latent attention is not trained yet",
        ),
    ],
)
def test_what_the_trainer_cannot_hold_is_named(
    words: str, says: str, tmp_path: Path
) -> None:
    import re

    row = benchmark().loop(words, tmp_path / "plan.toml", oracle=False)
    assert row["exit"] == 1
    assert re.search(says, row["why"]), row["why"]


def test_the_benchmark_runs_what_is_named_and_says_how(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = benchmark()
    assert (bench.given([]).number, bench.given([]).no_oracle) == ([], False)
    assert bench.given(["8", "2", "--no-oracle"]).number == [8, 2]
    for words, code in ((["--help"], 0), (["9"], 2), (["--fast"], 2)):
        with pytest.raises(SystemExit) as end:
            bench.given(words)
        assert end.value.code == code
    assert "none of the jobs 1 to 8" in capsys.readouterr().err
