"""The constants of catalog/transports, fitted again to what they are from: `python
tests/cost/nccl_fit.py`.

Deterministic: one number after the other is made larger or smaller as long as the mean of sqrt(e^2
+ 0.02^2) falls, where e is the logarithm of predicted over measured; steps shrink where neither
  helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from meshwright import network
from meshwright.cost.network import Fabric
from meshwright.describe.assumptions import NetworkTime
from meshwright.describe.transport import Transport, transport
from meshwright_studies import shipped
from published_rows import Row, published, rows_of

KINDS = {
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
}
LEAST_STEP, ROUNDS, SOFT = 3e-3, 40, 0.02
Numbers = dict[str, float]


class Rows(NamedTuple):
    """Measured collectives as columns."""

    kind: Any
    g: Any
    nodes: Any
    bytes: Any
    seconds: Any
    chip: Any

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]]) -> Rows:
        """From one row a collective."""
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    def those(self, keep: Any) -> Rows:
        """Some of them."""
        return Rows(*(column[keep] for column in self))

    def predicted(self, fabric: Fabric) -> Any:
        """Seconds of each."""
        found = np.zeros(len(self.bytes))
        for kind in np.unique(self.kind):
            at = self.kind == kind
            found[at] = fabric.time(
                str(kind), self.bytes[at], (self.g[at], self.nodes[at])
            )
        return found


def perlmutter() -> Rows:
    """816 NCCL tests, arXiv 2410.00273."""
    return Rows.of(
        (
            KINDS[r["collective"]],
            float(r["gpus_per_node"]),
            float(r["nodes"]),
            float(r["size_bytes"]),
            float(r["time_mean_s"]),
            "a100-40",
        )
        for r in rows_of(shipped.shipped_text("runs/perlmutter.csv"))
    )


def tables() -> Rows:
    """A sample of measured tables of seven chips."""
    return Rows.of(
        (
            r["collective"],
            float(r["gpus"]),
            1.0,
            float(r["bytes"]),
            float(r["seconds"]),
            r["chip"],
        )
        for r in published("nccl_tables")
    )


def releases(processes: int = 8) -> dict[str, Rows]:
    """All-reduce of 8 A100 in a node by run, as nccl-tests ran it with so many processes: NCCL of
    2021, 2022 and 2023.
    """
    rows = published("nccl_releases")
    kept = [r for r in rows if int(r["processes"]) == processes]
    return {
        run: Rows.of(all_reduce(r, 8, 1) for r in kept if r["run"] == run)
        for run in dict.fromkeys(r["run"] for r in kept)
    }


def all_reduce(r: Row, gpus: str | int, nodes: str | int) -> tuple[Any, ...]:
    """A row of a table of all-reduces, of A100 where it names no network."""
    size, seconds = float(r["bytes"]), float(r["seconds"])
    on = r.get("network", "a100-80")
    return "all_reduce", float(gpus), float(nodes), size, seconds, on


def between() -> dict[str, tuple[str, Rows]]:
    """All-reduces of nodes of 8 GPUs by run and nodes, each with its network."""
    rows = published("nccl_between")
    return {
        f"{run}-{nodes}": (
            network,
            Rows.of(
                all_reduce(r, r["gpus"], nodes)
                for r in rows
                if (r["run"], r["nodes"]) == (run, nodes)
            ),
        )
        for run, nodes, network in dict.fromkeys(
            (r["run"], r["nodes"], r["network"]) for r in rows
        )
    }


def in_a_node(name: str) -> Rows:
    """The measured tables of a generation of NVLink."""
    of = tables()
    of = of.those(np.isin(of.chip, GENERATIONS[name]))
    every = [of, *(releases().values() if name == "nvlink3" else ())]
    return Rows(
        *(np.concatenate(column) for column in zip(*every, strict=True))
    )


def errors(predicted: Any, measured: Any) -> Any:
    """|predicted / measured - 1|."""
    return np.abs(predicted / measured - 1)


def fitted(
    start: Numbers, predict: Callable[[Numbers], Any], seconds: Any
) -> Numbers:
    """The numbers with the least loss, from `start`."""

    def loss(numbers: Numbers) -> float:
        e = np.log(predict(numbers) / seconds)
        return float(np.sqrt(e * e + SOFT**2).mean())

    best, step = loss(start), dict.fromkeys(start, 0.15)
    for _ in range(ROUNDS):
        for name in start:
            for factor in (1 + step[name], 1 / (1 + step[name])):
                tried = start | {name: start[name] * factor}
                if (found := loss(tried)) < best - 1e-9:
                    start, best, step[name] = (
                        tried,
                        found,
                        min(1.5 * step[name], 0.5),
                    )
                    break
            else:
                step[name] *= 0.5
        if max(step.values()) < LEAST_STEP:
            break
    return start


NEAR = ("launch", "hop", "ll", "copied")
FAR = ("launch", "alone", "ll", "ll_node", "climb_rate_ll", "mix", "mix_ll")
START = (
    {f"near.{name}": getattr(transport("nvlink3"), name) for name in NEAR}
    | {f"far.{name}": getattr(transport("infiniband"), name) for name in FAR}
    | {
        "far.launch": 1e-5,
        "hops": 1.0,
        "climbs": 1.0,
        "near.rate": 0.78,
        "far.rate": 0.7,
    }
)
"""Before Perlmutter is seen: its A100 as those behind a switch, Slingshot as InfiniBand."""


def machine(numbers: Numbers) -> Fabric:
    """Perlmutter with these numbers; hops and climbs are factors on InfiniBand's."""
    base = Fabric.from_network(network("perlmutter"), NetworkTime("nccl"))
    near, own = transport("nvlink3-mesh"), transport("slingshot")
    # what NCCL sees of the machine: no PCIe switch between cards and GPUs, channels of 22 GB/s
    far = replace(
        transport("infiniband"), ll128=own.ll128, believed=own.believed
    )
    near = replace(near, **{name: numbers[f"near.{name}"] for name in NEAR})
    hops = {
        name: getattr(far, name) * numbers["hops"]
        for name in ("hop", "hop_ll")
    }
    climbs = {
        name: getattr(far, name) * numbers["climbs"]
        for name in ("climb", "climb_ll")
    }
    far = replace(
        far, **{name: numbers[f"far.{name}"] for name in FAR}, **hops, **climbs
    )
    rates = tuple(
        d.bandwidth * numbers[f"{side}.rate"]
        for d, side in zip(base.dims, ("near", "far"), strict=True)
    )
    return replace(base, rates=rates, transports=(near, far))


def without(rows: Rows, nodes: float) -> Numbers:
    """Fitted to all tests but those on so many nodes."""
    kept = rows.those(rows.nodes != nodes)
    return fitted(
        START, lambda numbers: kept.predicted(machine(numbers)), kept.seconds
    )


GENERATIONS = {
    "nvlink3": ("a100-80",),
    "nvlink4": ("h100-sxm", "h200"),
    "nvlink5": ("b200", "b300", "gb200", "gb300"),
}
NETWORKS = {
    "nvlink3": "dgx-a100",
    "nvlink4": "dgx-h100",
    "nvlink5": "dgx-b200",
}
OWN = (
    "launch",
    "hop",
    "hop_ll",
    "ll",
    "copied",
    "mix",
    "exchange",
    "exchange_launch",
    "exchange_copied",
    "exchange_mix",
)
LL128 = ("hop_ll128", "ll128")
SHARP = ("sharp_wait", "sharp_mix")


def node(name: str, of: Transport) -> Fabric:
    """A node of that generation with these constants."""
    base = Fabric.from_network(network(NETWORKS[name]), NetworkTime("nccl"))
    return replace(base, transports=(of, base.transports[1]))


def generation(name: str, rows: Rows) -> Transport:
    """The constants of a generation of NVLink from rows of its chips."""
    of = transport(name)
    free: Sequence[str] = (
        *OWN,
        *(LL128 if of.ll128 else ()),
        *(SHARP if of.sharp else ()),
    )

    def predict(numbers: Numbers) -> Any:
        return rows.predicted(node(name, replace(of, **numbers)))

    return replace(
        of, **fitted({n: getattr(of, n) for n in free}, predict, rows.seconds)
    )


if __name__ == "__main__":
    tests = perlmutter()
    print(
        "perlmutter",
        fitted(
            START,
            lambda numbers: tests.predicted(machine(numbers)),
            tests.seconds,
        ),
    )
    for name in GENERATIONS:
        print(generation(name, in_a_node(name)))
