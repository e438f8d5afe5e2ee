"""Limits under other sets of assumptions: their chip, network, overlap and memory, on the paper's
stack of MLPs.
"""

from dataclasses import replace

import pytest

from meshwright.cost.overlap import outlasting
from meshwright.describe.assumptions import EPOCH, SETS, Hide, HidePass
from meshwright.describe.frozen import put
from meshwright.limits import preset
from meshwright.limits.other_sets import in_step, stack_assumptions
from meshwright.limits.scenario import Scenario
from refusals import refusal
from shell import Shell

from .test_search import same_as_brute

H100 = preset("h100")


def under(name: str, framework: str = "") -> Scenario:
    taken = stack_assumptions(SETS[name], H100.chip, framework)
    return replace(H100, assumptions=taken.assumptions)


@pytest.mark.parametrize("name", sorted(SETS))
def test_every_set_can_be_asked(name: str) -> None:
    """What is left of it is no chip's rate, no collective, and no hiding of what the model sends."""
    taken = stack_assumptions(SETS[name], H100.chip)
    scenario = replace(H100, assumptions=taken.assumptions)
    assert scenario.machine.rates.matrix > 0
    assert not {
        "network.collective",
        "network.hop",
        "overlap.dp.scope",
        "overlap.pp",
        "chip.model",
        "chip.matrix_efficiency",
    } & set(taken.unread)


def test_the_papers_own_set_is_itself() -> None:
    taken = stack_assumptions(EPOCH, H100.chip)
    assert taken.assumptions == EPOCH and not taken.unread


@pytest.mark.parametrize("work", [0.5, 3.0, 12.0])
@pytest.mark.parametrize("most", [0.5, 1.0])
def test_behind_weight_gradients_as_behind_a_step(
    work: float, most: float
) -> None:
    """Three equal products and two equal messages: forward waits, backward hides behind one."""
    sent, how = 2.0, Hide("weight gradient", 0.8, most=most)
    by_hand = sent / 2 + max(sent / 2 - 0.8 * work / 3, (1 - most) * sent / 2)
    assert outlasting(work, sent, in_step(how)).total == pytest.approx(by_hand)


def test_a_framework_answers_what_a_set_asks() -> None:
    core, waits = (
        under("realistic", f).machine
        for f in ("megatron-core", "megatron-2021")
    )
    assert core.overlap.dp.scope == "pass" and waits.overlap.dp.scope == "none"
    with refusal("lbl-2024 already say what a framework does"):
        under("lbl-2024", "fsdp")


@pytest.mark.parametrize("scope", ["pass", "layer"])
@pytest.mark.parametrize("links", ["shared", "free", "serial"])
def test_gradients_behind_passes_equal_brute_force(
    scope: str, links: str
) -> None:
    hidden = put("assumptions.overlap.dp", HidePass(scope, links=links))
    same_as_brute(hidden(H100), (12288.0,))


def test_words(shell: Shell) -> None:
    words = "limits lbl-b200-nvs8 --assumptions lbl-2024"
    assert "overlap and memory of lbl-2024" in shell(words).out
    error = shell.refused("limits h100 --assumptions lbl")
    assert error.count("\n") == 1 and "Traceback" not in error
