"""An order of a pipeline drawn: when each pass of each rank ends, and how long ranks idle."""

from __future__ import annotations

from .pp import order

UNITS = {"F": 1, "B": 2}
"""Of time."""


def replay(p: int, m: int, v: int) -> dict[tuple[str, int, int], int]:
    """When each pass (kind, stage, microbatch) of that order ends."""
    orders = [order(rank, p, m, v) for rank in range(p)]
    end: dict[tuple[str, int, int], int] = {}
    clock = [0] * p
    while any(orders):
        for rank, actions in enumerate(orders):
            while actions:
                kind, chunk, i = actions[0]
                stage = chunk * p + rank
                needs = ("F", stage - 1, i)
                if kind == "B":
                    last = stage == p * v - 1
                    needs = ("F", stage, i) if last else ("B", stage + 1, i)
                if needs[1] >= 0 and needs not in end:
                    break
                clock[rank] = max(clock[rank], end.get(needs, 0))
                clock[rank] += UNITS[kind]
                end[kind, stage, i] = clock[rank]
                del actions[0]
    return end


def pp_idle(p: int, m: int, v: int) -> float:
    """The bubble of that order."""
    return max(replay(p, m, v).values()) / (3 * m * v) - 1


def picture(p: int, m: int, v: int) -> str:
    """A line a rank, four characters a unit of time, dots where it idles; chunks have letters."""
    end = replay(p, m, v)
    lines = [["  . "] * max(end.values()) for _ in range(p)]
    for (kind, stage, i), after in end.items():
        chunk, rank = divmod(stage, p)
        word = f" {kind}{i}" + "abcdefgh"[chunk] * (v > 1)
        first = after - UNITS[kind]
        lines[rank][first:after] = [f"{word:4}", "----"][: UNITS[kind]]
    return "\n".join(
        f"rank {rank} {''.join(line)}".rstrip()
        for rank, line in enumerate(lines)
    )
