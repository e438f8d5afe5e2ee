"""Tests in a process of their own, in which one module of the package is another: a mutant.

The process imports and collects anew, so it sees whatever a mutant changes: functions, constants
and tables. No file is changed; tests that start other processes do not see the mutant.
"""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis  # noqa: F401  loaded once, before the processes are forked
import numpy  # noqa: F401
import pytest

MEMORY_BYTES = 8 * 2**30
PATIENCE = 30.0
"""Wall-clock seconds for each CPU second: other work may share the machine."""
SLACK, LEAST_S = 4.0, 10.0
"""A mutant's tests may use this many times their seconds without it, and so many more (to import
and collect)."""
QUIET = (
    *("-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *(
        "--hypothesis-seed=0",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ),
)


class Outcome(NamedTuple):
    """What became of a mutant."""

    outcome: str
    """killed, timeout or survived."""
    test: str
    """The one that failed."""
    cpu_s: float


class Ran(NamedTuple):
    """What a test does without any mutant."""

    seconds: float
    lines: dict[str, list[int]]
    """File -> the lines that run."""


def reach(root: Path, folder: Path, file: str) -> dict[str, Ran]:
    """Of each test of a file up to the first that fails, what it takes and which lines below a
    folder it runs."""
    ran: dict[str, Ran] = {}

    def work() -> dict[str, Ran]:
        import coverage

        cover = coverage.Coverage(data_file=None, source=[str(folder)])

        class Follow:
            @pytest.hookimpl(wrapper=True)  # type: ignore[untyped-decorator]
            def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
                for cached in _caches():
                    cached.cache_clear()
                cover.switch_context(item.nodeid)
                begin = time.process_time()
                answer = yield
                ran[item.nodeid] = Ran(time.process_time() - begin, {})
                return answer

        cover.start()
        ended = _pytest(root, [file], Follow())
        cover.stop()
        ran.pop(ended, None)
        data = cover.get_data()
        for path in data.measured_files():
            for line, names in data.contexts_by_lineno(path).items():
                for name in ran.keys() & {*names}:
                    ran[name].lines.setdefault(path, []).append(line)
        return ran

    said, _ = _apart(work, inf)
    return {name: Ran(*one) for name, one in (said or {}).items()}


def trial(
    root: Path, path: Path, code: str, tests: Sequence[str], most_s: float
) -> Outcome:
    """The tests of these names, which take so many CPU seconds, in that order until one fails,
    with `code` in place of the module at `path`."""

    def work() -> str:
        sys.meta_path.insert(0, _Instead(root, path, code))  # type: ignore[arg-type]
        return _pytest(root, tests)

    test, cpu_s = _apart(work, SLACK * most_s + LEAST_S)
    outcome = {None: "timeout", "": "survived"}.get(test, "killed")
    return Outcome(outcome, test or "", cpu_s)


def _pytest(root: Path, tests: Sequence[str], *plugins: Any) -> str:
    """The name of the first test that fails, or of what does not import; "" if none does."""
    failed: list[str] = []

    class First:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

        pytest_collectreport = pytest_runtest_logreport

    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(root)):
            del sys.modules[name]
    sys.path.insert(0, str(root / "src"))
    ended = int(pytest.main([*QUIET, *tests], plugins=[First(), *plugins]))
    # 5: nothing was collected
    return (
        failed[0] if failed else "" if ended in (0, 5) else "(not importable)"
    )


def _apart(work: Callable[[], Any], limit_s: float) -> tuple[Any, float]:
    """What `work` returns, done in a process of its own, and the CPU seconds it took; None if it
    did not end.
    """
    read, write = os.pipe()
    gc.freeze()
    child = os.fork()
    if not child:
        os.close(read)
        _in_child(work, write, limit_s)
    os.close(write)
    text, deadline = bytearray(), time.monotonic() + PATIENCE * limit_s
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([read], [], [], min(left, 1e6))
        piece = os.read(read, 65536) if ready else b""
        text += piece
        if not piece:
            break
    os.close(read)
    # it ran out of CPU seconds, or of patience
    if not text:
        os.killpg(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    said = json.loads(text) if text else None
    return said, used.ru_utime + used.ru_stime


def _in_child(work: Callable[[], Any], write: int, limit_s: float) -> None:
    """Do it and say what came of it; never returns."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if limit_s < inf:
        seconds = int(limit_s)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    warnings.simplefilter("ignore")
    try:
        with os.fdopen(write, "w") as out:
            json.dump(work(), out)
    finally:
        os._exit(0)


def _caches() -> list[Any]:
    """Of what is computed; what was read from files stays."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, functools._lru_cache_wrapper)
        and str(each.__module__).startswith("meshwright.")
        and each.__module__.split(".")[1] not in ("catalog", "formats")
    ]


class _Instead:
    """Finds one module of the package in another version."""

    def __init__(self, root: Path, path: Path, code: str) -> None:
        parts = path.relative_to(root / "src").with_suffix("").parts
        self.package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.package else parts)
        self.path, self.code = path, code

    def find_spec(
        self, name: str, where: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        loader = _Loader(name, str(self.path))
        loader.code = self.code
        inside = [str(self.path.parent)] if self.package else None
        return importlib.util.spec_from_file_location(
            name, self.path, loader=loader, submodule_search_locations=inside
        )


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a text instead of the file."""

    code = ""

    def get_code(self, fullname: str) -> Any:
        return compile(self.code, self.path, "exec", dont_inherit=True)
