"""What the software does: what a framework keeps, counts and overlaps, and which layouts it can
run.

A set of assumptions leaves to the framework what it has no answer of its own to (`ASK`); `answered`
fills that in. The profiles lie in catalog/frameworks, each field with its source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any

from ..errors import BadInput, unknown
from . import fitted
from .assumptions import (
    NOT_HIDDEN,
    Assumptions,
    Hide,
    HidePass,
    Stack,
    Weights,
    left_open,
)
from .chip import Chip
from .choices import Choices
from .fields import ASK, Checked, Unit
from .frozen import FrozenDict, freeze, shown, varied
from .holding import Holding
from .read import merged, read
from .software import Software

USUAL = "megatron-core"
"""The framework that is asked where neither job nor set nor chip names one."""
ANSWERS = {
    "count": (
        "gathered_inputs",
        "input_gradients",
        "gathered_keys",
        "backward_needs",
        "weight_gradient",
        "rotary",
        "stage_message",
        "selective",
    ),
    "chip": ("stack",),
    "overlap": {
        "dp": "dp_hidden",
        "tp": "tp_hidden",
        "cp": "cp_hidden",
        "ep": "ep_hidden",
        "pp": "send_overlap",
        "weights": "weights",
        "step_barrier": "step_barrier",
    },
    "memory": ("resident", "framework_bytes", "holding"),
}
"""Joint of a set -> the fields a framework answers (field of the set -> field of the framework,
where the names differ).
"""


@dataclass(frozen=True)
class Framework(Checked):
    """The profile of a framework. Fields that a set of assumptions asks for are described there
    (`describe.assumptions`).
    """

    name: str
    gathered_inputs: str
    input_gradients: str
    gathered_keys: str
    backward_needs: str
    weight_gradient: str
    rotary: str
    stage_message: str
    selective: str
    gradient_overlap: HidePass
    """How far collectives of weights and gradients hide where `dp_overlap` lets them."""
    dp_overlap: str
    """Which of them run beside compute."""
    send_overlap: str
    """`Overlap.pp`."""
    step_barrier: str
    resident: str
    framework_bytes: Annotated[float, Unit("B")]
    attention: str
    """The attention kernel that runs unless the job names one (`Job.attention_kernel`)."""
    flash: str
    """The fused kernel that it has."""
    unfused: str
    """The kernel that it has for unfused attention."""
    norm: str
    elementwise: float
    """Bytes that passes over activations move, over those that their inputs and outputs need."""
    elementwise_compiled: float
    """The same with torch.compile."""
    compiled: bool
    cuda_graphs: str
    host_s: Annotated[float, Unit("s")]
    """Seconds in which the host launches the forward pass of one layer."""
    step_s: Annotated[float, Unit("s")]
    """Seconds of each step beside everything else: the optimizer's launches, logging, the next
    batch.
    """
    float8: str
    weights_quantised: str
    """`Stack.weights_quantised`."""
    dispatcher: str
    ep_overlap: bool
    ep_overlap_share: float
    """Of the all-to-all of the experts, what hides where it is overlapped."""
    tp_overlap: str
    tp_overlap_share: float
    """Of what `tp_overlap` overlaps, what hides, where it does."""
    cp_overlap_share: float
    """The same of the exchange of keys and values."""
    gradients: str
    gradient_collective: str
    """With ZeRO 1 and more, gradients are summed by reduce-scatter, or by all-reduce (DeepSpeed's
    ZeRO-1).
    """
    gather_share: float
    """Of the rate of a link between nodes that gathers of whole weights reach (ZeRO 3)."""
    logits_gathered: bool
    """The loss is computed on the logits of all tp ranks, gathered on each: eagerly, and with two
    more 16-bit copies (one at tp 1).
    """
    loss: str
    """The loss is as `holding` counts it ("own"), or torch's in eager mode ("eager")."""
    holding: Holding
    """What it holds beside states and saved tensors (`MemoryCount.holding`)."""
    quantise: Mapping[str, float] = field(default_factory=FrozenDict)
    """Recipe of FP8 -> bytes moved for each element that its own kernels quantise, where they are
    not those of `Kernels.quantise`.
    """
    choices: tuple[Choices, ...] = ()
    """Layouts it can run: those that one of these allows; empty = all."""
    proposes: tuple[Choices, ...] = ()
    """Those of them that its released version runs, and so a plan takes unless other values are
    named, each a strategy of its own; empty = all.
    """
    rules: tuple[str, ...] = ()
    """Names of rules (`layout.trainable`) that its layouts keep beside those of all."""
    orders: tuple[str, ...] = ()
    """Orders of the axes, nearest first (tp-cp-dp-pp), in which its launcher numbers ranks: who
    names the framework gets no other placement; empty: any.
    """
    sources: Mapping[str, Mapping[str, str]] = field(
        default_factory=FrozenDict, compare=False
    )
    """Where each field is from."""

    __repr__ = shown

    def __post_init__(self) -> None:
        """Mappings are frozen."""
        super().__post_init__()
        frozen = {
            name: FrozenDict(origin) for name, origin in self.sources.items()
        }
        object.__setattr__(self, "sources", FrozenDict(frozen))
        freeze(self, "quantise")

    @property
    def stack(self) -> Stack:
        """What its kernels and its host add, as a set of assumptions reads it."""
        return Stack(
            kernel=self.attention,
            elementwise=self.elementwise_compiled
            if self.compiled
            else self.elementwise,
            norm=self.norm,
            host_s=self.host_s,
            step_s=self.step_s,
            cuda_graphs=self.cuda_graphs,
            float8=self.float8,
            weights_quantised=self.weights_quantised,
            quantise=self.quantise,
        )

    @property
    def dp_hidden(self) -> HidePass:
        """`Overlap.dp`."""
        if self.dp_overlap == "off":
            return HidePass()
        if self.dp_overlap == "gradients":
            return replace(self.gradient_overlap, scope="backward")
        return self.gradient_overlap

    @property
    def tp_hidden(self) -> Hide:
        """`Overlap.tp`."""
        if self.tp_overlap == "off":
            return NOT_HIDDEN
        if self.tp_overlap == "all":
            return Hide("sublayer", most=self.tp_overlap_share)
        return Hide("weight gradient", most=self.tp_overlap_share)

    @property
    def weights(self) -> Weights:
        """`Overlap.weights`."""
        return Weights(self.gradient_collective, self.gather_share)

    @property
    def cp_hidden(self) -> Hide:
        """`Overlap.cp`: attention on the blocks that are there."""
        return (
            Hide("operation", most=self.cp_overlap_share)
            if self.cp_overlap_share
            else NOT_HIDDEN
        )

    @property
    def ep_hidden(self) -> Hide:
        """`Overlap.ep`: beside another microbatch, as long as this one's layer."""
        return (
            Hide("layer", most=self.ep_overlap_share)
            if self.ep_overlap
            else NOT_HIDDEN
        )

    def answer(self, joint: str, name: str) -> Any:
        """Its answer to a field of a set."""
        fields: Any = ANSWERS[joint]
        return getattr(
            self, fields[name] if isinstance(fields, dict) else name
        )


def asked(how: Assumptions) -> tuple[tuple[str, str], ...]:
    """(joint, field) of what a set leaves to the framework."""
    every = (
        (joint, name) for joint, names in ANSWERS.items() for name in names
    )
    found = (
        (joint, name, getattr(getattr(how, joint), name))
        for joint, name in every
    )
    return tuple(
        (joint, name)
        for joint, name, value in found
        if value is None or left_open(value)
    )


@lru_cache(maxsize=1024)
def running(by: Framework, kernel: str, said: Software) -> Framework:
    """The framework with what a job says of its software. kernel: `Job.attention_kernel`."""
    if said.dp_overlap not in (None, "off") and by.dp_overlap == "off":
        raise BadInput(
            f"software.dp_overlap {said.dp_overlap}: {by.name} waits for the collectives of"
            " replicas, so only off"
        )
    named = {ASK: by.attention, "flash": by.flash, "unfused": by.unfused}
    return replace(by, attention=named.get(kernel, kernel), **said.given)


@lru_cache(maxsize=1024)
def answered(how: Assumptions, by: Framework) -> Assumptions:
    """The set with the framework's answers in place of its questions."""
    found: dict[str, dict[str, Any]] = {}
    for joint, name in asked(how):
        found.setdefault(joint, {})[name] = by.answer(joint, name)
    joints: dict[str, Any] = {
        joint: varied(getattr(how, joint), **fields)
        for joint, fields in found.items()
    }
    return replace(how, **joints) if joints else how


@cache
def frameworks() -> dict[str, Framework]:
    """name -> profile, with the numbers that runs tell."""
    return {
        name: fitted.applied(f"frameworks/{name}", of)
        for name, of in as_written().items()
    }


@cache
def as_written() -> dict[str, Framework]:
    """name -> profile of the catalogue's files, before any run."""
    folder = resources.files("meshwright") / "catalog" / "frameworks"
    files = {f.name.removesuffix(".toml"): f for f in folder.iterdir()}
    said = {
        name: tomllib.loads(files[name].read_text("utf-8"))
        for name in sorted(files)
    }
    whole = {
        name: {"name": name, **table, "holding": _holding(name, said)}
        for name, table in said.items()
    }
    return {
        name: read(Framework, table, f"framework {name}")
        for name, table in whole.items()
    }


def _holding(name: str, said: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a framework holds, laid over what the one holds that it is `like`."""
    own = dict(said[name]["holding"])
    base = own.pop("like", None)
    return merged(_holding(base, said), own) if base else own


def framework(name: str) -> Framework:
    """The profile of that name; BadInput names the nearest ones."""
    if name not in frameworks():
        raise unknown("framework", name, frameworks())
    return frameworks()[name]


def usual(how: Assumptions, chip: Chip) -> str:
    """The framework where a job names none: the set's, else that of the chip."""
    return how.framework or chip.framework or USUAL
