"""The optimal configurations that Subramanian et al. 2024 published, read from a file of that
format.

A file is JSON: `_gpus` and `_models` describe hardware and models, `data` holds strategy -> model
-> system -> `by_n` -> the best configuration for that many GPUs and its runners-up. Files come from
strangers: every field that is used is checked by the class that holds it, others are passed over,
every error is one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshwright.describe.assumptions import LBL
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.fields import Amount, Checked, Prose
from meshwright.describe.frozendict import EMPTY
from meshwright.describe.job import Job, Precision
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.errors import BadInput, unknown
from meshwright.layout.rules import demand_legal
from meshwright.prediction.prediction import Prediction
from meshwright.units import DAY_S

from ..sources import known, mapping, read_json

SCHEME = {
    "1d_tp": "megatron",
    "2d_tp_context": "context",
    "2d_tp_summa": "summa",
}
"""Their strategies -> our tensor-parallel schemes."""
FP16 = Precision(
    "fp16",
    weight_bytes=2.0,
    gradient_bytes=2.0,
    activation_bytes=2.0,
    gather_bytes=2.0,
)
"""They keep everything in two bytes; the optimizer's 12 bytes a parameter are
`Optimizer.state_bytes`.
"""
SAMPLES = {
    "gpt3_1T": 1e12 / 2048,
    "gpt3-1t": 1e12 / 2048,
    "vit_era5": 350_000 * 80.0,
    "vit-era5": 350_000 * 80.0,
}
"""Model by their name and by that of the catalogue -> sequences of a whole training run (their
figure 5): 1e12 tokens; 40 years of hourly ERA5 as they count, 80 times.
"""


@dataclass(frozen=True)
class Gpu(Checked):
    """One of `_gpus`: TFLOP/s, GB/s, seconds, shares."""

    matrix_flops_fp16: float
    vector_flops_fp16: float
    hbm_bandwidth: float
    nvlink_bandwidth: float
    nvlink_latency: float
    nvlink_eff: float
    ib_bandwidth: float
    ib_latency: float
    ib_eff: float
    element_size: float = 2e-9
    mask_element_size: float = 1e-9
    flops_units: float = 1e-12
    nic_factor: float = 1.0

    def conflict(self) -> str:
        """Units must be ours, and every GPU have one network card."""
        for name in (
            "element_size",
            "mask_element_size",
            "flops_units",
            "nic_factor",
        ):
            value, only = getattr(self, name), getattr(Gpu, name)
            if value != only:
                return (
                    f"{name} {value:g} is not supported, it must be {only:g}"
                )
        return ""


@dataclass(frozen=True)
class Transformer(Checked):
    """One of `_models`: l tokens, e hidden, h heads, depth layers, f feed-forward."""

    l: int
    e: int
    h: int
    depth: int
    f: int | None = None

    def conflict(self) -> str:
        """Widths as everywhere in that paper."""
        if self.e % self.h:
            return f"e {self.e} must be a multiple of h {self.h}"
        if self.f not in (None, 4 * self.e):
            return f"f {self.f} must be 4 e = {4 * self.e}, as everywhere in that paper"
        return ""


@dataclass(frozen=True)
class System(Checked):
    """Of a strategy and model: GPUs with that much memory in domains of `nvs`."""

    gpu: Prose
    nvs: int
    hbm_capacity_GB: float
    global_batch: int
    infeasible_n: tuple[int, ...] = ()


@dataclass(frozen=True)
class Near(Checked):
    """Ranks of each axis in a fast domain."""

    tp1: int = 1
    tp2: int = 1
    pp: int = 1
    dp: int = 1


@dataclass(frozen=True)
class Configuration(Checked):
    """A layout with its time and memory: tp1 = n1 is tp, tp2 = n2 is cp."""

    tp1: int
    tp2: int
    dp: int
    pp: int
    micro_batch_size: int
    nvs_placement: Near
    iteration_time_s: float
    memory_GB: float
    summa_nb: int = 1
    time_breakdown_s: Mapping[Prose, Amount] = EMPTY
    """This and what follows is published of the best configuration only."""
    memory_parts_GB: Mapping[Prose, Amount] = EMPTY
    training_days_paper_fig5: float | None = None


def run_days(p: Prediction) -> float:
    """Days of the whole training run of figure 5: samples / batch steps, one after the other; 0 of
    a model that the figure has not.
    """
    samples = SAMPLES.get(p.job.model.name, 0.0)
    return samples / p.job.batch * p.step_time_s / DAY_S


@dataclass(frozen=True)
class Saved:
    """One published configuration with its published numbers."""

    id: str
    """strategy/model/system/n/best, or .../runner-up-1 and so on."""
    job: Job
    """Under the assumption set lbl-2024, its layout included."""
    said: Configuration


@dataclass(frozen=True)
class SavedCase:
    """What was published for one strategy, model, system and number of GPUs."""

    id: str
    strategy: str
    model: str
    system: str
    job: Job
    """Without a layout."""
    saved: tuple[Saved, ...]
    """Best first; empty where the search of the authors found nothing that fits."""


def read_saved(file: Path) -> tuple[SavedCase, ...]:
    """The cases of a file, in its order. Raises BadInput."""
    root = read_json(file)
    cases = []
    gpus, models, data = (
        mapping(root.get(k), k) for k in ("_gpus", "_models", "data")
    )
    for strategy, by_model in data.items():
        if strategy not in SCHEME:
            raise unknown("strategy", strategy, SCHEME)
        for name, by_system in mapping(by_model, strategy).items():
            model = model_of(name, models.get(name))
            where = f"{strategy}/{name}"
            for system, entry in mapping(by_system, where).items():
                cases += _system(
                    (strategy, name, system),
                    model,
                    mapping(entry, f"{where}/{system}"),
                    gpus,
                )
    return tuple(cases)


def _system(
    key: tuple[str, str, str],
    model: Model,
    entry: Mapping[str, Any],
    gpus: Mapping[str, Any],
) -> list[SavedCase]:
    """The cases of one strategy, model and system."""
    where = "/".join(key)[:200]
    system = known(System, entry, where)
    chip, network = hardware(system, gpus.get(system.gpu))
    by_gpus = {
        _count(n, where): mapping(v, f"{where}/{n}")
        for n, v in mapping(entry.get("by_n"), f"{where}: by_n").items()
    }
    cases = []
    for n in sorted({*by_gpus, *system.infeasible_n}):
        id = f"{where}/{n}"
        cluster = Cluster(chip, network, n, key[2])
        job = Job(
            model,
            cluster,
            system.global_batch,
            precision=FP16,
            assumptions=LBL,
        )
        saved = (
            _configurations(id, job, by_gpus[n], key[0])
            if n in by_gpus
            else ()
        )
        cases.append(SavedCase(id, *key, job, saved))
    return cases


def _count(n: str, where: str) -> int:
    if not (n.isascii() and n.isdigit()) or not 0 < len(n) <= 7 or not int(n):
        raise BadInput(f"{where}: {n[:40]!r} is not a number of GPUs")
    return int(n)


def _configurations(
    id: str, job: Job, entry: Mapping[str, Any], strategy: str
) -> tuple[Saved, ...]:
    """The best configuration and its runners-up."""
    best = {**mapping(entry.get("config"), f"{id}: config"), **entry}
    others = entry.get("runners_up", [])
    if not isinstance(others, list):
        raise BadInput(f"{id}: runners_up must be a list of configurations")
    named = {f"runner-up-{i}": other for i, other in enumerate(others, 1)}
    return tuple(
        _saved(f"{id}/{name}", job, config, strategy)
        for name, config in {"best": best, **named}.items()
    )


def _saved(id: str, job: Job, config: Any, strategy: str) -> Saved:
    """A configuration with its time and memory."""
    said = known(Configuration, config, id)
    layout = layout_of(said, strategy)
    try:
        demand_legal(job, layout)
    except BadInput as error:
        raise BadInput(f"{id}: {error}") from None
    if layout.chips != job.cluster.chips:
        raise BadInput(
            f"{id}: its degrees are of {layout.chips} GPUs, not {job.cluster.chips}"
        )
    if job.model.layers % layout.pp or job.batch % (
        layout.dp * layout.microbatch
    ):
        raise BadInput(
            f"{id}: pp must divide the {job.model.layers} layers, dp x micro_batch_size the batch"
            f" of {job.batch}"
        )
    return Saved(id, replace(job, layout=layout), said)


def layout_of(said: Configuration, strategy: str) -> Layout:
    """Our layout of one of the configurations; optimizer state is sharded (ZeRO-1)."""
    names = {"tp": "tp1", "cp": "tp2", "dp": "dp", "pp": "pp"}
    placement = {}
    for axis, name in names.items():
        share = getattr(said.nvs_placement, name)
        placement[axis] = (share, getattr(said, name) // share)
    return Layout(
        tp=said.tp1,
        cp=said.tp2,
        dp=said.dp,
        pp=said.pp,
        microbatch=said.micro_batch_size,
        zero=1,
        scheme=SCHEME[strategy],
        panels=said.summa_nb if strategy == "2d_tp_summa" else 1,
        placement=placement,
    )


def model_of(name: str, shape: Any) -> Model:
    """Their transformer, which has no embedding and no head."""
    said = known(Transformer, shape, f"_models: {name[:60]}")
    return Model(
        name,
        layers=said.depth,
        hidden=said.e,
        heads=said.h,
        ffn=4 * said.e,
        vocab=0,
        seq=said.l,
        gated=False,
        attention="full",
        norm="layernorm",
        positions="none",
        bias=True,
        dropout=True,
    )


def hardware(system: System, gpu: Any) -> tuple[Chip, Network]:
    """A GPU of their tables in a fast domain, one network card a GPU beyond it."""
    said = known(Gpu, gpu, f"_gpus: {system.gpu[:60]}")
    chip = Chip(
        system.gpu,
        matrix_flops={"fp16": 1e12 * said.matrix_flops_fp16},
        vector_flops=1e12 * said.vector_flops_fp16,
        hbm_bytes=1e9 * system.hbm_capacity_GB,
        hbm_bandwidth=1e9 * said.hbm_bandwidth,
    )
    dims = tuple(
        Dim(
            name,
            1e9 * getattr(said, f"{name}_bandwidth"),
            getattr(said, f"{name}_latency"),
            size,
            efficiency=getattr(said, f"{name}_eff"),
        )
        for name, size in (("nvlink", system.nvs), ("ib", None))
    )
    return chip, Network(f"{system.gpu}-NVS{system.nvs}", dims, system.gpu)
