"""A frozen corpus of answers, and what has changed since: a tripwire for work that moves code or
numbers, not a proof.

    python tests/tools/corpus.py diff                   this tree against tests/tools/corpus.jsonl
    python tests/tools/corpus.py diff --since REV       every commit after REV against the one before it
    python tests/tools/corpus.py write --reason TEXT    answer the same questions anew, with date and reason

The questions are the command lines in the file, once drawn at random and then kept: 400 steps
(seconds by cause, bytes by kind), the first ten of 25 plans, 8 limits, 40 rooflines; all digits. A
line {"ask": "predict ...", "answer": {}} adds one. A difference is no error: each commit that
changes numbers names the rows it may change, and this shows them. A number that agrees here is not
proven right.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
# the sources beside this file (or those of another revision) answer, never an installed package
sys.path.insert(
    0,
    os.environ.get("CORPUS_SOURCES") or str(Path(__file__).parents[2] / "src"),
)

from corpus_diff import Change, changes, report

from meshwright.cli.main import main as meshwright

STORED = Path(__file__).with_name("corpus.jsonl")
ROOT = Path(__file__).parents[2]
LAYOUT = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "etp",
    "microbatch",
    "interleave",
    "schedule",
    "zero",
    "dp_replicate",
    "recompute",
    "sequence_parallel",
    "scheme",
    "panels",
    "placement",
)
PLAIN = {
    "sequence_parallel": True,
    "scheme": "megatron",
    "recompute": "none",
    "zero": 0,
}
"""Fields that name a layout of a plan, and those values (and degrees of 1) that go without
saying.
"""
POINT = ("flops", "chips", "utilisation", "parameters", "degrees", "step")
"""What is kept of a point of a limits curve; of the smooth curve only chips and utilisation."""


def ask(line: str) -> dict[str, Any] | str:
    """The JSON of a command line of meshwright, or its sentence if it is refused."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = meshwright([*shlex.split(line), "--json"])
    text = out.getvalue()
    return (
        json.loads(text)
        if text and code in (0, 1)
        else " ".join(err.getvalue().split())
    )


def answer(line: str) -> dict[str, Any]:
    """What the corpus keeps of the answer: field -> number or text; zeros are left out."""
    found = ask(line)
    if isinstance(found, str):
        return {"refused": found}
    return {k: v for k, v in KINDS[line.split()[0]](found).items() if v != 0}


def of_step(found: dict[str, Any]) -> dict[str, Any]:
    """Step time, its causes, and bytes by kind."""
    parts = ("step_time_s", "microbatches", "time_s", "memory_bytes")
    return flat({k: found[k] for k in parts})


def of_plan(found: dict[str, Any]) -> dict[str, Any]:
    """The first ten layouts with seconds and bytes, and how many there were."""
    rows: dict[str, Any] = {"searched": found["searched"]}
    for i, p in enumerate(
        filter(None, [found["best"], *found["alternatives"]]), 1
    ):
        rows[f"{i}.layout"] = name_of(p["layout"])
        rows[f"{i}.step_time_s"], rows[f"{i}.total_bytes"] = (
            p["step_time_s"],
            p["memory_bytes"]["needed"],
        )
    if found["closest"]:
        rows["closest"] = name_of(found["closest"]["layout"])
    return rows


def name_of(layout: dict[str, Any]) -> str:
    """The layout as text, defaults left out."""
    text = [
        f"{k}={layout[k]}"
        for k in LAYOUT[:-1]
        if layout.get(k, 1) != PLAIN.get(k, 1)
    ]
    return " ".join(
        [
            *text,
            *(
                f"{a}:{'x'.join(f'{n:g}' for n in s)}"
                for a, s in layout["placement"].items()
            ),
        ]
    )


def of_limits(found: dict[str, Any]) -> dict[str, Any]:
    """The points of the curve, where it ends, and the smooth curve's chips and utilisation."""
    (s,) = found["scenarios"]
    smooth = [
        {k: p[k] for k in ("chips", "utilisation")}
        for p in s["smooth_points"] or ()
    ]
    return flat(
        {
            "points": [{k: p[k] for k in POINT} for p in s["points"]],
            "smooth": smooth,
            **{
                k: s[k]
                for k in (
                    "threshold",
                    "crossing",
                    "smooth_crossing",
                    "closed_forms",
                )
            },
        }
    )


def of_roofline(found: dict[str, Any]) -> dict[str, Any]:
    """Thresholds, theory, the best splits, and each scheme without its curve."""
    schemes = {
        s["name"]: {k: v for k, v in s.items() if k not in ("name", "curve")}
        for s in found["schemes"]
    }
    names = (
        "hbm_tokens",
        "data_tokens_per_shard",
        "largest_tensor",
        "memory_bytes",
        "flops_per_token",
    )
    return flat(
        {
            **{k: found[k] for k in names},
            "scheme": schemes,
            "theory": found["theory"],
            "whole": found["whole"],
        }
    )


KINDS = {
    "predict": of_step,
    "plan": of_plan,
    "limits": of_limits,
    "roofline": of_roofline,
}


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested fields as a.b.0.c -> number or text; true and false as 1 and 0, null left out."""
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            k: v
            for key, x in pairs
            for k, v in flat(x, f"{name}.{key}" if name else str(key)).items()
        }
    return (
        {}
        if value is None
        else {name: int(value) if isinstance(value, bool) else value}
    )


def stored(path: Path = STORED) -> dict[str, dict[str, Any]]:
    """Question -> answer of a corpus file."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {row["ask"]: row["answer"] for row in rows if "ask" in row}


def write(reason: str, path: Path = STORED) -> None:
    """Answer the stored questions and write them, one a line, under a line with date and reason."""
    head = {
        "date": date.today().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD"),
        "reason": reason,
    }
    rows = [{"ask": line, "answer": answer(line)} for line in stored(path)]
    lines = map(json.dumps, (head, *rows))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def git(*words: str) -> str:
    """What git says in this repository."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def answers_of(revision: str, path: Path) -> dict[str, dict[str, Any]]:
    """The answers of another revision to the questions of a corpus file, in a work tree of its
    own.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "answers.jsonl"
        git("worktree", "add", "--detach", str(tree), revision)
        try:
            out.write_text(path.read_text("utf-8"), "utf-8")
            words = [
                sys.executable,
                __file__,
                "write",
                "--reason",
                revision,
                "--corpus",
                str(out),
            ]
            subprocess.run(
                words,
                check=True,
                env={**os.environ, "CORPUS_SOURCES": str(tree / "src")},
            )
            return stored(out)
        finally:
            git("worktree", "remove", "--force", str(tree))


def since(
    revision: str, path: Path
) -> Iterator[tuple[str, list[Change], int]]:
    """(commit, changes, questions) of each commit after a revision that touches the package."""
    before = answers_of(revision, path)
    for commit in git(
        "log", "--reverse", "--format=%h", f"{revision}..HEAD", "--", "src"
    ).split():
        after = answers_of(commit, path)
        yield (
            git("log", "-1", "--format=%h %s", commit),
            list(changes(before, after)),
            len(before),
        )
        before = after


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("write", "diff"))
    parser.add_argument("--reason", default="", help="why it is written anew")
    parser.add_argument("--corpus", type=Path, default=STORED)
    parser.add_argument(
        "--since", metavar="REV", help="diff: each commit after REV"
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=30,
        help="diff: rows shown in full (0: none)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        help="diff: relative difference that counts as equal",
    )
    parser.add_argument(
        "--only",
        default="",
        help="diff: only questions that contain this text",
    )
    given = parser.parse_args()
    if given.command == "write":
        if not given.reason:
            parser.error("write needs a --reason")
        write(given.reason, given.corpus)
    elif given.since:
        for title, found, asked in since(given.since, given.corpus):
            print(
                f"== {title}\n{report([c for c in found if c.beyond(given.tolerance)], asked, given.rows)}\n"
            )
    else:
        before = {
            line: a
            for line, a in stored(given.corpus).items()
            if given.only in line
        }
        found = changes(before, {line: answer(line) for line in before})
        print(
            report(
                [c for c in found if c.beyond(given.tolerance)],
                len(before),
                given.rows,
            )
        )


if __name__ == "__main__":
    main()
