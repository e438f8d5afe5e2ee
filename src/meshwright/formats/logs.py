"""Logs of training runs (read only): the seconds of each step, and what stands beside them.

    steps_of(text) -> Log(kind="megatron", steps=(LoggedStep(iteration=10, seconds=8.52, ...), ...))

Megatron-LM and Megatron-Bridge   iteration 10/ 500 | ... elapsed time per iteration (ms): 8520.1 |
Megatron-DeepSpeed                iteration 10/ 500 | ... elapsed time per iteration (s): 8.52 |
NeMo                              ... global_step: 10 | ... train_step_timing in s: 8.52
torchtitan                        step: 10  loss: 5.1  memory: 47.5GiB(59.9%)  tps: 7,100  mfu: 41%
MaxText                           completed step: 10, seconds: 8.52, TFLOP/s/device: 400.1, ...
nanotron                          iteration: 10 / 500 | ... | elapsed_time_per_iteration_ms: 8.52K
Hugging Face Trainer              2%|...| 10/500 [01:25<1:09:34, 8.52s/it]
OLMo-core                         [step=10/500,epoch=1] and below it throughput/device/TPS=7,100

Launchers' prefixes (`0: `, `[1,0]<stdout>:`, times, colours) are passed over. The patterns and
their sources are in catalog/logs.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..describe.shipped import shipped_table
from ..errors import BadInput
from . import read_error

LARGEST = 32 * 2**20
"""Bytes of a log that are read: of a longer one its first and its last half of so many."""
MOST = 1_000_000
"""Lines of a log."""
LONGEST = 2000
"""Characters of a line that are looked at."""
WARM_UP = 0.1
"""Share of the steps at the start that may be slower: compilation, caches, the first batches."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = r"([-+0-9.,eE]+[KMGT]?)"
PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
"""Of numbers as nanotron shortens them."""


def _line(pattern: str) -> re.Pattern[str]:
    """A pattern whose names stand for numbers: `<step>` is a group of that name."""
    return re.compile(
        re.sub(r"<(\w+)>", lambda m: f"(?P<{m[1]}>{NUMBER[1:]}", pattern)
    )


TOOLS = shipped_table("logs.toml")
"""Tool -> what its log says."""
LINES = tuple(
    (kind, _line(pattern))
    for kind, tool in TOOLS.items()
    for pattern in tool.get("steps", ())
)
OLMO = "olmo-core"
ABOVE, BELOW = (_line(TOOLS[OLMO][name]) for name in ("above", "below"))
TITLES = {kind: tool["title"] for kind, tool in TOOLS.items()}
FIELDS = {
    "batch": re.compile(rf"global[ _]batch[ _]size[:=]\s*{NUMBER}"),
    "tflops_per_chip": re.compile(
        r"(?:throughput per GPU \(TFLOP/s/GPU\)|tflops|GPU utilization|TFLOPs|TFLOP/s/device"
        rf"|model_tflops_per_gpu)[:=]\s*{NUMBER}"
    ),
    "loss": re.compile(
        rf"\b(?:lm loss|lm_loss|reduced_train_loss|loss)[:=]\s*{NUMBER}"
    ),
    "memory_gib": re.compile(rf"\bmemory:\s*{NUMBER}GiB"),
    "mfu": re.compile(rf"\bmfu:\s*{NUMBER}%"),
}
"""What may stand in a step's line."""


@dataclass(frozen=True)
class LoggedStep:
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
    """One of `TOOLS`."""
    steps: tuple[LoggedStep, ...]

    @property
    def steady(self) -> tuple[LoggedStep, ...]:
        """Without the first tenth, and at least without the first line of several."""
        skip = max(int(len(self.steps) * WARM_UP), len(self.steps) > 1)
        return self.steps[skip:]


def read_log(path: str | Path) -> str:
    """The text of a log; of a long one its beginning, with the arguments, and its end."""
    half = LARGEST // 2
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST)
            size = file.seek(0, 2)
            if size > LARGEST:
                file.seek(size - half)
                data = data[:half] + b"\n" + file.read(half)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise read_error(path, error) from None
    return data.decode("utf-8", "replace")


def steps_of(text: str, where: str = "the log") -> Log:
    """The steps in a log's text.  Raises BadInput where it has none that are known."""
    by_kind: dict[str, dict[int, LoggedStep]] = {kind: {} for kind in TOOLS}
    for kind, step in _steps(text):
        by_kind[kind][step.iteration] = (
            step  # a restart writes a step once more: the last one counts
        )
    kind = max(by_kind, key=lambda k: len(by_kind[k]))
    if not by_kind[kind]:
        raise BadInput(
            f"{where} has no steps of {', '.join(TITLES.values())}: lines with 'elapsed time per"
            " iteration', 'train_step_timing', 'tps:', 'completed step:', 's/it' or"
            " 'throughput/device/TPS='"
        )
    return Log(kind, tuple(step for _, step in sorted(by_kind[kind].items())))


def _steps(text: str) -> Iterator[tuple[str, LoggedStep]]:
    """(tool, step) of each line that is one's."""
    above = ""
    for count, line in enumerate(text.splitlines()):
        if count > MOST:
            return
        line = COLOUR.sub("", line[:LONGEST])
        if head := ABOVE.search(line):
            above = head["step"]
        elif above and (below := BELOW.search(line)):
            said = {"step": above, **below.groupdict()}
            yield from _step(OLMO, line, said)
            above = ""
        for kind, pattern in LINES:
            if match := pattern.search(line):
                yield from _step(kind, line, match.groupdict())
                break


def _step(
    kind: str, line: str, said: dict[str, str]
) -> Iterator[tuple[str, LoggedStep]]:
    """The step of a line, if its numbers are numbers."""
    numbers = {name: _number(text) for name, text in said.items()}
    at = numbers["step"]
    hertz, ms = numbers.get("hertz"), numbers.get("ms")
    seconds = numbers.get("s") or (1.0 / hertz if hertz else None)
    seconds = ms * 1e-3 if ms else seconds
    rate = numbers.get("rate")
    if at is None or not (seconds or rate):
        return
    beside = {
        name: _number(m[1])
        for name, p in FIELDS.items()
        if (m := p.search(line))
    }
    batch = beside.pop("batch", None)
    yield (
        kind,
        LoggedStep(
            int(at), seconds, rate, int(batch) if batch else None, **beside
        ),
    )


def _number(text: str) -> float | None:
    """A number with commas between thousands, or shortened (11.5K); None for what is none, or not
    finite."""
    text = text.strip().rstrip(",.").replace(",", "")
    scale = PREFIXES.get(text[-1:], 1.0)
    try:
        value = float(text.rstrip("".join(PREFIXES))) * scale
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None
