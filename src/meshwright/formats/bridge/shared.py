"""What several formats have in common: names of models, batches made of parts, words of numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ... import catalog
from ...describe.job import OPTIMIZERS, Job
from ...describe.model import Model
from ...describe.read import brief
from ...errors import BadInput
from .keys import Keys
from .table import get

Out = dict[str, Any]
ADAM = ("adam", "adamw", "")
"""Words of the optimizer that keeps two moments."""


def nothing(k: Keys) -> None:
    """The file does not say it."""


def unsaid(job: Job, out: Out) -> None:
    """Another key of the file says it, or its launcher."""


def left_of(k: Keys) -> int | None:
    """Replicas that tp, cp and pp leave of the chips; None if nobody says how many there are."""
    if not k.chips:
        return None
    used = (
        k.degree("layout.tp") * k.degree("layout.cp") * k.degree("layout.pp")
    )
    return max(k.chips // used, 1)


def replicas(k: Keys) -> int | None:
    """Data-parallel replicas: as the file says, or what is left."""
    said = k.so_far("layout.dp")
    return int(said) if said else left_of(k)


def model_named(k: Keys, name: str, format: str) -> str | None:
    """Our name of a model that a format calls so; None, and said so, for one not known here."""
    models = get(format).models
    if name in models:
        return models[name]
    if catalog.has("models", name):
        return name
    k.tables.setdefault("", {})["missing"] = [
        f"trains {name[:60]}, which is not in the catalogue: give it, such as --model config.json"
    ]
    return None


def name_of(job: Job, format: str) -> str:
    """Their name of the job's model; BadInput if it is none of theirs, or changed."""
    named = {
        ours: theirs
        for theirs, ours in reversed([*get(format).models.items()])
    }
    for ours, theirs in named.items():
        if catalog.has("models", ours) and same(
            catalog.model(ours), job.model
        ):
            return theirs
    known = ", ".join(sorted(named))
    raise BadInput(
        f"{get(format).title} has no model of the sizes of {job.model.name}; it has {known}"
    )


def same(a: Model, b: Model) -> bool:
    """Equal but for the name and where the numbers are from: a config.json is called after its
    folder.
    """
    return replace(a, name="", sources=b.sources) == replace(b, name="")


def hub_name(job: Job) -> str:
    """The model's name on Hugging Face; BadInput if the catalogue knows none."""
    name = job.model.name
    known = [
        alias
        for alias, n in catalog.aliases("models").items()
        if n == name and "/" in alias
    ]
    if known and catalog.model(name) == job.model:
        return known[0]
    raise BadInput(
        f"{name} has no name on Hugging Face in the catalogue, which base_model needs"
    )


def optimizer_named(k: Keys, key: str) -> str | None:
    """The optimizer by a word of a file."""
    word = (
        k.word(key)
        .replace("_torch_fused", "")
        .replace("_torch", "")
        .replace("fused", "")
    )
    word = word.removesuffix("_")
    if word in ADAM:
        return None
    if word in OPTIMIZERS:
        return word
    k.leave(
        key,
        f"the optimizer {brief(word)} is not known: the bytes of Adam's are taken",
    )
    return None


def demand_adam(job: Job, title: str, others: tuple[str, ...] = ()) -> str:
    """The word of the optimizer; BadInput for what the format has no word for."""
    mine = job.optimizer
    for name in ("adamw", "adam", *others):
        if mine == OPTIMIZERS[name]:
            return name
    raise BadInput(
        f"{title} has no optimizer that keeps what {mine.name} keeps here"
    )


def run_tokens(k: Keys, key: str) -> float | None:
    """Steps times the batch times the length of a sequence."""
    steps = k.number(key)
    size = k.so_far("job.batch")
    length = k.so_far("job.seq")
    if not steps or steps < 0 or not size or not length:
        return None
    return steps * int(str(size).removesuffix("seq")) * int(length)


def steps(job: Job) -> int | None:
    """Steps of the whole run."""
    return max(round(job.tokens / job.batch_tokens), 1) if job.tokens else None


def accumulated(job: Job) -> int:
    """Microbatches of a replica; BadInput where the batch does not divide."""
    each = int(job.layout.dp * job.layout.microbatch)
    if job.batch % each:
        raise BadInput(
            f"batch {job.batch} is no multiple of dp x microbatch = {each}"
        )
    return job.batch // each


def demand_alone(job: Job, title: str) -> None:
    """BadInput for a pipeline."""
    if job.layout.pp > 1:
        raise BadInput(f"{title} has no pipelines: pp {job.layout.pp}")


def write_shards(job: Job, out: Out, title: str, prefix: str = "") -> None:
    """FSDP2's degrees of replicas: so many ranks to a shard, so many copies."""
    l = job.layout
    demand_alone(job, title)
    shards = int(l.dp) // int(l.dp_replicate)
    copies = int(l.dp_replicate)
    if not l.zero:
        if l.tp > 1 or l.cp > 1:
            raise BadInput(
                f"{title} has tp and cp beside sharded replicas: zero 2 or 3"
            )
        return
    if shards == 1 and l.chips > 1:
        raise BadInput(
            f"{title} shards over more than one rank beside tp, cp and copies"
        )
    out[prefix + "dp_shard_size"] = shards
    if copies > 1:
        out[prefix + "dp_replicate_size"] = copies


def write_stage(
    job: Job, out: Out, title: str, version: str, reshard: str
) -> None:
    """FSDP2 frees gathered weights after the forward pass (ZeRO-3), or keeps them (ZeRO-2)."""
    stage = job.layout.zero
    if stage == 1:
        raise BadInput(f"{title}'s FSDP has no ZeRO-1: zero 2 or 3")
    if stage:
        out[version], out[reshard] = 2, stage == 3
