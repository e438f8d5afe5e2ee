"""Context parallelism: how the ranks of cp, which hold parts of every sequence, give each query its
keys. One scheme per file; a new one is named in `EXCHANGES` (docs/extend.md).
"""

from __future__ import annotations

from .all_to_all import ALL_TO_ALL
from .gather import GATHER
from .ring import RING
from .types import AttentionWork, Collective, Exchange, RankHeads

EXCHANGES = {e.name: e for e in (GATHER, RING, ALL_TO_ALL)}
"""name -> exchange, the usual first; descriptions check names against it."""

__all__ = ["EXCHANGES", "Exchange", "RankHeads", "Collective", "AttentionWork"]
