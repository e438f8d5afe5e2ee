"""What takes the time of a run beside the arithmetic that its chips can sustain."""

from __future__ import annotations

from .crossing import Run
from .curve import Point
from .realistic import RealPoint
from .scenario import Scenario


def losses(p: Run, scenario: Scenario) -> dict[str, float]:
    """Cause -> its share of the run's time, the largest first."""
    parts: dict[str, float] = {}
    if isinstance(p, RealPoint):
        good = float(p.loss.goodput) if p.loss else 1.0
        step = p.prediction.step_time_s
        parts = {
            cause: good * seconds / step
            for cause, seconds in p.prediction.time_s.items()
            if cause != "compute"
        }
        parts["failures"] = 1.0 - good
    elif isinstance(p, Point):
        s = p.step
        busy = max(s.matmul, s.tp + s.p2p)
        parts = {
            "bubble of the pipeline": float(s.bubble * busy / s.total),
            "gradients": float((s.dp + s.dp_wait) / s.total),
            "messages inside the model": float(
                (busy - s.matmul + s.tp_wait + s.p2p_wait) / s.total
            ),
            # busy at the rate that the chip sustains, the rest is memory and launches
            "products below their rate": float(
                s.matmul / s.total - p.utilisation / scenario.sustained
            ),
        }
    return dict(sorted(parts.items(), key=lambda item: -item[1]))
