"""Published numbers that come with the package, in its folder `data`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

DATA = resources.files(__package__) / "data"


def shipped_text(path: str) -> str:
    """The text of a file, such as runs/published.json."""
    return DATA.joinpath(path).read_text("utf-8")


@contextmanager
def at_path(path: str) -> Iterator[Path]:
    """A file or folder on disk, for as long as it is read."""
    with resources.as_file(DATA.joinpath(path)) as place:
        yield place
