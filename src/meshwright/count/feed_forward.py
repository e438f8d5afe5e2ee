"""The dense feed-forward, and the shared experts of a mixture, cut over tp by features."""

from __future__ import annotations

from ..describe.layers import Kind
from ..describe.model import Model
from ..num import Num
from . import blocks
from .blocks import Matrix
from .microbatch import DeviceMicrobatch
from .parallel import (
    Entry,
    after,
    column_parallel,
    inner_norm,
    pre_norm,
    row_parallel,
)
from .work import Op


def parallel_block(m: Model, kind: Kind) -> bool:
    """A parallel block: mixer and feed-forward read the same norm."""
    return m.norms_per_layer == 1 and kind.ffn and kind.mixer != "none"


def dense(
    microbatch: DeviceMicrobatch,
    width: Num,
    kind: Kind | None = None,
    name: str = "ffn",
) -> list[Op]:
    """Norm, up (and gate) projection, activation, down projection, residual; width = F.

    kind: the layer it ends; None: shared experts, which stand beside others.
    """
    m = microbatch.model
    c = microbatch.counting
    act = microbatch.act
    wgt = microbatch.wgt
    t = microbatch.tokens
    F = width / microbatch.tp
    gates = 2 if m.gated else 1
    shares_norm = kind is not None and parallel_block(m, kind)
    up = column_parallel(
        microbatch,
        name=f"{name}/up",
        k=m.hidden,
        n=F * gates,
        matrix=Matrix(calls=float(gates), columns=(F,) * gates),
        entry=Entry(gathers=not shares_norm, modules=gates),
    )
    ops = (
        [pre_norm(microbatch, f"{name}/norm")]
        if kind and not shares_norm
        else []
    )
    ops.append(
        up._replace(source="attention/norm" if shares_norm else "ffn/norm")
    )
    if m.bias:
        ops.append(
            blocks.bias(
                f"{name}/up bias",
                t,
                F * gates,
                act=act,
                wgt=wgt,
                chained=c.biases == "chained",
            )
        )
    ops.append(
        gated(microbatch, f"{name}/activation", t * F)
        if m.gated
        else blocks.gelu(f"{name}/activation", t * F, act=act)
    )
    if m.dropout and c.dropout == "lbl":
        ops.append(
            blocks.dropout(f"{name}/activation dropout", t * F, act=act)
        )
    if m.inner_norms:
        ops.append(inner_norm(microbatch, f"{name}/inner norm", t, F))
    ops.append(row_parallel(microbatch, name=f"{name}/down", k=F))
    return ops + (after(microbatch, name, biased=m.bias) if kind else [])


def gated(microbatch: DeviceMicrobatch, name: str, x: Num) -> Op:
    """SiLU(gate) * up of x elements: one kernel each way; or in plain torch SiLU (2 reads and
    writes) and the product (3), and back the gradients of SiLU(gate), of up and of gate (3 each),
    which are put side by side (4) where both are one matrix.
    """
    how, act = microbatch.counting, microbatch.act
    autograd = how.backward_needs == "autograd"
    if how.gate == "fused":
        return blocks.gated_activation(name, x, act=act, autograd=autograd)
    backward = 13.0 if how.input_gradients == "together" else 9.0
    return blocks.gated_activation(
        name, x, act=act, autograd=True, passes=(5.0, backward)
    )
