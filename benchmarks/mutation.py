"""How many wrong formulas the tests notice: a seeded sample of mutants, each against the tests of
its own room.

    uv run --group test --group mutation python benchmarks/mutation.py run
    uv run --group test --group mutation python benchmarks/mutation.py score

`run` mutates one operator, number, comparison or minimum at a time (operators of cosmic-ray),
stratified over the files of the rooms below, and stops a mutant at its first failing test. No file
is changed: each mutant lives in a process of its own, so tests that start other processes do not
see it. `run` goes on where it was stopped, with the seconds of each test as it found them; `--only
"cost/*.py"` runs a part of the sample. `score` writes mutation.md, with what equivalents.toml says
of survivors that no test can tell apart. Not part of CI: it takes hours.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import mutants
import trial

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "meshwright"
RESULTS = ROOT / ".benchmarks" / "mutation.jsonl"
SCORE = Path(__file__).with_name("mutation.md")
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
SEED, SAMPLE, HOURS = 1, 400, 3.0
LEAST_OF_A_FILE = 2
SLACK, LEAST_LIMIT_S = 2.0, 30.0
"""A mutant may use this many times the CPU seconds of the tests without one, and at least so
many.
"""

LBL, BOOK = (
    "tests/reproduce/test_lbl.py::test_",
    "tests/reproduce/test_scaling_book.py::test_",
)
PUBLISHED = (
    LBL + "every_published_configuration_is_reproduced_with_the_defects_on",
    BOOK + "every_case_is_computed_and_agrees",
    "tests/reproduce/test_megatron.py",
)
ROOMS = {
    "count": (
        ("count/*.py",),
        (
            "tests/count",
            "tests/step",
            "tests/test_memory.py",
            "tests/cost/test_arrays.py",
            *PUBLISHED,
        ),
    ),
    "cost": (("cost/*.py",), ("tests/cost", "tests/step", *PUBLISHED)),
    "step": (
        (
            "step/[!m]*.py",
            "step/microbatch.py",
            "layout/*.py",
            "program/cpu.py",
        ),
        (
            "tests/step",
            "tests/layout",
            "tests/test_pipeline.py",
            "tests/test_terms.py",
            "tests/test_prediction.py",
            "tests/formats/test_machine.py",
            "tests/cost/test_arrays.py",
            *PUBLISHED,
        ),
    ),
    "schedule": (
        ("schedule/*.py",),
        ("tests/schedule", "tests/test_pipeline.py", "tests/test_replay.py"),
    ),
    "memory": (
        ("step/memory.py",),
        ("tests/step", "tests/test_memory.py", *PUBLISHED),
    ),
    "search": (
        ("search/*.py",),
        (
            "tests/test_search_by_hand.py",
            "tests/test_space_by_hand.py",
            "tests/test_search_bounds.py",
            "tests/test_search_selectors.py",
            "tests/test_search_families.py",
            "tests/test_strategies.py",
            "tests/test_recipes.py",
            "tests/test_search_plan.py",
            "tests/test_search.py",
            "tests/test_search_ranked.py",
            "tests/test_search_framework.py",
            "tests/test_sweep.py",
        ),
    ),
}
"""room -> (its files below src/meshwright, its own tests and the published checks named for it)."""


LONG = {
    "tests/test_search.py::test_search_equals_brute_force_equals_a_plain_loop": (
        0,
        3,
        5,
        10,
        11,
    )
    + (14, 25, 30, 33, 37, 39),
    "tests/test_search_plan.py::test_a_pinned_value_is_never_faster_than_the_free_search": (
        0,
        1,
        2,
    )
    + (3, 4, 6, 7, 8, 9, 11),
    "tests/test_search_ranked.py::test_the_first_answers_are_the_best_by_replay": (
        2,
    ),
}
"""Draws that are left out here: the longest of the search's oracles, three minutes of five."""
LEFT_OUT = tuple(
    f"--deselect={test}[{seed}]"
    for test, seeds in LONG.items()
    for seed in seeds
)


class Row(NamedTuple):
    """What became of a mutant."""

    file: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str
    source: str
    """Digest of the file that was mutated."""
    outcome: str
    """killed, timeout, survived."""
    test: str
    """The one that failed."""
    cpu_s: float

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.file, self.operator, self.occurrence, self.source


def files(room: str) -> list[Path]:
    """The files of a room that hold formulas."""
    found = [
        path
        for pattern in ROOMS[room][0]
        for path in sorted(SOURCE.glob(pattern))
    ]
    if not found or not all(
        (ROOT / test.split("::")[0]).exists() for test in ROOMS[room][1]
    ):
        sys.exit(
            f"room {room}: a file or a test has moved; bring ROOMS in {__file__} up to date"
        )
    return found


def sample(count: int, seed: int) -> list[tuple[str, Path, mutants.Mutant]]:
    """So many mutants as (room, file, mutant): from each file its share of all, and at least a few,
    in random order.
    """
    rng = random.Random(seed)
    every = {
        (room, path): mutants.every(path.read_text("utf-8"))
        for room in ROOMS
        for path in files(room)
    }
    every = {at: found for at, found in every.items() if found}
    total = sum(map(len, every.values()))
    exact = {
        at: max(count * len(found) / total, min(LEAST_OF_A_FILE, len(found)))
        for at, found in every.items()
    }
    scale = count / sum(exact.values())
    shares = {at: int(x * scale) for at, x in exact.items()}
    for at in sorted(exact, key=lambda at: shares[at] - exact[at] * scale)[
        : count - sum(shares.values())
    ]:
        shares[at] += 1
    chosen = [
        (*at, m)
        for at, found in every.items()
        for m in rng.sample(found, min(shares[at], len(found)))
    ]
    rng.shuffle(chosen)
    return chosen


def digest(path: Path) -> str:
    """Of a source file: results of another version do not count."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def read(results: Path) -> list[Row]:
    """The rows of a results file."""
    if not results.exists():
        return []
    return [
        Row(**json.loads(line))
        for line in results.read_text("utf-8").splitlines()
    ]


def run(
    results: Path, count: int, seed: int, hours: float, only: str = "*"
) -> None:
    """Try what has not been tried yet, until the sample or the CPU time is used up. only: a pattern
    of files.
    """
    done = {row.key: row for row in read(results)}
    spent = sum(row.cpu_s for row in done.values())
    whole: dict[str, trial.Found] = {}
    results.parent.mkdir(parents=True, exist_ok=True)
    for i, (room, path, mutant) in enumerate(sample(count, seed), 1):
        file, source = str(path.relative_to(SOURCE)), digest(path)
        if (file, mutant.operator, mutant.occurrence, source) in done:
            continue
        if not fnmatchcase(file, only):
            continue
        if spent > hours * 3600:
            sys.exit(
                f"{hours:g} CPU hours are used up: {i - 1} of {count} mutants are done"
            )
        if room not in whole:
            whole[room], new = known(room, path, results)
            spent += new
        text = path.read_text("utf-8")
        code = mutants.mutated(text, mutant)
        before, after = mutants.difference(text, code)
        limit = max(SLACK * whole[room].cpu_s, LEAST_LIMIT_S)
        found = trial.run(
            ROOT, path, code, tests(room), limit, whole[room].seconds
        )
        spent += found.cpu_s
        row = Row(
            file,
            mutant.line,
            mutant.operator,
            mutant.occurrence,
            before,
            after,
            source,
            found.outcome,
            found.test,
            round(found.cpu_s, 2),
        )
        with results.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row._asdict()) + "\n")
        print(
            f"{i}/{count} {found.outcome:8} {file}:{row.line} {before} -> {after} [{found.test}]"
            f" {found.cpu_s:.0f} s",
            flush=True,
        )


def tests(room: str) -> tuple[str, ...]:
    """What pytest is told to run for a room."""
    return (*ROOMS[room][1], *LEFT_OUT)


def known(room: str, path: Path, results: Path) -> tuple[trial.Found, float]:
    """`without`, as found before with the same code and tests; and the CPU seconds it took now."""
    kept = results.with_suffix(f".{room}.json")
    state = hashlib.sha256(
        b"".join(
            file.read_bytes()
            for folder in ("src", "tests")
            for file in sorted((ROOT / folder).rglob("*.py"))
        )
    ).hexdigest()
    if kept.exists():
        told = json.loads(kept.read_text("utf-8"))
        if told["state"] == state:
            return trial.Found(**told["found"]), 0.0
    found = without(room, path)
    told = {"state": state, "found": found._asdict()}
    kept.write_text(json.dumps(told), "utf-8")
    return found, found.cpu_s


def without(room: str, path: Path) -> trial.Found:
    """The tests of a room without any mutant: what they take; they must pass."""
    found = trial.run(ROOT, path, path.read_text("utf-8"), tests(room), 3600.0)
    if found.outcome != "survived":
        sys.exit(
            f"the tests of room {room} fail without any mutant: {found.test}\n{found.output}"
        )
    return found


def score(results: Path, count: int, seed: int, commit: str) -> str:
    """The table by file and the list of survivors, as Markdown."""
    chosen = {
        (str(p.relative_to(SOURCE)), m.operator, m.occurrence, digest(p))
        for _, p, m in sample(count, seed)
    }
    rows = [
        row
        for row in {row.key: row for row in read(results)}.values()
        if row.key in chosen
    ]
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    same = {row: why for row in rows if (why := equivalent(row))}
    for row in rows:
        by_file[row.file]["equivalent" if row in same else row.outcome] += 1
    whole = sum(by_file.values(), Counter())
    lines = [
        "# Mutants that the tests notice\n",
        (
            f"{date.today().isoformat()}, commit {commit}: {killed(whole)} of {whole.total()}"
            f" mutants killed ({killed(whole) / max(whole.total(), 1):.0%}), {whole['survived']}"
            f" survived, {whole['equivalent']} are equivalent"
            f" ({whole['equivalent'] / max(whole.total(), 1):.0%});"
            f" {sum(r.cpu_s for r in rows) / 3600:.1f} CPU hours."
        ),
        (
            f"Sample: {len(rows)} of {count} with seed {seed}, stratified by file; each against the"
            " tests of its room (`ROOMS` in `benchmarks/mutation.py`), until the first one"
            " fails.\n"
        ),
        "| file | mutants | killed | of these by timeout | equivalent | survived |",
        "|---|---|---|---|---|---|",
        *(told(f, n) for f, n in sorted(by_file.items())),
        told("all", whole),
        "\n## Survivors\n",
        *survivors([row for row in rows if row not in same]),
        "\n## Equivalents\n",
        *(
            f"* `{row.file}:{row.line}` `{row.before}` -> `{row.after}`: {why}"
            for row, why in sorted(same.items())
        ),
    ]
    return "\n".join(lines) + "\n"


def told(name: str, n: Counter[str]) -> str:
    """A row of the table."""
    return (
        f"| {name} | {n.total()} | {killed(n)} | {n['timeout']} | {n['equivalent']} |"
        f" {n['survived']} |"
    )


def equivalent(row: Row) -> str:
    """Why no test can tell a survivor from the code; "" if nobody argued it."""
    if row.outcome != "survived":
        return ""
    for case in tomllib.loads(EQUIVALENTS.read_text("utf-8"))["case"]:
        if (
            fnmatchcase(row.file, case["file"])
            and case["before"] in row.before
            and case["after"] in row.after
        ):
            return str(case["why"])
    return ""


def killed(counts: Counter[str]) -> int:
    """Noticed by a failing test, or by never ending."""
    return counts["killed"] + counts["timeout"]


def survivors(rows: list[Row]) -> Iterator[str]:
    """A line for each mutant that no test noticed."""
    for row in sorted(rows):
        if row.outcome == "survived":
            yield f"* `{row.file}:{row.line}` `{row.before}` -> `{row.after}`"


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "score"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--output", type=Path, default=SCORE, help="score: the Markdown file"
    )
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--only", default="*", help="run: a pattern of files, cost/*.py"
    )
    parser.add_argument(
        "--hours", type=float, default=HOURS, help="run: CPU hours in all"
    )
    parser.add_argument(
        "--commit", default="", help="score: the commit that was tested"
    )
    given: Any = parser.parse_args()
    os.chdir(ROOT)
    if given.command == "run":
        run(
            given.results,
            given.sample,
            given.seed,
            given.hours,
            given.only,
        )
    else:
        commit = (
            given.commit
            or os.popen("git rev-parse --short HEAD").read().strip()
        )
        given.output.write_text(
            score(given.results, given.sample, given.seed, commit), "utf-8"
        )
        print(given.output.read_text("utf-8"))


if __name__ == "__main__":
    main()
