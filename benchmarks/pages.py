"""Tables of a page of the docs, made by a script: printed, or written between the page's markers."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
IMAGES = Path(__file__).parents[1] / "docs" / "images"
END = "<!-- end -->"


def written(about: str | None, made: Callable[[], str]) -> None:
    """Print what the script that runs makes, or write it into a page between its markers."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "-o",
        dest="page",
        type=Path,
        help="a page to write the tables into, between its markers",
    )
    page, tables = parser.parse_args().page, made()
    if page is None:
        print(tables)
        return
    script = Path(sys.argv[0]).name
    begin = f"<!-- made by: python benchmarks/{script} -->"
    before, rest = page.read_text("utf-8").split(begin)
    page.write_text(
        f"{before}{begin}\n\n{tables}\n\n{END}{rest.split(END, 1)[1]}",
        "utf-8",
    )


def each_alone(of: Callable[[S], T], every: Iterable[S]) -> Iterator[T]:
    """of(one) of each, in a process of its own, which may change what it has read."""
    fork = multiprocessing.get_context("fork")
    for one in every:
        answer, send = fork.Pipe(duplex=False)
        child = fork.Process(target=lambda: send.send(of(one)))  # noqa: B023
        child.start()
        send.close()
        yield answer.recv()
        child.join()
