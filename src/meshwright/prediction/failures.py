"""Failures: chips break, runs restart from their last checkpoint, and part of the time is lost.

With M = MTBF of a chip / chips the mean time between failures of the cluster, delta seconds for a
checkpoint, tau seconds of work between two and R seconds to restart, a run of useful time T_s takes
(failures are exponential, and may strike checkpoints and restarts too)

    T_w = M e^(R/M) (e^((tau + delta)/M) - 1) T_s / tau

and tau = sqrt(2 delta M) (1 + sqrt(delta/2M)/3 + delta/18M) - delta is best to higher order (Young:
the root alone). Sources: Young 1974; Daly 2006, "A higher order estimate of the optimum checkpoint
interval", equations 20 and 37.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from ..describe import shipped
from ..describe.fields import Bandwidth, Checked, Seconds, SIUnit
from ..describe.job import OPTIMIZERS, PRECISIONS
from ..num import Num, maximum, minimum, sqrt, where
from ..step.zero import States
from ..units import parse

LARGEST_EXPONENT = 300.0
"""e^300 times longer is as good as never."""


@dataclass(frozen=True)
class Failures(Checked):
    """How often chips fail, and what a failure and a checkpoint cost."""

    chip_mtbf_s: Annotated[float, SIUnit("s")] = 16384 * 54 * 86400.0 / 419
    """5.8 years: 419 unexpected interruptions in 54 days on 16,384 H100. Grattafiori et al. 2024
    (Llama 3), section 3.3.4."""
    restart_s: Seconds = 600.0
    """From a failure to the first new step: detect, replace, load, warm up. Assumed: ten
    minutes.
    """
    storage_bytes_per_s: Bandwidth = 2e12 / 16384
    """What one chip's share of the storage takes. Grattafiori et al. 2024, section 3.3.1: 2 TB/s
    sustained for 16,384 H100."""
    state_bytes: float = float(
        States(
            weights=PRECISIONS["bf16"].weight_bytes,
            gradients=PRECISIONS["bf16"].gradient_bytes,
            optimizer=OPTIMIZERS["adamw"].state_bytes,
        ).checkpoint
    )
    """Bytes of a checkpoint for each parameter: a weight in 2 bytes and Adam's state in 12."""


@dataclass(frozen=True)
class Loss:
    """What failures cost a run."""

    goodput: Num
    """Share of the time that ends up in the model."""
    interval_s: Num
    """Work between two checkpoints."""
    checkpoint_s: Num
    mtbf_s: Num
    """Of the whole cluster."""

    def to_dict(self) -> dict[str, Any]:
        return {k: float(v) for k, v in self.__dict__.items()}

    def parts(self, whole_s: Num, restart_s: Num) -> dict[str, Num]:
        """Of a run that takes `whole_s`: useful seconds, checkpoints, restarts, and work that was
        done again because it was after the last checkpoint; they add up.
        """
        useful = whole_s * self.goodput
        checkpoints = useful * self.checkpoint_s / self.interval_s
        restarts = whole_s / self.mtbf_s * restart_s
        # the rest of a sum, which rounds
        again = maximum(whole_s - useful - checkpoints - restarts, 0.0)
        return {
            "useful": useful,
            "checkpoints": checkpoints,
            "restarts": restarts,
            "again": again,
        }


def interval(checkpoint_s: Num, mtbf_s: Num) -> Num:
    """Daly's best time between checkpoints: the higher-order root, or M once a checkpoint takes as
    long as 2 M.
    """
    x = checkpoint_s / (2 * mtbf_s)
    best = (
        sqrt(2 * checkpoint_s * mtbf_s) * (1 + sqrt(x) / 3 + x / 9)
        - checkpoint_s
    )
    return where(x < 1, best, mtbf_s)


def goodput(
    mtbf_s: Num, checkpoint_s: Num, interval_s: Num, restart_s: Num
) -> Num:
    """T_s / T_w: tau / (M e^(R/M) (e^((tau + delta)/M) - 1))."""
    again = math.e ** minimum(restart_s / mtbf_s, LARGEST_EXPONENT)
    cycle = (
        math.e
        ** minimum((interval_s + checkpoint_s) / mtbf_s, LARGEST_EXPONENT)
        - 1
    )
    return interval_s / mtbf_s / cycle / again


def loss_to_failures(f: Failures, chips: Num, parameters: Num) -> Loss:
    """What failures cost a run of a model on so many chips, checkpoints written by all of them
    together.
    """
    mtbf = f.chip_mtbf_s / chips
    checkpoint = maximum(
        # the interval is the root of it: a checkpoint in no time would be written without end
        parameters * f.state_bytes / (chips * f.storage_bytes_per_s),
        1e-9,
    )
    tau = interval(checkpoint, mtbf)
    return Loss(
        goodput(mtbf, checkpoint, tau, f.restart_s), tau, checkpoint, mtbf
    )


@cache
def interruption_rates() -> dict[str, Any]:
    """What interrupts runs, by family of chips (catalog/failures.toml)."""
    return shipped.shipped_table("failures.toml")


@cache
def of_family(family: str) -> Failures:
    """What interrupts runs on a family of chips."""
    rates = {
        **interruption_rates()["usual"],
        **interruption_rates().get(family, {}),
    }
    units = {"storage_bytes_per_s": "B/s", "state_bytes": ""}
    numbers = {
        k: parse(v["value"], units.get(k, "s"), f"failures.{k}")
        for k, v in rates.items()
    }
    return Failures(chip_mtbf_s=numbers.pop("mtbf_s"), **numbers)


def has_published_rate(family: str) -> bool:
    """Whether a rate of interruptions was published for a family of chips."""
    return family in interruption_rates()
