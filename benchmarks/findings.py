"""Answers that none of the papers can give alone: the tables and pictures of docs/findings.md.

python benchmarks/findings.py                       tables to stdout
python benchmarks/findings.py -o docs/findings.md   written between its markers, with pictures
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pages import IMAGES, written

from meshwright import catalog
from meshwright.describe.assumptions import LBL, REALISTIC, SETS
from meshwright.describe.frozen import put, scaling
from meshwright.describe.job import PRECISIONS, Job
from meshwright.describe.layout import Layout
from meshwright.limits.answer import bill, limits, smallest_cluster
from meshwright.limits.curve import curve
from meshwright.limits.laws import FITTED_DEPTH, LAWS, SPARSE
from meshwright.limits.other_sets import stack_assumptions
from meshwright.limits.scenario import Scenario, preset
from meshwright.prediction.failures import Failures
from meshwright.prediction.prediction import predict
from meshwright.report.plots import image
from meshwright.search import plan
from meshwright_studies.reproduce.megatron import formulas
from meshwright_studies.reproduce.megatron.tables import selene

DOMAINS = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Chips that one NVLink domain joins."""
RESTARTS = (600.0, 60.0, 10.0, 1.0, 0.1)
"""Seconds from a failure to the first new step."""
LAYOUT = Layout(
    tp=8,
    pp=8,
    dp=16,
    zero=0,
    schedule="1f1b",
    recompute="full",
    sequence_parallel=False,
)
"""175B on 1,024 A100, without interleaving, which not all sets have."""
JOINTS = ("chip", "network", "overlap", "count", "memory")
"""In the order in which they are exchanged; memory says how wide gradients of fp16 are summed."""
ASKED = (
    ("4096xlbl-b200", LBL, "fp16"),
    ("4608xb200", REALISTIC, "bf16"),
    ("4608xgb200-nvl72", REALISTIC, "bf16"),
    ("4608xgb200-nvl72", REALISTIC, "fp8"),
)
"""(cluster, set of assumptions, precision) of the plans of GPT3-1T."""


def answers() -> str:
    """All tables."""
    return "\n\n".join(
        "\n".join(part)
        for part in (
            domains(),
            experts(),
            restarts(),
            levers(),
            prices(),
            joints(),
            survivors(),
        )
    )


def domains() -> Iterator[str]:
    """Where linear scaling ends, by the size of the NVLink domain: chip and laws of Epoch's H100."""
    points = [(n, *reached(joined(preset("h100"), n))) for n in DOMAINS]
    yield "### The NVLink domain\n"
    yield "| chips of a domain | linear scaling ends at [FLOP] | dense | sparse |"
    yield "|--:|--:|--:|--:|"
    sparse = {n: reached(joined(preset("h100/sparse"), n))[0] for n in DOMAINS}
    first, other = points[0][1], sparse[DOMAINS[0]]
    for n, end, _ in points:
        yield f"| {n} | {end:.2g} | {end / first:.1f}x | {sparse[n] / other:.1f}x |"
    lines = {
        "dense": [(n, e) for n, e, _ in points],
        "sparse": list(sparse.items()),
    }
    picture(
        "findings-domain",
        lines,
        "chips of an NVLink domain",
        "linear scaling ends at [FLOP]",
    )


def experts() -> Iterator[str]:
    """Mixtures of experts, as `meshwright limits` prints them: by the paper's rule of grids, and
    without grids.
    """
    yield "### A mixture of experts\n"
    yield (
        "| chip | no grid, dense | no grid, sparse | sparse over dense | paper's grid rule, dense |"
        " paper's grid rule, sparse | sparse over dense |"
    )
    yield "|---|" + "--:|" * 6
    for chip in ("v100", "a100", "h100"):
        both = limits([chip, f"{chip}/sparse"]).lines
        smooth = [x.smooth_crossing for x in both]
        rows = (
            [x.last_flops for x in smooth if x],
            [x.crossing.first_flops for x in both],
        )
        cells = [
            f"{dense:.1e} | {sparse:.1e} | {sparse / dense:.1f}x"
            for dense, sparse in rows
            if dense and sparse
        ]
        yield f"| {chip} | " + " | ".join(cells) + " |"


def joined(scenario: Scenario, size: int, grid: bool = False) -> Scenario:
    """With that many chips in the first dimension of its network, by default without grids."""
    near, *far = scenario.network.dims
    dims = (replace(near, size=size), *far)
    result = replace(scenario, network=replace(scenario.network, dims=dims))
    return result if grid else result.smooth


OTHER_SETS = ("epoch-2024", "lbl-2024", "realistic")
"""Whose chip, network, overlap and memory the limits are asked with."""


def under(name: str) -> Scenario:
    """Epoch's H100 with the chip, network, overlap and memory of a set."""
    base = preset("h100")
    return replace(
        base, assumptions=stack_assumptions(SETS[name], base.chip).assumptions
    )


CASES: dict[str, Callable[[Scenario], Scenario]] = {
    "as published": lambda s: s,
    "DeepSeek's law of the batch": put("law.batch", LAWS["deepseek"].batch),
    "layers by the fit of figure 10": put("law.depth", FITTED_DEPTH),
    "200 tokens a parameter": put("law.tokens_per_parameter", 200.0),
    "8 experts, growing": put("law.experts", SPARSE),
    "threshold 0.5": put("linear", 0.5),
    "threshold 0.9": put("linear", 0.9),
}
"""Conventions of the limits: laws of batch, depth, tokens and experts, share of what a chip
sustains."""
MORTAL = put("failures", Failures())
QUICK = put("failures", Failures(restart_s=60.0))
SERVER = 64
"""Chips of a domain that is asked for in place of eight."""
FASTER = scaling("network.dims.bandwidth", 1.25)


def gains(scenario: Scenario) -> tuple[float, ...]:
    """Ends of linear scaling over each other: a domain of 64 over 8 without grids and by the
    paper's rule, with failures; links a quarter faster without failures and with; restarts in one
    minute over ten.
    """

    def end(
        *changes: Callable[[Scenario], Scenario], grid: bool = False
    ) -> float:
        asked = scenario
        for change in changes:
            asked = change(asked)
        crossing = curve(asked if grid else asked.smooth).crossing
        flops = crossing.first_flops if grid else crossing.last_flops
        return flops or math.nan

    def server(s: Scenario) -> Scenario:
        return joined(s, SERVER, grid=True)

    alone, mortal = end(), end(MORTAL)
    return (
        alone,
        end(server) / alone,
        end(server, grid=True) / end(grid=True),
        end(FASTER) / alone,
        mortal,
        end(server, MORTAL) / mortal,
        end(FASTER, MORTAL) / mortal,
        end(QUICK) / mortal,
    )


def levers() -> Iterator[str]:
    """What moves the end of linear scaling, under every set and convention, in one table."""
    yield "### Domain, links and restarts\n"
    yield (
        "| set | convention | never fail: ends at [FLOP] | domain 64 | the same by the paper's grid"
        " rule | links x 1.25 | fail, 600 s: ends at | fail: domain 64 | fail: links x 1.25 |"
        " fail: 60 s to restart |"
    )
    yield "|---|---|" + "--:|" * 8
    rows = {
        (name, case): gains(change(under(name)))
        for name in OTHER_SETS
        for case, change in CASES.items()
    }
    for (name, case), values in rows.items():
        yield f"| {name} | {case} | {cells(values)} |"
    columns = list(zip(*rows.values(), strict=True))
    for word, extreme in (("least", min), ("most", max)):
        yield f"| all | {word} | {cells([extreme(x for x in c if x == x) for c in columns])} |"


def cells(values: Sequence[float]) -> str:
    """Ends in FLOP, gains as factors."""
    return " | ".join(
        f"{v:.1e}" if v > 1e6 else "-" if math.isnan(v) else f"{v:.1f}x"
        for v in values
    )


RUN = 2e26
"""Training FLOP of the run whose rent is asked for, near the end of linear scaling when chips fail."""


def prices() -> Iterator[str]:
    """Rent of one run when chips fail, at the same price of a chip: what a lever may cost."""
    yield f"### Rent of a run of {RUN:.0e} FLOP, at the same price of a chip\n"
    yield "| changed | " + " | ".join(OTHER_SETS) + " |"
    yield "|---|" + "--:|" * len(OTHER_SETS)
    changes: dict[str, Callable[[Scenario], Scenario]] = {
        "nothing: domain of 8, 600 s to restart": MORTAL,
        f"domain of {SERVER}": lambda s: joined(MORTAL(s), SERVER, grid=True),
        "links x 1.25": lambda s: FASTER(MORTAL(s)),
        "60 s to restart": QUICK,
    }
    for words, change in changes.items():
        rents = [rent(change(under(name))) for name in OTHER_SETS]
        yield (
            f"| {words} | "
            + " | ".join(f"{r / 1e6:.0f} M USD" for r in rents)
            + " |"
        )


def rent(scenario: Scenario) -> float:
    """USD of the smallest cluster that does the run in time."""
    return (
        bill(smallest_cluster(scenario, RUN), scenario)["cost_usd"] or math.nan
    )


def reached(scenario: Scenario) -> tuple[float, float]:
    """(training FLOPs at the last crossing of the threshold, of the largest run at all)."""
    line = curve(scenario)
    return line.crossing.last_flops or 0.0, line.points[-1].flops


def restarts() -> Iterator[str]:
    """Epoch's H100 when chips fail as in Llama 3's run."""
    base = preset("h100").smooth
    yield "### Restarts\n"
    yield "| seconds to restart | linear scaling ends at [FLOP] | largest run [FLOP] |"
    yield "|--:|--:|--:|"
    found = {
        s: reached(replace(base, failures=Failures(restart_s=s)))
        for s in RESTARTS
    }
    for s, (end, most) in found.items():
        yield f"| {s:g} | {end:.2g} | {most:.2g} |"
    end, most = reached(base)
    yield f"| chips never fail | {end:.2g} | {most:.2g} |"
    lines = {
        "linear scaling ends": [(s, e) for s, (e, _) in found.items()],
        "largest run": [(s, m) for s, (_, m) in found.items()],
    }
    picture("findings-restart", lines, "seconds to restart", "training FLOP")


def joints() -> Iterator[str]:
    """One job under every set, and from lbl-2024 to realistic one joint after the other."""
    job = selene(catalog.model("gpt3-175b"), 1024, 1536)
    printed = formulas.flops(job.model, job.batch) / (
        140e12 * job.cluster.chips
    )
    yield "### One job under every set\n"
    yield "| set of assumptions | step | of the measured one |"
    yield "|---|--:|--:|"
    for name in (
        "scaling-book-max",
        "epoch-2024",
        "lbl-2024",
        "megatron-2021",
        "realistic",
    ):
        of = SETS[name]
        asked = job if name == "realistic" else replace(job, framework=None)
        seconds = predict(replace(asked, assumptions=of), LAYOUT).step_time_s
        yield f"| {of.name} | {seconds:.1f} s | {seconds / printed:.2f} |"
    yield f"| measured (140 TFLOP/s a GPU) | {printed:.1f} s | 1.00 |"
    yield "\n| from lbl-2024 to realistic | step | adds |"
    yield "|---|--:|--:|"
    for words, seconds, more in steps(job):
        yield f"| {words} | {seconds:.1f} s | {more:+.1f} s |"


def steps(job: Job) -> Iterator[tuple[str, float, float]]:
    """(the joint that is exchanged, seconds of the step then, what it adds)."""
    of = LBL
    before = predict(
        replace(job, assumptions=of, framework=None), LAYOUT
    ).step_time_s
    yield "lbl-2024", before, 0.0
    for joint in JOINTS:
        chosen: dict[str, Any] = {joint: getattr(REALISTIC, joint)}
        of = replace(
            of, name="custom", framework=REALISTIC.framework, **chosen
        )
        seconds = predict(replace(job, assumptions=of), LAYOUT).step_time_s
        yield f"{joint} of realistic", seconds, seconds - before
        before = seconds


def survivors() -> Iterator[str]:
    """GPT3-1T on thousands of chips: the plan of the paper's set, and of the default since."""
    yield "### GPT3-1T, then and now\n"
    yield "| plan | cluster | precision | step | nine of ten | layout |"
    yield "|---|---|---|--:|--:|---|"
    model = catalog.model("gpt3-1t")
    for on, of, precision in ASKED:
        job = Job(
            model,
            catalog.cluster(on),
            4096,
            precision=PRECISIONS[precision],
            assumptions=of,
        )
        best = plan(job).best
        assert best
        l = best.job.layout
        layout = f"tp {l.tp} cp {l.cp} pp {l.pp} dp {l.dp}, ZeRO-{l.zero}, {l.schedule}"
        ends = best.interval_s
        likely = f"{ends[0]:.1f} to {ends[1]:.1f} s" if ends else ""
        yield (
            f"| {of.name} | {on} | {precision} | {best.step_time_s:.2f} s | {likely} |"
            f" {layout} |"
        )


def picture(
    name: str, lines: dict[str, Sequence[tuple[float, float]]], x: str, y: str
) -> None:
    """docs/images/NAME.svg."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    for label, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
    axes.set_xticks([a for a, _ in points], [f"{a:g}" for a, _ in points])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    (IMAGES / f"{name}.svg").write_bytes(image(figure, ".svg"))


if __name__ == "__main__":
    written(__doc__, answers)
