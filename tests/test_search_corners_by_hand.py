"""What small spaces hold and what is answered of them, worked out on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from by_hand import CHIP, MODEL, SET
from meshwright import (
    Cluster,
    Dim,
    Job,
    Layout,
    Model,
    MoE,
    Network,
    assumptions,
)
from meshwright.layout import rules
from meshwright.layout.rules import EVEN_BATCH
from meshwright.search import Space, brute, plan, search, strategies
from meshwright.step import model_cost, whole_step
from spaces import CHIP as FAST

SIX = replace(MODEL, layers=6, vocab=100)
NODES = Network(
    "nodes", (Dim("node", 1e30, 0.0, size=4), Dim("net", 1e30, 0.0, size=999))
)
REALISTIC = assumptions("realistic")
ALONE = Space(tp=1, cp=1, microbatch=1, zero=0, recompute="none")  # fmt: skip
"""Nothing is left but pipelines and replicas."""


def job(
    chips: int = 8,
    batch: int = 8,
    model: Model = SIX,
    how: Any = SET,
    network: Network = NODES,
    **fields: Any,
) -> Job:
    cluster = Cluster(CHIP, network, chips)
    return Job(
        model, cluster, batch, assumptions=how, attention_kernel="unfused", **fields
    )  # fmt: skip


def layouts(at: Job, space: Space) -> list[Layout]:
    """All of a space."""
    return brute(at, space, 10**4).layouts


def test_rows_that_share_an_adapter_otherwise_cost_otherwise() -> None:
    """Two ranks of tp in two nodes, beside three replicas there or four: so many send at once."""
    far = Dim("far", 1e3, 0.0, shared_by=4)
    network = Network("shared", (Dim("near", 1e30, 0.0, 4), far))
    at, space = job(network=network, model=MODEL), ALONE.but(tp=2, pp=1)
    space = replace(space.but(sequence_parallel=True), relaxed=True)
    found = brute(at, space, 100)
    seconds = {}
    for row, one in zip(found.rows, found.layouts, strict=True):
        exact = whole_step(at, one, model_cost(at, one)).total
        seconds[one.placement["tp"], one.dp] = exact
        assert row.merit == pytest.approx(exact)
    assert seconds[(1, 2), 4] > 1.1 * (3 / 4) * seconds[(1, 2), 3]


# What a space holds.


def test_embedding_and_loss_fill_stages_of_their_own() -> None:
    """Three layers with a vocabulary are five slots: four and five stages hold them, six do not; and
    of a plan that may leave chips idle as many are tried as a prediction takes.
    """
    three = job(model=replace(SIX, layers=3), how=REALISTIC)
    for pp in range(1, 7):
        legal = {
            s
            for s in ("even", "slots")
            if not rules.broken(three, Layout(pp=pp, dp=1, stages=s))
        }
        assert legal == ({"even"} if pp < 4 else set()) | (
            {"slots"} if pp < 6 else set()
        )
        space = replace(ALONE.but(pp=pp), relaxed=True)
        best = plan(three, space).best
        assert (best is not None) == bool(legal)
        assert pp < 4 or not best or best.layout.stages == "slots"


def test_weights_that_wait_in_host_memory_are_sharded_with_all_they_have() -> (
    None
):
    """Only ZeRO-3 has them in pieces, and only where all of the optimizer waits beside them."""
    at = Job("gpt2", "8xh100-sxm", 8, framework="fsdp")
    for text, stages in (
        ("weights+optimizer", {3}),
        ("weights+optimizer:0.5", set()),
        ("optimizer:0.5", {1, 3}),
    ):
        space = Space(offload=text, zero=(1, 3), pp=1, tp=1)
        assert {one.zero for one in layouts(at, space)} == stages, text


# Where ranks lie.


def test_a_plan_on_axes_places_ranks_in_one_way() -> None:
    """tp nearest, then cp, dp, pp: as many layouts as with that placement alone, and it says so."""
    ring = tuple(
        Dim(n, 1e12, 1e-6, size=s, kind="ring")
        for n, s in (("x", 2), ("y", 4))
    )
    at = job(model=MODEL, network=Network("t", ring))
    space = Space(microbatch=1, zero=0, recompute="none")
    found = plan(at, space, top=1)
    spaces, _ = strategies(at, space)
    one = sum(
        brute(at, replace(each, placements=False)).searched for each in spaces
    )
    every = sum(brute(at, each).searched for each in spaces)
    assert found.searched == one < every
    assert any("only one placement" in note for note in found.notes)


# What is answered.


def test_what_fits_is_counted_whatever_is_kept() -> None:
    """A limit that nothing meets keeps no row, and counts all of them."""
    every = brute(job(), ALONE, 10)
    none = brute(job(), ALONE, 10, within=1e-12)
    assert none.rows == [] and none.feasible == every.feasible > 0
    assert none.too_big == every.too_big == 0


@pytest.mark.parametrize("idle", [False, True])
def test_progress_is_a_share_that_grows(idle: bool) -> None:
    """Of each stage from nothing to all; the last one ends with what is left."""
    said: list[tuple[str, float]] = []
    at = job(64, 64, replace(SIX, layers=12, heads=8))
    search(at, Space(relaxed=idle), 1, lambda *told: said.append(told))
    stages = list(dict.fromkeys(stage for stage, _ in said))
    assert stages[-1] == "layouts" and len(stages) == 2
    for stage in stages:
        mine = [share for name, share in said if name == stage]
        assert mine == sorted(mine) and 0.0 <= mine[0] <= mine[-1] <= 1.0


def test_a_plan_shows_ten() -> None:
    """Unless asked otherwise; the best is one of them."""
    found = plan(job(), Space(recompute="none"))
    assert len(found.alternatives) == 9
    assert 0.0 < found.elapsed_s < 600.0
    assert len(plan(job(), Space(recompute="none"), top=3).alternatives) == 2  # fmt: skip


def test_rules_that_leave_nothing() -> None:
    """Four replicas do not share three sequences evenly; with idle chips, and a microbatch that is
    not full, five share six.
    """
    one = ALONE.but(pp=1)

    def rejected(chips: int, batch: int, space: Space) -> dict[str, int]:
        counts = plan(job(chips, batch), space, families=False).rejected or {}
        return {
            rule: n
            for rule, n in counts.items()
            if n and rule not in ("memory", "bound")
        }

    flat = replace(one, relaxed=False)
    assert rejected(4, 3, flat) == {"batch over dp": 1}
    assert rejected(5, 6, flat) == {EVEN_BATCH.name: 1}
    assert rejected(5, 6, replace(one, relaxed=True)) == {}
    three = replace(one.but(tp=(1, 3)), relaxed=True)
    assert rejected(12, 12, three) == {"heads over tp": 1}


def test_a_pipeline_deeper_than_the_slots_is_no_degree() -> None:
    """Three layers, embedding and loss on six stages; not that such a plan would need too much
    memory.
    """
    small = Model("small", 3, 1024, 8, 4096, 1024, 512)
    found = plan(Job(small, "6xh100-sxm", 8), Space(pp=6))
    assert found.best is None
    assert found.notes[0].startswith("no combination of degrees is legal")


def of_experts(by: str, chips: int, node: int, batch: int) -> Job:
    """Two layers with four experts, on chips in nodes."""
    dims = Dim("near", 9e11, 1e-6, node), Dim("far", 5e10, 5e-6)
    model = Model("m", 2, 256, 4, 1024, 0, 256, moe=MoE(4, 1, 128, 0, 0))
    on = Cluster(FAST, Network("two levels", dims), chips)
    return Job(model, on, batch, framework=by)


@pytest.mark.parametrize(
    ("by", "chips", "batch", "fields", "replicas"),
    [
        # ep 2 divides dp 2 of 3 that there are chips for
        ("maxtext", 6, 6, {"cp": 2, "ep": 2}, {(2, 1)}),
        # ep 4 divides 16/2 and 8/2 ranks of a group, not 20/2 or 4/2
        (
            "torchtitan",
            20,
            24,
            {"cp": 1, "ep": 4, "dp_replicate": 2},
            {(16, 2), (8, 2)},
        ),
    ],
)
def test_a_rule_of_replicas_is_not_asked_of_an_interval(
    by: str, chips: int, batch: int, fields: dict, replicas: set
) -> None:
    """In a relaxed space rows stand for many numbers of replicas until they are placed."""
    job = of_experts(by, chips, chips, batch)
    space = Space(
        zero=3, pp=1, tp=1, schedule="1f1b" if by == "torchtitan" else "gpipe",
        recompute="full", microbatch=1, relaxed=True, **fields,
    )  # fmt: skip
    found = search(job, space, 10)
    assert {(l.dp, l.dp_replicate) for l in found.layouts} == replicas
    assert found.rows == brute(job, space, 10).rows


def test_groups_of_a_node_are_legal_where_experts_take_replicas() -> None:
    """MaxText, ep 2 of dp 2: there are no two groups of replicas beside the experts."""
    job = of_experts("maxtext", 4, 2, 4)
    space = Space(cp=2, ep=2, tp=1, pp=1, zero=3, schedule="gpipe")
    for layout in search(job, space, 100).layouts:
        assert not rules.broken(job, layout)
    assert plan(job, space, families=False).best.layout.dp_replicate == 1


def test_a_relaxed_space_holds_the_strict_one() -> None:
    """A microbatch of more than 64 sequences that divides the batch, or is named."""
    job = replace(of_experts("megatron-core", 1, 1, 128), batch=128)
    one = Space(zero=0, recompute="none", schedule="1f1b")
    wide = replace(one, relaxed=True)
    strict, relaxed = (
        search(job, each, 1).rows[0].merit for each in (one, wide)
    )
    assert relaxed <= strict
    (row,) = search(job, wide.but(microbatch=100), 1).rows
    assert row.degree("microbatch") == 100
