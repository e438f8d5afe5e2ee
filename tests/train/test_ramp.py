"""Batch ramp-up: which samples each step trains on, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from jobs import LLAMA, SEQ, SETTINGS, job  # noqa: E402
from small_runs import described  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.formats.run_folder import metrics  # noqa: E402
from meshwright.train import rules  # noqa: E402
from meshwright.train.data import batch_of, samples_before  # noqa: E402
from refusals import refusal  # noqa: E402
from shell import Shell  # noqa: E402

RAMP = replace(SETTINGS, ramp_batch=4, ramp_steps=4)


def test_a_batch_grows_by_whole_microbatches_of_all_replicas() -> None:
    """From 4 to 16 in 4 steps, 4 at a time: 4 + 3 step, rounded down."""
    wanted = job(LLAMA, cut("dp2 microbatch2"), 16)
    sizes = [batch_of(wanted, RAMP, step) for step in range(6)]
    assert sizes == [4, 4, 8, 12, 16, 16]
    firsts = [samples_before(wanted, RAMP, step) for step in range(7)]
    assert firsts == [0, 4, 8, 16, 28, 44, 60], (
        "no sample twice, none left out"
    )
    assert samples_before(wanted, SETTINGS, 5) == 80


@pytest.mark.parametrize(
    ("ramp", "why"),
    [
        ({"ramp_batch": 6}, "multiple of 4"),
        ({"ramp_batch": 16}, "less than the batch of 16"),
        ({"ramp_steps": None}, "belong together"),
    ],
)
def test_what_cannot_grow_is_a_sentence(
    ramp: dict[str, int | None], why: str
) -> None:
    wanted = job(LLAMA, cut("dp2 microbatch2"), 16)
    with refusal(why):
        rules.demand(wanted, replace(RAMP, **ramp))  # type: ignore[arg-type]


def test_each_size_must_run_under_the_layout() -> None:
    """1F1B over 4 stages wants 4 microbatches from the first step on."""
    wanted = job(LLAMA, cut("pp4 microbatch1"), 16)
    rules.demand(wanted, RAMP)
    with refusal("ramp_batch: at 2 sequences"):
        rules.demand(wanted, replace(RAMP, ramp_batch=2))


def test_a_run_ramps_up_under_any_layout(
    elsewhere: Path, shell: Shell
) -> None:
    """The same losses alone and over two stages. Tokens/s count what a step trained on."""
    said = {"ramp_batch": 4, "ramp_steps": 3, "data": "synthetic", "lr": 1e-3}
    one, two = (
        described(job(LLAMA, cut(words), 8), f"{words}.toml", steps=5, **said)
        for words in ("microbatch2", "pp2 microbatch2")
    )
    shell(f"train {one} -o one --steps 3")
    first = metrics(Path("one/metrics.jsonl"))
    assert [row["sequences"] for row in first] == [4, 4, 6]
    for row in first:
        took = row["sequences"] * SEQ / row["tokens_per_s"]
        assert took == pytest.approx(row["elapsed_s"])
    shell(f"train '{two}' -o two")
    again = metrics(Path("two/metrics.jsonl"))
    assert [row["sequences"] for row in again] == [4, 4, 6, 8, 8]
    got = [row["loss"] for row in again[:2]]
    assert got == pytest.approx([row["loss"] for row in first[:2]], abs=1e-5)


class Noted:
    """Sequences of 0 that note the numbers of the samples asked for."""

    def __init__(self, vocab: int, seq: int, seed: int) -> None:
        self.seq = seq

    def samples(self, first: int, count: int) -> np.ndarray:
        """[count, seq + 1]."""
        with Path("asked.txt").open("a") as asked:
            asked.writelines(f"{n}\n" for n in range(first, first + count))
        return np.zeros((count, self.seq + 1), np.int64)


def test_no_sample_is_lost_where_another_layout_goes_on_in_the_ramp(
    elsewhere: Path, shell: Shell
) -> None:
    """Its batches grow by other steps: 4, 7, 10 of one microbatch, 4, 4, 8, 12 of four."""
    said = {"steps": 5, "ramp_batch": 4, "ramp_steps": 4}
    for name, layout in {"one": "", "two": "dp2 zero1 microbatch2"}.items():
        described(job(LLAMA, cut(layout), 16), f"{name}.toml", **said)
    own = "--data test_ramp:Noted -o run"
    shell(f"train one.toml {own} --steps 2")
    shell(f"train two.toml {own} --resume")
    rows = metrics(Path("run/metrics.jsonl"))
    sizes = [row["sequences"] for row in rows]
    assert sizes == [4, 7, 8, 12, 16]
    asked = sorted(map(int, Path("asked.txt").read_text().split()))
    assert asked == [*range(sum(sizes))]
