"""The mixture-of-experts feed-forward under expert parallelism: route, all-to-all, experts,
all-to-all back.

Each rank holds E/ep experts, each cut etp ways, and sends every one of its tokens to k of them.
Routing is taken as balanced, so a rank computes as many token copies as it sends: x = shard k
(times etp: the etp ranks of an expert see each other's tokens). Source: Lepikhin et al. 2020
(GShard); DeepSeek-AI 2024 for shared experts and leading dense layers.
"""

from __future__ import annotations

from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.model import MoE
from ..num import Num
from . import blocks, megatron
from .blocks import Matrix
from .linear import linear
from .work import ONCE_A_NODE, Local, Message, Op, Pass, reached


def experts(job: Job, layout: Layout, size: Local, beside: bool) -> list[Op]:
    """Operations of one mixture-of-experts feed-forward for one microbatch on one device, in
    forward order.

    beside: it stands beside the attention, whose norm it reads.
    """
    m = job.model
    act = job.precision.activation_bytes
    wgt = job.precision.weight_bytes
    moe = m.moe
    assert moe is not None
    D = moe.latent or m.hidden
    F = moe.expert_ffn / layout.etp
    here = moe.experts / layout.ep
    sent = size.shard * computed(moe)
    x = sent * layout.etp
    gates = 2 if m.gated else 1

    def product(name: str, k: Num, n: Num) -> Op:
        return linear(
            job,
            layout,
            f"experts/{name}",
            x,
            k,
            n,
            of=Matrix(copies=here, expert=True),
        )

    # the router works on the device's own tokens; its weights are on every rank
    choices = moe.experts + moe.idle_experts
    router = linear(
        job,
        layout,
        "experts/router",
        size.shard,
        m.hidden,
        choices,
        of=Matrix(quantised=False),
    )
    router = router._replace(
        weights=router.weights + (choices if moe.router_bias else 0)
    )
    gather, _ = megatron.collectives(layout, size.tokens * m.hidden * act)
    # only shared experts need the whole sequence on each tp rank
    shared_gather = gather if moe.shared_ffn else ()
    normed = "attention/norm" if beside else "ffn/norm"
    ops = (
        []
        if beside
        else [megatron.norm(job, normed, size, backward=shared_gather)]
    )
    ops.append(router._replace(source=normed))
    if moe.latent:
        narrow = linear(
            job,
            layout,
            "experts/narrow",
            size.shard,
            m.hidden,
            D,
        )
        ops.append(narrow._replace(source=normed))
    ops += [
        dispatch(job, layout, sent, "dispatch")._replace(
            source="experts/narrow" if moe.latent else normed,
            needs=size.shard * D * act,
        ),
        inner(layout, x, D, act),
    ]
    ops.append(product("up", D, F * gates))
    if moe.expert_bias:
        ops.append(
            blocks.bias(
                "experts/up bias",
                x,
                F * gates,
                act=act,
                wgt=wgt,
                expert=True,
                copies=here,
            )._replace(weights=here * F * gates)
        )
    ops.append(
        (blocks.gated_activation if m.gated else blocks.gelu)(
            "experts/activation", x * F, act=act
        )
    )
    ops.append(product("down", F, D))
    if moe.expert_bias:
        ops.append(
            blocks.bias(
                "experts/down bias",
                x,
                D,
                act=act,
                wgt=wgt,
                expert=True,
                copies=here,
            )._replace(weights=here * D)
        )
    ops.append(dispatch(job, layout, sent, "combine"))
    if moe.latent:
        ops.append(
            linear(
                job,
                layout,
                "experts/wide",
                size.shard,
                D,
                m.hidden,
            )
        )
    if moe.post_norm:
        ops.append(megatron.norm(job, "experts/post norm", size))
    if moe.shared_ffn:
        ops += megatron.dense(
            job,
            layout,
            size,
            moe.shared_ffn,
            name="shared",
        )
    if moe.shared_gate:
        ops.append(
            linear(
                job,
                layout,
                "shared/gate",
                size.shard,
                m.hidden,
                1,
                of=Matrix(quantised=False),
            )
        )
    return ops + megatron.after(
        job,
        layout,
        size,
        "ffn",
        biased=False,
    )


def computed(moe: MoE) -> float:
    """Experts that work on a token: those of its k choices that are none of the idle ones."""
    if not moe.idle_experts:
        return moe.top_k
    return moe.top_k * moe.experts / (moe.experts + moe.idle_experts)


def dispatch(job: Job, layout: Layout, sent: Num, name: str) -> Op:
    """Sort `sent` token copies by expert and exchange them over ep; backward sends the gradients
    the other way.

    An all-to-all reads and writes all copies twice: sorted by rank before it, by expert after it.
    Kernels that send a token once read it where it is, and it is copied for its experts where it
    arrives: once read a rank, once written an expert.
    """
    moe = job.model.moe
    width = (
        (moe and moe.latent) or job.model.hidden
    ) * job.precision.activation_bytes
    message = Message("all_to_all", "ep", sent * width)
    passes: Num = 4.0
    if moe and job.profile and job.profile.dispatcher in ONCE_A_NODE:
        message = message._replace(
            kind=job.profile.dispatcher, copies=moe.top_k
        )
        passes = reached(layout.ep, moe.top_k) / moe.top_k + 1.0
    step = Pass(0.0, 0.0, passes * sent * width, (message,))
    return Op(f"experts/{name}", "vector", step, step, needs=sent * width)


def inner(layout: Layout, x: Num, D: float, act: float) -> Op:
    """The etp ranks of an expert gather each other's tokens before it and reduce-scatter the
    results after it (counted here together).
    """
    pair = (
        Message("all_gather", "etp", x * D * act),
        Message("reduce_scatter", "etp", x * D * act),
    )
    return Op("experts/etp", "vector", Pass(comm=pair), Pass(comm=pair))
