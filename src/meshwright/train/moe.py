"""The feed-forward of a layer: two or three matrices, or a mixture of experts in their place: each
token goes to k of E experts, over ep ranks if they share the experts out.

N tokens of this rank, M copies of tokens, D hidden, F expert width. No token is dropped. The
weights of a token's k experts are the softmax, in fp32, of its k largest logits (Jiang et al. 2024,
Mixtral; Qwen3). Shared experts see every token (DeepSeek-AI 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed._functional_collectives import (
    all_to_all_single,
    all_to_all_single_autograd,
)
from torch.distributed.tensor import DTensor
from torch.nn import functional as fn

from ..describe.model import Model
from .balance import Balance, loads

ACTIVATIONS = {
    "silu": fn.silu,
    "gelu": fn.gelu,
    "gelu-tanh": partial(fn.gelu, approximate="tanh"),
    "relu": fn.relu,
}


class FeedForward(nn.Module):
    """Three matrices with a gate, or two."""

    def __init__(self, m: Model, width: int) -> None:
        super().__init__()
        self.act: Any = ACTIVATIONS[m.act]
        self.gate = (
            nn.Linear(m.hidden, width, bias=m.bias) if m.gated else None
        )
        self.up = nn.Linear(m.hidden, width, bias=m.bias)
        self.down = nn.Linear(width, m.hidden, bias=m.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        up_BTF = self.up(x_BTD)
        y_BTD: Tensor = self.down(
            self.act(up_BTF)
            if self.gate is None
            else self.act(self.gate(x_BTD)) * up_BTF
        )
        return y_BTD


class ExpertRows:
    """How many rows each expert has, of rows sorted by expert; on the host only if someone asks."""

    def __init__(
        self, count_E: Tensor, listed: list[int] | None = None
    ) -> None:
        self.count_E, self.known = count_E, listed

    @property
    def listed(self) -> list[int]:
        """On the host."""
        if self.known is None:
            self.known = read_loads(self.count_E)
        return self.known

    def of(self, M: int) -> Tensor:
        """The expert of each of the M rows."""
        count = self.count_E
        return torch.arange(len(count), device=count.device).repeat_interleave(
            count, output_size=M
        )


Compute = Callable[[Tensor, ExpertRows], Tensor]
"""Rows sorted by expert, and how many each has -> as many rows."""


def read_loads(x: Tensor) -> list[Any]:
    """Numbers of a device on the host: the one thing here that a GPU has to be waited for."""
    numbers: list[Any] = x.tolist()
    return numbers


def grouped(x_MD: Tensor) -> bool:
    """Whether one product takes the rows of all experts: PyTorch's kernel is for bf16 on GPUs."""
    return x_MD.device.type == "cuda" and x_MD.dtype == torch.bfloat16


class Linears(nn.Module):
    """One linear map for each expert: weight [E, out, inner], bias [E, out]; under expert
    parallelism this rank's share of them.
    """

    def __init__(self, experts: int, inner: int, out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, out, inner))
        self.bias = nn.Parameter(torch.empty(experts, out)) if bias else None

    def forward(self, x_MD: Tensor, rows: ExpertRows) -> Tensor:
        w_EFD = local_part(self.weight)
        b_EF = None if self.bias is None else local_part(self.bias)
        product = in_one if grouped(x_MD) else one_by_one
        return product(x_MD, w_EFD, b_EF, rows)


def in_one(
    x_MD: Tensor, w_EFD: Tensor, b_EF: Tensor | None, rows: ExpertRows
) -> Tensor:
    """The maps of all experts as one grouped product; nothing is read on the host."""
    ends_E = rows.count_E.cumsum(0).to(torch.int32)
    y_MF: Tensor = fn.grouped_mm(x_MD, w_EFD.transpose(1, 2), offs=ends_E)
    return y_MF if b_EF is None else y_MF + b_EF[rows.of(len(x_MD))]


def one_by_one(
    x_MD: Tensor, w_EFD: Tensor, b_EF: Tensor | None, rows: ExpertRows
) -> Tensor:
    """The maps of the experts one after the other."""
    biases = [None] * len(w_EFD) if b_EF is None else b_EF.unbind()
    parts = zip(
        torch.split(x_MD, rows.listed), w_EFD.unbind(), biases, strict=True
    )
    # as batches of one, so that recomputation does not count them among a layer's products
    return torch.cat(
        [
            torch.bmm(x[None], w.t()[None])[0]
            if b is None
            else torch.baddbmm(b, x[None], w.t()[None])[0]
            for x, w, b in parts
        ]
    )


class Experts(nn.Module):
    """The routed experts of a layer."""

    def __init__(self, m: Model) -> None:
        super().__init__()
        assert m.moe is not None
        E = m.moe.experts
        F = m.moe.expert_ffn
        bias = m.moe.expert_bias
        self.count = E
        self.act: Any = ACTIVATIONS[m.act]
        self.group: ProcessGroup | None = None
        """The ep ranks, each with E/ep experts in order; None: all are here."""
        self.gate = Linears(E, m.hidden, F, bias) if m.gated else None
        self.up = Linears(E, m.hidden, F, bias)
        self.down = Linears(E, F, m.hidden, bias)

    def forward(self, x_ND: Tensor, choice_Nk: Tensor) -> Tensor:
        """What each expert says to each token it was chosen for, [N, k, D]."""
        choice_M = choice_Nk.flatten()
        k = choice_Nk.shape[1]
        order_M = choice_M.argsort(stable=True)
        sent_E = loads(choice_M, self.count)
        # rows have no name here: they are let go when they are sent
        y_MD = (
            self.compute(x_ND[order_M // k], ExpertRows(sent_E))
            if self.group is None
            else exchanged(
                x_ND[order_M // k], sent_E, self.group, self.compute
            )
        )
        return y_MD[inverse(order_M)].view(*choice_Nk.shape, -1)

    def compute(self, x_MD: Tensor, rows: ExpertRows) -> Tensor:
        """The feed-forward of each expert on its rows."""
        up_MF = self.up(x_MD, rows)
        gate_MF = None if self.gate is None else self.gate(x_MD, rows)
        y_MD: Tensor = self.down(self.activate(up_MF, gate_MF), rows)
        return y_MD

    def activate(self, up_MF: Tensor, gate_MF: Tensor | None) -> Tensor:
        """What stands between the products, element by element."""
        y_MF: Tensor = (
            self.act(up_MF) if gate_MF is None else self.act(gate_MF) * up_MF
        )
        return y_MF


class MixtureOfExperts(nn.Module):
    """Router, experts, and shared experts."""

    def __init__(self, m: Model) -> None:
        super().__init__()
        moe = m.moe
        assert moe is not None
        self.k = moe.top_k
        self.balance: Balance | None = None
        self.load_E = torch.empty(0)
        """How often each expert was chosen in this step, where loads are balanced."""
        self.favour_E: Tensor | None = None
        """What is added to the probabilities where experts are chosen."""
        self.router = nn.Linear(m.hidden, moe.experts, bias=moe.router_bias)
        self.experts = Experts(m)
        self.shared = (
            FeedForward(m, moe.shared_ffn) if moe.shared_ffn else None
        )
        self.shared_gate = (
            nn.Linear(m.hidden, 1, bias=False) if moe.shared_gate else None
        )

    def choice(self, logit_NE: Tensor) -> Tensor:
        """The experts of each token, [N, k]."""
        if self.favour_E is None:
            return logit_NE.topk(self.k).indices
        return (logit_NE.softmax(-1) + self.favour_E).topk(self.k).indices

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_ND = x_BTD.flatten(0, 1)
        logit_NE = self.router(x_ND).float()
        choice_Nk = self.choice(logit_NE)
        weight_Nk = logit_NE.gather(1, choice_Nk).softmax(-1)
        if self.balance is not None and torch.is_grad_enabled():
            weight_Nk = self.balance.pressed(
                self, weight_Nk, logit_NE, choice_Nk.view(len(x_BTD), -1)
            )
        weight_Nk = weight_Nk.to(x_ND.dtype)
        return self.join(self.experts(x_ND, choice_Nk), weight_Nk, x_BTD)

    def join(self, y_NkD: Tensor, weight_Nk: Tensor, x_BTD: Tensor) -> Tensor:
        """What a token's k experts say, by their weights, and what the shared ones say."""
        y_BTD = (weight_Nk[..., None] * y_NkD).sum(1).view_as(x_BTD)
        if self.shared is None:
            return y_BTD
        shared_BTD: Tensor = self.shared(x_BTD)
        if self.shared_gate is not None:
            shared_BTD = shared_BTD * self.shared_gate(x_BTD).sigmoid()
        return y_BTD + shared_BTD


def exchanged(
    x_MD: Tensor, sent_E: Tensor, group: ProcessGroup, compute: Compute
) -> Tensor:
    """Send rows, sorted by expert, to the ranks of their experts, compute there, bring them back in
    the same order.

    sent_E: rows for each expert. Two all-to-all exchanges of rows, and one, before them, of how
    many.
    """
    ranks = group.size()
    got_E = all_to_all_single(sent_E, None, None, group)
    both = read_loads(torch.stack([sent_E, got_E]).view(2, ranks, -1))
    sent, got = ([sum(of_rank) for of_rank in side] for side in both)
    got_re = got_E.view(ranks, -1)  # from rank r, for expert e of this rank
    x_MD = all_to_all_single_autograd(x_MD, got, sent, group)
    expert_M = (
        torch.arange(got_re.shape[1], device=got_re.device)
        .repeat(ranks)
        .repeat_interleave(got_re.flatten(), output_size=len(x_MD))
    )
    order_M = expert_M.argsort(stable=True)
    rows = ExpertRows(
        got_re.sum(0), [sum(e) for e in zip(*both[1], strict=True)]
    )
    x_MD = x_MD[order_M]
    y_MD = compute(x_MD, rows)
    y_MD = y_MD[inverse(order_M)]
    back_MD: Tensor = all_to_all_single_autograd(y_MD, sent, got, group)
    return back_MD


def inverse(order: Tensor) -> Tensor:
    """The permutation that undoes another."""
    return torch.empty_like(order).scatter_(
        0, order, torch.arange(len(order), device=order.device)
    )


def local_part(x: Tensor) -> Tensor:
    """This rank's part of a weight; its gradient is that of the part."""
    return x.to_local() if isinstance(x, DTensor) else x
