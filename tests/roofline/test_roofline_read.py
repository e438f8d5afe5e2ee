"""Every field of a set of assumptions changes what `roofline` answers, or is refused by name: none
is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from by_hand import set_to
from meshwright import BadInput, assumptions, cluster, model
from meshwright.cost.free import Free
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
from meshwright.describe.job import PRECISIONS
from meshwright.describe.kernels import kernels
from meshwright.describe.measured import MeasuredTable
from meshwright.roofline import roofline
from meshwright.roofline.queries import EXACT

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
MEASURED = replace(
    NODE,
    network=replace(
        NODE.network,
        dims=(
            replace(NODE.network.dims[0], collectives=TABLES),
            *NODE.network.dims[1:],
        ),
    ),
)


def leaves(option: Any, name: str) -> Iterator[str]:
    """Names of all fields of an option, and of its options."""
    for field in fields(option):
        value = getattr(option, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{name}.{field.name}")
        else:
            yield f"{name}.{field.name}"


def answer(
    how: Assumptions, name: str, on: Any, batch: float, **more: Any
) -> dict[str, Any]:
    """All numbers of a roofline of a whole layer."""
    found = model(name) if isinstance(name, str) else name
    return roofline(
        found,
        cluster(on) if isinstance(on, str) else on,
        batch,
        layer="block",
        assumptions=how,
        **more,
    ).to_dict()


H, V5P = "16xh100-sxm", "64xtpu-v5p"
LOW, HIGH = 2e4, 1e6
"""Tokens at which communication binds, and at which it does not."""
READ: dict[str, Any] = {
    "count.dot_product": "2k-1",
    "count.causal": "half",
    "count.residual": True,
    "count.dropout": "lbl",
    "count.output_bias": "replicated",
    "count.gathered_inputs": "regathered",
    "count.gathered_keys": "kept",
    "count.weight_gradient": "apart",
    "count.rotary": "apart",
    "chip.model": "peak",
    "chip.matrix_efficiency": 0.4,
    "chip.sustained": 0.4,
    "chip.attention_forward": 0.3,
    "chip.attention_backward": 0.3,
    "chip.vector_efficiency": 0.1,
    "chip.memory_efficiency": 0.3,
    "chip.launch_s": 1e-4,
    "chip.stack.kernel": "fa2",
    "chip.stack.elementwise": 9.0,
    "chip.stack.norm": "torch",
    "chip.stack.host_s": 0.5,
    "chip.stack.cuda_graphs": "parts",
    "chip.stack.float8": "rowwise",
    "chip.stack.quantise": {"tensorwise": 90.0},
    "chip.wide_norm": 50.0,
    "chip.host.backward": 5.0,
    "chip.host.experts_s": 0.5,
    "chip.host.routed": 0.9,
    "chip.host.parts": 0.9,
    "chip.host.full": 0.9,
    "network.collective": "levels",
    "network.efficiency": 0.3,
    "network.ring_factor": "one",
    "network.algorithm": Free(),
    "network.hop": "mean",
    "overlap.dp.scope": "pass",
    "overlap.dp.share": 0.1,
    "overlap.dp.most": 0.5,
    "overlap.dp.slow": 0.5,
    "overlap.dp.links": "shared",
    "overlap.tp.scope": "operation",
    "overlap.tp.share": 0.5,
    "overlap.tp.most": 0.5,
    "overlap.tp.slow": 0.5,
    "overlap.cp.scope": "none",
    "overlap.cp.share": 0.1,
    "overlap.cp.most": 0.5,
    "overlap.cp.slow": 0.5,
    "overlap.ep.scope": "none",
    "overlap.ep.share": 0.1,
    "overlap.ep.most": 0.5,
    "overlap.ep.slow": 0.5,
    "overlap.pp": "all",
    "memory.capacity_share": 0.9,
    "memory.framework_bytes": 1e9,
    "memory.risk_width": 0.05,
    "memory.headroom": 0.1,
    "memory.holding.allocator_need": 0.2,
    "precision": PRECISIONS["bf16"],
}
"""field -> another value than that of `RICH`."""
USUAL = GPT, H, LOW
ASKED: dict[str, tuple[Any, str, float]] = {
    "count.dropout": (replace(model(GPT), dropout=True), H, LOW),
    "count.gathered_inputs": (GPT, V5P, LOW),
    "count.rotary": ("llama3-70b", H, LOW),
    "chip.sustained": (GPT, V5P, LOW),
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
        (
            name
            for name in READ
            if name.startswith(("chip.stack.", "chip.host."))
        ),
        SHAPES,
    ),
    **dict.fromkeys(
        ("chip.stack.float8", "chip.stack.quantise"),
        replace(SHAPES, precision=PRECISIONS["fp8"]),
    ),
    "chip.wide_norm": set_to(SHAPES, "chip.stack.norm", "torch"),
    "chip.host.parts": set_to(SHAPES, "chip.stack.cuda_graphs", "parts"),
    "chip.host.routed": set_to(SHAPES, "chip.stack.cuda_graphs", "parts"),
    "chip.host.full": set_to(SHAPES, "chip.stack.cuda_graphs", "full"),
    "chip.sustained": replace(
        RICH, chip=replace(RICH.chip, matrix_efficiency=None)
    ),
    "count.gathered_inputs": EXACT,  # a faster chip waits for its collectives
    "overlap.dp.links": EXACT,
    # half of the runs at the limit fit at any width
    "memory.risk_width": replace(
        RICH, memory=replace(RICH.memory, risk_width=0.1, headroom=0.1)
    ),
    "memory.headroom": set_to(RICH, "memory.risk_width", 0.05),
    "network.ring_factor": replace(
        RICH, network=replace(RICH.network, collective="book")
    ),
}
"""field -> the set that it is changed in, if not `RICH`."""
REFUSED = {
    "chip.optimizer": 9.0,
    "chip.stack.step_s": 5.0,
    "chip.stack.weights_quantised": "step",
    "chip.kernels": replace(kernels("h100"), share=0.3),
    "chip.stack.efficiency": 0.9,
    "chip.host.collective_s": 9.0,
    "chip.host.dispatched": 9.0,
    "chip.host.update": 9.0,
    "chip.host.embedding": 9.0,
    "chip.host.head": 9.0,
    "overlap.weights.gradients": "all-reduce",
    "overlap.weights.gathers": 0.5,
    "count.vocabulary": True,
    "count.optimizer_step": True,
    "count.attention_output": "twice",
    "count.backward_needs": "autograd",
    "count.input_gradients": "apart",  # schemes share the sequence out
    "count.stage_message": "whole",
    "count.selective": "op",
    "count.summa_width": object(),
    "overlap.step_barrier": "none",
    "memory.resident": "program",
    "memory.working_set": True,
    "choices": (),
    "strict": True,
    **{
        f"memory.holding.{name}": value
        for name, value in {
            "allocator_share": 0.1,
            "backward_share": 0.5,
            "bucket_elements": 4e7,
            "dummy_weight_gradients": True,
            "gathered_twice": True,
            "gradient_bytes": {"bf16": 2.0},
            "keeps_pipeline_outputs": True,
            "loss_bytes": 14.0,
            "loss_bytes_tp": 14.0,
            "norm_extra": 10.0,
            "step_bytes": 4.0,
            "step_copies": "new",
            "unit_gradient": "none",
        }.items()
    },
}
"""What a layer does not have, keep or wait for."""


def test_every_field_is_here() -> None:
    every = [
        *WHOLE,
        *(
            name
            for joint in JOINTS
            for name in leaves(getattr(RICH, joint), joint)
        ),
    ]
    assert sorted(every) == sorted([*READ, *REFUSED])


@pytest.mark.parametrize("name", READ)
def test_what_is_read_changes_the_answer(name: str) -> None:
    at, base = ASKED.get(name, USUAL), BASES.get(name, RICH)
    assert answer(set_to(base, name, READ[name]), *at) != answer(base, *at)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused(name: str) -> None:
    base = SHAPES if name.startswith("chip.") else RICH
    with pytest.raises(BadInput, match=f"roofline would ignore its {name}"):
        answer(set_to(base, name, REFUSED[name]), *USUAL)


@pytest.mark.parametrize(
    ("option", "value", "on"),
    [
        ("network.collective", "measured", MEASURED),
        ("network.collective", "free", H),
        ("network.collective", "free", V5P),
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
    assert answer(
        set_to(RICH, "count.causal", "window"), few, H, LOW
    ) != answer(RICH, few, H, LOW)


@pytest.mark.parametrize("on", [H, V5P])
def test_free_communication_is_not_charged(on: str) -> None:
    found = answer(
        set_to(BOOK_SUM, "network.collective", "free"), GPT, on, LOW
    )
    for row in found["schemes"]:
        assert (
            row["comm_sum_s"] == row["comm_max_s"] == 0
            and row["compute_bound_sum"]
        )
    assert not found["theory"] and found["data_tokens_per_shard"] == 0


def test_the_factor_of_rings_is_that_of_the_set() -> None:
    """The book leaves (n-1)/n out; whoever names no set gets it, and a word for it holds."""
    at = GPT, V5P, LOW
    shorthand, exact = answer(BOOK_SUM, *at), answer(EXACT, *at)
    assert (
        answer(BOOK_SUM, *at, exact=True) == exact
        and answer(EXACT, *at, exact=False) == shorthand
    )
    gathered = [
        found["schemes"][1]["comm_sum_s"] for found in (shorthand, exact)
    ]
    assert gathered[1] == pytest.approx(gathered[0] * 63 / 64)
    # a whole pod of FSDP is compute-bound from data_tokens_per_shard on every chip
    for found in (shorthand, exact):
        assert found["schemes"][1]["least_batch_sum_tokens"] == pytest.approx(
            64 * found["data_tokens_per_shard"]
        )


@pytest.mark.parametrize(
    "name", sorted(SETS.keys() - {"scaling-book-sum", "scaling-book-max"})
)
def test_sets_of_others_are_refused_by_name(name: str) -> None:
    with pytest.raises(
        BadInput, match=f"assumptions {name}: roofline would ignore"
    ) as refused:
        answer(assumptions(name), "llama3-8b", V5P, LOW)
    # one sentence, with the sets that it takes
    assert len(str(refused.value)) < 300
    assert str(refused.value).endswith("scaling-book-sum and scaling-book-max")
