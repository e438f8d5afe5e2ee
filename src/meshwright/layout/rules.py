"""What makes a layout legal. Each rule is a condition on numbers or arrays and the sentence for
those who break it.

The search counts how many layouts each rule rejects, `predict` and the command line print the
sentence, the trainer refuses to start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from ..describe.chip import Chip
from ..describe.choices import first_few, refusal
from ..describe.framework import Framework
from ..describe.job import Job
from ..describe.layout import AXES, GRIDS, Layout
from ..describe.model import Model
from ..describe.offload import offload
from ..describe.stages import RULES
from ..describe.stages import read_stages as stages_named
from ..errors import BadInput, unknown
from ..exchange import EXCHANGES
from ..num import ceil_div
from ..schedule import SCHEDULES
from ..schedule import get as schedule_named
from . import alternatives, cuts, practice, schemes, setting_rules, trainable
from .placement import launched, launcher_orders, lays_out, lies, rooms
from .rule import (
    LayoutRule,
    broken_sentences,
    divides,
    may_be,
    room_for_replicas,
)
from .sequence import length, token_parts
from .stages import microbatches, partition, schedule_of


def _token_parts(l: Layout) -> Any:
    return token_parts(l.scheme, l.sequence_parallel, l.tp, l.cp)


def _kv_heads(m: Model) -> int:
    """Key/value heads of attention; latent attention has as many as queries."""
    return m.heads if m.mla else m.K


def _experts(m: Model) -> int:
    return m.moe.experts if m.moe else 1


def _expert_ffn(m: Model) -> int:
    return m.moe.expert_ffn if m.moe else 1


def _stages(l: Layout) -> str:
    """What the layers are dealt to: chunks are the schedule's, which may always have two."""
    chunks = schedule_named(l.schedule).chunks(l.interleave)
    if chunks == 1:
        return f"pp {l.pp}"
    if l.copies > 1:
        return f"pp {l.pp} ({l.schedule})"
    return f"pp {l.pp} x {chunks} chunks ({l.schedule})"


def _count(l: Layout) -> Any:
    """Stages; on a device that is alone as many as its schedule has chunks."""
    return schedule_named(l.schedule).stage_count(l.pp, l.interleave)


def _most_stages(l: Layout, chunks: int) -> str:
    """How many stages so many chunks make."""
    each = schedule_named(l.schedule).stage_count(1, l.interleave)
    return f"pp may be at most {max(int(chunks // each), 1)}"


def _more_slots(m: Model, l: Layout) -> str:
    """That as many stages would do if embedding and head counted as layers; "": not even then."""
    slots = replace(l, stages="slots")
    most = m.layers + _ends(m, slots)
    would = _ends(m, l) < _ends(m, slots) and _count(l) <= most
    return f", or {most} with --stages slots" if would else ""


def _ends(m: Model, layout: Layout) -> Any:
    """How many stages may hold no layers, but the embedding or the head alone: two where a device
    has several chunks, of which others hold layers, or where stages are dealt by "slots".
    """
    chunked = schedule_named(layout.schedule).chunks(layout.interleave) > 1
    return 2 * (bool(m.vocab) & (chunked | (layout.stages == "slots")))


def _listed(job: Job, l: Layout) -> Any:
    """Where the layers dealt to stages one by one are those of the model, and the stages there."""
    given = stages_named(l.stages).layers
    return (_count(l) == len(given)) & (sum(given) == job.model.layers)


def _dealt(m: Model, l: Layout) -> Any:
    """Where a rule can deal the layers: slots are those of a vocabulary, and the last stage has a
    layer of the rest.
    """
    count = _count(l)
    if l.stages == "rest":
        return ceil_div(m.layers, count) * (count - 1) < m.layers
    return l.stages == "even" or m.vocab > 0


POSITIVE = LayoutRule(
    "degrees are positive",
    lambda j, l: (
        (l.tp >= 1)
        & (l.cp >= 1)
        & (l.pp >= 1)
        & (l.dp >= 1)
        & (l.ep >= 1)
        & (l.etp >= 1)
        & (l.microbatch >= 1)
        & (l.interleave >= 1)
        & (l.panels >= 1)
    ),
    lambda j, l: (
        "tp, cp, pp, dp, ep, etp, microbatch, interleave and panels must be at least 1"
    ),
    reads=("pp", "dp"),
)
CHIPS = LayoutRule(
    "chips",
    lambda j, l: l.chips <= j.cluster.chips,
    lambda j, l: (
        f"tp {l.tp} x cp {l.cp} x pp {l.pp} x dp {l.dp} needs {l.chips} chips, but the cluster has"
        f" {j.cluster.chips}{room_for_replicas(j, l)}"
    ),
    reads=("pp", "dp"),
)
HEADS = LayoutRule(
    "heads over tp",
    lambda j, l: divides(l.tp, cuts.most_tp(j.model)),
    lambda j, l: (
        f"{names_with_counts(cuts.heads(j.model))} cannot be split {l.tp} ways: tp may be"
        f" {may_be(cuts.most_tp(j.model))}"
    ),
)
KV_HEADS = LayoutRule(
    "kv heads over tp",
    lambda j, l: cuts.copies_evenly(j.model, l.tp),
    lambda j, l: (
        f"{names_with_counts(cuts.shared_heads(j.model))} and tp {l.tp}: one must be a multiple"
        f" of the other: tp may be {may_be(cuts.fewest(j.model))},"
        f" or a multiple of {cuts.fewest(j.model)}"
    ),
)
STATES = LayoutRule(
    "states over tp and cp",
    lambda j, l: cuts.over_cp(j.model, l.tp, l.cp),
    lambda j, l: (
        f"{j.model.name} has products other than attention that mix tokens, which cannot be split"
        f" over cp {l.cp}: cp must be 1"
        if j.model.traced
        else f"no framework trains {' and '.join(cuts.uncut(j.model))} with tp {l.tp} or cp {l.cp}:"
        " both must be 1"
        if cuts.uncut(j.model)
        else f"{names_with_counts(cuts.exchanged_heads(j.model))} cannot be split over tp {l.tp}"
        f" x cp {l.cp}, which exchange whole sequences:"
        f" tp x cp may be {may_be(cuts.most_exchanged(j.model))}"
    ),
)
FFN = LayoutRule(
    "feed-forward over tp",
    lambda j, l: divides(l.tp, j.model.ffn),
    lambda j, l: (
        f"ffn {j.model.ffn} cannot be split {l.tp} ways: tp may be {may_be(j.model.ffn)}"
    ),
)
SEQUENCE = LayoutRule(
    "sequence over cp",
    lambda j, l: (
        divides(_token_parts(l), length(j, l) * l.microbatch)
        & ((l.cp <= j.T) | (l.scheme == "mlp2d"))
    ),
    lambda j, l: (
        f"a microbatch of {l.microbatch} x {j.T} tokens cannot be split over cp {l.cp}"
        + (
            f" and tp {l.tp} (sequence_parallel): cp x tp"
            if l.sequence_parallel
            else ": cp"
        )
        + f" may be {may_be(int(j.T * l.microbatch))}"
    ),
    reads=("sequence_parallel",),
)
HIDDEN = LayoutRule(
    "hidden over the grid",
    lambda j, l: (
        divides(l.tp, j.model.hidden)
        & (divides(l.cp, j.model.hidden) if l.scheme in GRIDS else True)
    ),
    lambda j, l: (
        f"hidden {j.model.hidden} cannot be split over tp {l.tp}"
        + (f" and cp {l.cp}: both" if l.scheme in GRIDS else ": it")
        + f" may be {may_be(j.model.hidden)}"
    ),
)
LAYERS = LayoutRule(
    "layers over pp",
    lambda j, l: (
        (_count(l) <= j.model.layers + _ends(j.model, l))
        | (l.stages not in RULES)
    ),
    lambda j, l: (
        f"{j.model.layers} layers are too few for {_stages(l)}: a chunk needs a layer"
        + (
            ", the first and the last at least embedding and head"
            if _ends(j.model, l)
            else ""
        )
        + f"; {_most_stages(l, j.model.layers + _ends(j.model, l))}"
        + _more_slots(j.model, l)
    ),
    reads=("pp", "schedule"),
)
STAGES = LayoutRule(
    "layers of the stages",
    lambda j, l: (
        _listed(j, l) if l.stages not in RULES else _dealt(j.model, l)
    ),
    lambda j, l: (
        "layout.stages slots needs a vocabulary, because the slots are its embedding and loss:"
        " take even"
        if l.stages == "slots"
        else f"layout.stages rest leaves nothing of {j.model.layers} layers for the last stage of"
        f" {_stages(l)}: take even"
        if l.stages == "rest"
        else f"layout.stages {l.stages} assigns {sum(stages_named(l.stages).layers)} layers to"
        f" {len(stages_named(l.stages).layers)} stages, but {_stages(l)} has"
        f" {int(_count(l))} and the model"
        f" {j.model.layers} layers"
    ),
    reads=("pp", "schedule"),
)
FILLED = LayoutRule(
    "layers in every stage",
    lambda j, l: (
        partition(j.model, l.pp, schedule_of(l), l.interleave).least >= 1
    ),
    lambda j, l: (
        f"{j.model.layers} layers are too few for {_stages(l)}: here a chunk needs a layer;"
        f" {_most_stages(l, j.model.layers)}"
    ),
    reads=("pp", "schedule"),
)
EVEN_LAYERS = LayoutRule(
    "even stages",
    lambda j, l: divides(_count(l), j.model.layers),
    lambda j, l: (
        f"layers {j.model.layers} cannot be split evenly over {_stages(l)}: for even stages"
        f" pp may be {may_be(j.model.layers)}"
    ),
    reads=("pp", "schedule"),
)
EXPERTS = LayoutRule(
    "experts over ep",
    lambda j, l: divides(l.ep, _experts(j.model)),
    lambda j, l: (
        f"experts {_experts(j.model)} cannot be split {l.ep} ways: ep may be"
        f" {may_be(_experts(j.model))}"
        if j.model.moe
        else f"{j.model.name} has no experts: ep may be 1"
    ),
)
EXPERT_RANKS = LayoutRule(
    "expert ranks",
    lambda j, l: divides(l.ep * l.etp, l.tp * l.cp * l.dp),
    lambda j, l: (
        f"ep {l.ep} x etp {l.etp} must divide tp x cp x dp = {l.tp * l.cp * l.dp}, whose ranks it"
        f" borrows: it may be {may_be(int(l.tp * l.cp * l.dp))}"
    ),
    reads=("dp",),
)
EXPERT_FFN = LayoutRule(
    "expert width over etp",
    lambda j, l: divides(l.etp, _expert_ffn(j.model)),
    lambda j, l: (
        f"expert ffn {_expert_ffn(j.model)} cannot be split {l.etp} ways: etp may be"
        f" {may_be(_expert_ffn(j.model))}"
        if j.model.moe
        else f"{j.model.name} has no experts: etp may be 1"
    ),
)
EXPERT_SEQUENCE = LayoutRule(
    "experts need sequence parallelism",
    lambda j, l: (l.tp == 1) | bool(l.sequence_parallel) | (not j.model.moe),
    lambda j, l: (
        "a mixture of experts with tp > 1 needs sequence_parallel, so that each rank routes its own"
        " tokens"
    ),
    reads=("sequence_parallel",),
)
BATCH = LayoutRule(
    "batch over dp",
    lambda j, l: l.dp * l.microbatch <= j.batch,
    lambda j, l: (
        f"batch of {j.batch} sequences is too small for dp {l.dp} x microbatch {l.microbatch}: dp x"
        f" microbatch may be at most {j.batch}"
    ),
    reads=("dp",),
)
EVEN_BATCH = LayoutRule(
    "even batch",
    lambda j, l: divides(l.dp * l.microbatch, j.batch),
    lambda j, l: (
        f"batch of {j.batch} sequences cannot be split over dp {l.dp} x microbatch {l.microbatch}:"
        f" dp x microbatch may be {may_be(j.batch)}"
    ),
    reads=("dp",),
)
REPLICATED = LayoutRule(
    "groups of dp",
    lambda j, l: (
        (l.dp_replicate == 1)
        | (
            # of groups of a node it may be no whole number
            divides(1, l.dp_replicate)
            & divides(l.dp_replicate, l.dp)
            & divides(l.dp_replicate * l.ep * l.etp, l.tp * l.cp * l.dp)
            & (l.zero > 0)
        )
    ),
    lambda j, l: (
        f"dp_replicate {l.dp_replicate} must divide dp {l.dp} (and the replicas of an expert), with"
        f" zero 1, 2 or 3: it may be {may_be(int(l.dp))}"
    ),
    reads=("dp", "zero"),
)


def _other_exchanges(job: Job, l: Layout) -> str:
    """Names of those that run these heads."""
    ranks = l.tp * l.cp
    return " or ".join(
        name
        for name, exchange in EXCHANGES.items()
        if exchange.holds(_kv_heads(job.model), ranks)
    )


EXCHANGE = LayoutRule(
    "exchange of keys",
    lambda j, l: (
        (l.cp == 1)
        | (EXCHANGES[l.cp_exchange].holds(_kv_heads(j.model), l.tp * l.cp))
    ),
    lambda j, l: (
        f"layout.cp_exchange {l.cp_exchange} {EXCHANGES[l.cp_exchange].refusal}, not"
        f" {_kv_heads(j.model)} of tp {l.tp} x cp {l.cp}: take {_other_exchanges(j, l)}"
    ),
)


@cache
def _framework_exchanges(framework: str, have: tuple[str, ...]) -> LayoutRule:
    """What a framework has to exchange keys, where it lacks some."""
    return LayoutRule(
        "exchange of the framework",
        lambda _, l: (l.cp == 1) | (l.cp_exchange in have),
        lambda _, l: other_exchanges(framework, have, (l.cp_exchange,)),
    )


def other_exchanges(
    framework: str, have: tuple[str, ...], lacks: Collection[object]
) -> str:
    """The sentence on exchanges of keys that a framework lacks."""
    return f"{framework} allows cp_exchange {first_few(have)}, not {first_few(lacks)}"


def _regrouped(job: Job, l: Layout) -> str:
    """The smallest groups in which the schedule takes its microbatches as many as they are, if the
    framework cuts groups of a size that is given; empty if there are none.
    """
    if l.microbatch_group or schedule_of(l).grouped is None:
        return ""
    m = int(microbatches(job, l))
    sizes = range(int(l.pp), m + 1)
    candidates = (replace(l, microbatch_group=size) for size in sizes)
    for other in candidates:
        if not schedule_of(other).legal(l.pp, m, l.interleave):
            continue
        choices = job.profile.choices if job.profile else {}
        if any(refusal(choices, other, "")):
            return ""
        return f", or these {m} with microbatch_group {other.microbatch_group}"
    return ""


SCHEDULE = LayoutRule(
    "schedule",
    lambda j, l: schedule_of(l).legal(l.pp, microbatches(j, l), l.interleave),
    lambda j, l: (
        "; ".join(
            schedule_of(l).rules(
                int(l.pp), int(microbatches(j, l)), int(l.interleave)
            )
        )
        + _regrouped(j, l)
    ),
    reads=("pp", "microbatches", "schedule"),
)
GROUPS = LayoutRule(
    "groups of microbatches",
    lambda j, l: not l.microbatch_group or schedule_of(l).grouped is not None,
    lambda j, l: (
        f"layout.microbatch_group {l.microbatch_group} needs a schedule that runs microbatches"
        " through the chunks in groups:"
        f" {', '.join(s.name for s in SCHEDULES.values() if s.grouped)}"
    ),
    reads=("schedule",),
)


def _kept_away(l: Layout) -> str:
    """What a rule of host memory objects to."""
    away = offload(l.offload)
    if away.weights and (l.zero != 3 or away.optimizer < 1):
        return (
            f"weights in host memory need zero 3 and all of the optimizer there: layout.offload"
            f" optimizer+weights, not {l.offload} with zero {l.zero}"
        )
    return ""


AWAY = LayoutRule(
    "host memory",
    lambda j, l: not _kept_away(l),
    lambda j, l: _kept_away(l),
    reads=("zero",),
)


def host_unknown(chip: Chip, layout: Layout) -> str:
    """The rate of a chip's host that the layout needs and nobody gave."""
    away = offload(layout.offload)
    if layout.offload != "none" and not chip.host_bandwidth:
        return "host_bandwidth"
    if away.optimizer and not chip.host_memory_bandwidth:
        return "host_memory_bandwidth"
    return ""


HOST = LayoutRule(
    "rates of the host",
    lambda j, l: not host_unknown(j.cluster.chip, l),
    lambda j, l: (
        f"layout.offload {l.offload} needs {host_unknown(j.cluster.chip, l)} of chip"
        f" {j.cluster.chip.name}, which is not in its data"
    ),
)
MEGATRON_OFFLOAD = LayoutRule(
    "host memory in Megatron",
    lambda j, l: (
        (
            ((l.pp == 1) & (l.recompute == "none"))
            | (not offload(l.offload).activations)
        )
        & (not offload(l.offload).weights)
        & (offload(l.offload).inputs == offload(l.offload).results)
    ),
    lambda j, l: (
        f"layout.offload {l.offload}: Megatron Core keeps whole layers' activations in host memory,"
        " only without pipelines (pp 1) and recomputation (recompute none), and never weights"
    ),
    reads=("pp", "recompute"),
)
SHARDED_TOKENS = LayoutRule(
    "tokens sharded over tp",
    lambda j, l: (l.tp == 1) | bool(l.sequence_parallel) | (not j.framework),
    lambda j, l: (
        f"{j.framework.name if j.framework else ''} shards activations between the ranks of tp"
        f" {l.tp}: sequence_parallel must be true, and tp must divide the tokens"
    ),
    reads=("sequence_parallel",),
)
MESHED_EXPERTS = LayoutRule(
    "experts inside replicas",
    lambda j, l: divides(l.ep * l.dp_replicate, l.dp),
    lambda j, l: (
        f"ep {l.ep} x dp_replicate {l.dp_replicate} must divide dp {l.dp}, whose ranks it takes:"
        " experts are an axis of MaxText's mesh beside data and fsdp"
    ),
    reads=("dp", "zero"),
)
EXPERTS_CUT_AS_TP = LayoutRule(
    "experts cut as tp",
    lambda j, l: (l.etp == l.tp) | (not j.model.moe),
    lambda j, l: (
        f"etp {l.etp} must be tp {l.tp}: MaxText cuts the width of an expert over the mesh axes"
        " tensor and tensor_sequence, as it does every matrix"
    ),
)
EXPERTS_IN_SHARDS = LayoutRule(
    "experts inside shards",
    # copies (ZeRO-0) leave no axis of the mesh but cp and tp to take experts from
    lambda j, l: (
        (l.ep == 1)
        | divides(
            l.ep * l.etp,
            (l.dp / l.dp_replicate if l.zero else 1) * l.cp * l.tp,
        )
    ),
    lambda j, l: (
        f"ep {l.ep} x etp {l.etp} must divide dp_shard x cp x tp ="
        f" {(l.dp // l.dp_replicate if l.zero else 1) * l.cp * l.tp}: experts take"
        " ranks of the shards; shard with zero 2 or 3, or 1 in a pipeline"
    ),
    reads=("dp", "zero"),
)
SHARDS_TAKE_CP = LayoutRule(
    "shards over dp and cp",
    lambda j, l: l.dp / l.dp_replicate * l.cp > 1 if l.zero else l.cp == 1,
    lambda j, l: (
        f"zero {l.zero} is impossible with dp {l.dp} and cp {l.cp}: FSDP shards over dp x cp,"
        " or not at all; take zero 2 or 3 with cp, or zero 1 in a pipeline"
    ),
    reads=("dp", "zero"),
)
WHOLE_IN_STAGES = LayoutRule(
    "whole gradients in stages",
    # PyTorch's stages keep what FSDP gathered and the gradients of a stage whole, and reduce them
    # after the last microbatch (torch/distributed/pipelining/stage.py,
    # backward_maybe_with_nosync): ZeRO-1, whatever is sharded outside of a pipeline
    lambda j, l: (l.zero == 0) | ((l.pp > 1) == (l.zero == 1)),
    lambda j, l: (
        f"zero {l.zero} is impossible with pp {l.pp}: PyTorch's pipelines keep weights and"
        " gradients of a stage whole until the last microbatch, which is zero 1; FSDP without"
        " pipelines is zero 2 or 3"
    ),
    reads=("pp", "zero"),
)
FSDP_OFFLOAD = LayoutRule(
    "host memory in FSDP",
    lambda j, l: (
        offload(l.offload).weights == (offload(l.offload).optimizer > 0)
        and not offload(l.offload).activations
    ),
    lambda j, l: (
        f"layout.offload {l.offload}: FSDP keeps states in host memory together: take none or"
        " optimizer+weights"
    ),
)


def names_with_counts(counts: Mapping[str, int]) -> str:
    """heads 32 and linear.key_heads 16."""
    return " and ".join(f"{name} {count}" for name, count in counts.items())


ALWAYS = (
    POSITIVE,
    *schemes.MODELS,
    CHIPS,
    HEADS,
    KV_HEADS,
    STATES,
    FFN,
    SEQUENCE,
    HIDDEN,
    LAYERS,
    STAGES,
    EXPERTS,
    EXPERT_RANKS,
    EXPERT_FFN,
    EXPERT_SEQUENCE,
    BATCH,
    REPLICATED,
    EXCHANGE,
    SCHEDULE,
    GROUPS,
    schemes.HIDDEN_SHARDED,
    AWAY,
    HOST,
)
STRICT = (EVEN_LAYERS, EVEN_BATCH)
"""Also kept by layouts in which everything divides; without them the last stage and the last
microbatch are partly idle.
"""


NAMED = {
    rule.name: rule
    for rule in (
        *ALWAYS,
        *STRICT,
        MEGATRON_OFFLOAD,
        FSDP_OFFLOAD,
        MESHED_EXPERTS,
        EXPERTS_CUT_AS_TP,
        EXPERTS_IN_SHARDS,
        SHARDS_TAKE_CP,
        WHOLE_IN_STAGES,
        SHARDED_TOKENS,
        *trainable.TRAINER,
        trainable.ROUNDS,
        *practice.PRACTICE,
        *setting_rules.SETTING_RULES,
    )
}


def of_framework(job: Job) -> tuple[LayoutRule, ...]:
    """What the layouts of the job's framework keep beside `ALWAYS`."""
    return framework_rules(job.profile) if job.profile else ()


def framework_rules(by: Framework) -> tuple[LayoutRule, ...]:
    """What the layouts of a framework keep beside `ALWAYS`."""
    own, have = named_rules(by), by.exchanges
    if not have or {*EXCHANGES} <= {*have}:  # none: its choices have cp 1
        return own
    return (_framework_exchanges(by.name, have), *own)


@lru_cache(maxsize=1024)
def named_rules(by: Framework) -> tuple[LayoutRule, ...]:
    """The rules that a framework names, and those of its settings without which it does not
    start.
    """
    if strange := [name for name in by.rules if name not in NAMED]:
        raise unknown("framework.rules", strange[0], NAMED)
    own = tuple(NAMED[name] for name in by.rules)
    asked = (
        rule
        for rule in setting_rules.rules_of(by)
        if rule in setting_rules.REFUSED
    )
    return (*own, *(rule for rule in asked if rule not in own))


def framework_refusals(job: Job, layout: Layout) -> list[str]:
    """Why the job's framework cannot run the (scalar) layout, a sentence each."""
    return refusals_of(job.profile, job, layout) if job.profile else []


def refusals_of(by: Framework, job: Job, layout: Layout) -> list[str]:
    """Why a framework cannot run the (scalar) layout of a job, whatever framework that names."""
    why = broken_sentences(job, layout, framework_rules(by))
    return why or [*refusal(by.choices, layout, by.name)]


def broken(
    job: Job, layout: Layout, rules: tuple[LayoutRule, ...] = ALWAYS
) -> list[str]:
    """Why the (scalar) layout cannot run this job, a sentence each; empty if it can. The schedule
    must exist.
    """
    schedule_named(layout.schedule)
    return (
        broken_sentences(job, layout, (POSITIVE,))
        or broken_sentences(job, layout, rules)
        or _placement(job, layout)
        or framework_refusals(job, layout)
    )


def _placement(job: Job, layout: Layout) -> list[str]:
    """A placement given by hand must multiply up to the degrees and fit the network's
    dimensions.
    """
    sizes = job.cluster.sizes
    for axis, shares in layout.placement.items():
        if len(shares) != len(sizes):
            return [
                f"placement {axis} must have a number for each of the {len(sizes)} network"
                " dimensions"
            ]
        total: Any = 1
        for share in shares:
            total *= share
        if any(s < 1 for s in shares) or total != getattr(layout, axis):
            return [
                f"placement {axis} = {list(shares)} must multiply up to {axis} ="
                f" {getattr(layout, axis)}"
            ]
    for i, (ranks, room) in enumerate(rooms(layout.placement, sizes)):
        if ranks > room and not _numbered(job, layout):
            return [
                f"placement puts {ranks} ranks in network dimension {i + 1}"
                f" ({job.cluster.network.dims[i].name}), which joins {sizes[i]}"
            ]
    return _laid_out(job, layout)


def _numbered(job: Job, layout: Layout) -> bool:
    """A launcher numbers ranks so: where they fill no whole units, blocks stand for those of full
    ones and a smaller one.
    """
    orders = (AXES, *launcher_orders(job.profile))
    return any(lies(layout, job.cluster.sizes, order) for order in orders)


def _laid_out(job: Job, layout: Layout) -> list[str]:
    """A framework that is named has a launcher, which numbers ranks in one of some orders, or fills
    slices.
    """
    if not job.framework:
        return []
    if lays_out(job.framework, launched(job, layout), job.cluster):
        return []
    known = " or ".join("-".join(o) for o in launcher_orders(job.framework))
    how = (
        f"numbers ranks in the order {known}, nearest first"
        if known
        else f"fills slices of {job.cluster.sizes[0]} with whole shares of the axes"
    )
    return [f"placement is not one that {job.framework.name} uses: it {how}"]


def demand_legal(job: Job, layout: Layout) -> None:
    """Raise BadInput with the sentences the layout deserves, and what would mend them."""
    if why := broken(job, layout):
        raise BadInput(
            alternatives.sentence(layout, why, lambda l: not broken(job, l))
        )


__all__ = [
    "ALWAYS",
    "FILLED",
    "STRICT",
    "LayoutRule",
    "broken",
    "demand_legal",
    "may_be",
    "of_framework",
    "framework_refusals",
]
