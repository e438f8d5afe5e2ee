"""Readers of measurements: nccl-tests, tables of collectives, traces of torch.profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import BadInput
from meshwright.formats import kineto, nccl_tests
from meshwright.formats.machine import load_machine
from refusals import refusal
from shell import Shell

# The form of the program's output (its README and doc/PERFORMANCE.md); two nodes of two ranks,
# invented times of 20 us + bytes / 10 GB/s.
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


def place(size: int, us: float, bus: float = 1.5) -> str:
    """Time, algbw, busbw (times `bus`: of an all-reduce of four) and errors of one place."""
    rate = size / us / 1e3
    return f"{us:.2f}  {rate:.2f}  {bus * rate:.2f}  0"


def lines(bus: float = 1.5) -> str:
    """Lines of three sizes."""
    return "\n".join(
        f"     {size}        {size // 4}     float     sum      -1   "
        f"{place(size, 21 + size / 1e4, bus)}   {place(size, 19 + size / 1e4, bus)}"
        for size in (2**20, 2**21, 2**22)
    )


ROWS = lines()
# Measured on Perlmutter (NERSC), 4 A100 a node, published with arXiv 2410.00273: a few lines of the
# table.
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
    samples = nccl_tests.load_samples(file)
    assert [(s.kind, s.nodes, s.per_node, s.bytes) for s in samples] == [
        ("all_reduce", 2, 2, 2**n) for n in (20, 21, 22)
    ]
    line = nccl_tests.lines_by_group(samples)["all_reduce", 2, 2]
    assert line.latency == pytest.approx(
        20e-6, rel=1e-2
    ) and line.rate == pytest.approx(1e10, rel=1e-2)
    assert line.error < 1e-3


def test_the_text_says_the_collective_or_the_file_does(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_text(HEAD + ROWS)
    with refusal("does not say which collective"):
        nccl_tests.load_samples(file)
    file.write_text(
        f"# Collective test starting: reduce_scatter_perf\n{HEAD}{lines(0.75)}"
    )
    assert nccl_tests.load_samples(file)[0].kind == "reduce_scatter"


NCCL = Path(__file__).parent / "nccl"
EXPECTED = {
    k: v
    for k, v in json.loads((NCCL / "expected.json").read_text()).items()
    if k != "about"
}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_version_and_prefix_of_nccl_tests_is_read(name: str) -> None:
    told = EXPECTED[name]
    (found,) = (
        s
        for s in nccl_tests.load_samples(NCCL / name)
        if s.bytes == told["bytes"]
    )
    assert found.seconds == pytest.approx(told["seconds"], rel=1e-6)
    assert found.nodes == told.get(
        "nodes", 1
    ) and found.nodes * found.per_node == told.get(
        "ranks", told.get("nodes", 1) * told.get("per_node", 8)
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[prterun-host-1@1,0]<stdout>: ",
        "0: ",
        " 12: ",
        "[0] ",
        "node-3: ",
        "2026-05-05T10:00:00.123456789Z ",
        "[pod/nccl-launcher-x7/main] ",
        "May  5 10:00:00 node3 nccl[4711]: ",
        "launcher-1  | ",
    ],
)
def test_what_a_launcher_writes_before_a_line_changes_nothing(
    tmp_path: Path, prefix: str
) -> None:
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(HEAD + ROWS)
    plain = nccl_tests.load_samples(file)
    file.write_text(
        "".join(f"{prefix}{line}\r\n" for line in (HEAD + ROWS).splitlines())
    )
    assert nccl_tests.load_samples(file) == plain and len(plain) == 3


def test_lines_say_which_collective_and_how_many_ranks(tmp_path: Path) -> None:
    """By busbw over algbw, whatever a name or a list of ranks says: (n - 1) / n for a gather."""
    file = tmp_path / "all_gather_perf.txt"
    file.write_text(HEAD + lines(0.75))
    assert len(nccl_tests.load_samples(file)) == 3
    for bus in (1.5, 7 / 8):
        file.write_text(HEAD + lines(bus))
        with refusal(
            "of another collective, or of other ranks: .* be 0.75 times"
        ):
            nccl_tests.load_samples(file)


def test_a_time_that_contradicts_its_rate_is_refused(tmp_path: Path) -> None:
    """Whatever moved a column: size / time must be algbw, as far as both are printed."""
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(HEAD + ROWS.replace("125.86", "12.586"))
    with refusal(
        "algbw must be size / time, but 1048576 bytes in 12.586 us are not 8.33 GB/s"
    ):
        nccl_tests.load_samples(file)
    old = (NCCL / "all_reduce_perf_2021_old_format.txt").read_text()
    # a title whose column is not there
    file.write_text(old.replace("redop     time", "redop    root     time"))
    with refusal("algbw must be size / time"):
        nccl_tests.load_samples(file)


def test_times_of_wrong_results_are_refused(tmp_path: Path) -> None:
    """As on machines that damage what they send, where such lines took a hundred times as long."""
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(f"{HEAD}{ROWS}".removesuffix("0") + "18134\n")
    with refusal("says that 18134 elements came out wrong"):
        nccl_tests.load_samples(file)


CELL = st.sampled_from(
    [
        "1e999999999",
        "nan",
        "inf",
        "-5",
        "9" * 5000,
        "N/A",
        "#",
        "1e+06",
        "0",
        "x",
        "Rank",
        "on",
        "1.5.2",
        "125.86",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 15), CELL), max_size=5
    )
)
def test_damaged_output_is_samples_or_a_sentence(
    changes: list[tuple[int, int, str]],
) -> None:
    cells = [line.split(" ") for line in (HEAD + ROWS).splitlines()]
    for at, cell, text in changes:
        words = cells[at % len(cells)]
        full = [i for i, word in enumerate(words) if word] or [0]
        words[full[cell % len(full)] : full[cell % len(full)] + 1] = [text]
    try:
        found = list(
            nccl_tests.of_text(
                "\n".join(map(" ".join, cells)), "all_reduce", "x.txt"
            )
        )
    except BadInput as error:
        assert "\n" not in str(error) and len(str(error)) < 600
    else:
        assert all(
            0 < s.seconds < 1e9 and s.bytes > 0 and s.per_node * s.nodes > 1
            for s in found
        )


def test_the_time_of_a_launch_is_no_time_of_a_collective(
    tmp_path: Path,
) -> None:
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(HEAD.replace("   time", "cputime") + ROWS)
    with refusal("has no column time.*measure without -C"):
        nccl_tests.load_samples(file)


def test_columns_that_a_collective_leaves_blank(tmp_path: Path) -> None:
    """No operation where nothing is reduced (before 2.12), no times in place where there is no such
    exchange.
    """
    file = tmp_path / "alltoall_perf.txt"
    row = f"   1048576     32768     float     -1   {place(2**20, 100, 0.75)}   N/A  N/A  N/A  N/A\n"
    file.write_text(HEAD + row)
    assert [(s.kind, s.seconds) for s in nccl_tests.load_samples(file)] == [
        ("all_to_all", pytest.approx(100e-6))
    ]


def test_runs_after_each_other_keep_their_collectives_and_groups(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log.txt"
    one = HEAD.replace("node1", "node0")
    file.write_text(
        f"+ srun ./all_reduce_perf -g 1\n{HEAD}{ROWS}\n+ srun ./all_gather_perf -g 1\n{one}{lines(0.75)}\n"
    )
    assert [
        (s.kind, s.nodes, s.per_node) for s in nccl_tests.load_samples(file)
    ] == [("all_reduce", 2, 2)] * 3 + [("all_gather", 1, 4)] * 3


def test_groups_of_a_split_are_groups(tmp_path: Path) -> None:
    """NCCL_TESTS_SPLIT: ranks are numbered over all groups (util.cu, writeDeviceReport)."""
    file = tmp_path / "all_reduce_perf.txt"
    head = HEAD.splitlines()
    for rank, group in enumerate((0, 1, 0, 1)):
        head[3 + rank] = head[3 + rank].replace("Group  0", f"Group  {group}")
    file.write_text("\n".join([*head, lines(1.0)]))
    found = nccl_tests.load_samples(file)
    assert {(s.nodes, s.per_node) for s in found} == {(2, 1)}
    head[4] = head[4].replace("Group  1", "Group  0")
    file.write_text("\n".join([*head, lines(1.0)]))
    with refusal("different numbers of ranks \\(1, 1, 2\\)"):
        nccl_tests.load_samples(file)


def test_collectives_that_are_not_modelled_are_left_out(
    tmp_path: Path,
) -> None:
    """They are none of the collective before them."""
    file = tmp_path / "log.txt"
    names = ("gather", "all_reduce", "scatter", "hypercube", "alltoallv")
    file.write_text(
        "".join(f"+ ./{name}_perf -g 1\n{HEAD}{ROWS}\n" for name in names)
    )
    found = nccl_tests.load_samples(file)
    assert [s.kind for s in found] == ["all_reduce"] * 3


def test_times_that_fall_with_size_have_a_rate_of_null(
    tmp_path: Path, shell: Shell
) -> None:
    """Of sends in our own word; the line through them is flat, and its rate no number of
    JSON.
    """
    table = tmp_path / "collectives.csv"
    rows = ("send,1,2,1e6,2e-3", "send,1,2,2e6,1e-3")
    table.write_text("\n".join((",".join(nccl_tests.COLUMNS), *rows)))
    words = (
        f"calibrate --read {table} --on h100-sxm -o {tmp_path}/m.toml --json"
    )
    (line,) = json.loads(shell(words).out)["collectives"]
    assert line["collective"] == "send" and line["rate_bytes_per_s"] is None


def test_a_table_of_collectives_becomes_a_measured_network(
    tmp_path: Path, shell: Shell
) -> None:
    table, out = tmp_path / "perlmutter.csv", tmp_path / "machine.toml"
    table.write_text(PERLMUTTER)
    fits = shell.json(f"calibrate --read {table} --on a100-40 -o {out}")[
        "collectives"
    ]
    assert [(f["collective"], f["nodes"]) for f in fits] == [
        ("all_gather", 2),
        ("all_gather", 8),
    ]
    # 1 GiB in 39.5 ms
    assert fits[0]["rate_bytes_per_s"] == pytest.approx(27e9, rel=0.1)
    gather = load_machine(out).network.dims[1].collectives["all_gather"]
    assert gather.points == ((2.0, 8.0), (32768.0, 1048576.0))
    assert gather.seconds == (3.359e-05, 9.3395e-05, 6.92e-05, 0.0002671)


def test_groups_that_no_table_holds_are_said(
    tmp_path: Path, shell: Shell
) -> None:
    """Two nodes of two ranks: of neither dimension alone."""
    both, out = tmp_path / "all_reduce_perf.txt", tmp_path / "m.toml"
    both.write_text(HEAD + ROWS)
    words = f"calibrate --on a100-40 -o {out} --read"
    assert "at two sizes, but of 2 nodes x 2 ranks" in shell.refused(
        f"{words} {both}"
    )
    one = tmp_path / "one.txt"
    one.write_text(f"all_reduce_perf\n{HEAD.replace('node1', 'node0')}{ROWS}")
    said = shell(f"{words} {both},{one}").out
    assert "2 nodes x 2 ranks by formula" in said
    job = f"predict llama3.2-1b --on 4x{out} --tp 4 --batch 8seq"
    notes = [
        shell.json(f"{job} {more}")["notes"]
        for more in ("", "--assumptions pytorch")
    ]
    unread = "are not read by assumptions realistic: --assumptions pytorch"
    assert unread in str(notes[0]) and "not read" not in str(notes[1])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hello", "no measured collectives"),
        ("collective,nodes\n", "no column gpus_per_node"),
        (ROWS, "does not list its ranks"),
        (HEAD.split("#\n#  ")[0] + ROWS, "has no line of titles"),
        (
            "collective,nodes,gpus_per_node,size_bytes,time_mean_s\nallreduce,1,8,1024,inf\nallreduce,1,8,nan,1\n",
            "no measured collectives",
        ),
    ],
)
def test_what_is_no_measurement_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "all_gather_perf.txt"
    file.write_text(text)
    with refusal(sentence):
        nccl_tests.load_samples(file)


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("folder.toml", "it is a folder itself"),
        ("m.json", "must end in .toml"),
        ("m.toml/x.toml", "cannot be written"),
    ],
)
def test_where_nothing_can_be_written_is_told_first(
    to: str, says: str, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "m.toml").touch()
    (table := tmp_path / "t.csv").write_text(PERLMUTTER)
    assert says in shell.refused(
        f"calibrate --read {table} --on a100-40 -o {tmp_path / to}"
    )


def event(
    name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
    }


CPU = [
    event("aten::linear", 0, 100),
    event("aten::addmm", 10, 80),
    event("aten::copy_", 20, 10),
    event("aten::scaled_dot_product_attention", 200, 50),
    event("aten::_scaled_dot_product_flash_attention_for_cpu", 205, 40),
    event("aten::mul", 300, 7),
    event("c10d::_allgather_base_", 0, 30, tid=2),
    event("ProfilerStep#1", 0, 1000, "user_annotation"),
]


def test_operators_count_without_those_inside(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(
        gzip.compress(
            json.dumps({"traceEvents": [*CPU, {"ph": "M"}, "junk"]}).encode()
        )
    )
    found = kineto.load_kernels(file)
    assert {kind: round(c.seconds * 1e6) for kind, c in found.items()} == {
        "gemm": 90,
        "attention": 50,
        "all_gather": 30,
        "memory": 10,
        "elementwise": 7,
    }
    assert found["gemm"].calls == 2
    two = [*CPU, event("ProfilerStep#2", 1000, 500, "user_annotation")]
    assert kineto.classes(two).notes == (
        *found.notes,
        "seconds and calls are those of 2 steps",
    )


NATIVE = "void at::native::"
NAMES = {
    "all_gather": [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    ],
    "reduce_scatter": ["ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"],
    "all_reduce": ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"],
    "send": ["ncclDevKernel_SendRecv"],
    "gemm": [
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>",
        "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8",
        "nvjet_hsh_192x192_64x3_2x1_v_bz_coopA_NTN",
        "triton_tem_fused_addmm_12",
        "gemv2T_kernel_val<int>",
        "cudnn_infer_ampere_scudnn_128x32_relu_small_nn_v1",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float>",
        "void wgrad_alg0_engine<float>",
        "void implicit_convolve_sgemm<float>",
        "sm80_xmma_fprop_implicit_gemm_bf16bf16",
        "void ck_tile::kentry<256, 1, ck_tile::GemmKernel<>>",
        "aten::convolution_backward",
        "void splitKreduce_kernel<32, 16>",
        "void fbgemm_gpu::f8f8bf16_gemm<float>",
        "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>",
        "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelI",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "_attn_fwd",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<>>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7",
    ],
    "optimizer": [
        NATIVE
        + "(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
        NATIVE
        + "multi_tensor_apply_kernel<TensorListMetadata<4>, LAMBStage1Functor<float>>",
        "lamb_stage2",
        "aten::_fused_adamw_",
    ],
    "memory": [
        "Memcpy DtoD (Device -> Device)",
        NATIVE + "elementwise_kernel<128, 2,"
        " gpu_kernel_impl<direct_copy_kernel_cuda(TensorIteratorBase&)::{lambda()#2}>>",
        "__amd_rocclr_copyBuffer",
        NATIVE
        + "(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<>",
        "void cudnn::ops::nchwToNhwcKernel<>",
        "Memset (Device)",
    ],
    "elementwise": [
        NATIVE + "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
        NATIVE + "vectorized_elementwise_kernel<4,"
        " launch_clamp_scalar(TensorIteratorBase&)::{lambda()#1}::operator()() const>",
        NATIVE + "reduce_kernel<512, 1, ReduceOp<float>>",
        "triton_poi_fused_mm_convolution_3",
        "triton_red_fused_all_gather_into_tensor_1",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>",
        NATIVE + "convert_element_type_kernel<LAMBDA>",
    ],
    "all_to_all": [
        "ncclDevKernel_AllToAll_RING",
        "void deep_ep::intranode::dispatch<8>",
    ],
    "reduce": ["ncclDevKernel_Reduce_Sum_f32_RING_LL"],
    "communication": [
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    ],
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, names in NAMES.items() for name in names],
)
def test_a_name_says_what_a_kernel_does(kind: str, name: str) -> None:
    """On a GPU, where operators of the CPU do not count."""
    events = [event(name, 0, 5, "kernel"), event("aten::mm", 0, 50)]
    assert list(kineto.classes(events)) == [kind]


EXCHANGE = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


@pytest.mark.parametrize(
    "others",
    [
        [{"args": {"Collective name": "all_to_allv"}}],
        [{}, event("nccl:all_to_all", 95, 20, "gpu_user_annotation")],
        [
            {"args": {"correlation": 7}},
            event("cudaLaunchKernel", 12, 2, "cuda_runtime", 3)
            | {"args": {"correlation": 7}},
            event("nccl:all_to_all", 10, 6, "user_annotation", 3),
        ],
        [
            {"args": {"External id": 9}},
            event("c10d::alltoall_base_", 10, 6)
            | {"args": {"External id": 9}},
        ],
    ],
)
def test_nccl_sends_of_an_all_to_all_belong_to_it(
    others: list[dict[str, Any]],
) -> None:
    """By the argument, the annotation on the stream, the operation around the launch, or the
    operation's number.
    """
    kernel = event(EXCHANGE, 100, 5, "kernel") | others[0]
    assert list(kineto.classes([kernel, *others[1:]])) == ["all_to_all"]
    assert list(
        kineto.classes([event(EXCHANGE, 200, 5, "kernel"), *others[1:]])
    ) == ["send"]


def test_streams_that_overlap_are_told() -> None:
    after = [
        event("a_gemm", 0, 10, "kernel"),
        event("b_gemm", 10, 10, "kernel", tid=2),
    ]
    assert kineto.classes(after).notes == ()
    (note,) = kineto.classes(
        [*after, event("ncclDevKernel_AllReduce_Sum", 5, 10, "kernel", tid=3)]
    ).notes
    assert (
        note
        == "streams overlap: the seconds of all classes add up to 30 us, in a wall time of"
        " 20 us"
    )


def test_categories_of_old_traces_count_and_nothing_to_count_is_a_sentence(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.json"
    file.write_text(
        json.dumps(
            [
                event("volta_sgemm_128x64_nn", 0, 5, "Kernel"),
                event("aten::mul", 0, 9, "Operator"),
            ]
        )
    )
    assert kineto.load_kernels(file) == {"gemm": (5e-6, 1)}
    file.write_text(
        json.dumps([event("ProfilerStep#1", 0, 9, "user_annotation")])
    )
    with refusal("holds neither kernels nor operators"):
        kineto.load_kernels(file)


@pytest.mark.parametrize(
    "text",
    [
        "[1",
        "{}",
        '{"traceEvents": 3}',
        "",
        "[]",
        '[{"ph": "X", "name": "a", "ts": 1, "dur": 1' + 400 * "0" + "}]",
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with refusal():
        kineto.load_kernels(tmp_path / "t.json")


def test_the_verb_shows_a_trace(tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": CPU}))
    found = shell.json(f"calibrate --read {tmp_path}/t.json")["kernels"][0]
    assert found["time_s"]["gemm"] == pytest.approx(90e-6)
    shell(f"calibrate --read {tmp_path}/missing.json", ends=2)
