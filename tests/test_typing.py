"""What a type checker sees of the public names: their types, and mistakes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import meshwright
from meshwright import Job

ROOT = Path(meshwright.__file__).parents[2]
RIGHT = """\
from meshwright import Job, Layout, chip, cluster, model, plan, predict, sweep, timeline
job = Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=512, layout=Layout(dp=64, zero=3))
job = Job("llama3-8b", "64xh100-sxm", "4Mi", tokens="2T", precision="fp8", framework="fsdp")
reveal_type(job.model)  # meshwright.describe.model.Model
reveal_type(job.with_(tp=8, batch="1Mi"))  # meshwright.describe.job.Job
reveal_type(predict(job, tp=8, pp=4).days)  # float | None
reveal_type(plan(job, tp=[4, 8], framework="torchtitan").answer)  # meshwright.prediction.prediction.Prediction
reveal_type(sweep(job, "chips", [64, 128]).points)  # tuple[meshwright.sweep.SweepPoint, ...]
reveal_type(timeline(job, pp=4))  # meshwright.prediction.replay.Replay
reveal_type(Layout(tp=8))  # meshwright.describe.layout.Layout
reveal_type(chip("h100-sxm").hbm_bytes)  # float
reveal_type(predict(job).step_time_s)  # float
reveal_type(plan(job).best)  # meshwright.prediction.prediction.Prediction | None
"""
WRONG = """\
import meshwright
from meshwright import Job, Layout, cluster, model, predict, nothing  # attr-defined
job = Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=[])  # arg-type
Job(3, "64xh100-sxm", batch=512)  # arg-type
Job(model("llama3-8b"), cluster("64xh100-sxm"), batch=1, batsh=3)  # call-arg
predict(job, 3)  # arg-type
predict(job).nonexistent  # attr-defined
Layout(zero="one")  # arg-type
meshwright.plann(job)  # attr-defined
"""


def shown() -> dict[str, str]:
    """Python that the README, the notebook and examples/ show, by the name of a file."""
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    cells = json.loads((ROOT / "examples/planning.ipynb").read_text("utf-8"))
    code = [
        kept("".join(cell["source"]), number)
        for number, cell in enumerate(cells["cells"])
        if cell["cell_type"] == "code"
    ]
    scripts = (ROOT / "examples").glob("*.py")
    return {
        "readme.py": "\n".join(blocks),
        "notebook.py": "\n".join(code),
        **{script.name: script.read_text("utf-8") for script in scripts},
    }


def kept(code: str, number: int) -> str:
    """A cell of a notebook with its last value kept under a name, as Jupyter keeps it."""
    last = ast.parse(code).body[-1]
    if not isinstance(last, ast.Expr) or isinstance(last.value, ast.Call):
        return code
    lines = code.splitlines()
    lines[last.lineno - 1] = f"out_{number} = {lines[last.lineno - 1]}"
    return "\n".join(lines)


def comments(text: str) -> dict[int, str]:
    """line -> what its comment says."""
    return {
        n: line.split("  # ")[1]
        for n, line in enumerate(text.splitlines(), 1)
        if "  # " in line
    }


def test_mypy_knows_types_and_finds_mistakes(tmp_path: Path) -> None:
    """As a user would run it, with the cache that the project's own run leaves; what the project
    shows has no mistake.
    """
    pytest.importorskip("mypy")
    files = {"right.py": RIGHT, "wrong.py": WRONG, **shown()}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        *(str(tmp_path / name) for name in files),
    ]
    told = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=300
    ).stdout
    said = re.findall(r"(\w+\.py):(\d+): (\w+): (.*)", told)
    revealed = {
        int(line): text for file, line, _, text in said if file == "right.py"
    }
    assert revealed == {
        n: f'Revealed type is "{text}"' for n, text in comments(RIGHT).items()
    }, told
    mistakes = {
        int(line): text
        for file, line, kind, text in said
        if file == "wrong.py" and kind == "error"
    }
    assert {
        n: re.findall(r"\[([\w-]+)\]$", text)[0]
        for n, text in mistakes.items()
    } == comments(WRONG), told
    assert {file for file, *_ in said} == {"right.py", "wrong.py"}, told


def test_type_checkers_read_the_names_that_are_loaded() -> None:
    """The two lists in __init__ are one."""
    tree = ast.parse(Path(meshwright.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.asname
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed | {"__version__"} == set(meshwright.__all__)


def test_a_job_takes_what_its_type_says() -> None:
    """The arguments that type checkers read are the fields."""
    tree = ast.parse(inspect.getsource(Job)).body[0]
    (typed,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    names = [argument.arg for argument in typed.args.args[1:]]
    assert names == [field.name for field in dataclasses.fields(Job)]
