"""Logs of other tools: the lines are made up in the formats of the named sources."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import BadInput
from meshwright.formats.logs import steps_of
from refusals import refusal

MEGATRON = """ > building the dataset index ...
0:  [2025-03-01 10:00:01] iteration       10/     500 | consumed samples:        10240 | elapsed time per iteration (ms): 12000.5 | throughput per GPU (TFLOP/s/GPU): 310.1 | learning rate: 1.500000E-05 | global batch size:  1024 | lm loss: 9.876543E+00 | loss scale: 1.0 |
0:  [2025-03-01 10:01:30] iteration       20/     500 | consumed samples:        20480 | elapsed time per iteration (ms): 8520.0 | throughput per GPU (TFLOP/s/GPU): 436.9 | learning rate: 3.000000E-05 | global batch size:  1024 | lm loss: 8.1E+00 |
0:  [2025-03-01 10:03:00] iteration       30/     500 | consumed samples:        30720 | elapsed time per iteration (ms): 8500.0 | throughput per GPU (TFLOP/s/GPU): 438.0 | learning rate: 4.500000E-05 | global batch size:  1024 | lm loss: 7.7E+00 |
"""
NEMO = """[NeMo I 2025-01-01 00:00:00 nemo_logging:393] Training epoch 0, iteration 8/99 | lr: 1.1e-06 | global_batch_size: 512 | global_step: 8 | reduced_train_loss: 11.03 | train_step_timing in s: 30.1 | consumed_samples: 4608
[NeMo I] Training epoch 0, iteration 9/99 | lr: 1.2e-06 | global_batch_size: 512 | global_step: 9 | reduced_train_loss: 11.02 | train_step_timing in s: 9.25 | consumed_samples: 5120
Epoch 0: :  10%|█ | 10/100 [01:00<08:00, reduced_train_loss=10.9, train_step_timing in s=9.35, global_step=10.0]
"""
TITAN = """[rank0]:[titan] 2025-02-02 12:00:00,000 - root - INFO - Training starts at step 1.
[rank0]:[titan] 2025-02-02 12:00:09,000 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[33mmemory: 40.10GiB(50.6%)  \x1b[34mtps: 900  \x1b[36mtflops: 52.1  \x1b[35mmfu: 5.27%\x1b[39m
[rank0]:[titan] 2025-02-02 12:01:00,000 - root - INFO - step: 10  loss:  9.9  memory: 47.52GiB(60.0%)  tps: 7,100  tflops: 411.2  mfu: 41.58%
[rank0]:[titan] 2025-02-02 12:02:00,000 - root - INFO - step: 20  loss:  8.8  memory: 47.52GiB(60.0%)  tps: 7,300  tflops: 422.8  mfu: 42.75%
"""


@pytest.mark.parametrize(
    ("text", "kind", "step", "steady"),
    [
        (
            MEGATRON,
            "megatron",
            {
                "iteration": 20,
                "batch": 1024,
                "tflops_per_chip": 436.9,
                "loss": 8.1,
            },
            {"seconds": [8.52, 8.5]},
        ),
        (
            NEMO,
            "nemo",
            {"iteration": 9, "batch": 512},
            {"seconds": [9.25, 9.35]},
        ),
        (
            TITAN,
            "torchtitan",
            {"memory_gib": 47.52},
            {"tokens_per_s_per_chip": [7100, 7300]},
        ),
    ],
)
def test_lines_of_a_tool_are_its_steps(
    text: str,
    kind: str,
    step: dict[str, float],
    steady: dict[str, list[float]],
) -> None:
    """The second of three lines; without the first of all."""
    log = steps_of(text)
    assert log.kind == kind and len(log.steps) == 3
    assert {name: getattr(log.steps[1], name) for name in step} == step
    for name, values in steady.items():
        assert [getattr(s, name) for s in log.steady] == pytest.approx(values)


def test_a_restart_counts_the_last_time_a_step_ran() -> None:
    again = MEGATRON + MEGATRON.replace("8500.0", "9500.0")
    assert [s.seconds for s in steps_of(again).steps][2] == pytest.approx(9.5)


def test_a_text_without_steps_is_a_sentence() -> None:
    with refusal("no steps"):
        steps_of("hello\niteration 3/5 | nothing here")


@given(text=st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    for line in (
        text,
        f"iteration {text}/ elapsed time per iteration (ms): {text}",
    ):
        try:
            steps_of(line)
        except BadInput as error:
            assert "no steps" in str(error)
