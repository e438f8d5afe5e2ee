"""The losses of a run over its steps; matplotlib is only needed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure


def losses(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Loss of every step, thin, their mean over the last 2 % of the run, and the loss on held-out
    text where it was taken.

    rows: of metrics.jsonl.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    known = [(r["step"], r["loss"]) for r in rows if r.get("loss") is not None]
    axes.plot(*zip(*known, strict=True), color="#bbccdd", lw=0.8)
    many = max(1, len(known) // 50)
    mean = [
        (known[i][0], sum(loss for _, loss in last) / len(last))
        for i in range(len(known))
        if (last := known[max(0, i + 1 - many) : i + 1])
    ]
    words = f"training, mean of {many} steps" if many > 1 else "training"
    axes.plot(*zip(*mean, strict=True), color="#4477aa", label=words)
    evaluated = [
        (r["step"], r["eval_loss"]) for r in rows if r.get("eval_loss")
    ]
    if evaluated:
        axes.plot(
            *zip(*evaluated, strict=True),
            color="#ee6677",
            marker="o",
            ms=4,
            ls="--",
            label="held-out text",
        )
    axes.set(xlabel="step", ylabel="loss (nats a token)", title=title)
    axes.grid(color="#eeeeee")
    axes.legend()
    return figure
