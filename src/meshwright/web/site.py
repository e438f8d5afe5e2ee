"""The page as a folder for any static host: the same program, run in the browser by Pyodide.

Pyodide's files are the reader's to supply (its release, unpacked, or a folder with pyodide.mjs,
pyodide.asm.*, python_stdlib.zip, pyodide-lock.json and the wheels of numpy and rich). Without them
the page shows the answers that were written with it, and says so.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..errors import BadInput
from ..search.evaluate import Progress
from . import page, recorded
from .question import OPENING, ask

LEFT_OUT = ("train", "cli", "static", "__pycache__")
"""Parts of the package that no answer of the page needs."""
NEEDED = ("pyodide.mjs", "pyodide-lock.json")
"""Files that make a folder one of Pyodide's."""
PACKAGES = ("numpy", "rich")
"""What the worker loads besides (worker.js)."""
BESIDE = ("style.css", "worker.js")
"""Files that the first one loads, besides its script."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self';"
    " img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'"
)


def write(folder: Path, pyodide: Path | None, progress: Progress) -> list[str]:
    """Write the folder; the names of its files.  Raises BadInput."""
    if pyodide is not None:
        demand(pyodide)
    state, answers = recorded.of_job(ask(OPENING, [])[0], progress)
    catalogue = recorded.catalogue(progress)
    held = page.answers_script(
        recorded.address(state), {**answers, **catalogue}
    )
    folder.mkdir(parents=True, exist_ok=True)
    kind = "recorded" if pyodide is None else "first"
    texts = {
        **{name: page.static(name) for name in BESIDE},
        page.SCRIPT: page.script(),
        "index.html": page.index(held, kind, POLICY),
        "single.html": page.empty(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    if pyodide is not None:
        (folder / "meshwright.zip").write_bytes(package())
        shutil.copytree(pyodide, folder / "pyodide", dirs_exist_ok=True)
    return sorted(file.name for file in folder.iterdir())


def demand(pyodide: Path) -> None:
    """Raise BadInput if a folder does not hold what the worker loads."""
    for name in (*NEEDED, *wheels(pyodide)):
        if not (pyodide / name).is_file():
            raise BadInput(
                f"{str(pyodide)[:80]!r} is no folder of Pyodide with NumPy and rich: it has no"
                f" {name}; the full release of Pyodide has it, its npm package has not"
            )


def wheels(pyodide: Path) -> list[str]:
    """Files of the packages that the program imports, as Pyodide's lock names them."""
    lock = pyodide / "pyodide-lock.json"
    if not lock.is_file():
        return []
    try:
        known = json.loads(lock.read_text("utf-8"))["packages"]
        return [known[name]["file_name"] for name in PACKAGES]
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{str(lock)[:80]!r} does not say where {' and '.join(PACKAGES)} are"
        ) from None


def package() -> bytes:
    """The program as a zip file, without what the page does not need."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        add(archive, resources.files("meshwright"), "meshwright")
    return data.getvalue()


def add(archive: zipfile.ZipFile, folder: Traversable, name: str) -> None:
    """The files of a folder and of those inside."""
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.is_dir() and file.name not in LEFT_OUT:
            add(archive, file, f"{name}/{file.name}")
        elif file.is_file():
            archive.writestr(f"{name}/{file.name}", file.read_bytes())
