"""Pyodide's files, which run the program in a browser: which they are, whence, and by which hashes.

Pyodide is CPython for WebAssembly; NumPy for it lies on no package index, only beside its releases.
Both are pinned: a file that is not the one named here is not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

from ..errors import BadInput

VERSION = "314.0.7"
CORE = {
    "pyodide.mjs": "6f1d60f7bf529beb300f0f47983c921d3982363640ba20af0e38efdddbc66109",
    "pyodide.asm.mjs": "f7cdc8ece80678ceb712f8e65ebe6d3a83203a180c399865f49612a051693635",
    "pyodide.asm.wasm": "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
    "python_stdlib.zip": "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
    "pyodide-lock.json": "5dc2fc119108bc148c7457dc86e7675b5c87e1cafd420b9c34c1eaef7b36c010",
}
"""SHA-256 of each file of the npm package pyodide@VERSION (MPL-2.0)."""
WHEELS = {
    "numpy": "a292c1f5d7d8a2208cd5e94fc467604c131cabcd2fc14fed6eefde121e7fabdf",
    "rich": "9fa51aa452866411887e3b3b6ffdfec4a8f84ef14662343505a61e8bc5d64ef5",
}
"""SHA-256 of the packages that the program imports (worker.js), as the lock file has them."""
LOCK = "pyodide-lock.json"
OF_CORE = f"https://cdn.jsdelivr.net/npm/pyodide@{VERSION}/"
OF_WHEELS = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
Read = Callable[[str], bytes]


def read_address(address: str) -> bytes:
    """What lies at an address."""
    with urlopen(address, timeout=120) as reply:
        content: bytes = reply.read()
    return content


def fetch(folder: Path, read: Read = read_address) -> None:
    """Bring the files that a folder lacks into it, each by its hash.  Raises BadInput."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, digest in CORE.items():
        _have(folder / name, OF_CORE, digest, read)
    for package, name in wheels(folder).items():
        _have(folder / name, OF_WHEELS, WHEELS[package], read)


def _have(file: Path, site: str, digest: str, read: Read) -> None:
    address = site + file.name
    try:
        content = file.read_bytes() if file.is_file() else read(address)
    except OSError as error:
        raise BadInput(f"{address} cannot be fetched: {error}") from None
    if sha256(content).hexdigest() != digest:
        raise BadInput(
            f"{file.name} is not the file that is pinned: its SHA-256 is"
            f" {sha256(content).hexdigest()}, not {digest}"
        )
    if not file.is_file():
        file.write_bytes(content)


def wheels(folder: Path) -> Mapping[str, str]:
    """Package -> file, as the lock file of a folder names them; none where there is no lock file.
    Raises BadInput.
    """
    lock = folder / LOCK
    if not lock.is_file():
        return {}
    try:
        known = json.loads(lock.read_text("utf-8"))["packages"]
        return {name: known[name]["file_name"] for name in WHEELS}
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{str(lock)[:80]!r} does not say where {' and '.join(WHEELS)} are"
        ) from None


def files(folder: Path) -> list[Path]:
    """What the worker loads from a folder.  Raises BadInput where some of it is missing."""
    named = [*CORE, *wheels(folder).values()]
    for name in named:
        if not (folder / name).is_file():
            raise BadInput(
                f"{str(folder)[:80]!r} is not a folder of Pyodide {VERSION} with NumPy and rich: it"
                f" has no {name}; --fetch gets what is missing"
            )
    return [folder / name for name in named]
