"""One optimizer step of a scaled MLP on a cluster, spread in five dimensions: DP, TP along D, TP along F, PP, EP.

The work is counted by `count.mlp2d`, timed by `cost.chip` and `cost.levels`, ordered by `schedule`; this file adds it
up:

    t_step = max(t_mm, t_TP + t_P2P) + bubble + [1F1B only] (l_TP + l_P2P) + t_DP + l_DP

t are times by bandwidth, l by latency. Tensor-parallel and point-to-point traffic runs beside the products,
data-parallel traffic does not (unless the assumption set says so); a zero-bubble schedule hides the latencies too.
Letters: b tokens of a step, L blocks, E experts. Source: Erdil & Schneider-Joseph 2024, arXiv 2411.01137, section 4
and equation 21.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..cost import levels
from ..cost.chip import Rates, pass_time, rates
from ..cost.links import Group
from ..cost.network import Fabric
from ..count.mlp2d import block
from ..count.work import Op
from ..describe.assumptions import Assumptions
from ..describe.chip import Chip
from ..describe.framework import answered, framework
from ..describe.job import Precision
from ..describe.network import Network
from ..num import maximum, where
from ..schedule import get as schedule_named
from .laws import Shape, Values

AXES = ("dp", "tp_model", "tp_ff", "pp", "ep")
"""Order of the axes in a placement, as in the paper's tables."""
STATE_COPIES = 4.0
"""Gradients, and fp16 copies that optimizer state takes, for each weight; sharded over everything."""


class Machine(NamedTuple):
    """A chip on a network under an assumption set."""

    rates: Rates
    fabric: Fabric
    dp_overlaps: bool
    """Data-parallel traffic runs beside everything else (any overlap policy but "none")."""
    peak: float
    """FLOP/s at the boost clock, the denominator of utilisation."""
    memory: float
    """Bytes that can be allocated on a chip."""
    element_bytes: float


class Degrees(NamedTuple):
    """How a step is spread: numbers or columns."""

    dp: Values
    tp_model: Values
    tp_ff: Values
    pp: Values
    ep: Values
    microbatches: Values
    interleave: Values
    """Model chunks a device holds."""
    zero_bubble: Values
    """1 = ZB-H2, 0 = (interleaved) 1F1B."""

    @property
    def chips(self) -> Values:
        return self.dp * self.tp_model * self.tp_ff * self.pp * self.ep


class Step(NamedTuple):
    """Seconds of one step, by cause."""

    total: Values
    matmul: Values
    bubble: Values
    """Share of the time with work in it that devices idle."""
    tp: Values
    dp: Values
    p2p: Values
    tp_wait: Values
    dp_wait: Values
    p2p_wait: Values


def machine(chip: Chip, network: Network, how: Assumptions, precision: Precision) -> Machine:
    """What a chip and a network do under an assumption set. Raises BadInput if their data lack what it needs."""
    at = rates(chip, precision.compute, how.chip, precision.weight_bytes)
    fabric = Fabric.of(network, how.network)
    kept = answered(how, framework(how.framework))
    memory = chip.hbm_bytes * kept.memory.capacity_share - float(kept.memory.framework_bytes or 0.0)
    hidden = kept.overlap.dp.scope != "none"
    return Machine(at, fabric, hidden, chip.peak(precision.compute), memory, precision.weight_bytes)


def simulate(on: Machine, s: Shape, d: Degrees, groups: Mapping[str, Group]) -> Step:
    """Seconds of one step.  groups: axis -> how many of its ranks lie in each network dimension, fastest first."""
    ops = expert(on, s, d)
    busy = matmul_time(on, s, d, ops)
    tp, tp_wait = tensor_time(on, s, d, ops, groups)
    p2p, p2p_wait = neighbour_time(on, s, d, groups["pp"], groups["ep"])
    dp, dp_wait = data_time(on, s, d, groups["dp"])
    share = bubble_share(d)
    total = step_time(on, busy, tp, p2p, dp, share, where(d.zero_bubble > 0, 0.0, tp_wait + p2p_wait), dp_wait)
    return Step(total, busy, share, tp, dp, p2p, tp_wait, dp_wait, p2p_wait)


def step_time(
    on: Machine, busy: Values, tp: Values, p2p: Values, dp: Values, share: Values, wait: Values, dp_wait: Values
) -> Values:
    """The sum: work or the traffic beside it, stretched by the bubble, latencies, gradients.

    share: of the stretched time that devices idle;  dp_overlaps: gradients run beside everything else.
    """
    working = maximum(busy, tp + p2p) / (1 - share) + wait
    if on.dp_overlaps:
        return maximum(working, dp) + dp_wait
    return working + dp + dp_wait


def expert(on: Machine, s: Shape, d: Degrees) -> list[Op]:
    """Operations of one expert of one block for one microbatch of b/(E DP m) tokens."""
    tokens = s.batch / (s.E * d.dp * d.microbatches)
    return block(tokens, s.D, s.F, d.tp_model, d.tp_ff, act=on.element_bytes, wgt=on.element_bytes)


def passes(s: Shape, d: Degrees) -> Values:
    """How often a device goes through an expert of a block in one step: L/PP blocks, E/EP experts, m microbatches."""
    return s.L / d.pp * (s.E / d.ep) * d.microbatches


def matmul_time(on: Machine, s: Shape, d: Degrees, ops: list[Op]) -> Values:
    """Seconds of all matrix products of a device."""
    return passes(s, d) * pass_time([half for op in ops for half in (op.forward, op.backward)], on.rates)


def tensor_time(on: Machine, s: Shape, d: Degrees, ops: list[Op], groups: Mapping[str, Group]) -> tuple[Values, Values]:
    """(bandwidth, latency) of the all-reduces of partial sums.

    Both tensor dimensions share the links. One microbatch waits for two phases of every message of L blocks; later
    ones follow behind it.
    """
    messages = [m for op in ops for half in (op.forward, op.backward) for m in half.comm]
    # forward and backward messages of an axis are alike: count the distinct ones twice
    half = messages[: len(messages) // 2]
    traffic = [levels.phase(on.fabric, m.bytes, groups[m.axis]) for m in half]
    wait = sum(levels.waits(on.fabric, groups[m.axis]) for m in half)
    return passes(s, d) * 4 * levels.slowest(*traffic), 4 * s.L * wait


def data_time(on: Machine, s: Shape, d: Degrees, group: Group) -> tuple[Values, Values]:
    """(bandwidth, latency) of the all-reduce of the gradients a device holds, N/(TP PP EP)."""
    held = s.parameters / (d.tp_model * d.tp_ff * d.pp * d.ep) * on.element_bytes
    return 2 * levels.slowest(levels.phase(on.fabric, held, group)), 2 * levels.waits(on.fabric, group)


def neighbour_time(on: Machine, s: Shape, d: Degrees, pp: Group, ep: Group) -> tuple[Values, Values]:
    """(bandwidth, latency) of the messages between blocks: to the next stage, to another expert, or both at once.

    Each of L - 1 boundaries passes b D elements, forward and backward. Latency: of all the experts' messages the
    farthest counts.
    """
    next_stage = levels.neighbour(pp, d.interleave, s.L - 1)
    volume = 2 * (s.L - 1) * s.batch * s.D * on.element_bytes / d.chips
    mean = levels.mean_message(on.fabric, volume, levels.farther(next_stage, levels.any_rank(ep)))
    wait = levels.mean_latency(on.fabric, levels.farther(next_stage, levels.farthest(ep)))
    return mean, 2 * (s.L - 1) * wait


def bubble_share(d: Degrees) -> Values:
    """Share of a step's time that a device idles: 0 with ZB-H2, else (PP - 1 + z)/(PP - 1 + z + v m).

    Without z this is the bubble of interleaved 1F1B. z = (v - 1) max(0, PP - m) is the paper's charge for too few
    microbatches to go round; the schedule itself demands that m is a multiple of PP. ZB-H2 is 0 as in its paper,
    where a step may begin before the last one has ended everywhere.
    """
    p, m, v = d.pp, d.microbatches, d.interleave
    idle = schedule_named("interleaved").bubble(p, m, v, 1 / m, 1 / m, 1 / m) / 3 + (v - 1) * maximum(0.0, p - m) / (
        v * m
    )
    return where(d.zero_bubble > 0, 0.0, idle / (1 + idle))


def bytes_needed(s: Shape, d: Degrees, element_bytes: float) -> Values:
    """Bytes of the whole cluster: weights in each replica, gradients and optimizer state once. Activations are left
    out, as in the paper."""
    return s.parameters * element_bytes * (d.dp + STATE_COPIES)


def utilisation(on: Machine, s: Shape, chips: Values, step_s: Values) -> Values:
    """FLOPs of the step over what the chips could do at their boost clock."""
    return s.step_flops / (on.peak * chips * step_s)
