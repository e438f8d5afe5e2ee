"""From which batch and split on communication binds: the rooflines of a mesh."""

from .queries import Roofline, roofline

__all__ = ["Roofline", "roofline"]
