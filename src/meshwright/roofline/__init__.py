"""At what batch, and under which split, communication starts to bind: the rooflines of a mesh."""

from .queries import Roofline, roofline

__all__ = ["Roofline", "roofline"]
