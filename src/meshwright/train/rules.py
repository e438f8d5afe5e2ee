"""What the trainer cannot run, said before anything starts. The rules of layouts
(`layout.rules`) hold here too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

from ..describe.framework import framework
from ..describe.job import Job
from ..describe.layout import Layout
from ..describe.training import Settings
from ..errors import BadInput
from ..layout import rules
from ..layout.rule import may_be
from ..prediction.prediction import Prediction
from ..program.memory import peak
from ..program.operations import carried_out, recomputation
from ..program.resident import largest_terms
from ..schedule import get as schedule_named
from ..step.oom import capacity
from ..units import show
from .data import batch_sizes, wrong_ramp
from .registry import is_own


def demand(job: Job, settings: Settings, world: int | None = None) -> None:
    """Raise BadInput with every reason why this job cannot be trained here.

    world: ranks a launcher has already started; None: they are to be started on this machine.
    """
    job = job.filled
    layout = job.layout
    why = rules.broken(
        job, layout, rules.ALWAYS + (rules.EVEN_BATCH, rules.FILLED)
    )
    why = why or of_trainer(job, layout) + of_settings(
        job, layout, settings
    ) + _ranks(layout, settings, world)
    if why:
        raise BadInput("; ".join(why))


def of_trainer(job: Job, layout: Layout) -> list[str]:
    """What the decoder, PyTorch's engine or ours cannot carry out, whatever framework the job
    names.
    """
    return rules.refusals_of(framework("meshwright"), job, layout)


def of_settings(job: Job, layout: Layout, settings: Settings) -> list[str]:
    """Settings that contradict the layout."""
    return (
        compiled(job, layout, settings)
        + sharded(job, layout, settings.shards)
        + balanced(job, settings)
        + owned(layout, settings)
        + ramped(job, settings)
    )


def ramped(job: Job, settings: Settings) -> list[str]:
    """A batch that cannot grow as it should, or is too small for the layout at first."""
    if why := wrong_ramp(job, settings):
        return why
    for size in sorted(batch_sizes(job, settings) - {job.batch}):
        small = replace(job, batch=size)
        each = rules.ALWAYS + (rules.EVEN_BATCH, rules.FILLED)
        why = rules.broken(small, job.layout, each) or of_trainer(
            small, job.layout
        )
        if why:
            return [f"train.ramp_batch: at {size} sequences, {'; '.join(why)}"]
    return []


def balanced(job: Job, settings: Settings) -> list[str]:
    """Loads of experts that are not there."""
    return [
        f"train.{name} is for the routers of experts, and this model has none: leave it out"
        for name in ("balance_loss", "balance_bias", "router_z_loss")
        if getattr(settings, name) is not None and job.model.moe is None
    ]


def owned(layout: Layout, s: Settings) -> list[str]:
    """Code of the user's that cannot be combined with what is asked for."""
    cut = [axis for axis in ("tp", "cp", "ep") if getattr(layout, axis) > 1]
    missing = {
        f"train.own_model is not cut over {', '.join(cut)}: its layers are the user's, and whole on"
        " each rank": s.own_model and cut,
        "train.own_model and train.weights are not trained together: leave one out": (
            s.own_model and s.weights
        ),
        f"train.data {s.data!r} holds nothing out: name train.eval_data, or leave train.eval_every"
        " out": s.eval_every and is_own(s.data) and s.eval_data is None,
        f"train.documents keeps documents of token files apart, and {s.data!r} is none": (
            s.documents and is_own(s.data)
        ),
    }
    return [sentence for sentence, holds in missing.items() if holds]


def compiled(job: Job, layout: Layout, settings: Settings) -> list[str]:
    """What torch.compile cannot do in this trainer."""
    if not settings.compile:
        return []
    split = layout.pp > 1 and schedule_named(layout.schedule).split_backward
    compilers = [
        name
        for name in (os.environ.get("CXX"), "g++", "clang++", "c++")
        if name and shutil.which(name)
    ]
    missing = {
        f"train.compile with experts and recompute {layout.recompute} is not carried out: parts of"
        " their layers are compiled, and operations inside of these are not kept one by one": (
            job.model.moe and recomputation(layout.recompute) == "op"
        ),
        f"train.compile with schedule {layout.schedule} is not carried out: a compiled layer's"
        " backward pass cannot be halved": (split),
        "train.compile needs a C++ compiler (g++ or clang++) on CPUs": (
            settings.device == "cpu" and not compilers
        ),
    }
    return [sentence for sentence, holds in missing.items() if holds]


def sharded(job: Job, layout: Layout, shards: int | None) -> list[str]:
    """Hybrid sharding that contradicts the layout."""
    if shards is None:
        return []
    if job.model.moe:
        return [
            "train.shards with a mixture of experts is not trained: leave it out"
        ]
    if layout.dp % shards:
        return [
            f"train.shards {shards} must divide dp {layout.dp}: {may_be(int(layout.dp))}"
        ]
    return (
        ["train.shards needs zero 1, 2 or 3: zero 0 shards nothing"]
        if layout.zero == 0
        else []
    )


def _ranks(layout: Layout, settings: Settings, world: int | None) -> list[str]:
    """Refuse a world that has not as many ranks as the layout has chips, or too few devices."""
    need = int(layout.chips)
    if world is not None and world != need:
        return [
            f"the layout needs {need} ranks (tp x cp x pp x dp), but the launcher started {world}"
        ]
    if world is not None:
        return []  # machines that the launcher has, not this one
    if settings.device == "cuda":
        import torch

        have = torch.cuda.device_count()
        return (
            []
            if have >= need
            else [f"the layout needs {need} GPUs, but this machine has {have}"]
        )
    if need > (most := 8 * (os.cpu_count() or 1)):
        return [
            f"the layout needs {need} ranks, but this machine of {os.cpu_count()} cores runs at"
            f" most {most}: use torchrun on more machines"
        ]
    return []


def demand_memory(
    predicted: Prediction, settings: Settings, world: int | None
) -> None:
    """Raise BadInput if ranks need more memory than there is.

    On GPUs each has the chip of the job. On CPUs all ranks of this machine share what it has; a
    launcher says how many those are.
    """
    if settings.device != "cpu":
        return demand_chip(predicted, settings)
    need = bytes_of_all(predicted, settings)
    chips = float(predicted.layout.chips)
    if world is not None:
        need *= min(1.0, int(os.environ.get("LOCAL_WORLD_SIZE", "1")) / chips)
    have = float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise BadInput(
            f"the ranks need {show(need, 'GiB')} together, but this machine has {show(have, 'GiB')}"
        )
    return None


def demand_chip(predicted: Prediction, settings: Settings) -> None:
    """Raise BadInput if a rank needs more than can be allocated on the chip of the job."""
    demand_room(
        predicted,
        settings,
        capacity(predicted.job),
        f"one {predicted.job.cluster.chip.name}",
    )


def demand_room(
    predicted: Prediction, settings: Settings, have: float, what: str
) -> None:
    """Raise BadInput if the fullest rank needs more than `have` bytes, with what they are for."""
    ranks = [*peaks(predicted, settings)]
    rank = max(range(len(ranks)), key=lambda rank: sum(ranks[rank].values()))
    need = sum(ranks[rank].values())
    if need <= have:
        return
    terms = largest_terms(ranks[rank])
    where = f" of pipeline stage {rank}" if len(ranks) > 1 else ""
    raise BadInput(
        f"a rank{where} needs {show(need, 'GiB')} in this program ({terms}), but {what} has"
        f" {show(have, 'GiB')}: recompute, a smaller layout.microbatch or batch, a higher"
        " layout.zero, tp or pp need less"
    )


def peaks(
    predicted: Prediction, settings: Settings
) -> Iterator[dict[str, float]]:
    """Bytes of each rank of the pp axis at its peak, by term, as PyTorch's engine holds them."""
    layout = predicted.layout
    wanted = carried_out(replace(predicted.job, layout=layout))
    for rank in range(int(layout.pp)):
        yield peak(wanted, rank, settings.shards or 0).peak


def bytes_of_all(predicted: Prediction, settings: Settings) -> float:
    """Bytes of all ranks at their peaks."""
    ranks = [*peaks(predicted, settings)]
    return (
        sum(sum(terms.values()) for terms in ranks)
        * float(predicted.layout.chips)
        / len(ranks)
    )
