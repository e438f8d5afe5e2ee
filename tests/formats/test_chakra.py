"""Chakra traces: what a reader of the published schema finds in them, and that every rank can run
its own to the end.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import message_factory, proto
from google.protobuf.unknown_fields import UnknownFieldSet

from meshwright import Job, parameters, predict
from meshwright.cli.main import main
from meshwright.count.model import executed_flops
from meshwright.formats import chakra, chakra_step
from meshwright.prediction.replay import replay
from meshwright.schedule.timeline import timeline_of_order
from refusals import refusal
from shell import Shell

COMP, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
SCHEMA = {
    "AttributeProto": {
        "name": (1, "STRING"),
        "int32_val": (7, "INT32"),
        "int64_val": (9, "INT64"),
        "uint64_val": (13, "UINT64"),
        "bool_val": (27, "BOOL"),
        "string_val": (29, "STRING"),
    },
    "GlobalMetadata": {"version": (1, "STRING")},
    "Node": {
        "id": (1, "UINT64"),
        "name": (2, "STRING"),
        "type": (3, "INT32"),
        "data_deps": (5, "UINT64"),
        "duration_micros": (7, "UINT64"),
        "attr": (10, "MESSAGE"),
    },
}
"""The messages of et_def.proto of MLCommons Chakra, 21585d8, that are written: field -> (number,
type); an attribute has one of its values."""


def message_classes() -> dict[str, Any]:
    """Name -> class of a message of the schema, as Google's library reads it."""
    file = pb.FileDescriptorProto(
        name="et.proto", package="c", syntax="proto3"
    )
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            field = message.field.add(name=key, number=number)
            field.type = getattr(pb.FieldDescriptorProto, f"TYPE_{kind}")
            field.label = 3 if key in ("attr", "data_deps") else 1
            if kind == "MESSAGE":
                field.type_name = ".c.AttributeProto"
            if key.endswith("_val"):
                field.oneof_index = 0
                message.oneof_decl or message.oneof_decl.add(name="value")
    return message_factory.GetMessages([file])


MESSAGES = message_classes()


def nodes(path: Path) -> list[dict[str, Any]]:
    """Nodes of a file, each with its attributes by name; nothing in it is beside the schema."""
    data = io.BytesIO(path.read_bytes())
    head = proto.parse_length_prefixed(MESSAGES["c.GlobalMetadata"], data)
    assert head.version == "0.0.4"
    every = []
    while one := proto.parse_length_prefixed(MESSAGES["c.Node"], data):
        assert not len(UnknownFieldSet(one))
        fields = {f: getattr(one, f) for f in SCHEMA["Node"]}
        own = {a.name: getattr(a, a.WhichOneof("value")) for a in one.attr}
        every.append({**fields, **own})
    return every


Ranks = list[list[dict[str, Any]]]


def traces(folder: Path, job: Job, **layout: Any) -> tuple[Any, Ranks, Any]:
    """(prediction, nodes of each rank, communicators)."""
    prediction = predict(job, **layout)
    ranks, _ = chakra_step.write_chakra(prediction, str(folder / "step"))
    groups = json.loads((folder / "step.groups.json").read_text())
    every = [nodes(folder / f"step.{n}.et") for n in range(ranks)]
    return prediction, every, {int(k): v for k, v in groups.items()}


def finish_s(ranks: Ranks, groups: dict[int, list[int]]) -> float:
    """Seconds until all ranks are done where messages take no time, each computing and sending its
    collectives in turn; every message and collective is of the same bytes for all who take part.
    """
    ends: list[dict[int, float]] = [{} for _ in ranks]
    done = [0] * len(ranks)
    mail: dict[tuple[int, int, int], tuple[float, int]] = {}
    waiting: dict[tuple[int, int], dict[int, tuple[float, Any]]] = defaultdict(
        dict
    )
    counts = [defaultdict(int) for _ in ranks]
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(ranks):
            while done[rank] < len(program):
                one = program[done[rank]]
                start = max(
                    (ends[rank][d] for d in one["data_deps"]), default=0.0
                )
                if one["type"] == COLLECTIVE:
                    group = int(one["pg_name"])
                    assert rank in groups[group]
                    key = group, counts[rank][group]
                    what = one["comm_type"], one["comm_size"]
                    waiting[key][rank] = start, what
                    if len(waiting[key]) < len(groups[group]):
                        break
                    starts, whats = zip(*waiting[key].values(), strict=True)
                    assert len({*whats}) == 1
                    start = max(starts)
                    counts[rank][group] += 1
                elif one["type"] == RECEIVE:
                    key3 = one["comm_src"], rank, one["comm_tag"]
                    if key3 not in mail:
                        break
                    sent, size = mail.pop(key3)
                    assert size == one["comm_size"]
                    start = max(start, sent)
                elif one["type"] == SEND:
                    key3 = rank, one["comm_dst"], one["comm_tag"]
                    assert key3 not in mail
                    mail[key3] = start, one["comm_size"]
                ends[rank][one["id"]] = start + one["duration_micros"] / 1e6
                done[rank] += 1
                moved = True
    assert done == [len(program) for program in ranks], "ranks wait for ever"
    assert not mail
    return max(max(times.values()) for times in ends)


SMALL = Job("llama3-8b", "8xh100-sxm", batch=16)


@pytest.mark.parametrize(
    "layout",
    [
        {"pp": 4, "zero": 1},
        {"pp": 4, "interleave": 2, "zero": 1},
        {"pp": 4, "schedule": "zbv"},
        {"pp": 4, "schedule": "zb-h1", "recompute": "full:2"},
        {"pp": 2, "recompute": "full"},
        {"zero": 3},
    ],
    ids=str,
)
def test_a_trace_takes_what_the_replay_takes_without_a_network(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    prediction, ranks, groups = traces(tmp_path, SMALL, **layout)
    one = replay(prediction)
    place = prediction.schedule.placement(
        int(prediction.layout.pp), int(prediction.layout.interleave)
    )
    free = timeline_of_order(
        one.timeline.order, place, one.stages, 0.0
    ).makespan_s
    update = float(prediction.step.update)
    assert finish_s(ranks, groups) == pytest.approx(free + update, rel=2e-4)


@pytest.mark.parametrize(
    ("model", "chips", "layout"),
    [
        ("llama3-8b", 16, {"tp": 2, "cp": 2, "pp": 2, "zero": 1}),
        ("llama3-8b", 16, {"tp": 2, "zero": 3, "dp_replicate": 2}),
        ("llama3-8b", 8, {"zero": 2, "framework": "fsdp"}),
        ("mixtral-8x7b", 32, {"tp": 2, "pp": 2, "ep": 8, "zero": 1}),
        ("mixtral-8x7b", 16, {"tp": 2, "etp": 2, "ep": 4, "zero": 1}),
        ("deepseek-v3", 16, {"pp": 2, "ep": 8, "zero": 1}),
        ("llama3-8b", 16, {"tp": 2, "pp": 4, "schedule": "zb-h2"}),
    ],
    ids=str,
)
def test_every_rank_can_run_to_its_end(
    tmp_path: Path, model: str, chips: int, layout: dict[str, Any]
) -> None:
    job = Job(model, f"{chips}xh100-sxm", batch=16, seq=2048)
    prediction, ranks, groups = traces(tmp_path, job, **layout)
    assert len(ranks) == chips
    assert finish_s(ranks, groups) > 0
    for program in ranks:
        assert [one["id"] for one in program] == [*range(1, len(program) + 1)]
        assert all(d < one["id"] for one in program for d in one["data_deps"])
        assert not any(one["is_cpu_op"] for one in program)


def place(**axes: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Axis -> ranks (in a node, across nodes)."""
    return {**dict.fromkeys(("tp", "cp", "dp", "pp"), (1, 1)), **axes}


@pytest.mark.parametrize(
    ("model", "chips", "layout", "of", "wanted", "to"),
    [
        # tp nearest, then dp, then pp: rank 5 = 101 is tp 1, dp 0, pp 1
        (
            "llama3-8b",
            8,
            {"tp": 2, "pp": 2, "zero": 1},
            5,
            [[4, 5], [5, 7]],
            {1},
        ),
        # dp fills a node of 8, tp lies across nodes
        (
            "llama3-8b",
            16,
            {"tp": 2, "placement": place(tp=(1, 2), dp=(8, 1))},
            3,
            [[*range(8)], [3, 11]],
            set(),
        ),
        # in a node tp 2, dp 2, pp 2; over four nodes tp 2, dp 2
        (
            "llama3-8b",
            32,
            {
                "tp": 4,
                "pp": 2,
                "placement": place(tp=(2, 2), dp=(2, 2), pp=(2, 1)),
            },
            9,
            [[0, 1, 8, 9], [9, 11, 25, 27]],
            {13},
        ),
        # four ranks share the experts out, the next four hold them again
        (
            "mixtral-8x7b",
            8,
            {"ep": 4, "zero": 1},
            0,
            [[*range(4)], [0, 4], [*range(8)]],
            set(),
        ),
    ],
)
def test_groups_of_a_rank_by_hand(
    tmp_path: Path,
    model: str,
    chips: int,
    layout: dict[str, Any],
    of: int,
    wanted: list[list[int]],
    to: set[int],
) -> None:
    """Whom a rank meets, and to whom it sends."""
    job = Job(model, f"{chips}xh100-sxm", batch=16)
    _, ranks, groups = traces(tmp_path, job, **layout)
    met = {
        tuple(groups[int(one["pg_name"])])
        for one in ranks[of]
        if one["type"] == COLLECTIVE
    }
    assert met == {*map(tuple, wanted)}
    assert {one["comm_dst"] for one in ranks[of] if one["type"] == SEND} == to


def test_bytes_of_tensor_parallelism_by_hand(tmp_path: Path) -> None:
    # Megatron with sequence parallelism: two gathers and two scatters a layer and pass of the
    # whole 8192 x 4096 in 2 bytes, of which a rank of a gather begins with an eighth
    _, ranks, _ = traces(tmp_path, SMALL.with_(batch=1), tp=8)
    first = [
        (one["comm_type"], one["comm_size"])
        for one in ranks[0]
        if one["type"] == COLLECTIVE and one["name"].startswith("F 0 layer 7 ")
    ]
    whole = 8192 * 4096 * 2
    assert first == [(2, whole // 8), (7, whole)] * 2


def test_bytes_of_gradients_and_weights_by_hand(tmp_path: Path) -> None:
    # ZeRO-1 on 8 replicas: gradients of 4 bytes are scattered, shards of weights of 2 gathered
    prediction, ranks, _ = traces(tmp_path, SMALL, zero=1)
    n = parameters(SMALL.model)
    sent = [one for one in ranks[3] if one["type"] == COLLECTIVE]
    assert [(one["comm_type"], one["comm_size"]) for one in sent] == [
        (7, n * 4),
        (2, n * 2 / 8),
    ]
    # ZeRO-3: weights before both passes of each microbatch, gradients after each backward
    m = prediction.microbatches
    _, ranks, _ = traces(tmp_path, SMALL, zero=3)
    total: dict[int, int] = defaultdict(int)
    for one in ranks[3]:
        if one["type"] == COLLECTIVE:
            total[one["comm_type"]] += one["comm_size"]
    assert total == {2: 2 * m * n * 2 / 8, 7: m * n * 4}


def test_work_is_that_of_the_job(tmp_path: Path) -> None:
    job = SMALL.with_(recompute="full")
    prediction, ranks, _ = traces(tmp_path, job, tp=2, pp=2)
    said = sum(one.get("num_ops", 0) for program in ranks for one in program)
    how = prediction.job.how.count
    kernel = prediction.job.attention_kernel
    matrix = 16 * executed_flops(SMALL.model, SMALL.T, how, kernel, "full")
    # norms, rotations, activations and the optimizer's sums are no matrix products
    assert matrix < said < 1.03 * matrix


@pytest.mark.parametrize(
    ("job", "layout", "said"),
    [
        (SMALL, {"pp": 4, "schedule": "dualpipe"}, "holds each stage twice"),
        (Job("llama3-70b", "1024xh100-sxm", batch=1024), {"tp": 8}, "--batch"),
    ],
)
def test_what_no_trace_says_is_refused(
    tmp_path: Path, job: Job, layout: dict[str, Any], said: str
) -> None:
    with refusal(said):
        chakra_step.write_chakra(
            predict(job, **layout), str(tmp_path / "step")
        )


def test_the_command_writes_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[model]\nname = "llama3-8b"\n[cluster]\non = "8xh100-sxm"\n'
        '[job]\nbatch = "16seq"\n[layout]\ntp = 2\nzero = 1\n'
    )
    folder = tmp_path / "traces"
    assert (
        main(["export", str(plan), "--to", "chakra", "-o", str(folder)]) == 0
    )
    assert len([*folder.glob("step.*.et")]) == 8
    assert "--comm-group-configuration" in capsys.readouterr().out
    assert main(["export", str(plan), "--to", "chakra"]) == 2
    assert "-o FOLDER" in capsys.readouterr().err
    assert main(["export", str(plan), "--to", "chakra", "--time", "3"]) == 2
    assert "--time is for --to sbatch: chakra has" in capsys.readouterr().err


def test_a_node_of_large_numbers() -> None:
    said = chakra.work_attributes(3e15, 5e9) + chakra.group(7)
    data = chakra.node(300, "F 0 up", COMP, [1, 299], 1234567, said)
    one = MESSAGES["c.Node"].FromString(data)
    assert (one.id, one.name, one.type, one.duration_micros) == (
        300,
        "F 0 up",
        4,
        1234567,
    )
    assert [*one.data_deps] == [1, 299]
    values = {a.name: a for a in one.attr}
    assert values["num_ops"].int64_val == 3 * 10**15
    assert values["tensor_size"].uint64_val == 5 * 10**9
    assert values["pg_name"].string_val == "7"
    # a reader that knows each field writes the same bytes again
    assert one.SerializeToString(deterministic=True) == data


def test_a_trace_is_no_job_and_refused_by_name(
    shell: Shell, tmp_path: Path
) -> None:
    """By every verb that takes a file, with the reason and what can be had instead."""
    trace = tmp_path / "trace.0.et"
    trace.write_bytes(b"\x0a\x05\x30\x2e\x30\x2e\x34\x20\x01\x80\xff")
    for verb in ("read", "predict", "plan", "advise"):
        said = shell.refused(f"{verb} {trace} --on 8xh100")
        assert "is a Chakra trace" in said and "--to chakra" in said, verb
