"""What every rank of a running program sends (gloo, one step) is what `program` counts: kind, bytes
and number, axis by axis.
"""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import (  # noqa: E402
    DEEPSEEK,
    GPT,
    LLAMA,
    LLAMA6,
    MIXTRAL,
    SETTINGS,
    each_rank,
    job,
    share,
    tokens,
)

from layouts import cut  # noqa: E402
from meshwright.describe.model import Model  # noqa: E402
from meshwright.program.messages import CHOICE, Sent, sent_by_rank  # noqa: E402
from meshwright.program.operations import carried_out  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.traffic import TrafficCounter, axes_of  # noqa: E402


def measured(model: Model, words: str) -> list[tuple[int, Sent]]:
    """For each rank: place on the pp axis, and what the second step's gradients send."""
    layout = cut(words)

    def work(device: torch.device) -> tuple[int, Sent]:
        trainer = Trainer(job(model, layout), SETTINGS, device)
        # stages agree on shapes in the first one
        trainer.step(0, *share(trainer, tokens(0)))
        with TrafficCounter(axes_of(trainer.mesh)) as traffic:
            trainer.accumulate(*share(trainer, tokens(1)))
        return trainer.mesh.index("pp"), traffic.sent

    return each_rank(work, layout.chips)


def rows(model: Model, sent: Sent) -> Counter[int]:
    """Bytes of rows on their way to experts or back -> how often."""
    choice = model.moe.experts * CHOICE if model.moe else 0
    return Counter(
        {
            size: n
            for (kind, _, size), n in sent.items()
            if kind == "all_to_all" and size != choice
        }
    )


def as_counted(model: Model, words: str) -> None:
    """All is, but how many rows come to a rank: it sends k copies of each of its tokens, forward and
    backward, and sends back what it got, as much as counted over all ranks together.
    """
    wanted = carried_out(job(model, cut(words)))
    total = 0
    for stage, found in measured(model, words):
        counted = sent_by_rank(wanted, stage)
        came, went = rows(model, found), rows(model, counted)
        for sent in (found, counted):
            for size in {*came, *went}:
                sent.pop(("all_to_all", "ep", size), None)
        assert found == counted
        assert came.total() == went.total()
        assert all(2 * came[size] >= n for size, n in went.items())
        total += sum(size * (came[size] - went[size]) for size in came | went)
    assert total == 0


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (GPT, "tp2 microbatch4"),
        (LLAMA, "tp2 microbatch4 whole"),
        (LLAMA, "cp2 microbatch4"),
        (LLAMA, "tp2 cp2 microbatch8"),
        (LLAMA, "tp2 pp2 microbatch2 interleave2 interleaved"),
        (LLAMA, "tp2 pp2 microbatch4 whole"),
        *((LLAMA6, f"dp2 zero{zero} microbatch2") for zero in range(4)),
        # gradients of stages are scattered after each of four microbatches
        (LLAMA6, "pp2 dp2 zero2 microbatch1"),
        (DEEPSEEK, "dp4 ep2 microbatch1"),
        (DEEPSEEK, "dp4 ep2 zero3 microbatch1"),
        *(
            pytest.param(DEEPSEEK, words, marks=pytest.mark.slow)
            for words in (
                "dp4 ep2 zero1 microbatch1",
                "dp4 ep2 zero2 microbatch1",
            )
        ),
        (MIXTRAL, "dp2 ep2 microbatch2"),
        (DEEPSEEK, "tp2 ep2 microbatch4"),
        (MIXTRAL, "pp2 dp2 ep2 microbatch2 interleave2 interleaved"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_running_program_sends_what_is_counted(
    model: Model, words: str
) -> None:
    as_counted(model, words)


def test_a_tied_matrix_is_exchanged_once_in_the_group_of_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the first and the last of four; no group is made for pairs of ranks."""

    def refused(*args: object, **options: object) -> None:
        raise AssertionError("a group beside those of the mesh")

    monkeypatch.setattr(dist, "new_group", refused)
    as_counted(GPT, "pp4 microbatch2")
