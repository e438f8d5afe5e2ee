"""Rules of layouts against the same said once more in whole numbers, over thousands of layouts, and
each sentence with the values that it names.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from by_hand import CHIP, MODEL
from layouts import cut
from meshwright import Cluster, Dim, Model, MoE, Network
from meshwright.catalog import model as catalogue
from meshwright.describe.framework import framework
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import AXES, Layout
from meshwright.describe.mixers import (
    Convolution,
    Indexer,
    Linear,
    SlidingHeads,
    StateSpace,
)
from meshwright.layout import cuts, practice, rules, schemes, trainable
from meshwright.layout.placement import (
    exceeds_last,
    launcher_shares,
    lies,
    placed,
    rank_shares,
)
from meshwright.layout.rule import may_be
from meshwright.layout.stages import microbatches, partition, stage_layers
from meshwright.schedule import get as schedule_named

DENSE = replace(
    MODEL,
    layers=12,
    heads=12,
    kv_heads=4,
    hidden=96,
    ffn=260,
    vocab=1000,
    seq=96,
    gated=True,
)
EXPERTS = replace(
    DENSE, moe=MoE(experts=12, top_k=2, expert_ffn=60, shared_ffn=24)
)
NET = Network(
    "n", (Dim("node", 1e9, 0.0, size=8), Dim("far", 1e9, 0.0, size=1024))
)


HERE = dict.fromkeys(("tp", "cp", "dp", "pp"), (1, 1))
"""Where the ranks of one device lie in a network of two dimensions."""


def job(model: Model = DENSE, batch: int = 24, chips: int = 64) -> Job:
    return Job(model, Cluster(CHIP, NET, chips), batch)


def chunks(l: Layout) -> int:
    """Of a device."""
    if l.schedule.startswith("interleaved"):
        return int(l.interleave)
    return 2 if l.schedule in ("zbv", "dualpipev") else 1


def stages(l: Layout) -> int:
    return int(l.pp) * chunks(l)


def fullest(layers: int, l: Layout) -> int:
    return -(-layers // stages(l))


def m(j: Job, l: Layout) -> int:
    return -(-j.batch // (l.dp * l.microbatch))


def long_cut(j: Job, l: Layout) -> int:
    """Parts of a sequence on one rank."""
    tokens = l.sequence_parallel and l.scheme != "summa"
    return int(l.cp * (l.tp if tokens else 1))


def even(a: float, b: float) -> bool:
    return b % a == 0


PLAINLY: dict[str, Callable[[Job, Layout], Any]] = {
    "chips": lambda j, l: l.tp * l.cp * l.pp * l.dp <= j.cluster.chips,
    "heads over tp": lambda j, l: even(l.tp, 12),
    "kv heads over tp": lambda j, l: even(l.tp, 4) or even(4, l.tp),
    "feed-forward over tp": lambda j, l: even(l.tp, 260),
    "sequence over cp": lambda j, l: (
        # where cp cuts it a sequence is padded
        (l.cp > 1 or even(long_cut(j, l), 96 * l.microbatch)) and l.cp <= 96
    ),
    "hidden over the grid": lambda j, l: (
        even(l.tp, 96) and (l.scheme != "summa" or even(l.cp, 96))
    ),
    # with several chunks, or slots, embedding and head may fill a stage each
    "layers over pp": lambda j, l: (
        l.pp * chunks(l) <= 12 + 2 * (chunks(l) > 1 or l.stages == "slots")
        or l.stages[0].isdigit()
    ),
    "layers of the stages": lambda j, l: (
        l.stages in ("even", "slots")
        # the other stages, all as full as the fullest, leave the last one some
        or (l.stages == "rest" and fullest(12, l) * (stages(l) - 1) < 12)
        or (l.stages == "2,4,5,1" and l.pp * chunks(l) == 4)
    ),
    "experts over ep": lambda j, l: even(l.ep, 12 if j.model.moe else 1),
    "expert ranks": lambda j, l: even(l.ep * l.etp, l.tp * l.cp * l.dp),
    "expert width over etp": lambda j, l: even(
        l.etp, 60 if j.model.moe else 1
    ),
    "experts need sequence parallelism": lambda j, l: (
        not j.model.moe or l.tp == 1 or l.sequence_parallel
    ),
    "batch over dp": lambda j, l: l.dp * l.microbatch <= j.batch,
    "groups of dp": lambda j, l: (
        l.dp_replicate == 1
        or even(l.dp_replicate, l.dp)
        and even(l.dp_replicate * l.ep * l.etp, l.tp * l.cp * l.dp)
        and l.zero > 0
    ),
    # all-to-all deals key/value heads to tp x cp ranks
    "exchange of keys": lambda j, l: (
        l.cp == 1 or l.cp_exchange != "all-to-all" or even(l.tp * l.cp, 4)
    ),
    "groups of microbatches": lambda j, l: (
        not l.microbatch_group or l.schedule.startswith("interleaved")
    ),
    "summa models": lambda j, l: not (l.scheme == "summa" and j.model.moe),
    "even stages": lambda j, l: even(l.pp * chunks(l), 12),
    "even batch": lambda j, l: even(l.dp * l.microbatch, j.batch),
    # the trainer's
    "a microbatch for every stage": lambda j, l: (
        l.schedule != "1f1b" or l.pp == 1 or m(j, l) >= l.pp
    ),
    "chunks need a pipeline": lambda j, l: l.interleave == 1 or l.pp > 1,
    "trained recomputation": lambda j, l: (
        l.recompute in ("none", "selective", "op", "full")
    ),
    "trained groups of dp": lambda j, l: l.dp_replicate == 1,
    "halves of whole layers": lambda j, l: (
        not (l.pp > 1 and splits(l) and l.recompute != "none")
    ),
    "halves of sharded weights": lambda j, l: (
        not (l.pp > 1 and splits(l) and l.zero == 3)
    ),
    "shared experts over tp": lambda j, l: not j.model.moe or even(l.tp, 24),
    "whole kv heads": lambda j, l: even(l.tp, 4),
    "vocabulary over tp": lambda j, l: even(l.tp, 1000),
    "whole sequences": lambda j, l: (
        even(long_cut(j, l), 96) and (l.cp == 1 or even(2 * l.cp, 96))
    ),
    "a microbatch for every rank": lambda j, l: (
        m(j, l) >= l.pp or not l.schedule.startswith("interleaved")
    ),
    # what people do
    "tp in a node": lambda j, l: l.tp <= 8,
    "few chunks": lambda j, l: l.interleave <= 8,
}
"""Rule -> what it says of models of 12 layers, 12 heads and 4 key/value heads, 96 wide."""


def splits(l: Layout) -> bool:
    return l.schedule in ("zb-h1", "zb-h2", "zbv", "dualpipev") or (
        l.schedule == "interleaved-zb"
    )


def draw(rng: random.Random) -> Layout:
    few = [1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 12]
    return Layout(
        tp=rng.choice(few),
        cp=rng.choice([1, 1, 2, 3, 4, 5, 32, 48, 96, 192]),
        pp=rng.choice([1, 1, 2, 3, 4, 6, 7, 12, 13, 14, 15]),
        dp=rng.choice(few),
        dp_replicate=rng.choice([1, 1, 1, 2, 3]),
        ep=rng.choice([1, 1, 2, 3, 4, 5]),
        etp=rng.choice([1, 1, 1, 2, 7]),
        microbatch=rng.choice([1, 1, 2, 3]),
        interleave=rng.choice([1, 1, 2, 3, 8, 9]),
        stages=rng.choice(
            ["even", "even", "slots", "rest", "2,4,5,1", "5,3,5"]
        ),
        microbatch_group=rng.choice([0, 0, 3]),
        schedule=rng.choice(
            [
                "gpipe",
                "1f1b",
                "interleaved",
                "zb-h1",
                "zbv",
                "dualpipev",
                "interleaved-zb",
            ]
        ),
        zero=rng.choice([0, 1, 2, 3]),
        recompute=rng.choice(["none", "selective", "full", "mlp"]),
        sequence_parallel=rng.random() < 0.5,
        scheme=rng.choice(["megatron", "megatron", "context", "summa"]),
        cp_exchange=rng.choice(["gather", "ring", "all-to-all"]),
    )


@pytest.mark.parametrize("model", [DENSE, EXPERTS])
def test_each_rule_says_what_it_says(model: Model) -> None:
    rng, at = random.Random(3), job(model)
    paper = replace(at, assumptions="lbl-2024")
    broken = dict.fromkeys(PLAINLY, 0)
    for _ in range(1500):
        layout = draw(rng)
        # papers pad nothing
        evenly = even(long_cut(at, layout), 96 * layout.microbatch)
        fine = evenly and layout.cp <= 96
        assert bool(rules.SEQUENCE.holds(paper, layout)) is fine
        for name, says in PLAINLY.items():
            fine = bool(rules.NAMED[name].holds(at, layout))
            assert fine == bool(says(at, layout)), (name, layout)
            broken[name] += not fine
            if not fine:
                assert rules.NAMED[name].sentence(at, layout)
    dense = {
        "experts need sequence parallelism",
        "shared experts over tp",
        "summa models",
    }
    never = {name for name, count in broken.items() if not count}
    assert never == (dense if model is DENSE else set())


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (cut("tp5"), "kv heads 4 and tp 5: one must be a multiple"),
        (cut("tp8"), "heads 12 cannot be split 8 ways: tp may be 1, 2, 3, 4"),
        (
            Layout(tp=3, cp=5, dp=2, dp_replicate=7, zero=1),
            "dp_replicate 7 must divide dp 2",
        ),
        (
            cut("tp2 cp2 dp3 ep5"),
            "ep 5 x etp 1 must divide tp x cp x dp = 12, whose ranks it borrows: it may be 1, 2,"
            " 3, 4, 6, 12",
        ),
        (
            cut("pp16 dp2"),
            "12 layers are too few for pp 16: a chunk needs a layer; pp may be at most 12",
        ),
        (
            cut("pp14 dp2"),
            "for pp 14: a chunk needs a layer; pp may be at most 12, or 14 with --stages slots",
        ),
        (
            cut("pp4 interleave4 interleaved"),
            "pp 4 x 4 chunks (interleaved): a chunk needs a layer, the first and the last at least"
            " embedding and head; pp may be at most 3",
        ),
        (
            Layout(pp=2, dp=1, stages="5,6"),
            "layout.stages 5,6 assigns 11 layers to 2 stages, but pp 2 has 2 and the model 12",
        ),
        (
            Layout(pp=2, dp=1, interleave=2, schedule="interleaved", stages="6,6"),
            "assigns 12 layers to 2 stages, but pp 2 x 2 chunks (interleaved) has 4",
        ),
        (
            cut("tp5"),
            "a microbatch of 1 x 96 tokens cannot be split over cp 1 and tp 5 (sequence_parallel):"
            " cp x tp may be 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96",
        ),
        (
            cut("dp5 microbatch5"),
            "batch of 24 sequences is too small for dp 5 x microbatch 5: dp x microbatch may be at"
            " most 24",
        ),
        (cut("dp65 microbatch1"), "needs 65 chips, but the cluster has 64"),
        (
            Layout(dp=2, tp=2, placement={**HERE, "dp": (1, 1), "tp": (2, 1)}),
            "placement dp = [1, 1] must multiply up to dp = 2",
        ),
        (
            Layout(dp=4, tp=4, placement={**HERE, "dp": (4, 1), "tp": (4, 1)}),
            "placement puts 16 ranks in network dimension 1 (node), which joins 8",
        ),
        (
            Layout(
                dp=2, placement={**dict.fromkeys(HERE, (1,)), "dp": (2,)}
            ),
            "a number for each of the 2",
        ),
        (
            Layout(dp=2, placement={**HERE, "dp": (4, 0.5)}),
            "placement dp = [4, 0.5] must multiply up",
        ),
    ],
)  # fmt: skip
def test_sentences_name_the_numbers(layout: Layout, says: str) -> None:
    assert says in "; ".join(rules.broken(job(), layout))


def test_nothing_is_said_of_what_holds() -> None:
    fine = Layout(
        tp=4,
        dp=8,
        pp=2,
        placement={**HERE, "dp": (2, 4), "tp": (4, 1), "pp": (1, 2)},
    )
    assert rules.broken(job(), fine) == []
    full = cut("dp64 microbatch1")
    assert rules.broken(job(batch=64), full) == [], "every chip"


def test_slots_need_a_vocabulary() -> None:
    none = job(replace(DENSE, vocab=0))
    slots = Layout(pp=4, dp=1, stages="slots")
    assert "needs a vocabulary" in rules.broken(none, slots)[0]
    assert rules.broken(job(replace(DENSE, vocab=1)), slots) == []
    assert rules.broken(none, cut("pp4")) == []
    chunked = cut("pp7 zbv")
    assert "too few" in rules.broken(none, chunked)[0]


def test_degrees_are_positive_numbers_of_a_table() -> None:
    """`predict` refuses them one by one; a column of a table may hold anything."""
    for name in [
        "tp",
        "cp",
        "pp",
        "dp",
        "ep",
        "etp",
        "microbatch",
        "interleave",
        "panels",
    ]:
        layout = Layout(dp=1)
        assert rules.POSITIVE.holds(job(), layout)
        object.__setattr__(layout, name, 0)
        assert not rules.POSITIVE.holds(job(), layout), name


@pytest.mark.parametrize("words", [["no such rule"], ["nor", "either"]])
def test_a_strange_rule_of_a_framework_is_named(words: list[str]) -> None:
    by = replace(framework("meshwright"), rules=("trained model", *words))
    with pytest.raises(Exception, match=f"framework.rules.*{words[0]}"):
        rules.of_framework(replace(job(), framework=by))


def test_lists_of_divisors_end() -> None:
    assert may_be(12) == "1, 2, 3, 4, 6, 12"
    assert may_be(2**15) == ", ".join(str(2**i) for i in range(16))
    assert may_be(120) == ", ".join(
        str(d) for d in range(1, 121) if 120 % d == 0
    )
    assert may_be(180).endswith("60, ..."), "sixteen of eighteen"


WIDE = replace(MODEL, hidden=96, heads=12, ffn=260, seq=160)


def test_no_experts_are_cut_by_no_etp() -> None:
    assert rules.EXPERT_FFN.holds(job(WIDE, 40, 40), Layout(dp=1))
    assert not rules.EXPERT_FFN.holds(
        job(WIDE, 40, 40), Layout(tp=2, dp=1, etp=2)
    )
    assert "has no experts: etp may be 1" in rules.EXPERT_FFN.sentence(
        job(WIDE, 40, 40), Layout(tp=2, dp=1, etp=2)
    )


def test_a_rule_is_a_key() -> None:
    """Counts are kept of rules, each of which is one of a kind, and stays as it is."""
    every = (*rules.ALWAYS, rules.EVEN_BATCH)
    assert len({*every}) == len(every) == len({rule.name for rule in every})
    with pytest.raises(AttributeError):
        rules.EVEN_BATCH.name = "another"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("zero", "away", "fits"),
    [
        (3, "optimizer+weights", True),
        (2, "optimizer+weights", False),
        (3, "optimizer:0.5+weights", False),
        (2, "optimizer", True),
    ],
)
def test_weights_wait_in_host_memory_where_all_states_do(
    zero: int, away: str, fits: bool
) -> None:
    """Sharded, and updated there: by ZeRO 3, with all of the optimizer."""
    layout = Layout(dp=40, zero=zero, offload=away)
    assert bool(rules.AWAY.holds(job(WIDE, 40, 40), layout)) is fits


@pytest.mark.parametrize("field", ["embedding_width", "token_types", "head_width"])  # fmt: skip
def test_tables_of_embeddings_that_the_trainer_lacks(field: str) -> None:
    of = catalogue("gpt3-175b")
    before = trainable.model_refusals(of)
    (why,) = set(trainable.model_refusals(replace(of, **{field: 2}))) - {
        *before
    }
    assert "embedding_width, token_types and head_width" in why


def test_what_the_layer_of_a_grid_does_not_count() -> None:
    """Each alone is enough: layers of several kinds, scores of chosen tokens, norms inside."""
    assert schemes.plain_dense(WIDE)
    for change in (
        {"pattern": ("full", "none+dense")},
        {"sparse": Indexer(2, 8, 16)},
        {"inner_norms": True},
        {"vectors": 1},
        {"qk_norm": True},
        {"norms_per_layer": 4},
        {"attention_sinks": True},
    ):
        assert not schemes.plain_dense(replace(WIDE, **change)), change


# What people do.


def test_conventions_at_their_edges() -> None:
    long = job(replace(DENSE, seq=3 * 4096))
    for cp, fine in ((1, True), (3, True), (4, False)):
        assert bool(practice.LONG.holds(long, Layout(cp=cp, dp=1))) is fine
    assert practice.LONG.holds(job(), Layout(dp=1)), "short, but not cut"
    assert "leaves 3,072 tokens" in practice.LONG.sentence(long, cut("cp4"))
    many = job(replace(DENSE, moe=MoE(experts=96, top_k=2, expert_ffn=60)))
    for ep, fine in ((2, False), (3, True), (6, True)):
        assert bool(practice.SPREAD.holds(many, Layout(ep=ep, dp=6))) is fine
    assert practice.SPREAD.sentence(many, cut("dp2 ep2")).startswith(
        "48 experts on each rank"
    )
    assert "ep 3 or more" in practice.SPREAD.sentence(many, Layout(dp=1))
    for experts, fine in ((64, True), (66, False)):
        more = replace(DENSE, moe=MoE(experts, top_k=2, expert_ffn=60))
        holds = practice.SPREAD.holds(job(more), cut("dp2 ep2"))
        assert bool(holds) is fine, "32 a rank are DeepSeek-V3's"
    assert practice.SPREAD.holds(job(), Layout(dp=1))
    inside = Layout(tp=4, dp=1, placement={**HERE, "tp": (4, 1)})
    outside = Layout(tp=4, dp=1, placement={**HERE, "tp": (2, 2)})
    assert practice.INSIDE.holds(job(), inside)
    assert not practice.INSIDE.holds(job(), outside)
    assert "tp 12 leaves the node domain of 8 chips" in practice.NEAR.sentence(
        job(), cut("tp12")
    )


def test_a_node_is_what_the_nearest_switch_joins() -> None:
    """Nodes of 4 in racks of 12: six ranks of tp leave one; on the axes of a torus none does."""
    dims = (("node", 4), ("rack", 3), ("net", 999))
    racks = Network("r", tuple(Dim(n, 1e9, 0.0, size=s) for n, s in dims))
    at = Job(DENSE, Cluster(CHIP, racks, 24), 24)
    assert practice.NEAR.holds(at, Layout(tp=4, dp=1))
    assert not practice.NEAR.holds(at, Layout(tp=6, dp=1))
    said = practice.NEAR.sentence(at, Layout(tp=6, dp=1))
    assert said == "tp 6 leaves the node domain of 4 chips"
    ring = tuple(
        Dim(n, 1e9, 0.0, size=s, kind="ring") for n, s in (("x", 2), ("y", 4))
    )
    torus = replace(at, cluster=Cluster(CHIP, Network("t", ring), 8))
    assert practice.NEAR.holds(torus, Layout(tp=8, dp=1))


def test_conventions_that_the_user_decides_are_not_kept() -> None:
    asked = replace(job(), framework="megatron-core")
    words = [each.words for each in practice.kept_conventions(asked)]
    assert len(words) == 4
    fewer = [
        each.words for each in practice.kept_conventions(asked, ["cp", "tp"])
    ]
    assert fewer == words[1:3]
    kept = practice.keeping(asked, practice.kept_conventions(asked))
    names = [rule.name for rule in rules.of_framework(kept)]
    assert names[-5:] == [rule.name for rule in practice.PRACTICE]
    assert practice.keeping(asked, ()) is asked


# What the trainer has.
TRAINED = replace(
    DENSE, gated=True, norm="rmsnorm", positions="rope", attention="causal"
)
STRANGE = {
    "mla": {"mla": catalogue("deepseek-v3").mla},
    "attention_gate": {"attention_gate": "head"},
    "v_head_dim": {"v_head_dim": 4},
    "out_bias": {"out_bias": True},
    "key_is_value": {"key_is_value": True},
    "head_bias": {"head_bias": True},
    "final_norm": {"final_norm": False},
    "position_rows": {"positions": "learned", "position_rows": 95},
    "inner_norms": {"inner_norms": True},
    "qk_norm_whole": {"qk_norm": True, "qk_norm_whole": True},
    "mtp_layers": {"mtp_layers": 1},
    "attention_sinks": {"attention_sinks": True},
    "embedding_norm": {"embedding_norm": True},
    "dropout": {"dropout": True},
    "norms_per_layer": {"norms_per_layer": 4},
    "alibi": {"positions": "alibi"},
    "vocab": {"vocab": 1},
    "head_dim": {"head_dim": 7},
    "window": {"window": 8, "attention": "full"},
    "shared experts": {
        "moe": replace(EXPERTS.moe, shared_ffn=8),
        "bias": True,
    },
    "moe.latent": {"moe": replace(EXPERTS.moe, latent=8)},
    "idle_experts": {"moe": replace(EXPERTS.moe, idle_experts=8)},
    "moe.groups": {"moe": replace(EXPERTS.moe, groups=2)},
}


@pytest.mark.parametrize("word", STRANGE)
def test_each_part_that_is_not_trained_is_named(word: str) -> None:
    (why,) = trainable.model_refusals(replace(TRAINED, **STRANGE[word]))
    assert word in why


FINE: tuple[dict[str, Any], ...] = (
    {},
    {"moe": EXPERTS.moe},
    {"moe": replace(EXPERTS.moe, shared_ffn=0), "bias": True},
    {"positions": "learned", "position_rows": 96},
    {"positions": "learned"},
    {"position_rows": 95},
    {"qk_norm": True},
    {"head_dim": 7, "positions": "none"},
    {"window": 8},
    {"vocab": 2},
    {"bias": True},
    {"attention": "full"},
)


@pytest.mark.parametrize("parts", FINE)
def test_what_is_trained(parts: dict[str, Any]) -> None:
    assert trainable.model_refusals(replace(TRAINED, **parts)) == []


def test_numbers_that_are_trained() -> None:
    for name, fine in (
        ("bf16", True),
        ("fp32", True),
        ("fp16", True),
        ("bf16-pure", False),
        ("fp8", False),
    ):
        at = replace(job(), precision=PRECISIONS[name])
        assert (trainable.number_refusals(at) == []) is fine, name
        assert (
            bool(rules.NAMED["trained numbers"].holds(at, Layout(dp=1)))
            is fine
        )
    narrow = replace(PRECISIONS["fp32"], gradient_bytes=2.0)
    assert trainable.number_refusals(replace(job(), precision=narrow)) == []


@pytest.mark.parametrize(
    ("placement", "fine"),
    [
        ({"tp": (1, 1), "cp": (1, 1), "dp": (4, 3), "pp": (1, 1)}, True),
        ({"tp": (1, 1), "cp": (1, 1), "dp": (3, 4), "pp": (1, 1)}, False),
    ],
)
def test_experts_take_whole_ranks_of_every_dimension(
    placement: dict[str, tuple[int, int]], fine: bool
) -> None:
    """Two of four ranks of a node and one of three nodes; of three ranks of a node 2 are not."""
    layout = Layout(dp=12, ep=2, placement=placement)
    rule, at = rules.NAMED["whole expert ranks"], job(EXPERTS, chips=12)
    assert bool(rule.holds(at, layout)) is fine
    assert rule.holds(at, replace(layout, ep=1))
    assert rule.holds(job(), layout), "without experts"
    odd = placed(Layout(dp=97), (8, 13))
    assert odd.placement["dp"] == (1, 97)
    assert rule.holds(job(EXPERTS, chips=97), odd), "whose ep is 1"


def test_learned_positions_are_as_many_as_tokens() -> None:
    rule = rules.NAMED["learned positions"]
    for seq, fine in ((95, True), (96, True), (97, False)):
        at = replace(job(replace(DENSE, positions="learned")), seq=seq)
        assert bool(rule.holds(at, Layout(dp=1))) is fine
        assert rule.holds(replace(at, model=DENSE), Layout(dp=1))


# Where ranks lie.


def test_as_many_of_a_group_lie_in_each_node() -> None:
    """Nodes of 8: 20 replicas are 4 in each, 97 are 1, 10 beside pairs of tp are 2. Groups of 5
    begin anywhere in a node, so none is whole in one; nor is what lies 5 apart. Where the far
    dimension has room, 5 of 20 in each of 4 nodes.
    """
    for degrees, sizes, tp, cp, dp in (
        ({"dp": 20}, (8, 3), (1, 1), (1, 1), (4, 5)),
        ({"dp": 97}, (8, 13), (1, 1), (1, 1), (1, 97)),
        ({"tp": 2, "dp": 10}, (8, 3), (2, 1), (1, 1), (2, 5)),
        ({"tp": 4, "dp": 5}, (8, 3), (4, 1), (1, 1), (1, 5)),
        ({"cp": 5, "dp": 4}, (8, 3), (1, 1), (1, 5), (1, 4)),
        ({"tp": 8, "dp": 97}, (8, 13), (8, 1), (1, 1), (1, 97)),
        ({"dp": 20}, (8, 3, 1), (1, 1, 1), (1, 1, 1), (4, 5, 1)),
        ({"dp": 20}, (8, 4, 1), (1, 1, 1), (1, 1, 1), (5, 4, 1)),
        ({"dp": 100}, (4, 4, 5), (1, 1, 1), (1, 1, 1), (4, 1, 25)),
    ):
        at = placed(Layout(**degrees), sizes).placement
        assert (at["tp"], at["cp"], at["dp"]) == (tp, cp, dp), (degrees, sizes)
    given = Layout(dp=4, placement={**HERE, "dp": (1, 4)})
    assert placed(given, (8, 16)) is given


def test_columns_lie_as_each_of_their_layouts() -> None:
    """Shares, and whether ranks lie in an order, row by row; 97 replicas fill no nodes."""
    rows = [
        {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
        for tp, cp, dp, pp in product((1, 3, 4), (1, 2), (1, 6, 97), (1, 4))
    ]
    table = {a: np.array([row[a] for row in rows], dtype=float) for a in AXES}
    sizes, orders = (8, 4, 16), (AXES, ("tp", "pp", "cp", "dp"))
    whole, every = rank_shares(table, sizes), launcher_shares(table, sizes)
    lie = [
        lies(Layout(**table, placement=whole), sizes, order)  # type: ignore[arg-type]
        for order in orders
    ]
    for i, row in enumerate(rows):
        shares = {a: tuple(n[i] for n in whole[a]) for a in AXES}
        one = placed(Layout(**row), sizes)
        assert (one.placement == shares) or exceeds_last(shares, sizes), row
        assert one.placement == {
            a: tuple(n[i] for n in every[a]) for a in AXES
        }, row
        for order, where in zip(orders, lie, strict=True):
            same = placed(Layout(**row), sizes, order).placement == shares
            assert where[i] == same, (row, order)
    assert [float(np.mean(where)) for where in lie] != [1.0, 1.0]


@pytest.mark.parametrize(
    ("layers", "stages", "how", "expected"),
    [
        (8, 4, "even", [2, 2, 2, 2]),
        (7, 4, "even", [2, 2, 2, 1]),
        (6, 4, "even", [1, 2, 2, 1]),
        (5, 4, "even", [1, 2, 1, 1]),
        (14, 4, "slots", [3, 4, 4, 3]),
        (13, 4, "slots", [3, 4, 4, 2]),
        (12, 4, "slots", [2, 4, 4, 2]),
        (8, 2, "slots", [4, 4]),
        (61, 16, "rest", [*[4] * 15, 1]),
        (61, 8, "rest", [*[8] * 7, 5]),
        (8, 4, "rest", [2, 2, 2, 2]),
        (8, 3, "1,5,2", [1, 5, 2]),
    ],
)
def test_layers_of_each_stage(
    layers: int, stages: int, how: str, expected: list[int]
) -> None:
    """The last stage is the first to have one fewer, then the first, then from the back; or it
    alone, as Megatron-Bridge deals DeepSeek-V3 (recipes/deepseek/deepseek_v3.py).
    """
    found = stage_layers(layers, stages, how)
    assert [len(mine) for mine in found] == expected
    assert [n for mine in found for n in mine] == list(range(layers))


def test_chunks_of_a_rank() -> None:
    from meshwright.layout.stages import stage_count, stage_numbers

    looped = cut("pp4 interleave3 interleaved")
    assert stage_numbers(looped, 1) == [1, 5, 9]
    assert stage_count(looped) == 12
    folded = cut("pp4 zbv")
    assert stage_numbers(folded, 1) == [1, 6] and stage_count(folded) == 8
    assert stage_numbers(replace(folded, pp=1), 0) == [0]
    assert stage_count(replace(folded, pp=1)) == 1
    assert schedule_named("zbv").chunks(1) == 2


# What of a model tp and cp cut.


@pytest.mark.parametrize(
    ("parts", "heads", "shared", "exchanged", "uncut"),
    [
        ({}, {"heads": 12}, {"kv heads": 4}, {}, 0),
        (
            {"mla": catalogue("deepseek-v3").mla},
            {"heads": 12}, {}, {}, 0,
        ),
        (
            {"pattern": ("sliding",), "window": 8},
            {"heads": 12}, {"kv heads": 4}, {}, 0,
        ),
        (
            {"pattern": ("sliding",), "window": 8, "sliding": SlidingHeads(6, 3, 8)},
            {"sliding.heads": 6}, {"sliding.kv_heads": 3}, {}, 0,
        ),
        (
            {"pattern": ("sliding", "full"), "window": 8, "sliding": SlidingHeads(6, 3, 8)},
            {"heads": 12, "sliding.heads": 6},
            {"kv heads": 4, "sliding.kv_heads": 3}, {}, 0,
        ),
        (
            {
                "pattern": ("linear", "sliding"), "window": 8,
                "linear": Linear(8, 4, 4, key_heads=4),
                "sliding": SlidingHeads(6, 3, 8),
            },
            {"sliding.heads": 6, "linear.key_heads": 4},
            {"sliding.kv_heads": 3}, {"linear.key_heads": 4}, 0,
        ),
        (
            {"pattern": ("linear",), "linear": Linear(8, 4, 4, key_heads=2)},
            {"linear.key_heads": 2}, {}, {"linear.key_heads": 2}, 0,
        ),
        (
            {"pattern": ("linear",), "linear": Linear(8, 4, 4, "lightning")},
            {"linear.key_heads": 8}, {}, {"linear.key_heads": 8}, 1,
        ),
        (
            {"pattern": ("ssm", "full"), "ssm": StateSpace(120, 4, heads=6, groups=2)},
            {"heads": 12, "ssm.heads": 6},
            {"kv heads": 4, "ssm.groups": 2}, {"ssm.heads": 6}, 0,
        ),
        (
            {"pattern": ("ssm",), "ssm": StateSpace(120, 4, "mamba", dt_rank=4)},
            {"ssm.inner": 120}, {}, {"ssm.heads": 1}, 1,
        ),
        (
            {"pattern": ("conv", "full"), "conv": Convolution(3)},
            {"heads": 12}, {"kv heads": 4}, {}, 1,
        ),
        # shapes that no layer names do not count
        (
            {
                "linear": Linear(7, 4, 4), "conv": Convolution(3),
                "ssm": StateSpace(120, 4, heads=5), "sliding": SlidingHeads(5, 5, 8),
            },
            {"heads": 12}, {"kv heads": 4}, {}, 0,
        ),
    ],
)  # fmt: skip
def test_what_tensor_and_context_parallelism_cut(
    parts: dict[str, Any],
    heads: dict[str, int],
    shared: dict[str, int],
    exchanged: dict[str, int],
    uncut: int,
) -> None:
    """Heads of the mixers that layers name, by their fields; those with a state over tp x cp too,
    and what no framework cuts only alone."""
    of = replace(DENSE, **parts)
    assert dict(cuts.heads(of)) == heads
    whole = [
        t for t in range(1, 121) if all(even(t, n) for n in heads.values())
    ]
    assert cuts.most_tp(of) == whole[-1]
    assert dict(cuts.shared_heads(of)) == shared
    assert dict(cuts.exchanged_heads(of)) == exchanged
    assert len(cuts.uncut(of)) == uncut
    for tp in (1, 2, 3, 4, 6, 8):
        evenly = all(n % tp == 0 or tp % n == 0 for n in shared.values())
        assert bool(cuts.copies_evenly(of, tp)) is evenly
        for cp in (1, 2, 3):
            both = tp * cp == 1 or not uncut
            for n in exchanged.values():
                both = both and (cp == 1 or n % (tp * cp) == 0)
            assert bool(cuts.over_cp(of, tp, cp)) is both, (tp, cp)
            layout = Layout(tp=tp, cp=cp, dp=1)
            rule = rules.NAMED["states over tp and cp"]
            assert bool(rule.holds(job(of), layout)) is both


KEYS = {"pattern": ("linear",), "linear": Linear(8, 4, 4, key_heads=4)}
FIXED = {"pattern": ("linear",), "linear": Linear(8, 4, 4, "lightning")}
FIRST = {"pattern": ("ssm",), "ssm": StateSpace(120, 4, "mamba", dt_rank=4)}
TAPS = {"pattern": ("conv",), "conv": Convolution(3)}


@pytest.mark.parametrize(
    ("parts", "degrees", "says"),
    [
        (FIRST, "tp2", "no framework trains Mamba layers of the first kind with tp 2 or cp 1"),
        (TAPS, "cp2", "no framework trains convolution layers with tp 1 or cp 2"),
        (FIXED, "tp2", "no framework trains lightning attention"),
        (KEYS, "tp8", "linear.key_heads 4 cannot be split 8 ways: tp may be 1, 2, 4"),
        (KEYS, "tp2 cp4", "tp x cp may be 1, 2, 4"),
    ],
)  # fmt: skip
def test_degrees_that_no_framework_cuts_a_mixer_by_are_named(
    parts: dict[str, Any], degrees: str, says: str
) -> None:
    found = rules.broken(job(replace(DENSE, **parts)), cut(degrees))
    assert says in "; ".join(found)


def test_a_device_that_is_alone_has_one_stage() -> None:
    way = schedule_named("interleaved")
    alone, four = (partition(job().model, pp, way, 3) for pp in (1, 4))
    assert (alone.stages, alone.least) == (1, 12)
    assert (four.stages, four.least) == (12, 1)
    table = microbatches(job(batch=25), cut("dp4 microbatch3"))
    assert table == 3


def test_every_stage_needs_a_layer() -> None:
    rule = rules.FILLED
    for pp, fine in ((12, True), (11, True), (13, False)):
        assert bool(rule.holds(job(), Layout(pp=pp, dp=1))) is fine
    slots = Layout(pp=14, dp=1, stages="slots")
    assert not rule.holds(job(), slots), "ends that are slots alone"


def test_a_plan_says_what_its_framework_lacks() -> None:
    assert practice.not_proposed(job().profile, Layout(dp=1)) == []
    asked = replace(job(), framework="megatron-core")
    strange = cut("pp2 zbv")
    by = asked.profile
    assert by is not None and by.proposes
    assert not practice.not_proposed(asked.profile, cut("tp2 dp4 zero1"))
    assert practice.not_proposed(asked.profile, strange)
    fewer = replace(by, proposes=())
    assert not practice.not_proposed(fewer, strange)


def test_stages_are_named_with_their_chunks() -> None:
    """One chunk on a device, several, or copies of them."""
    found = [
        rules._stages(Layout(pp=4, dp=1, interleave=v, schedule=name))
        for name, v in (("1f1b", 1), ("interleaved", 3), ("dualpipe", 2))
    ]
    assert found == [
        "pp 4",
        "pp 4 x 3 chunks (interleaved)",
        "pp 4 (dualpipe)",
    ]
    assert practice._experts(job()) == 1, "a dense model has one"


def test_experts_at_fault_blame_no_groups_of_dp() -> None:
    """72 ranks have no room for 16 experts' ranks, and are one group of copies all the same."""
    job = Job("qwen3-30b-a3b", "72xgb200", 1152)
    [only] = rules.broken(job, cut("dp72 ep16"))
    assert only.startswith("ep 16 x etp 1 must divide tp x cp x dp = 72")


@pytest.mark.parametrize(
    ("sequences", "size"),
    # 16 ranks: 120 = 6 x 20; 113 = 5 x 19 and 18 more; 31 in no two groups of 16
    [(120, 20), (113, 19), (31, None)],
)
def test_microbatches_that_stay_as_many_go_in_other_groups(
    sequences: int, size: int | None
) -> None:
    job = Job("llama3-70b", "16xh100-sxm", sequences)
    layout = cut("pp16 interleave2 interleaved")
    said = rules.broken(job, layout)
    if size is None:
        assert not said, "one group of all"
        return
    assert said[0].endswith(
        f", or these {sequences} with microbatch_group {size}"
    )
    assert not rules.broken(job, replace(layout, microbatch_group=size))
    assert rules.broken(job, replace(layout, microbatch_group=size - 1))


def test_groups_of_a_size_are_no_advice_where_the_framework_has_none() -> None:
    job = Job(
        "llama3-70b",
        "16xh100-sxm",
        120,
        framework="torchtitan",
    )
    layout = cut("pp16 interleave2 interleaved")
    assert rules.broken(job, layout)[0].endswith("119 or 126")


CHANGES = {
    "dp": lambda rng: {"dp": rng.choice([1, 2, 3, 4, 6, 8, 12])},
    "microbatches": lambda rng: {"dp": rng.choice([1, 2, 3, 4, 6, 8, 12])},
    "pp": lambda rng: {"pp": rng.choice([1, 2, 3, 4, 6, 7])},
    "sequence_parallel": lambda rng: {"sequence_parallel": rng.random() < 0.5},
    "recompute": lambda rng: {
        "recompute": rng.choice(["none", "full", "mlp"])
    },
    "zero": lambda rng: {
        "zero": rng.randrange(4),
        "dp_replicate": rng.choice([1, 2, 4]),
    },
    "schedule": lambda rng: {
        "schedule": rng.choice(["gpipe", "1f1b", "zbv", "interleaved"]),
        "stages": rng.choice(["even", "slots"]),
        "interleave": rng.choice([1, 2, 3]),
        "microbatch_group": rng.choice([0, 3]),
    },
    "shard": lambda rng: {
        "tp": rng.choice([1, 2, 4]),
        "cp": rng.choice([1, 2, 3]),
        "ep": rng.choice([1, 2]),
        "etp": rng.choice([1, 2]),
    },
}
"""What a rule may read -> other values of it."""


@pytest.mark.parametrize("model", [DENSE, EXPERTS])
def test_a_rule_names_all_that_it_looks_at(model: Model) -> None:
    """A search asks a rule of intervals of dp, or before options are chosen, where the rule does
    not read them: what it does not read changes nothing. dp keeps the number of microbatches."""
    rng, seen = random.Random(11), set[tuple[str, str]]()
    asked = {
        name: {*rule.reads}
        for name, rule in rules.NAMED.items()
        if "placement" not in rule.reads
    }
    for _ in range(3000):
        one, rounds = draw(rng), rng.choice([1, 2, 4, 6])
        what = rng.choice([*CHANGES])
        other = replace(one, **CHANGES[what](rng))
        same = what == "microbatches"
        batches = [
            int(l.dp * l.microbatch) * rounds
            for l in (one, one if same else other)
        ]
        jobs = [replace(job(model), batch=n) for n in batches]
        for name, reads in asked.items():
            holds = [
                bool(rules.NAMED[name].holds(j, l))
                for j, l in zip(jobs, (one, other), strict=True)
            ]
            if holds[0] != holds[1]:
                # of degrees, rules of schedules read pp alone
                named = reads | (set() if "schedule" in reads else {"shard"})
                named |= {"microbatches"} if "dp" in reads else set()
                assert what in named, (name, what, one, other)
                seen.add((name, what))
    assert {what for _, what in seen} >= {*CHANGES}
