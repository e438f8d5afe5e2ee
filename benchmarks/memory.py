"""What a framework holds, one law switched off in turn: what each is worth on published memory and
on runs that ran out of it.

    python benchmarks/memory.py                 the table of docs/memory.md to stdout
    python benchmarks/memory.py -o docs/memory.md    written between its markers

Nothing is fitted again, and each law has a process of its own (as in `ablation`).
"""

from __future__ import annotations

from statistics import mean, median

from ablation import Law, without
from pages import each_alone, written

from meshwright_studies.validate.markdown import markdown_table
from meshwright_studies.validate.stats import grouped, quantile

EACH = (
    Law("gradients by framework", holding={"gradient_bytes": {}}),
    Law(
        "bytes of a logit (4 for all)",
        {"loss": "compiled", "logits_gathered": False},
    ),
    Law(
        "placeholders of weight gradients",
        holding={"dummy_weight_gradients": False},
    ),
    Law("norms of separate kernels", {"norm": "fused"}),
    Law(
        "outputs of pipeline stages", holding={"keeps_pipeline_outputs": False}
    ),
    Law("bucket of gradients", holding={"bucket_elements": 0.0}),
    Law("temporaries of the backward pass", holding={"backward_share": 0.0}),
    Law("copies at the step", holding={"step_bytes": 0.0}),
    Law("gradients that arise late", holding={"step_gradients": "kept"}),
    Law(
        "allocator and context",
        {"framework_bytes": 0.0},
        {"allocator_share": 0.0, "allocator_need": 0.0},
    ),
)
LAWS = (
    Law("nothing left out"),
    *EACH,
    Law(
        "all of them (what layers save)",
        {name: off for law in EACH for name, off in law.framework.items()},
        {name: off for law in EACH for name, off in law.holding.items()},
    ),
)
HEADER = (
    "without",
    "median",
    "p90",
    "sources",
    "balanced accuracy",
    "missed",
    "false",
    "Brier",
)


def line(law: Law) -> tuple[str, ...]:
    """What a law is worth."""
    v = without(law)
    errors = {
        source: [abs((row.ratio or 0.0) - 1.0) for row in rows]
        for source, rows in grouped(
            v.having("memory"), lambda r: r.source
        ).items()
    }
    every = sorted(e for of in errors.values() for e in of)
    found = v.overall["out_of_memory"]
    shown = (
        median(every),
        quantile(every, 0.9),
        mean(map(median, errors.values())),
        found["balanced_accuracy"],
    )
    return (
        law.name,
        *(f"{100 * share:.1f} %" for share in shown),
        str(found["false_negatives"]),
        str(found["false_positives"]),
        f"{found['brier']:.3f}",
    )


if __name__ == "__main__":
    written(
        __doc__,
        lambda: markdown_table(HEADER, each_alone(line, LAWS)),
    )
