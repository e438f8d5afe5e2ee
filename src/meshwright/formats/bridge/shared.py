"""What several formats have in common: names of models, batches made of parts, words of numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from ... import catalog
from ...describe.framework import framework as profile
from ...describe.frozen import FrozenDict
from ...describe.job import OPTIMIZERS, PRECISIONS, Job, Precision
from ...describe.model import Model
from ...describe.read import brief
from ...describe.slices import TORUS
from ...errors import BadInput
from ...layout import setting_rules
from ...layout.placement import launched
from ...layout.rule import broken_sentences
from .keys import FUNCTIONS, Keys
from .table import Format, get

Out = dict[str, Any]
ADAM = ("adam", "adamw", "")
"""Words of the optimizer that keeps two moments."""
EIGHT_BITS = ("adamw_8bit", "adamw_bnb_8bit", "adamw8bit")
"""Those of bitsandbytes, whose moments take a byte each; paged ones as well."""
MOMENTS = ("adamw", "adam", "adamw-8bit")
"""Optimizers that also train weights in 16 bits without a copy in fp32."""


SHARDING = {
    "1": (3, False),
    "full_shard": (3, False),
    "2": (2, False),
    "shard_grad_op": (2, False),
    "3": (0, False),
    "no_shard": (0, False),
    "4": (3, True),
    "hybrid_shard": (3, True),
    "5": (2, True),
    "hybrid_shard_zero2": (2, True),
}
"""Sharding strategies of FSDP 1 -> (ZeRO stage, copies in each node)."""
COPIES = "copies in each node: give their number, --dp-replicate"
"""What a word of FSDP 1 leaves open."""


def left_of(k: Keys) -> int | None:
    """Replicas that tp, cp and pp leave of the chips; None if nobody says how many there are."""
    if not k.chips:
        return None
    used = (
        k.degree("layout.tp") * k.degree("layout.cp") * k.degree("layout.pp")
    )
    return max(k.chips // used, 1)


def replicas_left(k: Keys) -> int | None:
    """Data-parallel replicas: as the file says, or what is left."""
    said = k.so_far("layout.dp")
    return k.degree("layout.dp") if said else left_of(k)


def model_in_catalogue(k: Keys) -> Model | None:
    """The model that the file names, where the catalogue has it."""
    name = k.so_far("model")
    named = isinstance(name, str) and catalog.has("models", name)
    return catalog.model(name) if named else None


def layers_of(k: Keys) -> int:
    """Layers of the model that the file describes or names; 0 if it does neither."""
    if model := model_in_catalogue(k):
        return model.layers
    layers = str(k.so_far("model.layers", 0))
    return int(layers) if layers.isdecimal() else 0


def model_named(k: Keys, name: str, of: str = "") -> str | None:
    """Our name of a model that the format, or another, calls so; None, and said so, for one not
    known here.
    """
    models = (get(of) if of else k.format).models
    if name in models:
        return models[name]
    if catalog.has("models", name):
        return name
    k.tables.setdefault("", {})["missing"] = [
        f"trains {name[:60]}, which is not in the catalogue: give it, such as --model config.json"
    ]
    return None


def ask_for_vocabulary(k: Keys) -> None:
    """Say that the file leaves the rows of the embedding to its tokenizer."""
    k.tables.setdefault("", {})["missing"] = [
        "leaves the vocabulary to its tokenizer: give it, such as --vocab-size 128256, or the"
        " model, such as --model llama3-8b or --model config.json"
    ]


def vocabulary_named(
    k: Keys, rows: Mapping[str, int], *tokenizers: str
) -> int | None:
    """Rows of the embedding, by the first tokenizer that a pattern fits; None, and asked for, where
    none does.
    """
    for name in tokenizers:
        for pattern, count in rows.items():
            if fnmatchcase(name.lower(), pattern):
                k.notes.append(f"vocabulary {count:,}: that of {name[:60]}")
                return count
    ask_for_vocabulary(k)
    return None


def hub_model(k: Keys, given: object) -> object:
    """The model of the catalogue by its name on Hugging Face, or a folder's config.json."""
    # a name of the script that is set elsewhere is no name
    name = "" if given is True else str(given or "")
    short = name.rpartition("/")[2]
    for word in (name, short):
        if catalog.has("models", word):
            return catalog.model(word).name
    if name.startswith(("./", "/", "../")):
        return {"config": name}
    return model_named(k, name) if name else None


def batch_of_parts(k: Keys, key: str) -> str | None:
    """Microbatch times accumulation times replicas; None where nobody says how many there are."""
    parts = k.whole(key, 1) or 1
    ranks = replicas_left(k)
    factors = {key, *k.format.cells["layout.microbatch"].keys}
    if factors & k.unread or not ranks:
        return None
    return f"{k.degree('layout.microbatch') * parts * ranks}seq"


def name_of(
    job: Job, format: str, what: str = "model", but: Collection[str] = ()
) -> str:
    """Their name of the model with the job's sizes; BadInput if they have none of them.

    what: what they have, in the sentence; but: names of theirs that do not count.
    """
    models = reversed([*get(format).models.items()])
    named = {ours: theirs for theirs, ours in models if theirs not in but}
    if alike := sized_as(job.model, named):
        return named[alike]
    raise BadInput(
        f"{get(format).title} has no {what} of the sizes of {job.model.name};"
        f" {nearest_sizes(job.model, named)}"
    )


NUMERICS = ("rope_base", "norm_epsilon", "rope_scaling", "rotary_share")
"""Fields of a model that change no shape, no second and no byte."""


def sized_as(model: Model, names: Iterable[str]) -> str | None:
    """The first of the names in the catalogue whose model has the same shapes."""
    mine = bare_model(model)
    return next((n for n in names if catalogued(n) == mine), None)


def catalogued(name: str) -> Model | None:
    """The sizes of a model of the catalogue."""
    return (
        bare_model(catalog.model(name))
        if catalog.has("models", name)
        else None
    )


def bare_model(model: Model) -> Model:
    """The model without its name, numerics and length, defaults written out: a config.json is
    called after its folder, and its length is what the model can be served with.
    """
    plain: dict[str, Any] = {
        f.name: f.default for f in fields(Model) if f.name in NUMERICS
    }
    return replace(
        model,
        **plain,
        name="",
        notes=(),
        sources=FrozenDict(),
        kv_heads=model.K,
        head_dim=None if model.mla else model.h,
        seq=model.seq if model.positions == "learned" else 1,
    )


def nearest_sizes(model: Model, names: Iterable[str]) -> str:
    """What the model with the fewest other sizes has otherwise; all names where none is near."""
    mine = bare_model(model)
    models = {n: m for n in sorted(names) if (m := catalogued(n))}
    other = {
        n: [f.name for f in fields(Model) if differ(m, mine, f.name)]
        for n, m in models.items()
    }
    name = min(other, key=lambda n: len(other[n]))
    if len(other[name]) > NEAR:
        return f"it has {', '.join(models)}"
    texts = [
        text
        for f in other[name]
        for text in differences(f, getattr(models[name], f), getattr(mine, f))
    ]
    return f"its {name} has {'; '.join(texts)}"


def differences(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    """What a field is, and is not; of a description inside a model each field that differs."""
    if is_dataclass(theirs) and type(theirs) is type(ours):
        for f in fields(theirs):
            path = f"{name}.{f.name}"
            yield from differences(
                path, getattr(theirs, f.name), getattr(ours, f.name)
            )
    elif theirs != ours:
        yield f"{name} {brief(theirs)}, not {brief(ours)}"


def differ(a: Model, b: Model, field: str) -> bool:
    """The models have different values of the field."""
    return bool(getattr(a, field) != getattr(b, field))


NEAR = 3
"""Most sizes in which a model is still said to be near another."""


def hub_names() -> dict[str, str]:
    """Models of the catalogue -> their names on Hugging Face."""
    aliases = reversed([*catalog.aliases("models").items()])
    return {name: alias for alias, name in aliases if "/" in alias}


def hub_name(job: Job) -> str:
    """The model's name on Hugging Face; BadInput if the catalogue knows none of these sizes."""
    named = hub_names()
    own = [job.model.name] if job.model.name in named else []
    if alike := sized_as(job.model, [*own, *named]):
        return named[alike]
    raise BadInput(
        f"{job.model.name} has no name on Hugging Face in the catalogue, which base_model needs"
    )


def numerics(job: Job, format: Format) -> dict[str, tuple[Any, str]]:
    """Field -> (the job's value, what their model of these sizes has instead)."""
    names = [*format.models.values()] or [*hub_names()]
    base = sized_as(job.model, names)
    if base is None:
        return {}
    theirs = catalog.model(base)
    return {
        name: (
            getattr(job.model, name),
            f"{base} has {worded(getattr(theirs, name))}",
        )
        for name in NUMERICS
        if differ(job.model, theirs, name)
    }


def worded(value: Any) -> str:
    """A number or a kind of scaling, as one says it."""
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(getattr(value, "kind", value))


def optimizer_named(k: Keys, key: str) -> str | None:
    """The optimizer by a word of a file."""
    word = (
        k.word(key)
        .replace("_torch_fused", "")
        .replace("_torch", "")
        .replace("fused", "")
    )
    # dist_muon of Megatron-LM, too
    word = "muon" if "muon" in word else word.removesuffix("_")
    if word in ADAM:
        return None
    if word.removeprefix("paged").strip("_") in EIGHT_BITS:
        return "adamw-8bit"
    if word in OPTIMIZERS:
        return word
    k.leave(
        key,
        f"the optimizer {brief(word)} is not known: the bytes of Adam's are taken",
    )
    return None


PURE = ("bf16-pure", "fp16-pure")
"""Numbers in which weights and optimizer are kept: no copies in fp32."""


def class_of_optimizer(k: Keys, key: str) -> str | None:
    """The optimizer by the class that a key names; alone where weights are kept in 16 bits."""
    given = k.get(key)
    if given is None:
        return None
    word = str(given).rpartition(".")[2].lower()
    # OLMo-core's SkipStepAdamWConfig
    word = word.removesuffix("config").removeprefix("skipstep")
    name = optimizer_named(replace(k, said={key: word}), key)
    alone = k.so_far("job.precision") in PURE
    return unmastered(name or "adamw") if alone else name


def unmastered(name: str) -> str:
    """The optimizer that keeps no masters."""
    if name not in MOMENTS:
        return name
    return "adamw-pure" if name == "adam" else f"{name}-pure"


def leading_number(k: Keys, text: str) -> int | None:
    """127 of "(127, 0)"."""
    match = re.search(r"-?\d+", text)
    return int(match[0]) if match else None


def strange(words: Iterable[str], known: tuple[str, ...]) -> str:
    """The words that fit none of the patterns, in a sentence; empty if all do."""
    return ", ".join(
        w for w in words if not any(fnmatchcase(w, p) for p in known)
    )


def runs_on(k: Keys, framework: str) -> None:
    """The profile of the software that runs a file. fsdp2: FSDP beside tp or cp is PyTorch's
    second, which torchtitan runs; compiled only if asked, and with the loss of a training script,
    where a file names no other.
    """
    if framework == "fsdp2":
        if k.degree("layout.tp") * k.degree("layout.cp") == 1:
            return
        framework = "torchtitan"
        software = k.tables.setdefault("software", {})
        software.setdefault("compiled", False)
        software.setdefault("loss", profile("fsdp").loss)
    k.tables.setdefault("job", {})["framework"] = framework


def run_tokens(k: Keys, key: str, unit: str) -> float | None:
    """Tokens of a run of so many steps, sequences, or tokens."""
    count = k.number(key)
    if unit == "tokens":
        return count
    if unit == "steps":
        size = k.so_far("job.batch")
        count = count and size and count * int(str(size).removesuffix("seq"))
    known = count and count > 0 and k.so_far("job.seq")
    return float(count or 0) * k.degree("job.seq") if known else None


def run_length(job: Job, unit: str) -> int | None:
    """Steps or sequences of the whole run; None where a plan has no end."""
    each = job.batch_tokens if unit == "steps" else job.T
    return max(round(job.tokens / each), 1) if job.tokens else None


def accumulated(job: Job) -> int:
    """Microbatches of a replica; BadInput where the batch does not divide."""
    each = int(job.layout.dp * job.layout.microbatch)
    if job.batch % each:
        raise BadInput(
            f"batch {job.batch} is not a multiple of dp x microbatch = {each}"
        )
    return job.batch // each


def inside(job: Job, axis: str) -> int:
    """Ranks of an axis inside a slice: those on the torus, else on the first dimension."""
    dims = job.cluster.network.dims
    fast = [d.kind in TORUS for d in dims]
    fast = fast if any(fast) else [i == 0 for i in range(len(dims))]
    places = launched(job, job.layout).placement[axis]
    return prod(
        int(n) for n, is_fast in zip(places, fast, strict=True) if is_fast
    )


STAGES_NEARER = ("tp", "cp", "pp", "dp")
"""Order of axes of Megatron with --use-tp-pp-dp-mapping."""


def megatron_settings(job: Job) -> str:
    """Sentences on overlaps and CUDA graphs that Megatron does not take beside a layout, whatever
    framework the job names (`layout.setting_rules`): its offers hold for all that is built on it.
    """
    rules = setting_rules.rules_asked(profile("megatron-core"), job.software)
    return "; ".join(broken_sentences(job, job.layout, rules))


def shards(job: Job) -> int:
    """Ranks over which the states of a model are cut; 1 where nothing is sharded."""
    l = job.layout
    return int(l.dp) // int(l.dp_replicate) if l.zero else 1


def compiles(job: Job) -> bool:
    """The model is compiled."""
    on = job.software.compiled
    return bool(job.profile.compiled if on is None and job.profile else on)


def value_in_words(path: str, value: Any) -> str:
    """A value in a sentence."""
    if isinstance(value, dict):
        rest = (f"{k} {v:g}" for k, v in value.items() if k != "name")
        return f"{value['name']} with {', '.join(rest)}"
    if isinstance(value, Precision) and value not in PRECISIONS.values():
        return (
            f"{value.compute} with gather_bytes {value.gather_bytes:g} and"
            f" gradient_bytes {value.gradient_bytes:g}"
        )
    text = str(getattr(value, "name", value))[:60]
    return text.lower() if isinstance(value, bool) else text


FUNCTIONS.update(
    text=lambda k, key: str(k.get(key)),
    said=lambda k, key: key in k.said,
    section=lambda k, name: any(key.startswith(f"{name}.") for key in k.said),
    optimizer=optimizer_named,
    class_of_optimizer=class_of_optimizer,
    replicas=replicas_left,
    left=left_of,
    layers=layers_of,
    size=lambda k, name, field: getattr(catalog.model(name), field),
    named=lambda k: isinstance(k.so_far("model"), str),
    model=model_named,
    hub=hub_model,
    batch_of_parts=batch_of_parts,
    fsdp_stage=lambda k, word, usual: SHARDING.get(word, (usual, False))[0],
    copied=lambda k, word: SHARDING.get(word, (0, False))[1],
    strategies=lambda k: SHARDING,
    leading=leading_number,
    strange=lambda k, words, known: strange(words, known),
    place=lambda k, word, among: among.index(word) if word in among else None,
    table=lambda k, **of: {n: v for n, v in of.items() if v is not None},
    joined=lambda k, *parts: "+".join(filter(None, parts)) or None,
    shown=lambda k, number: f"{number:g}",
    upper=lambda k, word: word.upper(),
)
