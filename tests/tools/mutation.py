"""How many wrong formulas the tests notice: a seeded sample of mutants, each against the tests that
run the line it changes.

    uv run --group test --group mutation python tests/tools/mutation.py run
    uv run --group test --group mutation python tests/tools/mutation.py score

`run` mutates one operator, number, comparison or minimum at a time (operators of cosmic-ray),
stratified over the files of the rooms below, and stops a mutant at its first failing test. No file
is changed: each mutant lives in a forked process (`trial`). What tests take and run is found out
once, and again of a file of tests that has changed, or that runs a file that has. `run` goes on
where it was stopped; `--rooms` draws from some of them, `--only "cost/*.py"` runs a part of that,
`--again` what survived an earlier run, `--tests FILES` with these alone. The shortest tests run
first, as many as take `--most` seconds together: what only a longer one notices counts as a
survivor. `score` prints the table, with what equivalents.toml says of survivors that no test can
tell apart. Not part of CI: a mutant takes some seconds of CPU.
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
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import mutants
import trial

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "meshwright"
RESULTS = ROOT / ".benchmarks" / "mutation.jsonl"
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
SEED, SAMPLE = 2, 400
LEAST_OF_A_FILE = 2
MOST_S = 20.0
"""Of a room's tests, the shortest that take so many CPU seconds together."""

ROOMS = {
    "count": ("count/*.py",),
    "cost": ("cost/*.py", "cost/collectives/*.py"),
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
    each(left, results, part)


def difference(item: Item) -> tuple[str, str]:
    """What a mutant changes: (before, after)."""
    _, path, mutant = item
    text = path.read_text("utf-8")
    return mutants.difference(text, mutants.mutated(text, mutant))


def each(left: list[Item], results: Path, part: Part) -> None:
    """Try mutants one by one, in the order of their files."""
    ran = reached(part.tests, results)
    for i, (_, path, mutant) in enumerate(left, 1):
        text = path.read_text("utf-8")
        code = mutants.mutated(text, mutant)
        tests, seconds = covering(ran, path, mutant.line, part.most_s)
        found = trial.trial(ROOT, path, code, tests, seconds)
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
            f" {row.after} [{found.test}] of {len(tests)} tests {found.cpu_s:.1f} s",
            flush=True,
        )


Reach = dict[str, trial.Ran]


def covering(
    ran: Reach, path: Path, number: int, most_s: float
) -> tuple[list[str], float]:
    """The tests that run a line, or else one of the statements around it, or else the file: the
    shortest, as many as take so many seconds together, and what they take."""
    lines = {
        name: {*one.lines.get(str(path), ())} for name, one in ran.items()
    }
    around = ((number, number), *statements(path.read_text("utf-8"), number))
    for first, last in (*around, (1, sys.maxsize)):
        names = [
            name
            for name, mine in lines.items()
            if any(first <= line <= last for line in mine)
        ]
        if names:
            break
    names.sort(key=lambda name: ran[name].seconds)
    ends = list(accumulate(ran[name].seconds for name in names))
    several = max(bisect_right(ends, most_s), 1)
    return names[:several], sum(ends[several - 1 : several])


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


def reached(files: Sequence[str], results: Path) -> Reach:
    """What each test takes and runs; as found before where its file and the files it runs are the
    same.
    """
    kept = results.with_suffix(".reach.json")
    known = json.loads(kept.read_text("utf-8")) if kept.exists() else {}

    @cache
    def now(file: str) -> str:
        return digest(ROOT / file) if (ROOT / file).is_file() else ""

    for file in files:
        digests, _ = known.get(file, ({file: ""}, {}))
        if any(now(each) != then for each, then in digests.items()):
            ran = trial.reach(ROOT, SOURCE, file)
            all_ = {
                file,
                *(each for one in ran.values() for each in one.lines),
            }
            known[file] = {each: now(each) for each in all_}, ran
            kept.write_text(json.dumps(known), "utf-8")
            print(f"{file}: {len(ran)} tests", flush=True)
    return {
        name: trial.Ran(*one)
        for file in files
        for name, one in known[file][1].items()
    }


def score(
    results: Path, count: int, seed: int, rooms: Sequence[str] = tuple(ROOMS)
) -> str:
    """The table by room and the list of survivors, as Markdown."""
    chosen = {
        (str(p.relative_to(SOURCE)), m.operator, m.occurrence, digest(p))
        for _, p, m in sample(count, seed, rooms)
    }
    rows = [
        row
        for row in {row.key: row for row in read(results)}.values()
        if row.key in chosen
    ]
    by_room: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        how = "equivalent" if equivalent(row) else row.outcome
        for name in (row.file.split("/")[0], "all"):
            by_room[name][how] += 1
    lines = [
        f"{len(rows)} of {count} mutants with seed {seed}\n",
        "| room | mutants | killed | of these by timeout | equivalent | survived |",
        "|---|---|---|---|---|---|",
        *(told(f, n) for f, n in sorted(by_room.items())),
        "\n## Survivors\n",
        *(
            f"* `{row.file}:{row.line}` `{row.before}` -> `{row.after}` {equivalent(row)}"
            for row in sorted(rows)
            if row.outcome == "survived"
        ),
    ]
    return "\n".join(lines)


def told(name: str, n: Counter[str]) -> str:
    """A row of the table."""
    killed = n["killed"] + n["timeout"]
    return (
        f"| {name} | {n.total()} | {killed} | {n['timeout']} | {n['equivalent']} |"
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


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "score"))
    parser.add_argument("--results", type=Path, default=RESULTS)
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
        print(score(given.results, given.sample, given.seed, given.rooms))


if __name__ == "__main__":
    main()
