"""Every field of a set of assumptions changes what `roofline` answers, or is refused by name: none
is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from by_hand import leaves, other_values, set_to
from meshwright import assumptions, cluster, model
from meshwright.cost.collectives.free import Free
from meshwright.describe.assumptions import (
    BOOK_SUM,
    JOINTS,
    SETS,
    WHOLE,
    Assumptions,
    ChipTime,
    NetworkTime,
    Stack,
)
from meshwright.describe.frozen import put
from meshwright.describe.job import PRECISIONS
from meshwright.describe.kernels import kernels
from meshwright.describe.measured import MeasuredTable
from meshwright.roofline import roofline
from meshwright.roofline.queries import EXACT, READ
from refusals import refusal

RICH = replace(
    BOOK_SUM,
    chip=ChipTime("roofline", matrix_efficiency=0.5, launch_s=1e-5),
    network=NetworkTime("best", ring_factor="exact"),
)
"""Operations that are no products take time too, and collectives have hops."""
SHAPES = replace(RICH, chip=ChipTime("by-shape", stack=Stack(host_s=5e-3)))
"""Laws of kernels, and a host that launches them late."""
GPT, EXPERTS, WINDOWS = "gpt3-175b", "mixtral-8x7b", "gpt-oss-120b"
TABLES = {
    "all_reduce": MeasuredTable(
        ("ranks", "bytes"), ((2.0, 16.0), (1e3, 1e9)), (1e-5, 1e-2, 2e-5, 3e-2)
    )
}
NODE = cluster("8xh100-sxm")
NEAR, *FAR = NODE.network.dims
MEASURED = put("network.dims", (replace(NEAR, collectives=TABLES), *FAR))(NODE)


def answer(
    how: Assumptions, model: Any, on: Any, batch: float, **more: Any
) -> dict[str, Any]:
    """All numbers of a roofline of a whole layer."""
    return roofline(
        model, on, batch, layer="block", assumptions=how, **more
    ).to_dict()


H, V5P = "16xh100-sxm", "64xtpu-v5p"
LOW, HIGH = 2e4, 1e6
"""Tokens at which communication binds, and at which it does not."""
USUAL = GPT, H, LOW
ASKED: dict[str, tuple[Any, str, float]] = {
    "count.dropout": (replace(model(GPT), dropout=True), H, LOW),
    "count.gathered_inputs": (GPT, V5P, LOW),
    "count.rotary": ("llama3-70b", H, LOW),
    "chip.stack.norm": ("llama3-70b", H, LOW),
    "chip.sustained": (GPT, V5P, LOW),
    "chip.wide_norm": ("llama3-70b", H, LOW),
    "chip.host.experts_s": (EXPERTS, H, LOW),
    "chip.host.routed": (EXPERTS, H, LOW),
    "network.efficiency": (GPT, V5P, LOW),
    "network.ring_factor": (GPT, V5P, LOW),
    "overlap.dp.slow": (GPT, H, HIGH),
    "overlap.dp.links": (GPT, V5P, LOW / 2),
    "overlap.tp.scope": (GPT, H, HIGH),
    "overlap.tp.slow": (GPT, H, HIGH),
    "overlap.cp.most": (EXPERTS, H, LOW),
    "overlap.ep.scope": (EXPERTS, H, LOW),
    "overlap.ep.share": (EXPERTS, H, LOW),
    "overlap.ep.most": (EXPERTS, H, LOW),
    "overlap.ep.slow": (EXPERTS, H, LOW),
}
"""field -> a roofline that it changes, if not the usual one: model, cluster, tokens."""
BASES = {
    **dict.fromkeys(
        ("chip.stack.float8", "chip.stack.quantise"),
        replace(SHAPES, precision=PRECISIONS["fp8"]),
    ),
    "chip.wide_norm": set_to(SHAPES, "chip.stack.norm", "torch"),
    "chip.host.parts": set_to(SHAPES, "chip.stack.cuda_graphs", "parts"),
    "chip.host.routed": set_to(SHAPES, "chip.stack.cuda_graphs", "parts"),
    "chip.host.full": set_to(SHAPES, "chip.stack.cuda_graphs", "full"),
    "chip.sustained": put("chip.matrix_efficiency", None)(RICH),
    "count.gathered_inputs": EXACT,  # a faster chip waits for its collectives
    "overlap.dp.links": EXACT,
    # half of the runs at the limit fit at any width
    "memory.risk_width": replace(
        RICH, memory=replace(RICH.memory, risk_width=0.1, headroom=0.1)
    ),
    "memory.headroom": set_to(RICH, "memory.risk_width", 0.05),
    "network.ring_factor": put("network.collective", "book")(RICH),
}
"""field -> the set that it is changed in, if not `RICH`, or `SHAPES` of a chip's kernels and host."""
OTHER = {
    # "plain" is of models whose rotation is YaRN's alone
    "count.rotary": "apart",
    "chip.attention_forward": 0.3,
    "chip.attention_backward": 0.3,
    "chip.kernels": replace(kernels("h100"), share=0.3),
    "chip.stack.quantise": {"tensorwise": 90.0},
    "count.summa_width": object(),
    "network.algorithm": Free(),
    "overlap.dp.scope": "pass",
    "precision": PRECISIONS["bf16"],
    "choices": (),
    "strict": True,
}
"""field -> another value, where the first that its kind has is none or changes nothing."""


def read(name: str) -> bool:
    """A roofline reads the field, or all fields of the option that it belongs to."""
    return any(f"{name}.".startswith(f"{known}.") for known in READ)


def cases() -> Iterator[tuple[str, Assumptions, Any]]:
    """(field, a set under which it counts, another value of it), of every field."""
    for name in WHOLE:
        yield name, RICH, OTHER[name]
    for joint in JOINTS:
        for name, field, _ in leaves(getattr(SHAPES, joint), joint):
            kernels_or_host = joint == "chip" and (
                not read(name) or name.count(".") > 1
            )
            base = BASES.get(name, SHAPES if kernels_or_host else RICH)
            now = attrgetter(name)(base)
            yield name, base, OTHER.get(name) or other_values(field, now)[0]


CASES = {name: case for name, *case in cases()}


@pytest.mark.parametrize("name", CASES)
def test_it_changes_the_answer_or_is_refused(name: str) -> None:
    base, value = CASES[name]
    at, other = ASKED.get(name, USUAL), set_to(base, name, value)
    if read(name):
        assert answer(other, *at) != answer(base, *at)
    else:
        with refusal(f"would ignore its {name}"):
            answer(other, *at)


@pytest.mark.parametrize(
    ("option", "value", "on"),
    [
        ("network.collective", "measured", MEASURED),
        ("network.collective", "ring", "16xgb200"),
        ("chip.model", "hierarchy", H),
    ],
)
def test_other_options_change_it_too(option: str, value: str, on: Any) -> None:
    assert answer(set_to(RICH, option, value), GPT, on, LOW) != answer(
        RICH, GPT, on, LOW
    )


def test_scores_inside_windows() -> None:
    few = replace(model(WINDOWS), full_every=0)
    inside, at = set_to(RICH, "count.causal", "window"), (few, H, LOW)
    assert answer(inside, *at) != answer(RICH, *at)


@pytest.mark.parametrize("on", [H, V5P])
def test_free_communication_is_not_charged(on: str) -> None:
    free = set_to(BOOK_SUM, "network.collective", "free")
    found = answer(free, GPT, on, LOW)
    for row in found["schemes"]:
        assert row["comm_sum_s"] == row["comm_max_s"] == 0
        assert row["compute_bound_sum"]
    assert not found["theory"] and found["data_tokens_per_shard"] == 0


def test_the_factor_of_rings_is_that_of_the_set() -> None:
    """The book leaves (n-1)/n out; whoever names no set gets it, and a word for it holds."""
    at = GPT, V5P, LOW
    shorthand, exact = answer(BOOK_SUM, *at), answer(EXACT, *at)
    assert answer(BOOK_SUM, *at, exact=True) == exact
    assert answer(EXACT, *at, exact=False) == shorthand
    for found, part in ((shorthand, 1), (exact, 63 / 64)):
        fsdp, whole = found["schemes"][1], shorthand["schemes"][1]
        gathered = whole["comm_sum_s"] * part
        assert fsdp["comm_sum_s"] == pytest.approx(gathered)
        # a whole pod is compute-bound from data_tokens_per_shard on every chip
        tokens = 64 * found["data_tokens_per_shard"]
        assert fsdp["least_batch_sum_tokens"] == pytest.approx(tokens)


@pytest.mark.parametrize(
    "name", sorted(SETS.keys() - {"scaling-book-sum", "scaling-book-max"})
)
def test_sets_of_others_are_refused_by_name(name: str) -> None:
    with refusal(f"assumptions {name}: roofline would ignore") as refused:
        answer(assumptions(name), "llama3-8b", V5P, LOW)
    # one sentence, with the sets that it takes
    assert len(str(refused.value)) < 300
    assert str(refused.value).endswith("scaling-book-sum and scaling-book-max")
