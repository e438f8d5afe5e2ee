"""One term of a prediction in full: its formula with the numbers put in, its source, and its parts.

A term is named by its path ("step_time/compute/layers/ffn/up forward"), or by those words of it
that matter ("compute/ffn/up").
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..count.model import model_flops
from ..errors import BadInput, either
from ..prediction.prediction import Prediction
from ..prediction.term import Term
from ..units import show
from .tables import text_table
from .text import percent

MOST = 40
"""Parts shown at once."""


def find(p: Prediction, wanted: str) -> tuple[tuple[str, Term], ...]:
    """(path, term) of the terms that `wanted` names: those with that path, else all with its words
    in this order.

    Raises BadInput with the nearest names.
    """
    terms = list(_paths(p))  # a path may occur twice: layers of two kinds
    for exact in (wanted, f"step_time/{wanted}"):
        if terms_of_path := tuple(
            (path, term) for path, term in terms if path == exact
        ):
            return terms_of_path
    words = [w for w in wanted.lower().split("/") if w]
    hits = [
        (path, term) for path, term in terms if words and _has(path, words)
    ]
    if not hits:
        known = sorted(
            {piece for path, _ in terms for piece in (*path.split("/"), path)}
        )
        near = get_close_matches(
            words[-1] if words else "", known, n=4, cutoff=0.4
        ) or [
            "step_time",
            "memory",
            "mfu",
        ]
        raise BadInput(
            f"term {wanted[:60]!r} is not in this prediction; did you mean {either(near)}?"
        )
    return tuple(
        (path, term)
        for path, term in hits
        if not any(path.startswith(above + "/") for above, _ in hits)
    )


def _paths(p: Prediction) -> Iterator[tuple[str, Term]]:
    """Terms by path: the step, the memory of a chip, the rates, and the run."""
    for root in (p.term, p.memory_term, *rate_terms(p), *_run(p)):
        yield from _below(root, root.name)


def _below(term: Term, path: str) -> Iterator[tuple[str, Term]]:
    yield path, term
    for part in term.parts:
        yield from _below(part, f"{path}/{part.name}")


def _has(path: str, words: list[str]) -> bool:
    """The words begin pieces of the path, in this order."""
    pieces = iter(path.lower().replace(" ", "/").split("/"))
    return all(
        any(piece.startswith(word) for piece in pieces) for word in words
    )


def rate_terms(p: Prediction) -> tuple[Term, ...]:
    """Throughput and utilisation as terms without parts."""
    flops = model_flops(p.job.model, p.job.T)
    peak = p.job.cluster.chip.peak(p.job.precision.compute)
    per_chip = p.tokens_per_s_per_chip
    definition = "Chowdhery et al. 2022, PaLM, appendix B"
    return (
        Term(
            "tokens_per_s",
            p.tokens_per_s,
            "token/s",
            f"{p.job.batch_tokens:,.0f} tokens / {p.step_time_s:.6g} s",
        ),
        Term(
            "mfu",
            value=p.mfu,
            unit="",
            formula=f"{flops:.6g} model FLOPs a token x"
            f" {per_chip:.6g} tokens/s/chip / {peak:.6g} FLOP/s",
            source=definition,
        ),
        Term(
            "hfu",
            value=p.hfu,
            unit="",
            formula=f"{p.executed_flops:.6g} FLOPs that kernels execute in a step"
            f" / {p.step_time_s:.6g} s / {p.job.cluster.chips:,} chips / {peak:.6g} FLOP/s",
            source=definition,
        ),
    )


def _run(p: Prediction) -> Iterator[Term]:
    """Time, rent and energy of the whole run, where the job says its tokens."""
    whole, useful, chips = p.train_time_s, p.useful_time_s, p.job.cluster.chips
    if whole is None or useful is None:
        return
    steps = f"{p.job.tokens:.6g} tokens / {p.tokens_per_s:.6g} token/s"
    lost = [Term(name, s, "s") for name, s in (p.lost_s or {}).items()]
    yield Term(
        "train_time",
        whole,
        "s",
        "sum of its parts",
        parts=(Term("useful", useful, "s", steps), *lost),
    )
    chip = p.job.cluster.chip
    hours = f"{whole:.6g} s x {chips:,} chips / 3600"
    if p.cost_usd is not None:
        price = f"{hours} x {chip.usd_per_hour:.6g} USD/h"
        yield Term("cost", p.cost_usd, "USD", price)
    if p.energy_j is not None:
        watts = f"{whole:.6g} s x {chips:,} chips x {chip.power_w:.6g} W"
        yield Term("energy", p.energy_j, "J", watts)


def explanation_report(p: Prediction, wanted: str) -> RenderableType:
    """What `--explain` prints."""
    hits = find(p, wanted)
    shown: list[RenderableType] = []
    if len({path for path, _ in hits}) == 1:
        # a path occurs twice where two parts of a model have operations of one name
        for path, term in hits:
            shown += [Text(f"{path} = {value(term)}", "bold"), *_lines(term)]
        parts = [(part.name, part) for _, term in hits for part in term.parts]
    else:
        total = sum(term.value for _, term in hits)
        shown += [
            Text(
                (
                    f"{wanted}: {len(hits)} terms, {show(total, hits[0][1].unit)} together"
                    if _same_unit(hits)
                    else f"{wanted}: {len(hits)} terms"
                ),
                "bold",
            )
        ]
        parts = list(hits)
    if parts:
        shown += [Text(), _table(parts)]
    return Group(*shown)


def _lines(term: Term) -> Iterator[Text]:
    if term.formula:
        yield Text(f"  = {term.formula}")
    if term.expression:
        yield Text(f"  = {term.expression.text}")
        for name, value in term.expression.values.items():
            number = value if isinstance(value, str) else f"{value:.6g}"
            yield Text(f"    {name} = {number}")
    if term.source:
        yield Text(f"  source: {term.source}", "dim")


def _table(parts: list[tuple[str, Term]]) -> RenderableType:
    """The parts, largest first."""
    ranked = sorted(parts, key=lambda part: -part[1].value)
    total = sum(term.value for _, term in parts) if _same_unit(parts) else 0.0
    table = text_table(
        "part | value | share | why | source",
        [
            (
                name,
                value(term),
                percent(term.value / total) if total else "",
                term.formula,
                term.source,
            )
            for name, term in ranked[:MOST]
        ],
    )
    if rest := ranked[MOST:]:
        whole = show(sum(t.value for _, t in rest), rest[0][1].unit)
        table.add_row(f"{len(rest)} smaller ones", whole)
    return table


def _same_unit(parts: Any) -> bool:
    return len({term.unit for _, term in parts}) == 1


def value(term: Term) -> str:
    """The value in its unit; memory in GiB."""
    return (
        show(term.value, "GiB")
        if term.unit == "B"
        else show(term.value, term.unit, 4)
    )


def explanation_to_dict(p: Prediction, wanted: str) -> list[dict[str, Any]]:
    """The terms for --json, with their parts."""
    return [{"path": path, **_plain(term)} for path, term in find(p, wanted)]


def _plain(term: Term) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": term.name,
        "value": term.value,
        "unit": term.unit,
        "formula": term.formula,
        "source": term.source,
    }
    if term.expression:
        data["expression"] = term.expression._asdict()
    return {**data, "parts": [_plain(part) for part in term.parts]}
