"""Set up and start Meshwright on a machine that has only Python 3.11, pip and git.

    python3 run.py plan llama3-70b --on 1024xh100-sxm --batch 4Mi
    python3 run.py train examples/quickstart.toml
    python3 run.py test [pytest arguments]
    python3 run.py docs [-d FOLDER]
    python3 run.py gpu-check --chip h100-sxm --docs

Any verb of the command runs in .venv, those that need PyTorch in .venv-train; lint, types and tests
in .venv-test; docs, the documentation as a site in build/docs, in .venv-docs; gpu-check, the
trainer on the GPUs of this machine, in .venv-gpu.

Each makes its own virtual environment beside this file (or in the folder MESHWRIGHT_ENV names) and
installs what it needs when pyproject.toml has changed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

try:
    import tomllib
except ImportError:
    sys.exit(
        f"Meshwright needs Python 3.11 or newer, and this is {sys.version.split()[0]}: run it with"
        " python3.11, or a newer one, in place of python3"
    )

NEED_TORCH = ("train", "data", "calibrate")
"""Verbs, and `export` of weights; other exports write text."""
WEIGHTS = "safetensors"
STUDIES = ("-e", "./studies")
"""The papers, validation and fits, as a package of their own."""
HERE = Path(__file__).resolve().parent
TORCH = "torch==2.13.0"  # a CPU build is enough; an unpinned torch would bring gigabytes of CUDA


def environment(name: str, requirements: list[list[str]]) -> Path:
    """The folder of executables of a virtual environment that holds the requirements; made or
    completed if it is not up to date.
    """
    folder = Path(os.environ.get("MESHWRIGHT_ENV", HERE)) / name
    binaries = folder / ("Scripts" if os.name == "nt" else "bin")
    stamp, wanted = (
        folder / "installed.txt",
        (HERE / "pyproject.toml").read_text("utf-8") + repr(requirements),
    )
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return binaries
    print(f"setting up {folder} ...", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=not stamp.is_file())
    for step in requirements:
        command = [
            str(binaries / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *step,
        ]
        if subprocess.run(command, cwd=HERE, stdout=sys.stderr).returncode:
            sys.exit(
                "pip could not install what is needed: see its message above"
            )
    stamp.write_text(wanted, "utf-8")
    return binaries


def needed(*groups: str) -> list[str]:
    """What dependency groups of pyproject.toml and the packages themselves ask pip for."""
    text = (HERE / "pyproject.toml").read_text("utf-8")
    known = tomllib.loads(text)["dependency-groups"]
    asked = [one for group in groups for one in known[group]]
    return [*asked, "-e", ".", *STUDIES]


def test(arguments: list[str]) -> int:
    """Lint, types and tests; the last line printed is pytest's summary."""
    tools = environment(
        ".venv-test", [[TORCH], needed("test", "docs", "lint")]
    )
    for check in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
    ):
        if failed := subprocess.run(
            [str(tools / check[0]), *check[1:]], cwd=HERE
        ).returncode:
            return failed
    return subprocess.run(
        [str(tools / "python"), "-m", "pytest", "-n", "2", *arguments],
        cwd=HERE,
    ).returncode


def needs_torch(words: list[str]) -> bool:
    """Does a command line run PyTorch?"""
    weights = words[:1] == ["export"] and any(WEIGHTS in w for w in words)
    return words[:1] != [] and (
        words[0] in NEED_TORCH or weights or "--oracle" in words
    )


def main() -> int:
    """Run the tests, or hand the arguments to the command."""
    if sys.argv[1:2] == ["test"]:
        return test(sys.argv[2:])
    if sys.argv[1:2] == ["docs"]:
        tools = environment(".venv-docs", [needed("docs")])
        return subprocess.run(
            [
                *(str(tools / "mkdocs"), "build", "--strict"),
                *("-f", "docs/site/mkdocs.yml", *sys.argv[2:]),
            ],
            cwd=HERE,
        ).returncode
    if sys.argv[1:2] == ["gpu-check"]:
        tools = environment(".venv-gpu", [["-e", ".[train]"]])
        return subprocess.run(
            [str(tools / "python"), "benchmarks/gpu.py", *sys.argv[2:]],
            cwd=HERE,
        ).returncode
    with_torch = needs_torch(sys.argv[1:])
    requirements = (
        [[TORCH], ["-e", ".[plot,train]", *STUDIES]]
        if with_torch
        else [["-e", ".[plot,web,yaml]", *STUDIES]]
    )
    tools = environment(".venv-train" if with_torch else ".venv", requirements)
    return subprocess.run(
        [str(tools / "meshwright"), *sys.argv[1:]],
        env={**os.environ, "MESHWRIGHT_COMMAND": started()},
    ).returncode


def started() -> str:
    """How this file is started from here, for the commands that answers print."""
    try:
        return f"python3 {shlex.quote(os.path.relpath(__file__))}"
    except ValueError:  # another drive
        return f"python3 {Path(__file__).name}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
