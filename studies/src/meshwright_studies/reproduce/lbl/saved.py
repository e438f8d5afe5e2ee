"""The optimal configurations that Subramanian et al. 2024 published, read from a file of that
format.

A file is JSON: `_gpus` and `_models` describe hardware and models, `data` holds strategy -> model
-> system -> `by_n` -> the best configuration for that many GPUs and its runners-up. Files come from
strangers: everything is checked, every error is one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from meshwright.describe.assumptions import LBL
from meshwright.describe.chip import Chip
from meshwright.describe.cluster import Cluster
from meshwright.describe.job import Job, Precision
from meshwright.describe.layout import Layout
from meshwright.describe.model import Model
from meshwright.describe.network import Dim, Network
from meshwright.errors import BadInput, unknown

from ..sources import read_json

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
SAMPLES = {"gpt3_1T": 1e12 / 2048, "vit_era5": 350_000 * 80.0}
"""Sequences of a whole training run (their figure 5): 1e12 tokens; 40 years of hourly ERA5 as they
count, 80 times.
"""
ALIKE = {
    "element_size": 2e-9,
    "mask_element_size": 1e-9,
    "flops_units": 1e-12,
    "nic_factor": 1.0,
}
"""Fields of a GPU that must have these values where they are given: units, and one network card a
GPU.
"""


@dataclass(frozen=True)
class Saved:
    """One published configuration with its published numbers."""

    id: str
    """strategy/model/system/n/best, or .../runner-up-1 and so on."""
    job: Job
    """Under the assumption set lbl-2024, its layout included."""
    time_s: float
    memory_bytes: float
    time_parts: Mapping[str, float] = field(default_factory=dict)
    memory_parts: Mapping[str, float] = field(default_factory=dict)
    days: float | None = None


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
    gpus = object_at(root, "_gpus", "")
    models = object_at(root, "_models", "")
    for strategy, by_model in object_at(root, "data", "").items():
        if strategy not in SCHEME:
            raise unknown("strategy", strategy, SCHEME)
        for name, by_system in mapping(by_model, strategy).items():
            model = model_of(name, object_at(models, name, "_models"))
            for system, entry in mapping(
                by_system, f"{strategy}/{name}"
            ).items():
                cases += _system(
                    (strategy, name, system),
                    model,
                    mapping(entry, f"{strategy}/{name}/{system}"),
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
    gpu = str(entry.get("gpu"))
    chip, network = hardware(
        gpu,
        object_at(gpus, gpu, "_gpus"),
        whole_at(entry, "nvs", where),
        number_at(entry, "hbm_capacity_GB", where),
    )
    batch = whole_at(entry, "global_batch", where)
    by_gpus = {
        _count(n, where): mapping(v, f"{where}/{n}")
        for n, v in object_at(entry, "by_n", where).items()
    }
    none = entry.get("infeasible_n", [])
    if not isinstance(none, list):
        raise BadInput(f"{where}: infeasible_n must be a list of GPU counts")
    cases = []
    for n in sorted({*by_gpus, *(_count(n, where) for n in none)}):
        id = f"{where}/{n}"
        cluster = Cluster(chip, network, n, key[2])
        job = Job(model, cluster, batch, precision=FP16, assumptions=LBL)
        saved = (
            _configurations(id, job, by_gpus[n], key) if n in by_gpus else ()
        )
        cases.append(SavedCase(id, *key, job, saved))
    return cases


def _count(n: Any, where: str) -> int:
    text = str(n)
    if (
        not (text.isascii() and text.isdigit())
        or not 0 < len(text) <= 7
        or int(text) == 0
    ):
        raise BadInput(f"{where}: {text[:40]!r} is not a number of GPUs")
    return int(text)


def _configurations(
    id: str, job: Job, entry: Mapping[str, Any], key: tuple[str, str, str]
) -> tuple[Saved, ...]:
    """The best configuration and its runners-up."""
    config = {
        **object_at(entry, "config", id),
        **{k: entry.get(k) for k in ("iteration_time_s", "memory_GB")},
    }
    others = entry.get("runners_up", [])
    if not isinstance(others, list):
        raise BadInput(f"{id}: runners_up must be a list of configurations")
    best = _saved(f"{id}/best", job, config, key[0])
    best = replace(
        best,
        time_parts=_parts(entry, "time_breakdown_s", id, 1.0),
        memory_parts=_parts(entry, "memory_parts_GB", id, 1e9),
        days=(
            number_at(entry, "training_days_paper_fig5", id)
            if "training_days_paper_fig5" in entry and key[1] in SAMPLES
            else None
        ),
    )
    rest = (
        _saved(
            f"{id}/runner-up-{i}",
            job,
            mapping(o, f"{id}/runner-up-{i}"),
            key[0],
        )
        for i, o in enumerate(others, 1)
    )
    return (best, *rest)


def _parts(
    entry: Mapping[str, Any], name: str, where: str, unit: float
) -> dict[str, float]:
    """A table of numbers, in SI units; empty where there is none."""
    parts = object_at(entry, name, where) if name in entry else {}
    return {
        k: unit * number_at(parts, k, f"{where}: {name}", zero=True)
        for k in parts
    }


def _saved(
    id: str, job: Job, config: Mapping[str, Any], strategy: str
) -> Saved:
    """A configuration with its time and memory."""
    layout = layout_of(config, strategy, id)
    if layout.chips != job.cluster.chips:
        raise BadInput(
            f"{id}: tp1 {layout.tp} x tp2 {layout.cp} x pp {layout.pp} x dp {layout.dp} is not"
            f" {job.cluster.chips} GPUs"
        )
    near = math.prod(shares[0] for shares in layout.placement.values())
    if near > job.cluster.sizes[0]:
        raise BadInput(
            f"{id}: nvs_placement puts {near} GPUs in a domain of {job.cluster.sizes[0]}"
        )
    if job.model.layers % layout.pp or job.batch % (
        layout.dp * layout.microbatch
    ):
        raise BadInput(
            f"{id}: pp must divide the {job.model.layers} layers, dp x micro_batch_size the batch"
            f" of {job.batch}"
        )
    if job.model.heads % layout.tp:
        raise BadInput(
            f"{id}: tp1 {layout.tp} must divide the {job.model.heads} heads"
        )
    time = number_at(config, "iteration_time_s", id)
    memory = 1e9 * number_at(config, "memory_GB", id)
    return Saved(id, replace(job, layout=layout), time, memory)


def layout_of(config: Mapping[str, Any], strategy: str, where: str) -> Layout:
    """Our layout of one of the configurations: tp1 = n1 is tp, tp2 = n2 is cp; optimizer state is
    sharded (ZeRO-1).
    """
    degrees = {
        "tp": whole_at(config, "tp1", where),
        "cp": whole_at(config, "tp2", where),
        "dp": whole_at(config, "dp", where),
        "pp": whole_at(config, "pp", where),
    }
    near = object_at(config, "nvs_placement", where)
    names = {"tp": "tp1", "cp": "tp2", "dp": "dp", "pp": "pp"}
    placement = {}
    for axis, degree in degrees.items():
        share = (
            whole_at(near, names[axis], f"{where}: nvs_placement")
            if names[axis] in near
            else 1
        )
        if degree % share:
            raise BadInput(
                f"{where}: nvs_placement {names[axis]} {share} must divide {names[axis]} {degree}"
            )
        placement[axis] = (share, degree // share)
    panels = (
        whole_at(config, "summa_nb", where) if strategy == "2d_tp_summa" else 1
    )
    return Layout(
        tp=degrees["tp"],
        cp=degrees["cp"],
        dp=degrees["dp"],
        pp=degrees["pp"],
        microbatch=whole_at(config, "micro_batch_size", where),
        zero=1,
        scheme=SCHEME[strategy],
        panels=panels,
        placement=placement,
    )


def model_of(name: str, shape: Mapping[str, Any]) -> Model:
    """Their transformer: l tokens, e hidden, h heads, depth layers, f feed-forward; no embedding
    and no head.
    """
    where = f"_models/{name[:60]}"
    l, e, h, depth = (
        whole_at(shape, k, where) for k in ("l", "e", "h", "depth")
    )
    f = whole_at(shape, "f", where) if "f" in shape else 4 * e
    if e % h:
        raise BadInput(f"{where}: e {e} must be a multiple of h {h}")
    if f != 4 * e:
        raise BadInput(
            f"{where}: f {f} must be 4 e = {4 * e}, as everywhere in that paper"
        )
    return Model(
        name,
        layers=depth,
        hidden=e,
        heads=h,
        ffn=f,
        vocab=0,
        seq=l,
        gated=False,
        attention="full",
        norm="layernorm",
        positions="none",
        bias=True,
        dropout=True,
    )


def hardware(
    name: str, gpu: Mapping[str, Any], nvs: int, hbm_gb: float
) -> tuple[Chip, Network]:
    """A GPU of their tables (TFLOP/s, GB/s, GB, s) in a fast domain of `nvs`, one network card a
    GPU beyond it.
    """
    where = f"_gpus/{name[:60]}"
    for key, value in ALIKE.items():
        if key in gpu and number_at(gpu, key, where) != value:
            raise BadInput(
                f"{where}: {key} {gpu[key]} is not supported, it must be {value:g}"
            )
    matrix, vector = (
        1e12 * number_at(gpu, f"{kind}_flops_fp16", where)
        for kind in ("matrix", "vector")
    )
    chip = Chip(
        name,
        matrix_flops={"fp16": matrix},
        vector_flops=vector,
        hbm_bytes=1e9 * hbm_gb,
        hbm_bandwidth=1e9 * number_at(gpu, "hbm_bandwidth", where),
    )
    dims = (_dim("nvlink", gpu, where, nvs), _dim("ib", gpu, where, None))
    return chip, Network(f"{name}-NVS{nvs}", dims, name)


def _dim(
    name: str, gpu: Mapping[str, Any], where: str, size: int | None
) -> Dim:
    bandwidth, latency, share = (
        number_at(gpu, f"{name}_{k}", where)
        for k in ("bandwidth", "latency", "eff")
    )
    return Dim(name, 1e9 * bandwidth, latency, size, efficiency=share)


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise BadInput(f"{where[:200]} must be a table")
    return value


def object_at(
    parent: Mapping[str, Any], key: str, where: str
) -> Mapping[str, Any]:
    """parent[key], which must be a JSON object."""
    return mapping(
        parent.get(key), f"{where}{': ' if where else ''}{key[:60]}"
    )


def number_at(
    parent: Mapping[str, Any], key: str, where: str, zero: bool = False
) -> float:
    """parent[key], a finite number above 0 (or from 0 on)."""
    value: Any = parent.get(key)
    fine = (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < 1e30
    )
    if not fine or not (value > 0 or (zero and value == 0)):
        raise BadInput(
            f"{where[:200]}: {key[:60]} must be a positive number, not {str(value)[:40]!r}"
        )
    return float(value)


def whole_at(parent: Mapping[str, Any], key: str, where: str) -> int:
    """parent[key], a whole number from 1 to 1e9."""
    value = number_at(parent, key, where)
    if value != int(value) or value > 1e9:
        raise BadInput(
            f"{where[:200]}: {key[:60]} must be a whole number from 1 to 1e9, not"
            f" {str(parent[key])[:40]}"
        )
    return int(value)
