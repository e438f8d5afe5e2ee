"""The peak of a long step is that of a shorter one, unless every microbatch is held."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from meshwright import Job, Layout
from meshwright.catalog import model
from meshwright.program import memory
from meshwright.program.operations import carried_out
from meshwright.schedule import SCHEDULES


@pytest.mark.parametrize(
    "name", [name for name, s in SCHEDULES.items() if s.copies == 1]
)
def test_more_rounds_change_no_peak(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders with all microbatches beside those with fewer, rank by rank, term by term."""
    rng = random.Random(name)
    for p in (2, 3, 4):
        v = rng.choice([2, 3]) if SCHEDULES[name].chunks(7) == 7 else 1
        v = max(v, int(SCHEDULES[name].chunks(1)))
        m = p * rng.randint(8, 11)
        layout = Layout(
            pp=p,
            dp=2,
            schedule=name,
            interleave=v,
            zero=rng.choice([0, 1, 2, 3]),
            recompute=rng.choice(["none", "full"]),
        )
        job = Job(
            replace(model("llama3-8b"), layers=12),
            f"{2 * p}xa100-80",
            2 * m,
            layout,
            framework="meshwright",
        )
        for rank in range(p):
            wanted = carried_out(job)
            short = memory.peak(wanted, rank)
            with monkeypatch.context() as whole:
                whole.setattr(memory, "shorten", lambda job: job)
                long = memory.peak(wanted, rank)
            assert dict(short.peak) == pytest.approx(dict(long.peak)), (
                p,
                rank,
            )
            assert sum(short.peak.values()) == pytest.approx(short.highest)


def test_an_order_of_many_microbatches_is_cut() -> None:
    layout = Layout(pp=2, dp=4)
    job = Job("llama3-8b", "8xa100-80", 4 * 1001, layout)
    assert memory.shorten(job).batch == 4 * (2 * memory.ROUNDS + 1)
    kept = replace(job, layout=replace(layout, schedule="gpipe"))
    assert memory.shorten(kept) is kept
