"""The measured comparisons of section 5 as the default assumption set predicts them: is the same
choice best?

Numbers of TFLOP/s are in the tables; a check asks only for the paper's conclusion. Nothing is
fitted, and where ours differs it stays a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from meshwright.describe.layout import Layout
from meshwright.prediction.prediction import predict

from ..report import Check, PaperTable, check, holds, judged, table_of
from . import formulas as f
from .figures import (
    Value,
    paper_figures,
    runs,
    tflops,
    throughputs,
    with_framework,
)
from .tables import selene, shaped

Rates = Mapping[Value, float]
LETTERS = {
    "tp": "t",
    "pp": "p",
    "dp": "d",
    "microbatch": "b",
    "interleave": "v",
}
"""What varies, as the paper calls it."""
STAGES = 8
"""Of figure 8, each of as many layers as its model has."""
WITHIN = 0.25
"""Of a gain that the paper prints."""


def interleaving_gain(batch: int) -> float:
    """Figure 12: throughput of the interleaved schedule over that of 1F1B, less one."""
    plain, chunked = throughputs("12", batch).values()
    return chunked / plain - 1


def scattered(batch: int) -> float:
    """Figure 18: throughput of the interleaved schedule with scatter/gather over that without."""
    chunks = paper_figures()["18"].values[-1]
    with_it, without = (
        throughputs("18", batch, message)[chunks]
        for message in ("scattered", "whole")
    )
    return with_it / without


@cache
def unfused(
    model: tuple[tuple[str, Any], ...], gpus: int, batch: int
) -> float:
    """Section 5.8: throughput with fused operators over that where every operation is a pass of its
    own.
    """
    job = selene(shaped(**dict(model)), gpus, batch)
    apart = with_framework(
        job, biases="apart", unfused="torch-fp32", attention="torch-fp32"
    )
    layout = Layout(
        tp=8, pp=gpus // 8, recompute="full", sequence_parallel=False
    )
    slow = predict(apart, layout)
    return float(slow.step_time_s / predict(job, layout).step_time_s)


def fused_gains() -> dict[str, tuple[float, float]]:
    """Model -> (printed, predicted) gain of fused operators."""
    return {
        case["model"]["name"]: (
            case["fused"] / case["apart"] - 1,
            unfused(tuple(case["model"].items()), case["gpus"], case["batch"])
            - 1,
        )
        for case in paper_figures()["section-5.8"].cases
    }


@cache
def estimates(batch: int) -> Rates:
    """Figure 8: (b'/b + p - 1)(t_f + t_b), in sequences a second by microbatch."""
    layers = paper_figures()["8"].model["layers"]
    rate: dict[Value, float] = {}
    for b, run in runs("8", batch).items():
        parts = run.cost.typical
        forward = layers * float(parts.forward)
        backward = layers * float(parts.backward + parts.forward)
        microbatches = batch / int(b)
        rate[b] = batch / f.batch_time(microbatches, STAGES, forward, backward)
    return rate


def fastest_value(of: Rates) -> Value:
    """The value of the highest rate."""
    return max(of, key=lambda value: of[value])


def rates_text(letter: str, of: Rates) -> str:
    """Each run's TFLOP/s, in words."""
    each = ", ".join(f"{letter} {value}: {x:.0f}" for value, x in of.items())
    return f"{each} TFLOP/s a GPU"


def rises(of: Rates) -> bool:
    """Throughput rises from each to the next."""
    rate = [*of.values()]
    return all(a < b for a, b in zip(rate, rate[1:], strict=False))


def collapses(of: Rates) -> bool:
    """Throughput falls all along, and from t 8 to 32 by more than from 2 to 8."""
    falls = rises(dict(reversed([*of.items()])))
    return falls and of[8] / of[32] > of[2] / of[8]


def takeaway_checks() -> Iterator[Check]:
    """The conclusions, as numbers: a best value, or 1 for a statement that holds."""
    yield from by_microbatch()
    yield from best_values()
    yield from by_depth()
    yield from schedules()
    yield from recomputation_checks()
    for name, (printed, ours) in fused_gains().items():
        yield check(
            f"fused operators/{name}",
            published=printed,
            computed=ours,
            tolerance=WITHIN,
            note="gain; predicted",
        )


def best_values() -> Iterator[Check]:
    """Figures whose text names the best value of what varies, or how throughput goes with it."""
    statements: dict[str, tuple[str, Callable[[Rates], bool]]] = {
        "14": ("throughput rises with d", rises),
        "15": ("throughput collapses beyond t 8", collapses),
    }
    for number, of in paper_figures().items():
        if number not in statements and of.at is None:
            continue
        letter = LETTERS[of.varies]
        for batch in of.batches:
            id = f"fig-{number}/{of.model['name']}, batch {batch}"
            rate = (
                estimates(batch)
                if number == "8"
                else throughputs(number, batch)
            )
            text = rates_text(letter, rate)
            if number == "8":
                each = ", ".join(f"b {b}: {x:.1f}" for b, x in rate.items())
                text = f"{each} sequences/s"
            if number in statements:
                words, good = statements[number]
                yield holds(f"{id}/{words}", good(rate), text)
                continue
            assert of.at
            ours = int(fastest_value(rate))
            what = of.varies if of.varies == "microbatch" else letter
            yield judged(
                f"{id}/best {what}",
                of.at,
                computed=ours,
                good=ours == of.at,
                note=text,
            )


def by_microbatch() -> Iterator[Check]:
    """Figure 7 and section 3.4: throughput rises with the microbatch, by up to so much."""
    of = paper_figures()["7"]
    rate = throughputs("7")
    each = ", ".join(f"{x:.0f}" for x in rate.values())
    sizes = ", ".join(map(str, rate))
    yield holds(
        "fig-7/1B, rises with the microbatch",
        [*rate.values()] == sorted(rate.values()),
        f"{each} TFLOP/s at microbatch {sizes}",
    )
    gain = rate[16] / rate[1]
    few, many = (
        run.step_time_s - run.time_s["optimizer"]
        for b, run in runs("7").items()
        if b in (1, 16)
    )
    yield judged(
        "fig-7/1B, largest over smallest microbatch",
        published=of.gain,
        computed=gain,
        good=round(gain, 1) == of.gain,
        note="to the printed digit; a batch is one microbatch here, so that a larger one has more"
        f" sequences for a step of the optimizer: without it {16 * few / many:.2f}",
    )


def by_depth() -> Iterator[Check]:
    """Figure 11: throughput falls with the stages, less at the larger batch."""
    few, many = (
        [*throughputs("11", batch).values()]
        for batch in paper_figures()["11"].batches
    )
    falls = all(x == sorted(x, reverse=True) for x in (few, many))
    note = f"{few[0]:.0f} to {few[-1]:.0f} at batch 8, {many[0]:.0f} to {many[-1]:.0f} at batch 128"
    yield holds("fig-11/throughput falls with p", falls, note)
    less = many[-1] / many[0] > few[-1] / few[0]
    yield holds("fig-11/less at the larger batch", less, note)


def schedules() -> Iterator[Check]:
    """Figures 12 and 18: interleaving at small and large batches, with scatter and gather and
    without."""
    of = paper_figures()["12"]
    first, last = of.batches[0], of.batches[-1]
    chunks = of.values[-1]
    few, many = map(interleaving_gain, (first, last))
    note = f"{few:+.0%} at batch {first}, {many:+.0%} at batch {last}"
    yield holds(
        "fig-12/175B, interleaving 10 % faster at a small batch",
        few >= of.gain,
        note,
    )
    yield holds("fig-12/175B, the gap closes with the batch", many < few, note)
    one, two = (f.bubble_share(first, 1, first, v) for v in of.values)
    formula = (1 + one) / (1 + two) - 1
    yield Check(
        "fig-12/175B, interleaving, at most",
        published=of.gain,
        computed=few,
        status="loose" if abs(few / formula - 1) <= WITHIN else "mismatch",
        note=f"{note}; the introduction prints as much as 10 %, the abstract 10+ %; the bubbles of"
        f" section 2.2 give {formula:+.0%} at batch {first} with the {chunks} chunks of the"
        " authors' script",
    )
    gains = {batch: scattered(batch) - 1 for batch in of.batches}
    yield check(
        "fig-18/175B, scatter and gather, at most",
        published=paper_figures()["18"].gain,
        computed=max(gains.values()),
        tolerance=WITHIN,
        note=", ".join(f"batch {b}: {x:+.1%}" for b, x in gains.items())
        + f"; {chunks} chunks a device, as in the authors' script",
    )
    plain, chunked = throughputs("12", last, "whole").values()
    # a batch of an interleaved schedule is a multiple of the stages
    ahead = next(
        batch
        for batch in range(last, BEYOND, of.fixed["pp"])
        if fastest_value(throughputs("12", batch, "whole")) == 1
    )
    yield holds(
        "fig-12/175B, 1F1B ahead at a large batch without scatter and gather",
        plain > chunked,
        f"1F1B {plain:.0f}, interleaved {chunked:.0f} TFLOP/s at batch {last}, the largest of the"
        f" figure; 1F1B is ahead from a batch of {ahead} on: the paper prints no batch, and shows"
        " no such run",
    )


BEYOND = 1536
"""The largest batch of this model in the paper (table 2)."""


def recomputation_checks() -> Iterator[Check]:
    """Figure 17: what recomputation costs at a small batch, and that a large one needs it."""
    of = paper_figures()["17"]
    small, large = (runs("17", of.batches[i]) for i in (0, -1))
    longer = small["full"].step_time_s / small["none"].step_time_s - 1
    yield Check(
        "fig-17/145B, batch 1, recomputation",
        published=of.gain,
        computed=small["none"].step_time_s / small["full"].step_time_s - 1,
        status="explained"
        if abs(longer / -of.gain - 1) <= 0.1
        else "mismatch",
        note="of sequences a second; the cause in the text is the extra forward pass, a third of"
        f" forward and backward: here {longer:+.0%} of the time, by its own FLOPs 96/72, and"
        " so a quarter of the sequences",
    )
    risk = large["none"].risk_of_oom
    note = f"batch 256 without recomputation: risk of running out of memory {risk:.0%}"
    yield holds("fig-17/145B, needed at a large batch", risk > 0.5, note)


def takeaways_table() -> PaperTable:
    """The runs behind the takeaways, with their terms."""
    return table_of(
        "megatron-takeaways",
        "Figures 12 to 16, predicted (realistic, nothing fitted to them)",
        (
            {
                "": f"figure {number}",
                "model": p.job.model.name,
                "batch": batch,
                "varied": LETTERS[of.varies],
                "value": value,
                "TFLOP/s a GPU": tflops(p),
                "step s": p.step_time_s,
                "bubble share": p.time_s["bubble"] / p.step_time_s,
                "fits": p.fits,
            }
            for number in ("13", "14", "15", "16", "12")
            for of in (paper_figures()[number],)
            for batch in of.batches
            for value, p in runs(number, batch).items()
        ),
    )
