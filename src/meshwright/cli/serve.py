"""The verbs of the page: `serve` shows it, `report` writes it as one file, `site` as a folder."""

from __future__ import annotations

import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import BadInput
from .command import output, verb, word

Folders = Annotated[
    str,
    Parameter(help="Folders of runs of meshwright train, to be shown too."),
]
Host = Annotated[
    str,
    word(
        "Address to listen on; other machines cannot reach the default.",
        "ADDRESS",
    ),
]
Port = Annotated[int, word("Port; 0 takes a free one.", "N")]
Name = Annotated[
    tuple[str, ...],
    word("Also answer under this host name, such as that of a proxy.", "NAME"),
]
Source = Annotated[
    str,
    Parameter(help="A JOB.toml, or the folder of a run."),
]
HIGHEST_PORT = 65535
SWITCH_S = 5e-4
"""Seconds after which a thread that computes lets another: of Python's usual 5e-3, a prediction
beside a search would wait several times."""


@verb()
def serve(
    *runs: Folders,
    host: Host = "127.0.0.1",
    port: Port = 8321,
    name: Name = (),
) -> int:
    """Show the page: every answer while you type, on this machine only.

    Example: meshwright serve quickstart-run
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise BadInput(
            "serve needs starlette and uvicorn: pip install 'meshwright[web]'"
        )
    if not 0 <= port <= HIGHEST_PORT:
        raise BadInput(
            f"--port must be between 0 and {HIGHEST_PORT}, not {port}"
        )
    import uvicorn

    from ..web.app import app
    from ..web.timed import DeadlineProtocol

    shown = {path.name or str(path): path for path in map(run_folder, runs)}
    sys.setswitchinterval(SWITCH_S)
    served = app((host, *name), shown, prepare=True)
    config = uvicorn.Config(
        served,
        host=host,
        port=port,
        http=DeadlineProtocol,
        log_level="warning",
        lifespan="off",
    )
    with bound(host, port) as listening:
        shown_host = f"[{host}]" if ":" in host else host
        where = f"http://{shown_host}:{listening.getsockname()[1]}/"
        print(f"the page is at {where} (Ctrl-C ends it)", file=sys.stderr)
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listening])
    return 0


def bound(host: str, port: int) -> socket.socket:
    """The socket to listen on; BadInput if there is none to be had."""
    # asyncio sends small answers at once only on sockets that say they are TCP's
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET,
        socket.SOCK_STREAM,
        socket.IPPROTO_TCP,
    )
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise BadInput(
            f"cannot listen on {host[:80]} port {port}: {error.strerror or error}; --port 0 takes a"
            " free one"
        ) from None
    return listening


def run_folder(text: str) -> Path:
    """The folder of a run.  BadInput if it is none."""
    path = Path(text[:4096]).resolve()
    if not (path / "job.toml").is_file():
        raise BadInput(f"{text[:80]!r} is not a run folder (no job.toml)")
    return path


@verb()
def _report(
    source: Source,
    /,
    *,
    output: Annotated[
        str, output("one .html file, with everything in it")
    ] = "report.html",
) -> int:
    """Write a job or a run as one HTML file: every view, with its answers, for any
    browser and without a network.

    Example: meshwright report plan.toml -o report.html
    """
    from ..report import console, files
    from ..web.recorded import recorded_report as compute

    files.suffix(output, (".html",))
    with console.progress() as progress:
        text = compute(source, progress)
    files.write(output, text)
    return 0


Folder = Annotated[
    str,
    Parameter(
        name=("--output", "-o"), help="The folder to write.", metavar="DIR"
    ),
]
Pyodide = Annotated[
    str | None,
    word(
        "Pyodide's files; without them the page shows its first answers only.",
        "DIR",
    ),
]
Fetch = Annotated[
    bool, word("Get the files that --pyodide lacks, each by its SHA-256.")
]


@verb()
def site(
    *, output: Folder = "site", pyodide: Pyodide = None, fetch: Fetch = False
) -> int:
    """Write the page as a folder for any static host, where the program runs in the browser.

    Example: meshwright site -o public --pyodide pyodide --fetch
    """
    from ..report import console
    from ..web import pyodide as files
    from ..web.site import write_site

    if fetch:
        if not pyodide:
            raise BadInput("--fetch needs --pyodide DIR, where the files go")
        files.fetch(Path(pyodide))

    folder = Path(output[:4096])
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"-o {output[:80]!r} is a file: give a folder")
    with console.progress() as progress:
        names = write_site(
            folder,
            Path(pyodide) if pyodide else None,
            progress,
        )
    print(f"{len(names)} files in {folder}", file=sys.stderr)
    return 0
