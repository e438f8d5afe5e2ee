"""One accelerator: what it computes, what it holds, what it costs. Peaks are dense and per chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from ..errors import BadInput
from .fields import (
    FROM_0,
    Bandwidth,
    Bytes,
    Checked,
    Known,
    Name,
    Range,
    Share,
    SIUnit,
    Sources,
    origins,
)
from .frozen import hashed_once, short_repr
from .frozendict import EMPTY, FrozenDict
from .measured import MeasuredTable
from .precision import Compute

THREADS = 128
"""Threads a multiprocessor runs in one clock; rates per clock and thread refer to them."""
HOST_REACHED = 0.87
"""Share of a host link's peak that large copies reach: 55.6 of the 64 GB/s of PCIe Gen5 x16 on an
H100 (nvbandwidth, host_to_device_memcpy_ce, the example of its guide); assumed of every link."""
MOST_USD = 1e6
"""For an hour of a chip: more than a rack costs to buy."""
NO_PUBLIC = "no public price"
"""How the note of a price begins that nobody publishes."""


@dataclass(frozen=True)
class Hierarchy(Checked):
    """The memories between HBM and the tensor cores, for the chip model `hierarchy`
    (cost/hierarchy).

    >>> from meshwright import Hierarchy, chip
    >>> memories = chip("h100-sxm").hierarchy
    >>> isinstance(memories, Hierarchy), memories.l2_bytes == 50 * 2**20
    (True, True)
    """

    sms: int
    """Streaming multiprocessors."""
    boost_hz: Annotated[float, SIUnit("Hz")]
    """Boost clock the peak is quoted at."""
    flop_per_clock: float
    """FP16 FLOP per clock and thread, 128 threads a multiprocessor."""
    l2_bytes: Bytes
    l2_bandwidth: Bandwidth
    smem_bytes_per_clock: float = 128.0
    """Shared-memory bytes per clock and multiprocessor."""
    register_bytes: Bytes = 65536.0
    """Register file of one processing block; 4 blocks a multiprocessor."""
    shared_bytes: Bytes = 262144.0
    """L1 and shared memory of one multiprocessor."""
    dsmem: bool = False
    """Multiprocessors can read each other's shared memory."""
    usable: Share = 0.75
    """Share of L2 and registers that tiles can fill."""

    @property
    def peak(self) -> float:
        """FP16 FLOP/s of the matrix units at the boost clock."""
        return self.flop_per_clock * THREADS * self.sms * self.boost_hz


@hashed_once
@dataclass(frozen=True)
class Chip(Checked):
    """An accelerator as the planner sees it.

    >>> from meshwright import Chip, chip
    >>> h100 = chip("h100-sxm")
    >>> isinstance(h100, Chip), h100.matrix_flops["bf16"] > 9e14
    (True, True)
    """

    name: Name
    matrix_flops: Mapping[Compute, Annotated[float, SIUnit("FLOP/s")]]
    """Peak of the matrix units by precision, dense (no sparsity), per chip."""
    vector_flops: Annotated[float, SIUnit("FLOP/s")]
    """Peak of the vector units in the training precision (fp16 or bf16 where the chip has it, else
    fp32).
    """
    hbm_bytes: Bytes
    """Capacity of the memory on the package."""
    hbm_bandwidth: Bandwidth
    """Peak, reads and writes together."""
    network: Known = ""
    """Catalogue name of the network this chip is usually sold with."""
    runtime_bytes: Annotated[Bytes, FROM_0] = 0.0
    """Of its memory, what the chip's runtime keeps from programs (TPUs)."""
    context_bytes: Annotated[Bytes | None, FROM_0] = None
    """What a process holds there before it has a model: context, kernels, communicators, and on a
    CPU the libraries themselves; None = what the framework's profile says of a GPU.
    """
    framework: Known = ""
    """Catalogue name of the framework that is usual on it; empty: `framework.USUAL`."""
    kernel_law: Known = ""
    """Name of its kind in catalog/kernels: what its kernels reach by shape; empty: nobody measured
    it.
    """
    vendor: Name = ""
    compute_capability: Annotated[float, Range(0.0, 100.0)] = 0.0
    """NVIDIA's number of its instruction set, 9.0 of an H100; 0 = unknown, or of another vendor."""
    sustained: Share | None = None
    """Matrix throughput the chip holds under load (clocks throttle) over its quoted peak; None =
    not measured.
    """
    clock: Share | None = None
    """Of the rate that single 16-bit products reach, what products in long loops hold on this very
    machine (power limit, cooling, the chips it got); with `kernel_law`. None = what the machines of
    its kind hold (`Kernels.clock`).
    """
    host_bandwidth: Annotated[Bandwidth, FROM_0] = 0.0
    """Peak of its link to the host's memory, each way (PCIe, NVLink-C2C); 0 = unknown."""
    host_reached: Share = HOST_REACHED
    """Share of it that copies reach."""
    host_memory_bandwidth: Annotated[Bandwidth, FROM_0] = 0.0
    """Its part of the host's memory bandwidth, reads and writes together; 0 = unknown."""
    power_w: Annotated[float, SIUnit("W"), FROM_0] = 0.0
    """Board power limit; 0 = unknown."""
    usd_per_hour: Annotated[float, SIUnit("USD/h"), Range(0.0, MOST_USD)] = 0.0
    """A rental price; 0 = unknown."""
    hierarchy: Hierarchy | None = None
    kernels: Mapping[Name, MeasuredTable] = EMPTY
    """precision/kernel -> measured seconds, for the chip model `calibrated`; `meshwright calibrate`
    writes them.
    """
    aliases: tuple[Name, ...] = ()
    """Names other tools use, such as the CUDA device name."""
    sources: Sources = origins()
    """field -> where its number comes from (source, date, note)."""

    __repr__ = short_repr

    def conflict(self) -> str:
        """A chip computes something, and a clock is a share of what its kind's kernels reach."""
        if not self.matrix_flops:
            return "matrix_flops must name at least one precision, such as { bf16 = '989 TFLOP/s' }"
        if self.clock is not None and not self.kernel_law:
            return "clock means nothing without kernel_law: sustained says what products hold"
        return ""

    def rent_usd(self, chip_hours: float) -> float | None:
        """Rent; None if the price is unknown."""
        return chip_hours * self.usd_per_hour if self.usd_per_hour else None

    @property
    def unpriced(self) -> str:
        """A sentence that no price is known, and how to give one."""
        return (
            f"{self.name} has {self.no_price}: --price {self.name}=4.5 gives one (in a JOB.toml:"
            " [cluster.chip] usd_per_hour = 4.5)"
        )

    @property
    def no_price(self) -> str:
        """ "no price", or "no public price" where somebody looked for one in vain."""
        note = self.sources.get("usd_per_hour", {}).get("note", "")
        return NO_PUBLIC if note.startswith(NO_PUBLIC) else "no price"

    def rented(self, usd_per_hour: float, source: str) -> Chip:
        """The chip at another price, with the source of that price."""
        origin = {"usd_per_hour": {"source": source}}
        return replace(
            self,
            usd_per_hour=usd_per_hour,
            sources=FrozenDict({**self.sources, **origin}),
        )

    def energy_j(self, chip_seconds: float) -> float | None:
        """Energy at the power limit; None if it is unknown."""
        return chip_seconds * self.power_w if self.power_w else None

    def peak(self, precision: str) -> float:
        """Matrix FLOP/s in that precision; BadInput names the precisions the chip has."""
        if precision not in self.matrix_flops:
            raise BadInput(
                f"precision {precision!r} is not in the data of chip {self.name}; it has"
                f" {', '.join(self.matrix_flops)}"
            )
        return self.matrix_flops[precision]
