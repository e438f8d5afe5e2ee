"""Readers of measurements: nccl-tests, tables of collectives, traces of torch.profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli import main
from meshwright.errors import BadInput
from meshwright.formats import kineto, nccl_tests
from meshwright.formats.machine import load_machine

# The form of the program's output (its README and doc/PERFORMANCE.md); two nodes of two ranks, invented times of 20 us + bytes / 10 GB/s.
HEAD = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validate: 1
#
# Using devices
#  Rank  0 Group  0 Pid  11 on    node0 device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid  12 on    node0 device  1 [0x0f] NVIDIA A100-SXM4-80GB
#  Rank  2 Group  0 Pid  11 on    node1 device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  3 Group  0 Pid  12 on    node1 device  1 [0x0f] NVIDIA A100-SXM4-80GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = "\n".join(
    f"     {size}        {size // 4}     float     sum      -1   {20 + size / 1e4 + 1:.2f}    9.8   14.7      0   {20 + size / 1e4 - 1:.2f}  9.9   14.8    N/A"
    for size in (2**20, 2**21, 2**22)
)
# Measured on Perlmutter (NERSC), 4 A100 a node, published with arXiv 2410.00273: a few lines of the table.
PERLMUTTER = """# size_bytes: the full vector
collective,gpus_total,nodes,gpus_per_node,size_bytes,time_mean_s,t_out_us,t_in_us
allgather,2,2,1,32768,3.359e-05,37.7,29.48
allgather,2,2,1,1048576,9.3395e-05,95.38,91.41
allgather,2,2,1,33554432,0.00130815,1325,1291.3
allgather,2,2,1,1073741824,0.039503,41441,37565
allgather,8,8,1,32768,6.92e-05,75.14,63.26
allgather,8,8,1,1048576,0.0002671,269.7,264.5
"""


def test_nccl_tests_are_read_and_fitted(tmp_path: Path) -> None:
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(HEAD + ROWS + "\n# Out of bounds values : 0 OK\n")
    samples = nccl_tests.load(file)
    assert [(s.kind, s.nodes, s.per_node, s.bytes) for s in samples] == [
        ("all_reduce", 2, 2, 2**n) for n in (20, 21, 22)
    ]
    line = nccl_tests.fits(samples)["all_reduce", 2, 2]
    assert line.latency == pytest.approx(20e-6, rel=1e-2) and line.rate == pytest.approx(1e10, rel=1e-2)
    assert line.error < 1e-3


def test_the_text_says_the_collective_or_the_file_does(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text(HEAD + ROWS)
    with pytest.raises(BadInput, match="does not say which collective"):
        nccl_tests.load(file)
    file.write_text("# Collective test starting: reduce_scatter_perf\n" + HEAD + ROWS)
    assert nccl_tests.load(file)[0].kind == "reduce_scatter"


def test_a_table_of_collectives_becomes_a_measured_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = tmp_path / "perlmutter.csv", tmp_path / "machine.toml"
    table.write_text(PERLMUTTER)
    assert main(["calibrate", "--read", str(table), "--on", "a100-40", "-o", str(out), "--json"]) == 0
    fits = json.loads(capsys.readouterr().out)["collectives"]
    assert [(f["collective"], f["nodes"]) for f in fits] == [("all_gather", 2), ("all_gather", 8)]
    assert fits[0]["rate_bytes_per_s"] == pytest.approx(27e9, rel=0.1)  # 1 GiB in 39.5 ms
    gather = load_machine(out).network.dims[1].collectives["all_gather"]
    assert gather.points == ((2.0, 8.0), (32768.0, 1048576.0))
    assert gather.seconds == (3.359e-05, 9.3395e-05, 6.92e-05, 0.0002671)


@pytest.mark.parametrize(
    ("text", "sentence"), [("hello", "no measured collectives"), ("collective,nodes\n", "no column gpus_per_node"), (ROWS, "does not list its ranks"),
     ("collective,nodes,gpus_per_node,size_bytes,time_mean_s\nallreduce,1,8,1024,inf\nallreduce,1,8,nan,1\n", "no measured collectives")]
)  # fmt: skip
def test_what_is_no_measurement_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "all_gather_perf.txt"
    file.write_text(text)
    with pytest.raises(BadInput, match=sentence):
        nccl_tests.load(file)


@pytest.mark.parametrize(("to", "says"), [("folder.toml", "it is a folder itself"), ("m.json", "must end in .toml"), ("m.toml/x.toml", "cannot be written")])  # fmt: skip
def test_where_nothing_can_be_written_is_told_first(
    to: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "m.toml").touch()
    (table := tmp_path / "t.csv").write_text(PERLMUTTER)
    assert main(["calibrate", "--read", str(table), "--on", "a100-40", "-o", str(tmp_path / to)]) == 2
    assert says in capsys.readouterr().err


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}


CPU = [
    event("aten::linear", 0, 100), event("aten::addmm", 10, 80), event("aten::copy_", 20, 10),
    event("aten::scaled_dot_product_attention", 200, 50), event("aten::_scaled_dot_product_flash_attention_for_cpu", 205, 40),
    event("aten::mul", 300, 7), event("c10d::_allgather_base_", 0, 30, tid=2), event("ProfilerStep#1", 0, 1000, "user_annotation"),
]  # fmt: skip


def test_operators_count_without_those_inside(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"traceEvents": [*CPU, {"ph": "M"}, "junk"]}).encode()))
    found = kineto.load(file)
    assert {kind: round(c.seconds * 1e6) for kind, c in found.items()} == {
        "gemm": 90, "attention": 50, "all_gather": 30, "memory": 10, "elementwise": 7,
    }  # fmt: skip
    assert found["gemm"].calls == 2


def test_on_a_gpu_its_kernels_count() -> None:
    names = {
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": "gemm", "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>": "gemm",
        "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT": "gemm", "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>": "attention",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL": "reduce_scatter",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "all_reduce", "ncclDevKernel_SendRecv": "send", "Memcpy DtoD (Device -> Device)": "memory",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>": "elementwise",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor>": "optimizer",
    }  # fmt: skip
    for name, kind in names.items():
        assert list(kineto.classes([event(name, 0, 5, "kernel"), event("aten::mm", 0, 50)])) == [kind], name


@pytest.mark.parametrize(
    "text",
    ["[1", "{}", '{"traceEvents": 3}', "", "[]", '[{"ph": "X", "name": "a", "ts": 1, "dur": 1' + 400 * "0" + "}]"],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(BadInput):
        kineto.load(tmp_path / "t.json")


def test_the_verb_shows_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": CPU}))
    assert main(["calibrate", "--read", f"{tmp_path}/t.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["kernels"][0]
    assert found["time_s"]["gemm"] == pytest.approx(90e-6)
    assert main(["calibrate", "--read", f"{tmp_path}/missing.json"]) == 2
