"""The loop: what `plan --framework meshwright` proposes is what the trainer runs, `predict` says
again, `export` starts, and the program itself needs the memory that was planned.

    python benchmarks/loop.py [NUMBER ...] [--no-oracle] [--whole]

For each job: plan -o FILE; the rules of the trainer; export FILE; predict FILE, equal in every
field; and the peak of live tensors of the trainer's own program (compare --oracle, run without
hardware, of the fullest rank) beside the memory of the plan, without the bytes of the framework
itself. Hundreds of microbatches take the program minutes to hours (a layer's forward and backward
pass without hardware takes some 50 to 90 ms), so a pipeline is run with as many as fill it, run and
drain it (`shortened`): between them one round is like another. Exit 1 of a plan is an answer too,
with the sentence that says what the trainer cannot hold.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from meshwright.cli.main import main
from meshwright.describe.job import Job
from meshwright.describe.training import settings
from meshwright.formats.toml import load_job
from meshwright.layout.stages import microbatches
from meshwright.program.memory import peak, shorten
from meshwright.program.operations import carried_out
from meshwright.train import rules

JOBS = {
    1: "llama3-8b --on 64xh100-sxm --batch 256seq",
    2: "llama3-70b --on 64xh100-sxm --batch 256seq",
    3: "llama3-70b --on 1024xh100-sxm --batch 512seq",
    4: "gpt3-175b --on 1024xa100-80 --batch 1536seq",
    5: "llama2-13b --on 32xa100-40 --batch 2048seq --pp 4",
    6: "llama3-8b --on 128xh100-sxm --batch 16seq --seq 262144 --cp 16",
    7: "mistral-7b --on 16xh100-sxm --batch 16seq --seq 65536",
    8: "llama3.2-1b --on 24xa100-80 --batch 96seq",
}
"""Small and large, long sequences, sliding windows, hundreds of microbatches, a number of chips
that is no power of two.
"""
SAME = ("schema", "verb")
"""Keys of an answer that name the verb."""


def ask(*words: str) -> tuple[int, dict[str, Any], str]:
    """(exit code, JSON answer, what was said on stderr) of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    text = out.getvalue()
    return (
        code,
        json.loads(text) if text.startswith("{") else {},
        err.getvalue().strip(),
    )


def loop(
    words: str, file: Path, oracle: bool = True, whole: bool = False
) -> dict[str, Any]:
    """What became of one job: the fields of a row. whole: its program is run with all of its
    microbatches.
    """
    start = time.perf_counter()
    code, planned, said = ask(
        "plan",
        *words.split(),
        "--framework",
        "meshwright",
        "--json",
        "-o",
        str(file),
    )
    found: dict[str, Any] = {
        "job": words,
        "exit": code,
        "plan_s": time.perf_counter() - start,
    }
    if code:
        # stderr may hold progress, too
        return {**found, "why": "; ".join(planned.get("notes", [])) or said}
    again_code, again, _ = ask("predict", str(file), "--json")
    best = planned["best"]
    differs = [key for key in best if best[key] != again.get(key)]
    job = load_job(file)
    rules.demand(job, settings(job.train), int(job.layout.chips))
    exported, _, refused = ask("export", str(file), "--to", "torchrun")
    wanted = carried_out(job)
    walked = [peak(wanted, rank).highest for rank in range(int(job.layout.pp))]
    need = best["memory_bytes"]["allocated"]
    found |= {
        "layout": best["layout"],
        "memory_bytes": need,
        "walk": need / max(walked) - 1,
        "export": exported,
        "refused": refused,
    }
    found |= {"predict": again_code, "differs": differs}
    if oracle:
        found |= beside_program(job if whole else shorten(job), need)
    return found


def beside_program(job: Job, need: float) -> dict[str, Any]:
    """The program of the job's ranks beside the bytes of the plan."""
    from meshwright.train import oracle as program

    start = time.process_time()
    ranks = program.compare_ranks(job, settings(job.train))
    counted = max(
        row.counted
        for rank in ranks
        for row in rank.rows
        if row.quantity == "peak memory"
    )
    return {
        "counted_bytes": counted,
        "oracle": need / counted - 1,
        "oracle_s": time.process_time() - start,
        "microbatches": int(microbatches(job, job.layout)),
        "agrees": all(rank.agrees for rank in ranks),
    }


def told(number: int, row: dict[str, Any]) -> str:
    """One line, for people."""
    if row["exit"]:
        return f"{number}  {row['job']}: exit {row['exit']}: {row['why']}"
    l = row["layout"]
    layout = (
        f"tp {l['tp']} cp {l['cp']} pp {l['pp']} dp {l['dp']} b {l['microbatch']} {l['schedule']}"
        f" ZeRO-{l['zero']} {l['recompute']}"
    )
    line = (
        f"{number}  {row['job']}: {layout}; {row['memory_bytes'] / 2**30:.2f} GiB, walk"
        f" {row['walk']:+.2%}; export {row['export']}, "
    )
    line += f"predict {row['predict']}, {len(row['differs'])} fields differ; plan {row['plan_s']:.1f} s"
    if "oracle" in row:
        line += (
            f"; program of {row['microbatches']} microbatches {row['counted_bytes'] / 2**30:.2f} GiB"
            f" ({row['oracle']:+.2%}), counts {'agree' if row['agrees'] else 'DIFFER'},"
            f" {row['oracle_s']:.0f} CPU s"
        )
    return line


def numbered(text: str) -> int:
    """A job's number."""
    if text not in map(str, JOBS):
        raise argparse.ArgumentTypeError(
            f"{text} is none of the jobs 1 to {len(JOBS)}"
        )
    return int(text)


def given(words: list[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "number",
        nargs="*",
        type=numbered,
        help="jobs to carry through; all of them if none is named",
    )
    parser.add_argument(
        "--no-oracle",
        action="store_true",
        help="without the trainer's own program, which takes minutes to hours",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="the program with all microbatches, also of a pipeline with hundreds",
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    asked = given()
    with tempfile.TemporaryDirectory() as folder:
        for number in asked.number or JOBS:
            file = Path(folder) / f"{number}.toml"
            row = loop(JOBS[number], file, not asked.no_oracle, asked.whole)
            print(told(number, row), flush=True)
