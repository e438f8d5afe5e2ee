"""One optimizer step of a scaled MLP on a cluster, spread in five dimensions: DP, TP along D, TP
along F, PP, EP.

Every part is what it is in any other step: operations of `count.mlp2d`, seconds of `cost.chip`,
collectives and messages of `cost.network`, hidden by `cost.overlap`, idle time of `schedule`, what
shows of the gradients by `step.sync`. Three things are the paper's own: latencies are paid once a
step, both tensor axes load the links side by side, and blocks, not stages, pass messages on.

    t_step = max(t_mm, t_TP + t_P2P) (1 + idle) + [1F1B only] (l_TP + l_P2P) + t_DP + l_DP

t are times by bandwidth, l latencies, which only the first microbatch waits for (with a zero-bubble
schedule none). What hides behind the products is up to the assumption set; so is whether gradients
hide behind the step. Letters: b tokens of a step, L blocks, E experts. Source: Erdil &
Schneider-Joseph 2024, arXiv 2411.01137, section 4 and equation 21.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..cost import hop
from ..cost.bound import Bound
from ..cost.chip import ChipRates, pass_time
from ..cost.floors import any_links
from ..cost.links import Group, Links
from ..cost.load import Busy, Load, beside
from ..cost.network import Fabric
from ..cost.overlap import Hidden, excess, merge_budgets, sum_loads
from ..count.mlp2d import block, partial_sums
from ..describe.assumptions import NOT_HIDDEN, Hide, Overlap
from ..describe.job import Precision
from ..num import minimum, where
from ..schedule import get as schedule_named
from ..schedule.stage_costs import PassSeconds
from ..step.closed_form import paper_pipeline
from ..step.passes import DevicePasses, Passes
from ..step.sync import sync_wait
from ..step.weights import DeviceSync, WeightSync
from ..step.zero import state_bytes
from .laws import LawShape, Values

AXES = ("dp", "tp_model", "tp_ff", "pp", "ep")
"""Order of the axes in a placement, as in the paper's tables."""
STATE_BYTES = 6.0
"""What the optimizer keeps of a weight in the paper: three numbers in 16 bits."""
HELD_ONCE = 2
"""ZeRO stage of its memory: weights are on every replica, gradients and optimizer state once."""
SUMMED_ONCE = 1
"""ZeRO stage of its messages: gradients are summed and spread once a step."""
STEP = Hide("step")
"""How messages between blocks hide, where they do."""


@dataclass(frozen=True)
class Least(Bound):
    """Seconds by bytes, and latency, that no group of so many ranks undercuts wherever they lie:
    each by itself, for a step adds them up apart.
    """

    def load(self, net: Links, kind: str, V: Values, group: Group) -> Load:
        """The floor of the algorithm, but no more than the bytes take over all links of a chip:
        which of them are busy is not known, but that all together are so long.
        """
        least = self.algorithm.floor(net, kind, V, group)
        over_all = any_links(net, kind, V, group).seconds
        sent = minimum(least.seconds, over_all)
        seconds = minimum(least.seconds - least.latency, sent)
        return Load(seconds + least.latency, least.latency, Busy((sent,)))


class Machine(NamedTuple):
    """A chip on a network under an assumption set."""

    rates: ChipRates
    fabric: Fabric
    overlap: Overlap
    peak: float
    """FLOP/s at the boost clock, the denominator of utilisation."""
    memory: float
    """Bytes that can be allocated on a chip."""
    precision: Precision

    @property
    def bound(self) -> Machine:
        """This machine on a network where every message takes the least that it may."""
        least = Least(self.fabric.algorithm)
        return self._replace(fabric=replace(self.fabric.bound, injected=least))


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


class StepSeconds(NamedTuple):
    """Seconds of one step, by cause."""

    total: Values
    matmul: Values
    busy: Values
    """Products, and what of the tensor traffic and the messages outlasts them."""
    bubble: Values
    """Share of the time with work in it that devices idle."""
    tp: Values
    dp: Values
    p2p: Values
    tp_wait: Values
    dp_wait: Values
    p2p_wait: Values

    @property
    def traffic(self) -> Values:
        """Seconds of all messages, hidden or not."""
        return self.tp + self.p2p + self.dp


class Parts(NamedTuple):
    """What a device does in a step. Messages take their seconds by bytes alone; their latency is
    what the first microbatch waits for, once a step.
    """

    matmul: Values
    """Seconds of its products."""
    tp: Hidden
    p2p: Hidden
    dp: Load


Groups = Mapping[str, Group]
"""axis -> how many of its ranks lie in each network dimension, fastest first."""


def simulate(
    on: Machine, s: LawShape, d: Degrees, groups: Groups
) -> StepSeconds:
    """Seconds of one step."""
    return step_seconds(on, s, d, step_parts(on, s, d, groups))


def step_parts(on: Machine, s: LawShape, d: Degrees, groups: Groups) -> Parts:
    """What a step is the sum of."""
    return Parts(
        _products(on, s, d),
        tensor(on, s, d, groups),
        block_messages(on, s, d, groups),
        gradients(on, s, d, groups),
    )


def step_seconds(
    on: Machine, s: LawShape, d: Degrees, work: Parts
) -> StepSeconds:
    """Products and what of the tensor traffic and the messages between blocks outlasts them, in
    the order of the pipeline, then gradients, on the same links, and latencies (equation 21).
    """
    tp, p2p = sum_loads(work.tp), sum_loads(work.p2p)
    busy = work.matmul + excess(
        work.matmul, merge_budgets([work.tp, work.p2p])
    )
    idle = idle_s(on, d, busy)
    pipeline = busy + idle
    wait = where(d.zero_bubble > 0, 0.0, tp.latency + p2p.latency)
    gradients = exposed_gradients(
        on, s, d, work=pipeline, own=tp + p2p, summing=work.dp
    )
    return StepSeconds(
        pipeline + gradients + wait + work.dp.latency,
        work.matmul,
        busy,
        idle / pipeline,
        tp=tp.seconds,
        dp=work.dp.seconds,
        p2p=p2p.seconds,
        tp_wait=tp.latency,
        dp_wait=work.dp.latency,
        p2p_wait=p2p.latency,
    )


def idle_s(on: Machine, d: Degrees, busy: Values) -> Values:
    """Seconds that a device waits in the order of ZB-H2 or of interleaved 1F1B, if m microbatches
    keep it busy in three equal passes. With fewer microbatches than stages 1F1B pays (v - 1)(PP -
    m) slots more, as in the paper.
    """
    f = busy / (3 * d.microbatches)
    zero_bubble, rounds = (
        paper_pipeline(
            on.overlap,
            schedule_named(name),
            (d.pp, d.microbatches, v),
            slow=PassSeconds(f, f, f),
            others=PassSeconds(f, f, f),
            send=0.0,
        ).bubble
        for name, v in (("zb-h2", 1.0), ("interleaved", d.interleave))
    )
    return where(d.zero_bubble > 0, zero_bubble, rounds)


def exposed_gradients(
    on: Machine,
    s: LawShape,
    d: Degrees,
    work: Values,
    own: Load,
    summing: Load,
) -> Values:
    """Seconds of the gradients' all-reduce that do not hide behind m microbatches of three equal
    passes, which send `own` on the same links: half of it sums them, half of it spreads them. A
    device has L/PP blocks; it waits for the first of them and for the last.
    """
    how = on.overlap.dp
    if how.scope == "none":  # all of it: no columns need to be made of passes
        return summing.seconds
    part = 1 / (3 * d.microbatches)
    # a device with less than a block (relaxed) waits for all it has
    one = minimum(d.pp / s.L, 1.0)
    f, sent = work * part, own * part
    sync = WeightSync(summing * 0.5, summing * 0.5)
    passes = DevicePasses(
        Passes(f, 2 * f, sent, sent * 2),
        Passes(f * one, 2 * f * one, sent * one, sent * (2 * one)),
    )
    syncs = DeviceSync(sync * one, sync * (1 - one), sync)
    wait = sync_wait(passes, syncs, d.microbatches, SUMMED_ONCE, how=how)
    return wait.total


def expert_tokens(s: LawShape, d: Degrees) -> Values:
    """Tokens that reach an expert of a block in one microbatch, b/(E DP m)."""
    return s.batch / (s.E * d.dp * d.microbatches)


def expert_passes(s: LawShape, d: Degrees) -> Values:
    """How often a device goes through an expert of a block in one step: L/PP blocks, E/EP experts,
    m microbatches.
    """
    return s.L / d.pp * (s.E / d.ep) * d.microbatches


def _products(on: Machine, s: LawShape, d: Degrees) -> Values:
    """Seconds of the matrix products of a step on one device, both ways."""
    p = on.precision
    ops = block(
        expert_tokens(s, d),
        s.D,
        s.F,
        tp_model=d.tp_model,
        tp_ff=d.tp_ff,
        act=p.activation_bytes,
        wgt=p.weight_bytes,
    )
    halves = [half for op in ops for half in (op.forward, op.backward)]
    return expert_passes(s, d) * pass_time(halves, on.rates)


def by_bytes(load: Load) -> Load:
    """A collective that takes what its bytes do, its latency beside that."""
    return load._replace(seconds=load.seconds - load.latency)


def tensor(on: Machine, s: LawShape, d: Degrees, groups: Groups) -> Hidden:
    """The all-reduces of partial sums: forward, and alike backward.

    Both tensor axes load the links side by side. One microbatch waits for every message of L
    blocks; later ones follow behind it.
    """
    sums = partial_sums(
        expert_tokens(s, d),
        s.D / d.tp_model,
        s.F / d.tp_ff,
        on.precision.activation_bytes,
    )
    forward = [
        by_bytes(on.fabric.load(m.kind, m.bytes, groups[m.axis])) for m in sums
    ]
    sent = beside(*forward) * (2 * expert_passes(s, d))
    wait = 2 * s.L * sum(load.latency for load in forward)
    return {on.overlap.tp: sent._replace(latency=wait)}


def gradients(on: Machine, s: LawShape, d: Degrees, groups: Groups) -> Load:
    """The all-reduce of the gradients a device holds, N/(TP PP EP)."""
    size = s.parameters / d.shards * on.precision.gradient_bytes
    return by_bytes(on.fabric.load("all_reduce", size, groups["dp"]))


def block_messages(
    on: Machine, s: LawShape, d: Degrees, groups: Groups
) -> Hidden:
    """The messages between blocks: to the next stage, to another expert, or both at once, forward
    and backward.

    Each of L - 1 boundaries passes the activation of a microbatch, shared out to its ranks. What a
    message to an expert costs beyond one to the next stage hides as those of experts do. Latency:
    of all the experts' messages the farthest counts.
    """
    pp, ep = groups["pp"], groups["ep"]
    both = [p * e for p, e in zip(pp, ep, strict=True)]
    often = 2 * (s.L - 1) * d.microbatches / d.pp
    tokens = s.batch / (d.chips * d.microbatches) * d.pp
    message = tokens * s.D * on.precision.activation_bytes
    hops = [by_bytes(load) for load in on.fabric.neighbours(message)]
    steps = hop.next_stage(pp, d.interleave, s.L - 1)

    def sent(steps: hop.Shares, group: Group) -> Load:
        return hop.mean(
            hops, hop.charged_share(steps, group, on.fabric.how.hop)
        )

    stage = (sent(steps, pp) * often)._replace(latency=0.0)
    whole = sent(hop.farther(steps, hop.any_rank(ep)), both) * often
    far = sent(hop.farther(steps, hop.farthest(ep)), both).latency
    hidden = {
        "interleaved": where(d.interleave > 1, 1.0, 0.0),
        "all": 1.0,
    }.get(on.overlap.pp, 0.0)
    beyond = whole + stage * -1.0
    return merge_budgets(
        [
            {STEP: stage * hidden},
            {NOT_HIDDEN: stage * (1 - hidden)},
            {on.overlap.ep: beyond._replace(latency=2 * (s.L - 1) * far)},
        ]
    )


def bytes_needed(s: LawShape, d: Degrees, precision: Precision) -> Values:
    """Bytes of a chip: weights, and its share of gradients and optimizer state. Activations are
    left out, as in the paper."""
    shard = s.parameters / d.shards
    return state_bytes(
        precision.weight_bytes,
        precision.gradient_bytes,
        STATE_BYTES,
        full=shard,
        split=shard / d.dp,
        zero=HELD_ONCE,
    ).total
