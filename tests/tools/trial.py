"""Tests collected once, then run in forked processes in which one function is another: a mutant
costs no import and no collection, only the tests that reach its line, the short ones first.

What no function holds (constants, defaults, tables) is not seen that way; `fresh` imports and
collects anew with one module in another version.
"""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import resource
import select
import signal
import sys
import time
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, groupby
from math import inf
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import hypothesis  # noqa: F401  loaded once, before the processes are forked
import numpy  # noqa: F401
import pytest

MEMORY_BYTES = 8 * 2**30
PATIENCE = 30.0
"""Wall-clock seconds for each CPU second: other work may share the machine."""
SLACK, LEAST_S = 4.0, 2.0
"""A test may use this many times its seconds without a mutant, and so many more."""
QUIET = (
    *("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *(
        "--hypothesis-seed=0",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ),
)


class Found(NamedTuple):
    """What became of it."""

    outcome: str
    """killed, timeout or survived."""
    test: str
    """The one that failed."""
    cpu_s: float
    output: str = ""
    tried: int = 0
    """Tests that ran."""


class Ran(NamedTuple):
    """What a test does without any mutant."""

    seconds: float
    lines: dict[str, list[int]]
    """File -> the lines that run."""


class Tests:
    """The tests of a pytest session, collected."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = list(items)
        self.functions, self.caches = _functions(), _caches()

    def forget(self) -> None:
        """Empty the caches of functions."""
        for cache in self.caches:
            cache.cache_clear()

    def reach(self, folder: Path, known: Iterable[str]) -> dict[str, Ran]:
        """Of the tests but for the known ones, what each takes, and which lines below a folder it
        runs. Those that fail without any mutant are named and left out, with what follows them in
        their file.
        """
        seen = {*known}
        found: dict[str, Ran] = {}
        for file, some in groupby(self.items, lambda item: item.location[0]):
            items = [item for item in some if item.nodeid not in seen]
            if not items:
                continue
            said, cpu_s = _apart(partial(self._reach, folder, items), inf)
            if not said or said["failed"]:
                print(f"fails without any mutant: {said and said['failed']}")
            found |= {
                n: Ran(*ran)
                for n, ran in (said["ran"] if said else {}).items()
            }
            print(f"{file}: {len(items)} tests, {cpu_s:.0f} CPU s", flush=True)
        left = {item.nodeid for item in self.items} - {*found} - seen
        self.items = [item for item in self.items if item.nodeid not in left]
        return found

    def _reach(self, folder: Path, items: Sequence[Any]) -> Any:
        import coverage

        cover = coverage.Coverage(data_file=None, source=[str(folder)])
        ran: dict[str, Ran] = {}
        cover.start()
        for item in items:
            self.forget()
            cover.switch_context(item.nodeid)
            begin = time.process_time()
            if _failure([item])[0]:
                break
            ran[item.nodeid] = Ran(time.process_time() - begin, {})
        cover.stop()
        data = cover.get_data()
        for file in data.measured_files():
            for line, names in data.contexts_by_lineno(file).items():
                for name in ran.keys() & {*names}:
                    ran[name].lines.setdefault(file, []).append(line)
        return {"failed": FIRST.test, "ran": ran}

    def run(
        self,
        path: Path,
        code: str,
        known: Mapping[str, float],
        wanted: set[str] | None,
        most_s: float,
    ) -> Found | None:
        """The wanted tests (None: all), the short ones first and as many as take `most_s`
        together, with the functions of `code` in place of those of the module at `path`. None
        where not only functions differ.
        """
        try:
            changed = _changed(path, code)
        except SyntaxError as error:
            return Found("killed", "(not a program)", 0.0, str(error))
        if changed is None:
            return None
        items = [
            item
            for item in self.items
            if wanted is None or item.nodeid in wanted
        ]
        items = _short(items, known, most_s)

        def work() -> Any:
            if str(path) not in self.functions:  # not imported by now
                importlib.import_module(module(path))
                self.functions |= _functions()
            for function in self.functions.get(str(path), ()):
                new = changed.get(_name(function.__code__))
                if new is not None:
                    function.__code__ = new
            self.forget()
            test, why, tried = _failure(items, known)
            return {"test": test, "why": why, "tried": tried}

        said, cpu_s = _apart(work, SLACK * most_s + LEAST_S)
        if said is None:
            return Found("timeout", "", cpu_s)
        outcome = "killed" if said["test"] else "survived"
        return Found(outcome, said["test"], cpu_s, said["why"], said["tried"])


def collected(
    root: Path, tests: Sequence[str], then: Callable[[Tests], None]
) -> None:
    """Collect these tests and hand them over."""

    class Loop:
        @pytest.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
        def pytest_runtestloop(self, session: Any) -> bool:
            then(Tests(session.items))
            return True

    sys.path.insert(0, str(root / "src"))
    ended = pytest.main([*QUIET, *tests], plugins=[Loop(), FIRST])
    if int(ended) not in (0, 5):
        sys.exit(f"pytest ended with {ended!r}: {FIRST.why}")


def fresh(
    root: Path,
    path: Path,
    code: str,
    tests: Sequence[str],
    known: Mapping[str, float],
    most_s: float,
) -> Found:
    """The same where more than functions differ: imported and collected anew."""

    class Loop:
        @pytest.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
        def pytest_runtestloop(self, session: Any) -> bool:
            items = _short(session.items, known, most_s)
            FIRST.tried = _failure(items, known)[2]
            return True

    def work() -> Any:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(root)):
                del sys.modules[name]
        sys.path.insert(0, str(root / "src"))
        sys.meta_path.insert(0, _Instead(root, path, code))  # type: ignore[arg-type]
        ended = int(pytest.main([*QUIET, *tests], plugins=[Loop(), FIRST]))
        if ended not in (0, 5) and not FIRST.test:
            FIRST.test = "(not importable)"
        return {"test": FIRST.test, "why": FIRST.why, "tried": FIRST.tried}

    said, cpu_s = _apart(work, SLACK * most_s + LEAST_S)
    if said is None:
        return Found("timeout", "", cpu_s)
    outcome = "killed" if said["test"] else "survived"
    return Found(outcome, said["test"], cpu_s, said["why"], said["tried"])


class _First:
    """Remembers the first failure."""

    test = why = ""
    tried = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.test:
            self.test, self.why = report.nodeid, report.longreprtext[-2000:]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.test:
            self.test, self.why = (
                f"{report.nodeid} (not importable)",
                report.longreprtext[-2000:],
            )


FIRST = _First()


def _failure(
    items: Sequence[Any], known: Mapping[str, float] | None = None
) -> tuple[str, str, int]:
    """Run tests until one fails: its name, why, and how many ran."""
    for i, item in enumerate(items):
        if known is not None and item.nodeid in known:
            # SIGPROF ends a process that uses more CPU seconds than this
            most = LEAST_S + SLACK * known[item.nodeid]
            signal.setitimer(signal.ITIMER_PROF, most)
        after = items[i + 1] if i + 1 < len(items) else None
        item.ihook.pytest_runtest_protocol(item=item, nextitem=after)
        if FIRST.test:
            return FIRST.test, FIRST.why, i + 1
    return "", "", len(items)


def _short(
    items: Sequence[Any], known: Mapping[str, float], most_s: float
) -> list[Any]:
    """The shortest, as many as take so many seconds together."""

    def takes(item: Any) -> float:
        return known.get(item.nodeid, 0.0)

    found = sorted(items, key=takes)
    ends = list(accumulate(map(takes, found)))
    return found[: max(bisect_right(ends, most_s), 1)]


def _apart(work: Callable[[], Any], limit_s: float) -> tuple[Any, float]:
    """What `work` says, done in a process of its own, and the CPU seconds it took; None if it did
    not end.
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
    """Do it and say what was found; never returns."""
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
        said = work()
    except BaseException as error:
        said = {"test": "(broke)", "failed": repr(error), "why": repr(error)}
        said |= {"tried": 0, "ran": {}}
    with os.fdopen(write, "w") as out:
        json.dump(said, out)
    os._exit(0)


Name = tuple[str, int, int]


def _name(code: CodeType) -> Name:
    """Of a function within its file: where it stands. Two lambdas of a line differ by column."""
    column = max((at[3] or 0 for at in code.co_positions()), default=0)
    return code.co_qualname, code.co_firstlineno, column


def module(path: Path) -> str:
    """The name of a module below a folder `src`."""
    parts = path.with_suffix("").parts
    inside = parts[len(parts) - parts[::-1].index("src") :]
    return ".".join(part for part in inside if part != "__init__")


def _functions() -> dict[str, list[FunctionType]]:
    """The functions that exist, by file."""
    found = defaultdict[str, list[FunctionType]](list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found[each.__code__.co_filename].append(each)
    return found


def _caches() -> list[Any]:
    """Of what is computed; what was read from files stays."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, functools._lru_cache_wrapper)
        and str(each.__module__).startswith("meshwright.")
        and each.__module__.split(".")[1] not in ("catalog", "formats")
    ]


def _inside(code: CodeType) -> Iterator[CodeType]:
    """The code of functions that are written inside, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


def _own(code: CodeType) -> object:
    """What a code does, but for the functions inside."""
    plain = tuple(
        (type(x), repr(x))
        for x in code.co_consts
        if not isinstance(x, CodeType)
    )
    return (
        code.co_code,
        plain,
        code.co_names,
        code.co_varnames,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
    )


def _changed(path: Path, code: str) -> dict[Name, CodeType] | None:
    """Where functions stand -> their new code; None where what differs is no function."""
    old = compile(
        path.read_text("utf-8"), str(path), "exec", dont_inherit=True
    )
    new = compile(code, str(path), "exec", dont_inherit=True)
    before, after = list(_inside(old)), list(_inside(new))
    if len(before) != len(after) or _own(old) != _own(new):
        return None
    found = {}
    for a, b in zip(before, after, strict=True):
        deep = zip((a, *_inside(a)), (b, *_inside(b)), strict=False)
        if all(_own(x) == _own(y) for x, y in deep):
            continue
        if a.co_flags & inspect.CO_NEWLOCALS:
            found[_name(a)] = b
        elif _own(a) != _own(b):  # the body of a class
            return None
    names = list(map(_name, before))
    if not found or any(names.count(name) > 1 for name in found):
        # nothing that runs, or two that cannot be told apart
        return None
    return found


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
