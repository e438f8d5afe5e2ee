"""What `plan` makes of layouts that somebody tuned and published: is each allowed, how near is its
predicted time to that of the best layout, and how sure is the difference.

    python benchmarks/tuned.py                      to stdout
    python benchmarks/tuned.py -o docs/accuracy.md  between its markers

The job, its software and its framework are the source's; only the layout is searched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pages import written

from meshwright import Job, Plan, Prediction, plan, predict
from meshwright.describe import shipped
from meshwright.describe.software import Software
from meshwright.formats import parse_toml
from meshwright.formats.toml import load_job
from meshwright.report.text import percent, risk_words, short_words
from meshwright.search import recipe_layouts, recipes
from meshwright.search.recipes import RISKY
from meshwright_studies.validate.markdown import markdown_table

RUNS = (
    "megatron-bridge-087",
    "megatron-bridge-033",
    "megatron-bridge-080",
    "megatron-bridge-075",
    "megatron-bridge-040",
    "megatron-bridge-106",
    "megatron-bridge-051",
    "megatron-bridge-223",
    "megatron-bridge-044",
    "megatron-bridge-053",
    "megatron-readme-h100-009",
    "korthikanti2022-009",
    "bigscience-tr11-100",
    "torchtitan-020",
    "maxtext-tpu-032",
)
"""Runs of the catalogue: of NVIDIA's performance recipes the fastest of each model and family of
chips on 64 chips or more; of others the production run, or the largest of the fastest chips."""
PAPERS = (
    ("Llama 3 paper table 4 and section 3.3.2", 2048, 8192, {}),
    (
        "DeepSeek-V3 paper sections 3.1 to 3.3",
        15360,
        4096,
        {"dispatcher": "deepep"},
    ),
)
"""(source of a recipe, sequences of a batch, tokens of a sequence, its software as far as a setting
says it)."""
NEAR = 0.10
"""Times that differ by less are near."""


class Case(NamedTuple):
    """A tuned layout, and the plan of its job."""

    source: str
    mine: Prediction
    plan: Plan

    @property
    def allowed(self) -> bool:
        """Within the risk that is accepted, or known to have run."""
        known = RISKY in " ".join(f.note for f in self.plan.families)
        return self.mine.fits or known

    @property
    def apart(self) -> float:
        """What the published layout takes more than the best, both predicted."""
        best = self.plan.best
        assert best is not None
        return self.mine.step_time_s / best.step_time_s - 1.0

    @property
    def sure(self) -> bool:
        """The best claims more than the error of its class: it ends where the published begins."""
        best = self.plan.best
        assert best is not None and best.interval_s and self.mine.interval_s
        return best.interval_s[1] < self.mine.step_time_s


def cases() -> Iterator[Case]:
    """All of them."""
    for source, batch, seq, software in PAPERS:
        # a paper's larger run, where it has two
        recipe = max(
            (r for r in recipes() if r.source == source and r.seq == seq),
            key=lambda r: r.chips,
        )
        job = Job(
            recipe.model,
            f"{recipe.chips}x{recipe.chip}",
            batch,
            seq=seq,
            precision=recipe.precision,
            software=Software(**software),
        )
        yield Case(source, recipe_layouts(job, recipe)[0][0], plan(job))
    described: dict[str, Any] = json.loads(shipped.text("runs/described.json"))
    for id in RUNS:
        job = load_job(parse_toml(described[id]["job"], id))
        yield Case(id, predict(job), plan(job))


def lines(every: list[Case]) -> Iterator[tuple[str, ...]]:
    """A row each."""
    for case in every:
        best = case.plan.best
        assert best is not None
        job = case.mine.job
        yield (
            case.source,
            f"{job.model.name}, {job.cluster.chips:,} x {job.cluster.chip.name},"
            f" {job.precision.compute}",
            short_words(case.mine.layout),
            f"{'yes' if case.allowed else 'no'} ({risk_words(case.mine.risk_of_oom)})",
            f"{case.mine.step_time_s:.3g}",
            f"{best.step_time_s:.3g}",
            percent(case.apart, 0),
            short_words(best.layout),
            "surely" if case.sure else "",
        )


def tables() -> str:
    """The table, and how many are allowed and near."""
    every = list(cases())
    allowed = sum(case.allowed for case in every)
    near = sum(case.apart <= NEAR for case in every)
    header = (
        "source",
        "job",
        "published layout",
        "allowed (risk)",
        "predicted, s",
        "best, s",
        "more than the best",
        "best layout",
        "beyond the interval",
    )
    return (
        f"Of {len(every)} published layouts that somebody tuned, {allowed} are allowed, and {near} are"
        f" within {NEAR:.0%} of the best layout that `plan` finds (both predicted).\n\n"
        + markdown_table(header, lines(every))
    )


if __name__ == "__main__":
    written(__doc__, tables)
