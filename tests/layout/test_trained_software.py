"""A setting of the software that this project's trainer would not run is refused where a job is
planned for it, predicted for it or exported to it."""

from __future__ import annotations

import pytest

from meshwright import Job, Layout, predict
from meshwright.describe.software import Software
from refusals import refusal

JOB = Job("llama3-8b", "8xh100-sxm", 16, framework="meshwright")
LAYOUT = Layout(tp=2, dp=4, zero=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"cuda_graphs": "full"},
        {"compiled": True},
        {"tp_overlap": "all"},
        {"gathered_inputs": "regathered"},
        {"norm": "torch"},
    ],
    ids=lambda s: next(iter(s)),
)
def test_what_the_trainer_does_not_do_is_refused(settings: dict) -> None:
    (name,) = settings
    with refusal(f"software.{name} .* meshwright train"):
        predict(JOB.with_(software=Software(**settings)), LAYOUT)


def test_another_kernel_of_attention_is_refused() -> None:
    with refusal("attention_kernel fa3 is not what"):
        predict(JOB.with_(attention_kernel="fa3"), LAYOUT)


def test_what_it_does_by_itself_may_be_said() -> None:
    own = Software(cuda_graphs="off", compiled=False, dispatcher="alltoall")
    said = predict(JOB.with_(software=own), LAYOUT)
    assert said.step_time_s == predict(JOB, LAYOUT).step_time_s


def test_true_and_false_are_said_as_files_have_them() -> None:
    with refusal("compiled true is not .*: take false, or"):
        predict(JOB.with_(software=Software(compiled=True)), LAYOUT)
