"""Expert parallelism (Lepikhin et al. 2021): E experts over n ranks, tokens travel to them and
back.

Each rank has E/n experts and its part of the batch. A router gives every token a gate for every
expert; here each expert takes the s/E tokens of a sequence with the largest gates (expert choice,
Zhou et al. 2022), so that all get equally many. An all-to-all dispatches them, another brings the
experts' outputs back; backward, the same two the other way round. Of what a rank has, (n-1)/n
leaves it each time. All W weights but the experts' are replicated, and their gradients all-
reduced.

    bytes a rank sends = l * 4 (n-1)/n * 4 b s h / n + 2 (n-1)/n * 4 W

Where tokens choose their k experts instead, k times as much leaves if all experts are equally
loved.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .model import Batch, Shape, StudyStep, gradients, loss
from .ring import Operator, RankRing, conjugate, identity

EXPERTS = 4


class StudyExperts(nn.Module):
    """E small MLPs in the place of one; of S tokens of a sequence each expert takes C."""

    def __init__(self, m: Shape) -> None:
        super().__init__()
        self.router = nn.Linear(m.hidden, EXPERTS, bias=False)
        up = torch.randn(EXPERTS, m.hidden, 4 * m.hidden)
        down = torch.randn(EXPERTS, 4 * m.hidden, m.hidden)
        self.up = nn.Parameter(up / m.hidden**0.5)
        self.down = nn.Parameter(down / m.hidden**0.5 / 2)
        self.dispatch: Operator = identity
        self.combine: Operator = identity

    def forward(self, x_BSD: Tensor) -> Tensor:
        gate_BSE = self.router(x_BSD).softmax(-1)
        chosen = x_BSD.shape[1] // EXPERTS
        gate_BEC, at_BEC = gate_BSE.mT.topk(chosen)
        rows_B = torch.arange(len(x_BSD))[:, None, None]
        x_EBCD = self.dispatch(x_BSD[rows_B, at_BEC].transpose(0, 1))
        x_ETD = x_EBCD.flatten(1, 2)
        y_ETD = fn.gelu(x_ETD @ self.up) @ self.down
        y_BECD = self.combine(y_ETD.view_as(x_EBCD)).transpose(0, 1)
        return torch.zeros_like(x_BSD).index_put(
            (rows_B, at_BEC), gate_BEC[..., None] * y_BECD, accumulate=True
        )


def expert_part(name: str, weight: Tensor, ring: RankRing) -> Tensor:
    """This rank's experts; all of any other weight."""
    if name.endswith(("mlp.up", "mlp.down")):
        return weight.chunk(ring.size)[ring.rank]
    return weight


def ep_step(
    model: nn.Sequential, data: Batch, m: Shape, ring: RankRing
) -> StudyStep:
    def dispatch(x_EBCD: Tensor) -> Tensor:
        """All experts, this rank's sequences -> this rank's experts, all sequences."""
        return torch.cat(ring.all_to_all(x_EBCD.chunk(ring.size, 0)), 1)

    def combine(x_EBCD: Tensor) -> Tensor:
        return torch.cat(ring.all_to_all(x_EBCD.chunk(ring.size, 1)), 0)

    shared = {
        n for n, w in model.named_parameters() if w is expert_part(n, w, ring)
    }
    for name, weight in model.named_parameters():
        weight.data = expert_part(name, weight.data, ring).clone()
    for module in model.modules():
        if isinstance(module, StudyExperts):
            module.dispatch = conjugate(dispatch, combine)
            module.combine = conjugate(combine, dispatch)
    mine = data.part(ring.rank, ring.size)
    share = loss(model(mine.tokens), mine.targets, m)
    torch.autograd.backward(share)
    added = {
        name: ring.all_reduce(g) if name in shared else g
        for name, g in gradients(model).items()
    }
    return StudyStep(share, added)
