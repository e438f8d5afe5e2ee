"""Megatron's matrices with what lies between them cut along the hidden size: activations sharded in
two dimensions.

On a mesh of X x Y chips, X data-parallel (dp, cp) and Y = tp, tokens B_X lie on the axis X and the
hidden size D_Y on Y, weights on both:

    In[B_X, D_Y]   W_up[D_X, F_Y]   W_down[F_Y, D_X]   Out[B_X, D_Y]

    forward   W_up[D, F_Y] = AllGather_X        2 D F / Y bytes in 16 bits
              In[B_X, D]   = AllGather_Y        2 B D / X
              H[B_X, F_Y]  = In W_up
              W_down[F_Y, D] = AllGather_X      2 D F / Y
              Out[B_X, D] {U_Y} = H W_down,  ReduceScatter_Y to Out[B_X, D_Y]    2 B D / X
    backward  the same of dOut and dIn over Y; over X both weights again, and a ReduceScatter of
              their gradients
    FLOPs of a chip: forward 4 B D F / (X Y), backward twice that
    kept between layers: 2 B D / (X Y) bytes

What X sends is that of ZeRO-3 (`step.sync`), whatever the scheme: the two dimensions are
`scheme = "gspmd", zero = 3`; with less ZeRO weights are whole on X and only activations are cut
both ways. Two things differ from Megatron's sequence parallelism, which cuts B_XY instead of D_Y:
tp need not divide the tokens of a microbatch, and a norm, which sees D/Y features of every token,
adds up its statistics over Y (a number or two a token, each way). Its parameters, and biases of the
hidden size, are cut Y ways, so that their gradients need no sum over Y. What attention and
feed-forward send and compute is the same to the byte.

It is not 2D tensor parallelism, whose weights stay where they are while activations travel over
both axes (`mlp2d`; Pope et al. 2022, section 3.2.2), and not SUMMA.

Who does it: PaLM 540B, 12 model x 256 data-parallel chips a pod ("2D finalized", Chowdhery et al.
2022, arXiv 2204.02311, section 4, after Xu et al. 2021, GSPMD, arXiv 2105.04663, section 5.1); T5X
with activation_partitioning_dims = 2; MaxText's mesh axis `tensor` (base.yml: activation_embed and
norm over tensor, as of 2026-08). Formulas: How To Scale Your Model, part 5, "FSDP + tensor
parallelism".
"""

from __future__ import annotations

from ..exchange.types import Message
from .blocks import FP32, NORM_STATISTICS
from .microbatch import DeviceMicrobatch


def statistics(microbatch: DeviceMicrobatch) -> tuple[Message, ...]:
    """What a norm of a cut hidden size adds up over tp, each way: a fp32 number or two a token."""
    if not microbatch.hidden_cut:
        return ()
    volume = NORM_STATISTICS[microbatch.model.norm] * microbatch.tokens * FP32
    return (Message("all_reduce", "tp", volume),)
