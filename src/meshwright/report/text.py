"""Words and bars that several reports share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from typing import NamedTuple

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement

from ..describe import layers
from ..describe.chip import Chip
from ..describe.layout import Layout
from ..describe.model import Model
from ..prediction.classes import chip_family
from ..prediction.failures import has_published_rate
from ..prediction.prediction import Prediction
from ..step.memory import MemoryUse
from ..step.oom import chance
from ..units import count, show

CAUSES = {
    "compute": "matrix products and attention",
    "memory": "memory traffic beyond compute",
    "host": "waiting for kernel launches",
    "tp_comm": "tensor-parallel communication",
    "cp_comm": "context-parallel communication",
    "ep_comm": "expert all-to-all",
    "pp_comm": "sends between stages",
    "dp_comm": "data-parallel communication: gradients, weights",
    "bubble": "pipeline fills and drains",
    "overlap_slowdown": "compute slowed by overlapped communication",
    "optimizer": "optimizer step",
    "other": "not explained",
}
"""cause of time -> what it is; of communication, what is not hidden."""
BRIEFLY = {
    **CAUSES,
    "compute": "compute",
    "memory": "memory traffic",
    "host": "kernel launches",
    "pp_comm": "pipeline sends",
    "dp_comm": "data-parallel communication",
    "bubble": "pipeline bubble",
    "overlap_slowdown": "overlap slowdown",
    "optimizer": "optimizer",
}
"""Cause of time -> its name on a card."""
TOTALS = {
    "allocated": "live tensors at the peak",
    "reserved": "held by the allocator",
    "device": "everything the process holds, incl. what the allocator can give back",
    "needed": "required",
}
"""Sums of memory -> what they are."""
KINDS = MemoryUse._fields
"""Kinds of memory, in the order they are shown."""
MFU = (
    "MFU counts full (non-causal) attention and no recomputation, relative to the dense peak; HFU"
    " what kernels execute."
)
SPLITS = ("tp", "cp", "pp", "dp", "ep", "etp")
"""Degrees of a layout that divide the chips."""
WORDED = {
    *SPLITS,
    "schedule",
    "interleave",
    "microbatch",
    "zero",
    "recompute",
    "sequence_parallel",
    "placement",
}
"""Fields that `layout_words` says in words of their own; all others by their names."""
SPOKEN = {
    "stages slots": "embedding and loss as layers",
    "stages rest": "the rest in the last stage",
}
"""A field and its value -> how people say them (Megatron: account_for_embedding, _loss)."""
NOTHING = 1e-9
"""Share of a step that is rounding."""
LOST = {
    "checkpoints": "checkpoints",
    "restarts": "restarts",
    "again": "lost work",
}
"""`Prediction.lost_s`, in words."""
WIDTH = 12
"""Characters of a full bar."""
BLOCKS = " ▏▎▍▌▋▊▉"


class Bar(NamedTuple):
    """A horizontal bar of `share` (0..1) of WIDTH characters."""

    share: float

    def __str__(self) -> str:
        """In eighths of a character."""
        whole, eighths = divmod(round(self.length * 8), 8)
        return "█" * whole + BLOCKS[eighths].strip()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[str]:
        yield "#" * round(self.length) if options.ascii_only else str(self)

    def __rich_measure__(
        self, console: Console, options: ConsoleOptions
    ) -> Measurement:
        return Measurement(len(str(self)), len(str(self)))

    @property
    def length(self) -> float:
        """In characters; in this order what is not a number counts as 0."""
        return WIDTH * min(max(0.0, self.share), 1.0)


def seconds(value: float, digits: int = 3) -> str:
    """Seconds as such up to an hour, so that steps compare at a glance."""
    return (
        f"{show(value, '', max(digits, 3))} s"
        if 60 <= abs(value) < 3600
        else show(value, "s", digits)
    )


def signed(value: float) -> str:
    """Seconds with their sign."""
    return ("-" if value < 0 else "+") + seconds(abs(value))


def percent(share: float, digits: int = 1) -> str:
    """0.412 -> "41.2 %"."""
    return f"{100 * share:.{digits}f} %"


def layout_words(layout: Layout, microbatches: int | None = None) -> str:
    """The layout in one line, without the choices that change nothing."""
    steps = f" ({microbatches} a step)" if microbatches else ""
    none = layout.recompute == "none"
    return _in_words(
        layout,
        f"microbatch {int(layout.microbatch)}{steps}",
        f"{'no' if none else layout.recompute} recomputation",
        always=("tp", "pp", "dp"),
    )


def short_words(layout: Layout) -> str:
    """The layout in few words: what is 1, or as everybody has it, is left out."""
    few = layout.microbatch == 1
    none = layout.recompute == "none"
    return _in_words(
        layout,
        "" if few else f"microbatch {int(layout.microbatch)}",
        "" if none else f"{layout.recompute} recomputation",
    )


def _in_words(
    layout: Layout,
    microbatch: str,
    recompute: str,
    always: Collection[str] = (),
) -> str:
    """Degrees, the schedule, and what else is not as usual; always: degrees that are said even if
    they are 1.
    """
    words = [
        f"{name} {int(degree)}"
        for name in SPLITS
        if (degree := getattr(layout, name)) is not None
        and (name in always or degree != 1)
    ]
    v = int(layout.interleave)
    chunks = f", {v} chunks" if v != 1 else ""
    words += [layout.schedule + chunks] if layout.pp != 1 else []
    words += filter(None, (microbatch, f"ZeRO-{layout.zero}", recompute))
    return " · ".join([*words, *_whole_sequences(layout), *_rest(layout)])


def beside_words(mine: Layout, other: Layout) -> str:
    """Another layout by what it has in place of mine: "the same with interleaved, 8 chunks"; whole
    where that is most of it, or where it lacks something.
    """
    before, after = (
        {_part(l, words): words for words in short_words(l).split(" · ")}
        for l in (mine, other)
    )
    new = [words for name, words in after.items() if before.get(name) != words]
    if not before.keys() <= after.keys() or 2 * len(new) > len(after):
        return short_words(other)
    if mine.schedule == other.schedule:
        new = [words.removeprefix(f"{mine.schedule}, ") for words in new]
    return f"the same with {' · '.join(new)}"


def _part(layout: Layout, words: str) -> str:
    """What some words of a layout say: "tp" of "tp 4", "schedule" of "1f1b"."""
    if words.partition(",")[0] == layout.schedule:
        return "schedule"
    return words.rstrip("0123456789").strip(" -")


def _whole_sequences(layout: Layout) -> list[str]:
    """That norms and residuals are not split along the sequence, where tp could; SUMMA splits them
    another way.
    """
    could = layout.tp != 1 and layout.scheme != "summa"
    return (
        ["no sequence parallelism"]
        if could and not layout.sequence_parallel
        else []
    )


def _rest(layout: Layout) -> list[str]:
    """Fields that have no words of their own, where they are not as usual."""
    unusual = [
        f"{f.name.replace('_', ' ')} {getattr(layout, f.name)}"
        for f in fields(layout)
        if f.name not in WORDED and getattr(layout, f.name) != f.default
    ]
    return [SPOKEN.get(words, words) for words in unusual]


def layers_words(model: Model) -> str:
    """The layers in one line: 36 layers of linear attention (gated delta net) + experts, 12 of full
    attention + experts.
    """
    each = [
        f"{number} of {kind}" for kind, number in layers.mix(model).items()
    ]
    return ", ".join([each[0].replace(" of ", " layers of ", 1), *each[1:]])


def placement_words(p: Prediction) -> str:
    """How many ranks of each axis lie in each network dimension; empty if there is only one
    dimension.
    """
    dims = p.job.cluster.network.dims
    if len(dims) < 2:
        return ""
    words = []
    for axis, shares in p.layout.placement.items():
        (near, *_) = shares
        (first, *_) = dims
        rest = [
            f"{n:g} over {dim.name}"
            for n, dim in zip(shares[1:], dims[1:], strict=True)
            if n != 1
        ]
        here = [f"{near:g} inside {first.name}"] if near != 1 else []
        if here or rest:
            words.append(f"{axis}: {' x '.join((*here, *rest))}")
    return " · ".join(words)


def near(p: Prediction) -> tuple[str, str]:
    """(name of the fastest network dimension, which ranks share one of it): ("nvlink", "tp 2 cp 2
    dp 2").
    """
    shares = {axis: int(each[0]) for axis, each in p.layout.placement.items()}
    return (
        p.job.cluster.network.dims[0].name,
        " ".join(f"{axis} {n}" for axis, n in shares.items() if n != 1) or "-",
    )


def risk_words(risk: float) -> str:
    """A probability in a table."""
    return chance(risk).replace("less than ", "<").replace("more than ", ">")


def range_text(low: float, high: float, shown: Callable[[float], str]) -> str:
    """Two numbers with their unit said once if it is the same: "7.3-8.6 s"."""
    one, other = shown(low), shown(high)
    unit = other.partition(" ")[2]
    return f"{one.removesuffix(f' {unit}')}-{other}"


def interval_words(p: Prediction) -> str:
    """The 90 % interval of a step; empty where there is none."""
    return range_text(*p.interval_s, seconds) if p.interval_s else ""


def step_words(p: Prediction) -> str:
    """The step with its interval: 7.9 s (90 %: 7.3-8.6 s)."""
    sure = interval_words(p)
    return seconds(p.step_time_s) + (f" (90 %: {sure})" if sure else "")


def memory_needed(p: Prediction) -> str:
    """Of the fullest chip."""
    return show(p.memory_bytes["needed"], "GiB")


def rates_of_chip(p: Prediction) -> list[str]:
    """What a chip does a second, of which peak; the layers, where they are of several kinds."""
    peak = p.job.cluster.chip.peak(p.job.precision.compute)
    lines = [
        f"{p.tokens_per_s_per_chip:,.0f} tokens/s and"
        f" {show(p.model_flops_per_s_per_chip, 'FLOP/s')} per chip; MFU {percent(p.mfu)}, HFU"
        f" {percent(p.hfu)} of {show(peak, 'FLOP/s')} {p.job.precision.compute}{p.proviso}"
    ]
    if len(layers.mix(p.job.model)) > 1:
        lines.append(layers_words(p.job.model))
    return lines


def evidence(p: Prediction) -> list[str]:
    """On which published runs the interval rests, and the nearest of them."""
    of = p.evidence
    if not of:
        return []
    assert p.certainty
    counts = [f"{n:,} in {name}" for name, n in p.certainty.precisions.items()]
    if len(counts) == 1:
        counts = [f"all in {name}" for name in p.certainty.precisions]
    runs = (
        f"{of['rows']:,} of this kind"
        f" ({': '.join(filter(None, (of['class'], ', '.join(counts))))})"
        if of["rows"]
        else f"none of this kind ({of['class']})"
    )
    said = f"90 % interval from published runs, {runs}"
    lines = [said + (f"; {of['note']}" if of["note"] else "")]
    near = [
        f"{run['model']} on {run['chips']:,} x {run['chip']} in {run['precision']}"
        f" (measured {run['ratio']:.2f} of predicted)"
        for run in of["nearest"]
    ]
    return [*lines, *([f"nearest runs: {'; '.join(near)}"] if near else [])]


def chip_hours(p: Prediction) -> str:
    """Chip-hours and energy of a run with their intervals; empty if the job names no tokens."""
    if p.chip_hours is None:
        return ""
    words = f"{sure(p, p.chip_hours, count)} chip-hours"
    if p.energy_j is not None:
        energy = sure(p, p.energy_j / 3600, lambda value: show(value, "Wh"))
        words += f", {energy} at the power limit"
    return words


def run_words(p: Prediction) -> str:
    """Days and dollars of the whole run with their intervals, where they are known: "29 days
    (26-35.1), 1.84 M USD (1.65-2.22 M)".
    """
    parts = []
    if p.train_time_s is not None:
        parts.append(sure(p, p.train_time_s, lambda value: show(value, "s")))
    if p.cost_usd is not None:
        parts.append(sure(p, p.cost_usd, lambda value: f"{count(value)} USD"))
    return ", ".join(parts)


def priced_run(p: Prediction) -> str:
    """`run_words`, and at which price; without one, how one is given."""
    chip = p.job.cluster.chip
    return run_words(p) + (
        f", {chip.no_price}: --price {chip.name}=4.5 gives one"
        if p.cost_usd is None
        else f" at {price_words(chip)}"
    )


def sure(p: Prediction, value: float, shown: Callable[[float], str]) -> str:
    """A number with its interval, a unit that is a word said once: "29 days (26-35.1)"."""
    ends = p.within(value)
    if not ends:
        return shown(value)
    words = range_text(*ends, shown)
    for unit in (" days", " USD"):
        if all(shown(each).endswith(unit) for each in (value, *ends)):
            words = words.replace(unit, "")
    return f"{shown(value)} ({words})"


def price_words(chip: Chip) -> str:
    """The price of a chip, whose it is unless it is the user's (those of the catalogue have a
    date), and that nobody could look it up, where the catalogue says so: "AWS's 6.88 USD/chip-h".
    """
    about = chip.sources.get("usd_per_hour", {})
    source, note = (str(about.get(key, "")) for key in ("source", "note"))
    whose = f"{source.split()[0].rstrip(',')}'s " if about.get("date") else ""
    doubt = ", an unverified price" if note.startswith("unverified") else ""
    return f"{whose}{chip.usd_per_hour:.4g} USD/chip-h{doubt}"


def interruptions(p: Prediction) -> str:
    """What of a run is no training; empty where nothing is known of it, or no length."""
    lost = p.lost_s
    whole = p.train_time_s
    if lost is None or whole is None or p.lost is None or p.failures is None:
        return ""
    share = percent(sum(lost.values()) / whole)
    each = ", ".join(
        f"{words} {show(lost[name], 's', 2)}" for name, words in LOST.items()
    )
    known = has_published_rate(chip_family(p.job.cluster.chip))
    rate = (
        ""
        if known
        else "; the failure rate of Hopper, none is published for these chips"
    )
    return (
        f"includes {share} overhead: {each}; one interruption every"
        f" {show(float(p.lost.mtbf_s), 's', 2)}{rate}"
    )
