"""A prediction with its explanation and its notes, the exact replay beside it, sweeps over any
field.
"""

from .prediction import Prediction, predict

__all__ = ["Prediction", "predict"]
