"""Stages of models whose layers are of several kinds, counted by hand: what each holds, how long it
takes, what it sends.

Layers of `by_hand`: A, full attention and a feed-forward, 1 s and 49,152 parameters; B, a
feed-forward alone, 2 x 32,768 x 128 FLOPs, 0.5 s; C, full attention alone, 2 x 16,384 x 128 + 4 x
128^2 x 64 FLOPs, 0.5 s too. The backward pass takes twice as long.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from by_hand import MODEL, SET, WEIGHTS, by_hand
from meshwright.catalog import model as catalogue
from meshwright.describe.assumptions import HidePass, MemoryCount
from meshwright.describe.holding import Holding
from meshwright.describe.layers import among, kinds, sorts, totals
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model, MoE
from meshwright.layout.stages import partition, schedule_of, stage_layers
from meshwright.prediction import Prediction
from meshwright.schedule import get as schedule_named
from meshwright.schedule.partition import LayerDeal, stage_table
from meshwright.step import shares

WORDS = {"A": "full+dense", "B": "none+dense", "C": "full+none"}
PARAMETERS = {"A": WEIGHTS, "B": 2 * 64 * 256, "C": 4 * 64 * 64}
FORWARD = {"A": 1.0, "B": 0.5, "C": 0.5}
ORDER = replace(SET.overlap, pp="interleaved")
BARE = MemoryCount(framework_bytes=0.0, capacity_share=1.0, holding=Holding())


def of(pattern: str) -> Model:
    """A model of these layers."""
    return replace(
        MODEL, layers=len(pattern), pattern=tuple(WORDS[k] for k in pattern)
    )


def predicted(pattern: str, microbatches: int, **fields: Any) -> Prediction:
    return by_hand(
        Layout(**{"dp": 1, **fields}),
        microbatches,
        model=of(pattern),
        overlap=ORDER,
    )


def test_a_pipeline_of_two_waits_for_the_stage_with_the_heavier_layers() -> (
    None
):
    """AA | BC, 4 microbatches: 2 s and 4 s against 1 s and 2 s. Rank 0: F F to 4 s; its first B
    waits for F and B behind it, to 5 s; from there it is never idle: 5 + 4 x 4 + 2 x 2 = 25 s."""
    found = predicted("AABC", 4, pp=2)
    assert found.step_time_s == pytest.approx(25.0)
    assert found.replayed_s == pytest.approx(25.0)
    assert found.time_s["compute"] == pytest.approx(4 * 6.0)
    other = predicted("BCAA", 4, pp=2)
    # down to the heavier one with the first, up from it with the last
    assert other.time_s["compute"] == pytest.approx(24.0)
    assert other.step_time_s == pytest.approx(1.0 + 24.0 + 2.0)


def test_states_and_activations_are_those_of_the_layers_held() -> None:
    found = predicted("AABC", 4, pp=2).memory_by_stage
    alike = {
        kind: predicted(4 * kind, 4, pp=2).memory_by_stage for kind in "ABC"
    }
    weights = 2  # bytes
    assert found["first"].weights == weights * 2 * PARAMETERS["A"]
    held = PARAMETERS["B"] + PARAMETERS["C"]
    assert found["last"].weights == weights * held
    assert found["first"].activations == alike["A"]["first"].activations
    half = (
        alike["B"]["last"].activations + alike["C"]["last"].activations
    ) / 2
    assert found["last"].activations == pytest.approx(half)


@pytest.mark.parametrize("pattern", ["BBBBAABB", "BBAABBBB"])
def test_the_slowest_may_be_any_rank_in_the_middle(pattern: str) -> None:
    """Two layers a stage: the rank with AA takes 2 s and 4 s, the others 1 s and 2 s. Down to it,
    its microbatches, and up again; and for each rank below it waits 3 s for the first to come back,
    in which it runs a forward of 2 s ahead."""
    found = predicted(pattern, 8, pp=4)
    rank = pattern.index("A") // 2
    assert found.time_s["compute"] == pytest.approx(8 * 6.0)
    assert found.step_time_s == pytest.approx(
        8 * 6.0 + rank * 3.0 + (3 - rank) * (3.0 - 2.0)
    )
    assert found.step_time_s == pytest.approx(found.replayed_s)


def test_the_fullest_may_be_any_rank_in_the_middle() -> None:
    """1F1B on four ranks keeps 4, 3, 2 and 1 microbatches: the third keeps two of AA."""
    found = predicted("BBBBAABB", 8, pp=4).memory_by_stage
    alike = predicted("AAAAAAAA", 8, pp=4).memory_by_stage["first"]
    light = predicted("BBBBBBBB", 8, pp=4).memory_by_stage["first"]
    assert set(found) == {"first", "second", "rank 2", "last"}
    assert found["rank 2"].activations == alike.activations * 2 / 4
    assert found["rank 2"].weights == alike.weights
    assert found["second"].activations == light.activations * 3 / 4
    fullest = predicted("BBBBAABB", 8, pp=4).memory_use
    assert fullest == max(found.values(), key=lambda use: use.total)


def test_stages_given_one_by_one_hold_what_they_are_given() -> None:
    """ABB | C | BB | A, each its own layers."""
    found = predicted("ABBCBBA", 8, pp=4, stages="3,1,2,1")
    assert found.time_s["compute"] == pytest.approx(8 * 3 * 2.0)
    assert counts("ABBCBBA", 4, "3,1,2,1") == [
        {"A": 1, "B": 2, "C": 0},
        {"A": 0, "B": 0, "C": 1},
        {"A": 0, "B": 2, "C": 0},
        {"A": 1, "B": 0, "C": 0},
    ]


def counts(pattern: str, pp: int, how: str) -> list[dict[str, float]]:
    """Layers of each rank by letter."""
    model = of(pattern)
    job = by_hand(Layout(pp=pp, dp=1, stages=how), 8, model=model).job
    dealt = partition(job, float(pp), schedule_of(job.layout), 1)
    letter = {(k.mixer, k.ffn): w for w, k in named()}
    words = [letter[k.mixer, k.ffn] for k in sorts(model)]
    found = []
    for rank in range(pp):
        every, *more = dealt.on(float(rank))
        each = (every - sum(more), *more)
        found.append(
            dict.fromkeys("ABC", 0)
            | {w: int(n) for w, n in zip(words, each, strict=True)}
        )
    return found


def named() -> list[tuple[str, Any]]:
    return [(letter, sorts(of(letter))[0]) for letter in WORDS]


def test_the_device_with_most_gradients_ends_the_step() -> None:
    """BB | AA of two replicas, ZeRO 0, nothing hidden, at 2^16 B/s: the last rank all-reduces 2 x
    49,152 gradients of 4 bytes in 6 s, after 2 x 6 s of its own, and the way down to it and up: 1 s
    and 2 s and two sends of 2 x 64 x 128 bytes."""
    apart = replace(ORDER, dp=HidePass("none"))
    model = of("BBAA")
    found = by_hand(Layout(pp=2, dp=2), 2, 2.0**16, model, overlap=apart)
    ends = 2 * 6.0 + 6.0 + (1.0 + 2.0 + 2 * 0.25)
    assert found.step.reached[-1] == pytest.approx(ends)
    assert found.step_time_s == pytest.approx(ends)


def test_the_first_layer_is_of_the_kind_that_stands_first() -> None:
    """What arrives before the first pass and leaves after the last is that of one layer: of an A
    where a rank begins with one, whatever else it holds."""
    layout = Layout(pp=2, dp=1)
    job = by_hand(layout, 4, model=of("ABBCAC")).job
    by = shares(job, layout, schedule_named("1f1b"), 1)
    words = [k.mixer + str(k.ffn) for k in sorts(job.model)]
    assert words == ["fullFalse", "fullTrue", "noneTrue"]
    assert by["first"].layers == (0.0, 1.0, 2.0)
    assert by["first"].first_layer == (0.0, 1.0, 0.0)
    assert by["last"].layers == (2.0, 1.0, 0.0)
    assert by["last"].first_layer == (1.0, 0.0, 0.0)
    assert by["whole"].layers == (2.0, 2.0, 2.0)
    assert by["whole"].first_layer == (0.0, 1.0, 0.0)


# Models of the catalogue.


@pytest.mark.parametrize(
    ("name", "pp", "v", "way"),
    [
        ("jamba-1.5-mini", 4, 1, "1f1b"),
        ("jamba-1.5-mini", 16, 1, "zb-h1"),
        ("qwen3-next-80b-a3b", 8, 2, "interleaved"),
        ("qwen3-next-80b-a3b", 5, 2, "interleaved"),
        ("nemotron-h-8b", 8, 1, "1f1b"),
        ("nemotron-h-8b", 4, 2, "zbv"),
        ("gemma2-9b", 4, 1, "1f1b"),
        ("gemma3-27b", 8, 1, "1f1b"),
        ("deepseek-v3", 16, 1, "1f1b"),
        ("deepseek-v3", 32, 1, "gpipe"),
    ],
)
@pytest.mark.parametrize("how", ["even", "slots"])
def test_every_layer_is_on_the_rank_of_its_stage(
    name: str, pp: int, v: int, way: str, how: str
) -> None:
    """Counted from the list of layers, stage by stage; for one pipeline and among others."""
    model, schedule = catalogue(name), replace(schedule_named(way), stages=how)
    chunks = int(schedule.chunks(v))
    job = by_hand(Layout(dp=1), 1).job
    job = replace(job, model=model)
    every, each = kinds(model), sorts(model)
    dealt = stage_layers(model.layers, pp * chunks, how)
    one = partition(job, float(pp), schedule, v)
    table = partition(job, np.array([1.0, pp, 2.0]), schedule, v)
    assert sum(totals(model)) == model.layers
    assert [k[-1] for k in among(model)] == list(totals(model)[1:])
    for rank in range(pp):
        stages = [schedule.stage_of(rank, c, pp, v) for c in range(chunks)]
        held = [every[i] for k in stages for i in dealt[k]]
        counted = [held.count(kind) for kind in each[1:]]
        assert list(one.on(float(rank))) == [len(held), *counted]
        assert [float(k[1]) for k in table.on(float(rank))[1:]] == counted


def test_candidates_are_all_that_may_be_the_slowest_or_the_fullest() -> None:
    """Whatever a layer of each kind takes, the slowest rank between the ends is among the heavy
    ones, and the fullest, where earlier ranks hold more microbatches, among the early ones."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        p, per = int(rng.integers(3, 12)), int(rng.integers(1, 6))
        words = rng.integers(0, 3, p * per)
        if rng.random() < 0.7:
            words = np.resize(words[: int(rng.integers(2, 7))], p * per)
        further = tuple(
            (0.0, *np.cumsum(words == k).astype(float).tolist())
            for k in (1, 2)
        )
        found = stage_table(p, 1, LayerDeal(p * per, kinds=further))
        ranks = words.reshape(p, per)
        inner = range(1, p - 1)
        for _ in range(20):
            size = 10 ** rng.uniform(-1, 1, 3)
            work = {r: size[ranks[r]].sum() for r in inner}
            most = max(work.values())
            assert max(work[r] for r in found.heavy) == pytest.approx(most)
            held = {
                r: (p - r) * work[r] + size[::-1][ranks[r]].sum()
                for r in inner
            }
            most = max(held.values())
            assert max(held[r] for r in found.early) == pytest.approx(most)


def test_experts_in_every_second_layer_are_where_they_stand() -> None:
    """Llama 4 Maverick's way: dense, experts, dense, experts. On ranks of one layer every second
    holds experts, and the fullest holds them."""
    moe = MoE(experts=8, top_k=1, expert_ffn=256)
    pattern = ("full+dense", "full+experts")
    model = replace(MODEL, layers=4, moe=moe, pattern=pattern)
    found = by_hand(
        Layout(pp=4, dp=1), 8, model=model, memory=BARE
    ).memory_by_stage
    router = 8 * 64
    experts = 4 * 64 * 64 + 8 * 2 * 64 * 256 + router
    assert found["first"].weights == 2 * WEIGHTS
    assert found["second"].weights == 2 * experts
    assert found["last"].weights == 2 * experts
