"""Two fields varied against each other, point by point, on many processes, and never twice.

    grid(job, [("chips", [64, 128]), ("batch", ["1M", "4M"])], file="points.jsonl")

Every finished point is a line of the file, so a run that was killed goes on where it stopped: what
it finds then is what it would have found in one go. The first line says of which job and which
values the points are; a file of others is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ._version import __version__
from .describe.choices import FIELDS
from .describe.display import Displayed
from .describe.job import Job
from .errors import BadInput, MeshwrightError
from .formats.toml import dump_job
from .prediction.prediction import Prediction, predict
from .sweep import EMPTY, Prices, Value, best_layout, values, vary

if TYPE_CHECKING:
    from .search import Space

MOST = 100_000
"""Points of a grid."""
AT_ONCE = 64
"""Most points that a process takes at a time."""
PARTS = 256
"""Parts for an engine, whose workers come and go; fewer where they would be empty."""
PER_WORKER = 4
"""Parts for each process of this machine: each costs it some milliseconds of its own."""
VERSION = 1
"""Of the file's lines."""
Axis = tuple[str, Sequence[Value]]
Row = dict[str, Any]
Part = Sequence[tuple[int, Mapping[str, Value]]]
"""Some points with their numbers."""
Work = Callable[[Part], list[tuple[int, Row]]]
Compute = Callable[[Job, Mapping[str, Value], "Space | None", bool], Row]


@dataclass(frozen=True)
class Grid(Displayed):
    """The finished points, in the order of the axes; the last axis changes fastest.

    >>> from meshwright import Grid, Job
    >>> from meshwright.grid import grid
    >>> job = Job("llama3-8b", "64xh100-sxm", batch=512)
    >>> points = grid(job, [("chips", [32, 64]), ("zero", [1, 3])], workers=1)
    >>> isinstance(points, Grid), len(points.rows)
    (True, 4)
    """

    axes: tuple[tuple[str, tuple[Value, ...]], ...]
    rows: tuple[Row, ...]
    """One flat row a point: its values, seconds, money and layout, or a note why there are none."""
    interrupted: bool = False
    """Some points are missing."""

    def to_dict(self) -> dict[str, Any]:
        """The fields of `sweep --json` with two axes."""
        axes = [{"over": name, "values": [*vals]} for name, vals in self.axes]
        return {
            "axes": axes,
            "interrupted": self.interrupted,
            "rows": [*self.rows],
        }

    def table(self, column: str) -> list[list[Any]]:
        """One column of the rows as a table: a line for each value of the first axis."""
        (first, ups), (second, across) = self.axes
        cells = {(r[first], r[second]): r.get(column) for r in self.rows}
        return [[cells.get((a, b)) for b in across] for a in ups]


def grid(
    job: Job,
    axes: Sequence[Axis],
    space: Space | None = None,
    fixed: bool = False,
    *,
    file: str | Path | None = None,
    workers: int | None = None,
    engine: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
    compute: Compute | None = None,
) -> Grid:
    """The best layout (with `fixed`: the job's own) at every combination of two fields' values.

    file: keeps every finished point, and what it holds is not computed again;  workers: processes,
    default one for each core where there is enough to do;  engine: an executor to use instead, such
    as `engine_at("dask://host:8786")`;  compute: what makes a row.  Ctrl-C ends it without loss.
    Raises BadInput.
    """
    chosen = tuple((name, tuple(values(texts, MOST))) for name, texts in axes)
    if len(chosen) != 2 or chosen[0][0] == chosen[1][0]:
        raise BadInput("a grid varies two fields: --over once for each")
    points = [
        dict(zip((n for n, _ in chosen), v, strict=True))
        for v in product(*(v for _, v in chosen))
    ]
    if len(points) > MOST:
        raise BadInput(
            f"a grid has at most {MOST:,} points, not {len(points):,}"
        )
    for point in (points[0], points[-1]):
        # a wrong path or value shows before the work starts
        varied_job(job, point)
    work = partial(_rows, job, space, fixed, compute or point_row)
    with contextlib.ExitStack() as stack:
        done, out = _opened(
            file, job, chosen, space=space, fixed=fixed, stack=stack
        )
        left = [i for i in range(len(points)) if i not in done]
        pool, parts = engine, PARTS
        count = workers or min(os.cpu_count() or 1, -(-len(left) // AT_ONCE))
        if engine is None and count > 1:
            pool = stack.enter_context(ProcessPoolExecutor(count))
            parts = PER_WORKER * count
        interrupted = _run(
            pool,
            work,
            points,
            parts=_parts([(i, points[i]) for i in left], parts),
            done=done,
            out=out,
            progress=progress,
        )
    return Grid(chosen, tuple(done[i] for i in sorted(done)), interrupted)


def varied_job(
    job: Job, point: Mapping[str, Value], prices: Prices = EMPTY
) -> Job:
    """The job with all values of a point."""
    for field, value in point.items():
        job = vary(job, field, value, prices)
    return job


def point_row(
    job: Job,
    point: Mapping[str, Value],
    space: Space | None,
    fixed: bool,
    prices: Prices = EMPTY,
) -> Row:
    """What comes of one point; prices: of chips, instead of the catalogue's."""
    try:
        changed = varied_job(job, point, prices)
        if fixed:
            prediction: Prediction | None = predict(changed)
            note = ""
        else:
            prediction, note, _ = best_layout(changed, [*point], space)
    except MeshwrightError as error:
        prediction = None
        note = str(error)
    whole = {
        **point,
        **(compared_numbers(prediction) if prediction else {}),
        **point,
        "note": note,
    }
    # as the file holds it
    plain: Row = json.loads(json.dumps(whole, default=float))
    return plain


COMPARED = (
    "step_time_s",
    "tokens_per_s",
    "tokens_per_s_per_chip",
    "mfu",
    "fits",
    "risk_of_oom",
    "train_time_s",
    "cost_usd",
    "energy_j",
)
"""What a point is compared by, in SI units."""


def compared_numbers(p: Prediction) -> Row:
    """Chips, `COMPARED`, the interval, and the layout."""
    columns: Row = {"chips": p.job.cluster.chips}
    columns |= {name: getattr(p, name) for name in COMPARED}
    if p.interval_s:
        columns["step_time_low_s"], columns["step_time_high_s"] = p.interval_s
    return columns | {name: getattr(p.layout, name) for name in FIELDS}


def _rows(
    job: Job,
    space: Space | None,
    fixed: bool,
    compute: Compute,
    points: Part,
) -> list[tuple[int, Row]]:
    """The rows of some points, in a process of their own; of one that fails, its error."""

    def safe(point: Mapping[str, Value]) -> Row:
        try:
            return compute(job, point, space, fixed)
        except Exception as error:
            return _failed(point, error)

    return [(i, safe(point)) for i, point in points]


def _failed(point: Mapping[str, Value], error: BaseException) -> Row:
    """The row of a point that has no answer."""
    return {**point, "note": f"{type(error).__name__}: {error}"}


def _parts(points: Part, count: int) -> list[Part]:
    """The points in so many parts, of at most AT_ONCE; at least one in each."""
    size = min(-(-len(points) // count), AT_ONCE)
    return [points[at : at + size] for at in range(0, len(points), size or 1)]


class EngineFailed(MeshwrightError):
    """The processes that compute a grid have ended; the points that were done are kept."""

    exit_code = 3


def _run(
    pool: Executor | None,
    work: Work,
    points: Sequence[Mapping[str, Value]],
    parts: Sequence[Part],
    done: dict[int, Row],
    out: TextIO | None,
    progress: Callable[[str, float], None] | None,
) -> bool:
    """Compute what is left into `done` and the file, without a pool in this process, point by
    point; True if Ctrl-C ended it.
    """

    def keep(part: list[tuple[int, Row]]) -> None:
        for i, result in part:
            done[i] = result
            if out:
                out.write(json.dumps({"i": i, "row": result}) + "\n")
        if out:
            out.flush()
        if progress:
            progress(
                f"{len(done):,} of {len(points):,} points",
                len(done) / len(points),
            )

    waiting: dict[Future[list[tuple[int, Row]]], Part] = {}
    each = ([point] for part in parts for point in part)
    try:
        for rows in (
            _results(pool, work, parts, waiting) if pool else map(work, each)
        ):
            keep(rows)
    except (KeyboardInterrupt, BrokenExecutor) as error:
        # before what was computed meanwhile is kept, nothing new begins
        for future in waiting:
            future.cancel()
        for future in waiting:
            if future.done() and not (
                future.cancelled() or future.exception()
            ):
                keep(future.result())
        if isinstance(error, BrokenExecutor):
            raise EngineFailed(
                f"the processes of the sweep ended ({error}); {len(done):,} of {len(points):,}"
                f" points are done{': the same command continues' if out else ''}"
            ) from None
        return True
    return False


def _results(
    pool: Executor,
    work: Work,
    parts: Sequence[Part],
    waiting: dict[Future[list[tuple[int, Row]]], Part],
) -> Iterator[list[tuple[int, Row]]]:
    """Rows as they come; `waiting` holds the parts under way.

    A part that fails as a whole is tried again point by point, so that a point that ends its worker
    takes no other along.
    """
    mine = {pool.submit(work, part): part for part in parts}
    waiting |= mine
    again: list[Part] = []
    for future in as_completed(mine):
        error = future.exception()
        if isinstance(error, BrokenExecutor):
            raise error
        part = waiting.pop(future)
        if error is None:
            yield future.result()
        elif len(part) > 1:
            again += ([point] for point in part)
        else:
            yield [(i, _failed(point, error)) for i, point in part]
    if again:
        yield from _results(pool, work, again, waiting)


# ---------------------------------------------------------------- the file


def _opened(
    file: str | Path | None,
    job: Job,
    axes: Sequence[Any],
    space: Space | None,
    fixed: bool,
    stack: contextlib.ExitStack,
) -> tuple[dict[int, Row], TextIO | None]:
    """(the points that a file holds, the file to add to)."""
    if file is None:
        return {}, None
    head = {
        "meshwright": __version__,
        "version": VERSION,
        "of": _mark(job, axes, space, fixed),
    }
    path = Path(file)
    try:
        text = path.read_bytes() if path.exists() else b""
        # a line that was cut off is computed again
        whole = text[: text.rfind(b"\n") + 1]
        done = _rows_in_file(whole, head, path) if whole else {}
        lines = path.open("a", encoding="utf-8", newline="\n")
        out = stack.enter_context(lines)
        out.truncate(len(whole))
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    if not whole:
        out.write(json.dumps(head) + "\n")
    return done, out


def _rows_in_file(text: bytes, head: Row, path: Path) -> dict[int, Row]:
    """index -> row of a file's lines; BadInput for a file of another grid."""
    first, *lines = text.decode("utf-8", "replace").splitlines()
    try:
        said = json.loads(first)
        if not isinstance(said, dict) or "of" not in said:
            raise ValueError
        entries = [json.loads(line) for line in lines]
        rows = {int(line["i"]): dict(line["row"]) for line in entries}
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{path} holds no points of a grid: name a new file"
        ) from None
    if said != head:
        raise BadInput(
            f"{path} holds the points of another job, grid or version: name a new file"
        )
    return rows


def _mark(
    job: Job, axes: Sequence[Any], space: Space | None, fixed: bool
) -> str:
    """What makes two grids the same one."""
    text = json.dumps([dump_job(job), axes, str(space), fixed], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------- engines


def engine_at(address: str) -> Executor:
    """An engine that runs elsewhere: dask://HOST:PORT (a scheduler) or ray://HOST:PORT.

    Raises BadInput where its package is missing or nothing answers.
    """
    kind, _, place = address.partition("://")
    if kind not in ("dask", "ray") or not place:
        raise BadInput(
            f"--engine {address[:60]!r} must look like dask://HOST:8786 or ray://HOST:10001"
        )
    try:
        if kind == "dask":
            from distributed import Client  # type: ignore[import-not-found, unused-ignore]

            client: Executor = Client(
                f"tcp://{place}", timeout="10s"
            ).get_executor()
            return client
        import ray  # type: ignore[import-not-found, unused-ignore]

        ray.init(address)
        return _Ray(ray)
    except ImportError:
        raise BadInput(
            f"--engine {kind} needs its package: pip install 'meshwright[{kind}]'"
        ) from None
    except (OSError, TimeoutError, RuntimeError) as error:
        raise BadInput(
            f"nothing answers at {address[:60]}: {str(error)[:80]}"
        ) from None


class _Ray(Executor):
    """Ray's tasks as futures."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **named: Any
    ) -> Future[Any]:
        """A task of the cluster."""
        future: Future[Any] = (
            self.ray.remote(lambda: fn(*args, **named)).remote().future()
        )
        return future
