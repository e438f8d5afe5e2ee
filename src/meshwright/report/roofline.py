"""A roofline as tables: schemes, the best split in theory and on the real axes, what to know about
the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..roofline.queries import Roofline
from ..roofline.schemes import Scheme
from ..units import count, show
from .card import Card, CardRow, CardTable, answer_row
from .lines import noted
from .run_card import notes as card_notes
from .tables import text_table
from .text import seconds

LAYERS = {
    "book": "two feed-forward matrices, gate and attention ignored",
    "mlp": "the feed-forward as it is",
    "projections": "feed-forward and attention projections",
    "block": "the whole layer",
}


def roofline_card(r: Roofline) -> Card:
    """Which ways to cut the layer are compute-bound at this batch, and from which batch on."""
    shape = " x ".join(f"{n}" for n in r.shape)
    pods = f"{r.pods} pods of " if r.pods > 1 else ""
    rows = [
        (
            s.name,
            _tokens(s.least_batch_sum_tokens),
            _tokens(s.least_batch_max_tokens),
            show(s.memory_bytes, "GiB"),
            f"{_at_this_batch(r, s)}: {s.degrees}",
        )
        for s in r.schemes
    ]
    return Card(
        f"Is {r.model} compute-bound on {pods}{shape} {r.chip} at {count(r.batch_tokens)} tokens a"
        f" step ({r.batch_tokens / r.chips:,.0f} a chip)?",
        (
            _headline(r),
            CardTable(
                (
                    "scheme",
                    "bound from",
                    "if overlapped",
                    "memory",
                    "at this batch",
                ),
                rows,
            ),
            CardRow(
                "tp",
                f"at most {r.largest_tensor} ways before its communication shows"
                if r.largest_tensor > 1
                else "the communication of any degree shows"
                if r.chips > 1
                else "one chip has no other to communicate with",
                rank=2,
            ),
            *card_notes(r.notes),
            CardRow("next", "add -o roofline.png for the curves", rank=4),
        ),
        "--all: times by scheme, theory, splits of the real axes",
    )


def _headline(r: Roofline) -> CardRow:
    """The first scheme that fits in memory, in the fewest microbatches, and hides its messages;
    rows for a part of them (a pipeline, pods, a ring, experts) answer nothing by themselves.
    """
    fit = [s for s in r.schemes if s.whole and r.microbatches(s)]
    fit.sort(key=r.microbatches)
    if fit and r.chips == 1:
        words = "nothing communicates on one chip, and it fits in memory"
        return answer_row(True, words + _in_parts(r, fit[0]))
    if sure := [s for s in fit if r.compute_bound(s, "sum")]:
        words = f"compute-bound at this batch with {_with(r, sure[0])}"
        return answer_row(True, words)
    if some := [s for s in fit if r.compute_bound(s, "max")]:
        words = (
            "only if collectives of different axes overlap, with"
            f" {_with(r, some[0])}"
        )
        return CardRow("maybe", words, "bold yellow")
    if r.chips == 1:
        return answer_row(
            False,
            "nothing communicates, but it does not fit in the chip's memory",
        )
    words = "DP, FSDP, TP and FSDP+TP are communication-bound here, or do not fit in memory"
    return answer_row(False, words)


def _with(r: Roofline, s: Scheme) -> str:
    """A scheme with its degrees, in how many microbatches it has room, and that sequences are cut
    where they are fewer than its replicas.
    """
    sequences = r.sequences / r.microbatches(s)
    cut = (
        f"; context parallelism (not counted) must cut its {sequences:,.6g} sequences"
        if sequences < s.dp
        else ""
    )
    return f"{scheme(s.name)}: {s.degrees}{_in_parts(r, s)}{cut}"


def _in_parts(r: Roofline, s: Scheme) -> str:
    """In how many microbatches a scheme has room, where the whole batch has none."""
    n = r.microbatches(s)
    if n < 2:
        return ""
    return f" in {n:,} microbatches of {count(r.batch_tokens / n)} tokens"


def _at_this_batch(r: Roofline, s: Scheme) -> str:
    """Whether a row fits and is compute-bound: maybe, if only where collectives overlap; in how
    many microbatches.
    """
    n = r.microbatches(s)
    if not n:
        return "no room"
    words = (
        "yes"
        if r.compute_bound(s, "sum")
        else "maybe"
        if r.compute_bound(s, "max")
        else "no"
    )
    return f"{words} in {n:,}" if n > 1 else words


def scheme(name: str) -> str:
    """A scheme without the edition of its optimum: FSDP+TP."""
    return name.partition(", best")[0]


def roofline_report(r: Roofline) -> RenderableType:
    """What stands behind the card of a roofline."""
    return Group(
        *_head(r),
        Text(),
        schemes(r),
        Text(),
        theory(r),
        Text(),
        split_table(r),
        Text(),
        _degrees(r),
        *_notes(r),
    )


def _head(r: Roofline) -> Iterator[Text]:
    """What of a layer is counted, the axes, and the intensities everything follows from."""
    shape = " x ".join(
        f"{n} {kind}" for n, kind in zip(r.shape, r.kinds, strict=True)
    )
    width = f"{r.per_token.width:,.0f} effective width"
    yield Text(f"one layer ({LAYERS[r.layer]}) on {shape}, {width}", "bold")
    links = ", ".join(f"{a:,.0f}" for a in r.intensity)
    yield Text(
        f"  FLOPs for each byte of a link: {links}; of HBM: {r.hbm_tokens:,.0f}"
    )
    yield Text(
        f"  largest TP degree fully overlapped by compute: {r.largest_tensor}"
        f" {r.largest_tensor_placement}"
    )
    memory = (
        f"{show(r.memory_bytes, 'GiB')} (10 B a parameter) to {show(r.memory_full_bytes, 'GiB')}"
        " (18 B)"
    )
    yield Text(
        f"  memory of a chip, sharded over all: {memory} of {show(r.capacity_bytes, 'GiB')}"
    )


def schemes(r: Roofline) -> Table:
    """Times at the batch, and the batch from which compute binds."""
    return text_table(
        "scheme | degrees | pass | compute | comm sum | comm max | bound sum | bound max | memory",
        [
            (
                s.name,
                s.degrees,
                s.binds,
                *map(seconds, (s.compute_s, s.comm_sum_s, s.comm_max_s)),
                *(
                    f"{_tokens(batch)} {'yes' if s.compute_bound(edition) else 'NO'}"
                    for edition, batch in (
                        ("sum", s.least_batch_sum_tokens),
                        ("max", s.least_batch_max_tokens),
                    )
                ),
                show(s.memory_bytes, "GiB"),
            )
            for s in r.schemes
        ],
        caption="bound: tokens a step from which the pass is compute-bound; yes or NO: whether this"
        " batch is",
    )


def theory(r: Roofline) -> Table:
    """Continuous optima."""
    return text_table(
        "axes for FSDP | for TP | X_opt | Y | ratio sum | ratio max | B/N sum | B/N max"
        " | largest Y",
        [
            (
                str(t.m_x),
                str(t.m_y),
                *(
                    show(float(n), "")
                    for n in (
                        t.x,
                        t.y,
                        t.ratio_sum,
                        t.ratio_max,
                        t.tokens_per_chip_sum,
                        t.tokens_per_chip_max,
                        t.largest_tensor,
                    )
                ),
            )
            for t in r.theory
        ],
        caption="theory: X and Y of any size; ratio T_math/T_comms; B/N tokens a chip from which it"
        " is above 1",
    )


def split_table(r: Roofline) -> Table:
    """Best splits of the real axes."""
    return text_table(
        "edition | X | Y | axes | compute | FSDP | TP | together | ratio | bound from"
        " | with axes",
        [
            (
                w.edition,
                str(w.x),
                str(w.y),
                w.placement,
                *map(seconds, (w.compute_s, w.data_s, w.tensor_s, w.comm_s)),
                "" if w.ratio is None else f"{w.ratio:.2f}",
                _tokens(w.compute_bound_from_tokens),
                w.compute_bound_first,
            )
            for w in r.whole
        ],
        caption="sum: collectives of different mesh axes in turn;"
        " max: at the same time, a lower bound; axes: x 8X·2Y is 2 neighbours of a Y group, 8"
        " times; bound from: the least batch at which a split is compute-bound",
    )


def _degrees(r: Roofline) -> Table:
    """Communication over the split of FSDP and tensor parallelism, the least marked."""
    least_sum = min(d.comm_sum_s for d in r.degrees)
    least_max = min(d.comm_max_s for d in r.degrees)
    return text_table(
        "X | Y | compute | FSDP | TP | sum | max | axes",
        [
            (
                str(d.x),
                str(d.y),
                *map(seconds, (d.compute_s, d.data_s, d.tensor_s)),
                seconds(d.comm_sum_s) + " <" * (d.comm_sum_s == least_sum),
                seconds(d.comm_max_s) + " <" * (d.comm_max_s == least_max),
                d.placement,
            )
            for d in r.degrees
        ],
        caption="splits X x Y: <, the least communication; axes: where sum is shortest",
    )


def _notes(r: Roofline) -> Iterator[RenderableType]:
    for s in r.schemes:
        if s.note:
            yield Text(f"{s.name}: {s.note}", "dim")
    yield from noted(r.notes)


def _tokens(batch: float | None) -> str:
    return "never" if batch is None else count(batch)
