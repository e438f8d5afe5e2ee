"""What the trainer cannot run, said before anything starts. The rules of layouts (`meshwright.rules`) hold here too."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.model import Model
from ..errors import BadInput
from ..layout import rules
from ..layout.placement import placed
from ..layout.rules import may_be
from ..layout.stages import microbatches
from ..prediction.prediction import Prediction
from ..program.memory import peak
from ..program.messages import carried_out
from ..schedule import SCHEDULES
from ..schedule import get as schedule_named
from ..step.memory import capacity
from ..units import show
from .settings import Settings

NAMED = 3
"""Largest terms of memory that a refusal names."""


def demand(job: Job, settings: Settings, world: int | None = None) -> None:
    """Raise BadInput with every reason why this job cannot be trained here.

    world: ranks a launcher has already started; None: they are to be started on this machine.
    """
    layout = job.layout
    why = rules.broken(job, layout, rules.ALWAYS + (rules.EVEN_BATCH, rules.FILLED))
    why = why or model(job.model) + of_layout(job, layout) + of_job(job) + expert_ranks(job, layout) + of_settings(
        job, layout, settings
    ) + ranks(layout, settings, world)
    if why:
        raise BadInput("; ".join(why))


def model(m: Model) -> list[str]:
    """What the trainer's decoder does not have."""
    missing = {
        "model.mla: latent attention is not trained yet": m.mla,
        "model.bias with shared experts is not trained: the output bias would be one too many": m.moe
        and m.moe.shared_ffn
        and m.bias,
        "model.mtp_layers: multi-token prediction is not trained": m.mtp_layers,
        "model.attention_sinks are not trained": m.attention_sinks,
        "model.embedding_norm is not trained": m.embedding_norm,
        "model.qk_norm_whole: a norm over all heads is not trained": m.qk_norm and m.qk_norm_whole,
        "model.dropout: set it to false, the trainer has no dropout": m.dropout,
        f"model.norms_per_layer must be 2 to train, not {m.norms_per_layer}": m.norms_per_layer != 2,
        "model.positions alibi are not trained: rope, learned or none": m.positions == "alibi",
        "model.vocab must be at least 2 to train": m.vocab < 2,
        f"model.head_dim {m.h}, or the share of it that is rotated, must be even for rotary positions": m.positions
        == "rope"
        and m.rotary % 2,
        "model.activation other is not trained: silu, gelu, gelu-tanh or relu": m.act == "other",
        "model.rope_scaling: high must be more than low": m.rope_scaling and m.rope_scaling.high <= m.rope_scaling.low,
        "model.rope_scaling: only linear and llama3 are computed": m.rope_scaling
        and m.rope_scaling.kind not in ("linear", "llama3"),
    }
    return [sentence for sentence, holds in missing.items() if holds]


def of_layout(job: Job, layout: Layout) -> list[str]:
    """What PyTorch's engine, or ours, cannot carry out."""
    m, tp, shard = job.model, layout.tp, layout.tp if layout.sequence_parallel else 1
    schedule, m_step = schedule_named(layout.schedule), microbatches(job, layout)
    runnable = ", ".join(s.name for s in SCHEDULES.values() if s.torch_name)
    missing = {
        f"layout.scheme {layout.scheme} cannot be trained, only megatron": layout.scheme != "megatron",
        f"layout.schedule {layout.schedule} has no counterpart in PyTorch: take one of {runnable}": layout.pp > 1 and not schedule.torch_name,
        f"schedule 1f1b runs in PyTorch only with at least as many microbatches as stages, not {int(m_step)} for pp {layout.pp}: take "
        "gpipe, or a smaller microbatch": layout.pp > 1
        and layout.schedule == "1f1b"
        and m_step < layout.pp,
        f"layout.interleave {layout.interleave} needs pp > 1": layout.pp == 1 and layout.interleave > 1,
        f"layout.schedule {layout.schedule} with recompute full computes every layer twice more, once for each half of the backward "
        "pass: take recompute selective or none": layout.pp > 1 and schedule.split_backward and layout.recompute == "full",
        f"layout.zero 3 with schedule {layout.schedule} is not carried out rightly by PyTorch 2.13 (weights are gone before their half of the "
        "backward pass): take zero 2": layout.pp > 1 and schedule.split_backward and layout.zero == 3,
        "layout.ep and etp need a mixture of experts": not m.moe and layout.ep * layout.etp > 1,
        f"layout.etp {layout.etp}: experts cut in parts are not trained yet, take etp 1": m.moe and layout.etp > 1,
        f"model.moe.shared_ffn {m.moe.shared_ffn if m.moe else 0} cannot be split over tp {tp}": m.moe and m.moe.shared_ffn % tp,
        f"layout.tp {tp} must divide the {m.K} kv heads: tp may be {may_be(m.K)}": m.K % tp,
        f"layout.tp {tp} must divide the vocabulary of {m.padded_vocab} rows: set model.vocab_multiple to {tp}": m.padded_vocab % tp,
        f"a sequence of {job.T} tokens cannot be cut over cp {layout.cp}"
        + (f" and tp {tp} (sequence_parallel)" if shard > 1 else ""): job.T % (layout.cp * shard),
        f"a sequence of {job.T} tokens is longer than the model's {m.seq} learned positions": m.positions == "learned" and m.seq < job.T,
    }  # fmt: skip
    return [sentence for sentence, holds in missing.items() if holds]


def of_job(job: Job) -> list[str]:
    """Numbers and optimizers that are trained."""
    why = []
    compute = job.precision.compute
    if compute not in ("fp32", "bf16", "fp16"):
        why.append(f"precision {compute} is not trained: take fp32, bf16 or fp16")
    elif compute != "fp32" and job.precision.gradient_bytes != 4:
        why.append(
            f"precision {compute}-pure is not trained: take {compute}, which keeps gradients and weights in fp32"
        )
    if job.optimizer.name not in ("adamw", "adamw-no-master"):
        why.append(f"optimizer {job.optimizer.name} is not trained: take adamw")
    return why


def expert_ranks(job: Job, layout: Layout) -> list[str]:
    """ep must take whole ranks of every network dimension."""
    if job.model.moe is None or layout.ep == 1:
        return []
    shares = [share for axis in ("ep", "edp") for share in placed(layout, job.cluster.sizes).group(axis)]
    if all(share == int(share) for share in shares):
        return []
    return [
        f"layout.ep {layout.ep} does not divide the ranks of tp x cp x dp in every network dimension, whose sizes are {job.cluster.sizes}"
    ]


def of_settings(job: Job, layout: Layout, settings: Settings) -> list[str]:
    """Settings that contradict the layout."""
    return compiled(job, layout, settings) + sharded(job, layout, settings.shards)


def compiled(job: Job, layout: Layout, settings: Settings) -> list[str]:
    """What torch.compile cannot do in PyTorch 2.13."""
    if not settings.compile:
        return []
    split = layout.pp > 1 and schedule_named(layout.schedule).split_backward
    compilers = [name for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name and shutil.which(name)]
    missing = {
        "train.compile with tp > 1 is not carried out by PyTorch 2.13 on CPUs (its graphs lose DTensors): set compile = false": layout.tp > 1,
        "train.compile with a mixture of experts is not trained: the tokens of an expert differ from step to step": job.model.moe,
        f"train.compile with schedule {layout.schedule} is not carried out: a compiled layer's backward pass cannot be halved": split,
        "train.compile needs a C++ compiler (g++ or clang++) on CPUs": settings.device == "cpu" and not compilers,
    }  # fmt: skip
    return [sentence for sentence, holds in missing.items() if holds]


def sharded(job: Job, layout: Layout, shards: int | None) -> list[str]:
    """Hybrid sharding that contradicts the layout."""
    if shards is None:
        return []
    if job.model.moe:
        return ["train.shards with a mixture of experts is not trained: leave it out"]
    if layout.dp % shards:
        return [f"train.shards {shards} must divide dp {layout.dp}: {may_be(int(layout.dp))}"]
    return ["train.shards needs zero 1, 2 or 3: zero 0 shards nothing"] if layout.zero == 0 else []


def ranks(layout: Layout, settings: Settings, world: int | None) -> list[str]:
    """As many ranks as chips of the layout, and a device for each."""
    need = int(layout.chips)
    if world is not None and world != need:
        return [f"the layout needs {need} ranks (tp x cp x pp x dp), but the launcher started {world}"]
    if settings.device == "cuda":
        import torch

        have = torch.cuda.device_count() if world is None else need
        return [] if have >= need else [f"the layout needs {need} GPUs, but this machine has {have}"]
    if world is None and need > (most := 8 * (os.cpu_count() or 1)):
        return [
            f"the layout needs {need} ranks, but this machine of {os.cpu_count()} cores runs at most {most}: use torchrun on more machines"
        ]
    return []


def demand_memory(predicted: Prediction, settings: Settings, world: int | None) -> None:
    """Raise BadInput if ranks need more memory than there is.

    On GPUs each has the chip of the job. On CPUs all ranks of this machine share what it has; a launcher says how many those are.
    """
    if settings.device != "cpu":
        return demand_chip(predicted, settings)
    need, chips = together(predicted, settings), float(predicted.layout.chips)
    if world is not None:
        need *= min(1.0, int(os.environ.get("LOCAL_WORLD_SIZE", "1")) / chips)
    have = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise BadInput(f"the ranks need {show(need, 'GiB')} together, but this machine has {show(have, 'GiB')}")
    return None


def demand_chip(predicted: Prediction, settings: Settings) -> None:
    """Raise BadInput if a rank needs more than can be allocated on the chip of the job."""
    demand_room(predicted, settings, capacity(predicted.job), f"a {predicted.job.cluster.chip.name}")


def demand_room(predicted: Prediction, settings: Settings, have: float, what: str) -> None:
    """Raise BadInput if the fullest rank needs more than `have` bytes, with what they are for."""
    found = peaks(predicted, settings)
    rank = max(range(len(found)), key=lambda rank: sum(found[rank].values()))
    need = sum(found[rank].values())
    if need <= have:
        return
    largest = sorted(found[rank].items(), key=lambda term: -term[1])[:NAMED]
    terms = ", ".join(f"{show(size, 'GiB')} {name}" for name, size in largest)
    where = f" of pipeline stage {rank}" if len(found) > 1 else ""
    raise BadInput(
        f"a rank{where} needs {show(need, 'GiB')} in this program ({terms}), but {what} has {show(have, 'GiB')}: "
        "recompute, a smaller layout.microbatch or batch, a higher layout.zero, tp or pp need less"
    )


def peaks(predicted: Prediction, settings: Settings) -> list[dict[str, float]]:
    """Bytes of each rank of the pp axis at its peak, by term: as PyTorch's engine holds them, or (experts, which `peak` does not know)
    as the plan does, on the fullest device."""
    job, layout = predicted.job, predicted.layout
    if job.model.moe:
        kinds = ("weights", "gradients", "optimizer", "activations")
        return [{kind: predicted.memory_bytes[kind] for kind in kinds}]
    wanted = carried_out(replace(job, layout=layout))
    return [dict(peak(wanted, rank, settings.shards or 0).peak) for rank in range(int(layout.pp))]


def together(predicted: Prediction, settings: Settings) -> float:
    """Bytes of all ranks at their peaks."""
    found = peaks(predicted, settings)
    return sum(sum(terms.values()) for terms in found) * float(predicted.layout.chips) / len(found)
