"""Search: the layouts of a job that take least, found exactly without evaluating all of them.

A `space` says which values each field of a layout may have: the parallel sizes that Megatron-LM
calls tensor, context, pipeline, expert and data parallel, the microbatch, its schedules and so on.
Sizes are rows of a `table` (`degrees`), all other choices `options` of every row, and ranks lie in
the network by one `placement` or another; `legal` says what can run. `columns` makes layouts of
rows, and `points` asks the same `step` as a prediction for their seconds and bytes; `evaluate` does
so for placed rows, and on every row that is brute force.

`cascade` drops rows only by a `bound` that none of their layouts undercuts, against a limit that
only falls: the k-th best layout so far (`state`). First `candidates` are bounded by their layers
alone, then by the whole step with every group nearest, of an interval of dp with its fewest ranks
in collectives and its most in shards; what is left is placed and evaluated. The step's sum is never
above its replay, so `ranked` replays rows in the order of that sum until the next one
exceeds the k-th best replay, and searches again where it has run out of rows.

A `plan` asks a `question` of the spaces that `strategies` makes, with parts by `families` and
`precedent`, on these chips and on cleaner numbers of them (`fewer_chips`). `merit` is what ranks,
`front` trades time for memory, `recipes` are published layouts, `software` and `joint_software`
settings beside layouts, `misfit` and `misfit_values` the reasons where nothing fits. An `answer`
holds all of it, `summary` says what was searched, and `selectors` asks for one field at a time.

What other rooms and all tests ask for is named here; nothing else of the room is theirs.
"""

from .answer import EarlyAnswer, Plan, Steps
from .cascade import search
from .evaluate import Progress, brute
from .families import Family
from .joint_software import all_settings
from .merit import complexity, why_simpler
from .options import ANY_CHUNKS
from .placement import placements
from .plan import plan, planning
from .question import Question
from .recipes import (
    nearest_recipe,
    ran,
    recipe_families,
    recipe_layouts,
    recipes,
    shows,
)
from .selectors import choices_of, neighbours, pin_values, with_choice
from .software import NUMERICS, Tuning, flag_text, offers, settable
from .space import SEARCH_FIELDS, USUAL, Space, constrain
from .strategies import strategies
from .table import distinct, pick

__all__ = [
    "ANY_CHUNKS",
    "EarlyAnswer",
    "Family",
    "NUMERICS",
    "Plan",
    "Progress",
    "Question",
    "SEARCH_FIELDS",
    "Space",
    "Steps",
    "Tuning",
    "USUAL",
    "all_settings",
    "brute",
    "complexity",
    "choices_of",
    "constrain",
    "distinct",
    "flag_text",
    "nearest_recipe",
    "neighbours",
    "offers",
    "pick",
    "pin_values",
    "placements",
    "plan",
    "planning",
    "ran",
    "recipe_families",
    "recipe_layouts",
    "recipes",
    "search",
    "settable",
    "shows",
    "strategies",
    "why_simpler",
    "with_choice",
]
