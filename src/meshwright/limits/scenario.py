"""A scenario: hardware, a scaling law and a time to train in. And the scenarios of the paper, by
name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, NamedTuple

from .. import catalog
from ..cost.chip import rates
from ..cost.network import Fabric
from ..describe.assumptions import EPOCH, Assumptions, demand_read
from ..describe.chip import Chip
from ..describe.fields import Checked, Name, OneOf, Share, SIUnit
from ..describe.framework import framework, usual, with_answers
from ..describe.frozen import put
from ..describe.job import PRECISIONS, Precision
from ..describe.network import Network
from ..describe.slices import axes as torus_axes
from ..describe.slices import shape_for, slice_network
from ..errors import BadInput, unknown
from ..prediction.failures import Failures, loss_to_failures
from ..step.oom import most_bytes
from .laws import LAWS, SPARSE, Law, Values
from .simulate import Machine

YEAR_S = 3.154e7
"""A year as the paper rounds it."""
MONTH_S = YEAR_S / 12
SCHEDULES = ("1f1b", "zb-h2")
LOW_LATENCY_S = 0.45e-6
"""Launch of a kernel in the paper's low-latency scenarios, a tenth of today's."""


READ = (
    "chip.model",
    "chip.matrix_efficiency",
    "chip.sustained",
    "chip.memory_efficiency",
    "chip.launch_s",
    "network.collective",
    "network.efficiency",
    "network.ring_factor",
    "network.hop",
    "overlap.dp",
    "overlap.tp",
    "overlap.ep",
    "overlap.pp",
    "overlap.step_barrier",
    "memory.capacity_share",
    "memory.framework_bytes",
    "memory.risk_width",
    "memory.headroom",
    "memory.holding.allocator_need",
)
"""What the simulation reads of a set of assumptions; the rest of it is Epoch's."""
BY_SHAPE = (
    "chip.stack",
    "chip.wide_norm",
    "chip.host",
    "chip.optimizer",
    "chip.kernels",
)
"""What a chip timed by the shapes of its products has besides."""
BUDGETS = ("none", "step")
"""Scopes of overlap that tensor traffic and messages to experts may have: the paper has one budget,
the products of the whole step. Gradients hide as in any step."""


@dataclass(frozen=True)
class Scenario(Checked):
    """What is asked: how far does this scale?"""

    name: Name
    chip: Chip
    network: Network
    law: Law = LAWS["baseline"]
    duration_s: Annotated[float, SIUnit("s")] = 3 * MONTH_S
    """Time a run may take."""
    assumptions: Assumptions = EPOCH
    precision: Precision = PRECISIONS["fp16-pure"]
    schedules: tuple[Annotated[str, OneOf(*SCHEDULES)], ...] = SCHEDULES
    """Pipeline schedules to choose from: 1f1b (interleaved as far as the depth allows) and
    zb-h2.
    """
    linear: Share = 0.8
    """Scaling counts as linear down to this share of the utilisation a chip can sustain."""
    failures: Failures | None = None
    """None: chips never fail, as in the paper."""

    @cached_property
    def joined(self) -> Network:
        """The network as chips in powers of two fill it: of a torus the largest slice whose sides
        are such.
        """
        torus = torus_axes(self.network)
        if not torus or not all(d.size for d in torus):
            return self.network
        room = math.prod(d.size or 1 for d in torus)
        whole, _ = shape_for(self.network, 2 ** (room.bit_length() - 1))
        return slice_network(self.network, whole)

    @cached_property
    def machine(self) -> Machine:
        """Chip and network as the simulation sees them; raises BadInput if data are missing."""
        if not self.schedules:
            raise BadInput(
                f"scenario {self.name}: schedules must be some of {', '.join(SCHEDULES)}"
            )
        how = self.assumptions
        besides = BY_SHAPE if how.chip.model == "by-shape" else ()
        demand_read(how, EPOCH, READ + besides, "limits")
        for axis in ("tp", "ep"):
            if (scope := getattr(how.overlap, axis).scope) not in BUDGETS:
                raise BadInput(
                    f"assumptions {how.name}: limits knows one budget, the whole step:"
                    f" overlap.{axis}.scope must be {' or '.join(BUDGETS)}, not {scope}"
                )
        whole = with_answers(how, framework(usual(how, self.chip)))
        p = self.precision
        # of 8 or 4 bits an operand has those that are sent, whatever a weight is kept in
        operand = min(p.weight_bytes, p.kept_input_bytes)
        return Machine(
            rates(self.chip, p.compute, whole.chip, operand),
            Fabric.from_network(self.joined, how.network),
            whole.overlap,
            peak=self.chip.peak(p.compute),
            memory=most_bytes(self.chip, whole.memory),
            precision=p,
        )

    @property
    def whole(self) -> bool:
        """Depth, experts and batch are whole numbers that divide; False for a law that does not
        round (smooth mode).
        """
        return bool(self.law.mantissas)

    @property
    def smooth(self) -> Scenario:
        """This scenario with a law that does not round."""
        return put("law.mantissas", ())(self)

    @property
    def sustained(self) -> float:
        """Share of the boost-clock peak that the chip can hold."""
        on = self.machine
        return on.rates.matrix / on.peak

    def useful_s(self, chips: Values, parameters: Values) -> Values:
        """Seconds of the duration that are left for training when failures have taken theirs."""
        return (
            self.duration_s
            * loss_to_failures(self.failures, chips, parameters).goodput
            if self.failures
            else self.duration_s
        )

    @property
    def threshold(self) -> float:
        """Utilisation of the peak below which scaling is no longer linear."""
        return self.linear * self.sustained


class Preset(NamedTuple):
    """A scenario of the paper in names of the catalogue."""

    network: str
    chip: str
    launch_s: float = EPOCH.chip.launch_s
    law: str = "baseline"


PRESETS = {
    "v100": Preset("epoch-v100", "epoch-v100"),
    "a100": Preset("epoch-a100", "epoch-a100"),
    "h100": Preset("epoch-h100", "epoch-h100"),
    "h100-low-latency": Preset(
        "epoch-h100-low-latency", "epoch-h100", LOW_LATENCY_S
    ),
    "h100-superpod": Preset("epoch-h100-superpod", "epoch-h100"),
    "h100-global-nvlink": Preset("epoch-h100-global-nvlink", "epoch-h100"),
    "h100-global-nvlink-low-latency": Preset(
        "epoch-h100-global-nvlink-low-latency", "epoch-h100", LOW_LATENCY_S
    ),
    "h100-infinite-low-latency": Preset(
        "epoch-h100-infinite-low-latency", "epoch-h100", LOW_LATENCY_S
    ),
    "h100-deepseek": Preset("epoch-h100", "epoch-h100", law="deepseek"),
    "h100-fixed": Preset("epoch-h100", "epoch-h100", law="fixed"),
}
"""Each exists dense and sparse ("h100/sparse")."""


def presets() -> tuple[str, ...]:
    """Names of all scenarios of the paper, dense and sparse."""
    return tuple(
        f"{name}{kind}" for name in PRESETS for kind in ("", "/sparse")
    )


def preset(name: str) -> Scenario:
    """A scenario of the paper; raises BadInput with the nearest names."""
    base, _, kind = name.strip().lower().partition("/")
    if base not in PRESETS or kind not in ("", "dense", "sparse"):
        raise unknown("scenario", name, presets())
    p = PRESETS[base]
    law = (
        replace(LAWS[p.law], experts=SPARSE)
        if kind == "sparse"
        else LAWS[p.law]
    )
    how = put("chip.launch_s", p.launch_s)(EPOCH)
    name = base + ("/sparse" if kind == "sparse" else "")
    return Scenario(
        name,
        catalog.chip(p.chip),
        catalog.network(p.network),
        law,
        assumptions=how,
    )
