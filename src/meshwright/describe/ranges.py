"""Which values a field of the description may have: ranges, choices, and what two fields must agree
on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations
from typing import Any

from ..errors import BadInput
from ..exchange import EXCHANGES
from ..num import product
from . import layers
from .chip import PRECISIONS, Chip
from .fields import ASK
from .holding import Holding
from .layout import AXES, SCHEMES, Layout
from .measured import Overhead, Table
from .mixers import Linear, StateSpace
from .model import Model, MoE
from .network import KINDS, Network
from .recompute import PARTS

WHOLE = (1.0, 1e9)
"""Least and most of a whole number unless RANGES says otherwise; so large that no product of a few
overflows.
"""
REAL = (1e-30, 1e30)
"""Least and most of a quantity in SI units unless RANGES says otherwise."""
NONE_OR_MORE = (0.0, 1e30)
MOST_USD = 1e6
"""For an hour of a chip: more than a rack costs to buy."""
SHARE = (1e-6, 1.0)
ANY_SHARE = (0.0, 1.0)
RISK = (1e-6, 1 - 1e-6)

TRANSPORT = (
    "launch",
    "hop",
    "hop_ll",
    "climb",
    "climb_ll",
    "copied",
    "mix",
    "mix_ll",
    "sharp",
    "sharp_wait",
    "sharp_mix",
    "exchange_launch",
    "exchange_copied",
    "exchange_mix",
    "believed_step",
)
"""Numbers of a transport that may be nothing."""

RANGES: dict[str, tuple[float, float]] = {
    "Model.layers": (1, 1e5),
    "Model.vocab": (0, 1e9),
    "Model.ffn": (0, 1e9),
    "Model.full_every": (0, 1e5),
    "Model.mtp_layers": (0, 1e3),
    "Model.norm_epsilon": (0, 1.0),
    "Model.vectors": (0, 1e9),
    "Model.token_types": (0, 1e9),
    "MoE.latent": (0, 1e9),
    "MoE.idle_experts": (0, 1e9),
    "Linear.conv": (0, 1e5),
    "Linear.decay_rank": (0, 1e9),
    "Linear.gate_rank": (0, 1e9),
    "Linear.vectors": (0, 1e9),
    "StateSpace.conv": (0, 1e5),
    "StateSpace.dt_rank": (0, 1e9),
    "Model.rotary_share": SHARE,
    "MoE.shared_ffn": (0, 1e9),
    "MoE.dense_layers": (0, 1e5),
    "Chip.sustained": SHARE,
    "Installation.scale": (1e-3, 1e3),
    "Installation.steps": (0, 1e9),
    "Chip.host_bandwidth": NONE_OR_MORE,
    "Chip.host_memory_bandwidth": NONE_OR_MORE,
    "Chip.host_reached": SHARE,
    "Chip.power_w": NONE_OR_MORE,
    "Chip.runtime_bytes": NONE_OR_MORE,
    "Chip.usd_per_hour": (0.0, MOST_USD),
    "Hierarchy.usable": SHARE,
    "Dim.latency": NONE_OR_MORE,
    "Dim.efficiency": SHARE,
    **dict.fromkeys((f"Transport.{name}" for name in TRANSPORT), NONE_OR_MORE),
    "Cluster.chips": (1, 1e8),
    "Layout.zero": (0, 3),
    "Layout.microbatch_group": (0, 1e9),
    "Job.seq": (0, 1e9),
    "Job.tokens": NONE_OR_MORE,
    "Optimizer.state_bytes": NONE_OR_MORE,
    "Optimizer.master_bytes": NONE_OR_MORE,
    "Optimizer.flops": NONE_OR_MORE,
    "Optimizer.iterations": (0, 100),
    "ChipTime.matrix_efficiency": SHARE,
    "ChipTime.sustained": SHARE,
    "ChipTime.vector_efficiency": SHARE,
    "ChipTime.memory_efficiency": SHARE,
    "ChipTime.launch_s": NONE_OR_MORE,
    "NetworkTime.efficiency": SHARE,
    "Table.points": NONE_OR_MORE,
    "Table.seconds": NONE_OR_MORE,
    "Table.residual": NONE_OR_MORE,
    "Overhead.step": NONE_OR_MORE,
    "Overhead.microbatch": NONE_OR_MORE,
    "Overhead.layer": NONE_OR_MORE,
    "Overhead.layer_microbatch": NONE_OR_MORE,
    "Overhead.residual": NONE_OR_MORE,
    "Power.exponent": (-2.0, 2.0),
    "Law.batch_experts": (0.0, 2.0),
    "Scenario.linear": SHARE,
    "Failures.restart_s": NONE_OR_MORE,
    "Hide.share": ANY_SHARE,
    "Hide.slow": ANY_SHARE,
    "HidePass.share": ANY_SHARE,
    "HidePass.slow": ANY_SHARE,
    "Hide.most": ANY_SHARE,
    "HidePass.most": ANY_SHARE,
    "Weights.gathers": SHARE,
    "Framework.ep_overlap_share": ANY_SHARE,
    "MemoryCount.framework_bytes": NONE_OR_MORE,
    "Framework.framework_bytes": NONE_OR_MORE,
    "Kernels.share": SHARE,
    "Kernels.clock": SHARE,
    "Kernels.memory": SHARE,
    "Kernels.scores": SHARE,
    "Kernels.crowd": NONE_OR_MORE,
    "Kernels.crowd_weights": NONE_OR_MORE,
    "Kernels.depth": NONE_OR_MORE,
    "Kernels.waves": ANY_SHARE,
    "Kernels.added": ANY_SHARE,
    "Kernels.power_w": NONE_OR_MORE,
    "Kernels.power_exponent": ANY_SHARE,
    "Kernels.alignment": (0.0, 4.0),
    "Kernels.launch_s": NONE_OR_MORE,
    "Kernels.quantise": NONE_OR_MORE,
    "Stack.quantise": NONE_OR_MORE,
    "Framework.quantise": NONE_OR_MORE,
    "FusedAttention.length": NONE_OR_MORE,
    "ChipTime.wide_norm": (1.0, 100.0),
    **dict.fromkeys(
        (
            "Host.backward",
            "Host.experts_s",
            "Host.embedding",
            "Host.head",
            "Host.parts",
            "Host.full",
        ),
        NONE_OR_MORE,
    ),
    "Stack.host_s": NONE_OR_MORE,
    "Stack.step_s": NONE_OR_MORE,
    "Framework.elementwise": (0.1, 100.0),
    "Framework.elementwise_compiled": (0.1, 100.0),
    "Framework.host_s": NONE_OR_MORE,
    "Framework.step_s": NONE_OR_MORE,
    "Framework.tp_overlap_share": ANY_SHARE,
    "Framework.cp_overlap_share": ANY_SHARE,
    "Framework.gather_share": SHARE,
    "MemoryCount.capacity_share": SHARE,
    "MemoryCount.risk_width": (0.0, 10.0),
    "MemoryCount.headroom": RISK,
    "Job.headroom": RISK,
    **{f"Holding.{f.name}": NONE_OR_MORE for f in dataclasses.fields(Holding)},
    "Settings.final_lr": ANY_SHARE,
    "Settings.warmup": (0, 1e9),
    "Settings.beta1": NONE_OR_MORE,
    "Settings.beta2": NONE_OR_MORE,
    "Settings.epsilon": (1e-20, 1.0),
    "Settings.weight_decay": NONE_OR_MORE,
    "Settings.clip": NONE_OR_MORE,
    "Settings.seed": (0, 2**53),
    "Settings.save_every": (0, 1e9),
    "Settings.keep_every": (0, 1e9),
    "Settings.decay": (0, 1e9),
    "Settings.eval_every": (0, 1e9),
    "Settings.sample": (0, 1e9),
    "Settings.ramp_batch": (0, 1e9),
    "Settings.ramp_steps": (0, 1e9),
    "Settings.restarts": (0, 1e9),
    "Settings.check_every": (0, 1e9),
    "Settings.record": (0, 1e9),
    "Settings.profile": (0, 1e9),
    "Settings.shards": (0, 1e9),
    "Settings.threads": (1, 1024),
    "Settings.timeout": (1e-3, 1e6),  # twice that, in ms, is a C int of gloo
}

ATTENTION = ("fa1", "fa2", "fa3", "cudnn", "xla", "torch", "fused-softmax")
"""Attention kernels: FlashAttention of three generations, cuDNN's, XLA's own; unfused in plain
torch, or with Megatron's fused softmax.
"""
SOFTWARE = {
    "cuda_graphs": ("off", "parts", "full"),
    "norm": ("fused", "torch"),
    "float8": ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8"),
    "dispatcher": ("alltoall", "deepep", "hybridep"),
    "tp_overlap": ("off", "backward", "all"),
    "dp_overlap": ("off", "gradients", "all"),
    "gradients": ("fp32", "half"),
    "loss": ("own", "eager"),
    "gathered_inputs": ("regathered", "kept"),
    "input_gradients": ("together", "apart"),
    "stage_message": ("scattered", "whole"),
}
"""What a job may say of its software, and a framework does by itself."""
ANSWERS = {
    **{
        name: SOFTWARE[name]
        for name in ("gathered_inputs", "input_gradients", "stage_message")
    },
    "gathered_keys": ("regathered", "kept"),
    "backward_needs": ("fused", "autograd"),
    "weight_gradient": ("apart", "added", "one pass"),
    "rotary": ("fused", "apart"),
    "selective": tuple(PARTS),
    "send_overlap": ("none", "interleaved", "all"),
    "step_barrier": ("none", "global norm"),
    "resident": ("layers", "held", "program"),
}
"""What a framework may answer, and a set of assumptions may say or leave to it."""

CHOICES: dict[str, tuple[str, ...]] = {
    "Model.attention": ("causal", "full"),
    "Model.norm": ("rmsnorm", "layernorm", "layernorm-scale", "nonparametric"),
    "Model.activation": ("silu", "gelu", "gelu-tanh", "relu", "other"),
    "Model.attention_gate": ("none", "head", "element"),
    "Linear.kind": ("delta", "lightning", "gated"),
    "Linear.decay": ("head", "channel", "fixed"),
    "Linear.output_gate": ("none", "head", "element"),
    "Linear.norm": ("head", "whole", "none"),
    "StateSpace.kind": ("mamba2", "mamba"),
    "RopeScaling.kind": (
        "linear",
        "llama3",
        "yarn",
        "dynamic",
        "longrope",
        "other",
    ),
    "Model.positions": ("rope", "learned", "alibi", "none"),
    "Dim.kind": KINDS,
    "Layout.scheme": SCHEMES,
    "Layout.cp_exchange": (*EXCHANGES,),
    "Layout.placement": AXES,
    "Chip.matrix_flops": PRECISIONS,
    "Precision.compute": PRECISIONS,
    "Job.attention_kernel": ("flash", "unfused", *ATTENTION, ASK),
    **{
        f"{cls}.{name}": values
        for name, values in SOFTWARE.items()
        for cls in ("Software", "Framework")
    },
    **dict.fromkeys(
        ("Framework.attention", "Framework.flash", "Framework.unfused"),
        ATTENTION,
    ),
    "Framework.orders": tuple("-".join(of) for of in permutations(AXES)),
    "Framework.gradient_collective": ("reduce-scatter", "all-reduce"),
    "Counting.dot_product": ("2k", "2k-1"),
    "Counting.causal": ("full", "half", "window"),
    "Counting.dropout": ("blocks", "lbl"),
    "Counting.output_bias": ("sharded", "replicated"),
    "Counting.gathered_inputs": (*ANSWERS["gathered_inputs"], ASK),
    "Counting.input_gradients": (*ANSWERS["input_gradients"], ASK),
    "Counting.attention_output": ("once", "twice"),
    "Counting.weight_gradient": (*ANSWERS["weight_gradient"], ASK),
    "Counting.gathered_keys": (*ANSWERS["gathered_keys"], ASK),
    "Counting.backward_needs": (*ANSWERS["backward_needs"], ASK),
    "Counting.rotary": (*ANSWERS["rotary"], ASK),
    "Counting.stage_message": (*ANSWERS["stage_message"], ASK),
    "Counting.selective": (*ANSWERS["selective"], ASK),
    "ChipTime.model": (
        "peak",
        "roofline",
        "hierarchy",
        "calibrated",
        "by-shape",
    ),
    "Stack.kernel": (*ATTENTION, "flash", ASK),
    **dict.fromkeys(
        ("Stack.weights_quantised", "Framework.weights_quantised"),
        ("pass", "step"),
    ),
    **{
        f"Stack.{name}": SOFTWARE[name]
        for name in ("norm", "cuda_graphs", "float8")
    },
    **{
        f"{kind}.quantise": (*SOFTWARE["float8"], "nvfp4")
        for kind in ("Kernels", "Stack", "Framework")
    },
    "NetworkTime.collective": (
        "nccl",
        "ring",
        "best",
        "levels",
        "book",
        "free",
        "measured",
    ),
    "NetworkTime.ring_factor": ("exact", "one"),
    "NetworkTime.hop": ("slowest", "mean"),
    "Hide.scope": (
        "none",
        "weight gradient",
        "operation",
        "sublayer",
        "layer",
        "step",
        ASK,
    ),
    "Weights.gradients": ("reduce-scatter", "all-reduce", ASK),
    "HidePass.scope": ("none", "backward", "pass", "layer", "step", ASK),
    "HidePass.links": ("shared", "serial", "free"),
    "Scenario.schedules": ("1f1b", "zb-h2"),
    "Overlap.pp": (*ANSWERS["send_overlap"], ASK),
    "MemoryCount.resident": (*ANSWERS["resident"], ASK),
    **{f"Framework.{name}": values for name, values in ANSWERS.items()},
    "Holding.gradient_bytes": PRECISIONS,
    "Holding.unit_gradient": ("accumulated", "activations", "none"),
    "Holding.step_copies": ("reused", "new"),
    "Overlap.step_barrier": (*ANSWERS["step_barrier"], ASK),
    "Settings.device": ("cpu", "cuda"),
    "Settings.schedule": ("cosine", "linear", "wsd", "constant"),
}
"""Allowed values of every field that holds a text, texts or keys; a field without a list must be in
FREE.
"""

FREE: dict[str, str] = {
    **dict.fromkeys(
        (
            "Assumptions.name",
            "Chip.name",
            "Cluster.name",
            "Optimizer.name",
            "Model.name",
            "Dim.name",
            "Network.name",
            "Scenario.name",
            "Law.name",
            "Framework.name",
            "Kernels.name",
            "Transport.name",
            "Chip.vendor",
            "Chip.aliases",
            "Network.aliases",
        ),
        "a name its author gives",
    ),
    **dict.fromkeys(
        (
            "Assumptions.source",
            "Law.source",
            "Table.fit",
            "Table.axes",
            "Chip.sources",
            "Table.sources",
            "Overhead.sources",
            "Model.sources",
            "Network.sources",
            "Framework.sources",
            "Kernels.sources",
            "Installation.sources",
            "Transport.sources",
        ),
        "for people",
    ),
    **dict.fromkeys(
        ("Chip.network", "Chip.framework", "Chip.kernel_law", "Network.chip"),
        "a name of the catalogue, refused there",
    ),
    **dict.fromkeys(
        (
            "Chip.kernels",
            "Cluster.engine",
            "Dim.collectives",
            "Kernels.attention",
        ),
        "names of what was measured",
    ),
    "Assumptions.framework": "a name of catalog/frameworks, refused there",
    **dict.fromkeys(
        ("Dim.transport", "Transport.like"),
        "a name of catalog/transports, refused there",
    ),
    "Job.train": "fields of `train.settings`, refused there",
    "Framework.rules": "names of `layout.trainable`, refused there",
    "Layout.offload": "words of `describe.offload`, refused there",
    "Layout.recompute": "words of `describe.recompute`, refused there",
    "Layout.schedule": "a name of `schedule.SCHEDULES`, refused there",
    "Layout.stages": "words of `describe.stages`, refused there",
    "Model.notes": "sentences",
    "Model.pattern": "words of `describe.layers`, refused there",
    **dict.fromkeys(
        (
            "Settings.data",
            "Settings.eval_data",
            "Settings.weights",
            "Settings.output",
        ),
        "a path",
    ),
}
"""Fields that may hold any text, and why."""


def check(instance: Any, where: str) -> None:
    """Raise BadInput if fields of a description contradict each other; `where` names it in the
    sentence.
    """
    rule = RULES.get(type(instance))
    if rule and (reason := rule(instance)):
        raise BadInput(f"{where}: {reason}")


def _model(m: Model) -> str:
    if m.head_dim is None and m.mla is None and m.hidden % m.heads:
        return (
            f"hidden {m.hidden} cannot be split into {m.heads} heads; change heads, or give"
            " head_dim"
        )
    if m.heads % m.K:
        return f"kv_heads {m.K} must divide heads {m.heads}"
    if m.moe and m.moe.dense_layers > m.layers:
        return f"moe.dense_layers {m.moe.dense_layers} are more than the {m.layers} layers"
    return layers.check(m)


def _moe(m: MoE) -> str:
    choices = m.experts + m.idle_experts
    if m.top_k > choices:
        return f"top_k {m.top_k} is more than the {choices} experts"
    if m.shared_gate and not m.shared_ffn:
        return "shared_gate scales shared experts, and there are none; give shared_ffn"
    return ""


def _linear(m: Linear) -> str:
    return (
        f"key_heads {m.keys} must divide heads {m.heads}"
        if m.heads % m.keys
        else ""
    )


def _ssm(m: StateSpace) -> str:
    if m.inner % m.heads:
        return f"heads {m.heads} must divide inner {m.inner}"
    return (
        f"groups {m.groups} must divide heads {m.heads}"
        if m.heads % m.groups
        else ""
    )


def _chip(c: Chip) -> str:
    return (
        ""
        if c.matrix_flops
        else "matrix_flops must name at least one precision, such as { bf16 = '989 TFLOP/s' }"
    )


def _network(n: Network) -> str:
    if not n.dims:
        return "dims must have at least one dimension"
    if any(d.size is None for d in n.dims[:-1]):
        return "only the last dimension may be without a size"
    names = [d.name for d in n.dims]
    return (
        f"dimension names must differ, not {', '.join(names)}"
        if len(set(names)) < len(names)
        else ""
    )


def _layout(layout: Layout) -> str:
    lengths = {len(v) for v in layout.placement.values()}
    if layout.placement and (
        set(layout.placement) != set(AXES) or len(lengths) > 1
    ):
        return (
            f"placement must give each of {', '.join(AXES)} as many numbers as the network has"
            " dimensions"
        )
    return ""


def _table(t: Table) -> str:
    if len(t.axes) != len(t.points) or not 1 <= len(t.axes) <= 5:
        return "points must give a list of sizes for each of 1 to 5 axes"
    if not all(ascending(sizes) for sizes in t.points):
        return "the sizes of an axis must ascend"
    cells = product(len(sizes) for sizes in t.points)
    return (
        ""
        if len(t.seconds) == cells
        else f"seconds must have {cells} numbers, one for each point, not {len(t.seconds)}"
    )


def _overhead(o: Overhead) -> str:
    if not ascending(o.ranks):
        return "ranks must ascend"
    lengths = {
        len(values)
        for values in (
            o.ranks,
            o.step,
            o.microbatch,
            o.layer,
            o.layer_microbatch,
        )
    }
    return (
        ""
        if len(lengths) == 1
        else "step, microbatch, layer and layer_microbatch must have a number for each of ranks"
    )


def ascending(values: Sequence[float]) -> bool:
    """At least one value, each larger than the one before."""
    return bool(values) and all(a < b for a, b in pairwise(values))


RULES: dict[type, Callable[[Any], str]] = {
    Model: _model,
    MoE: _moe,
    Linear: _linear,
    StateSpace: _ssm,
    Chip: _chip,
    Network: _network,
    Layout: _layout,
    Table: _table,
    Overhead: _overhead,
}
"""What the fields of one dataclass must agree on: "" or the reason they do not."""


def required(cls: type) -> list[str]:
    """Fields of a dataclass without a default."""
    return [
        f.name
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
