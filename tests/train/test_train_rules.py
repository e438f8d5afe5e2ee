"""What cannot be trained is said in a sentence before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from jobs import DEEPSEEK, GPT, LLAMA, MIXTRAL, SETTINGS, job  # noqa: E402
from small_runs import described  # noqa: E402

from layouts import cut  # noqa: E402
from meshwright.catalog import model as catalogue  # noqa: E402
from meshwright.describe.job import OPTIMIZERS, PRECISIONS, Job  # noqa: E402
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model  # noqa: E402
from meshwright.describe.training import settings  # noqa: E402
from meshwright.layout.placement import placed  # noqa: E402
from meshwright.layout.ranks import EXPERTS, grid
from meshwright.prediction.prediction import predict  # noqa: E402
from meshwright.train import rules  # noqa: E402
from refusals import refusal  # noqa: E402
from shell import Shell

IMPOSSIBLE = {
    "heads 4 cannot be split": cut("tp3"),
    "must divide the 2 kv heads": cut("tp4"),
    "batch of 8 sequences cannot be split": cut("microbatch3"),
    "meshwright allows schedule gpipe, 1f1b, interleaved, .*not zb-h1": cut(
        "pp2 zb-h1"
    ),
    "computes every layer twice more": cut("pp2 zbv full"),
    "recompute selective computes every layer twice more": cut(
        "pp2 zbv selective"
    ),
    "layout.zero 3 with schedule dualpipev is not executed correctly": cut(
        "pp2 dp2 zero3 dualpipev"
    ),
    "at least as many microbatches as stages, not 2 for pp 4": cut(
        "pp4 microbatch4"
    ),
    "meshwright allows scheme megatron, not summa": Layout(
        dp=1, scheme="summa"
    ),
    "has no experts: ep may be 1": cut("dp2 ep2"),
    "runs at most": cut("tp2 cp16 pp4 dp8"),
    "cannot be cut over cp 3 in 6 chunks": cut("cp3"),
    "meshwright allows cp_exchange gather, not ring": Layout(
        cp=2, dp=1, cp_exchange="ring"
    ),
    "recompute .* is not trained: take none": cut("layernorm"),
    "meshwright allows microbatch_group 0, not 4": replace(
        cut("pp2 interleave2 interleaved"), microbatch_group=4
    ),
}


@pytest.mark.parametrize("says", IMPOSSIBLE)
def test_layouts(says: str) -> None:
    with refusal(says):
        rules.demand(
            job(LLAMA, IMPOSSIBLE[says], 8 if "at most" not in says else 1024),
            SETTINGS,
        )


@pytest.mark.parametrize(
    ("model", "layout", "settings", "says"),
    [
        (LLAMA, cut("pp2 zbv"), {"compile": True}, "cannot be halved"),
        (MIXTRAL, cut("op"), {"compile": True}, "kept one by one"),
        (
            MIXTRAL,
            cut("dp2 etp2"),
            {},
            "meshwright allows etp 1, not 2",
        ),
        (
            MIXTRAL,
            cut("dp3 ep3"),
            {},
            "experts 8 cannot be split 3 ways: ep may be 1, 2, 4, 8",
        ),
        (MIXTRAL, cut("dp2 ep4"), {}, "whose ranks it borrows"),
        (MIXTRAL, cut("tp2 ep2 whole"), {}, "needs sequence_parallel"),
        (
            MIXTRAL,
            cut("dp4 ep2 zero2"),
            {"shards": 2},
            "train.shards with a mixture of experts",
        ),
        (catalogue("deepseek-v3"), Layout(dp=1), {}, "latent attention"),
        (catalogue("gemma2-9b"), Layout(dp=1), {}, "norms_per_layer"),
        (catalogue("gpt-oss-20b"), Layout(dp=1), {}, "sinks"),
        (LLAMA, cut("dp4 zero3"), {"shards": 3}, "must divide dp 4"),
        (LLAMA, Layout(dp=4), {"shards": 2}, "zero 0 shards nothing"),
        (LLAMA, Layout(dp=1), {"device": "cuda"}, "GPUs"),
    ],
    ids=lambda x: x.name if isinstance(x, Model) else str(x),
)
def test_models_and_settings(
    model: Model, layout: Layout, settings: dict[str, Any], says: str
) -> None:
    with refusal(says):
        rules.demand(job(model, layout, 12), replace(SETTINGS, **settings))


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with refusal("needs a C\\+\\+ compiler"):
        rules.demand(
            job(LLAMA, Layout(dp=1), 8), replace(SETTINGS, compile=True)
        )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("async_tp", "a pass of torch.compile"),
        ("scatter_gather", "1/tp of a boundary with layout.sequence_parallel"),
        ("float8", "FP8 is not trained"),
        ("muon", "AdamW in fp32"),
        ("cuda_graphs", "not captured as CUDA graphs"),
        ("cpu_offload", "stay on their device"),
        ("deepep", "PyTorch's all-to-all"),
        ("lora", "export --to axolotl"),
    ],
)
def test_what_other_trainers_have(name: str, says: str) -> None:
    """A sentence of its own, not that of a name that is unknown."""
    with refusal(f"train.{name}: .*{says}"):
        settings({name: True})


def test_optimizers_and_numbers_that_are_not_trained() -> None:
    plain = job(LLAMA, Layout(dp=1))
    (away,) = rules.of_trainer(plain, Layout(dp=1, offload="optimizer"))
    assert away == "layout.offload optimizer is not run: take none"
    for other, says in (
        (replace(plain, optimizer=OPTIMIZERS["muon"]), "optimizer muon"),
        (replace(plain, precision=PRECISIONS["bf16-pure"]), "bf16-pure"),
        (replace(plain, precision=PRECISIONS["fp8"]), "precision fp8"),
    ):
        with refusal(f"{says} is not trained: take"):
            rules.demand(other, SETTINGS)


def test_as_many_ranks_are_started_as_the_layout_has() -> None:
    with refusal("the layout needs 2 ranks .* but the launcher started 4"):
        rules.demand(job(LLAMA, Layout(dp=2)), SETTINGS, world=4)


def test_possible_layouts_pass() -> None:
    for layout in (
        Layout(dp=1),
        cut("tp2 pp2"),
        cut("pp2 dualpipev"),
        cut("dp2 zero3"),
    ):
        rules.demand(job(GPT, layout), SETTINGS)
    for layout in (
        Layout(dp=1),
        cut("tp2 dp2 ep4"),
        cut("cp2 ep2"),
    ):
        rules.demand(job(DEEPSEEK, layout), SETTINGS)


def test_experts_borrow_the_ranks_of_the_plan() -> None:
    """ep takes the nearest ranks: with tp 2 and ep 4, two tp groups share out the experts; beyond a
    node, ranks of both nodes.
    """
    near = placed(cut("tp2 dp4 ep4"), (4, 2))
    assert grid(near, EXPERTS)[0, :, :, 0].tolist() == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]
    assert grid(near)[0, :, 0].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    far = Layout(
        dp=4,
        pp=2,
        ep=4,
        placement={"tp": (1, 1), "cp": (1, 1), "dp": (2, 2), "pp": (2, 1)},
    )
    assert (
        grid(far, EXPERTS)[:, 0, :, 0].tolist()
        == [[0, 1, 4, 5], [2, 3, 6, 7]]
        == grid(far)[:, :, 0, 0].tolist()
    )


def test_ranks_stand_where_the_plan_places_them() -> None:
    """tp 2 and dp 2 in each of two nodes of four chips: pp crosses the nodes; or dp does."""
    near = placed(cut("tp2 pp2 dp2"), (4, 2))
    assert grid(near).tolist() == [[[[0, 1]], [[2, 3]]], [[[4, 5]], [[6, 7]]]]
    mixed = Layout(
        tp=2,
        dp=2,
        pp=2,
        placement={"tp": (2, 1), "cp": (1, 1), "dp": (1, 2), "pp": (2, 1)},
    )
    assert grid(mixed).tolist() == [[[[0, 1]], [[4, 5]]], [[[2, 3]], [[6, 7]]]]
    split = Layout(
        tp=4,
        dp=2,
        placement={"tp": (2, 2), "cp": (1, 1), "dp": (2, 1), "pp": (1, 1)},
    )
    assert grid(split)[0, :, 0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert np.array_equal(np.sort(grid(split).ravel()), np.arange(8))


A_GPU = replace(SETTINGS, device="cuda")
H100_GIB = 79.6  # 81,559 MiB, all of it: a set's risk is what keeps room
"""What can be allocated on one, of its 80 GB."""


def on_gpus(
    name: str, on: str, layout: Layout, sequences: int, seq: int
) -> Any:
    """A job of the catalogue."""
    model = catalogue(name)
    return Job(
        model,
        on,
        sequences,
        layout,
        seq=seq,
        precision="bf16",
    )


JOBS = {
    "pp8 1f1b, 128 microbatches of 2": (
        on_gpus(
            "llama3-8b",
            "8xh100-sxm",
            cut("pp8 microbatch2"),
            256,
            8192,
        ),
        "of pipeline stage 0 needs",
    ),
    "70b without sharding": (
        on_gpus(
            "llama3-70b",
            "64xh100-sxm",
            cut("dp64 zero0 microbatch8"),
            512,
            8192,
        ),
        "a rank needs",
    ),
}
"""Jobs of which the plan, or nobody, said that they fit."""


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("world", [None, 1])
def test_gpus_without_room_are_refused_wherever_ranks_start(
    name: str, world: int | None
) -> None:
    wanted, says = JOBS[name]
    with refusal(f"{says}.* but one h100-sxm has {H100_GIB} GiB: recompute"):
        rules.demand_memory(
            predict(wanted), A_GPU, world and int(wanted.layout.chips)
        )


def test_what_a_gpu_has_room_for_passes_to_the_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    predicted = predict(
        on_gpus(
            "llama3-8b",
            "64xh100-sxm",
            cut("dp64 zero3 microbatch1"),
            64,
            8192,
        )
    )
    rules.demand_memory(predicted, A_GPU, 64)
    need = sum(next(rules.peaks(predicted, A_GPU)).values())
    rules.demand_room(predicted, A_GPU, need, "this GPU")
    monkeypatch.setattr(rules, "capacity", lambda _: need)
    rules.demand_chip(predicted, A_GPU)
    monkeypatch.setattr(rules, "capacity", lambda _: 0.999 * need)
    with refusal("but one h100-sxm has"):
        rules.demand_chip(predicted, A_GPU)
    with refusal("but this GPU has"):
        rules.demand_room(predicted, A_GPU, 0.999 * need, "this GPU")


def test_ranks_of_one_machine_of_several_share_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under a launcher two of the four ranks are here."""
    predicted = predict(job(LLAMA, Layout(dp=4), 8))
    have = {
        "SC_PAGE_SIZE": 1.0,
        "SC_PHYS_PAGES": 0.6 * rules.bytes_of_all(predicted, SETTINGS),
    }
    monkeypatch.setattr("os.sysconf", have.__getitem__)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    rules.demand_memory(predicted, SETTINGS, 4)
    for world, local in ((4, "4"), (None, "1")):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
        with refusal("together, but this machine has"):
            rules.demand_memory(predicted, SETTINGS, world)


@pytest.mark.parametrize("to", ["torchrun", "sbatch"])
def test_export_refuses_what_has_no_room(
    to: str, tmp_path: Path, shell: Shell
) -> None:
    file = described(
        JOBS["70b without sharding"][0], f"{tmp_path}/job.toml", device="cuda"
    )
    told = shell("export", file, f"--to {to}", ends=2)
    assert "GiB in this program" in told.err and told.out == ""


def test_memory_is_that_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks' peaks by `train.peak`, which `test_oracle` holds against the running program,
    decide, not the plan's bytes.
    """
    predicted = predict(job(LLAMA, cut("tp2 pp2")))
    need = rules.bytes_of_all(predicted, SETTINGS)
    kinds = ("weights", "gradients", "optimizer", "activations")
    assert need > 4 * sum(predicted.memory_bytes[kind] for kind in kinds)
    have = {"SC_PAGE_SIZE": 1.0, "SC_PHYS_PAGES": need}
    monkeypatch.setattr("os.sysconf", have.__getitem__)
    rules.demand_memory(predicted, SETTINGS, None)
    have["SC_PHYS_PAGES"] = 0.99 * need
    with refusal("together"):
        rules.demand_memory(predicted, SETTINGS, None)
