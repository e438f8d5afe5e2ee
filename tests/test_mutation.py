"""The mutation sample (`tests/tools/mutation.py`): what it changes, and that a changed module is
seen by tests and by nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")  # the dependency group `mutation`
TOOLS = Path(__file__).with_name("tools")
TEXT = """
def f(a: int | None, b: int) -> int:
    return a + minimum(b, 2) * 4096
"""


def test_one_change_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum, product, minimum and small number; not the annotation, not the large number."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import mutants

    found = mutants.every(TEXT)
    changes = sorted(
        mutants.difference(TEXT, mutants.mutated(TEXT, m))[1].replace(" ", "")
        for m in found
    )
    assert len(changes) == 5
    assert (
        "returna-minimum(b,2)*4096" in changes
        and "returna+minimum(b,2)/4096" in changes
    )
    assert (
        "returna+minimum(b,3)*4096" in changes
        and "returna+minimum(b,1)*4096" in changes
    )
    assert any("maximum(b,2)" in change for change in changes)


@pytest.mark.parametrize(
    ("file", "old", "new", "tests"),
    [
        ("cost/overlap.py", "minimum(shown, hidden.seconds)", "2.0 * shown", "cost/test_overlap.py"),
        # of a module itself, not of a function
        ("cost/collectives/nccl.py", "NVLS_GROWS = 8", "NVLS_GROWS = 2", "cost/test_nccl.py"),
    ],
)  # fmt: skip
def test_a_wrong_formula_is_killed_and_a_right_one_survives(
    file: str,
    old: str,
    new: str,
    tests: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a test that runs its line."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import mutation
    import trial

    root, path = TOOLS.parents[1], mutation.SOURCE / file
    text = path.read_text("utf-8")
    assert old in text
    ran = trial.reach(root, mutation.SOURCE, f"tests/{tests}")
    line = text[: text.index(old)].count("\n") + 1
    names, seconds = mutation.covering(ran, path, line, 60.0)
    assert trial.trial(root, path, text, names, seconds).outcome == "survived"
    wrong = text.replace(old, new)
    outcome = trial.trial(root, path, wrong, names, seconds)
    assert outcome.outcome == "killed" and outcome.test in names
    assert path.read_text("utf-8") == text
