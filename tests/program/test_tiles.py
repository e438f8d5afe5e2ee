"""The tiles of attention: together they are what a mask would leave, each score once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from meshwright.program.tiles import Tile, chunks, tiles

Seen = np.ndarray


def masked(
    at: tuple[range, ...],
    T: int,
    window: int | None,
    causal: bool,
    begins: tuple[int, ...],
) -> Seen:
    """[queries, T], 1 where the definition lets a query look."""
    i = np.concatenate([np.array(part) for part in at])[:, None]
    j = np.arange(T)
    document = np.searchsorted(begins, np.arange(T), side="right")
    seen = document[i] == document[j]
    if causal:
        seen &= j <= i
        if window:
            seen &= j > i - window
    return seen.astype(int)


def painted(every: tuple[Tile, ...], rows: int, T: int) -> Seen:
    """How often the tiles compute each score that is not hidden inside them."""
    found = np.zeros((rows, T), int)
    for tile in every:
        n, m = (
            (end - start) // tile.folds
            for start, end in (tile.queries, tile.keys)
        )
        i, j = np.arange(n)[:, None], np.arange(m)
        inside = {"full": i >= 0, "causal": j <= i, "before": j > i}[
            tile.kind
        ] & (j >= 0)
        for fold in range(tile.folds):
            q, k = tile.queries[0] + fold * n, tile.keys[0] + fold * m
            found[q : q + n, k : k + m] += inside
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_score_is_computed_once(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        cp = rng.choice([1, 1, 2, 4])
        T = 8 * rng.randrange(2, 12)
        at, causal = chunks(T, cp, rng.randrange(cp)), rng.random() < 0.9
        window = rng.choice([None, *range(1, T)]) if causal else None
        begins = tuple(
            sorted(
                {
                    0,
                    *(
                        rng.randrange(1, T)
                        for _ in range(rng.choice([0, 0, 1, 4]))
                    ),
                }
            )
        )
        found = tiles(at, T, causal, window, begins)
        want = masked(at, T, window, causal, begins)
        assert np.array_equal(painted(found, T // cp, T), want), (
            at,
            T,
            window,
            begins,
        )


def test_chunks_of_all_ranks_are_the_sequence() -> None:
    for cp in (1, 2, 4, 8):
        parts = [
            i
            for rank in range(cp)
            for part in chunks(64, cp, rank)
            for i in part
        ]
        assert sorted(parts) == list(range(64))


def test_causal_work_is_skipped_and_shared_evenly() -> None:
    """Each of cp ranks computes (2 cp + 1) / (4 cp) of its T / cp x T scores."""
    for cp in (2, 4, 16):
        each = [
            sum(
                tile.scores
                for tile in tiles(chunks(2**14, cp, rank), 2**14, True, None)
            )
            for rank in range(cp)
        ]
        assert each == [(2 * cp + 1) / (4 * cp) * 2**28 / cp] * cp


def test_a_window_costs_two_windows_a_query() -> None:
    """65,536 tokens that see 4,096: kernels take an eighth of the scores, as two calls."""
    found = tiles((range(65536),), 65536, True, 4096)
    assert [(tile.kind, tile.folds) for tile in found] == [
        ("causal", 16),
        ("before", 15),
    ]
    assert sum(tile.scores for tile in found) < 65536**2 / 8
