"""Replicas exchange gradients, and sharded weights, in buckets of a size that a framework has."""

from __future__ import annotations

import pytest

from meshwright import Job, Layout, Prediction, predict
from meshwright.describe.software import Software
from meshwright.step.parameters import Parameters, parameters_of
from meshwright.step.weights import DeviceSync, weight_sync

DENSE = ("llama3-70b", Layout(tp=8, dp=64, zero=1))
EXPERTS = ("mixtral-8x7b", Layout(dp=512, ep=8, zero=1))
ALL = 10**12
"""More parameters than there are."""


def predicted(
    run: tuple[str, Layout], size: int | None, by: str = "megatron-core"
) -> Prediction:
    model, layout = run
    software = Software(bucket_size=size)
    job = Job(model, "512xh100", 512, framework=by, software=software)
    return predict(job, layout)


def sync_of(p: Prediction) -> DeviceSync:
    return p.step.devices[0].sync


def owned(p: Prediction) -> Parameters:
    """Parameters of the only stage."""
    (share, *_) = p.shares.slow
    return parameters_of(p.job, p.layout, p.cost, share).whole


def collective(p: Prediction, *weights: float) -> tuple[float, float]:
    """Seconds of one gather of the weights and of one reduction of their gradients."""
    some = Parameters(*weights)
    sync = weight_sync(p.job, p.layout, some, p.layout.zero, clock=p.clock)
    return sync.gather.seconds, sync.reduction.seconds


def seconds(sync: DeviceSync, what: str = "total") -> tuple[float, float]:
    each = getattr(sync, what)
    return each.gather.seconds, each.reduction.seconds


@pytest.mark.parametrize("size", [2 * 10**9, ALL])
def test_buckets_of_a_size_follow_each_other(size: int) -> None:
    """Of N parameters in buckets of b: N/b collectives of b; more than there are: one of all, which
    is as much as the step waits for before its first pass and after its last.
    """
    p = predicted(DENSE, size)
    n = owned(p).dense
    one = collective(p, min(size, n), 0.0)
    expected = [n / min(size, n) * s for s in one]
    assert seconds(sync_of(p)) == pytest.approx(expected)
    end = p.step.devices[0].wait
    assert (end.first_weights, end.last_gradients) == pytest.approx(one)


def test_experts_have_buckets_of_their_own() -> None:
    """Of the same size, and summed over edp."""
    size = 500_000_000
    p = predicted(EXPERTS, size)
    n = owned(p)
    dense, expert = collective(p, size, 0.0), collective(p, 0.0, size)
    expected = [
        n.dense / size * d + n.expert / size * e
        for d, e in zip(dense, expert, strict=True)
    ]
    assert seconds(sync_of(p)) == pytest.approx(expected)


@pytest.mark.parametrize("run", [DENSE, EXPERTS])
def test_larger_buckets_wait_less_often_and_end_later(
    run: tuple[str, Layout],
) -> None:
    sizes = [1, 10**8, 10**9, 3 * 10**9, ALL]
    syncs = [sync_of(predicted(run, size)) for size in sizes]
    # of a layer, embedding and head, or more
    later = syncs[2:]
    for what, order in (("total", reversed(syncs)), ("first", later)):
        gathers, reductions = zip(
            *(seconds(sync, what) for sync in order), strict=True
        )
        for each in (gathers, reductions):
            assert sorted(each) == pytest.approx(each, rel=1e-12)
            assert each[0] < each[-1]


def test_the_usual_bucket_grows_with_dp() -> None:
    """Megatron-LM: max(40e6, 1e6 dp), whatever cp is; a size that is named does not grow."""
    for dp, cp, size in ((32, 1, 40), (64, 1, 64), (32, 2, 40)):
        run = ("llama3-8b", Layout(tp=8, dp=dp, cp=cp, zero=1))
        usual = sync_of(predicted(run, None))
        for other in (40, 64):
            named = sync_of(predicted(run, other * 10**6))
            assert (named == usual) == (other == size)


@pytest.mark.parametrize(
    ("by", "zero", "size"),
    [
        ("megatron-bridge", 1, 128 * 2**20),
        ("deepspeed", 1, 500_000_000),
        ("deepspeed", 2, 500_000_000),
        ("fsdp", 2, 1),
        ("fsdp", 3, 900_000_000),
        ("megatron-core", 3, 900_000_000),
    ],
)
def test_what_frameworks_do_by_themselves(
    by: str, zero: int, size: int
) -> None:
    """With ZeRO-3 units are gathered by themselves, whatever is named."""
    run = ("llama3-8b", Layout(dp=512, zero=zero))
    usual = sync_of(predicted(run, None, by))
    assert usual == sync_of(predicted(run, size, by))


def test_deepspeed_holds_the_bucket_that_is_named() -> None:
    run = ("llama3-8b", Layout(dp=512, zero=1))
    small, usual = (
        predicted(run, size, "deepspeed").memory_bytes["buffers"]
        for size in (10**8, None)
    )
    assert usual - small == 4 * 10**8 * 2
