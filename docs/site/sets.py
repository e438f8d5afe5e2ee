"""Pages of assumption sets, frameworks and schedules: every choice with its meaning, source and
formulas, from the objects that the program computes with.
"""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module, resources
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from formulas import rendered

from meshwright.cost.network import NAMED
from meshwright.describe import assumptions, framework, holding
from meshwright.describe.assumptions import SETS, Assumptions
from meshwright.describe.choices import Choices
from meshwright.describe.fields import ASK
from meshwright.schedule import SCHEDULES, orders
from meshwright.schedule.schedule import Schedule

LAWS: Mapping[tuple[str, str], list[str]] = {
    ("chip", "peak"): ["cost.chip:compute_time"],
    ("chip", "roofline"): [
        "cost.chip:compute_time",
        "cost.chip:exposed_memory",
    ],
    ("chip", "hierarchy"): [
        "cost.hierarchy:tiles",
        "cost.hierarchy:level_crossing",
        "cost.hierarchy:pad",
        "cost.hierarchy:product_time",
    ],
    ("chip", "by-shape"): [
        "cost.products:tile_cost",
        "cost.products:arithmetic",
        "cost.products:side_by_side",
        "cost.attention:fused_rate",
        "cost.host:host_seconds",
        "cost.host:host_excess",
    ],
    ("chip", "calibrated"): [
        "cost.chip:kernel_time",
        "cost.measured:table_seconds",
    ],
    **{("network", name): list(how.laws) for name, how in NAMED.items()},
}
"""(joint, option) -> functions that carry it out."""
ALWAYS: Mapping[str, list[str]] = {
    "count": [
        "count.microbatch:moved_gradient_bytes",
        "count.microbatch:summed_bytes",
    ],
    "network": ["cost.hop:point_to_point"],
    "overlap": ["cost.overlap:behind", "cost.overlap:outlasting"],
    "memory": ["step.memory:states", "step.oom:risk", "step.oom:most_bytes"],
}
"""Joint -> functions that read it, whatever is chosen."""
TITLES = {
    "count": "What counts as work",
    "chip": "From work to seconds on a chip",
    "network": "From messages to seconds",
    "overlap": "What hides behind what",
    "memory": "What lives on a device",
}


@cache
def meanings(module: ModuleType) -> Mapping[tuple[str, str], str]:
    """(class, field) -> the text below it in the source."""
    found = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for one, after in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(one, ast.AnnAssign)
                and isinstance(one.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                text = " ".join(str(after.value.value).split())
                found[node.name, one.target.id] = text
    return found


def meaning(of: type, label: str, module: ModuleType) -> str:
    """What a field of a class, or of one above it, means."""
    texts = meanings(module)
    return next(
        (
            texts[c.__name__, label]
            for c in of.__mro__
            if (c.__name__, label) in texts
        ),
        "",
    )


def value(of: Any) -> str:
    """A choice in a cell of a table."""
    if of == ASK:
        return "*asks the framework*"
    if is_dataclass(of) and not isinstance(of, type):
        parts = [
            f"{f.name} {value(getattr(of, f.name))}"
            for f in fields(of)
            if f.name == "scope" or getattr(of, f.name) != f.default
        ]
        return cell(", ".join(parts) or "as its class says")
    return cell(f"`{of}`")


def cell(text: str) -> str:
    """Text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(of: Any, module: ModuleType) -> Iterator[str]:
    """Field, choice and meaning of one joint."""
    yield "| choice | here | meaning |"
    yield "|---|---|---|"
    for f in fields(of):
        what = cell(meaning(type(of), f.name, module))
        yield f"| `{f.name}` | {value(getattr(of, f.name))} | {what} |"


def laws(how: Assumptions, joint: str) -> list[str]:
    """Functions that carry out one joint of a set."""
    chosen = {"chip": how.chip.model, "network": how.network.collective}
    option = LAWS[joint, chosen[joint]] if joint in chosen else []
    return [*option, *ALWAYS.get(joint, [])]


def layouts(choices: tuple[Choices, ...]) -> Iterator[str]:
    """Which layouts a search takes."""
    if not choices:
        yield "All layouts of the default space."
    for k, one in enumerate(choices, 1):
        said = "; ".join(
            f"`{name}` {', '.join(map(str, found))}"
            for name, found in one.items()
        )
        yield f"{k}. {said}"


def set_page(how: Assumptions) -> str:
    """The page of one assumption set."""
    lines = [f"# Assumption set `{how.name}`", "", how.source, ""]
    lines += [
        f"Precision of a job that names none: `{how.precision.name if how.precision else 'bf16'}`.",
        "",
        "Layouts that `plan` and `sweep` search:",
        "",
        *layouts(how.choices),
        "",
    ]
    for joint, title in TITLES.items():
        lines += [f"## {title}", ""]
        lines += [*table(getattr(how, joint), assumptions), ""]
        lines += [rendered(path) for path in laws(how, joint)]
    return "\n".join(lines)


def framework_page(name: str) -> str:
    """The page of one framework: every answer with its source."""
    text = (
        resources.files("meshwright.catalog") / "frameworks" / f"{name}.toml"
    ).read_text("utf-8")
    said = tomllib.loads(text)
    about = " ".join(
        line.lstrip("# ") for line in text.split("\n\n")[0].splitlines()
    )
    lines = [f"# Framework `{name}`", "", about, ""]
    lines += [f"{said.get('source', '')} ({said.get('date', '')}).", ""]
    sources = said.pop("sources", {})
    for title, part, of, module in (
        ("Answers", said, framework.Framework, framework),
        (
            "What it holds in memory",
            said.pop("holding", {}),
            holding.Holding,
            holding,
        ),
    ):
        lines += [f"## {title}", "", "| field | value | meaning | source |"]
        lines += ["|---|---|---|---|"]
        for key, found in part.items():
            if key in ("source", "date"):
                continue
            plain = (
                found.get("value", found) if isinstance(found, dict) else found
            )
            source = found.get("source", "") if isinstance(found, dict) else ""
            source = source or sources.get(key, {}).get("source", "")
            cells = f"`{plain}`", meaning(of, key, module), source
            lines.append(f"| `{key}` | {' | '.join(map(cell, cells))} |")
        lines.append("")
    return "\n".join(lines)


def schedules_page() -> str:
    """Every schedule: what it is, and its bubble."""
    lines = ["# Pipeline schedules", ""]
    for name, schedule in SCHEDULES.items():
        doc = inspect.getdoc(file_of(schedule)) or ""
        lines += [f"## `{name}`", "", *indented(doc), ""]
        if law := schedule.closed:
            room = law.__module__.removeprefix("meshwright.")
            if hasattr(import_module(law.__module__), law.__name__):
                lines.append(rendered(f"{room}:{law.__name__}"))
    return "\n".join(lines)


def file_of(schedule: Schedule) -> ModuleType:
    """The module that a schedule is made in."""
    homes = (
        import_module(f"{orders.__name__}.{one.name}")
        for one in iter_modules(orders.__path__)
    )
    return next(
        home
        for home in homes
        if any(x is schedule for x in vars(home).values())
    )


def indented(doc: str) -> list[str]:
    """A docstring whose formulas stand in indented blocks."""
    return doc.splitlines()


def pages() -> Iterator[tuple[str, str]]:
    """(path, Markdown) of every page made here."""
    import_module("meshwright_studies.reproduce.lbl")
    for name, how in SETS.items():
        yield f"sets/{name}.md", set_page(how)
    for name in framework.frameworks():
        yield f"frameworks/{name}.md", framework_page(name)
    yield "schedules.md", schedules_page()
