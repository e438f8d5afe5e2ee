"""A long word of a script is read in time that grows as its length."""

from __future__ import annotations

from time import process_time

from meshwright.formats.bridge import shell


def seconds(length: int) -> float:
    """CPU seconds of the words of a script of one word."""
    start = process_time()
    shell.live("\\" * length)
    return process_time() - start


def test_a_word_of_escapes_is_not_copied_at_each_of_them() -> None:
    """Eight times the length takes about eight times as long; copied, it took 64 times."""
    assert seconds(160_000) < 30 * max(seconds(20_000), 1e-3)


def test_a_long_word_is_filled_in_at_once() -> None:
    """Eight times the length takes about eight times as long."""

    def filling(length: int) -> float:
        start = process_time()
        assert shell.filled(shell.Shell(), "a#" * length) == ["a#" * length]
        return process_time() - start

    assert filling(400_000) < 30 * max(filling(50_000), 1e-3)


def test_a_comment_begins_no_word() -> None:
    """After a joined line too; inside a word the sign is a letter."""
    assert shell.live("\\\n# a")[0].strip() == "\\"
    assert shell.live("a\\\n#b")[0] == "a\\\n#b"
    assert shell.live("a #b")[0] == "a   "
