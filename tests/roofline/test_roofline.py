"""Rooflines of real meshes: splits against brute force, schemes against the book, what the result
says.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import pytest

from meshwright import Model
from meshwright.catalog import cluster, model
from meshwright.count.model import parameters
from meshwright.describe.assumptions import BOOK_SUM
from meshwright.roofline import schemes
from meshwright.roofline.mesh import bandwidth, mesh, ring
from meshwright.roofline.queries import EXACT, roofline
from meshwright.roofline.splits import (
    best,
    least_batch,
    splits,
)
from meshwright.roofline.times import Asked
from meshwright.roofline.work import LayerSetting
from refusals import refusal

LLAMA, OSS = model("llama3-70b"), model("gpt-oss-120b")
TOY = Model("toy", 32, 8192, 64, 32768, 0, 8192, gated=False)
PODS = [
    ("64xbook-tpu-v5p", 1e5),
    ("128xbook-tpu-v5e", 4e5),
    ("1024xbook-h100", 4e6),
    ("4096xbook-tpu-v5p", 1.7e6),
]


def asked(model, on, batch, how=EXACT, shape=None, **setting):
    return Asked(
        LayerSetting(model, **setting),
        mesh(cluster(on), "bf16", how, shape),
        batch,
    )


@pytest.mark.parametrize(("name", "batch"), PODS)
@pytest.mark.parametrize("edition", ["sum", "max"])
def test_best_split_beats_all_others(name, batch, edition):
    on = asked(LLAMA, name, batch)
    found = list(splits(on))
    assert {f.x * f.y for f in found} == {on.mesh.chips}, "no chip is idle"
    assert all(LLAMA.ffn % f.y == 0 for f in found)

    def step(split):
        return max(split.forward.compute, split.forward.comm(edition))

    assert step(best(found, edition)) == min(map(step, found))
    some = found[:: max(1, len(found) // 40)]
    thresholds = [b for f in some if (b := f.threshold(edition)) is not None]
    first = least_batch(found, edition)
    assert first or not thresholds
    assert all(first[1] <= b * (1 + 1e-9) for b in thresholds)


def test_links_of_a_byte_a_second_have_no_least_batch():
    on = cluster("64xbook-tpu-v5p")
    dims = tuple(replace(dim, bandwidth=1.0) for dim in on.network.dims)
    slow = mesh(
        replace(on, network=replace(on.network, dims=dims)), "bf16", EXACT
    )
    every = list(splits(Asked(LayerSetting(LLAMA), slow, 1e5)))
    assert least_batch(every, "max") is None


def test_shards_are_whole():
    whole, heads = (
        {f.y for f in splits(asked(LLAMA, "8960xbook-tpu-v5p", 4e6, layer=x))}
        for x in ("book", "projections")
    )
    # 28672 = 2^12 x 7
    assert {1, 7, 8, 14} <= whole and not any(y % 5 == 0 for y in whole)
    assert max(heads) == 64


def test_max_is_never_slower_than_sum_and_shared_links_are_not_used_twice():
    for f in splits(asked(TOY, "4096xbook-tpu-v5p", 1e6)):
        t = f.forward
        least, most = t.comm("max"), t.comm("sum")
        assert least <= most * (1 + 1e-12)
        assert least >= max(t.data.seconds, t.tensor.seconds) * (1 - 1e-12)
        # both on all links alike
        inside = all(1 < y < 16 for y in f.tensor_share)
        if inside and len(set(f.tensor_inside)) == 1:
            assert least == pytest.approx(most)


def test_the_backward_pass_is_twice_the_forward_and_factors_are_said():
    found = list(splits(asked(TOY, "4096xbook-tpu-v5p", 2e6, BOOK_SUM)))
    split = next(f for f in found if f.tensor_share == (1, 1, 16))
    ahead, back = split.forward, split.at(2e6).backward
    work = 4 * 2e6 * 8192 * 32768 / (4096 * 4.59e14)
    assert (ahead.compute, back.compute) == pytest.approx((work, 2 * work))
    assert back.data.seconds == pytest.approx(2 * ahead.data.seconds)
    assert back.tensor.seconds == pytest.approx(ahead.tensor.seconds)
    assert split.text == "x 16X, y 16X, z 16Y"
    apart = [f.text for f in found if f.tensor_share == (4, 1, 1)]
    assert apart == [f"x {x}, y 16X, z 16X" for x in ("4X·4Y", "4Y·4X")]


@pytest.mark.parametrize(
    ("shown", "on", "degree"),
    [
        (LLAMA, "1024xbook-h100", 8),
        (TOY, "16xbook-h100", 16),  # two nodes: 8 + F/2475 = 21
        (replace(TOY, ffn=512), "8xbook-h100", 1),  # F/2200 is less than one
    ],
)
def test_largest_tensor_degree(shown, on, degree):
    assert roofline(shown, on, 1e6).largest_tensor == degree


@pytest.mark.parametrize(
    ("chips", "how", "tokens"),
    [(40960, BOOK_SUM, 10 * 73440), (8192, EXACT, 2 * 73440 / 2)],
)
def test_pods_need_73440_tokens_each_and_two_of_them_half(chips, how, tokens):
    on = f"{chips}xbook-tpu-v5p"
    row = schemes.across_pods(asked(TOY, on, 1e7, how, (16, 16, 16)))
    assert row.degrees == f"{chips // 4096} pods"
    assert row.least_batch_sum_tokens == pytest.approx(tokens, rel=1e-9)


@pytest.mark.parametrize("degree", [16, 32, 64, 128])
def test_experts_over_nodes_of_gpus(degree):
    """T_comms = 4 B D (Z - 8)/(W Z) min(8 k/Z, 1) with the B tokens of Z GPUs; part 12 of the
    book.
    """
    batch = 16e6
    row = schemes.expert_parallel(asked(OSS, "1024xbook-h100", batch), degree)
    B, D, F = batch / 1024, OSS.hidden, OSS.moe.expert_ffn
    k, Z = OSS.moe.top_k, degree
    sent = 4 * B * Z * D * (Z - 8) / (400e9 * Z) * min(8 * k / Z, 1)
    work = 4 * B * k * D * F / 990e12
    assert (row.comm_sum_s, row.compute_s) == pytest.approx((sent, work))


def test_context_ring_is_bound_by_the_length_not_the_batch():
    """(T/c) H/K FLOPs for each byte."""
    for seq in (8192, 131072):
        on = asked(LLAMA, "64xbook-tpu-v5p", 1e7, BOOK_SUM, seq=seq)
        row = schemes.context_parallel(on, 4)
        ratio = seq / 4 * 64 / 8 / (4.59e14 / 0.9e11)
        assert row.compute_s / row.comm_sum_s == pytest.approx(ratio)


def test_all_of_a_roofline():
    r = roofline(LLAMA, "8960xbook-tpu-v5p", 4.19e6, assumptions=BOOK_SUM)
    assert r.shape == (16, 20, 28) and r.chips == 8960
    assert r.intensity[:3] == pytest.approx((2550.0,) * 3)
    assert r.notes[-1].startswith("the batch has 511.475 sequences")  # / 8,192
    two = next(t for t in r.theory if t.m_x == 2)
    assert two.x == pytest.approx(1618, abs=1)
    tokens = two.tokens_per_chip_sum, two.tokens_per_chip_max
    assert tokens == pytest.approx((453.6, 113.4), abs=0.1)
    rows = {s.name: s for s in r.schemes}
    dp, fsdp = rows["DP"], rows["FSDP"]
    whole = pytest.approx(850 * 8960, rel=1e-6)
    assert fsdp.least_batch_sum_tokens == whole == dp.least_batch_max_tokens
    assert rows["TP"].least_batch_sum_tokens is None
    assert dp.memory_bytes > r.capacity_bytes > fsdp.memory_bytes
    assert dp.curve.batch_tokens[24::24] == pytest.approx((4.19e6, 4.19e9))
    assert r.memory_full_bytes > r.memory_bytes
    data = json.loads(json.dumps(r.to_dict(), allow_nan=False))
    assert data["whole"][0]["edition"] == "sum"
    assert data["effective_width"] == 28672
    assert data["tokens_per_chip"] == pytest.approx(467.6, abs=0.1)


@pytest.mark.parametrize(
    ("shown", "on", "batch"),
    [(LLAMA, name, batch) for name, batch in PODS]
    + [(OSS, "1024xbook-tpu-v5e", 16e6), (TOY, "1xh100-sxm", 1e5)],
)
def test_the_fields_of_a_roofline_follow_from_each_other(shown, on, batch):
    """Splits use every chip; a ratio is computing over communicating; a batch that is compute-bound
    has at least the tokens from which it is.
    """
    said = roofline(shown, on, batch).to_dict()
    chip, pod = cluster(on).chip, prod(said["shape"])
    assert said["chips"] == said["pods"] * pod
    assert said["tokens_per_chip"] == batch / said["chips"]
    assert said["sequences"] == pytest.approx(batch / shown.seq)
    assert said["flops_per_s"] == chip.peak("bf16")
    rate = said["flops_per_s"] / chip.hbm_bandwidth
    assert said["hbm_tokens"] == pytest.approx(rate)
    assert said["flops_per_token"] == pytest.approx(
        said["weight_bytes"]
        * (shown.moe.top_k / shown.moe.experts if shown.moe else 1)
    )
    size = parameters(shown)
    cut = size / pod
    for name, each in (("memory_bytes", 10), ("memory_full_bytes", 18)):
        assert said[name] == pytest.approx(each * cut + said["kept_bytes"])
    for row in (*said["whole"], *said["degrees"]):
        assert row["x"] * row["y"] == pod
        alone = row["data_s"], row["tensor_s"]
        assert max(alone) <= sum(alone) * (1 + 1e-12)
    for row in said["whole"]:
        took = row["comm_s"]
        ratio = row["compute_s"] / took if took else None
        assert row["ratio"] == (ratio and pytest.approx(ratio))
        least = row["least_batch_tokens"]
        first = row["compute_bound_from_tokens"]
        assert bool(first) == bool(row["compute_bound_first"])
        assert not least or first <= least * (1 + 1e-9)
    assert [row["edition"] for row in said["whole"]] == ["sum", "max"]
    wide = [row["y"] for row in said["degrees"]]
    assert wide == sorted({*wide})
    quick = min(row["comm_max_s"] for row in said["degrees"])
    for row in said["degrees"]:
        assert quick <= row["comm_max_s"] <= row["comm_sum_s"] * (1 + 1e-12)
        assert row["comm_sum_s"] <= (row["data_s"] + row["tensor_s"]) * (
            1 + 1e-12
        )
    for row in said["schemes"]:
        for edition in ("sum", "max"):
            sent = row[f"comm_{edition}_s"]
            least = row[f"least_batch_{edition}_tokens"]
            bound = row["compute_s"] >= sent
            assert row[f"compute_bound_{edition}"] == bound
            assert bound == (least is not None and batch >= least * (1 - 1e-9))
        assert row["comm_max_s"] <= row["comm_sum_s"] * (1 + 1e-12)
        rows = said["microbatches"][row["name"]]
        room = (
            said["capacity_bytes"] - row["memory_bytes"] + said["kept_bytes"]
        )
        assert (rows == 0) == (room <= 0)
        assert (
            rows < 2 or (rows - 1) * room < said["kept_bytes"] <= rows * room
        )
    for row in said["theory"]:
        assert row["x"] * row["y"] == pytest.approx(pod)
        assert row["ratio_sum"] <= row["ratio_max"]
        assert row["tokens_per_chip_sum"] >= row["tokens_per_chip_max"]


def test_pods_that_share_their_tokens_work_as_one_does_on_its_own():
    one, four = (
        roofline(LLAMA, f"{256 * n}xbook-tpu-v5e", 4e6 * n) for n in (1, 4)
    )
    assert (one.pods, four.pods) == (1, 4)
    assert (four.degrees, four.theory) == (one.degrees, one.theory)
    for alone, beside in zip(one.whole, four.whole, strict=True):
        least = 4 * alone.least_batch_tokens
        assert beside.least_batch_tokens == pytest.approx(least)
        assert beside.compute_s == alone.compute_s


def test_a_context_ring_goes_one_way_whether_it_closes_or_not():
    """n - 1 of n parts pass a chip at the rate of one direction of its link."""
    on = asked(LLAMA, "4096xbook-tpu-v5p", 1e6).mesh
    size = on.shape[on.nearest]
    one_way = on.dims[on.nearest].bandwidth / 2
    for n in (2, size // 2, size):
        passed = bandwidth(on, ring(on, n)) * (n - 1) / n
        assert passed == pytest.approx(one_way, rel=1e-3)


def test_on_switches_each_group_has_the_links_of_one_axis():
    (one,) = roofline(LLAMA, "1024xbook-h100", 4e6).theory
    assert (one.m_x, one.m_y) == (1, 1)


def test_pods_experts_and_lines_are_in_the_result():
    r = roofline(OSS, "1024xbook-tpu-v5e", 16e6)
    names = {s.name for s in r.schemes}
    assert {"DP across pods", "expert", "context"} <= names
    r = roofline(LLAMA, "60xbook-tpu-v5p", 1e6, shape=(1, 8, 7))
    assert any("4 of 60 chips are idle" in n for n in r.notes)
    assert any(n.endswith("half the bandwidth: y8 z7") for n in r.notes)


@pytest.mark.parametrize("name", ["256xtpu-v5e", "1xh100-sxm"])
def test_any_model_on_any_cluster(name):
    r = roofline("deepseek-v3", name, 2e6, layer="block")
    assert r.schemes and all(s.compute_s > 0 for s in r.schemes)
    json.dumps(r.to_dict(), allow_nan=False)


def test_bad_input_is_a_sentence():
    wrongs = {
        "batch": 0.0,
        "layer": "moon",
        "precision": "fp7",
        "shape": (3,),
        "context": 7,
        "experts": 5,
        "stages": -1,
    }
    for name, value in wrongs.items():
        with refusal():
            roofline(OSS, "64xbook-tpu-v5p", **{"batch": 1e6, name: value})


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("64xbook-tpu-v5p", 1.8e11),
        ("8xbook-h100", 450e9),
        ("1024xbook-h100", 50e9),
    ],
)
def test_pipeline_hops(name, rate):
    """N_mb + N_stages - 2 hops of 2 B D/(N_mb W) for one chip's tokens, to its neighbour: of 1 us
    on a torus, not half the way round; over NVLink where a node holds all stages.
    """
    on = asked(TOY, name, 1e6, BOOK_SUM)
    row = schemes.pipeline(on, 8, 32)
    chips, flops = on.mesh.chips, on.mesh.flops
    sent = (32 + 8 - 2) * 2 * (1e6 / (chips / 8) / 32) * 8192 / rate
    work = 4 * 1e6 * 8192 * 32768 * 32 / (chips * flops)
    assert (row.comm_sum_s, row.compute_s) == pytest.approx((sent, work))
    assert "22 %" in row.note
    short = schemes.pipeline(replace(on, batch=1e-3), 8, 32)
    far = on.mesh.fabric.latencies[-1 if rate == 50e9 else 0]
    assert short.comm_sum_s == pytest.approx(38 * far)


@pytest.mark.parametrize(
    ("on", "crosses"), [("1536xselene", True), ("4096xtpu-v5p", False)]
)
def test_tensor_parallelism_across_switches_is_said(on, crosses):
    """175B on Selene: the best split has Y = 2 over InfiniBand, where no run has it; a torus has no
    switch to leave.
    """
    found = roofline("gpt3-175b", on, 3.1e6)
    assert all(whole.y > 1 for whole in found.whole)
    said = [note for note in found.notes if "nearest switch" in note]
    assert len(said) == crosses
    if crosses:
        assert all("ib 96X·2Y" in whole.placement for whole in found.whole)
        assert "over ib" in said[0]


def test_the_split_of_the_book_by_hand() -> None:
    """LLaMA-2 13B on 16 x 16 x 16: 4DF/(Y W M_X) and 4BD/(X W M_Y), where pairs and eights of
    neighbours on a ring are lines, at half its rate.
    """
    B, D, F, W = 1e6, 5120, 13824, 1.8e11
    answer = roofline(
        "llama2-13b", "4096xtpu-v5p", B, exact=False, shape=(16, 16, 16)
    )
    alone, *_ = rows = [d for d in answer.degrees if d.y in (1, 8)]
    assert [(d.x, d.y) for d in rows] == [(4096, 1), (512, 8)]
    assert alone.tensor_s == 0
    assert alone.comm_sum_s == pytest.approx(4 * D * F / (3 * W), rel=1e-9)
    mixed = rows[1]
    data, tensor = 4 * D * F / (8 * 1.5 * W), 4 * B * D / (512 * 1.5 * W)
    assert mixed.data_s == pytest.approx(data, rel=1e-9)
    assert mixed.tensor_s == pytest.approx(tensor, rel=1e-9)
    assert mixed.comm_sum_s == pytest.approx(mixed.data_s + mixed.tensor_s)
    assert mixed.comm_sum_s == min(d.comm_sum_s for d in answer.degrees)
    least = min(d.comm_max_s for d in answer.degrees)
    assert all(d.comm_max_s <= 4 * least for d in answer.degrees)
