"""How a model is spread over chips.

Degrees: tp x cp x pp x dp = chips. `ep` and `etp` borrow ranks: experts are spread over ep ranks
taken from tp x cp x dp, each expert cut etp ways. `dp` counts replicas of the batch; weights are
also synchronised over cp.

Fields may hold NumPy arrays when a whole table of layouts is evaluated; categorical fields never
do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from ..errors import BadInput
from ..exchange import EXCHANGES
from ..num import Num, maximum, minimum, product, where
from ..schedule import get as schedule_named
from .fields import (
    Checked,
    Count,
    Degree,
    Known,
    OneOf,
    Parsed,
    Range,
    Searched,
    fields_of,
)
from .frozen import short_repr, with_values
from .frozendict import EMPTY
from .offload import offload
from .recompute import RECOMPUTE, recompute
from .stages import RULES, read_stages

AXES = ("tp", "cp", "dp", "pp")
"""Mesh axes in canonical order, the one that communicates most first (nearest)."""
SCHEMES = ("megatron", "context", "gspmd", "summa", "mlp2d")
HIDDEN_CUT = ("gspmd",)
"""Schemes under which tp cuts the hidden size of what lies between matrices, never its tokens."""
GRIDS = ("summa", "mlp2d")
"""Schemes under which cp cuts weights too, so that replicas are those of dp alone."""
PLANE = {"tp_ff": "tp", "tp_model": "cp"}
"""Axes of a grid by what they cut of a feed-forward -> the axes they are."""


CHUNKED = ("1f1b", "interleaved")
"""One order, for one chunk of the model on a device and for more."""
Chosen = Annotated[Degree, Searched()]


@dataclass(frozen=True)
class Layout(Checked):
    """Degrees of parallelism, and the choices that go with them.

    >>> from meshwright import Layout
    >>> layout = Layout(tp=8, pp=4, zero=1).filling(512)
    >>> layout.dp, layout.chips
    (16, 512)
    """

    tp: Chosen = 1
    """Tensor parallel: splits heads and feed-forward (LBL: n1)."""
    cp: Chosen = 1
    """Context parallel: splits the sequence; keys and values are gathered (LBL: n2). With schemes
    summa and mlp2d it splits weights too.
    """
    pp: Chosen = 1
    """Pipeline stages."""
    dp: Chosen = None  # type: ignore[assignment]  # a number on chips (`filling`)
    """Data-parallel replicas; default: what tp, cp and pp leave of the chips."""
    dp_replicate: Chosen = 1
    """Groups of dp ranks that hold whole copies (HSDP): ZeRO shards over the dp / dp_replicate
    nearest of them, and gradients are all-reduced across the groups. The name is torchtitan's;
    Megatron Core: num_distributed_optimizer_instances.
    """
    ep: Chosen = 1
    """Expert parallel: ranks over which the experts of a layer are spread."""
    etp: Chosen = 1
    """Tensor parallel degree inside an expert."""
    microbatch: Chosen = 1
    """Sequences of one microbatch of one replica."""
    interleave: Chosen = 1
    """Virtual pipeline stages per rank (Megatron: VPP)."""
    stages: Annotated[str, Parsed(read_stages), Searched(*RULES)] = "even"
    """Layers of each stage: even, equally many; slots, where embedding and loss count as a layer
    each; rest, where the last has what fills no stage; or one by one, such as 7,8*14,7
    (`describe.stages`).
    """
    microbatch_group: Annotated[Count, Searched(0)] = 0
    """Microbatches that go through a chunk before the next chunk (interleaved schedules;
    Megatron Core: microbatch_group_size_per_vp_stage); 0: pp, or if the microbatches are no
    multiple of pp, as many groups as can hold at least pp each."""
    schedule: Annotated[
        Known, Searched("1f1b", "interleaved", "zb-h1", "zb-h2", "zbv")
    ] = "1f1b"
    """Order of the microbatches: 1f1b, interleaved, gpipe, zb-h1, zb-1p, zbv, dualpipe, ...;
    default: 1f1b, or on a command line interleaved with --interleave."""
    zero: Annotated[int, Range(0, 3), Searched(0, 1, 2, 3)] = 0
    """ZeRO stage: 1 shards optimizer state over dp x cp, 2 gradients too, 3 weights too (FSDP)."""
    recompute: Annotated[str, Parsed(recompute), Searched(*RECOMPUTE)] = "none"
    """Activations recomputed in the backward pass: none, selective (the framework's meaning), full
    (whole layers), or parts by name joined by + (`describe.recompute`): layernorm+moe_act; :4
    after it for the first 4 layers of every chunk.
    """
    sequence_parallel: Annotated[bool, Searched(True, False)] = True
    """true or false: norms, dropout and residuals are split along the sequence over tp
    (Megatron-LM's --sequence-parallel).
    """
    scheme: Annotated[str, OneOf(*SCHEMES), Searched("megatron")] = "megatron"
    """How tp (and cp) split a layer: megatron (1D, with cp), context (the same as LBL counts it,
    with biases split), gspmd (1D, but activations are split along the hidden size: PaLM, MaxText's
    axis tensor), summa (2D matrix products) or mlp2d (2D with weights in place: only feed-forwards,
    as Epoch counts them).
    """
    cp_exchange: Annotated[
        str, OneOf.titled(EXCHANGES), Searched("gather", together=True)
    ] = "gather"
    """How cp ranks give each query its keys (Transformer Engine: cp_comm_type)."""
    offload: Annotated[
        str, Parsed(offload), Searched("none", together=True)
    ] = "none"
    """What is kept in host memory: none, or parts joined by +, such as activations:20 (layers),
    optimizer:0.5 (share), weights (`describe.offload`)."""
    panels: Chosen = 1
    """Panels of a SUMMA product."""
    placement: Mapping[Annotated[str, OneOf(*AXES)], tuple[Num, ...]] = EMPTY
    """Ranks of each axis in each network dimension, fastest first, such as
    tp=8x1,cp=1x1,dp=1x32,pp=1x4, or their order, nearest first; default: tp-cp-dp-pp."""

    __repr__ = short_repr

    def conflict(self) -> str:
        """A placement says as much of each axis."""
        lengths = {len(v) for v in self.placement.values()}
        if self.placement and (
            {*self.placement} != {*AXES} or len(lengths) > 1
        ):
            return (
                f"placement must give each of {', '.join(AXES)} as many numbers as the network has"
                " dimensions, of two such as tp=8x1,cp=1x1,dp=1x32,pp=1x4"
            )
        return ""

    @property
    def replica(self) -> Num:
        """Chips of one data-parallel replica: tp x cp x pp."""
        return self.tp * self.cp * self.pp

    @property
    def chips(self) -> Num:
        """tp x cp x pp x dp. Raises BadInput if dp is not stated."""
        if self.dp is None:
            raise BadInput(
                "layout.dp is not stated, so the number of chips is open: give dp, or lay it on"
                " some, such as layout.filling(64)"
            )
        return self.replica * self.dp

    def filling(self, chips: int) -> Layout:
        """The layout on this many chips. If dp is not stated: the replicas of its placement, else
        as many as the chips have room for, at least one.
        """
        if self.dp is not None:
            return self
        if "dp" in self.placement:
            return replace(self, dp=product(self.placement["dp"]))
        dp = max(chips // max(int(self.replica), 1), 1)
        return with_values(self, dp=dp)

    def refilling(self, chips: int) -> Layout:
        """The layout on another number of chips, with replicas and placement chosen anew."""
        return with_values(self, dp=None, placement=EMPTY).filling(chips)

    def with_(self, **fields: Any) -> Layout:
        """The layout with other values for some fields. 1f1b and interleaved follow interleave, and
        a placement is dropped when its degrees change.

        >>> from meshwright import Layout
        >>> Layout(tp=8, pp=4).with_(interleave=2).schedule
        'interleaved'
        """
        follow: dict[str, Any] = {"placement": EMPTY}
        if self.schedule in CHUNKED and "interleave" in fields:
            follow["schedule"] = CHUNKED[fields["interleave"] != 1]
        return replace(self, **{**follow, **fields})

    def under(self, sequence_parallel: bool) -> Layout:
        """This layout with or without sequence parallelism, which changes no group."""
        if self.sequence_parallel == sequence_parallel:
            return self
        other = with_values(self, sequence_parallel=sequence_parallel)
        other.__dict__["_groups"] = self._groups
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Without the groups that were asked for."""
        return {k: v for k, v in self.__dict__.items() if k != "_groups"}

    @cached_property
    def _groups(self) -> dict[str, tuple[Num, ...]]:
        return {}

    def group(self, axis: str) -> tuple[Num, ...]:
        """Ranks of a communication group in each network dimension, fastest first; always the same
        object, by which caches of collectives recognise it.

        axis: tp, cp, dp, pp; replicas (weights are synchronised over it); ep, etp and edp (experts,
        parts and replicas of one); shards and copies, the inner and the outer part of replicas (of
        edp: edp shards and edp copies); ends, the first and the last rank of the pipeline; tp_ff
        and tp_model, the axes of a grid (`PLANE`).
        """
        axis = PLANE.get(axis, axis)
        if axis not in self._groups:
            self._groups[axis] = self._ranks(axis)
        return self._groups[axis]

    def _ranks(self, axis: str) -> tuple[Num, ...]:
        if axis in ("replicas", "shards"):
            dp = (
                self.placement["dp"]
                if axis == "replicas"
                else self._inner(self.placement["dp"], self.dp)
            )
            if self.scheme in GRIDS:
                return self._mirrored(dp)
            return self._mirrored(
                tuple(
                    d * c
                    for d, c in zip(dp, self.placement["cp"], strict=True)
                )
            )
        if axis == "copies":
            return self._outer(self.placement["dp"], self.dp)
        if axis == "edp shards":
            return self._inner(self._ranks("edp"), self.expert_replicas)
        if axis == "edp copies":
            return self._outer(self._ranks("edp"), self.expert_replicas)
        if axis == "edp":
            return self._mirrored(self._expert_group(axis))
        if axis in ("ep", "etp"):
            return self._expert_group(axis)
        if axis == "ends":
            return self._across_stages(2)
        return self.placement[axis]

    @property
    def copies(self) -> int:
        """Ranks of the pipeline that hold each stage (`Schedule.copies`)."""
        return schedule_named(self.schedule).copies

    @property
    def depth(self) -> Num:
        """Ranks that one copy of the model is spread over: pp, or fewer if several hold a stage."""
        return schedule_named(self.schedule).depth(self.pp)

    @property
    def replicas(self) -> Num:
        """Copies of a weight: dp x cp (dp alone on a grid, where cp cuts the weights), and those of
        the pipeline."""
        inside = self.dp if self.scheme in GRIDS else self.dp * self.cp
        return inside * self.copies

    @property
    def expert_replicas(self) -> Num:
        """Copies of an expert's weight: edp = tp cp dp / (ep etp), and those of the pipeline."""
        return self._expert_ranks * self.copies

    @property
    def _expert_ranks(self) -> Num:
        return self.tp * self.cp * self.dp / (self.ep * self.etp)

    @property
    def shards(self) -> Num:
        """Ranks over which ZeRO shards a weight."""
        return self.replicas / self.dp_replicate

    @property
    def expert_shards(self) -> Num:
        """Ranks over which ZeRO shards an expert's weight."""
        return self.expert_replicas / self.dp_replicate

    @property
    def most_replicas(self) -> Layout:
        """The same rows with their most replicas: themselves, unless they stand for intervals of dp
        (`layout.placement.Nearest`).
        """
        return self

    def _mirrored(self, group: tuple[Num, ...]) -> tuple[Num, ...]:
        """With the other ranks of the pipeline that hold the stage."""
        if self.copies == 1:
            return group
        across = self._across_stages(self.copies)
        return tuple(n * c for n, c in zip(group, across, strict=True))

    def _across_stages(self, ranks: int) -> tuple[Num, ...]:
        """So many ranks in the farthest network dimension that the pipeline reaches."""
        sizes: list[Num] = []
        left: Num = 1.0
        for here in self.group("pp")[::-1]:
            sizes.append(where((here > 1) & (left > 0), ranks, 1))
            left = where(here > 1, 0.0, left)
        return tuple(sizes[::-1])

    def _inner(self, places: tuple[Num, ...], ranks: Num) -> tuple[Num, ...]:
        """The nearest ranks / dp_replicate of a group."""
        left = ranks / self.dp_replicate
        sizes = []
        for size in places[:-1]:
            sizes.append(minimum(left, size))
            left = left / sizes[-1]
        return (*sizes, left)

    def _outer(self, places: tuple[Num, ...], ranks: Num) -> tuple[Num, ...]:
        """What is left of it."""
        return tuple(
            size / here
            for size, here in zip(
                places, self._inner(places, ranks), strict=True
            )
        )

    def _expert_group(self, axis: str) -> tuple[Num, ...]:
        """etp, ep and edp, in this order, take the tp x cp x dp ranks from the nearest on.

        Each takes min(what it still needs, room that is left) of a dimension; the last dimension
        takes the rest.
        """
        room = [
            t * c * d
            for t, c, d in zip(
                *(self.placement[a] for a in ("tp", "cp", "dp")), strict=True
            )
        ]
        shares: tuple[Num, ...] = ()
        for name, degree in (
            ("etp", self.etp),
            ("ep", self.ep),
            ("edp", self._expert_ranks),
        ):
            left, taken = degree, []
            for size in room[:-1]:
                here = minimum(left, maximum(size, 1))
                taken.append(here)
                left = left / here
            shares = (*taken, left)
            room = [
                maximum(size / here, 1)
                for size, here in zip(room, shares, strict=True)
            ]
            if name == axis:
                break
        return shares


DEGREES = tuple(
    name for name, field in fields_of(Layout).items() if field.kind.type is Any
)
"""Fields that count ranks, microbatches or pieces."""
