"""What a rank of a pipeline sends to its neighbours, counted on paper."""

from __future__ import annotations

import pytest

from layouts import cut
from meshwright import Job, Layout, cluster
from meshwright.program.messages import (
    between_stages,
    expert_axis,
    of_replicas,
    of_tied,
    sent_by_rank,
)
from meshwright.program.operations import carried_out
from meshwright.program.units import Units

HIDDEN = 1024 * 768 * 2
"""Bytes of a sequence's hidden states between layers of GPT-2 small, in bf16."""


@pytest.mark.parametrize(
    ("schedule", "interleave", "sends"),
    [
        ("1f1b", 1, (1, 2, 1)),  # a middle rank sends either way
        ("interleaved", 2, (3, 4, 3)),  # stages 0 3, 1 4, 2 5: one end each
        ("zbv", 1, (2, 4, 2)),  # stages 0 5, 1 4, 2 3: the turn is no send
    ],
)
def test_each_microbatch_goes_up_and_its_gradient_down(
    schedule: str, interleave: int, sends: tuple[int, ...]
) -> None:
    """Five microbatches; the first stage gets a gradient, and the last one hidden states."""
    layout = Layout(
        pp=3, dp=1, schedule=schedule, interleave=interleave, microbatch=1
    )
    job = Job("gpt2-small", "3xh100-sxm", 5, layout)
    for rank, n in enumerate(sends):
        every = {("send", "pp", HIDDEN): 5 * n}
        assert between_stages(job, rank, 5) == every


@pytest.mark.parametrize(
    ("layout", "axis"),
    [
        (cut("dp4 ep2 etp1"), "edp"),
        (cut("pp2 dp2 etp1"), "edp"),
        (cut("dp4 etp1"), "replicas"),
        (cut("cp2 etp1"), "cp"),
        (cut("tp2 etp1"), "tp"),
        (cut("tp2 dp2 etp1"), "edp"),
        (cut("tp2 dp2 etp2"), "edp"),
    ],
)
def test_replicas_of_experts_have_a_group_of_their_own_unless_it_is_another(
    layout: Layout, axis: str
) -> None:
    """A group of all ranks of a run is one, whatever axis spans it."""
    assert expert_axis(layout) == axis


def test_experts_are_shared_out_among_their_own_replicas() -> None:
    """Mixtral on four devices, half the experts on each: their gradients are summed over the two
    that have the same, all others over four; three matrices of each of four experts."""
    job = Job(
        "mixtral-8x7b",
        "4xh100-sxm",
        4,
        cut("dp4 ep2 zero0"),
        framework="meshwright",
    )
    sent = of_replicas(Units(carried_out(job), 0), 0, 1)
    size = 4 * 3 * 4096 * 14336 * 4
    assert sent["all_reduce", "edp", size] == 32
    assert {b for _, axis, b in sent if axis == "edp"} == {size}
    assert sum(n for (_, axis, _), n in sent.items() if axis != "edp") == 34


@pytest.mark.parametrize(
    ("zero", "gathers", "scatters"),
    [(0, 0, 0), (1, 1, 1), (2, 1, 3), (3, 6, 3)],
)
def test_weights_are_gathered_as_often_as_the_stage_says(
    zero: int, gathers: int, scatters: int
) -> None:
    """Of three microbatches: not at all, once, once, and for each pass forward and back; twelve
    layers, and the one matrix that is embedding and head."""
    job = Job(
        "gpt2-small",
        "4xh100-sxm",
        12,
        cut(f"dp4 zero{zero}"),
        framework="meshwright",
    )
    sent = of_replicas(Units(carried_out(job), 0), 0, 3)
    for kind, times in (("all_gather", gathers), ("reduce_scatter", scatters)):
        assert sum(n for (k, *_), n in sent.items() if k == kind) == 13 * times


def test_messages_of_a_step_counted_on_paper() -> None:
    """Five microbatches of GPT-2 small, tp 2 with sequence parallelism: in each of 12 layers two
    inputs are gathered forward and two gradients of outputs backward, and as many are scattered;
    one of each way at the embedding's and the head's end. Recomputed operation by operation,
    inputs are gathered again, and no sum is. A rank that is alone sends nothing.
    """

    def sent(layout: Layout) -> dict[tuple[str, str, int], int]:
        chips = cluster(f"{layout.chips}xh100-sxm")
        job = Job("gpt2-small", chips, 5, layout, framework="meshwright")
        return dict(sent_by_rank(carried_out(job), 0))

    assert sent(Layout(dp=1)) == {}
    two = sent(cut("tp2"))
    assert two["all_gather", "tp", HIDDEN] == 5 * (12 * 4 + 2)
    assert two["reduce_scatter", "tp", HIDDEN] == 5 * (12 * 4 + 2)
    assert {axis for _, axis, _ in two} == {"tp"}
    again = sent(cut("tp2 op"))
    assert again["all_gather", "tp", HIDDEN] == 5 * (12 * 6 + 2)
    assert again["reduce_scatter", "tp", HIDDEN] == 5 * (12 * 4 + 2)


@pytest.mark.parametrize("chips", [2, 4])
def test_the_two_stages_of_a_tied_matrix_exchange_it_whole_and_once(
    chips: int,
) -> None:
    """Embedding on one rank and head on the other: the sum of its gradients in fp32."""
    layout = Layout(pp=2, dp=chips // 2)
    job = Job("gpt2-small", f"{chips}xh100-sxm", 8, layout)
    size = job.model.vocab * job.model.hidden * 4
    for rank in (0, 1):
        assert of_tied(job, rank, 0) == {("send", "pp", size): 1}
