"""Weight and gradient collectives of two layers on four replicas, against seconds worked out by
hand.

On links of 73,728 B/s: gathering the 49,152 weights of a layer in 2 bytes takes 3/4 x 98,304 /
73,728 = 1 s, scattering its gradients in 4 bytes 2 s, reducing them to all 4 s. A layer computes 1
s forward and 2 s backward.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from by_hand import MODEL, SET, TOKENS, WIDTH, by_hand
from layouts import cut
from meshwright import Job, Layout
from meshwright.describe.assumptions import REALISTIC, HidePass, Overlap
from meshwright.describe.software import Software
from meshwright.layout.placement import Nearest
from meshwright.step import parameters, weights
from meshwright.step.microbatch import clock_of
from meshwright.step.zero import gathers, over_step

RATE = 73728.0
HIDDEN = replace(SET.overlap, dp=HidePass("pass"))


def exposed(zero: int, rate: float, overlap: Overlap) -> float:
    """Seconds of data-parallel traffic that are not hidden, of one step of three microbatches."""
    layout = Layout(dp=4, zero=zero)
    return by_hand(layout, 3, rate, overlap=overlap).time_s["dp_comm"]


@pytest.mark.parametrize(
    ("times", "how", "seconds"),
    [
        # two layers, three microbatches: gradients once; scattered once, weights gathered once;
        # scattered after each microbatch; and gathered before each of six passes
        (1, SET.overlap, (8, 2 * 3, 2 * (3 * 2 + 1), 2 * (3 * 2 + 6))),
        # a quarter of the speed, hidden: gather 4 s, scatter 8 s, all-reduce 16 s; behind a layer
        # of 1 s forward, 2 s backward. Subramanian et al. 2024, section 3.4:
        # T + (layers - 1) max(T - t_layer, 0)
        (
            1 / 4,
            HIDDEN,
            (
                16 + (16 - 2),
                4 + (4 - 1) + 8 + (8 - 2),
                # earlier microbatches: behind both layers
                4 + (4 - 1) + 8 + (8 - 2) + 2 * 2 * (8 - 2),
                # the first gather is waited for; later ones were started a pass before; backward
                # gathers and scatters beside it, and the very last scatter is waited for, while
                # the layer that it comes from hides nothing
                4
                + (4 - 1)
                + 2 * (2 * 4 - 2)
                + 2 * (2 * (4 + 8) - 4)
                + (2 * 4 + 8 - 2)
                + 8,
            ),
        ),
        # ten times the speed: only the first layer's gather and the last one's reduction are
        # waited for
        (10, HIDDEN, (0.4, 0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2)),
    ],
)
def test_what_outlasts_a_layer_shows(
    times: float, how: Overlap, seconds: tuple[float, ...]
) -> None:
    found = [exposed(zero, times * RATE, how) for zero in range(4)]
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("zero", "shown", "hidden"),
    [
        (
            0,
            4 + (4 - 2),
            2,
        ),  # the all-reduce of one layer hides 2 s behind the other's backward
        (
            1,
            1 + 2,
            1 + 2,
        ),  # a gather of 1 s behind a forward pass, a scatter of 2 s behind 2 s
        (
            2,
            1 + 2,
            1 + 2 + 2 * 2 * 2,
        ),  # two more microbatches scatter both layers' gradients
    ],
)
def test_compute_is_slower_beside_what_hides(
    zero: int, shown: float, hidden: float
) -> None:
    """A tenth of the seconds that hide is a cause of its own: none of it counts as
    communication, and all causes add up to the step.
    """
    slow = replace(SET.overlap, dp=HidePass("pass", slow=0.1))
    found = by_hand(Layout(dp=4, zero=zero), 3, RATE, overlap=slow)
    without = by_hand(Layout(dp=4, zero=zero), 3, RATE, overlap=HIDDEN)
    assert (
        found.time_s["dp_comm"]
        == pytest.approx(shown)
        == without.time_s["dp_comm"]
    )
    assert found.time_s["overlap_slowdown"] == pytest.approx(0.1 * hidden)
    assert found.step_time_s == pytest.approx(
        without.step_time_s + 0.1 * hidden
    )
    (part,) = next(
        t for t in found.term.parts if t.name == "overlap_slowdown"
    ).parts
    assert (part.name, part.value) == (
        "weights and gradients",
        pytest.approx(0.1 * hidden),
    )


ALONE = dict.fromkeys(("tp", "cp", "dp"), (1, 1))
VOCAB, LEARNED = 128, replace(MODEL, vocab=128, positions="learned")
"""Embedding: (128 + 128 positions) x 64; head: 128 x 64."""


LOGITS = 3 * 2 * TOKENS * WIDTH * VOCAB / 2**24
"""Seconds of the head's products, for which the device with the embedding is done sooner than the
last one.
"""


@pytest.mark.parametrize(
    ("pp", "tied", "parameters", "sooner"),
    [
        (1, False, VOCAB * WIDTH + TOKENS * WIDTH + VOCAB * WIDTH, 0.0),
        (1, True, VOCAB * WIDTH + TOKENS * WIDTH, 0.0),
        # on two devices, each for itself: here the first is last
        (2, False, VOCAB * WIDTH + TOKENS * WIDTH, LOGITS),
    ],
)
def test_the_ends_of_the_model_are_reduced_once(
    pp: int, tied: bool, parameters: int, sooner: float
) -> None:
    """Gradients of embedding and head: 4 bytes, 2 x (dp-1)/dp of them over the link."""
    model = replace(LEARNED, tied_embeddings=tied)
    with_ends, without = (
        by_hand(Layout(dp=2, pp=pp), 1, RATE, m).time_s["dp_comm"]
        for m in (model, replace(MODEL, vocab=0))
    )
    assert with_ends - without == pytest.approx(
        2 * (1 / 2) * 4 * parameters / RATE - sooner
    )


@pytest.mark.parametrize(
    ("how", "zero", "schedule", "sent"),
    [
        ("whole", 0, "1f1b", 1.0),
        ("whole", 1, "1f1b", 1.0),
        ("shards", 0, "1f1b", 1.0),
        ("shards", 1, "1f1b", 1 / 2),
        ("none", 1, "1f1b", 0.0),
        # both ends of a folded pipeline lie on one device
        ("whole", 1, "zbv", 0.0),
    ],
)
@pytest.mark.parametrize("what", ["tied", "predicts more"])
def test_a_table_of_two_stages_is_summed_between_them(
    what: str, how: str, zero: int, schedule: str, sent: float
) -> None:
    """An all-reduce of two ranks sends the table's gradients once each way, after all others:
    nothing hides it.
    """
    model = replace(LEARNED, layers=4)
    chunks = 2 if schedule == "zbv" else 1
    layout = Layout(
        dp=2, pp=2, zero=zero, schedule=schedule, interleave=chunks
    )
    model = (
        replace(model, tied_embeddings=True)
        if what == "tied"
        else replace(model, mtp_layers=1)
    )
    summed, apart = (
        by_hand(
            layout,
            2,
            RATE,
            model,
            overlap=Overlap(dp=HidePass("pass")),
            count=replace(SET.count, vocabulary=True, tied_gradients=each),
        ).step_time_s
        for each in (how, "none")
    )
    assert summed - apart == pytest.approx(sent * 4 * VOCAB * WIDTH / RATE)


@pytest.mark.parametrize(
    ("stages", "ranks"),
    [((4, 1), (2, 1)), ((2, 4), (1, 2)), ((1, 8), (1, 2)), ((1, 1), (1, 1))],
)
def test_both_ends_are_as_far_apart_as_the_pipeline_reaches(
    stages: tuple[int, int], ranks: tuple[int, int]
) -> None:
    pp = stages[0] * stages[1]
    layout = Layout(pp=pp, dp=1, placement={**ALONE, "pp": stages})
    assert layout.group("ends") == ranks
    near = Nearest(pp=pp, dp=1, sizes=(4, 8))
    assert near.group("ends") == ((1, 2) if pp > 4 else (min(pp, 2), 1))


def with_units(monkeypatch: pytest.MonkeyPatch, ends: str, kept: str) -> None:
    """A framework with these units."""
    for room in (parameters, weights):
        monkeypatch.setattr(room, "units_of", lambda job: (ends, kept))


@pytest.mark.parametrize(
    ("ends", "embedding", "head"),
    [("units", 6, 6), ("root", 3, 3), ("apart", 6, 3)],
)
def test_the_ends_are_gathered_as_their_units_are(
    monkeypatch: pytest.MonkeyPatch, ends: str, embedding: int, head: int
) -> None:
    """Three microbatches: a layer before each of six passes; what is kept from the forward pass to
    the backward pass three times. Gradients are scattered after each microbatch all the same."""
    with_units(monkeypatch, ends, "step")
    found, without = (
        by_hand(cut("dp4 zero3"), 3, RATE, model=model)
        for model in (LEARNED, MODEL)
    )
    each = 3 / 4 / RATE
    first, last = (VOCAB + TOKENS) * WIDTH, VOCAB * WIDTH
    gathers = 2 * each * (embedding * first + head * last)
    scatters = 4 * each * 3 * (first + last)
    assert found.time_s["dp_comm"] - without.time_s["dp_comm"] == (
        pytest.approx(gathers + scatters)
    )


def test_between_layers_an_end_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """At ten times the speed a step waits for the first layer and for what arrives before it: a head
    that is a unit by itself is neither first nor last."""
    shown = {}
    for ends in ("root", "apart"):
        with_units(monkeypatch, ends, "step")
        layout = cut("dp4 zero3")
        found = by_hand(layout, 3, 10 * RATE, model=LEARNED, overlap=HIDDEN)
        shown[ends] = found.time_s["dp_comm"]
    head = VOCAB * WIDTH * 3 / 4 / (10 * RATE) * (2 + 4)
    assert shown["root"] - shown["apart"] == pytest.approx(head)


@pytest.mark.parametrize(("kept", "gathers"), [("step", 1), ("microbatch", 3)])
def test_weights_of_stage_two_are_kept_as_long_as_the_framework_keeps_them(
    monkeypatch: pytest.MonkeyPatch, kept: str, gathers: int
) -> None:
    """Two layers, gathered in a second each, for a step or for each of three microbatches; their
    gradients are scattered after each of them."""
    with_units(monkeypatch, "units", kept)
    found = by_hand(cut("dp4 zero2"), 3, RATE)
    assert found.time_s["dp_comm"] == pytest.approx(2 * (gathers + 3 * 2))


@pytest.mark.parametrize(
    ("framework", "tied", "software", "units"),
    [
        ("torchtitan", False, Software(), ("apart", "microbatch")),
        # sharded with norm and head, which are not freed after the forward pass
        ("torchtitan", True, Software(), ("root", "microbatch")),
        ("torchtitan", False, Software(ends="root"), ("root", "microbatch")),
        ("fsdp", False, Software(), ("root", "microbatch")),
        ("megatron-core", False, Software(), ("units", "step")),
    ],
)
def test_the_units_of_a_framework(
    framework: str, tied: bool, software: Software, units: tuple[str, str]
) -> None:
    job = by_hand(Layout(dp=4), model=LEARNED).job
    job = replace(
        job,
        model=replace(LEARNED, tied_embeddings=tied),
        assumptions=REALISTIC,
        framework=framework,
        software=software,
    )
    assert weights.units_of(job) == units


@pytest.mark.parametrize(
    ("numbers", "gradients", "dp", "bytes_", "copied"),
    [
        ("kept", None, 4, 2, 0),
        ("fp32", None, 4, 4, 2 + 2 + 2 + 2 + 2 + 4 + 4 + 2 + 2 + 2),
        ("fp32", None, 1, 4, 0),
        ("fp32", "fp32", 4, 4, 0),
    ],
)
def test_narrow_gradients_are_copied_to_buckets_of_fp32(
    numbers: str, gradients: str | None, dp: int, bytes_: int, copied: int
) -> None:
    """Each of 1,000 gradients in 2 bytes: side by side, divided, to fp32, back, and to its place."""
    job = Job(
        "gpt2",
        "4xa100-80",
        4,
        framework="megatron-deepspeed",
        software=Software(reduction_numbers=numbers, gradients=gradients),
    )
    layout = Layout(dp=dp, zero=1)
    some = parameters.Parameters(1000.0, 0.0)
    (message,) = weights.reduction_messages(
        job, layout, some, sharded=True, summed=True
    )
    assert (message.kind, message.bytes) == ("all_reduce", 1000 * bytes_)
    clock = clock_of(job)
    load = weights.bucket_copies(job, layout, some, clock)
    assert load.seconds == pytest.approx(1000 * copied / clock.rates.memory)
    # ranks that share a context are replicas, too
    context = weights.bucket_copies(
        job, replace(layout, dp=1, cp=dp), some, clock
    )
    assert context == load


@pytest.mark.parametrize(
    ("zero", "freed", "times"),
    [(0, True, 0), (1, True, 1), (2, False, 1), (2, True, 5), (3, True, 10)],
)
def test_how_often_weights_are_gathered(
    zero: int, freed: bool, times: int
) -> None:
    """In 5 microbatches: once, for each that finds them freed, or before each of the 10 passes."""
    assert over_step(gathers(zero, freed), 5.0) == times
