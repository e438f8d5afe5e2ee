"""How many wrong formulas the tests notice: a seeded sample of mutants, each against the tests that
run the line it changes.

    uv run --group test --group mutation python tests/tools/mutation.py run
    uv run --group test --group mutation python tests/tools/mutation.py score

`run` mutates one operator, number, comparison or minimum at a time (operators of cosmic-ray),
stratified over the files of the rooms below, and stops a mutant at its first failing test. No file
is changed: each mutant lives in a forked process (`trial`), so tests that start other processes do
not see it. What tests take and run is found out once, and again of those whose file, or one that
they run, has changed; those that fail without any mutant are named and left out. `run` goes on
where it was stopped; `--rooms` draws from some of them, `--only "cost/*.py"` runs a part of that,
`--again` what survived an earlier run, `--tests FILES` with these alone. The shortest tests run
first, as many as take `--most` seconds together: what only a longer one notices counts as a
survivor. `score` writes mutation.md, with what equivalents.toml says of survivors that no test can
tell apart. Not part of CI: it takes about a quarter of an hour of CPU.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import mutants
import trial

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "meshwright"
RESULTS = ROOT / ".benchmarks" / "mutation.jsonl"
SCORE = Path(__file__).with_name("mutation.md")
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
SEED, SAMPLE = 2, 400
LEAST_OF_A_FILE = 2
FILES = 8
"""Of tests, for a mutant that is no part of a function."""
MOST_S = 20.0
"""Of a room's tests, the shortest that take so many CPU seconds together."""

ROOMS = {
    "count": ("count/*.py",),
    "cost": ("cost/*.py",),
    "layout": ("layout/*.py",),
    "step": ("step/*.py",),
    "schedule": ("schedule/*.py", "schedule/orders/*.py"),
    "program": ("program/*.py",),
    "prediction": ("prediction/*.py",),
    "search": ("search/*.py",),
    "limits": ("limits/*.py",),
    "roofline": ("roofline/*.py",),
}
"""room -> its files below src/meshwright."""
PATTERNS = (
    "tests/**/test_*_by_hand.py",
    "tests/cost/test_[cdhklot]*.py",
    "tests/cost/test_network.py",
    "tests/count/test_[egm]*.py",
    "tests/layout/*.py",
    "tests/describe/test_cluster.py",
    "tests/formats/test_machine.py",
    "tests/limits/test_[!c]*.py",
    "tests/limits/test_c[!l]*.py",
    "tests/program/*.py",
    "tests/roofline/test_r*.py",
    "tests/schedule/test_[!p]*.py",
    "tests/step/test_[!p]*.py",
    "tests/step/test_p[ah]*.py",
    "tests/test_search*.py",
    *(
        f"tests/test_{name}.py"
        for name in (
            *("certainty", "display", "elastic", "expressions", "failures"),
            *(
                "pipeline",
                "prediction",
                "recipes",
                "replay",
                "replicas",
                "runnable",
            ),
            *("sizing", "strategies", "terms"),
        )
    ),
)
TESTS = tuple(
    dict.fromkeys(
        str(path.relative_to(ROOT))
        for pattern in PATTERNS
        for path in sorted(ROOT.glob(pattern))
    )
)
"""Those that state meanings and are quick: no golden tables, no frozen corpus, no published
tables."""


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


Item = tuple[str, Path, mutants.Mutant]
"""(room, file, mutant)."""


def files(room: str) -> list[Path]:
    """The files of a room that hold formulas."""
    found = [
        path
        for pattern in ROOMS[room]
        for path in sorted(SOURCE.glob(pattern))
    ]
    if not found:
        sys.exit(
            f"room {room} has moved; bring ROOMS in {__file__} up to date"
        )
    return found


def sample(
    count: int, seed: int, rooms: Sequence[str] = tuple(ROOMS)
) -> list[Item]:
    """So many mutants as (room, file, mutant): from each file its share of all, and at least a few,
    in random order.
    """
    rng = random.Random(seed)
    every = {
        (room, path): mutants.every(path.read_text("utf-8"))
        for room in rooms
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
    ties = rng.sample([*exact], len(exact))  # files in order would win them
    for at in sorted(ties, key=lambda at: shares[at] - exact[at] * scale)[
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


class Part(NamedTuple):
    """What of a sample is tried, against what."""

    rooms: tuple[str, ...] = tuple(ROOMS)
    only: str = "*"
    """A pattern of files."""
    again: bool = False
    """Those that survived before, too."""
    tests: tuple[str, ...] = TESTS
    most_s: float = MOST_S
    """CPU seconds of tests for a mutant, the shortest first."""


def run(results: Path, count: int, seed: int, part: Part) -> None:
    """Try what has not been tried yet."""
    done = {row.key: row for row in read(results)}
    left: list[Item] = []
    for room, path, mutant in sample(count, seed, part.rooms):
        file = str(path.relative_to(SOURCE))
        row = done.get(
            (file, mutant.operator, mutant.occurrence, digest(path))
        )
        again = part.again and row is not None and row.outcome == "survived"
        if fnmatchcase(file, part.only) and (row is None or again):
            left.append((room, path, mutant))
    # those that somebody argued about last: they take every test there is
    left.sort(
        key=lambda item: bool(
            why(str(item[1].relative_to(SOURCE)), *difference(item))
        )
    )
    results.parent.mkdir(parents=True, exist_ok=True)
    trial.collected(ROOT, part.tests, lambda t: each(t, left, results, part))


def difference(item: Item) -> tuple[str, str]:
    """What a mutant changes: (before, after)."""
    _, path, mutant = item
    text = path.read_text("utf-8")
    return mutants.difference(text, mutants.mutated(text, mutant))


def each(
    tests: trial.Tests, left: list[Item], results: Path, part: Part
) -> None:
    """Try mutants one by one, in the order of their files."""
    ran = reached(tests, results)
    known = {name: one.seconds for name, one in ran.items()}
    for i, (_, path, mutant) in enumerate(left, 1):
        text = path.read_text("utf-8")
        code = mutants.mutated(text, mutant)
        wanted, most_s = covering(ran, path, text, code), part.most_s
        found = tests.run(path, code, known, wanted, most_s) or trial.fresh(
            ROOT, path, code, nearest(ran, path), known, most_s
        )
        row = Row(
            str(path.relative_to(SOURCE)),
            mutant.line,
            mutant.operator,
            mutant.occurrence,
            *mutants.difference(text, code),
            digest(path),
            found.outcome,
            found.test,
            round(found.cpu_s, 2),
        )
        with results.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row._asdict()) + "\n")
        print(
            f"{i}/{len(left)} {found.outcome:8} {row.file}:{row.line} {row.before} ->"
            f" {row.after} [{found.test}] {found.tried} tests {found.cpu_s:.1f} s",
            flush=True,
        )


Reach = dict[str, trial.Ran]


def covering(ran: Reach, path: Path, text: str, code: str) -> set[str] | None:
    """The tests that run the line that differs, or one of its statement; None: none is known."""
    number = next(
        n
        for n, (a, b) in enumerate(
            zip(text.splitlines(), code.splitlines(), strict=False), 1
        )
        if a != b
    )
    lines = {
        name: {*one.lines.get(str(path), ())} for name, one in ran.items()
    }
    for first, last in ((number, number), *statements(text, number)):
        at = {*range(first, last + 1)}
        if found := {name for name, mine in lines.items() if mine & at}:
            return found
    return None


def nearest(ran: Reach, path: Path) -> list[str]:
    """The files of the tests that name a module, then of those that run most of it: what is
    imported anew for a mutant.
    """
    often = Counter[str]()
    for name, one in ran.items():
        often[name.split("::")[0]] += len(one.lines.get(str(path), ()))
    named = f"from {trial.module(path)} import"

    def order(file: str) -> tuple[bool, int]:
        return named in (ROOT / file).read_text("utf-8"), often[file]

    return sorted(often, key=order, reverse=True)[:FILES]


def statements(text: str, number: int) -> list[tuple[int, int]]:
    """The statements and functions around a line, the innermost first."""
    found = [
        (node.end_lineno - node.lineno, node.lineno, node.end_lineno)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt)
        and not isinstance(node, ast.ClassDef)
        and node.end_lineno
        and node.lineno <= number <= node.end_lineno
    ]
    return [(first, last) for _, first, last in sorted(found)]


def reached(tests: trial.Tests, results: Path) -> Reach:
    """What each test takes and runs; as found before where its file and the files it runs are the
    same.
    """
    kept = results.with_suffix(".reach.json")
    told = json.loads(kept.read_text("utf-8")) if kept.exists() else {}

    @cache
    def now(file: str) -> str:
        return digest(ROOT / file) if (ROOT / file).is_file() else ""

    known = {}
    for item in tests.items:
        name = item.nodeid
        digests, ran = told.get(name, ({}, None))
        if ran and all(now(file) == then for file, then in digests.items()):
            known[name] = trial.Ran(*ran)
    known |= tests.reach(SOURCE, known)
    for name, ran in known.items():
        files = (name.split("::")[0], *ran.lines)
        told[name] = ({file: now(file) for file in files}, ran)
    kept.write_text(json.dumps(told), "utf-8")
    return known


def score(
    results: Path,
    count: int,
    seed: int,
    commit: str,
    rooms: Sequence[str] = tuple(ROOMS),
) -> str:
    """The table by file and the list of survivors, as Markdown."""
    chosen = {
        (str(p.relative_to(SOURCE)), m.operator, m.occurrence, digest(p))
        for _, p, m in sample(count, seed, rooms)
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
            f"{date.today().isoformat()}, commit {commit}: {killed(whole)} of {count} mutants killed"
            f" ({killed(whole) / count:.1%}), {whole['survived']} survived,"
            f" {whole['equivalent']} are equivalent ({whole['equivalent'] / count:.1%}),"
            f" {count - len(rows)} were not tried;"
            f" {sum(row.cpu_s for row in read(results)) / 60:.0f} CPU minutes."
        ),
        (
            f"Sample: {count} with seed {seed}, stratified by file; each against the tests that run"
            " its line, the shortest first, until one fails: tests of meanings, without golden"
            " tables and without the frozen corpus (`TESTS` in `tests/tools/mutation.py`).\n"
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
    return why(row.file, row.before, row.after)


def why(file: str, before: str, after: str) -> str:
    """What was argued of a change."""
    for case in argued():
        if (
            fnmatchcase(file, case["file"])
            and case["before"] in before
            and case["after"] in after
        ):
            return str(case["why"])
    return ""


@cache
def argued() -> list[dict[str, str]]:
    """The cases of equivalents.toml."""
    cases: list[dict[str, str]] = tomllib.loads(
        EQUIVALENTS.read_text("utf-8")
    )["case"]
    return cases


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
        "--rooms", nargs="*", choices=ROOMS, default=tuple(ROOMS)
    )
    parser.add_argument(
        "--only", default="*", help="run: a pattern of files, cost/*.py"
    )
    parser.add_argument(
        "--again", action="store_true", help="run: what survived before, too"
    )
    parser.add_argument(
        "--tests", nargs="*", default=TESTS, help="run: these instead of all"
    )
    parser.add_argument(
        "--most",
        type=float,
        default=MOST_S,
        help="run: CPU seconds of tests for a mutant, the shortest first",
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
            Part(
                tuple(given.rooms),
                given.only,
                given.again,
                tuple(given.tests),
                given.most,
            ),
        )
    else:
        commit = (
            given.commit
            or os.popen("git rev-parse --short HEAD").read().strip()
        )
        given.output.write_text(
            score(
                given.results, given.sample, given.seed, commit, given.rooms
            ),
            "utf-8",
        )
        print(given.output.read_text("utf-8"))


if __name__ == "__main__":
    main()
