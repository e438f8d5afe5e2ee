"""What the text says beside its main tables: table 1, the exponents of the optimum, the calendar,
the noise scale, energy, the closed forms of each law.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from meshwright.cost.overlap import sum_loads
from meshwright.describe.frozen import put
from meshwright.describe.network import Dim, Network
from meshwright.limits.calendar import GROWTH, years_until
from meshwright.limits.closed_forms import (
    Setting,
    closed_forms,
    node,
    under_law,
)
from meshwright.limits.curve import curve
from meshwright.limits.laws import (
    FITTED_DEPTH,
    LAWS,
    LEAST_WIDTH,
    LawShape,
    shape,
)
from meshwright.limits.scenario import preset
from meshwright.limits.simulate import (
    AXES,
    Degrees,
    Groups,
    Machine,
    block_messages,
    gradients,
    tensor,
)
from meshwright.num import Num

from ..report import Check, PaperTable, check, holds, table_of
from .golden import ours
from .published import EXAMPLE_WIDTH, PRINTED
from .tables import rounds

WORD = 2.0
"""Bytes of an element."""
LARGE = 0.02
"""Relative size of what table 1 leaves out for large tensor degrees."""
SPREAD = Degrees(
    64.0,
    tp_model=64.0,
    tp_ff=256.0,
    pp=16.0,
    ep=1.0,
    microbatches=64.0,
    interleave=1.0,
    zero_bubble=1.0,
)
"""Any degrees will do; tp_ff / tp_model is F / D, the optimum that table 1 stands for."""
EXPERTS = 8.0
WORLD_ENERGY_J = 6.2e20
"""The world's primary energy in 2023, "at a record absolute high ... 620 Exajoules" (Energy
Institute, Statistical Review of World Energy, 73rd edition, June 2024; its findings as KPMG, who
publishes it with the institute, lists them on kpmg.com)."""


def one_switch() -> Machine:
    """The chip on one switch without latency."""
    one = Network("flat", (Dim("switch", 1e9, 0.0, efficiency=1.0),))
    return replace(preset("h100"), network=one).machine


def words_sent(s: LawShape, d: Degrees) -> dict[str, Num]:
    """Words that all chips together send in a step, by the functions of the simulation: seconds
    alone, times rate and chips. Degrees may be columns.
    """
    on = one_switch()
    stages = d._replace(ep=1.0, dp=d.dp * d.ep)
    experts = d._replace(pp=1.0, dp=d.dp * d.pp)
    sent = {
        "dp": gradients(on, s, d, groups_on_switch(d)),
        "tp": sum_loads(tensor(on, s, d, groups_on_switch(d))),
        "pp": sum_loads(
            block_messages(on, s, stages, groups_on_switch(stages))
        ),
        "ep": sum_loads(
            block_messages(on, s, experts, groups_on_switch(experts))
        ),
    }
    words = on.fabric.rates[0] * d.chips / WORD
    return {name: load.seconds * words for name, load in sent.items()}


def groups_on_switch(d: Degrees) -> Groups:
    """Groups whose ranks all lie on the one switch."""
    return {axis: (getattr(d, axis),) for axis in AXES}


def table_1_checks(s: LawShape, d: Degrees) -> dict[str, float]:
    """The four formulas as printed."""
    tp = d.tp_model * d.tp_ff
    return {
        "dp": 2 * s.parameters * (d.dp - 1),
        "tp": 8 * s.batch * s.L * math.sqrt(s.D * s.F * tp),
        "pp": 2 * s.batch * s.D * (d.pp * d.interleave - 1),
        "ep": 2 * s.batch * s.D * (s.L - 1) * (d.ep - 1) / d.ep,
    }


def example() -> tuple[LawShape, Degrees]:
    """The model and degrees that table 1 is counted for."""
    s = LawShape(*map(float, shape(LAWS["baseline"], EXAMPLE_WIDTH)))
    return s._replace(E=EXPERTS), SPREAD._replace(ep=EXPERTS)


def traffic() -> Iterator[Check]:
    """Table 1 beside our counts."""
    s, d = example()
    mine = words_sent(s, d)
    for name, words in table_1_checks(s, d).items():
        tolerance = LARGE if name == "tp" else 1e-9
        note = "for large degrees" if name == "tp" else ""
        yield check(
            f"table 1/{name}, words a step",
            published=words,
            computed=float(mine[name]),
            tolerance=tolerance,
            note=note,
            source="formula",
        )


def exponents() -> dict[str, float]:
    """Exponents of the degrees that send least, from our counts: log-log slopes between two
    numbers of chips, degrees as real numbers.
    """
    s = LawShape(*map(float, shape(LAWS["baseline"], EXAMPLE_WIDTH)))
    few, many = 1e12, 1e16
    best = [cheapest(s, chips) for chips in (few, many)]
    return {
        axis: math.log(best[1][axis] / best[0][axis]) / math.log(many / few)
        for axis in best[0]
    }


def cheapest(s: LawShape, chips: float) -> dict[str, float]:
    """dp, pp and tp of so many chips that send least in all, on a fine grid."""
    grid = np.exp(np.arange(0.0, 0.55, 0.002) * math.log(chips))
    dp = grid[:, None]
    pp = grid[None, :]
    tp = chips / dp / pp
    one = np.ones_like(tp)
    split = np.sqrt(tp * s.F / s.D)
    d = Degrees(
        dp * one,
        tp_model=tp / split,
        tp_ff=split,
        pp=pp * one,
        ep=one,
        microbatches=pp * 2,
        interleave=one,
        zero_bubble=one,
    )
    # microbatches of real size: traffic does not depend on how many there are
    large = 1e15
    sent = words_sent(s._replace(batch=s.batch * large), d)
    words = sent["dp"] + (sent["tp"] + sent["pp"]) / large
    total = np.where(tp >= 1, words, np.inf)
    i, j = np.unravel_index(int(np.argmin(total)), total.shape)
    return {"dp": float(grid[i]), "pp": float(grid[j]), "tp": float(tp[i, j])}


def optimum() -> Iterator[Check]:
    """Section 3.3."""
    for axis, slope in exponents().items():
        yield check(
            f"section 3.3/exponent of {axis}",
            published=PRINTED["exponents"][axis],
            computed=slope,
            tolerance=0.05,
            note="least total traffic of our counts, 1e12 to 1e16 chips",
        )


def calendar() -> Iterator[Check]:
    """Years until the walls at 4.2 times a year, from two orders below the first."""
    first, last = PRINTED["walls"]
    base = first / PRINTED["orders_below"]
    soon, later = PRINTED["years"]
    yield rounds(
        "abstract/years until 1e28 FLOP",
        soon,
        years_until(first, base),
    )
    until = years_until(last, base)
    between_walls = years_until(last, first)
    yield Check(
        "section 1/years until 1e31 FLOP",
        published=float(later),
        computed=until,
        status="erratum",
        note=f"at {GROWTH}x a year a factor of 1,000 takes {between_walls:.1f} years: with three"
        " years to 1e28 it is eight to 1e31, not seven",
    )


def depths() -> Iterator[Check]:
    """The law of appendix 8.1.4 beside the fit of figure 10, and what either says of the H100."""
    D = LEAST_WIDTH
    base = LAWS["baseline"]
    law, fit = (
        float(p(base.ffn_ratio * D**2)) for p in (base.depth, FITTED_DEPTH)
    )
    usual = ours("h100").crossing
    other = curve(put("law.depth", FITTED_DEPTH)(preset("h100"))).crossing
    assert usual.first_flops and usual.last_flops
    assert other.first_flops and other.last_flops
    yield Check(
        "figure 10/layers at the width of GPT-3, law over fit",
        published=1.0,
        computed=law / fit,
        status="erratum",
        note=f"the law has {law:.0f} layers, the fit to the same models {fit:.0f} with attention's"
        " weights counted (footnote 13), GPT-3 96; linear scaling on H100 ends at"
        f" {usual.first_flops:.1e} FLOP (last crossing {usual.last_flops:.1e}) under the law, at"
        f" {other.first_flops:.1e} ({other.last_flops:.1e}) under the fit",
    )


def energy() -> Iterator[Check]:
    """Section 5.2: the largest run of all against the world's energy."""
    flops = float(PRINTED["appendix"]["limit"])
    chip = preset("h100").chip
    scenario = preset("h100")
    joules = chip.energy_j(flops / (scenario.machine.rates.matrix))
    if joules is None:
        return
    yield holds(
        "section 5.2/3e36 FLOP take more than the world's energy of a year",
        joules > WORLD_ENERGY_J,
        f"{joules:.1e} J at the power limit of an H100 and the rate that it sustains; the"
        f" world's primary energy of a year, {WORLD_ENERGY_J:.1e} J, is not the paper's number",
    )


def gain(batch: float, noise: float) -> float:
    """Share of the gain of a step on an endless batch that a batch has: 1 / (1 + b_noise
    / b). Half at the noise scale, which is the critical batch; a run to the same loss takes 1 /
    gain times the steps, and 1 + b / b_noise times the tokens of a small batch. Source: McCandlish
    et al. 2018, arXiv 1812.06162, as in Erdil & Schneider-Joseph 2024, section 4.2.
    """
    return 1.0 / (1.0 + noise / batch)


def table_checks() -> tuple[PaperTable, ...]:
    """Table 1, the noise scale, the laws, the shape of the work."""
    s, d = example()
    mine = words_sent(s, d)
    return (
        table_of(
            "epoch-table-1",
            f"Table 1: words all chips send in a step, {with_degrees(s, d)}",
            (
                {
                    "axis": axis,
                    "formula": words,
                    "counted": float(mine[axis]),
                    "difference": float(mine[axis] / words - 1),
                }
                for axis, words in table_1_checks(s, d).items()
            ),
        ),
        table_of(
            "epoch-noise-scale",
            "Section 4.2: what a batch gains, and what it costs, by its size over the noise scale",
            (
                {
                    "b / b_noise": x,
                    "gain of a step": gain(x, 1.0),
                    "steps": 1 / gain(x, 1.0),
                    "tokens": x / gain(x, 1.0),
                }
                for x in (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
            ),
        ),
        laws(),
        products_of_chip(),
    )


def with_degrees(s: LawShape, d: Degrees) -> str:
    """The model and its degrees."""
    tp = f"{d.tp_model:g} x {d.tp_ff:g}"
    return f"width {s.D:,.0f}, dp {d.dp:g}, tp {tp}, pp {d.pp:g}, ep {d.ep:g}"


def laws() -> PaperTable:
    """The batch laws: exponents, closed forms, simulated ends."""
    rows = []
    for name in ("h100", "h100-deepseek", "h100-fixed"):
        scenario = preset(name)
        law = scenario.law
        on = node(scenario.chip, scenario.network)
        forms = closed_forms(on, under_law(Setting(), law))
        end = ours(name).crossing
        rows.append(
            {
                "law": law.name,
                "batch ~ T^": law.batch.exponent,
                "b/L ~ T^": law.growth,
                "closed form: linear to": min(
                    forms.critical_flops, forms.latency_critical_flops
                ),
                "simulated: first": end.first_flops,
                "last crossing": end.last_flops,
                "closed form: largest": forms.limit_flops,
            }
        )
    return table_of(
        "epoch-laws", "Batch laws in closed form and simulated [FLOP]", rows
    )


def products_of_chip() -> PaperTable:
    """Equation 4: the product of a chip, cube-shaped at best, beside what the search takes."""
    rows = []
    for p in ours("h100").points:
        d = p.degrees
        sides = {
            "D / tp": p.hidden / d.tp_model,
            "F / tp": 4 * p.hidden / d.tp_ff,
            "tokens / dp": p.batch_tokens / d.dp,
        }
        cube = math.prod(sides.values()) ** (1 / 3)
        longest = max(sides.values()) / cube
        rows.append(
            {
                "T_flop": p.flops,
                **sides,
                "cube": cube,
                "longest side / cube": longest,
            }
        )
    return table_of(
        "epoch-work-shape",
        "Equation 4: sides of the work of a chip, and the cube of the same volume",
        rows,
    )


def sentence_checks() -> Iterator[Check]:
    """Checks of everything that the text says beside its main tables."""
    yield from traffic()
    yield from optimum()
    yield from calendar()
    yield from depths()
    yield from energy()
