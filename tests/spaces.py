"""Small jobs and spaces drawn at random: models, machines and choices of every kind."""

from __future__ import annotations

import random
from dataclasses import replace

from meshwright import Chip, Cluster, Dim, Job, Model, MoE, Network, Space
from meshwright.describe.assumptions import SETS
from meshwright.describe.mixers import Convolution, Indexer, Linear, StateSpace
from meshwright.schedule import SCHEDULES
from meshwright.search import brute, search
from plain_loop import loop

CHIP = Chip("c", {"bf16": 3e14}, 1e13, 8e10, 2e12)
FLAT = Network("one level", (Dim("near", 9e11, 1e-6),))
SEARCHED = sorted(name for name, s in SCHEDULES.items() if s.copies == 1)
WAYS = [
    "layernorm+mlp",
    "moe_act+shared_experts",
    "op",
    "save_qkv_proj",
    "full:1",
    "op:2",
    "selective+mlp:3",
]
"""To recompute parts of a layer, in some layers."""


def random_job(rng: random.Random) -> tuple[Job, Space, bool]:
    """A small job, a space with few options, and whether it is relaxed."""
    heads = rng.choice([2, 4, 6, 8, 12])
    hidden = heads * rng.choice([32, 64, 128])
    experts, layers = rng.choice([0, 0, 4, 8, 6]), rng.choice([2, 3, 4, 6, 8])
    lead = rng.choice([0, 0, 1, layers - 1, layers])
    moe = (
        MoE(
            experts,
            rng.choice([1, 2]),
            hidden // 2,
            rng.choice([0, hidden]),
            lead,
        )
        if experts
        else None
    )
    vocab = rng.choice([0, 1000])
    model = Model(
        "random",
        layers,
        hidden,
        heads,
        4 * hidden,
        vocab,
        rng.choice([128, 256, 512]),
        kv_heads=rng.choice([None, 1, 2]),
        gated=rng.random() < 0.5,
        tied_embeddings=rng.random() < 0.3,
        moe=moe,
        window=rng.choice([None, None, 64]),
        full_every=rng.choice([0, 2, 3]),
        mtp_layers=rng.choice([0, 0, 1]) if vocab else 0,
    )
    dims = random_dims(rng)
    chip = Chip(
        "random",
        {"bf16": rng.choice([1e13, 3e14])},
        1e13,
        rng.choice([2.2e9, 3e9, 1e11]),
        rng.choice([5e11, 2e12]),
        host_bandwidth=1e10,
        host_memory_bandwidth=2e10,
    )
    cluster = Cluster(
        chip,
        Network("random", tuple(dims)),
        rng.choice([1, 2, 4, 6, 8, 12, 16, 24, 48]),
    )
    space = Space(
        schedule=tuple(rng.sample(SEARCHED, 3)),
        zero=tuple(sorted(rng.sample(range(4), 2))),
        dp_replicate=rng.choice([None, None, None, (1, 2), (2, 4)]),
        recompute=tuple(
            rng.sample(["none", "selective", "full", *rng.sample(WAYS, 1)], 2)
        ),
        sequence_parallel=rng.choice([(True, False), (True,), (False,)]),
        stages=rng.choice(
            [
                None,
                ("even", "slots"),
                ("even", "rest"),
                ("rest",),
                ("even",),
                ("slots",),
            ]
        ),
        cp_exchange=rng.choice([None, None, ("ring",), ("all-to-all",)]),
    )
    sets = [SETS["realistic"], SETS["lbl-2024"]]
    job = Job(
        model,
        cluster,
        rng.choice([4, 8, 12, 16, 30]),
        attention_kernel=rng.choice(["flash", "unfused"]),
        assumptions=rng.choice(sets),
    )
    relaxed = rng.random() < 0.4
    away = rng.choice(["none", "none", *AWAY])
    if away != "none":
        space = space.but(
            offload=away, recompute=("none", "full"), zero=(1, 3)
        )
    return job, replace(space, relaxed=relaxed), relaxed


def bare(job: Job) -> Job:
    """Under the same numbers of a set that has no space and no ties of its own."""
    how = replace(job.assumptions, name="exact", choices=())
    return replace(job, assumptions=how)


def with_memory(job: Job, hbm_bytes: float) -> Job:
    """The same job on chips with so much memory."""
    chip = replace(job.cluster.chip, hbm_bytes=hbm_bytes)
    return replace(job, cluster=replace(job.cluster, chip=chip))


AWAY = ("activations:1", "optimizer:0.5", "activations+optimizer+weights")
"""What may wait in host memory."""


def hybrid(rng: random.Random, m: Model) -> Model:
    """The same model with layers of several kinds."""
    state = rng.choice([4, 8])
    shapes = {
        "linear": Linear(
            m.heads,
            state,
            2 * state,
            rng.choice(["delta", "delta", "lightning"]),
        ),
        "ssm": StateSpace(
            m.heads * 8,
            state,
            rng.choice(["mamba2", "mamba2", "mamba"]),
            m.heads,
        ),
        "sparse": Indexer(2, 8, 16),
        "conv": Convolution(3),
    }
    words = rng.choices(
        ["full", "sliding", *shapes, "none"], [3, 1, 3, 3, 1, 0.3, 1], k=3
    )
    feed = ["+dense", "+none", *(["+experts"] if m.moe else []), ""]
    pattern = tuple(
        f"{rng.choice(['', '2*'])}{word}{rng.choice(feed) if word != 'none' else '+dense'}"
        for word in words
    )
    return replace(m, pattern=pattern, window=m.window or 64, **shapes)


def random_dims(rng: random.Random) -> list[Dim]:
    """Two or three dimensions: switches, a mesh near or in the middle, axes of a torus."""
    kind, domain = (
        rng.choice(["switch", "switch", "mesh", "torus"]),
        rng.choice([2, 4, 8]),
    )
    far = Dim("far", rng.choice([1e9, 2.5e10, 5e10]), rng.choice([5e-6, 1e-5]))
    if kind == "torus":
        axes = [
            Dim(n, 1e11, 1e-6, size, rng.choice(["ring", "line"]))
            for n, size in (("x", 4), ("y", rng.choice([2, 3])))
        ]
        return [*axes, far]
    near = Dim(
        "near",
        rng.choice([1e11, 3e11, 9e11]),
        rng.choice([0.0, 1e-6, 2.5e-6]),
        domain,
        kind,
    )
    middle = Dim(
        "middle",
        6e10,
        3e-6,
        rng.choice([2, 3]),
        rng.choice(["switch", "mesh"]),
    )
    return [near, middle, far] if rng.random() < 0.3 else [near, far]


def same_by_loop(job: Job, space: Space, counted: bool = True) -> None:
    """Search, brute force and the plain loop agree; counted: a strict search says how many layouts
    there are, too.
    """
    expected, searched, feasible = loop(job, space, 5)
    every, quick = brute(job, space, 5), search(job, space, 5)
    assert (every.searched, every.feasible) == (searched, feasible)
    assert quick.rows == every.rows == expected
    assert space.relaxed or not counted or quick.searched == searched
