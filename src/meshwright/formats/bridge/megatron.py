"""What Megatron's settings mean, by the names of its dataclasses: for the arguments of Megatron-LM
and, in sections, for Megatron-Bridge and NeMo.

Each function reads one field of a job from the keys of the table, or writes it.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from ...describe.job import Job
from ...describe.layout import AXES
from ...describe.recompute import OPERATIONS, PARTS
from ...layout.placement import lies
from ...layout.stages import stage_count, stage_layers
from .keys import Keys
from .shared import STAGES_NEARER, layers_of, optimizer_named

CORE = "megatron-core"
"""Its offers say which settings go with which layouts, in all frameworks that are built on it."""
STATE_BYTES = {
    "fp32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "float32": 4.0,
    "float16": 2.0,
    "bfloat16": 2.0,
    "uint8": 1.0,
}
"""Numbers of the optimizer's states, as flags call them and as torch does."""


def megatron_stages(k: Keys) -> str | None:
    """Layers of each stage, where the file deals them itself."""
    pp = k.degree("layout.pp")
    v = k.degree("layout.interleave")
    ends = [
        k.flag(f"account_for_{end}_in_pipeline_split")
        for end in ("embedding", "loss")
    ]
    text = k.get("pipeline_model_parallel_layout")
    counts = stages_of(text)
    if text and counts is None:
        k.leave(
            "pipeline_model_parallel_layout",
            "its layers a stage are not read: even stages",
        )
    elif text and counts:
        k.used.add("pipeline_model_parallel_layout")
    elif all(ends):
        return "slots" if pp > 1 else None
    else:
        counts = counts_of_ends(k, pp, v)
    if not counts or pp == 1 or len(counts) != pp * v:
        return None
    return unusual_stages(counts, pp * v)


def unusual_stages(layers: list[int], stages: int) -> str | None:
    """1,2*30,0 of the layers of each stage; None where they are dealt as usual."""
    if layers == [len(s) for s in stage_layers(sum(layers), stages)]:
        return None
    runs = [(n, len([*same])) for n, same in groupby(layers)]
    return ",".join(
        f"{n}*{times}" if times > 1 else str(n) for n, times in runs
    )


def counts_of_ends(k: Keys, pp: int, v: int) -> list[int] | None:
    """Layers of each stage where the first or the last gets other numbers than the rest: a device
    by count, or a stage because the embedding or the loss stands for a layer. What Megatron cannot
    deal is left out, and said so (transformer_block.py, get_num_layers_to_build).
    """
    layers = layers_of(k)
    given: dict[str, int] = {}
    ends = []
    for end in ("first", "last"):
        for key in (
            f"decoder_{end}_pipeline_num_layers",
            f"num_layers_in_{end}_pipeline_stage",
        ):
            if count := k.whole(key):
                given = {key: count, **given}
        ends.append(next((n for key, n in given.items() if end in key), 0))
    stands = [
        int(k.flag(f"account_for_{end}_in_pipeline_split"))
        for end in ("embedding", "loss")
    ]
    if not (given or any(stands)) or not layers or pp == 1:
        return None
    stages = pp * v
    if given:
        between = pp - sum(map(bool, ends))
        each = (layers - sum(ends)) // max(between, 1)
        devices = [ends[0] or each, *[each] * (pp - 2), ends[1] or each]
        counts = [n // v for _ in range(v) for n in devices]
    else:
        counts = [(layers + sum(stands)) // stages] * stages
        counts[0] -= stands[0]
        counts[-1] -= stands[1]
    if sum(counts) == layers:
        return counts
    said = next(iter(given), "") or (
        f"account_for_{'loss' if stands[1] else 'embedding'}_in_pipeline_split"
    )
    chunks = f" in {v} chunks" if v > 1 else ""
    k.leave(
        said,
        f"Megatron cannot deal {layers} layers so to {pp} stages{chunks}: even stages are taken",
    )
    return None


def stages_dealt(k: Keys) -> list[int] | None:
    """Layers of each stage, where a text deals them."""
    return stages_of(k.get("pipeline_model_parallel_layout"))


def stages_of(text: object) -> list[int] | None:
    """Layers of each stage of "Et|(tt|)*30L"; None for what is no layout of that kind."""
    if not text:
        return None
    if isinstance(text, (list, tuple)):
        return [
            sum("decoder" in str(layer) for layer in stage) for stage in text
        ]
    words = re.sub(r"[\s,]", "", str(text))
    if not re.fullmatch(r"[Etm|L()*\d]+", words):
        return None
    while match := re.search(r"(\([^()]*\)|[EtmL|])\*(\d{1,4})", words):
        body = match[1].strip("()")
        words = (
            words[: match.start()]
            + body * int(match[2])
            + words[match.end() :]
        )
        if len(words) > 10_000:
            return None
    return [
        stage.count("t")
        for stage in words.replace("(", "").replace(")", "").split("|")
    ]


def megatron_recompute(k: Keys) -> str:
    """`Layout.recompute` of granularity, method, modules and number of layers."""
    how = k.word("recompute_granularity") or k.word(
        "activations_checkpoint_granularity"
    )
    method = k.word("recompute_method") or k.word(
        "activations_checkpoint_method"
    )
    layers = k.whole(
        "recompute_num_layers", k.whole("activations_checkpoint_num_layers")
    )
    modules = (
        k.items("recompute_modules") if k.get("recompute_modules") else []
    )
    if k.flag("recompute_activations"):
        how = "selective"
    if k.flag("checkpoint_activations") or (method and not how):
        how = "full"
    if strange := [
        m for m in modules if m not in PARTS and m not in OPERATIONS
    ]:
        k.leave(
            "recompute_modules",
            f"{', '.join(strange)} is not known: the rest is recomputed",
        )
        modules = [m for m in modules if m not in strange]
    if how == "selective" or (modules and not how):
        return "+".join(sorted(modules)) if modules else "selective"
    if how != "full" or (method == "block" and layers == 0):
        return "none"
    if layers and (method == "block" or (not method and layers > 1)):
        return f"full:{layers}"
    if layers and layers > 1:
        k.leave(
            "recompute_num_layers",
            f"groups of {layers} layers are recomputed from one input: the prediction keeps every "
            "layer's",
        )
    return "full"


def megatron_optimizer(k: Keys) -> object:
    """The optimizer and the bytes of its states."""
    name = optimizer_named(k, "optimizer")
    if not k.flag("use_precision_aware_optimizer"):
        return name
    keys = ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
    kept = [
        STATE_BYTES.get(k.word(key, "fp32").removeprefix("torch."), 4.0)
        for key in keys
    ]
    if kept == [4.0, 4.0, 4.0]:
        return None
    name = name or "adamw"
    return {"name": name, "state_bytes": sum(kept), "master_bytes": kept[0]}


# ---------------------------------------------------------------- writing

Out = dict[str, Any]


def write_interleave(job: Job, out: Out) -> None:
    """Chunks; where layers are not dealt evenly the stages say how many there are."""
    l = job.layout
    if l.interleave > 1 and (has_even_stages(job) or has_slots(job)):
        out["num_virtual_stages_per_pipeline_rank"] = int(l.interleave)
    write_stages(job, out)


def write_stages(job: Job, out: Out) -> None:
    """Stages with other numbers of layers than Megatron's own."""
    if has_slots(job):
        for end in ("embedding", "loss"):
            out[f"account_for_{end}_in_pipeline_split"] = True
    elif job.layout.pp > 1 and not has_even_stages(job):
        out["pipeline_model_parallel_layout"] = pipeline_text(
            layers_by_stage(job), job.model.mtp_layers
        )


def has_slots(job: Job) -> bool:
    """Embedding and loss count as layers, and with them all stages hold as many: Megatron deals no
    other numbers without a list of them.
    """
    l = job.layout
    stages = int(l.pp * l.interleave)
    return bool(
        l.stages == "slots"
        and l.pp > 1
        and (job.model.layers + 2) % stages == 0
    )


def has_even_stages(job: Job) -> bool:
    """All stages have as many layers."""
    return len({*layers_by_stage(job)}) == 1


def layers_by_stage(job: Job) -> list[int]:
    """Layers of each stage of the layout."""
    how = getattr(job.layout, "stages", "even")
    args = () if how == "even" else (how,)
    return [
        len(s)
        for s in stage_layers(job.model.layers, stage_count(job.layout), *args)
    ]


def pipeline_text(layers: list[int], mtp: int = 0) -> str:
    """Megatron's text for stages of so many layers."""
    texts = ["t" * n for n in layers]
    texts[0] = "E" + texts[0]
    texts[-1] += "m" * mtp + "L"
    runs = [(text, len([*same])) for text, same in groupby(texts[:-1])]
    packed = [
        f"({text}|)*{n}" if n > 2 else f"{text}|" * n for text, n in runs
    ]
    return "".join(packed) + texts[-1]


def write_placement(job: Job, out: Out) -> None:
    sizes = job.cluster.sizes
    usual = lies(job.layout, sizes, AXES)
    if not usual and lies(job.layout, sizes, STAGES_NEARER):
        out["use_tp_pp_dp_mapping"] = True
