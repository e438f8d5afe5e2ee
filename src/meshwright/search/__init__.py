"""Search: every legal layout of a space, evaluated as tables; the best of them, exactly.

A question is a `space` of choices. Its rows are combinations of degrees (`degrees`), its options
all other choices (`options`, `ways`). `points` says what rows take under options, `legal` which of
them can run. `evaluate` places rows and has brute force; `cascade` finds the same by the bounds of
`bound`; both fill a `best`. Around it stand the questions of a plan: `strategies` (its spaces),
`families` (parts of a space), `ranked` (several spaces, by replay), `question` (the answer),
`plan`.
"""

from .answer import Plan
from .cascade import search
from .evaluate import brute
from .plan import plan, planning
from .question import Question
from .space import Space

__all__ = ["Plan", "Question", "Space", "brute", "plan", "planning", "search"]
