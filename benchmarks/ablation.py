"""Every law of the default assumption set switched off in turn: what each is worth on the published
runs.

    python benchmarks/ablation.py                 the tables of docs/physics.md to stdout
    python benchmarks/ablation.py -o docs/physics.md    written between its markers

Each law has a process of its own, which changes the catalogue it has read and validates all rows.
Nothing is fitted again: what a law is worth is what the other laws, at their own values, do not
make up for. The second table lists the values that only runs tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pages import each_alone, written

from meshwright.describe import fitted
from meshwright.describe import framework as profiles
from meshwright.describe import kernels as constants
from meshwright.describe.assumptions import REALISTIC, Assumptions
from meshwright.describe.cluster import Cluster
from meshwright.describe.kernels import Kernels
from meshwright.describe.recompute import RECOMPUTE
from meshwright.describe.software import Software
from meshwright.prediction.classes import EXPERTS
from meshwright_studies.validate import (
    Validation,
    hardware,
    jobs,
    published,
    validate,
)
from meshwright_studies.validate.markdown import markdown_table
from meshwright_studies.validate.rows import Row
from meshwright_studies.validate.stats import stats


def same(how: Assumptions) -> Assumptions:
    """The set as it is."""
    return how


@dataclass(frozen=True)
class Law:
    """What is switched off, and how."""

    name: str
    framework: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every framework; a row's own setting of that name goes too."""
    holding: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every framework's `[holding]`."""
    kernels: Callable[[Kernels], Mapping[str, Any]] | None = None
    """Constants of every kind of chip."""
    how: Callable[[Assumptions], Assumptions] = same
    recompute: Callable[[str], str] | None = None
    """What a row's recomputation is taken as."""
    own_clock: bool = True
    """A row's machine has the clock that its source states."""


def word(mode: str) -> str:
    """A policy as one of three words, as long as a layout knew no others."""
    return (
        mode
        if mode in RECOMPUTE
        else "selective"
        if mode == "core_attn"
        else "none"
    )


def usual(machine: Cluster) -> Cluster:
    """The machine with the clock of its kind of chip."""
    return replace(machine, chip=replace(machine.chip, clock=None))


def chip(**values: Any) -> Callable[[Assumptions], Assumptions]:
    """The set with other fields of its chip."""
    return lambda how: replace(how, chip=replace(how.chip, **values))


def network(**values: Any) -> Callable[[Assumptions], Assumptions]:
    """The set with other fields of its network."""
    return lambda how: replace(how, network=replace(how.network, **values))


def attention(**values: float) -> Callable[[Kernels], Mapping[str, Any]]:
    """Every fused kernel with other constants."""
    return lambda k: {
        "attention": {
            name: replace(law, **values) for name, law in k.attention.items()
        }
    }


def fixed(**values: Any) -> Callable[[Kernels], Mapping[str, Any]]:
    """Constants with the same value on every kind of chip."""
    return lambda _: values


def newest(k: Kernels) -> Mapping[str, Any]:
    """Every fused kernel as the newest one."""
    last = list(k.attention.values())[-1]
    return {"attention": dict.fromkeys(k.attention, last)}


NOTHING_OFF = Law("none: all laws")
LAWS = (
    NOTHING_OFF,
    Law(
        "products by shape: tiles, waves, depth (one share for each chip)",
        kernels=fixed(depth=0.0, waves=0.0, units=1),
    ),
    Law("memory traffic beside arithmetic", kernels=fixed(added=0.0)),
    Law(
        "sums in fp32 that products add to (as other traffic)",
        kernels=lambda k: {"added_sums": k.added},
    ),
    Law("gap between kernels", kernels=fixed(launch_s=0.0)),
    Law(
        "clock under load",
        kernels=fixed(clock=1.0, training=1.0),
        own_clock=False,
    ),
    Law("clock of a machine whose source has it", own_clock=False),
    Law("clock under a lower power limit", kernels=fixed(power_exponent=0.0)),
    Law("attention's ramp with the length", kernels=attention(length=0.0)),
    Law("attention by generation of kernel", kernels=newest),
    Law("attention's backward rate", kernels=attention(backward=1.0)),
    Law("unaligned heads of unfused attention", kernels=fixed(alignment=0.0)),
    Law("quantisation of FP8 and FP4", kernels=fixed(quantise={})),
    Law("share of the FP8 and FP4 peaks", kernels=fixed(fp8=1.0, fp4=1.0)),
    Law(
        "what each expert's products cost beside their tiles",
        kernels=fixed(expert_s=0.0, crowd_weights=0.0),
    ),
    Law(
        "element-wise passes by software",
        {"elementwise": 1.0, "elementwise_compiled": 1.0, "norm": "fused"},
    ),
    Law(
        "biases, dropout and sums in one kernel (each by itself)",
        {"biases": "apart"},
    ),
    Law("host seconds of a layer", {"host_s": 0.0}),
    Law("CUDA graphs", {"cuda_graphs": "off"}),
    Law("seconds of a step", {"step_s": 0.0}),
    Law("traffic of the optimizer", how=chip(optimizer=1.0)),
    Law(
        "collectives as NCCL makes them (the faster of ring and tree)",
        how=network(collective="best"),
    ),
    Law("overlap of tensor parallelism", {"tp_overlap": "off"}),
    Law(
        "gradients of an input reduced by each of its modules (together)",
        {"input_gradients": "together"},
    ),
    Law("overlap of context parallelism", {"cp_overlap_share": 0.0}),
    Law("overlap of the experts' all-to-all", {"ep_overlap": False}),
    Law(
        "data parallelism by software (hidden everywhere)",
        {
            "gradient_overlap": profiles.framework(
                "megatron-core"
            ).gradient_overlap,
            "dp_overlap": "all",
        },
    ),
    Law(
        "gradients summed as the software does",
        {"gradient_collective": "reduce-scatter"},
    ),
    Law(
        "gradients of microbatches added up apart (by the products)",
        {"weight_gradient": "apart"},
    ),
    Law("gathers of whole weights in 2021", {"gather_share": 1.0}),
    Law(
        "recomputation by parts and layers (none, selective or full)",
        recompute=word,
    ),
    Law("stage messages cut by tp", {"stage_message": "whole"}),
    Law(
        "a step in a run of steps (zero bubble)",
        {"step_barrier": "global norm"},
    ),
)


def switched_off(law: Law) -> Assumptions:
    """Change what this process has read of the catalogue; the set to validate with."""
    if law.framework or law.holding:
        every = profiles.frameworks()
        every.update(
            {
                name: replace(
                    by,
                    **law.framework,
                    holding=replace(by.holding, **law.holding),
                )
                for name, by in every.items()
            }
        )
        said = jobs.software_of
        names = {f.name for f in fields(Software)} & set(law.framework)
        unsaid: dict[str, Any] = dict.fromkeys(names)
        jobs.software_of = lambda row: replace(
            said(row), settings=replace(said(row).settings, **unsaid)
        )
    if law.kernels:
        found = constants.all_kernels()
        found.update(
            {name: replace(k, **law.kernels(k)) for name, k in found.items()}
        )
    if law.recompute:
        policy, taken = jobs.policy, law.recompute
        jobs.policy = lambda row, shape: policy(row, shape)._replace(
            mode=taken(policy(row, shape).mode)
        )
    if not law.own_clock:
        machine = hardware.cluster_of_row
        hardware.cluster_of_row = lambda row: usual(machine(row))
    return law.how(REALISTIC)


def without(law: Law, rows: Sequence[Row] | None = None) -> Validation:
    """All published rows, or some, without a law: this process's catalogue is changed."""
    how = switched_off(law)
    return validate(published() if rows is None else rows, how)


COLUMNS = (
    "law switched off",
    "all: median",
    "mean",
    "bias",
    "dense: median",
    "experts: median",
    "held out: median",
    "regret",
)


def line(law: Law) -> tuple[str, ...]:
    """What a law is worth; errors and regret in percent."""
    v = without(law)
    runs = v.having("step_time")
    every, dense, experts, apart = (
        stats([r.ratio for r in rows if r.ratio])
        for rows in (
            runs,
            [r for r in runs if EXPERTS not in r.kind.split(", ")],
            [r for r in runs if EXPERTS in r.kind.split(", ")],
            v.having("step_time", held_out=True),
        )
    )
    shown = [every["median_abs_error"], every["mean_abs_error"]]
    medians = [of["median_abs_error"] for of in (dense, experts, apart)]
    regret = v.overall["ranking"]["regret_mean"]
    return (
        law.name,
        *_percents(shown),
        f"{100 * every['bias']:+.1f}",
        *_percents([*medians, regret]),
    )


def _percents(values: Sequence[float | None]) -> Iterator[str]:
    return ("" if value is None else f"{100 * value:.1f}" for value in values)


def marked() -> Iterator[tuple[str, ...]]:
    """(name, places, prior, value) of each number that is fitted to runs."""
    for of in fitted.fitted_parameters():
        places = ", ".join(place.replace(":", " ") for place in of.where)
        yield of.name, places, f"{of.prior:.3g}", f"{of.value:.3g}"


def tables() -> str:
    """Both tables."""
    known = list(marked())
    return "\n\n".join(
        (
            "Errors of step times in percent; each law off, the others as they are.",
            markdown_table(COLUMNS, each_alone(line, LAWS)),
            f"Numbers fitted to runs: {len(known)}.",
            markdown_table(("number", "where", "prior", "fitted"), known),
        )
    )


if __name__ == "__main__":
    written(__doc__, tables)
