"""Search: every legal layout of a space, evaluated as tables; the best of them, exactly.

space -> degrees, options -> points -> evaluate (brute force) -> bound, cascade (the same result by
bounds) -> plan
"""

from .answer import Plan
from .cascade import search
from .evaluate import brute
from .plan import plan, planning
from .space import Space

__all__ = ["Plan", "Space", "brute", "plan", "planning", "search"]
