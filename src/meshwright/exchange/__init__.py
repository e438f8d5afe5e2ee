"""What ranks exchange inside a layer: those of cp, which hold parts of every sequence, give each
query its keys (one scheme per file, named in `EXCHANGES`); those of ep bring tokens to their
experts (`experts`, one entry a dispatcher).
"""

from __future__ import annotations

from .all_to_all import ALL_TO_ALL
from .gather import GATHER
from .ring import RING
from .types import AttentionWork, Collective, Exchange, RankHeads

EXCHANGES = {e.name: e for e in (GATHER, RING, ALL_TO_ALL)}
"""name -> exchange, the usual first; descriptions check names against it."""

__all__ = ["EXCHANGES", "Exchange", "RankHeads", "Collective", "AttentionWork"]
