"""The paper's tables and worked numbers, computed again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from meshwright.catalog import chip, network
from meshwright.cost.hierarchy import levels, product_time
from meshwright.count.work import Product
from meshwright.describe.assumptions import EPOCH
from meshwright.limits.answer import bill, smallest_cluster
from meshwright.limits.closed_forms import (
    LATENCY_CONSTANT,
    Accelerator,
    Setting,
    bandwidth_reach,
    closed_forms,
    latency_reach,
    nanobatch,
    node,
    scaled_flops,
    slice_side,
)
from meshwright.limits.scenario import MONTH_S, preset
from meshwright.limits.sensitivity import sensitivity
from meshwright.num import Num

from ..report import (
    Check,
    PaperTable,
    holds,
    near_published,
    sourced,
    table_of,
)
from .golden import ours, smooth
from .published import EXAMPLE_WIDTH, LINEAR, PRINTED

WALL_STEP = 0.36
"""Between the wall of the text and the last model of the grid that can be trained, 2.707e31."""
SENSITIVE = (
    "v100",
    "a100",
    "h100",
    "h100/sparse",
    "h100-global-nvlink-low-latency",
)


def digits(text: str) -> int:
    """Significant digits of a printed number: 26.7e3 has three, 3e27 has one."""
    return len(
        re.sub(r"^0+", "", re.sub(r"[eE].*", "", text).replace(".", ""))
    )


def rounds(
    id: str,
    text: str,
    value: float,
    note: str = "",
    within: float = 0.0,
    status: str = "explained",
) -> Check:
    """A number against a printed one: a match if it rounds to the printed digits.

    note: explains a number that does not, if it is `within` that relative difference;  status:
    what it then is.
    """
    published = float(text)
    if float(f"{value:.{digits(text) - 1}e}") == published:
        return Check(
            id,
            published,
            computed=value,
            status="match",
            note=f"rounds to the {text} printed",
        )
    if near_published(published, value, within):
        return Check(id, published, computed=value, status=status, note=note)
    return Check(id, published, value, "mismatch")


def printed_ends() -> Iterator[tuple[str, str, str]]:
    """(table or figure, scenario, printed end of linear scaling)."""
    for where, rows in LINEAR.items():
        for base, both in rows.items():
            for kind, text in zip(("", "/sparse"), both, strict=False):
                yield where, base + kind, text


def spelled(scenario: str) -> str:
    """A scenario that says whether it is dense."""
    return scenario if scenario.endswith("/sparse") else f"{scenario}/dense"


def first_end(scenario: str) -> float:
    """The first run of our curve below the threshold."""
    return ours(scenario).crossing.first_flops or math.nan


def linear_scaling() -> Iterator[Check]:
    """Tables 3 and 4, the wall and figure 9."""
    for where, scenario, text in printed_ends():
        name = scenario if "figure" in where else spelled(scenario)
        yield rounds(f"{where}/{name}", text, first_end(scenario))
    orders = math.log10(first_end("h100-deepseek") / first_end("h100"))
    yield rounds(
        "figure 9/orders of magnitude", PRINTED["figure_9_orders"], orders
    )
    for name, text in PRINTED["plateau"].items():
        yield rounds(f"figure 6/plateau/{name}", text, preset(name).sustained)
        # the last run that can be trained: one point of a grid, 2.7e31, where the text says "past
        # 2e31"
        yield rounds(
            f"figure 6/wall/{name}",
            text=PRINTED["wall"],
            value=ours(name).points[-1].flops,
            note="the text names the closed form; the next model of the grid, 3.7e31, cannot be"
            " trained",
            within=WALL_STEP,
        )


def closed_form_table() -> Iterator[Check]:
    """Table 2, equations 15, 17 and 18, appendix 8.3, section 4.1.1."""
    run = Setting()
    for name, (inputs, (side, tokens, flops)) in PRINTED["table_2"].items():
        forms = closed_forms(Accelerator(*inputs), run)
        yield rounds(f"table 2/{name}/d'", side, forms.slice_side)
        note = (
            "C/B_DRAM with C as printed; with C from the clock, 1.2475e15 MAC/s, it is the 401 that"
            " is printed"
        )
        yield rounds(
            f"table 2/{name}/b'",
            text=tokens,
            value=forms.nanobatch,
            note=note,
            within=5e-3,
        )
        yield rounds(f"table 2/{name}/T", flops, forms.critical_flops)
    any_node = closed_forms(
        Accelerator(*PRINTED["table_2"]["DGX H100"][0]), run
    )
    for where, text, value in (
        ("equation 15", "equation_15", any_node.latency_critical_flops),
        ("equation 18", "limit_flops", any_node.limit_flops),
        ("equation 17", "limit_parameters", any_node.limit_parameters),
        (
            "section 4.1.1/square product",
            "balanced_square",
            balanced_square(1e15, 3.35e12),
        ),
    ):
        yield rounds(where, PRINTED[text], value)
    yield from appendix(run)


def balanced_square(peak_flops: float, bytes_per_s: float) -> float:
    """Side of the square product that takes as long to compute as to stream: 2 n^3 / C = 3 n^2
    words of 2 bytes / B (section 4.1.1)."""
    return 3 * peak_flops / bytes_per_s


def appendix(run: Setting) -> Iterator[Check]:
    """Appendix 8.3 in the paper's units and in consistent ones."""
    printed = PRINTED["appendix"]
    a = printed["exponent"]
    reach = latency_reach(run)
    limit = float(scaled_flops(run, reach, a, LATENCY_CONSTANT))
    right = float(scaled_flops(run, reach, a, LATENCY_CONSTANT, macs=True))
    yield rounds("appendix 8.3/limit at exponent 0.2", printed["limit"], limit)
    yield Check(
        "appendix 8.3/limit in consistent units",
        published=float(printed["limit"]),
        computed=right,
        status="erratum",
        note="the paper inserts T0 = 3e23 FLOP into a formula in multiply-adds; with both in"
        " multiply-adds the limit is 4e36",
    )
    for name in ("v100", "a100", "h100"):
        longer, usual = (float(scaled_end(name, x)) for x in (a, 0.0))
        orders = math.log10(longer / usual)
        yield rounds(
            f"appendix 8.3/orders of magnitude/{name}",
            text=printed["orders"],
            value=orders,
            note="the text says about three for all nodes; ours is what its inputs give",
            within=0.3,
            status="loose",
        )


def scaled_end(name: str, exponent: Num) -> Num:
    """End of linear scaling on a node by the closed forms, where b/L grows with an exponent."""
    run, on = Setting(), node(chip(f"epoch-{name}"), network(f"epoch-{name}"))
    side = slice_side(on)
    reach = bandwidth_reach(on, run, side, nanobatch(on, side))
    return scaled_flops(run, reach, exponent)


def on_hierarchy(chip_name: str, product: Product) -> float:
    """Seconds of a forward product by the paper's own model of a chip: launch, memories,
    arithmetic.
    """
    c = chip(chip_name)
    on = levels(
        c,
        precision="fp16",
        share=c.sustained or 1.0,
        launch_s=EPOCH.chip.launch_s,
        element_bytes=2.0,
    )
    return float(product_time(on, product))


def products() -> Iterator[Check]:
    """Single matrix products on the memory hierarchy."""
    for name, sides, text in PRINTED["own"]["products"]:
        out, inner, tokens = map(float, sides)
        us = on_hierarchy(name, Product(out, inner, tokens)) * 1e6
        size = "x".join(map(str, sides))
        yield rounds(f"product/{name}/{size}/us", text, us)


def example_run() -> Iterator[Check]:
    """One run in full, and what a large one costs."""
    p = next(p for p in ours("h100").points if p.hidden == EXAMPLE_WIDTH)
    step = p.step
    values = {
        "flops": p.flops,
        "layers": p.layers,
        "parameters": p.parameters,
        "batch_tokens": p.batch_tokens,
        "chips": p.chips,
        "matmul_s": step.matmul,
        "tp_s": step.tp,
        "p2p_s": step.p2p,
        "dp_s": step.dp,
        "step_s": step.total,
        "utilisation": p.utilisation,
        "months": p.duration_s / MONTH_S,
    }
    example = PRINTED["own"]["example"].items()
    yield from sourced(
        "own", (rounds(f"example/{k}", text, values[k]) for k, text in example)
    )
    rent = (
        bill(smallest_cluster(preset("h100"), 1e30), preset("h100"))[
            "cost_usd"
        ]
        or math.nan
    )
    yield holds(
        "section 6.3.1/1e30 FLOP cost more than a trillion dollars",
        rent > PRINTED["rent_1e30_usd"],
        f"{rent:.2g} USD",
    )


def linear_table() -> PaperTable:
    """Ends of linear scaling: published, on the paper's grid, the last crossing, and in smooth
    mode.
    """
    rows = (
        {
            "where": where,
            "scenario": spelled(scenario),
            "published": float(text),
            "first grid point": exact.first_flops,
            "last crossing": exact.last_flops,
            "smooth: first": free.first_flops,
            "smooth: last crossing": free.last_flops,
        }
        for where, scenario, text in printed_ends()
        for exact in (ours(scenario).crossing,)
        for free in (smooth(scenario).crossing,)
    )
    return table_of(
        "epoch-linear-scaling", "End of linear scaling [FLOP]", rows
    )


def sensitivity_table() -> PaperTable:
    """Ends of linear scaling when one input at a time is changed."""
    effects = sensitivity([preset(name) for name in SENSITIVE])
    rows = []
    for change, crossings in effects.rows:
        row: dict[str, Any] = {"change": change}
        for name, c in zip(effects.scenarios, crossings, strict=True):
            first = "never above" if c.never else c.first_flops
            row |= {f"{name}: first": first}
            row |= {f"{name}: last crossing": c.last_flops}
        rows.append(row)
    return table_of(
        "epoch-sensitivity",
        "End of linear scaling [FLOP] when one input is changed",
        rows,
    )
