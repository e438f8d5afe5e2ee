"""A prediction with its explanation and its notes, the exact replay beside it, sweeps over any field."""

from .predict import Prediction, evidence, predict

__all__ = ["Prediction", "evidence", "predict"]
