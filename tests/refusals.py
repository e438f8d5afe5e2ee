"""What is refused, and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from meshwright import BadInput


@contextmanager
def refusal(says: str = ".") -> Iterator[pytest.ExceptionInfo[BadInput]]:
    """What is inside is refused by a sentence with these words, a regular expression."""
    with pytest.raises(BadInput, match=says) as error:
        yield error
