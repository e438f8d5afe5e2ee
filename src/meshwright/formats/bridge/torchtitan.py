"""torchtitan's configuration in TOML (to 0.2), or its flags with the same names.

Shards over dp_shard x cp ranks: no ZeRO with one of them, else ZeRO-3, or ZeRO-2 where weights stay
after the forward pass (`fsdp_reshard_after_forward = "never"`, the default with a pipeline).
"""

from __future__ import annotations

from typing import Any

from ...describe.job import PRECISIONS, Job
from ...errors import BadInput
from ...layout.stages import stage_layers
from ...schedule import get as schedule_named
from ..toml_writer import dumps_toml
from . import host_memory, launch, shell
from .keys import Keys
from .megatron import dealt_by_us, even, layers_of, numbered
from .reading import Said
from .shared import (
    Out,
    demand_adam,
    model_named,
    name_of,
    optimizer_named,
    replicas,
    run_tokens,
    steps,
    unsaid,
)
from .table import get
from .tree import nested

NAME = "torchtitan"
P = "parallelism."
SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "interleaved-zb": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
"""Ours -> classes of torch.distributed.pipelining."""
LOCAL_BATCH = 8
"""training.local_batch_size where it is not given."""
SELECTIVE = "2"
"""activation_checkpoint.selective_ac_option where it is not given: every second layer."""
FP8 = ("quantize.linear.float8", "float8")
MX = ("quantize.linear.mx", "mx")
PROGRAM = "-m torchtitan.train"
CONFIG = "torchtitan.toml"


def mine_tree(keys: dict[str, Any]) -> bool:
    """A table of parallelism, or torchtitan's training."""
    return (
        any(key.startswith(P) for key in keys)
        or "training.local_batch_size" in keys
    )


def of_tree(keys: dict[str, Any], where: str) -> Said:
    """The keys as they stand."""
    return Said(keys)


def mine(text: str) -> bool:
    """Flags of torchtitan."""
    return "--parallelism." in text or "--training.seq_len" in text


def said(text: str, where: str) -> Said:
    """The flags of the command that starts it."""
    script = shell.read(text)
    words = launch.best(
        script, lambda ws: any(w.startswith("--parallelism.") for w in ws)
    )
    if words is None:
        words = launch.best(
            script, lambda ws: any(w.startswith("--training.") for w in ws)
        )
    if words is None:
        raise BadInput(f"{where} starts nothing with torchtitan's flags")
    keys, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            keys[name] = value if equals else True
        elif name:
            keys[name] = word if keys[name] is True else f"{keys[name]} {word}"
    chips = launch.ranks(words, script)
    known = ("module", "config", "job.config_file")
    return Said(
        {k: v for k, v in keys.items() if "." in k or k in known}, chips
    )


def model(k: Keys) -> str | None:
    """name/flavor."""
    name = str(k.get("model.name", ""))
    flavor = str(k.get("model.flavor", ""))
    if not (name and flavor):
        return None
    return model_named(k, f"{name}/{flavor}", NAME)


def dp(k: Keys) -> int | None:
    """Groups of copies times shards; -1: what is left."""
    shards = k.whole(P + "data_parallel_shard_degree", -1)
    copies = k.whole(P + "data_parallel_replicate_degree", 1) or 1
    return copies * shards if shards and shards > 0 else None


def copies(k: Keys) -> int | None:
    """Groups that hold copies, where each is sharded (HSDP)."""
    found = k.whole(P + "data_parallel_replicate_degree", 1) or 1
    return (
        found
        if found > 1 and k.whole(P + "data_parallel_shard_degree", -1) != 1
        else None
    )


def microbatch(k: Keys) -> int | None:
    """Sequences at a time: of a pipeline its own, else the local batch."""
    local = k.whole("training.local_batch_size", LOCAL_BATCH)
    piped = k.whole(P + "pipeline_parallel_microbatch_size", 1)
    return piped if k.degree("layout.pp") > 1 else local


def stage_list(k: Keys) -> list[int] | None:
    """Layers of each stage, where the file names its modules."""
    parts = k.get(P + "module_fqns_per_model_part")
    if not isinstance(parts, list):
        return None
    return [sum(str(m).startswith("layers.") for m in part) for part in parts]


def chunks(k: Keys) -> int | None:
    """Stages of a rank."""
    pp = k.degree("layout.pp")
    layers = layers_of(k)
    each = k.whole(P + "pipeline_parallel_layers_per_stage")
    first = k.whole(P + "pipeline_parallel_first_stage_less_layers", 1)
    last = k.whole(P + "pipeline_parallel_last_stage_less_layers", 1)
    if pp == 1:
        return None
    if listed := stage_list(k):
        found = len(listed) // pp
    elif each and layers:
        found = -(-(layers + (first or 0) + (last or 0)) // each) // pp
    else:
        single = k.word(P + "pipeline_parallel_schedule", "1f1b") in (
            "1f1b",
            "gpipe",
        )
        found = 1 if single else 2
    return found if found > 1 else None


def stages(k: Keys) -> str | None:
    """Layers of each stage where they are not dealt as we do."""
    pp = k.degree("layout.pp")
    v = k.degree("layout.interleave")
    layers = layers_of(k)
    found = stage_list(k)
    if pp == 1 or not layers:
        return None
    if found is None and layers % (pp * v):
        first = (
            k.whole(P + "pipeline_parallel_first_stage_less_layers", 1) or 0
        )
        last = k.whole(P + "pipeline_parallel_last_stage_less_layers", 1) or 0
        found = dealt(layers, pp * v, first, last)
    if not found or sum(found) != layers:
        return None
    return (
        None
        if found == [len(s) for s in stage_layers(layers, pp * v)]
        else numbered(found)
    )


def dealt(layers: int, count: int, first: int, last: int) -> list[int]:
    """torchtitan's own way: embedding and head weigh so many layers; spare ones go to the front."""
    least, spare = divmod(layers + first + last, count)
    found = [least + (stage < spare) for stage in range(count)]
    found[0] -= first
    found[-1] -= last
    return found


def schedule(k: Keys) -> str | None:
    """By PyTorch's name."""
    word = k.word(P + "pipeline_parallel_schedule", "1f1b")
    if k.get(P + "pipeline_parallel_schedule_csv"):
        k.leave(
            P + "pipeline_parallel_schedule_csv",
            "its own order, which a layout cannot name",
        )
    if k.degree("layout.pp") == 1:
        return None
    ours = next(
        (mine for mine, theirs in SCHEDULES.items() if theirs.lower() == word),
        None,
    )
    if ours is None:
        k.leave(
            P + "pipeline_parallel_schedule",
            f"not known: {', '.join(SCHEDULES.values())}",
        )
    if (
        k.degree("layout.interleave") > 1
        and ours
        and schedule_named(ours).chunks(1) == 2
    ):
        # zbv and dualpipev always have two
        k.tables["layout"].pop("interleave", None)
    return ours


def zero(k: Keys) -> int:
    """By what is sharded, and whether weights stay."""
    how = k.word(P + "fsdp_reshard_after_forward", "default")
    shards = k.whole(P + "data_parallel_shard_degree", -1) or 1
    if shards == -1:
        ranks = replicas(k)
        shards = (ranks or 2) // k.degree("layout.dp_replicate")
    if shards * k.degree("layout.cp") == 1:
        return 0
    stays = how == "never" or (how == "default" and k.degree("layout.pp") > 1)
    return 2 if stays else 3


def recomputed(k: Keys) -> str | None:
    """None, op by op, every n-th layer, or all."""
    mode = k.word("activation_checkpoint.mode", "selective")
    option = k.word("activation_checkpoint.selective_ac_option", SELECTIVE)
    if mode in ("none", "full"):
        return mode
    if mode != "selective":
        k.leave(
            "activation_checkpoint.mode",
            f"{mode} is not known: nothing is recomputed",
        )
        return "none"
    if option == "op":
        return "op"
    layers = layers_of(k)
    if not option.isdigit() or not int(option) or not layers:
        return "full" if option == "1" else "op"
    of_chunk = layers // (
        k.degree("layout.pp") * k.degree("layout.interleave")
    )
    return (
        "full" if option == "1" else f"full:{max(of_chunk // int(option), 1)}"
    )


def batch(k: Keys) -> str | None:
    """The global batch, or the local one of every replica."""
    given = k.whole("training.global_batch_size", -1) or -1
    local = k.whole("training.local_batch_size", LOCAL_BATCH) or 1
    ranks = replicas(k)
    if given < 0:
        return f"{local * ranks}seq" if ranks else None
    if k.degree("layout.pp") > 1 and ranks and given > local * ranks:
        runs = given // (local * ranks)
        why = f"the pipeline fills and drains {runs} times a step: the prediction has it once"
        k.leave("training.local_batch_size", why)
    return f"{given}seq"


def precision(k: Keys) -> object:
    """bf16 under FSDP unless said; FP8 by a converter."""
    converters = k.items("model.converters")
    k.get("training.mixed_precision_reduce")
    gathered = k.flag("quantize.linear.float8.enable_fsdp_float8_all_gather")
    gathered |= k.flag("float8.enable_fsdp_float8_all_gather")
    if any(c in (*FP8, *MX) for c in converters):
        small = (
            {}
            if gathered
            else {"gather_bytes": PRECISIONS["bf16"].gather_bytes}
        )
        return {"name": "fp8", **small} if small else "fp8"
    if strange := [c for c in converters if "grouped" not in c]:
        k.leave("model.converters", f"{', '.join(strange)} is not known")
    if k.word("training.dtype") == "bfloat16":
        k.leave(
            "training.dtype",
            "weights and states are kept in 16 bits: give --precision",
        )
    word = k.word("training.mixed_precision_param", "bfloat16")
    return "fp32" if word == "float32" else "bf16"


def compiled(k: Keys) -> bool:
    """The model is compiled, not only the loss."""
    parts = k.get("compile.components")
    on = k.flag("compile.enable") or k.flag("training.compile")
    return on and (parts is None or "model" in str(parts))


def float8(k: Keys) -> str | None:
    """Scaling of FP8."""
    converters = k.items("model.converters")
    if any(c in MX for c in converters):
        return "mxfp8"
    word = k.word("quantize.linear.float8.recipe_name") or k.word(
        "float8.recipe_name"
    )
    if not any(c in FP8 for c in converters):
        return None
    return "rowwise" if word.startswith("rowwise") else "tensorwise"


READ = {
    "model": model,
    "layout.dp": dp,
    "layout.dp_replicate": copies,
    "layout.microbatch": microbatch,
    "layout.interleave": chunks,
    "layout.stages": stages,
    "layout.schedule": schedule,
    "layout.zero": zero,
    "layout.recompute": recomputed,
    "layout.offload": host_memory.fsdp("training.enable_cpu_offload"),
    "job.batch": batch,
    "job.tokens": lambda k: run_tokens(k, "training.steps"),
    "job.precision": precision,
    "job.optimizer": lambda k: optimizer_named(k, "optimizer.name"),
    "software.compiled": compiled,
    "software.float8": float8,
    "software.tp_overlap": lambda k: (
        "all" if k.flag(P + "enable_async_tensor_parallel") else None
    ),
}


# ---------------------------------------------------------------- writing


def write_model(job: Job, out: Out) -> None:
    out["model.name"], out["model.flavor"] = name_of(job, NAME).split("/")


def write_dp(job: Job, out: Out) -> None:
    """Replicas are shards where anything is sharded, else copies."""
    l = job.layout
    shards = int(l.dp) // int(l.dp_replicate) if l.zero else 1
    out[P + "data_parallel_replicate_degree"] = int(l.dp) // shards
    out[P + "data_parallel_shard_degree"] = shards
    if bool(l.zero) != (shards * l.cp > 1):
        raise BadInput(
            f"torchtitan shards over dp x cp, or not at all: zero {l.zero} cannot be said"
        )


def write_microbatch(job: Job, out: Out) -> None:
    """A pipeline takes all microbatches of a step; without one they follow each other."""
    l = job.layout
    each = int(l.microbatch)
    if l.pp > 1:
        out[P + "pipeline_parallel_microbatch_size"] = each
    out["training.local_batch_size"] = (
        job.batch // int(l.dp) if l.pp > 1 else each
    )


def write_chunks(job: Job, out: Out) -> None:
    """Even stages by their size, others by their modules."""
    l = job.layout
    if l.pp == 1:
        if l.interleave > 1:
            raise BadInput(f"interleave {l.interleave} needs pp > 1")
        return
    layers = dealt_by_us(job)
    if even(job):
        out[P + "pipeline_parallel_layers_per_stage"] = layers[0]
        out[P + "pipeline_parallel_first_stage_less_layers"] = 0
        out[P + "pipeline_parallel_last_stage_less_layers"] = 0
    else:
        out[P + "module_fqns_per_model_part"] = modules(layers)


def modules(layers: list[int]) -> list[list[str]]:
    """The modules of each stage, as torchtitan's models call them."""
    parts, at = [], 0
    for count in layers:
        parts.append([f"layers.{i}" for i in range(at, at + count)])
        at += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return parts


def write_schedule(job: Job, out: Out) -> None:
    l = job.layout
    if l.pp == 1:
        return
    if l.schedule not in SCHEDULES:
        raise BadInput(
            f"torchtitan has no schedule {l.schedule}: {', '.join(SCHEDULES)}"
        )
    if (l.schedule in ("1f1b", "gpipe")) != (
        schedule_named(l.schedule).chunks(l.interleave) == 1
    ):
        raise BadInput(
            f"torchtitan's {SCHEDULES[l.schedule]} does not run interleave {l.interleave}"
        )
    out[P + "pipeline_parallel_schedule"] = SCHEDULES[l.schedule]


def write_zero(job: Job, out: Out) -> None:
    if job.layout.zero == 1:
        raise BadInput("torchtitan has no ZeRO-1: zero 2 or 3")
    if job.layout.zero:
        how = "never" if job.layout.zero == 2 else "always"
        out[P + "fsdp_reshard_after_forward"] = how


def write_recompute(job: Job, out: Out) -> None:
    how = job.layout.recompute
    mode = {
        "none": "none",
        "full": "full",
        "op": "selective",
        "selective": "selective",
    }
    if how not in mode:
        raise BadInput(f"torchtitan cannot recompute {how}: none, full or op")
    out["activation_checkpoint.mode"] = mode[how]
    if mode[how] == "selective":
        out["activation_checkpoint.selective_ac_option"] = "op"


def write_batch(job: Job, out: Out) -> None:
    out["training.global_batch_size"] = job.batch


def write_tokens(job: Job, out: Out) -> None:
    if count := steps(job):
        out["training.steps"] = count


def write_precision(job: Job, out: Out) -> None:
    """bf16, fp32, or FP8 with weights gathered in 8 or 16 bits."""
    numbers = job.precision
    wide = {"name": "fp8", "gather_bytes": PRECISIONS["bf16"].gather_bytes}
    if numbers == PRECISIONS["fp32"]:
        out["training.mixed_precision_param"] = "float32"
    elif (
        numbers.compute == "fp8"
        and numbers.gradient_bytes == PRECISIONS["fp8"].gradient_bytes
    ):
        out["model.converters"] = [
            MX[0] if job.software.float8 == "mxfp8" else FP8[0]
        ]
        small = numbers == PRECISIONS["fp8"]
        if not small and numbers.gather_bytes != wide["gather_bytes"]:
            raise BadInput(
                f"torchtitan gathers weights in 8 or 16 bits, not {numbers.gather_bytes}"
            )
        if small:
            out["quantize.linear.float8.enable_fsdp_float8_all_gather"] = True
    elif numbers != PRECISIONS["bf16"]:
        name = numbers.name or numbers.compute
        raise BadInput(
            f"torchtitan trains in bf16, fp8 or fp32 with fp32 gradients, not {name}"
        )


def write_compiled(job: Job, out: Out) -> None:
    on = job.software.compiled
    on = job.profile.compiled if on is None and job.profile else on
    out["compile.enable"] = bool(on)


def write_float8(job: Job, out: Out) -> None:
    how = job.software.float8
    if how in ("delayed", "blockwise"):
        raise BadInput(
            f"torchtitan scales FP8 numbers by tensor, row or mx, not {how}"
        )
    if job.precision.compute == "fp8" and how != "mxfp8":
        out["quantize.linear.float8.recipe_name"] = how or "tensorwise"


def write_tp_overlap(job: Job, out: Out) -> None:
    if job.software.tp_overlap == "all":
        out[P + "enable_async_tensor_parallel"] = True
    elif job.software.tp_overlap == "backward":
        raise BadInput(
            "torchtitan overlaps all of tensor parallelism (AsyncTP) or none"
        )


WRITE = {
    "model": write_model,
    "layout.dp": write_dp,
    "layout.dp_replicate": unsaid,
    "layout.microbatch": write_microbatch,
    "layout.interleave": write_chunks,
    "layout.stages": unsaid,
    "layout.schedule": write_schedule,
    "layout.zero": write_zero,
    "layout.recompute": write_recompute,
    "layout.offload": host_memory.write_fsdp(
        "training.enable_cpu_offload", "torchtitan"
    ),
    "job.batch": write_batch,
    "job.tokens": write_tokens,
    "job.precision": write_precision,
    "job.optimizer": lambda job, out: out.update(
        {
            "optimizer.name": {"adamw": "AdamW", "adam": "Adam"}[
                demand_adam(job, "torchtitan")
            ]
        }
    ),
    "software.compiled": write_compiled,
    "software.float8": write_float8,
    "software.tp_overlap": write_tp_overlap,
}


def render(out: Out, job: Job, at: launch.Place) -> str:
    """The TOML, or a batch script that holds it and starts torchtitan."""
    told = [
        f"# torchtitan {get(NAME).version}: {at.nodes * at.ranks} ranks, "
        f"torchrun ... {PROGRAM} --job.config_file THIS. Written by meshwright export.",
        *(f"# {note}" for note in at.notes),
    ]
    text = "\n".join(told) + "\n\n" + dumps_toml(nested(out))
    if at.slurm is None:
        return text
    started = [f"--job.config_file {CONFIG}"]
    return launch.script(at, get(NAME), PROGRAM, started, file=(CONFIG, text))
