"""FLOPs of a torch decoder on meta tensors by named operation, forward and backward, from the
formulas of PyTorch's own counter.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry
from torch_models import Decoder, Kernel

from meshwright import Model

Flops = dict[str, int]


class ByName(TorchDispatchMode):
    """Books each operation's FLOPs under the module that ran it, in backward under the module whose
    forward made the gradient function.

    FlopCounterMode names backward work by hooks, which branches beside each other (shared experts,
    parallel blocks) confuse; the number that autograd gives every forward operation does not.
    """

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self.forward: Counter[str] = Counter()
        self.backward: Counter[str] = Counter()
        self.running = [""]
        self.made_by: dict[int, str] = {}
        for path, module in root.named_modules():
            name = "/".join(
                [part for part in path.split(".") if not part.isdigit()][-2:]
            ).replace("_", " ")
            module.register_forward_pre_hook(partial(self.enter, name))
            module.register_forward_hook(self.leave)

    def enter(self, name: str, *_: Any) -> None:
        self.running.append(name)

    def leave(self, *_: Any) -> None:
        self.running.pop()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = op(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        if node is None:
            self.made_by.setdefault(
                torch.autograd._get_sequence_nr() - 1, self.running[-1]
            )  # type: ignore[attr-defined]
        if op._overloadpacket in flop_registry:
            flops = flop_registry[op._overloadpacket](
                *args, **(kwargs or {}), out_val=result
            )
            if node is None:
                self.forward[self.running[-1]] += flops
            else:
                self.backward[self.made_by[node._sequence_nr()]] += flops
        return result


def counted(model: Model, T: int, kernel: Kernel) -> tuple[Flops, Flops]:
    """(forward, backward) FLOPs of one sequence of T tokens by operation ("attention/qkv"), summed
    over layers.
    """
    with torch.device("meta"):
        decoder, tokens = (
            Decoder(model, kernel),
            torch.empty(1, T, dtype=torch.long),
        )
    with FlopCounterMode(display=False) as total, ByName(decoder) as named:
        torch.stack([y.sum() for y in decoder(tokens)]).sum().backward()
    assert (
        named.forward.total() + named.backward.total()
        == total.get_total_flops()
    )
    return dict(named.forward), dict(named.backward)
