"""Orders against PyTorch's own listing of its schedules, and our CSV against its reader."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.formats import schedule_csv
from meshwright.schedule import SCHEDULES, get

pytest.importorskip("torch")
from torch.distributed.pipelining import schedules as torch_schedules  # noqa: E402
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops  # noqa: E402

pytestmark = pytest.mark.oracle
Listing = list[list[tuple[int, str, int]]]
ONE = [
    (p, m, 1)
    for p in (1, 2, 3, 4, 7, 8)
    for m in sorted({p, p + 1, 2 * p, 2 * p + 3, 5 * p})
]
ROUNDS = [
    (p, m, v)
    for p in (1, 2, 3, 4, 8)
    for m in range(1, 5 * p + 1)
    for v in (2, 3, 4)
    if m % max(m // p, 1)
    == 0  # else PyTorch refuses: rounds of one size, none shorter than p
] + [(16, 32, 8)]
FOLDED = [
    (p, m, 2)
    for p in (1, 2, 3, 4, 5, 8)
    for m in (1, p, 2 * p - 1, 2 * p, 2 * p + 3, 5 * p)
]
GRIDS = {
    "gpipe": ONE,
    "1f1b": ONE,
    "interleaved": ROUNDS,
    "interleaved-zb": ROUNDS,
    "zbv": FOLDED,
    "dualpipev": [(p, m, v) for p, m, v in FOLDED if m >= 2 * p],
}


def theirs(name: str, p: int, m: int, v: int) -> Listing:
    """PyTorch's computations as (stage, kind, microbatch); idle steps left out, pairs unfolded."""
    torch_name = get(name).torch_name
    assert torch_name is not None
    rows = get_schedule_ops(torch_name, p, m, num_stages_per_rank=v)
    return [
        [
            cell
            for action in row
            if action is not None
            for cell in computations(action)
        ]
        for row in rows
    ]


def computations(action: Any) -> Listing:
    parts = action.sub_actions or (action,)
    found = [
        (a.stage_index, a.computation_type.value, a.microbatch_index)
        for a in parts
    ]
    return [cell for cell in found if cell[1] in ("F", "B", "I", "W")]


def ours(name: str, p: int, m: int, v: int) -> Listing:
    place = get(name).placement(p, v)
    rows = enumerate(get(name).order(p, m, v))
    return [
        [(place(rank, a.chunk), a.kind, a.microbatch) for a in actions]
        for rank, actions in rows
    ]


def test_every_schedule_of_torch_is_compared() -> None:
    assert set(GRIDS) == {
        name for name, schedule in SCHEDULES.items() if schedule.torch_name
    }


@pytest.mark.parametrize("name", GRIDS)
def test_orders_are_torchs(name: str) -> None:
    for p, m, v in GRIDS[name]:
        expected = ours(name, p, m, v)
        if name == "1f1b":
            # torch 2.13 lists the forwards of the last stage as 1..m instead of 0..m-1 (the listing
            # only, not the execution); when this fails because they are right, delete these lines
            expected[-1] = [
                (stage, kind, k + (kind == "F"))
                for stage, kind, k in expected[-1]
            ]
        assert theirs(name, p, m, v) == expected, (p, m, v)


@pytest.mark.parametrize(
    "name", [name for name, s in SCHEDULES.items() if s.copies == 1]
)
def test_torch_reads_and_accepts_our_csv(name: str) -> None:
    schedule = get(name)
    p, m, v = 4, 8, 2 if schedule.chunks(7) == 7 else 1
    text = schedule_csv.write_order(
        schedule.order(p, m, v), schedule.placement(p, v)
    )
    parse = torch_schedules._Action.from_str
    actions = {
        rank: [parse(cell) for cell in line.split(",")]
        for rank, line in enumerate(text.splitlines())
    }
    stages = p * int(schedule.chunks(v))
    owner = torch_schedules._validate_schedule(actions, p, stages, m)
    assert owner == {
        schedule.stage_of(r, c, p, v): r
        for r in range(p)
        for c in range(int(schedule.chunks(v)))
    }


def test_breadth_first_is_torchs() -> None:
    """Which the trainer does not carry out yet."""
    for p, m, v in ((2, 3, 2), (4, 8, 2), (3, 2, 4)):
        rows = get_schedule_ops("LoopedBFS", p, m, num_stages_per_rank=v)
        found = [
            [cell for action in row if action for cell in computations(action)]
            for row in rows
        ]
        assert found == ours("breadth-first", p, m, v)
