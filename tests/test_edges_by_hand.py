"""Edges of small functions: equality, one of something, defaults that nobody writes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright import Job, Layout
from meshwright.cost.hiding import share_of
from meshwright.cost.layer import LayerCost
from meshwright.describe.assumptions import assumptions
from meshwright.describe.model import RopeScaling
from meshwright.layout import trainable
from meshwright.step import memory, microbatch, zero
from meshwright.step.holding import parameter_bytes

LLAMA = Job("llama3-8b", "64xh100-sxm", 32)


@pytest.mark.parametrize(("high", "refused"), [(4.0, False), (1.0, True)])
def test_rope_scaling_needs_two_frequencies(
    high: float, refused: bool
) -> None:
    """Between low and high positions are blended: there must be something between them."""
    scaling = RopeScaling("llama3", 8.0, 1.0, high, 8192)
    said = trainable.model_refusals(replace(LLAMA.model, rope_scaling=scaling))
    assert any("high must be more than low" in why for why in said) is refused


@pytest.mark.parametrize(("tp", "named"), [(1, False), (2, True)])
def test_a_sequence_that_cannot_be_cut_names_what_cuts_it(
    tp: int, named: bool
) -> None:
    """Sequence parallelism cuts nothing where tp is 1."""
    job = replace(LLAMA, seq=4098)
    said = trainable.SEQUENCES.sentence(job, Layout(tp=tp, cp=4))
    assert ("(sequence_parallel)" in said) is named


def test_nothing_is_copied_at_the_step_where_no_framework_says_so() -> None:
    states = zero.States(1.0, 2.0, 12 * 50.0)
    papers = replace(LLAMA, assumptions=assumptions("lbl-2024"))
    each = parameter_bytes(papers, 0)
    assert memory.step_copies(papers, Layout(), states, each) == 0.0


def test_a_layer_run_again_keeps_no_input_unless_it_is_said() -> None:
    again = microbatch.recompute_cost(LayerCost(forward=2.0), "full")
    assert again and (again.time, again.saved) == (2.0, 0.0)
    kept = microbatch.recompute_cost(LayerCost(forward=2.0), "full", 3.0)
    assert kept and kept.saved == 3.0


def test_a_share_of_nothing_is_nothing() -> None:
    found = share_of(np.array([3.0, 5.0]), np.array([6.0, 0.0]))
    assert found.tolist() == [0.5, 0.0]
