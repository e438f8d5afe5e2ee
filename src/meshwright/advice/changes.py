"""Single changes of a run: one choice of its layout, of its software or of its numbers at another
value, everything else as it is.

    singles(job) -> Change({"layout.tp": 4}), Change({"layout.recompute": "none"}), ...

The values are those that a search tries of a field. A degree keeps the product of the chips: dp
follows. The batch stays, but for changes of the numerics, which are marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..describe.fields import fields_of
from ..describe.frozen import FrozenDict
from ..describe.job import FP32_BYTES, Job
from ..describe.layout import AXES, Layout
from ..describe.software import UNFUSED, Software
from ..describe.stages import RULES
from ..errors import BadInput
from ..exchange import EXCHANGES
from ..formats.flags import layout_beside
from ..layout.placement import launched, launcher_orders, lies
from ..num import divisors
from ..schedule import SCHEDULES
from ..search import ANY_CHUNKS, USUAL, settable
from ..search import NUMERICS as OF_NUMBERS

RANKS = ("tp", "cp", "pp")
"""Degrees whose change moves dp."""
MOST_SEQUENCES = 64
"""Largest microbatch that is tried; no published run of a decoder has a larger one."""
PARTS = 16
"""Most numbers of recomputed layers of a chunk that are tried, beside none and all."""
NUMERICS = ("job.precision", "job.batch", "software.gradients")
"""Fields that change what is trained, beside how fast."""
BATCH = 2
"""Times the batch, as a change that is named apart."""


@dataclass(frozen=True)
class Change:
    """Fields of a job, such as layout.tp, and their new values."""

    fields: FrozenDict[str, Any]

    @property
    def numerics(self) -> bool:
        """It changes the numbers or the batch of the training, not only how fast it runs."""
        return any(path in NUMERICS for path in self.fields)

    @property
    def choice(self) -> str:
        """What is chosen anew: changes of one choice exclude each other."""
        first = next(iter(self.fields))
        return "layout.schedule" if first == "layout.interleave" else first

    def apart(self, other: Change) -> bool:
        """Both can be made together: they set different fields."""
        return not {*self.fields} & {*other.fields}

    def joined(self, other: Change) -> Change:
        """Both changes as one."""
        return Change(FrozenDict({**self.fields, **other.fields}))

    def table_values(self, table: str) -> dict[str, Any]:
        """The new values of one table: layout, software or job."""
        return {
            path.partition(".")[2]: value
            for path, value in self.fields.items()
            if path.startswith(f"{table}.")
        }

    def applied_to(self, run: Job) -> Job:
        """The changed run, on as many chips.  Raises BadInput where degrees do not fill them."""
        job = run
        if software := self.table_values("software"):
            job = replace(job, software=replace(job.software, **software))
        if own := self.table_values("job"):
            job = replace(job, **own)
        words = self.table_values("layout")
        if not words:
            return job
        layout = laid_out(run, words)
        # one rank has nothing left to overlap
        if layout.tp == 1 and job.software.tp_overlap:
            job = replace(job, software=replace(job.software, tp_overlap=None))
        return job.laid_out(layout)


def change(**values: Any) -> Change:
    """A change of fields of a layout."""
    return Change(FrozenDict({f"layout.{k}": v for k, v in values.items()}))


def setting(name: str, value: Any) -> Change:
    """A change of one setting of the software."""
    return Change(FrozenDict({f"software.{name}": value}))


def laid_out(run: Job, words: Mapping[str, Any]) -> Layout:
    """The layout of a run with other values, ranks numbered in the order in which they are, or in
    that of a change; dp is what the others leave of its chips.
    """
    own, chips = run.layout, int(run.layout.chips)
    order = tuple(words.get("placement", "-".join(axes(run))).split("-"))
    named = {k: v for k, v in words.items() if k != "placement"}
    layout = Layout(**{**layout_beside(own, named), **named}).filling(chips)
    if layout.chips != chips:
        raise BadInput(f"{dict(words)} does not fill {chips} chips evenly")
    return launched(run, layout, order)


def axes(run: Job) -> tuple[str, ...]:
    """The order of the axes, nearest first, in which the ranks of a run are numbered."""
    orders = (AXES, *launcher_orders(run.framework))
    sizes = run.cluster.sizes
    return next((o for o in orders if lies(run.layout, sizes, o)), AXES)


def singles(run: Job) -> Iterator[Change]:
    """Every single change of a run, legal or not."""
    own = run.layout
    for name, values in layout_values(run):
        for value in values:
            if value != getattr(own, name):
                yield change(**{name: value})
    yield from schedule_changes(run)
    for order in launcher_orders(run.framework):
        if order != axes(run):
            yield change(placement="-".join(order))
    yield from _software(run)
    yield from numerics(run)


def layout_values(run: Job) -> Iterator[tuple[str, Iterable[Any]]]:
    """(field of a layout, values that a search tries of it)."""
    own, moe = run.layout, run.model.moe
    chips = int(own.chips)
    for axis in RANKS:
        yield axis, divisors(chips)
    if moe:
        yield "ep", divisors(moe.experts)
        yield "etp", dict.fromkeys((1, int(own.tp)))
    # more replicas than sequences still take one each
    mine = max(run.batch // int(own.dp), 1)
    yield "microbatch", [n for n in divisors(mine) if n <= MOST_SEQUENCES]
    yield "zero", USUAL["zero"]
    yield "recompute", (*USUAL["recompute"], *partly(run))
    if own.tp > 1:
        yield "sequence_parallel", USUAL["sequence_parallel"]
    if own.cp > 1:
        yield "cp_exchange", EXCHANGES
    if own.pp > 1 and own.stages in RULES:
        yield "stages", RULES
    if own.offload != "none":
        yield "offload", USUAL["offload"]
    near, *others = run.cluster.sizes
    inner = int(own.dp * own.tp * own.cp) / near
    if own.zero and others and inner > 1 and inner == int(inner):
        yield "dp_replicate", dict.fromkeys((1, int(inner)))


def partly(run: Job) -> list[str]:
    """Full recomputation of some layers of a chunk of the model."""
    own = run.layout
    layers = run.model.layers // int(own.pp * own.interleave)
    some = {layers * i // PARTS for i in range(1, PARTS)}
    return [f"full:{k}" for k in sorted(some - {0})]


def schedule_changes(run: Job) -> Iterator[Change]:
    """Other orders of the pipeline: schedules, with chunks where they have them."""
    own = run.layout
    if own.pp == 1:
        return
    for name in USUAL["schedule"]:
        chunked = SCHEDULES[str(name)].chunked
        for chunks in range(2, ANY_CHUNKS + 1) if chunked else (1,):
            if (name, chunks) != (own.schedule, own.interleave):
                yield change(interleave=chunks, schedule=name)


def _software(run: Job) -> Iterator[Change]:
    """Other settings that the framework offers, and its own where the run says otherwise."""
    for name, values in settable(run).items():
        if name not in OF_NUMBERS:
            yield from (setting(name, value) for value in values)
    if run.profile and run.profile.attention in UNFUSED:
        fused = {"job.attention_kernel": run.profile.flash}
        yield Change(FrozenDict(fused))


def software_changes(run: Job) -> Iterator[Change]:
    """Settings at every other value, offered or not: what may run where nobody says what does."""
    for name, kind in fields_of(Software).items():
        values = (True, False) if kind.kind.type is bool else kind.kind.words
        for value in values if name not in OF_NUMBERS else ():
            if run.profile and value != getattr(run.profile, name):
                yield setting(name, value)


def numerics(run: Job) -> Iterator[Change]:
    """Other numbers and another batch."""
    rates = run.cluster.chip.matrix_flops
    if run.precision.compute in ("bf16", "fp16"):
        if "fp8" in rates:
            eight = {"job.precision": "fp8"}
            yield Change(FrozenDict(eight))
        if run.profile and run.gradient_bytes == FP32_BYTES:
            yield setting("gradients", "half")
    yield Change(FrozenDict({"job.batch": run.batch * BATCH}))


def value_in_effect(run: Job, path: str) -> Any:
    """What a field of a run is, where it is not said that of its framework."""
    table, _, name = path.partition(".")
    if table == "software":
        return getattr(run.profile, name)
    if path == "layout.placement":
        return "-".join(axes(run))
    if path == "job.attention_kernel" and run.profile:
        return run.profile.attention
    return getattr(run.layout if table == "layout" else run, name)
