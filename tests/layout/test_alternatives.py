"""What a refusal of a layout offers instead: one degree changed to a power of two beside it."""

from __future__ import annotations

from meshwright import Job, Layout, predict
from meshwright.layout.alternatives import nearest_mend, sentence
from refusals import refusal


def test_the_first_degree_that_mends_everything() -> None:
    """Of tp 3 with 64 chips the neighbours are 2 and 4; dp takes what is left of them."""
    tried = []

    def runs(of: Layout) -> bool:
        tried.append((of.tp, of.dp))
        return of.tp == 4

    assert nearest_mend(Layout(tp=3, dp=21), runs) == ("tp", [4])
    assert tried == [(2, 31), (4, 15)]


def test_dp_and_microbatch_change_alone() -> None:
    assert nearest_mend(Layout(dp=6), lambda of: of.dp == 4) == ("dp", [4])
    assert nearest_mend(
        Layout(dp=1, microbatch=5), lambda of: of.microbatch in (4, 8)
    ) == ("microbatch", [4, 8])
    assert nearest_mend(Layout(dp=1), lambda of: False) is None


def test_a_change_never_takes_more_chips() -> None:
    """tp 4 on three chips leaves no replica: it is not offered."""
    assert nearest_mend(Layout(tp=3, dp=1), lambda of: of.tp == 4) is None


def test_one_reason_stands_alone_and_several_are_cut() -> None:
    layout = Layout(tp=3, dp=21)
    assert sentence(layout, ["a"], lambda of: True) == "a"
    assert (
        sentence(layout, ["a", "b", "c"], lambda of: True)
        == "tp = 3 is invalid; nearest: 2 or 4: a; b; and 1 more"
    )
    assert (
        sentence(layout, list("abcde"), lambda of: False)
        == "a; b; c; and 2 more"
    )


def test_what_is_offered_runs() -> None:
    job = Job("llama3-8b", "64xh100-sxm", batch=128)
    with refusal("tp = 3 is invalid; nearest: 2 or 4"):
        predict(job, Layout(tp=3, dp=21))
    for tp in (2, 4):
        assert predict(job, Layout(tp=tp, dp=64 // tp)).step_time_s > 0
