"""Search: every legal layout of a space, evaluated as tables; the best of them, exactly.

What is searched. A `space` says which values each field may have. Its rows are combinations of
degrees (`degrees`, as columns of a `table`), its options all other choices (`options`; a schedule
with its chunks is one of the `schedule_options`), and a row has as many layouts as it has
`placement`s.

What a layout takes. `legal` says where rows run under which options, `columns` makes layouts of
them, and `points` asks `step` for their seconds and bytes. `evaluate` does that to placed rows; on
every row of a space that is brute force.

Why a search is exact. `cascade` drops rows only by a bound that none of their layouts undercuts,
against a limit that only falls: the k-th best layout so far, kept in `best`. The bounds (`bound`)
are the step's own formulas on optimistic arguments: first layers alone (`candidates`), then the
whole step with every group nearest, of an interval of dp with its fewest ranks in collectives and
its most in shards. What is left is placed and evaluated. The step's own sum is a lower bound of its
replay, so `ranked` replays rows in the order of that sum until the next one exceeds the k-th best
replay, and searches again where it has run out of rows.

What a plan asks. `strategies` makes the spaces, `families` and `precedent` parts of them;
`question` has the answer on these chips and on cleaner numbers of them (`fewer_chips`), `merit`
what ranks it, `front` its trade of time for memory, `recipes` what is published, `software` and
`joint_software` the settings beside layouts, `misfit` and `misfit_values` the reasons where there
is none, `summary` what was searched; `plan` puts them together as the `answer`, and `selectors`
asks it for one field at a time.

What other rooms and all tests ask for is named here; nothing else of the room is theirs.
"""

from .answer import EarlyAnswer, Plan, Steps
from .cascade import search
from .evaluate import Progress, brute
from .families import Family
from .joint_software import all_settings
from .merit import complexity, why_simpler
from .options import ANY_CHUNKS
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
