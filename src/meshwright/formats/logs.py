"""Logs of training runs (read only): the seconds of each step, and what stands beside them.

    steps_of(text) -> Log(kind="megatron", steps=(Step(iteration=10, seconds=8.52, ...), ...))

Megatron-LM and Megatron-Bridge   iteration 10/ 500 | ... elapsed time per iteration (ms): 8520.1 |
NeMo                              ... global_step: 10 | ... train_step_timing in s: 8.52
torchtitan                        step: 10  loss: 5.1  memory: 47.5GiB(59.9%)  tps: 7,100  mfu: 41%

Launchers' prefixes (`0: `, `[1,0]<stdout>:`, times, colours) are passed over. Sources: Megatron-LM,
megatron/training/training.py (training_log); NeMo, lightning ProgressPrinter and TimingCallback;
torchtitan, components/metrics.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from ..errors import BadInput

MOST = 1_000_000
"""Steps of a log."""
WARM_UP = 0.1
"""Share of the steps at the start that may be slower: compilation, caches, the first batches."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = r"([-+0-9.,eE]+)"
MEGATRON = re.compile(
    rf"iteration\s+{NUMBER}\s*/.*?elapsed time per iteration \(ms\):\s*{NUMBER}"
)
NEMO = re.compile(
    rf"global_step[:=]\s*{NUMBER}.*?train_step_timing(?: in s)?[:=]\s*{NUMBER}"
)
NEMO_BAR = re.compile(
    rf"train_step_timing(?: in s)?[:=]\s*{NUMBER}.*?global_step[:=]\s*{NUMBER}"
)
TITAN = re.compile(rf"\bstep:\s*{NUMBER}\s.*?\btps:\s*{NUMBER}")
FIELDS = {
    "batch": re.compile(rf"global[ _]batch[ _]size[:=]\s*{NUMBER}"),
    "tflops_per_chip": re.compile(
        rf"(?:throughput per GPU \(TFLOP/s/GPU\)|tflops|GPU utilization)[:=]\s*{NUMBER}"
    ),
    "loss": re.compile(
        rf"\b(?:lm loss|reduced_train_loss|loss)[:=]\s*{NUMBER}"
    ),
    "memory_gib": re.compile(rf"\bmemory:\s*{NUMBER}GiB"),
    "mfu": re.compile(rf"\bmfu:\s*{NUMBER}%"),
}
"""What may stand in a step's line."""


@dataclass(frozen=True)
class Step:
    """One line of a log."""

    iteration: int
    seconds: float | None = None
    """Of one step, the mean since the line before; None where the log says tokens a second."""
    tokens_per_s_per_chip: float | None = None
    batch: int | None = None
    """Sequences of the step."""
    tflops_per_chip: float | None = None
    loss: float | None = None
    memory_gib: float | None = None
    mfu: float | None = None
    """In per cent, as the tool counts it."""


@dataclass(frozen=True)
class Log:
    """The steps of a run."""

    kind: str
    """megatron, nemo or torchtitan."""
    steps: tuple[Step, ...]

    @property
    def steady(self) -> tuple[Step, ...]:
        """Without the first tenth, and at least without the first line of several."""
        skip = max(int(len(self.steps) * WARM_UP), len(self.steps) > 1)
        return self.steps[skip:]

    def step_time_s(
        self, batch_tokens: float | None = None, chips: int | None = None
    ) -> float:
        """Median seconds of a steady step.

        batch_tokens, chips: needed where the log says tokens a second and chip only.
        """
        seconds = [s.seconds for s in self.steady if s.seconds]
        rates = [
            s.tokens_per_s_per_chip
            for s in self.steady
            if s.tokens_per_s_per_chip
        ]
        if seconds:
            return median(seconds)
        if not (rates and batch_tokens and chips):
            raise BadInput(
                "the log says tokens a second: batch in tokens and chips are needed"
            )
        return batch_tokens / (median(rates) * chips)


def steps_of(text: str, where: str = "the log") -> Log:
    """The steps in a log's text.  Raises BadInput where it has none that are known."""
    by_kind: dict[str, dict[int, Step]] = {
        "megatron": {},
        "nemo": {},
        "torchtitan": {},
    }
    for kind, step in _lines(text):
        by_kind[kind][step.iteration] = (
            step  # a restart writes a step once more: the last one counts
        )
    kind = max(by_kind, key=lambda k: len(by_kind[k]))
    if not by_kind[kind]:
        raise BadInput(
            f"{where} has no steps of Megatron-LM, NeMo or torchtitan: lines with 'elapsed time"
            " per iteration', 'train_step_timing' or 'tps:'"
        )
    return Log(kind, tuple(step for _, step in sorted(by_kind[kind].items())))


def _lines(text: str) -> Iterator[tuple[str, Step]]:
    for count, line in enumerate(text.splitlines()):
        if count > MOST:
            return
        line = COLOUR.sub("", line)[:2000]
        if match := MEGATRON.search(line):
            yield from _step(
                "megatron", line, match[1], seconds=_number(match[2], 1e-3)
            )
        elif match := NEMO.search(line):
            yield from _step("nemo", line, match[1], seconds=_number(match[2]))
        elif match := NEMO_BAR.search(line):
            yield from _step("nemo", line, match[2], seconds=_number(match[1]))
        elif match := TITAN.search(line):
            yield from _step(
                "torchtitan", line, match[1], rate=_number(match[2])
            )


def _step(
    kind: str,
    line: str,
    iteration: str,
    seconds: float | None = None,
    rate: float | None = None,
) -> Iterator[tuple[str, Step]]:
    """The step of a line, if its numbers are numbers."""
    at = _number(iteration)
    if at is None or not (seconds or rate):
        return
    said = {
        name: _number(m[1])
        for name, p in FIELDS.items()
        if (m := p.search(line))
    }
    batch = said.pop("batch", None)
    yield (
        kind,
        Step(int(at), seconds, rate, int(batch) if batch else None, **said),
    )


def _number(text: str, scale: float = 1.0) -> float | None:
    """A number with commas between thousands; None for what is none, or not finite."""
    try:
        value = float(text.strip().rstrip(",.").replace(",", "")) * scale
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None
