"""The prediction of a step: seconds and bytes with their interval, the tree of terms that they are
made of, the notes beside them, and the replay of its schedule.
"""

from .prediction import Prediction, predict

__all__ = ["Prediction", "predict"]
