"""What cannot be trained is said in a sentence before anything starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from jobs import DEEPSEEK, GPT, LLAMA, MIXTRAL, SETTINGS, job  # noqa: E402

from meshwright.catalog import cluster  # noqa: E402
from meshwright.catalog import model as catalogue  # noqa: E402
from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.job import OPTIMIZERS, PRECISIONS, Job  # noqa: E402
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model  # noqa: E402
from meshwright.describe.training import settings  # noqa: E402
from meshwright.errors import BadInput  # noqa: E402
from meshwright.formats.toml import dump_job  # noqa: E402
from meshwright.layout.placement import placed  # noqa: E402
from meshwright.layout.stages import stage_layers  # noqa: E402
from meshwright.prediction.prediction import predict  # noqa: E402
from meshwright.train import rules  # noqa: E402
from meshwright.train.parallel import EXPERTS, grid

IMPOSSIBLE = {
    "heads 4 cannot be split": Layout(tp=3, dp=1),
    "must divide the 2 kv heads": Layout(tp=4, dp=1),
    "batch of 8 sequences cannot be split": Layout(dp=1, microbatch=3),
    "no counterpart in PyTorch: take one of gpipe, 1f1b": Layout(
        pp=2, dp=1, schedule="zb-h1"
    ),
    "computes every layer twice more": Layout(
        pp=2, dp=1, schedule="zbv", recompute="full"
    ),
    "recompute selective computes every layer twice more": Layout(
        pp=2, dp=1, schedule="zbv", recompute="selective"
    ),
    "layout.zero 3 with schedule dualpipev is not executed correctly": Layout(
        pp=2, dp=2, zero=3, schedule="dualpipev"
    ),
    "at least as many microbatches as stages, not 2 for pp 4": Layout(
        pp=4, dp=1, microbatch=4
    ),
    "scheme summa cannot be trained": Layout(dp=1, scheme="summa"),
    "needs a mixture of experts|experts 1 cannot be split": Layout(ep=2, dp=2),
    "runs at most": Layout(dp=8, tp=2, pp=4, cp=16),
    "cannot be cut over cp 3 in 6 chunks": Layout(cp=3, dp=1),
    "cp_exchange ring is not trained: take gather": Layout(
        cp=2, dp=1, cp_exchange="ring"
    ),
    "recompute .* is not trained: take none": Layout(
        dp=1, recompute="layernorm"
    ),
}


@pytest.mark.parametrize("says", IMPOSSIBLE)
def test_layouts(says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rules.demand(
            job(LLAMA, IMPOSSIBLE[says], 8 if "at most" not in says else 1024),
            SETTINGS,
        )


@pytest.mark.parametrize(
    ("model", "layout", "says"),
    [
        (LLAMA, Layout(pp=2, dp=1, schedule="zbv"), "cannot be halved"),
        (MIXTRAL, Layout(dp=1, recompute="op"), "kept one by one"),
    ],
)
def test_what_is_not_compiled(model: Model, layout: Layout, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rules.demand(job(model, layout, 8), replace(SETTINGS, compile=True))


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(BadInput, match="needs a C\\+\\+ compiler"):
        rules.demand(
            job(LLAMA, Layout(dp=1), 8), replace(SETTINGS, compile=True)
        )


@pytest.mark.parametrize(
    ("layout", "settings", "says"),
    [
        (
            Layout(dp=2, etp=2),
            {},
            "etp 2: split experts are not trained",
        ),
        (
            Layout(dp=3, ep=3),
            {},
            "experts 8 cannot be split 3 ways: ep may be 1, 2, 4, 8",
        ),
        (Layout(dp=2, ep=4), {}, "whose ranks it borrows"),
        (
            Layout(tp=2, dp=1, ep=2, sequence_parallel=False),
            {},
            "needs sequence_parallel",
        ),
        (
            Layout(dp=4, ep=2, zero=2),
            {"shards": 2},
            "train.shards with a mixture of experts",
        ),
    ],
)
def test_experts(layout: Layout, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rules.demand(job(MIXTRAL, layout, 12), replace(SETTINGS, **settings))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("deepseek-v3", "latent attention"),
        ("gemma2-9b", "norms_per_layer"),
        ("gpt-oss-20b", "sinks"),
    ],
)
def test_models(name: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rules.demand(job(catalogue(name), Layout(dp=1)), SETTINGS)


@pytest.mark.parametrize(
    ("layout", "settings", "says"),
    [
        (Layout(dp=4, zero=3), {"shards": 3}, "must divide dp 4"),
        (Layout(dp=4), {"shards": 2}, "zero 0 shards nothing"),
        (Layout(dp=1), {"device": "cuda"}, "GPUs"),
    ],
)
def test_settings(layout: Layout, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rules.demand(job(LLAMA, layout), replace(SETTINGS, **settings))


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
    with pytest.raises(BadInput, match=f"train.{name}: .*{says}"):
        settings({name: True})


def test_optimizers_and_numbers_that_are_not_trained() -> None:
    plain = job(LLAMA, Layout(dp=1))
    (away,) = rules.of_trainer(plain, Layout(dp=1, offload="optimizer"))
    assert away == "layout.offload optimizer is not trained: take none"
    for other, says in (
        (replace(plain, optimizer=OPTIMIZERS["muon"]), "optimizer muon"),
        (replace(plain, precision=PRECISIONS["bf16-pure"]), "bf16-pure"),
    ):
        with pytest.raises(BadInput, match=f"{says} is not trained: take"):
            rules.demand(other, SETTINGS)


def test_precision_and_ranks() -> None:
    with pytest.raises(BadInput, match="precision fp8 is not trained"):
        rules.demand(
            replace(job(LLAMA, Layout(dp=1)), precision=PRECISIONS["fp8"]),
            SETTINGS,
        )
    with pytest.raises(
        BadInput,
        match="the layout needs 2 ranks .* but the launcher started 4",
    ):
        rules.demand(job(LLAMA, Layout(dp=2)), SETTINGS, world=4)


def test_possible_layouts_pass() -> None:
    for layout in (
        Layout(dp=1),
        Layout(tp=2, pp=2, dp=1),
        Layout(pp=2, dp=1, schedule="dualpipev"),
        Layout(dp=2, zero=3),
    ):
        rules.demand(job(GPT, layout), SETTINGS)
    for layout in (
        Layout(dp=1),
        Layout(tp=2, dp=2, ep=4),
        Layout(cp=2, dp=1, ep=2),
    ):
        rules.demand(job(DEEPSEEK, layout), SETTINGS)


def test_experts_borrow_the_ranks_of_the_plan() -> None:
    """ep takes the nearest ranks: with tp 2 and ep 4, two tp groups share out the experts; beyond a
    node, ranks of both nodes.
    """
    near = placed(Layout(tp=2, dp=4, ep=4), (4, 2))
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
    near = placed(Layout(tp=2, dp=2, pp=2), (4, 2))
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


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (8, 4, [2, 2, 2, 2]),
        (7, 4, [2, 2, 2, 1]),
        (6, 4, [1, 2, 2, 1]),
        (5, 4, [1, 2, 1, 1]),
    ],
)
def test_uneven_stages(layers: int, stages: int, sizes: list[int]) -> None:
    found = stage_layers(layers, stages)
    assert [len(r) for r in found] == sizes
    assert [i for r in found for i in r] == list(range(layers))


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
        cluster(on),
        sequences,
        layout,
        seq=seq,
        precision=PRECISIONS["bf16"],
    )


JOBS = {
    "pp8 1f1b, 128 microbatches of 2": (
        on_gpus(
            "llama3-8b",
            "8xh100-sxm",
            Layout(pp=8, dp=1, microbatch=2),
            256,
            8192,
        ),
        "of pipeline stage 0 needs",
    ),
    "70b without sharding": (
        on_gpus(
            "llama3-70b",
            "64xh100-sxm",
            Layout(dp=64, zero=0, microbatch=8),
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
    with pytest.raises(
        BadInput,
        match=f"{says}.* but one h100-sxm has {H100_GIB} GiB: recompute",
    ):
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
            Layout(dp=64, zero=3, microbatch=1),
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
    with pytest.raises(BadInput, match="but one h100-sxm has"):
        rules.demand_chip(predicted, A_GPU)
    with pytest.raises(BadInput, match="but this GPU has"):
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
        with pytest.raises(BadInput, match="together, but this machine has"):
            rules.demand_memory(predicted, SETTINGS, world)


@pytest.mark.parametrize("to", ["torchrun", "sbatch"])
def test_export_refuses_what_has_no_room(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text(
        dump_job(JOBS["70b without sharding"][0])
        + '\n[train]\ndevice = "cuda"\n'
    )
    assert cli.run(["export", str(tmp_path / "job.toml"), "--to", to]) == 2
    told = capsys.readouterr()
    assert "GiB in this program" in told.err and told.out == ""


def test_memory_is_that_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks' peaks by `train.peak`, which `test_oracle` holds against the running program,
    decide, not the plan's bytes.
    """
    predicted = predict(job(LLAMA, Layout(tp=2, pp=2, dp=1)))
    need = rules.bytes_of_all(predicted, SETTINGS)
    kinds = ("weights", "gradients", "optimizer", "activations")
    assert need > 4 * sum(predicted.memory_bytes[kind] for kind in kinds)
    have = {"SC_PAGE_SIZE": 1.0, "SC_PHYS_PAGES": need}
    monkeypatch.setattr("os.sysconf", have.__getitem__)
    rules.demand_memory(predicted, SETTINGS, None)
    have["SC_PHYS_PAGES"] = 0.99 * need
    with pytest.raises(BadInput, match="together"):
        rules.demand_memory(predicted, SETTINGS, None)
