"""What NCCL's tuner takes on one network, carried out on another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from meshwright import Dim
from meshwright.cost import nccl_choice
from meshwright.cost.collectives.nccl import Nccl
from meshwright.cost.links import Group, Links
from meshwright.cost.load import Load
from meshwright.cost.span import over
from meshwright.num import Num


@dataclass(frozen=True)
class SameChoice(Nccl):
    """NCCL whose tuner reckons with other dimensions than it runs on: the choice is its own belief,
    and may be worse on a faster network.
    """

    seen: tuple[Dim, ...]

    def load(self, net: Links, kind: str, V: Num, group: Group) -> Load:
        on_seen = over(replace(net, dims=self.seen), group)

        def there(choose: Callable[..., Any]) -> Callable[..., Any]:
            return lambda _, *asked: choose(on_seen, *asked)

        with pytest.MonkeyPatch.context() as patch:
            for choose in (nccl_choice.gather, nccl_choice.all_reduce):
                patch.setattr(nccl_choice, choose.__name__, there(choose))
            return super().load(net, kind, V, group)
