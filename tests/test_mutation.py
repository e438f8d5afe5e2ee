"""The mutation sample (`tests/tools/mutation.py`): what it changes, and that a changed module is
seen by tests and by nothing else.
"""

from __future__ import annotations

from pathlib import Path
from types import FunctionType

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


def test_a_wrong_formula_is_killed_and_a_right_one_survives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import trial

    root, tests = TOOLS.parents[1], ["tests/cost/test_overlap.py"]
    path = root / "src" / "meshwright" / "cost" / "overlap.py"
    text = path.read_text("utf-8")
    wrong = text.replace("(1.0 - how.most)", "how.most")
    assert wrong != text

    def outcome(code: str) -> trial.Found:
        return trial.fresh(root, path, code, tests, {}, 60.0)

    assert outcome(text).outcome == "survived"
    found = outcome(wrong)
    assert found.outcome == "killed" and "test_overlap" in found.test
    assert path.read_text("utf-8") == text


def test_a_function_is_replaced_where_it_stands_and_a_constant_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two lambdas in a line the one that differs; what a module computes once needs a fresh
    import."""
    monkeypatch.syspath_prepend(str(TOOLS))
    import trial

    path = tmp_path / "some.py"
    text = "K = 2\nf, g = lambda: 1, lambda: 2\ndef h(x=3):\n    return lambda: x + K\n"
    path.write_text(text, "utf-8")
    names: dict[str, FunctionType] = {}
    exec(compile(text, str(path), "exec"), names)
    for change, name in (("lambda: 2", "g"), ("x + K", "h")):
        wrong = text.replace(
            change, change.replace("2", "5").replace("+", "*")
        )
        found = trial._changed(path, wrong)
        assert found is not None
        held = {n for n in "fgh" if trial._name(names[n].__code__) in found}
        assert held == {name}
    names["g"].__code__ = next(
        iter(trial._changed(path, text.replace(": 2", ": 5")).values())
    )  # type: ignore[union-attr]
    assert names["g"]() == 5 and names["f"]() == 1
    assert trial._changed(path, text.replace("K = 2", "K = 4")) is None
    assert trial._changed(path, text.replace("x=3", "x=4")) is None


def test_a_survivor_is_equivalent_only_where_it_is_argued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import mutation

    row = mutation.Row(
        "cost/host.py", 1, "", 0, "x = 0.5 * host", "x = -0.5 * host", "",
        "survived", "", 0.0,
    )  # fmt: skip
    assert "fourth power" in mutation.equivalent(row)
    assert not mutation.equivalent(row._replace(outcome="killed"))
    assert not mutation.equivalent(row._replace(file="cost/ring.py"))
    assert not mutation.equivalent(row._replace(after="x = 1.5 * host"))
