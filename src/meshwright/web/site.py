"""The page as a folder for any static host: the same program, run in the browser by Pyodide.

Pyodide's files come from a folder (`pyodide`), and answers worked out beforehand stand in until
the program has loaded. Without them the page shows what was written with it, and says so.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..search import Progress
from . import page, prerendered, pyodide, recorded
from .question import OPENING, ask

LEFT_OUT = ("train", "cli", "static", "__pycache__")
"""Parts of the package that no answer of the page needs."""
BESIDE = ("style.css", "worker.js")
"""Files that the first one loads, besides its script."""
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self';"
    " img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'"
)


def write_site(
    folder: Path,
    engine: Path | None,
    progress: Progress,
    over: prerendered.KeyRange | None = None,
) -> list[str]:
    """Write the folder; the names of its files.  Raises BadInput.

    engine: of Pyodide's files;  over: what is worked out beforehand.
    """
    loaded = pyodide.files(engine) if engine else []
    job, _ = ask(OPENING, [])
    state, answers = recorded.of_job(job, progress, OPENING)
    catalogue = recorded.catalogue(progress)
    first = page.answers_script(
        recorded.address(state), {**answers, **catalogue}
    )
    folder.mkdir(parents=True, exist_ok=True)
    kind = "first" if engine else "recorded"
    texts = {
        **{name: page.static(name) for name in BESIDE},
        page.SCRIPT: page.script(),
        "index.html": page.index(first, kind, POLICY),
        "single.html": page.empty(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    if engine:
        rows = prerendered.compressed(over or prerendered.KeyRange(), progress)
        (folder / prerendered.NAME).write_bytes(rows)
        (folder / "meshwright.zip").write_bytes(package())
        (folder / "pyodide").mkdir(exist_ok=True)
        for file in loaded:
            shutil.copy(file, folder / "pyodide" / file.name)
    return sorted(file.name for file in folder.iterdir())


def package() -> bytes:
    """The program as a zip file, without what the page does not need."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, resources.files("meshwright"), "meshwright")
    return data.getvalue()


def _add(archive: zipfile.ZipFile, folder: Traversable, name: str) -> None:
    """The files of a folder and of those inside."""
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.is_dir() and file.name not in LEFT_OUT:
            _add(archive, file, f"{name}/{file.name}")
        elif file.is_file():
            archive.writestr(f"{name}/{file.name}", file.read_bytes())
