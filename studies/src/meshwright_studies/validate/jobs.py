"""One published row to the job it describes. What a row does not say has a default here, in `words`
or `hardware`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from meshwright import catalog
from meshwright.describe.assumptions import Assumptions
from meshwright.describe.chip import Chip
from meshwright.describe.fields import ASK
from meshwright.describe.framework import Framework, framework, questions_of
from meshwright.describe.job import PRECISIONS, Job, with_gradients
from meshwright.describe.layout import Layout
from meshwright.describe.model import MLA, Model, MoE
from meshwright.describe.precision import Precision
from meshwright.describe.software import NOTHING_SAID
from meshwright.describe.stages import read_stages
from meshwright.errors import BadInput
from meshwright.num import Num

from . import hardware, recompute, words
from .rows import (
    Row,
    demand_whole,
    flag_of_row,
    plain,
    positive_number,
    sharding_of_row,
    text_of_row,
    value_of_row,
    whole_of_row,
)
from .software import RowSoftware, deals_modules, software_of

MOST_LAYERS = 5000
FLASH_SINCE = 2023
"""Year from which frameworks fuse attention by default (FlashAttention appeared in May 2022)."""
MEGATRON_ROWS = 128
"""Megatron-LM pads the vocabulary to a multiple of this."""
GROUP = re.compile(
    r"shard\w*[ _-](?:group|degree|size|factor)s?(?: of)?[\s=:]{0,3}(\d+)"
)
"""Ranks of a group that shards among itself and replicates across groups."""
HYBRID = (
    r"\bhsdp\b|hybrid|(?:with)?in(?:side)?(?: \w+){0,2}"
    r" (?:slice|node|pod|domain)|(?:replicat\w*|data[- ]parallel) across"
)
EIGHT_BIT_GATHER = (
    r"\b(?:fp8|float8|mxfp8)[ _-](?:all[ _-]?gather|(?:param\w*|weight)[ _-](?:all[ _-]?)?gather)"
    r"|all[ _-]?gathers?\w* in (?:fp8|float8|8[ -]bit)|fsdp_(?:fp8|float8)_all_gather"
)
OFFLOADED = r"offload|\bnvme\b|zero-infinity|\bcpu\b"
PIPELINE = re.compile(r"pp_layout=(e[t*\d|()]*m*l)")
"""Layers of each stage in Megatron Core's words, as a row's notes have them."""
WINDOW = re.compile(r"sliding[- ]window[- ](\d+)")


class Described(NamedTuple):
    """A row as a job, and what the job does not say of it."""

    job: Job
    notes: tuple[str, ...] = ()
    memory: bool = True
    """What stays on the device is known."""

    def under(self, assumptions: Assumptions) -> Job:
        """The job under a set of assumptions; one that says itself what a framework does is not
        told of it.
        """
        if questions_of(assumptions):
            return replace(self.job, assumptions=assumptions)
        return replace(
            self.job,
            assumptions=assumptions,
            framework=None,
            software=NOTHING_SAID,
        )

    def noted(self, note: str) -> Described:
        """The job of a row with one more note."""
        return self._replace(notes=(*self.notes, note))


def job(row: Row) -> Job:
    """The job of a row, layout included; BadInput says why there is none."""
    return job_and_notes(row).job


def job_and_notes(row: Row) -> Described:
    """The job of a row, layout included, with what had to be assumed or left out; BadInput says why
    there is none.
    """
    shape = _model(row)
    machine = hardware.cluster_of_row(row)
    program = software_of(row)
    by = framework(program.framework)
    recomputation = policy(row, shape)
    plan = replace(
        layout(row, shape, machine.chips, recomputation.mode),
        offload=recomputation.offload,
    )
    job = Job(
        shape,
        machine,
        demand_whole(row, "global_batch"),
        plan,
        precision=row_precision(row, program, by, machine.chip),
        optimizer=words.optimizer(row, is_fsdp(row), by.holding),
        attention_kernel=row_attention(program, positive_number(row, "year")),
        framework=by,
        software=program.settings,
    )
    offloaded = words.speaks_of(OFFLOADED, sharding_of_row(row))
    notes = (
        *program.notes,
        recomputation.note,
        hardware.note(row),
        groups(row, plan),
        "states in host memory are counted on the device" if offloaded else "",
    )
    return Described(
        job,
        tuple(n for n in notes if n),
        recomputation.memory and not offloaded,
    )


def is_fsdp(row: Row) -> bool:
    """Shards as FSDP does."""
    return words.is_fsdp(sharding_of_row(row), text_of_row(row, "software"))


def row_precision(
    row: Row, program: RowSoftware, by: Framework, chip: Chip
) -> Precision:
    """The numbers of a row; those of gradients are the framework's where it does not say. FSDP
    gathers weights in 16 bits unless the row speaks of an 8-bit all-gather (llm-foundry's "bf16
    compute"; an option of torchtitan's).
    """
    text, table = words.texts_of_row(row), words.word_table()
    own = "bf16" if "bf16" in chip.matrix_flops else "fp16"
    spoken = words.first_value(table.precision.values, text["precision"])
    precision = PRECISIONS[spoken or own]
    said = f"{text['precision']} {text['stack']} {text['notes']}"
    if (
        is_fsdp(row)
        and precision.compute in ("fp8", "fp4")
        and not words.speaks_of(EIGHT_BIT_GATHER, said)
    ) or any(
        rule.holds(text, year=None, framework=by.name)
        for rule in table.wide_gathers
    ):
        precision = replace(precision, gather_bytes=precision.weight_bytes)
    return with_gradients(
        precision, program.settings.gradients or by.gradients
    )


def row_attention(program: RowSoftware, year: float | None) -> str:
    """The attention kernel of a row: the one it names, else its framework's; before frameworks
    fused it, none.
    """
    unknown = program.framework == "unknown"
    early = unknown and year is not None and year < FLASH_SINCE
    return program.attention or ("unfused" if early else ASK)


def policy(row: Row, shape: Model) -> recompute.Policy:
    """What the row computes again in the backward pass."""
    chunks = whole_of_row(row, "parallel.pp", 1) * schedule(row)[1]
    return recompute.policy(
        row.get("recompute"),
        text_of_row(row, "software"),
        shape.layers / chunks,
    )


def schedule(row: Row) -> tuple[str, int]:
    """(schedule, interleave) of a row."""
    return words.schedule(
        text_of_row(row, "parallel.schedule"),
        whole_of_row(row, "parallel.pp", 1),
        whole_of_row(row, "parallel.vpp", 1),
    )


def _group(row: Row, plan: Layout) -> Num:
    """Ranks among which a row shards: all replicas, a number it says, or those of a node that tp
    and cp leave.
    """
    said = sharding_of_row(row)
    if size := GROUP.search(said):
        return min(int(size[1]), plan.replicas)
    if not words.speaks_of(HYBRID, said):
        return plan.replicas
    node = whole_of_row(row, "hardware.gpus_per_node", 1)
    return min(node / plan.tp, plan.replicas)


def groups(row: Row, plan: Layout) -> str:
    """A note where the row shards inside groups of ranks that do not divide its replicas."""
    if _group(row, plan) == plan.shards:
        return ""
    return (
        "shards inside groups of ranks and replicates across them: taken as sharded over all"
        " replicas"
    )


def with_groups(row: Row, plan: Layout) -> Layout:
    """The layout with the groups that the row shards in, where they divide its replicas."""
    copies = plan.replicas / max(_group(row, plan), 1)
    fits = (
        copies % 1 == 0
        and plan.dp % copies == 0
        and plan.expert_replicas % copies == 0
        and plan.zero
    )
    return replace(plan, dp_replicate=copies) if fits else plan


def layout(row: Row, shape: Model, chips: int, recompute: str) -> Layout:
    """Degrees and choices of a row, with what runs again. Defaults: degrees 1, dp = what is left of
    the chips, microbatch 1, experts not cut.

    A mixture of experts with tp > 1 has sequence parallelism whatever the row says: each rank
    routes its own tokens. So has JAX unless the row denies it: MaxText's `tensor` axis cuts the
    activations between layers too.
    """
    degrees: dict[str, Any] = {
        name: whole_of_row(row, f"parallel.{name}", 1)
        for name in ("tp", "cp", "pp", "ep", "etp")
    }
    tp, cp, pp = degrees["tp"], degrees["cp"], degrees["pp"]
    order, interleave = schedule(row)
    sequence = flag_of_row(row, "parallel.sp")
    if sequence is None:
        sequence = words.is_jax(text_of_row(row, "software"))
    plain_layout = Layout(
        **degrees,
        dp=whole_of_row(row, "parallel.dp", max(chips // (tp * cp * pp), 1)),
        microbatch=whole_of_row(row, "micro_batch", 1),
        interleave=interleave,
        schedule=order,
        stages=dealt_layers(row, shape, pp),
        zero=words.zero_in_words(
            value_of_row(row, "parallel.zero_stage"), sharding_of_row(row)
        ),
        recompute=recompute,
        cp_exchange=words.exchange_in_words(row),
        sequence_parallel=tp > 1 and (sequence or shape.moe is not None),
    )
    return with_groups(row, plain_layout)


def dealt_layers(row: Row, shape: Model, pp: int) -> str:
    """Layers of each of pp stages where a row gives them for all of its model's layers, or where
    its program counts modules; else as many in each.
    """
    words_of = PIPELINE.search(text_of_row(row, "notes"))
    if words_of:
        text = words_of[1].replace("e", "E").replace("l", "L")
    elif deals_modules(text_of_row(row, "software")):
        text = ",".join(map(str, module_stages(shape.layers, pp)))
    else:
        return "even"
    return text if sum(read_stages(text).layers) == shape.layers else "even"


def module_stages(layers: int, pp: int) -> list[int]:
    """Layers of each stage where a pipeline of modules is cut into stages of as many, the first
    ones one more: the embedding stands before the layers, the last norm and the head behind them.

    Source: Aleph-Alpha/scaling@01b9d21, core/nn/parallel_module/pipeline_partitioning.py
    (pipe_partition_uniform, the default of core/topology/topology_config.py) over the modules of
    transformer/model/model.py.
    """
    least, more = divmod(layers + 3, pp)
    ends = [0, *(least * n + min(n, more) for n in range(1, pp + 1))]
    # of the modules before a cut the first is the embedding; the last two are no layers either
    before = [min(max(end - 1, 0), layers) for end in ends]
    return [b - a for a, b in pairwise(before)]


SIZES = {
    "layers": "layers",
    "hidden": "hidden",
    "ffn": "ffn_hidden",
    "heads": "heads",
    "vocab": "vocab",
    "seq": "seq_len",
}
"""Field of a model -> its name in a row, which must say it."""
SIZES_OF_MAXTEXT = re.compile(r"maxtext-\d+b", re.IGNORECASE)
"""Models that are nothing but a size (global_parameter_scale)."""
UNSAID = ("qkv_bias", "bias", "rope_scaling")
GROUPS = ("groups", "top_groups")
"""What a public model has and no row speaks of; groups only of as many experts."""
MAXTEXT: dict[str, Any] = {
    "norm": "rmsnorm",
    "norms_per_layer": 1,
    "positions": "rope",
    "qkv_bias": False,
    "bias": False,
}
"""What MaxText builds of a size alone, at the commit of the rows' configurations (76bd53b0f:
MaxText/layers/models.py, DecoderLayer): attention and feed-forward side by side after one RMS norm,
rotary positions, no biases. Its GPT-3 (layers/gpt3.py) and those of Pax
(contrib/gpu/scripts_gpu/configs.py) are GPTs.
"""


def _model(row: Row) -> Model:
    """The shape of a row's model. Gated means Llama-like (RMS norm, rotary positions, no biases);
    otherwise GPT-like (layer norm, biases, learned positions unless ALiBi, embedding shared with
    the head). GPTs have dropout unless the row speaks of ALiBi or of no biases. Those of JAX have
    none: dropout_rate of MaxText (configs/base.yml) and DROPOUT_PROB of Pax (tasks/lm/
    model_params.py) are 0.
    """
    if re.search(r"mamba|hybrid|ssm|rwkv", text_of_row(row, "model.arch")):
        raise BadInput("state-space layers are not described yet")
    size: dict[str, Any] = {
        name: demand_whole(row, f"model.{key}") for name, key in SIZES.items()
    }
    if size["layers"] > MOST_LAYERS:
        raise BadInput(
            f"layers must be at most {MOST_LAYERS}, not {size['layers']}"
        )
    attention = text_of_row(row, "model.attention")
    notes = text_of_row(row, "notes")
    stated = flag_of_row(row, "model.gated")
    tied = flag_of_row(row, "model.tied_embeddings")
    window = WINDOW.search(attention)
    alibi = "alibi" in attention
    gated = stated if stated is not None else size["ffn"] != 4 * size["hidden"]
    biased = not gated and "no bias" not in notes
    jax = words.is_jax(text_of_row(row, "software"))
    rotary = gated or "rotary" in notes
    shape = Model(
        plain(row, "model.name")[:80] or "unnamed",
        **size,
        kv_heads=whole_of_row(row, "model.kv_heads", 0) or None,
        head_dim=whole_of_row(row, "model.head_dim", 0) or None,
        gated=gated,
        window=int(window[1]) or None if window else None,
        full_every=1 if not window else 2 if "alternating" in attention else 0,
        norm="rmsnorm" if gated else "layernorm",
        positions="rope" if rotary else "alibi" if alibi else "learned",
        qk_norm="qwen3" in text_of_row(row, "model.name"),
        qkv_bias=biased,
        bias=biased,
        dropout=biased and not alibi and not jax,
        attention_sinks="sink" in attention,
        tied_embeddings=tied if tied is not None else not gated,
        vocab_multiple=1
        if "fsdp" in text_of_row(row, "software")
        else MEGATRON_ROWS,
        mla=row_latent_attention(row),
        moe=row_experts(row, size["ffn"]),
        mtp_layers=whole_of_row(row, "model.mtp_layers", 0),
    )
    if jax and SIZES_OF_MAXTEXT.fullmatch(shape.name):
        shape = replace(shape, **MAXTEXT)
    return as_published(shape)


def as_published(shape: Model) -> Model:
    """A public model with its biases, positions and groups of experts, of which no row speaks:
    those of the catalogue's model of the same name and widths.
    """
    if not catalog.has("models", shape.name):
        return shape
    known = catalog.model(shape.name)
    if (known.hidden, known.ffn) != (shape.hidden, shape.ffn):
        return shape
    moe = shape.moe
    if moe and known.moe:
        same = (moe.experts, moe.top_k) == (
            known.moe.experts,
            known.moe.top_k,
        )
        names = ("router_bias", "expert_bias", *(GROUPS if same else ()))
        moe = replace(moe, **{n: getattr(known.moe, n) for n in names})
    own = {name: getattr(known, name) for name in UNSAID}
    return replace(shape, **own, moe=moe)


def row_latent_attention(row: Row) -> MLA | None:
    """Latent attention, with DeepSeek-V3's widths where the row only says that there is some."""
    said = value_of_row(row, "model.mla")
    if not said and "mla" not in text_of_row(row, "model.arch"):
        return None
    queries = 0 if said and isinstance(said, dict) else 1536
    widths = {
        name: whole_of_row(row, f"model.mla.{name}", width)
        for name, width in DEEPSEEK_V3.items()
    }
    rank = whole_of_row(row, "model.mla.q_lora_rank", queries)
    return MLA(**widths, q_lora_rank=rank or None)


DEEPSEEK_V3 = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def row_experts(row: Row, ffn: int) -> MoE | None:
    """The mixture of experts, if the row has one."""
    count = whole_of_row(row, "model.experts", 0)
    if count <= 1:
        if "moe" in text_of_row(row, "model.arch"):
            raise BadInput("model.experts is not given")
        return None
    return MoE(
        count,
        demand_whole(row, "model.top_k"),
        whole_of_row(row, "model.expert_ffn", ffn),
        shared_ffn=whole_of_row(row, "model.shared_expert_ffn", 0),
        dense_layers=whole_of_row(row, "model.dense_layers", 0),
    )
