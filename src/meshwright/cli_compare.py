"""The verb `compare`: a run beside its prediction."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from .command import Json, output, verb

RunFolder = Annotated[str, Parameter(help="Folder of a run of meshwright train.")]


@verb()
def compare(
    run: RunFolder,
    /,
    *,
    json: Json = False,
    output: Annotated[
        str | None, output(".json (a trace for ui.perfetto.dev, predicted and measured), .png or .svg (Gantt charts)")
    ] = None,
) -> int:
    """Lay a measured training step beside the predicted one: time by cause, memory by kind, the pipeline's timeline.

    Example: meshwright compare quickstart-run -o gantt.png
    """
    from .compare import compare as compute
    from .formats.run_folder import read
    from .report import console, files
    from .report.compare import report, writers

    files.suffix(output, (".json", *files.PLOTS))
    found = compute(read(run))
    data = console.envelope("compare", found.to_dict())
    console.show_json(data) if json else console.show(report(found, console.ascii_only()))
    if output:
        files.write(output, writers(found))
    return 0
