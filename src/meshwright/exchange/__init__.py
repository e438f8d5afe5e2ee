"""What ranks exchange inside a layer: those of cp, which hold parts of every sequence, give each
query its keys (one scheme per file); those of ep bring tokens to their experts (`experts`, or a
file of its own). Whatever `Exchange` or `Dispatcher` lies here is one of them (docs/extend.md).
"""

from __future__ import annotations

from ..parts import parts
from .experts import Dispatcher
from .types import AttentionWork, Collective, Exchange, RankHeads

EXCHANGES = parts("exchange", Exchange, lambda e: (not e.all_keys, e.name))
"""name -> exchange, those that leave every rank all heads first; descriptions check names against
it.
"""
DISPATCHERS = parts("exchange", Dispatcher, lambda d: bool(d.kernels))
"""name -> dispatcher, those that send by the library's collectives first; descriptions check names
against it.
"""
KERNELS = {name: d.kernels for name, d in DISPATCHERS.items() if d.kernels}
"""Kind of message -> the kernels that send it."""

__all__ = [
    "DISPATCHERS",
    "EXCHANGES",
    "KERNELS",
    "AttentionWork",
    "Collective",
    "Exchange",
    "RankHeads",
]
