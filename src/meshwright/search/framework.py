"""Which values of a layout's fields the job's framework can run, and which of them it proposes."""

from __future__ import annotations

from ..describe.choices import Choices, listed
from ..describe.job import Job
from ..errors import BadInput


def allowed(job: Job, named: Choices) -> tuple[Choices, ...]:
    """What the framework can run; BadInput for values that the user names and it cannot."""
    profile = job.profile
    found = profile.choices if profile else ()
    for name, values in named.items():
        runs = {v for choices in found for v in choices.get(name, values)}
        if (
            profile
            and found
            and (beyond := [v for v in values if v not in runs])
        ):
            can = listed(
                dict.fromkeys(
                    v for choices in found for v in choices.get(name, ())
                ),
                16,
            )
            raise BadInput(
                f"framework {profile.name} runs {name} {can}, not {listed(beyond)}"
            )
    return found


def proposed(job: Job, runs: tuple[Choices, ...]) -> tuple[Choices, ...]:
    """What a plan takes of the layouts that the framework can run."""
    return (job.profile.proposes if job.profile else ()) or runs
