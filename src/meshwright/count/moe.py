"""The mixture-of-experts feed-forward under expert parallelism: route, all-to-all, experts,
all-to-all back.

Each rank holds E/ep experts, each cut etp ways, and sends every one of its tokens to k of them.
Routing is taken as balanced, so a rank computes as many token copies as it sends: x = shard k
(times etp: the etp ranks of an expert see each other's tokens). Source: Lepikhin et al. 2020
(GShard); DeepSeek-AI 2024 for shared experts and leading dense layers.
"""

from __future__ import annotations

from ..describe.model import MoE
from ..exchange import DISPATCHERS
from ..exchange.experts import ALLTOALL, Tokens
from ..exchange.reach import Draw
from ..exchange.types import Message
from ..num import Num
from . import blocks
from .blocks import Matrix
from .feed_forward import dense, gated
from .linear import linear
from .microbatch import DeviceMicrobatch
from .parallel import after, norm, pre_norm
from .work import Op, Pass, fed

PADDED = 16.0
"""Tokens to whose multiple an expert's share is rounded up in FP8."""
PADDING = {"mxfp8": 32.0, "nvfp4": 128.0}
"""Recipe -> the same, where it is more. Source: NVIDIA/TransformerEngine@294e7507,
get_align_size_for_quantization.
"""


def experts(microbatch: DeviceMicrobatch, beside: bool) -> list[Op]:
    """Operations of one mixture-of-experts feed-forward for one microbatch on one device, in
    forward order.

    beside: it stands beside the attention, whose norm it reads.
    """
    m = microbatch.model
    moe = m.moe
    assert moe is not None
    normed = "attention/norm" if beside else "ffn/norm"
    ops = []
    if not beside:
        # only shared experts need the whole sequence on each tp rank
        ops = [
            pre_norm(microbatch, normed)
            if moe.shared_ffn
            else norm(microbatch, normed)
        ]
    ops.append(router(microbatch, moe)._replace(source=normed))
    ops += routed_experts(microbatch, moe, source=normed)
    if moe.post_norm:
        ops.append(norm(microbatch, "experts/post norm"))
    ops += shared_experts(microbatch, moe)
    # routed experts bring their own biases, shared ones end as a dense feed-forward does
    biased = m.bias and bool(moe.shared_ffn)
    return ops + after(microbatch, name="ffn", biased=biased)


def router(microbatch: DeviceMicrobatch, moe: MoE) -> Op:
    """It works on the device's own tokens; its weights are on every rank."""
    choices = moe.experts + moe.idle_experts
    op = linear(
        microbatch,
        name="experts/router",
        T=microbatch.shard,
        k=microbatch.model.hidden,
        n=choices,
        matrix=Matrix(quantised=False),
    )
    bias = choices if moe.router_bias else 0
    return op._replace(weights=op.weights + bias)


def routed_experts(
    microbatch: DeviceMicrobatch, moe: MoE, source: str
) -> list[Op]:
    """Token copies on their way to the experts, through them and back; between a product down to
    the experts' own width and one up from it where the model has one (`latent`).
    """
    hidden = microbatch.model.hidden
    D = moe.latent or hidden
    act = microbatch.act
    sent = microbatch.shard * computing_experts(moe)
    x = sent * microbatch.layout.etp
    pads = padding(microbatch)
    rows = x + (pads - 1.0) / 2.0 * moe.experts / microbatch.layout.ep
    copied = bool(
        microbatch.profile and microbatch.profile.experts_padded == "copied"
    )
    fused = bool(microbatch.profile and microbatch.profile.experts_fused)
    block = (
        [padded(name, x * D * act) for name in ("pad", "unpad")]
        if pads > 1 and copied and not fused
        else []
    )
    away, split, back = exchanged(microbatch, sent, D)
    away = away._replace(
        source="experts/narrow" if moe.latent else source,
        needs=microbatch.shard * D * act,
    )
    way = [
        away,
        *split,
        *block[:1],
        *feed_forward(microbatch, rows, moe),
        *block[1:],
        back,
    ]
    if not moe.latent:
        return way
    t = microbatch.shard
    narrow = linear(microbatch, name="experts/narrow", T=t, k=hidden, n=D)
    wide = linear(microbatch, name="experts/wide", T=t, k=D, n=hidden)
    return [narrow._replace(source=source), *way, wide]


def padding(microbatch: DeviceMicrobatch) -> float:
    """Tokens of an expert are rounded up to so many where its products are in FP8 or FP4; 1: they
    are not. The rest is as likely to be any number of tokens, so (padding - 1) / 2 are added.
    """
    recipe, by = microbatch.job.recipe, microbatch.profile
    if not recipe or not by or by.experts_padded == "none":
        return 1.0
    return PADDING.get(recipe, PADDED)


def padded(name: str, numbers: Num) -> Op:
    """Tokens of experts are copied into a block with room between experts, or back out of it."""
    step = Pass(0.0, 0.0, 2 * numbers)
    return Op(f"experts/{name}", "vector", step, step, needs=numbers)


def feed_forward(microbatch: DeviceMicrobatch, x: Num, moe: MoE) -> list[Op]:
    """The grouped products of a rank's E/ep experts on x token copies in all.

    Fused (`experts_fused`), a product ends with the activation (backward: with its gradient) and
    quantises what the next one reads: no pass but for the input of the activation, which the
    backward pass reads.
    """
    m = microbatch.model
    act = microbatch.act
    wgt = microbatch.wgt
    D = moe.latent or m.hidden
    F = moe.expert_ffn / microbatch.layout.etp
    here = moe.experts / microbatch.layout.ep
    fused = bool(microbatch.profile and microbatch.profile.experts_fused)

    def product(name: str, k: Num, n: Num) -> list[Op]:
        matrix = Matrix(copies=here, expert=True)
        op = linear(
            microbatch, name=f"experts/{name}", T=x, k=k, n=n, matrix=matrix
        )
        if fused:
            op = (
                op._replace(forward=fed(op.forward))
                if name == "down"
                else op._replace(backward=fed(op.backward))
            )
        if not moe.expert_bias:
            return [op]
        bias = blocks.bias(
            f"experts/{name} bias",
            x,
            n,
            act=act,
            wgt=wgt,
            expert=True,
            copies=here,
        )
        if name == "down" and not fused:  # what an expert returns is weighed
            bias = blocks.weighed_bias(bias, x * n, act=act)
        return [op, bias._replace(weights=here * n)]

    name = "experts/activation"
    autograd = microbatch.counting.backward_needs == "autograd"
    activation = (
        gated(microbatch, name, x * F)
        if m.gated
        else blocks.gelu(name, x * F, act=act)
    )
    by = microbatch.profile
    fused_clamp = bool(by and (by.clamp_fused or by.compiled))
    if moe.expert_bias and m.gated and not (autograd or fused or fused_clamp):
        activation = blocks.clamped(activation, x * F, act=act)
    if fused:
        activation = activation._replace(
            forward=activation.forward._replace(memory=0.0),
            backward=activation.backward._replace(memory=activation.inputs),
        )
    return [
        *product("up", D, F * (2 if m.gated else 1)),
        activation,
        *product("down", F, D),
    ]


def shared_experts(microbatch: DeviceMicrobatch, moe: MoE) -> list[Op]:
    """Experts that every token visits: a dense feed-forward, cut by tp."""
    if not moe.shared_ffn:
        return []
    width = moe.shared_ffn
    ops = dense(microbatch, width, name="shared")
    if not moe.shared_gate:
        return ops
    one = Matrix(quantised=False)
    hidden = microbatch.model.hidden
    gate = linear(
        microbatch,
        name="shared/gate",
        T=microbatch.shard,
        k=hidden,
        n=1,
        matrix=one,
    )
    return [*ops, gate]


def computing_experts(moe: MoE) -> float:
    """Experts that work on a token: those of its k choices that are none of the idle ones."""
    if not moe.idle_experts:
        return moe.top_k
    return moe.top_k * moe.experts / (moe.experts + moe.idle_experts)


def exchanged(
    microbatch: DeviceMicrobatch, sent: Num, D: float
) -> tuple[Op, list[Op], Op]:
    """`sent` token copies of D numbers on their way to experts, what etp ranks of an expert
    exchange apart, and the way back; backward, gradients go the other way.

    Back, they are weighed and summed: autograd keeps each copy, for the gradient of its weight.
    """
    layout, moe, by = (
        microbatch.layout,
        microbatch.model.moe,
        microbatch.profile,
    )
    width = D * microbatch.act
    copies = sent * width
    draw = Draw()
    dispatcher = ALLTOALL
    if moe and by:
        dispatcher = DISPATCHERS[by.dispatcher]
        draw = Draw(
            moe.top_k,
            row=moe.experts if by.routing == "neighbours" else 0,
            groups=moe.groups,
            top_groups=moe.top_groups,
        )
    tokens = Tokens(
        microbatch.shard * width, copies, layout.ep, layout.etp, draw
    )
    away, back = (
        Pass(memory=traffic.moved, comm=traffic.messages)
        for traffic in (dispatcher.away(tokens), dispatcher.back(tokens))
    )
    # unless the dispatcher's own messages bring the tokens of an expert's ranks together
    apart = all(message.axis != "etp" for message in away.comm)
    returned = copies if apart else copies * layout.etp
    autograd = microbatch.counting.backward_needs == "autograd"
    return (
        Op("experts/dispatch", "vector", away, back, needs=copies),
        [inner(microbatch, sent * layout.etp, D)] if apart else [],
        Op(
            "experts/combine",
            "vector",
            back,
            away,
            needs=returned,
            saved=returned if autograd else 0.0,
        ),
    )


def inner(microbatch: DeviceMicrobatch, x: Num, D: float) -> Op:
    """The etp ranks of an expert gather each other's tokens before it and reduce-scatter the
    results after it (counted here together).
    """
    volume = x * D * microbatch.act
    pair = (
        Message("all_gather", "etp", volume),
        Message("reduce_scatter", "etp", volume),
    )
    return Op("experts/etp", "vector", Pass(comm=pair), Pass(comm=pair))
