"""Plans worked out when the page is written as a folder: what it shows until its program is there.

Models x chips x powers of two, all with the batch and the tokens of the opening question. A row has
the fields of a plan's best that its card draws, in seven digits.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import MeshwrightError
from ..search import Progress
from .answers import Answer, answer_plan
from .question import OPENING

NAME = "answers.gz"
"""Of the file that has them."""
DIGITS = 7
SHOWN = (
    "schema",
    "model",
    "cluster",
    "chips",
    "batch_sequences",
    "seq_tokens",
    "precision",
    "framework",
    "step_time_s",
    "replayed_s",
    "interval_s",
    "mfu",
    "tokens_per_s",
    "train_time_s",
    "cost_usd",
    "energy_j",
    "time_s",
    "fits",
    "risk_of_oom",
    "memory_bytes",
    "memory_by_stage_bytes",
    "layout",
    "layout_words",
)
"""Fields of a prediction that the card of an answer draws (answer.js)."""


@dataclass(frozen=True)
class KeyRange:
    """What is worked out."""

    models: Sequence[str] = (
        "llama3-8b",
        "llama3-70b",
        "llama3-405b",
        "gpt3-175b",
        "mixtral-8x7b",
        "gpt-oss-120b",
        "qwen3-235b-a22b",
        "deepseek-v3",
    )
    chips: Sequence[str] = (
        "h100-sxm",
        "h200",
        "b200",
        "a100-80",
        "tpu-v5p",
    )
    sizes: Sequence[int] = tuple(2**k for k in range(3, 13))


def compressed(over: KeyRange, progress: Progress) -> bytes:
    """All rows as a compressed JSON file: model -> chip -> number of chips -> best and price."""
    data = json.dumps(_table(over, progress), separators=(",", ":"))
    return gzip.compress(data.encode(), mtime=0)


def _table(over: KeyRange, progress: Progress) -> Mapping[str, Any]:
    """The rows; a job that has no plan, or that nothing fits, has none."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    count = len(over.models) * len(over.chips)
    for k, model in enumerate(over.models):
        of_model = rows.setdefault(model, {})
        for j, chip in enumerate(over.chips):
            progress(f"{model} on {chip}", (k * len(over.chips) + j) / count)
            of_chip = of_model.setdefault(chip, {})
            for size in over.sizes:
                if row := _row(
                    {**OPENING, "model": model, "on": f"{size}x{chip}"}
                ):
                    of_chip[str(size)] = row
    return {
        "batch": OPENING["batch"],
        "tokens": OPENING["tokens"],
        "rows": rows,
    }


def _row(question: Mapping[str, str]) -> Answer | None:
    body = {"question": question, "families": False, "top": 1}
    try:
        plan = answer_plan(body, lambda what, share: None)
    except MeshwrightError:
        return None
    best = plan["best"]
    if best is None:
        return None
    fields = {name: best[name] for name in SHOWN if name in best}
    if rows := (best.get("evidence") or {}).get("rows"):
        fields["evidence"] = {"rows": rows}
    return {"best": rounded(fields), "price": plan["price"]}


def rounded(value: Any) -> Any:
    """A value, and those inside, in so many digits as anybody reads."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return value
