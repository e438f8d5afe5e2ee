"""The verb `roofline`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from .command import Answer, ModelArg, verb, word

Layer = Annotated[
    str,
    word(
        "What of a layer counts: book (two matrices), mlp, projections or block.",
        "NAME",
    ),
]
Sides = Annotated[
    str | None,
    word(
        "Shape of a TPU slice, such as 16x16x16; default: the most cubic one.",
        "SIDES",
    ),
]
Shorthand = Annotated[
    bool,
    word("Leave out the factor (n-1)/n of collectives, as the book does."),
]
Stages = Annotated[int, word("Stages of the pipeline row.", "N")]
Degree = Annotated[
    int,
    word(
        "Degree of the rows context and experts; 0 = size of the fastest network level.",
        "N",
    ),
]


@verb(
    "cluster",
    "job",
    without=("optimizer", "tokens", "attention_kernel"),
    writes=".json, .csv, .png or .svg",
)
def roofline(
    model: ModelArg,
    /,
    *,
    given: Mapping[str, str],
    layer: Layer = "book",
    shape: Sides = None,
    shorthand: Shorthand = False,
    stages: Stages = 8,
    context: Degree = 0,
    experts: Degree = 0,
) -> Answer:
    """Find the batch size and sharding at which training becomes communication-bound.

    Example: meshwright roofline llama3-70b --on 8960xtpu-v5p --batch 4M
    """
    from ..describe.slices import parse_shape
    from ..formats.flags import read_flags
    from ..report import files
    from ..report.roofline import roofline_card, roofline_report
    from ..roofline.queries import EXACT, asked_job
    from ..roofline.queries import roofline as compute

    notes: list[str] = []
    job = asked_job(
        lambda fields: read_flags(model, fields, notes, sys.stdin, fill=False),
        given,
        notes,
    )
    result = compute(
        job.model,
        job.cluster,
        job.batch_tokens,
        layer=layer,
        precision=job.precision,
        seq=job.seq,
        assumptions=job.assumptions if "assumptions" in given else EXACT,
        exact=False if shorthand else None,
        shape=parse_shape(shape) if shape else None,
        stages=stages,
        context=context,
        experts=experts,
    )
    result = replace(result, notes=(*notes, *result.notes))
    return Answer(
        result.to_dict,
        lambda: roofline_card(result),
        lambda: [roofline_report(result)],
        files=files.of_result(result),
    )
