"""The mixture-of-experts feed-forward under expert parallelism: route, all-to-all, experts,
all-to-all back.

Each rank holds E/ep experts, each cut etp ways, and sends every one of its tokens to k of them.
Routing is taken as balanced, so a rank computes as many token copies as it sends: x = shard k
(times etp: the etp ranks of an expert see each other's tokens). Source: Lepikhin et al. 2020
(GShard); DeepSeek-AI 2024 for shared experts and leading dense layers.
"""

from __future__ import annotations

from ..describe.model import MoE
from ..num import Num
from . import blocks
from .blocks import Matrix
from .feed_forward import dense, gated
from .linear import linear
from .local import Local
from .parallel import after, norm, pre_norm
from .reach import Draw, expected_reach
from .work import ONCE_A_NODE, Message, Op, Pass, fed

PADDED = 16.0
"""Tokens to whose multiple an expert's share is rounded up in FP8."""
PADDING = {"mxfp8": 32.0, "nvfp4": 128.0}
"""Recipe -> the same, where it is more. Source: NVIDIA/TransformerEngine@294e7507,
get_align_size_for_quantization.
"""


def experts(local: Local, beside: bool) -> list[Op]:
    """Operations of one mixture-of-experts feed-forward for one microbatch on one device, in
    forward order.

    beside: it stands beside the attention, whose norm it reads.
    """
    m = local.model
    moe = m.moe
    assert moe is not None
    normed = "attention/norm" if beside else "ffn/norm"
    ops = []
    if not beside:
        # only shared experts need the whole sequence on each tp rank
        ops = [
            pre_norm(local, normed) if moe.shared_ffn else norm(local, normed)
        ]
    ops.append(router(local, moe)._replace(source=normed))
    ops += routed_experts(local, moe, source=normed)
    if moe.post_norm:
        ops.append(norm(local, "experts/post norm"))
    ops += shared_experts(local, moe)
    # routed experts bring their own biases, shared ones end as a dense feed-forward does
    biased = m.bias and bool(moe.shared_ffn)
    return ops + after(local, name="ffn", biased=biased)


def router(local: Local, moe: MoE) -> Op:
    """It works on the device's own tokens; its weights are on every rank."""
    choices = moe.experts + moe.idle_experts
    op = linear(
        local,
        name="experts/router",
        T=local.shard,
        k=local.model.hidden,
        n=choices,
        matrix=Matrix(quantised=False),
    )
    bias = choices if moe.router_bias else 0
    return op._replace(weights=op.weights + bias)


def routed_experts(local: Local, moe: MoE, source: str) -> list[Op]:
    """Token copies on their way to the experts, through them and back; between a product down to
    the experts' own width and one up from it where the model has one (`latent`).
    """
    hidden = local.model.hidden
    D = moe.latent or hidden
    act = local.act
    sent = local.shard * computing_experts(moe)
    x = sent * local.layout.etp
    pads = padding(local)
    rows = x + (pads - 1.0) / 2.0 * moe.experts / local.layout.ep
    copied = bool(local.profile and local.profile.experts_padded == "copied")
    fused = bool(local.profile and local.profile.experts_fused)
    block = (
        [padded(name, x * D * act) for name in ("pad", "unpad")]
        if pads > 1 and copied and not fused
        else []
    )
    if local.profile and local.profile.dispatcher == "allgather":
        away, back = gathered(local, sent, D)
        split = []
    else:
        away, back = dispatch(local, sent, "dispatch"), combine(local, sent)
        split = [inner(local, x, D)]
    away = away._replace(
        source="experts/narrow" if moe.latent else source,
        needs=local.shard * D * act,
    )
    way = [
        away,
        *split,
        *block[:1],
        *feed_forward(local, rows, moe),
        *block[1:],
        back,
    ]
    if not moe.latent:
        return way
    t = local.shard
    narrow = linear(local, name="experts/narrow", T=t, k=hidden, n=D)
    wide = linear(local, name="experts/wide", T=t, k=D, n=hidden)
    return [narrow._replace(source=source), *way, wide]


def padding(local: Local) -> float:
    """Tokens of an expert are rounded up to so many where its products are in FP8 or FP4; 1: they
    are not. The rest is as likely to be any number of tokens, so (padding - 1) / 2 are added.
    """
    narrow = local.job.precision.compute in ("fp8", "fp4")
    if (
        not narrow
        or not local.profile
        or local.profile.experts_padded == "none"
    ):
        return 1.0
    fp4 = local.job.precision.compute == "fp4"
    return PADDING.get("nvfp4" if fp4 else local.profile.float8, PADDED)


def padded(name: str, numbers: Num) -> Op:
    """Tokens of experts are copied into a block with room between experts, or back out of it."""
    step = Pass(0.0, 0.0, 2 * numbers)
    return Op(f"experts/{name}", "vector", step, step, needs=numbers)


def feed_forward(local: Local, x: Num, moe: MoE) -> list[Op]:
    """The grouped products of a rank's E/ep experts on x token copies in all.

    Fused (`experts_fused`), a product ends with the activation (backward: with its gradient) and
    quantises what the next one reads: no pass but for the input of the activation, which the
    backward pass reads.
    """
    m = local.model
    act = local.act
    wgt = local.wgt
    D = moe.latent or m.hidden
    F = moe.expert_ffn / local.layout.etp
    here = moe.experts / local.layout.ep
    fused = bool(local.profile and local.profile.experts_fused)

    def product(name: str, k: Num, n: Num) -> list[Op]:
        matrix = Matrix(copies=here, expert=True)
        op = linear(
            local, name=f"experts/{name}", T=x, k=k, n=n, matrix=matrix
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
    autograd = local.counting.backward_needs == "autograd"
    activation = (
        gated(local, name, x * F)
        if m.gated
        else blocks.gelu(name, x * F, act=act)
    )
    by = local.profile
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


def shared_experts(local: Local, moe: MoE) -> list[Op]:
    """Experts that every token visits: a dense feed-forward, cut by tp."""
    if not moe.shared_ffn:
        return []
    width = moe.shared_ffn
    ops = dense(local, width, name="shared")
    if not moe.shared_gate:
        return ops
    one = Matrix(quantised=False)
    hidden = local.model.hidden
    gate = linear(
        local, name="shared/gate", T=local.shard, k=hidden, n=1, matrix=one
    )
    return [*ops, gate]


def computing_experts(moe: MoE) -> float:
    """Experts that work on a token: those of its k choices that are none of the idle ones."""
    if not moe.idle_experts:
        return moe.top_k
    return moe.top_k * moe.experts / (moe.experts + moe.idle_experts)


def dispatch(local: Local, sent: Num, name: str) -> Op:
    """Sort `sent` token copies by expert and exchange them over ep; backward sends the gradients
    the other way.

    An all-to-all reads and writes all copies twice: sorted by rank before it, by expert after it.
    Kernels that send a token once read it where it is, and it is copied for its experts where it
    arrives: once read a rank, once written an expert.
    """
    moe = local.model.moe
    width = ((moe and moe.latent) or local.model.hidden) * local.act
    message = Message("all_to_all", "ep", sent * width)
    passes: Num = 4.0
    if moe and local.profile and local.profile.dispatcher in ONCE_A_NODE:
        draw = Draw(
            moe.top_k,
            row=moe.experts if local.profile.routing == "neighbours" else 0,
            groups=moe.groups,
            top_groups=moe.top_groups,
        )
        message = message._replace(kind=local.profile.dispatcher, draw=draw)
        passes = expected_reach(local.layout.ep, draw) / moe.top_k + 1.0
    step = Pass(0.0, 0.0, passes * sent * width, (message,))
    return Op(f"experts/{name}", "vector", step, step, needs=sent * width)


def combine(local: Local, sent: Num) -> Op:
    """Tokens come back from their experts and are weighed and summed: autograd keeps each copy, for
    the gradient of its weight.
    """
    op = dispatch(local, sent, "combine")
    autograd = local.counting.backward_needs == "autograd"
    return op._replace(saved=op.needed) if autograd else op


def gathered(local: Local, sent: Num, D: float) -> tuple[Op, Op]:
    """(to experts, back): a rank gathers the tokens of all ranks of experts, etp ranks of each too,
    and picks the copies of its own; what they return is added up to all tokens, which are
    reduce-scattered. Backward the other way round.

    Picked, x = `sent` etp copies are read and written; added up, zeros of all tokens are written,
    and copies are read and added to them (3 x). Source: NVIDIA/Megatron-LM@d98e8a64,
    core/transformer/moe/token_dispatcher.py, MoEAllGatherTokenDispatcher.
    """
    layout, width = local.layout, D * local.act
    near = local.shard * layout.etp * width
    whole = near * layout.ep
    copies = sent * layout.etp * width
    gathers = (
        Message("all_gather", "etp", near),
        Message("all_gather", "ep", whole),
    )
    scatters = (
        Message("reduce_scatter", "ep", whole),
        Message("reduce_scatter", "etp", near),
    )
    picked = Pass(0.0, 0.0, 2 * copies, gathers)
    summed = Pass(0.0, 0.0, whole + 3 * copies, scatters)
    return (
        Op("experts/dispatch", "vector", picked, summed, needs=near),
        Op("experts/combine", "vector", summed, picked, needs=copies),
    )


def inner(local: Local, x: Num, D: float) -> Op:
    """The etp ranks of an expert gather each other's tokens before it and reduce-scatter the
    results after it (counted here together).
    """
    volume = x * D * local.act
    pair = (
        Message("all_gather", "etp", volume),
        Message("reduce_scatter", "etp", volume),
    )
    return Op("experts/etp", "vector", Pass(comm=pair), Pass(comm=pair))
