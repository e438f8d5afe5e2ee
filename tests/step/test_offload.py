"""What waits in host memory: bytes that leave the device, seconds of the copies, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import CHIP
from meshwright import Cluster, Job, Layout, Space, plan, predict
from meshwright.describe.offload import Offload, offload
from meshwright.layout import rules
from meshwright.layout.placement import placed
from meshwright.step import clock_of
from meshwright.step.parameters import Parameters
from meshwright.step.weights import weight_sync
from refusals import refusal

GB = 1e9
LAYERS = 32  # of llama3-8b


def job(**host: float) -> Job:
    """Two H100 whose link and host memory are as fast as said."""
    from meshwright import cluster

    two = cluster("2xh100-sxm")
    fast = replace(two.chip, host_reached=1.0, **host)
    return Job(
        "llama3-8b",
        Cluster(fast, two.network, 2),
        4,
        framework="unknown",
    )


def layout(text: str, **more: object) -> Layout:
    return Layout(dp=2, zero=3, offload=text, **more)  # type: ignore[arg-type]


def parts(
    text: str, **host: float
) -> tuple[dict[str, float], dict[str, float]]:
    found = predict(job(**host), layout(text))
    return found.time_s, found.memory_bytes


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("none", Offload("none")),
        ("activations", Offload("activations", inputs=True, results=True)),
        (
            "activations:20",
            Offload("activations:20", inputs=True, results=True, layers=20),
        ),
        ("inputs", Offload("inputs", inputs=True)),
        (
            "optimizer+results",
            Offload("results+optimizer", results=True, optimizer=1.0),
        ),
        ("optimizer:1", Offload("optimizer", optimizer=1.0)),
        (
            "weights + optimizer:0.5",
            Offload("optimizer:0.5+weights", optimizer=0.5, weights=True),
        ),
    ],
)
def test_words(text: str, read: Offload) -> None:
    assert offload(text) == read
    assert Layout(dp=1, offload=text).offload == read.text
    assert offload(read.text) == read


@pytest.mark.parametrize(
    "text",
    ["disk", "activations:0", "activations:1.5", "optimizer:2", "weights:1"]
    + ["optimizer+optimizer", "optimizer:x", "", "optimizer:nan"]
    + ["inputs:2", "inputs+results", "activations+inputs"],
)
def test_what_is_no_choice(text: str) -> None:
    with refusal(r"layout\.offload"):
        Layout(dp=1, offload=text)


def test_activations_leave_layer_by_layer() -> None:
    """A layer that leaves is gone when a later one needs its room; of none that stay, two are on
    their way, one beside the one that is computed.
    """
    kept = {
        n: parts(f"activations:{n}" if n else "none", host_bandwidth=1e15)[1][
            "activations"
        ]
        for n in (0, 8, 16, 24, LAYERS - 1, LAYERS)
    }
    eight = kept[8] - kept[16]  # of eight layers
    assert kept[16] - kept[24] == pytest.approx(eight, rel=1e-9)
    assert kept[0] - kept[8] == pytest.approx(eight, rel=1e-9)
    assert kept[24] - kept[LAYERS] == pytest.approx(
        eight * (LAYERS - 24 - 2) / 8, rel=1e-9
    )
    assert kept[LAYERS - 1] == kept[LAYERS]


def test_what_recomputation_keeps_leaves() -> None:
    """Of layers that run again only the inputs are kept, two bytes a number; of
    layers that keep matrix products their results too. On the device stay those that do not leave,
    and of those that do two layers on their way.
    """
    entry = 8192 * 4096 * 2

    def kept(text: str, recompute: str) -> float:
        found = predict(
            job(host_bandwidth=1e15), layout(text, recompute=recompute)
        )
        return found.memory_bytes["activations"]

    here = kept("none", "full")
    for text in ("activations", "inputs"):
        assert here - kept(text, "full") == pytest.approx(entry * (LAYERS - 2))
    assert kept("results", "full") == here
    every = kept("none", "minimal")
    results = (every - kept("results", "minimal")) / (LAYERS - 2)
    assert results > entry
    assert every - kept("inputs", "minimal") == pytest.approx(
        entry * (LAYERS - 2)
    )
    assert every - kept("activations", "minimal") == pytest.approx(
        (entry + results) * (LAYERS - 2)
    )


def test_copies_run_beside_what_runs_again() -> None:
    """A backward pass of a layer that runs again is longer, so that a link may be the slower one
    forward and not back."""
    entry = 8192 * 4096 * 2
    m = 2

    def memory(rate: float, text: str = "inputs") -> float:
        found = predict(
            job(host_bandwidth=rate), layout(text, recompute="full")
        )
        return found.time_s["memory"]

    plain = memory(1e15, "none")
    assert memory(1e15) == plain
    slow, slower = (memory(rate) - plain for rate in (1e9, 5e8))
    assert slower - slow == pytest.approx(2 * m * LAYERS * entry / 1e9)
    # the forward pass is the first that a slower link outlasts, the backward pass hides it still
    rates = (1e11 / 1.1**n for n in range(60))
    first = next(rate for rate in rates if memory(rate) > plain)
    assert memory(first) - plain < 0.2 * m * LAYERS * entry / first


def test_copies_hide_until_the_link_is_the_slower() -> None:
    """All activations of a microbatch pass the link once each way, beside the passes."""
    plain, bytes_ = parts("none", host_bandwidth=1e15)
    fast, _ = parts("activations", host_bandwidth=1e15)
    assert fast == plain
    few = parts("activations:8", host_bandwidth=1e15)[1]["activations"]
    more = parts("activations:16", host_bandwidth=1e15)[1]["activations"]
    whole = (few - more) / 8 * LAYERS  # bytes of a microbatch in all layers
    rates = (1e8, 2e8)  # bytes a second: far slower than any pass
    slow = [parts("activations", host_bandwidth=h)[0] for h in rates]
    waits = [sum(t.values()) - sum(plain.values()) for t in slow]
    m = 2  # microbatches
    assert slow[0]["memory"] > plain["memory"]
    # each way whole / h, less the passes beside it, which do not depend on h
    assert waits[0] - waits[1] == pytest.approx(
        2 * m * whole * (1 / rates[0] - 1 / rates[1]), rel=1e-6
    )


def test_the_host_updates_what_it_holds() -> None:
    """n parameters of 12 B of state: gradients go out, 2 x 12 + 2 x 4 + 2 B of traffic there, 2 B
    come back."""
    link, host = 50 * GB, 100 * GB
    rates = {"host_bandwidth": link, "host_memory_bandwidth": host}
    plain, before = parts("none", **rates)
    away, after = parts("optimizer", **rates)
    numbers = job(**rates).precision
    assert numbers is not None
    n = before["optimizer"] / job(**rates).state_bytes
    assert after["optimizer"] == 0
    g, w, s = numbers.gradient_bytes, numbers.weight_bytes, 12
    assert before["optimizer"] == pytest.approx(s * n)
    copied, moved = n * (g + w), n * (2 * g + 2 * s + w)
    half, some = parts("optimizer:0.5", **rates)
    assert some["optimizer"] == pytest.approx(before["optimizer"] / 2)
    # what a step takes whatever is updated is in both
    whole = copied / link + moved / host
    assert away["optimizer"] - half["optimizer"] == pytest.approx(whole / 2)
    # a host as fast as one likes: the device updates its half in half the time
    quick = {"host_bandwidth": 1e18, "host_memory_bandwidth": 1e18}
    none, some, every = (
        parts(text, **quick)[0]["optimizer"]
        for text in ("none", "optimizer:0.5", "optimizer")
    )
    assert none - some == pytest.approx(some - every)
    assert none > some > every
    slower = parts("optimizer", **{**rates, "host_memory_bandwidth": host / 2})
    assert slower[0]["optimizer"] - away["optimizer"] == pytest.approx(
        moved / host
    )


@pytest.mark.parametrize(
    ("framework", "text", "more", "words"),
    [
        ("megatron-core", "activations", {"recompute": "full", "zero": 1}, "none"),
        ("megatron-core", "inputs", {"zero": 1}, "whole layers"),
        ("megatron-core", "activations:8", {"pp": 2, "dp": 1, "zero": 1}, "pp 1"),
        ("torchtitan", "activations:8", {}, "optimizer"),
        ("meshwright", "activations:8", {}, "take none"),
        ("megatron-2021", "activations:8", {"zero": 1}, "take none"),
        # weights need shards and the optimizer beside them
        ("unknown", "weights", {}, "zero 3"),
        ("unknown", "optimizer+weights", {"zero": 1}, "zero 3"),
    ],
)  # fmt: skip
def test_who_refuses(
    framework: str, text: str, more: dict[str, Any], words: str
) -> None:
    at = job(host_bandwidth=1e10, host_memory_bandwidth=1e10)
    at = replace(at, framework=framework)
    (why,) = rules.broken(at, replace(layout(text), **more))
    assert words in why


def test_a_shard_comes_with_its_gather_and_goes_with_its_reduction() -> None:
    """Of 1,000 parameters on two replicas 500, in the bytes of a weight and of a gradient, over a
    link of 1 GB/s."""
    at = job(host_bandwidth=1e9)
    here, away = (
        weight_sync(
            at,
            placed(layout(text), at.cluster.sizes),
            Parameters(1000.0, 0.0),
            3,
            clock_of(at),
        )
        for text in ("none", "optimizer+weights")
    )
    p = at.precision
    gather = away.gather.seconds - here.gather.seconds
    scatter = away.reduction.seconds - here.reduction.seconds
    assert gather == pytest.approx(500 * p.weight_bytes / GB)
    assert scatter == pytest.approx(500 * p.gradient_bytes / GB)


def test_an_unknown_host_is_refused_by_name() -> None:
    assert rules.host_unknown(CHIP, layout("activations")) == "host_bandwidth"
    with refusal("host_bandwidth of chip h100-sxm"):
        predict(job(host_bandwidth=0.0), layout("activations"))
    with refusal("host_memory_bandwidth"):
        predict(job(host_memory_bandwidth=0.0), layout("optimizer"))
    with refusal("host_memory_bandwidth"):
        plan(job(host_memory_bandwidth=0.0), Space(offload="optimizer"))


def test_a_search_offloads_where_it_is_told() -> None:
    """A model that does not fit on 4 GPUs fits with its states in host memory."""
    big = Job("llama3-8b", "2xh100-sxm", 4, framework="unknown")
    plain = plan(big, Space(zero=(0, 1)))
    assert plain.best is None
    found = plan(big, Space(zero=(0, 1), offload="optimizer"))
    assert found.best and found.best.layout.offload == "optimizer"
    assert found.best == predict(big, found.best.layout)
