"""One question on all faces: what the page is told, the command's --json, and the Python that the page copies.

    python benchmarks/faces.py --questions 50 --seed 2

Questions are drawn: ten models, nine chips, 8 to 512 chips, batches, lengths, precisions, degrees and ZeRO stages that are
fixed or left to the search. Every field that two faces share is compared to the last digit; search counters are
left out, since the faces rank different numbers of layouts. The JOB.toml that is copied is predicted too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from meshwright.cli.main import main as command
from meshwright.web import answers
from meshwright.web.copies import ways_to_copy
from meshwright.web.question import command_of

MODELS = (
    "llama3-8b",
    "llama3-70b",
    "gpt2-xl",
    "gpt3-175b",
    "mixtral-8x7b",
    "qwen3-8b",
    "llama2-7b",
    "qwen3-30b-a3b",
    "olmo2-32b",
    "deepseek-v3",
)
CHIPS = (
    "h100-sxm",
    "h200",
    "a100-80",
    "b200",
    "gb200",
    "mi300x",
    "tpu-v5p",
    "v100-32",
    "rtx-4090",
)
COUNTERS = ("searched", "feasible", "rejected", "elapsed_s", "alternatives")
"""Fields of the search, not of the answer."""
OF_THE_PAGE = ("layout_words",)


def drawn(draw: random.Random) -> dict[str, str]:
    """A question."""
    chips = 2 ** draw.randrange(3, 10)
    question = {
        "model": draw.choice(MODELS),
        "on": f"{chips}x{draw.choice(CHIPS)}",
        "batch": f"{chips * draw.randrange(1, 9)}seq",
        "tokens": draw.choice(("1T", "15T", "300G")),
    }
    if draw.random() < 0.3:
        question["seq"] = draw.choice(("2048", "4096", "16384"))
    if draw.random() < 0.2:
        question["precision"] = "fp8"
    if draw.random() < 0.3:
        question["tp"] = draw.choice(("1,2", "4", "8"))
    if draw.random() < 0.3:
        question["zero"] = draw.choice(("1", "3", "0..1"))
    return question


def of_page(question: dict[str, str]) -> dict[str, Any]:
    """What the page is told; {"error": ...} where it is refused."""
    body = {"question": question, "families": True}
    try:
        return json.loads(
            json.dumps(answers.answer_plan(body, lambda *_: None))
        )
    except Exception as error:  # noqa: BLE001 - compared with the command's
        return {"error": str(error)}


def of_command(question: dict[str, str]) -> dict[str, Any]:
    """What the copied command prints with --json."""
    words = shlex.split(command_of(question))[1:]
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        command([*words, "--json"])
    return json.loads(out.getvalue())


def of_python(text: str) -> dict[str, Any]:
    """What the copied Python finds."""
    space: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(text, space)  # noqa: S102 - it is what the page wrote
    return json.loads(json.dumps(space["found"].to_dict()))


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    """Fields that both have and that differ; a count of leaves is kept by the caller."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() & b.keys():
            if key not in (*COUNTERS, *OF_THE_PAGE):
                yield from differences(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list) and isinstance(b, list):
        for i, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from differences(one, other, f"{path}[{i}]")
    else:
        seen["leaves"] += 1
        if a != b:
            yield f"{path}: {a!r} {b!r}"


seen: Counter[str] = Counter()
"""Leaves that were compared."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=2)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    wrong = refused = files = 0
    for number in range(given.questions):
        question = drawn(draw)
        page = of_page(question)
        told = of_command(question)
        found = []
        if "error" in page or "error" in told:
            refused += 1
            same = page.get("error") == told.get("error")
            found = (
                [] if same else [f"{page.get('error')} | {told.get('error')}"]
            )
        else:
            found += differences(page, told)
            best = page["best"]
            body = {"question": question}
            if best:
                body["layout"] = best["layout"]
            copied = ways_to_copy(body, lambda *_: None)
            found += differences(page, of_python(copied["python"]))
            if best:
                files += 1
                found += of_file(copied["toml"], best["step_time_s"])
        for one in found:
            print(f"{number} {question}: {one}", flush=True)
        wrong += bool(found)
        print(f"{number + 1} asked, {wrong} differ", file=sys.stderr)
    print(
        f"{given.questions} questions, {refused} refused alike, {files} files; {seen['leaves']:,}"
        f" figures compared; {wrong} questions differ"
    )
    sys.exit(bool(wrong))


def of_file(text: str, seconds: float) -> list[str]:
    """Whether the job file is predicted as the answer is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.toml"
        file.write_text(text, "utf-8")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            command(["predict", str(file), "--json"])
    step = json.loads(out.getvalue())["step_time_s"]
    return [] if step == seconds else [f"job.toml {step!r}, page {seconds!r}"]


if __name__ == "__main__":
    main()
