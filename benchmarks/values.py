"""One plan for each value of each field of a layout and of the software settings.

    from values import plans; [*plans("megatron")] -> (what is set, Job)

A value of a choice is taken from where the choices stand, so that a new one is written, or refused,
in every format without a line here. All other fields are those of a plain plan on 64 chips.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from meshwright import BadInput, Job, Layout, model
from meshwright.describe.fields import fields_of
from meshwright.describe.job import OPTIMIZERS, PRECISIONS
from meshwright.describe.layout import SCHEMES
from meshwright.describe.recompute import PARTS
from meshwright.describe.software import Software
from meshwright.exchange import EXCHANGES
from meshwright.formats.bridge import table
from meshwright.layout.placement import placed
from meshwright.schedule import SCHEDULES
from meshwright.schedule import get as schedule_named

CHIPS, BATCH, SEQ = 64, 512, 4096
DENSE, EXPERTS = "llama3-8b", "qwen3-30b-a3b"
"""Models that every tool has."""
STAGE = {
    "torchtitan": 3,
    "torchtitan-toml": 3,
    "accelerate": 3,
    "axolotl": 3,
    "maxtext": 3,
}
"""Format -> ZeRO stage of the plain plan; 1 elsewhere."""
Set = dict[str, Any]


def layouts() -> Iterator[Set]:
    """Fields of a layout that are not those of the plain plan."""
    yield {}
    yield from ({"tp": n} for n in (2, 8))
    yield from ({"pp": n} for n in (2, 8))
    yield from ({"cp": n} for n in (2, 8))
    yield from ({"ep": n} for n in (2, 8))
    yield {"tp": 4, "ep": 4, "etp": 4}
    yield {"zero": 0, "ep": 8}
    yield from ({"dp_replicate": n} for n in (2, 8))
    yield from ({"microbatch": n} for n in (2, 4))
    yield from ({"zero": n} for n in range(4))
    for name in SCHEDULES:
        chunks = (
            2
            if schedule_named(name).chunks(2) != schedule_named(name).chunks(1)
            else 1
        )
        yield {"pp": 4, "schedule": name, "interleave": chunks}
    yield {"pp": 4, "schedule": "interleaved", "interleave": 4}
    yield {
        "pp": 4,
        "schedule": "interleaved",
        "interleave": 2,
        "microbatch_group": 8,
    }
    yield from ({"pp": 4, "stages": how} for how in ("slots", "7,9,9,7"))
    for how in ("none", "selective", *PARTS, "full:4", "layernorm+mlp"):
        experts = (
            {"ep": 2} if how in ("moe", "moe_act", "shared_experts") else {}
        )
        yield {"recompute": how, **experts}
    yield from ({"tp": 2, "sequence_parallel": on} for on in (True, False))
    yield from ({"tp": 2, "cp": 2, "scheme": name} for name in SCHEMES)
    yield from ({"cp": 2, "cp_exchange": name} for name in EXCHANGES)
    for what in ("activations", "activations:8", "optimizer", "optimizer:0.5"):
        yield {"offload": what}
    yield {"offload": "optimizer+weights", "zero": 3}
    yield {"tp": 2, "cp": 2, "scheme": "summa", "panels": 2}
    yield {"tp": 2, "pp": 2, "placement": "tp-cp-pp-dp"}


def settings() -> Iterator[Set]:
    """Settings of the software and numbers; a layout on which each means something."""
    where = {
        "dispatcher": {"ep": 2},
        "ep_overlap": {"ep": 2, "microbatch": 1},
        "shared_overlap": {"ep": 2},
        "stage_message": {"pp": 2, "tp": 2, "sequence_parallel": False},
    }
    for f in fields(Software):
        for value in fields_of(Software)[f.name].kind.words or (True, False):
            usual = {"tp": 2} if "tp" in f.name or "input" in f.name else {}
            numbers = {"precision": "fp8"} if f.name == "float8" else {}
            yield {**where.get(f.name, usual), **numbers, f.name: value}
    yield from ({"precision": name} for name in PRECISIONS)
    yield from ({"optimizer": name} for name in OPTIMIZERS)
    yield from (
        {"attention_kernel": name}
        for name in fields_of(Job)["attention_kernel"].kind.words
    )


def plans(name: str) -> Iterator[tuple[Set, Job | str]]:
    """(What is set, the plan; or why no job can be so) for one format."""
    for said in (*layouts(), *settings()):
        try:
            yield said, planned(name, said)
        except BadInput as error:
            yield said, str(error)


def random_plans(name: str, seed: int = 0) -> Iterator[tuple[Set, Job | str]]:
    """Two to five of these settings at once, drawn at random, without an end."""
    rng = random.Random(f"{name} {seed}")
    every = [said for said in (*layouts(), *settings()) if said]
    while True:
        said: Set = {}
        for more in rng.sample(every, rng.randint(2, 5)):
            if not {*said} & {*more}:
                said |= more
        try:
            yield said, planned(name, said)
        except BadInput as error:
            yield said, str(error)


def planned(name: str, said: Set) -> Job:
    """The plain plan of a format with what is set; dp takes the chips that are left."""
    rest = dict(said)
    order = rest.pop("placement", "")
    layout = {
        f.name: rest.pop(f.name) for f in fields(Layout) if f.name in rest
    }
    software = {
        f.name: rest.pop(f.name) for f in fields(Software) if f.name in rest
    }
    zero = STAGE.get(name, 1)
    used = layout.get("tp", 1) * layout.get("pp", 1) * layout.get("cp", 1)
    plain: Set = {"zero": zero, "dp": CHIPS // used}
    if name in (
        "deepspeed",
        "accelerate",
        "axolotl",
    ):  # their tp gathers whole sequences
        plain["sequence_parallel"] = layout.get("tp", 1) == 1
    if name == "maxtext":  # which has no layer that recomputes nothing
        plain["recompute"] = "full"
    if name == "maxtext" and layout.get("pp", 1) > 1:
        plain["schedule"] = "gpipe"
    plan = Layout(**{**plain, **layout})
    chip = "tpu-v5p" if name == "maxtext" else "h100-sxm"
    experts = bool({"ep", "etp"} & {*said})
    job = Job(
        model(EXPERTS if experts else DENSE),
        f"{CHIPS}x{chip}",
        BATCH,
        plan,
        seq=SEQ,
        software=Software(**software),
        framework=framework(name, plan),
        **rest,
    )
    if not order:
        return job
    return job.laid_out(
        placed(plan, job.cluster.sizes, tuple(order.split("-")))
    )


def framework(name: str, plan: Layout) -> str:
    """The profile that stands for the format's program with this layout."""
    own = table.get(name).frameworks
    if name == "deepspeed":
        return {0: own[0], 1: own[0], 2: "fsdp", 3: "deepspeed-zero3"}[
            plan.zero
        ]
    cut = plan.tp * plan.cp * plan.ep > 1
    return (
        "torchtitan" if name in ("accelerate", "axolotl") and cut else own[0]
    )
