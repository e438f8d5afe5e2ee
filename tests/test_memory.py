"""Memory of the fullest device: against a loop over all devices, and against published formulas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright import catalog, memory, predict
from meshwright.schedule import get as schedule_named
from meshwright.schedule.order import in_flight_rank
from meshwright.spec.assumptions import REALISTIC, MemoryCount
from meshwright.spec.job import PRECISIONS, Job
from meshwright.spec.layout import Layout, placed
from meshwright.step import body, microbatches


def every_device(job: Job, layout: Layout) -> float:
    """Bytes of the fullest device, by a loop over the pipeline: layers dealt out one by one, microbatches counted from the order."""
    parts, schedule = body(job, layout), schedule_named(layout.schedule)
    L, pp = job.model.layers, layout.pp
    lead = job.model.moe.dense_layers if job.model.moe else 0
    most = -(-L // pp)
    held = [most] * pp
    for spare in range(pp * most - L):  # the last device gets fewer, then the first, then those before the last
        held[(-1, 0, *range(pp - 2, 0, -1))[spare]] -= 1
    order = schedule.order(pp, int(microbatches(job, layout)), 1)
    fullest, start = 0.0, 0
    for rank, n in enumerate(held):
        dense = sum(1 for i in range(start, start + n) if i < lead)
        start += n
        t, d = parts.typical, parts.leading
        plain = (n - dense) * t.weights + dense * d.weights
        plain += parts.embedding.weights * (rank == 0) + parts.head.weights * (rank == pp - 1)
        expert = (n - dense) * t.expert_weights
        states = memory.states(job, layout, (plain, expert), layout.zero).total
        kept = in_flight_rank(order, rank) * ((n - dense) * t.saved + dense * d.saved)
        fullest = max(fullest, states + kept + parts.head.saved * (rank == pp - 1))
    return fullest + memory.buffers(job, layout, parts, layout.zero)


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("deepseek-v3", {"tp": 2, "pp": 16, "dp": 64, "ep": 8, "zero": 1}),
        ("llama3-405b", {"tp": 8, "pp": 16, "dp": 16, "zero": 1}),
        ("llama3-70b", {"tp": 4, "pp": 16, "dp": 32, "zero": 1}),
        ("deepseek-v2", {"tp": 2, "pp": 16, "dp": 64, "ep": 4, "zero": 1}),
        ("gpt3-175b", {"tp": 8, "pp": 8, "dp": 32}),
        ("gemma2-9b", {"pp": 3, "dp": 128, "zero": 1}),
    ],
)
def test_the_fullest_device_is_found(name: str, degrees: dict[str, int]) -> None:
    """Models with leading dense layers and with layers that do not divide: the first device is not the fullest."""
    layout = Layout(**degrees)
    job = Job(catalog.model(name), catalog.cluster(f"{layout.chips}xh100-sxm"), 4096, layout)
    layout = placed(layout, job.cluster.sizes)
    found = float(memory.use(job, layout, body(job, layout), schedule_named("1f1b")).total)
    assert found == pytest.approx(every_device(replace(job, layout=layout), layout), rel=0.02)
    assert found >= 0.999 * every_device(job, layout)


@pytest.mark.parametrize("tp", [1, 4, 8])
def test_activations_of_korthikanti(tp: int) -> None:
    """With sequence parallelism a layer keeps 34 s b h / t + 5 a s^2 b / t; without the core of attention 34 s b h / t (Korthikanti et al. 2022)."""
    model = replace(catalog.model("gpt3-175b"), dropout=True)
    layout = placed(Layout(tp=tp, dp=8 // tp), (8, 1))
    job = Job(model, catalog.cluster("8xa100-80"), 8, layout, attention_kernel="unfused")
    t = body(job, layout).typical
    sbh = job.T * model.hidden
    assert float(t.saved_selective) == pytest.approx(34 * sbh / tp, rel=2e-3)
    assert float(t.saved) == pytest.approx((34 + 5 * model.heads * job.T / model.hidden) * sbh / tp, rel=2e-3)


def test_weights_in_fp32_need_no_master_copy() -> None:
    job = Job(catalog.model("llama3.2-1b"), catalog.cluster("1xh100-sxm"), 8, precision=PRECISIONS["fp32"])
    use = predict(job).memory_use
    assert use.optimizer == pytest.approx(2 * use.weights)


def test_more_chips_never_slow_a_layout_down() -> None:
    """Nodes keep their size, whatever the number of chips."""
    layout, model = Layout(tp=8, dp=12, zero=1), catalog.model("llama3-8b")
    times = [predict(Job(model, catalog.cluster(f"{n}xh100-sxm"), 96, layout)).step_time_s for n in (96, 97, 100, 104)]
    assert max(times) == pytest.approx(min(times))


def test_what_does_not_fit_the_last_dimension_is_refused() -> None:
    from meshwright.errors import BadInput

    layout = Layout(tp=8, dp=2, placement={"tp": (1, 8), "cp": (1, 1), "dp": (1, 2), "pp": (1, 1)})
    with pytest.raises(BadInput, match="which joins 2"):
        predict(Job(catalog.model("llama3-8b"), catalog.cluster("16xh100-sxm"), 16, layout))


def test_framework_bytes_are_those_of_the_assumption_set() -> None:
    lean = replace(REALISTIC, memory=MemoryCount(framework_bytes=0.0))
    job = Job(catalog.model("llama3-8b"), catalog.cluster("64xh100-sxm"), 64, Layout(dp=64, zero=1))
    assert predict(job).memory_use.total - predict(replace(job, assumptions=lean)).memory_use.total == pytest.approx(
        2e9
    )
