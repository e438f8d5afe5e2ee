"""A rule of layouts: a condition on numbers or arrays, and the sentence for those who break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..describe.job import Job
from ..describe.layout import Layout
from ..num import divisors


@dataclass(frozen=True)
class LayoutRule:
    """A condition a layout must meet."""

    name: str
    """Short, for counts of rejections."""
    holds: Callable[[Job, Layout], Any]
    """True (element by element) where the rule is kept."""
    sentence: Callable[[Job, Layout], str]
    """Field, reason and nearest valid values, for a scalar layout that breaks it."""
    options: tuple[str, ...] = ()
    """Choices it looks at beside degrees: schedule (with its chunks), zero (with its dp_replicate),
    recompute, sequence_parallel. If schedule alone, of all degrees only at pp and the number of
    microbatches.
    """
    placed: bool = False
    """It looks at where ranks lie in the network."""
    replicas: bool = False
    """It looks at dp: of schedules in any way, else otherwise than through the number of
    microbatches."""


def divides(a: Any, b: Any) -> Any:
    """b is a multiple of a."""
    return b % a == 0


def sharded(scheme: str, sequence_parallel: bool) -> bool:
    """tp cuts the tokens between its matrices (other schemes cut their width instead)."""
    return sequence_parallel and scheme in ("megatron", "context")


def token_parts(scheme: str, sequence_parallel: bool, tp: Any, cp: Any) -> Any:
    """Parts that the tokens of a microbatch are cut into: over cp, but for mlp2d, whose cp cuts the
    hidden size, and over tp where norms are.
    """
    if scheme == "mlp2d":
        return 1
    return cp * tp if sharded(scheme, sequence_parallel) else cp


def may_be(n: int, limit: int = 4096) -> str:
    """The divisors of n, as text."""
    values = [d for d in divisors(n) if d <= limit]
    return ", ".join(map(str, values[:16])) + (
        ", ..." if len(values) > 16 else ""
    )
