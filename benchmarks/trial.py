"""The tests with one module in another version, in a process forked from one in which the libraries
are loaded.
"""

from __future__ import annotations

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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis  # noqa: F401  loaded once, before the processes are forked
import numpy  # noqa: F401
import pytest

MEMORY_BYTES = 8 * 2**30
PATIENCE = 20.0
"""Wall-clock seconds for each CPU second: other work may share the machine."""
SLACK, LEAST_S = 4.0, 10.0
"""A test may use this many times its seconds without a mutant, and so many more."""


class Found(NamedTuple):
    """What became of it."""

    outcome: str
    """killed, timeout or survived."""
    test: str
    cpu_s: float
    output: str = ""
    seconds: Mapping[str, float] = MappingProxyType({})
    """Of each test that ran."""


def run(
    root: Path,
    path: Path,
    code: str,
    tests: Sequence[str],
    limit_s: float,
    seconds: Mapping[str, float] = MappingProxyType({}),
) -> Found:
    """These tests, until one fails, with `code` in place of the module at `path`.

    seconds: what each test takes; the short ones run first, for most of what is wrong fails one.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _in_child(root, path, code, tests, limit_s, write, seconds)
    os.close(write)
    text, deadline = b"", time.monotonic() + PATIENCE * limit_s
    while left := max(deadline - time.monotonic(), 0.0):
        ready, _, _ = select.select([read], [], [], left)
        piece = os.read(read, 65536) if ready else b""
        text += piece
        if not piece:
            break
    os.close(read)
    # neither passed nor failed: it ran out of CPU seconds, or of patience
    if not text:
        os.killpg(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if not text:
        return Found("timeout", "", cpu_s)
    said: dict[str, Any] = json.loads(text)
    outcome = "killed" if said["code"] else "survived"
    return Found(outcome, said["test"], cpu_s, said["why"], said["seconds"])


class _First:
    """Puts short tests first; remembers the first failure, and what each test took."""

    test = why = ""

    def __init__(self, known: Mapping[str, float]) -> None:
        self.known, self.seconds = known, defaultdict[str, float](float)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.known.get(item.nodeid, 0.0))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # SIGPROF ends a process that uses more CPU seconds than this
        if nodeid in self.known:
            signal.setitimer(
                signal.ITIMER_PROF, LEAST_S + SLACK * self.known[nodeid]
            )

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed and not self.test:
            self.test, self.why = report.nodeid, report.longreprtext[-2000:]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.test:
            self.test, self.why = (
                f"{report.nodeid} (not importable)",
                report.longreprtext[-2000:],
            )


def _in_child(
    root: Path,
    path: Path,
    code: str,
    tests: Sequence[str],
    limit_s: float,
    write: int,
    seconds: Mapping[str, float],
) -> None:
    """Run the tests and say how it ended; never returns."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    first = _First(seconds)
    try:
        sys.path.insert(0, str(root / "src"))
        sys.meta_path.insert(0, _Instead(root, path, code))  # type: ignore[arg-type]
        warnings.simplefilter("ignore")
        quiet = (
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "--hypothesis-seed=0",
        )
        harmless = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
        ended = int(pytest.main([*quiet, *harmless, *tests], plugins=[first]))
    except BaseException as error:
        ended, first.why = 1, repr(error)
    said = {
        "code": ended,
        "test": first.test,
        "why": first.why,
        "seconds": first.seconds,
    }
    with os.fdopen(write, "w") as out:
        json.dump(said, out)
    os._exit(0)


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
