"""One optimizer step of a scaled MLP on a cluster, spread in five dimensions: DP, TP along D, TP
along F, PP, EP.

Every part is what it is in any other step: operations of `count.mlp2d`, seconds of `cost.chip`,
collectives and messages
of `cost.network`, hidden by `cost.overlap.behind`, idle time of `schedule`. This file adds them up
as the paper does:

    t_step = max(t_mm, t_TP + t_P2P) (1 + idle) + [1F1B only] (l_TP + l_P2P) + t_DP + l_DP

t are times by bandwidth, l latencies, which only the first microbatch waits for (with a zero-bubble
schedule none). What hides behind the products is up to the assumption set; so is whether gradients
hide behind the step. Letters: b tokens of a step, L blocks, E experts. Source: Erdil &
Schneider-Joseph 2024, arXiv 2411.01137, section 4 and equation 21.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..cost import hop
from ..cost.chip import Rates, pass_time, rates
from ..cost.links import Group
from ..cost.load import Busy, Load, beside
from ..cost.network import Fabric
from ..cost.overlap import Hidden, added, behind, budgeted, together
from ..count.mlp2d import block
from ..count.work import Op
from ..describe.assumptions import NOT_HIDDEN, Assumptions, Hide, Overlap
from ..describe.chip import Chip
from ..describe.framework import answered, framework, usual
from ..describe.job import Precision
from ..describe.network import Network
from ..num import minimum, where
from ..schedule import get as schedule_named
from ..step.memory import sharded
from ..step.room import most, offered
from .laws import Shape, Values

AXES = ("dp", "tp_model", "tp_ff", "pp", "ep")
"""Order of the axes in a placement, as in the paper's tables."""
STATE_BYTES = 6.0
"""What the optimizer keeps of a weight in the paper: three numbers in 16 bits."""
ZERO = 2
"""Weights are on every replica; gradients and optimizer state once."""
BACKWARD = 2 / 3
"""Of the products of a block, those of its backward pass."""
STEP = Hide("step")
"""How messages between blocks hide, where they do."""


class Machine(NamedTuple):
    """A chip on a network under an assumption set."""

    rates: Rates
    fabric: Fabric
    overlap: Overlap
    peak: float
    """FLOP/s at the boost clock, the denominator of utilisation."""
    memory: float
    """Bytes that can be allocated on a chip."""
    precision: Precision

    @property
    def linked(self) -> bool:
        """What a collective leaves of the links matters: gradients hide on those of all others."""
        return (
            self.overlap.dp.scope != "none"
            and self.overlap.dp.links == "shared"
        )

    def by_bytes(self, load: Load) -> Load:
        """A collective without its latency; with the links that it keeps busy, where they
        matter.
        """
        return Load(
            load.seconds - load.latency,
            0.0,
            load.busy if self.linked else Busy(),
        )


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
    def shards(self) -> Values:
        """Parts that the model is cut into."""
        return self.tp_model * self.tp_ff * self.pp * self.ep

    @property
    def chips(self) -> Values:
        return self.dp * self.shards


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


class Sent(NamedTuple):
    """What a device sends in a step for one reason."""

    loads: Hidden
    """By bytes alone."""
    wait: Values
    """Latency, of one microbatch."""

    @property
    def load(self) -> Load:
        """All of it, hidden or not."""
        return added(self.loads)


def machine(
    chip: Chip, network: Network, how: Assumptions, precision: Precision
) -> Machine:
    """What a chip and a network do under an assumption set. Raises BadInput if their data lack what
    it needs.
    """
    kept = answered(how, framework(usual(how, chip)))
    at = rates(chip, precision.compute, kept.chip, element_bytes(precision))
    fabric = Fabric.of(network, how.network)
    there = most(offered(chip, kept.memory), kept.memory)
    return Machine(
        at,
        fabric,
        kept.overlap,
        chip.peak(precision.compute),
        there,
        precision,
    )


def element_bytes(precision: Precision) -> float:
    """Bytes of a number in a matrix product: of 8 or 4 bits those that are sent, whatever a weight
    is kept in."""
    return min(precision.weight_bytes, precision.kept_input_bytes)


def simulate(
    on: Machine, s: Shape, d: Degrees, groups: Mapping[str, Group]
) -> Step:
    """Seconds of one step.  groups: axis -> how many of its ranks lie in each network dimension,
    fastest first.
    """
    ops = expert(on, s, d)
    busy = passes(s, d) * once(on, ops)
    idle = idle_share(on, d)
    tp = tensor(on, s, d, ops, groups)
    p2p = between(on, s, d, groups["pp"], groups["ep"])
    dp = gradients(on, s, d, groups["dp"])
    total = step_time(
        on,
        busy,
        idle,
        d.zero_bubble,
        beside_gradients(on, s, d),
        tp,
        p2p,
        dp,
    )
    seconds = tp.load.seconds, dp.load.seconds, p2p.load.seconds
    return Step(
        total, busy, idle / (1 + idle), *seconds, tp.wait, dp.wait, p2p.wait
    )


Portions = tuple[tuple[Values, Values], ...]
"""Of the gradients and of the work of a step, what goes side by side."""


def beside_gradients(on: Machine, s: Shape, d: Degrees) -> Portions:
    """What gradients hide behind: the whole step; or passes, their sum behind the last backward
    pass and their spreading behind the next first forward pass, but for one block's of either
    ("layer": no block is the first).
    """
    scope = on.overlap.dp.scope
    if scope not in ("pass", "layer"):
        return ((1.0, 1.0),)
    one = minimum(d.pp / s.L, 1.0) if scope == "pass" else 0.0
    rest = 1.0 - one
    often = d.microbatches
    return (
        (one, 0.0),
        (rest / 2, rest * BACKWARD / often),
        (rest / 2, rest * (1 - BACKWARD) / often),
    )


def step_time(
    on: Machine,
    busy: Values,
    idle: Values,
    zero_bubble: Values,
    portions: Portions,
    tp: Sent,
    p2p: Sent,
    dp: Sent,
) -> Values:
    """The sum: products and what of the tensor traffic and the messages between blocks outlasts
    them, longer by the idle share, then gradients, on the same links, and latencies.
    """
    sent = together([tp.loads, p2p.loads])
    work = (busy + budgeted(busy, sent)) * (1 + idle)
    wait = where(zero_bubble > 0, 0.0, tp.wait + p2p.wait) + dp.wait
    how = on.overlap.dp
    if how.scope == "none":
        return work + dp.load.seconds + wait
    own = added(sent)
    for part, share in portions:
        exposed = behind(work * share, own * share, dp.load * part, how)
        wait = wait + exposed.total
    return work + wait


def expert(on: Machine, s: Shape, d: Degrees) -> list[Op]:
    """Operations of one expert of one block for one microbatch of b/(E DP m) tokens."""
    tokens = s.batch / (s.E * d.dp * d.microbatches)
    p = on.precision
    return block(
        tokens,
        s.D,
        s.F,
        d.tp_model,
        d.tp_ff,
        act=p.activation_bytes,
        wgt=p.weight_bytes,
    )


def passes(s: Shape, d: Degrees) -> Values:
    """How often a device goes through an expert of a block in one step: L/PP blocks, E/EP experts,
    m microbatches.
    """
    return s.L / d.pp * (s.E / d.ep) * d.microbatches


def once(on: Machine, ops: list[Op]) -> Values:
    """Seconds of the matrix products of one expert of one block for one microbatch, both ways."""
    return pass_time(
        [half for op in ops for half in (op.forward, op.backward)], on.rates
    )


def tensor(
    on: Machine,
    s: Shape,
    d: Degrees,
    ops: list[Op],
    groups: Mapping[str, Group],
) -> Sent:
    """The all-reduces of partial sums: forward, and alike backward.

    Both tensor axes load the links side by side. One microbatch waits for every message of L
    blocks; later ones follow behind it.
    """
    forward = [
        on.fabric.load(m.kind, m.bytes, groups[m.axis])
        for op in ops
        for m in op.forward.comm
    ]
    at_once = on.by_bytes(
        beside(*(Load(x.seconds - x.latency, 0.0, x.busy) for x in forward))
    )
    return Sent(
        {on.overlap.tp: at_once * (2 * passes(s, d))},
        2 * s.L * sum(x.latency for x in forward),
    )


def gradients(on: Machine, s: Shape, d: Degrees, group: Group) -> Sent:
    """The all-reduce of the gradients a device holds, N/(TP PP EP)."""
    held = s.parameters / d.shards * on.precision.gradient_bytes
    load = on.fabric.load("all_reduce", held, group)
    return Sent({on.overlap.dp: on.by_bytes(load)}, load.latency)


def between(on: Machine, s: Shape, d: Degrees, pp: Group, ep: Group) -> Sent:
    """The messages between blocks: to the next stage, to another expert, or both at once, forward
    and backward.

    Each of L - 1 boundaries passes the activation of a microbatch, shared out to its ranks. What a
    message to an expert costs beyond one to the next stage hides as those of experts do. Latency:
    of all the experts' messages the farthest counts.
    """
    message = (
        s.batch
        * s.D
        * on.precision.activation_bytes
        / (d.chips * d.microbatches)
        * d.pp
    )
    hops = on.fabric.neighbours(message)
    law = on.fabric.how.hop
    bytes_ = [on.by_bytes(h) for h in hops]
    often = 2 * (s.L - 1) * d.microbatches / d.pp
    both = [p * e for p, e in zip(pp, ep, strict=True)]
    steps = hop.next_stage(pp, d.interleave, s.L - 1)
    stage = hop.mean(bytes_, hop.charged(steps, pp, law)) * often
    whole = (
        hop.mean(
            bytes_,
            hop.charged(hop.farther(steps, hop.any_rank(ep)), both, law),
        )
        * often
    )
    far = hop.charged(hop.farther(steps, hop.farthest(ep)), both, law)
    wait = (
        2
        * (s.L - 1)
        * sum(
            h.latency * share for h, share in zip(hops, far[1:], strict=True)
        )
    )
    chunks = where(d.interleave > 1, 1.0, 0.0)
    hidden = (
        chunks
        if on.overlap.pp == "interleaved"
        else float(on.overlap.pp == "all")
    )
    loads = [
        {STEP: stage * hidden},
        {NOT_HIDDEN: stage * (1 - hidden)},
        {on.overlap.ep: whole + stage * -1.0},
    ]
    return Sent(together(loads), wait)


def idle_share(on: Machine, d: Degrees) -> Values:
    """Idle time of a device for each second of work: that of ZB-H2 or of interleaved 1F1B, three
    equal passes.

    With fewer microbatches than stages 1F1B pays (v - 1)(PP - m) of v m besides, as in the paper.
    """
    p = d.pp
    m = d.microbatches
    v = d.interleave
    third = 1 / (3 * m)
    barrier = on.overlap.step_barrier != "none"
    zero_bubble = schedule_named("zb-h2").idle(
        p, m, 1.0, third, third, third, barrier
    )
    rounds = schedule_named("interleaved").idle(
        p, m, v, third, third, third, barrier
    )
    return where(d.zero_bubble > 0, zero_bubble, rounds)


def bytes_needed(s: Shape, d: Degrees, precision: Precision) -> Values:
    """Bytes of a chip: weights, and its share of gradients and optimizer state. Activations are
    left out, as in the paper."""
    held = s.parameters / d.shards
    return sharded(
        precision.weight_bytes,
        precision.gradient_bytes,
        STATE_BYTES,
        held,
        held / d.dp,
        ZERO,
    ).total


def utilisation(
    flops: Values, peak: float, chips: Values, seconds: Values
) -> Values:
    """FLOPs over what the chips could do at their boost clock."""
    return flops / (peak * chips * seconds)
