"""The prediction of a run that took place."""

from __future__ import annotations

from dataclasses import replace

from ..describe.job import Job
from ..errors import BadInput
from ..layout import rules
from ..layout.placement import launched
from ..prediction.prediction import Prediction

FATAL = (rules.POSITIVE, rules.CHIPS, rules.EXPERT_RANKS, rules.BATCH)
"""Rules without which a layout means nothing. Real runs break the others (61 layers on 64
chunks).
"""


def predict_as_run(description: Job) -> Prediction:
    """Only rules without which a layout means nothing are kept."""
    for rule in FATAL:
        if not rule.holds(description, description.layout):
            raise BadInput(rule.sentence(description, description.layout))
    full = launched(description, description.layout)
    return Prediction(replace(description, layout=full), full)
