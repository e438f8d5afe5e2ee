"""Rooflines of a mesh: at which batch and split communication starts to bind, for any model on any
cluster.

    roofline(model("llama3-70b"), cluster("8960xtpu-v5p"), batch=4.19e6).print-able, .to_dict()

For each scheme (DP, FSDP, TP, both, pipeline, pods, context, experts) compute and communication
time of a layer, the smallest compute-bound batch, the best split in theory (X_opt) and on the real
axes, under both editions of the scaling book: `sum`, collectives of different mesh axes one after
the other, and `max`, beside each other (a lower bound).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf, prod
from typing import Any

from ..describe.assumptions import BOOK_SUM, Assumptions, demand_read
from ..describe.batch import parse_batch
from ..describe.cluster import Cluster
from ..describe.display import Displayed
from ..describe.fields import FieldKind
from ..describe.frozen import put, short_repr
from ..describe.job import Job, Precision, usual_precision
from ..describe.model import Model
from ..describe.precision import precision as named_precision
from ..describe.slices import Shape
from ..errors import BadInput
from ..step.oom import most_bytes
from ..units import parse
from . import schemes
from . import thresholds as th
from .mesh import Mesh, bandwidth, mesh
from .schemes import Scheme
from .splits import Split, best, largest_tensor, least_batch, splits
from .times import EDITIONS, Asked
from .work import Layer, LayerSetting

SHOWN = 4.0
"""Splits that communicate longer than so many times the least are not shown."""
SCHEMA = 3
"""Version of `Roofline.to_dict`."""
EXACT = put("network.ring_factor", "exact")(BOOK_SUM)
"""The book's set with the factor (n-1)/n of collectives, which it leaves out: what a roofline takes
if none is named.
"""
COUNTED = (
    "dot_product",
    "causal",
    "residual",
    "dropout",
    "output_bias",
    "gathered_inputs",
    "gathered_keys",
    "weight_gradient",
    "rotary",
)
TIMED = (
    "model",
    "matrix_efficiency",
    "sustained",
    "attention_forward",
    "attention_backward",
    "vector_efficiency",
    "memory_efficiency",
    "launch_s",
    "wide_norm",
    *(
        f"stack.{field}"
        for field in (
            "kernel",
            "elementwise",
            "norm",
            "host_s",
            "cuda_graphs",
            "float8",
            "quantise",
        )
    ),
    *(
        f"host.{field}"
        for field in ("backward", "experts_s", "routed", "parts", "full")
    ),
)
READ = (
    *(f"count.{field}" for field in COUNTED),
    *(f"chip.{field}" for field in TIMED),
    "network",
    *(f"overlap.{axis}" for axis in ("dp", "tp", "cp", "ep", "pp")),
    "memory.capacity_share",
    "memory.framework_bytes",
    "memory.risk_width",
    "memory.headroom",
    "memory.holding.allocator_need",
    "precision",
)
"""What a roofline reads of a set: vocabulary and optimizer are no part of a layer, and what it
keeps is not asked.
"""


@dataclass(frozen=True)
class Theory:
    """The continuous optimum for M_X and M_Y axes of equal bandwidth: X and Y need not be whole."""

    m_x: int
    m_y: int
    x: float
    """X_opt, the same in both editions."""
    y: float
    ratio_sum: float
    """T_math/T_comms there."""
    ratio_max: float
    tokens_per_chip_sum: float
    """B/N from which it is compute-bound."""
    tokens_per_chip_max: float
    largest_tensor: float
    """Largest compute-bound tensor-parallel degree, F M_Y/a."""


@dataclass(frozen=True)
class SplitSeconds:
    """X x Y chips somewhere on the mesh, and what the forward pass of a layer takes there."""

    x: int
    y: int
    placement: str
    compute_s: float
    data_s: float
    tensor_s: float


@dataclass(frozen=True)
class Whole(SplitSeconds):
    """The best split into whole axes and parts of axes, for one edition."""

    edition: str
    comm_s: float
    ratio: float | None
    """T_math/T_comms; None = nothing to communicate."""
    least_batch_tokens: float | None
    """Tokens of all pods from which this very split is compute-bound."""
    compute_bound_from_tokens: float | None
    """The same for the split that reaches it first ..."""
    compute_bound_first: str
    """... and where that one lies."""


@dataclass(frozen=True)
class Degree(SplitSeconds):
    """The best split of one tensor-parallel degree, placed where `sum` is shortest: what the time
    does between FSDP alone and its minimum, and beyond.
    """

    comm_sum_s: float
    comm_max_s: float
    """The shortest of all placements, as `comm_sum_s`."""


@dataclass(frozen=True)
class Roofline(Displayed):
    """What limits one layer of a model on a mesh.

    >>> from meshwright import Roofline, roofline
    >>> mesh = roofline("llama3-70b", "8960xtpu-v5p", "4M")
    >>> isinstance(mesh, Roofline), [scheme.name for scheme in mesh.schemes][:2]
    (True, ['DP', 'FSDP'])
    """

    model: str
    layer: str
    chip: str
    pods: int
    shape: Shape
    """Chips in each dimension of a pod."""
    kinds: tuple[str, ...]
    """ring, line or switch, for each dimension."""
    batch_tokens: float
    sequences: float
    """That the batch makes."""
    flops_per_s: float
    per_token: Layer
    intensity: tuple[float, ...]
    """C/W of each dimension of a pod, and of the one that joins pods: FLOPs per byte."""
    hbm_tokens: float
    """Tokens on a chip below which reading the weights binds: C/W_hbm for bf16."""
    data_tokens_per_shard: float
    """B/X from which DP and FSDP over a whole pod are compute-bound."""
    schemes: tuple[schemes.Scheme, ...]
    theory: tuple[Theory, ...]
    whole: tuple[Whole, ...]
    degrees: tuple[Degree, ...]
    """By tensor-parallel degree, as far as communication is within `SHOWN` times the least."""
    largest_tensor: int
    """Largest whole tensor-parallel degree whose collectives hide behind compute; 1 = none does."""
    largest_tensor_placement: str
    memory_bytes: float
    """On one chip: 10 bytes a parameter and one checkpoint a layer, cut over all chips."""
    memory_full_bytes: float
    """The same with fp32 gradients and master weights: 18 bytes a parameter."""
    kept_bytes: float
    """Of either, checkpoints, were the whole batch one microbatch."""
    capacity_bytes: float
    notes: tuple[str, ...]

    __repr__ = short_repr

    @property
    def chips(self) -> int:
        return self.pods * prod(self.shape)

    def microbatches(self, s: Scheme) -> int:
        """The fewest in which a chip has room for a scheme (`Scheme.microbatches`)."""
        return s.microbatches(self.kept_bytes, self.capacity_bytes)

    def compute_bound(self, s: Scheme, edition: str) -> bool:
        """Whether a scheme has room, if need be in several microbatches, and each of these is
        compute-bound.
        """
        n = self.microbatches(s)
        if n < 2:
            return n == 1 and s.compute_bound(edition)
        return s.bound_at(self.batch_tokens / n, edition)

    def to_dict(self) -> dict[str, Any]:
        """The fields of `roofline --json`."""
        data = asdict(self)
        del data["per_token"]
        return {
            "schema": SCHEMA,
            **data,
            "chips": self.chips,
            "tokens_per_chip": self.batch_tokens / self.chips,
            "flops_per_token": self.per_token.flops,
            "weight_bytes": self.per_token.weight_bytes,
            "effective_width": self.per_token.width,
            "schemes": [s.to_dict() for s in self.schemes],
            "microbatches": {
                s.name: self.microbatches(s) for s in self.schemes
            },
        }


def roofline(
    model: Model | str,
    cluster: Cluster | str,
    batch: float | str,
    *,
    layer: str = "book",
    precision: str | Precision | None = None,
    assumptions: Assumptions = EXACT,
    exact: bool | None = None,
    shape: Shape | None = None,
    seq: int = 0,
    stages: int = 8,
    microbatches: int = 0,
    context: int = 0,
    experts: int = 0,
) -> Roofline:
    """Rooflines of one layer for a batch in tokens.

    layer: book, mlp, projections or block (`roofline.work`);  precision: a Precision or its name
    (None: the set's); exact: whether collectives have the factor (n-1)/n (None: as the set says);
    shape: of a slice;  stages, microbatches (0 = 4 a stage), context, experts (0 = the nearest
    dimension): degrees of the rows of these names.

    Raises BadInput, or NoLayout if no split gives whole shards of the feed-forward.

    >>> from meshwright import roofline
    >>> mesh = roofline("llama3-70b", "8960xtpu-v5p", "4M")
    >>> mesh.chips, round(mesh.data_tokens_per_shard)
    (8960, 850)
    """
    described: Model = FieldKind(Model).kept(model, "model")
    on: Cluster = FieldKind(Cluster).kept(cluster, "cluster")
    batch = parse(batch, "token", "batch")
    if not batch > 0:
        raise BadInput(f"batch must be more than 0 tokens, not {batch:g}")
    if min(stages, microbatches, context, experts) < 0:
        raise BadInput(
            "stages, microbatches, context and experts must not be negative"
        )
    demand_read(assumptions, BOOK_SUM, READ, "roofline")
    numbers = (
        named_precision(precision)
        if isinstance(precision, str)
        else precision or usual_precision(assumptions, on.chip)
    )
    how = _as_asked(assumptions, exact)
    setting = LayerSetting(described, layer, numbers, assumptions=how, seq=seq)
    m = mesh(on, numbers.compute, how, shape)
    asked = Asked(setting, m, batch)
    every = list(splits(asked))
    rows = _rows(
        asked,
        every,
        stages,
        microbatches=microbatches or 4 * stages,
        context=context,
        experts=experts,
    )
    return _whole_answer(asked, on, every, tuple(rows))


def asked_job(
    read: Callable[[dict[str, str]], Job],
    given: Mapping[str, str],
    notes: list[str],
) -> Job:
    """The job that a roofline is of: in the numbers of EXACT where no set is named, with a batch
    whose sequences need only be whole, as no layout deals them.

    read: fields of a job (name -> text) -> the job;  notes: receives what was rounded.
    """
    one = {"batch": "1seq"} if "batch" in given else {}
    job = read({"assumptions": EXACT.name, **given, **one})
    if not one:
        return job
    batch, rounded = parse_batch(given["batch"], job.T, chips=1)
    notes += [rounded] if rounded else []
    return replace(job, batch=batch)


def _whole_answer(
    on: Asked,
    cluster: Cluster,
    every: list[Split],
    rows: tuple[schemes.Scheme, ...],
) -> Roofline:
    """The rows of the schemes with what limits the layer in closed form and on real axes."""
    setting, m, chip = on.setting, on.mesh, cluster.chip
    one = setting.per_token
    whole_pod = th.intensity(m.flops, bandwidth(m, m.everything))
    tensor = largest_tensor(every)
    memory = setting.assumptions.memory
    return Roofline(
        model=setting.model.name,
        layer=setting.layer,
        chip=chip.name,
        pods=m.pods,
        shape=m.shape,
        kinds=tuple(d.kind for d in m.dims),
        batch_tokens=on.batch,
        sequences=on.sequences,
        flops_per_s=m.flops,
        per_token=one,
        intensity=tuple(
            float(th.intensity(m.flops, rate)) for rate in m.fabric.rates
        ),
        hbm_tokens=float(th.intensity(m.flops, chip.hbm_bandwidth)),
        data_tokens_per_shard=float(th.data_tokens(one, whole_pod)),
        schemes=rows,
        theory=tuple(_theory(one, m, on.batch)),
        whole=tuple(_whole(every, e) for e in EDITIONS),
        degrees=_degrees(every),
        largest_tensor=tensor.y if tensor else 1,
        largest_tensor_placement=tensor.text if tensor else "",
        memory_bytes=schemes.memory(on, m.chips),
        memory_full_bytes=schemes.memory(on, m.chips, "full"),
        kept_bytes=schemes.checkpoint_bytes(on),
        capacity_bytes=most_bytes(chip, memory),
        notes=(
            *_notes(on, cluster),
            *_crossing(m, [best(every, e) for e in EDITIONS]),
        ),
    )


def _as_asked(how: Assumptions, exact: bool | None) -> Assumptions:
    """The set, its collectives with or without the factor (n-1)/n."""
    if exact is None:
        return how
    if how.network.collective != "book":
        raise BadInput(
            f"exact belongs to collectives of the book: leave it out under {how.name}"
        )
    return put("network.ring_factor", "exact" if exact else "one")(how)


def _rows(
    on: Asked,
    every: list[Split],
    stages: int,
    microbatches: int,
    context: int,
    experts: int,
) -> Iterator[schemes.Scheme]:
    """The schemes that this model and mesh have.  context, experts: 0 = the nearest dimension."""
    m = on.mesh
    model = on.setting.model
    yield schemes.data_parallel(on)
    yield schemes.sharded_data_parallel(on)
    yield schemes.tensor_parallel(on)
    for edition in EDITIONS:
        yield schemes.mixed(on, best(every, edition), edition)
    if m.pods > 1:
        yield schemes.across_pods(on)
    if model.layers >= stages > 1 and m.all_chips % stages == 0:
        yield schemes.pipeline(on, stages, microbatches)
    near = m.shape[m.nearest]
    if context or near > 1:
        yield schemes.context_parallel(on, context or near)
    if model.moe:
        yield schemes.expert_parallel(on, experts or near)


def _theory(one: Layer, m: Mesh, batch: float) -> Iterator[Theory]:
    """X_opt for every way to give the axes of a torus away; on switched networks X spans all
    levels, Y the nearest.
    """
    whole_pod = bandwidth(m, m.everything)
    if whole_pod == inf:
        return
    if m.torus:
        long = sum(n > 1 for n in m.shape)
        a = float(th.intensity(m.flops, _mean_rate(m)))
        ways = [(n, long - n, a / n, a / (long - n)) for n in range(1, long)]
    else:
        near = float(th.intensity(m.flops, m.fabric.rates[0]))
        ways = [(1, 1, float(th.intensity(m.flops, whole_pod)), near)]
    for m_x, m_y, a_x, a_y in ways:
        at = (one, batch / m.pods, m.chips, a_x, a_y)
        x = float(th.best_split(*at))
        yield Theory(
            m_x,
            m_y,
            x,
            m.chips / x,
            ratio_sum=float(th.best_ratio(*at, "sum")),
            ratio_max=float(th.best_ratio(*at, "max")),
            tokens_per_chip_sum=float(th.mixed_tokens(one, a_x, a_y, "sum")),
            tokens_per_chip_max=float(th.mixed_tokens(one, a_x, a_y, "max")),
            largest_tensor=float(th.tensor_degree(one, a_y)),
        )


def _mean_rate(m: Mesh) -> float:
    """Bytes per second of one axis, on average over the axes longer than 1."""
    rates = [
        rate for rate, n in zip(m.fabric.rates, m.shape, strict=False) if n > 1
    ]
    return sum(rates) / len(rates)


def _seconds(s: Split) -> dict[str, Any]:
    """Where a split lies, and what its forward pass takes."""
    t = s.forward
    return {
        "x": s.x,
        "y": s.y,
        "placement": s.text,
        "compute_s": float(t.compute),
        "data_s": float(t.data.seconds),
        "tensor_s": float(t.tensor.seconds),
    }


def _whole(every: list[Split], edition: str) -> Whole:
    """The best split for the batch, and the split that is compute-bound first."""
    s = best(every, edition)
    first = least_batch(every, edition)
    ratio = float(s.forward.ratio(edition))
    return Whole(
        **_seconds(s),
        edition=edition,
        comm_s=float(s.forward.comm(edition)),
        ratio=ratio if ratio < inf else None,
        least_batch_tokens=s.threshold(edition),
        compute_bound_from_tokens=first and first[1],
        compute_bound_first=first[0].text if first else "",
    )


def _degrees(every: list[Split]) -> tuple[Degree, ...]:
    """The split of FSDP and tensor parallelism, one row a degree."""
    by_y: dict[int, list[Split]] = {}
    for split in every:
        by_y.setdefault(split.y, []).append(split)
    rows = [_degree(by_y[y]) for y in sorted(by_y)]
    least = min(row.comm_max_s for row in rows)
    return tuple(row for row in rows if row.comm_max_s <= SHOWN * least)


def _degree(alike: list[Split]) -> Degree:
    """Of the placements of one degree."""
    s = best(alike, "sum")
    return Degree(
        **_seconds(s),
        comm_sum_s=float(s.forward.comm("sum")),
        comm_max_s=min(float(a.forward.comm("max")) for a in alike),
    )


def _crossing(mesh: Mesh, chosen: list[Split]) -> Iterator[str]:
    """A note where a best split lays tensor parallelism across switches, if it does."""
    far = {
        mesh.dims[i].name
        for s in chosen
        for i, n in enumerate(s.tensor_share)
        if n > 1 and i > mesh.nearest and not mesh.torus
    }
    if far:
        yield (
            f"the best split sends tensor-parallel messages over {' and '.join(sorted(far))}: it"
            " counts bytes at full rates, no latency and no waiting; published runs keep tensor"
            " parallelism inside the nearest switch"
        )


def _notes(on: Asked, cluster: Cluster) -> Iterator[str]:
    """What a reader should know about the model and this mesh."""
    m, setting = on.mesh, on.setting
    yield from setting.model.notes
    used = m.all_chips
    if used < cluster.chips:
        yield (
            f"{cluster.chips - used} of {cluster.chips} chips are idle: {m.pods} x {m.chips} are"
            " used"
        )
    lines = [
        f"{d.name}{d.size}"
        for d in m.dims
        if d.kind == "line" and (d.size or 1) > 1
    ]
    if lines:
        yield f"axes without wraparound, at half the bandwidth: {' '.join(lines)}"
    if on.sequences < used:
        yield (
            f"the batch has {on.sequences:.6g} sequences: more data-parallel chips than that need"
            " context parallelism"
        )
