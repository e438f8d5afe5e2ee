"""What takes the time of a run beside the arithmetic that its chips can sustain."""

from __future__ import annotations

from .crossing import Run
from .curve import Point
from .realistic import RealPoint
from .scenario import Scenario


def utilisation_losses(p: Run, scenario: Scenario) -> dict[str, float]:
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
        s, tokens = p.step, scenario.law.tokens_per_parameter * p.parameters
        good = scenario.useful_s(p.chips, p.parameters) / scenario.duration_s
        # at the rate that its chips sustain; what products take beyond it is memory and launches
        ideal = p.flops * p.batch_tokens / tokens / p.degrees.chips
        ideal /= scenario.machine.rates.matrix
        pipeline = s.busy / (1 - s.bubble)
        # with a zero bubble no microbatch waits for a latency
        wait = 0.0 if p.degrees.zero_bubble else s.tp_wait + s.p2p_wait
        seconds = {
            "bubble of the pipeline": pipeline - s.busy,
            "gradients": s.total - pipeline - wait,
            "messages inside the model": s.busy - s.matmul + wait,
            "products below their rate": s.matmul - ideal,
        }
        parts = {k: float(good * v / s.total) for k, v in seconds.items()}
        parts["failures"] = float(1 - good)
    return dict(sorted(parts.items(), key=lambda item: -item[1]))
