"""A straggler and slow links put into real runs: `compare` names them, and tokens/s see them. What
is asserted are names and lower bounds, which sleeping ranks keep on however busy a machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from jobs import LLAMA, SEQ, job  # noqa: E402
from small_runs import described  # noqa: E402
from torch.distributed.pipelining import schedules  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.cli import main as cli  # noqa: E402
from meshwright.compare import Comparison, compare  # noqa: E402
from meshwright.formats.run_folder import read_run  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402

LATE = 0.15
"""Seconds: far above what a pass of these models or a busy machine takes."""
BATCH = 4


def ran(words: str, layers: int = 3, **settings: Any) -> Comparison:
    """A small run of two or three steps, compared."""
    model = replace(LLAMA, layers=layers, hidden=32, ffn=96)
    said = {"data": "synthetic", "save_every": "none", "steps": 2, "record": 1}
    named = described(job(model, cut(words), BATCH), **said | settings)
    assert cli.run(["train", named]) == 0
    return compare(read_run("run"))


def slept(found: Comparison, times: int) -> None:
    """Each step sleeps so many times `LATE`, and tokens/s count it; a rank may be ahead of the one
    that counts by less than a step.
    """
    rows = found.run.metrics
    spent = sum(BATCH * SEQ / row["tokens_per_s"] for row in rows)
    assert spent > (len(rows) - 1) * times * LATE


pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_rank_that_sleeps_in_its_forward_passes_is_a_straggler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It computes no more than the other: CPU seconds cannot tell."""
    forward = Decoder.forward

    def late(self: Decoder, *args: Any, **options: Any) -> Any:
        time.sleep(LATE if dist.get_rank() == 1 else 0.0)
        return forward(self, *args, **options)

    monkeypatch.setattr(Decoder, "forward", late)
    found = ran("dp2")
    slept(found, BATCH // 2)
    named = [line for line in found.why() if "straggler" in line]
    assert len(named) == 1 and named[0].startswith("rank 1 on "), named


def test_a_slow_link_between_two_of_three_stages_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the last stage is sent comes late."""
    wait: Callable[[Any], None] = schedules._wait_batch_p2p

    def late(work: Any) -> None:
        wait(work)
        time.sleep(2 * LATE if dist.get_rank() == 2 and work else 0.0)

    monkeypatch.setattr(schedules, "_wait_batch_p2p", late)
    found = ran("pp3")
    slept(found, BATCH)
    named = [line for line in found.why() if line.startswith("the link")]
    assert len(named) == 1, named
    assert "between rank 1 on " in named[0] and "and rank 2 on " in named[0]
    assert not any("straggler" in line for line in found.why())


class Late(TorchDispatchMode):
    """Messages of tp among ranks 2 and 3 arrive late."""

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if op is torch.ops._c10d_functional.wait_tensor.default:
            time.sleep(LATE if dist.get_rank() in (2, 3) else 0.0)
        return op(*args, **(kwargs or {}))


def test_a_slow_link_inside_one_of_two_groups_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = Trainer.__init__

    def late(self: Trainer, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        Late().__enter__()  # for the whole run, and so below the profile's

    monkeypatch.setattr(Trainer, "__init__", late)
    found = ran("tp2 dp2 microbatch2", layers=1, steps=3, profile=1)
    slept(found, 2 * 4)
    named = [line for line in found.why() if line.startswith("the link")]
    assert len(named) == 1 and "among ranks 2, 3 on " in named[0], named
    assert "messages of tp" in named[0]
