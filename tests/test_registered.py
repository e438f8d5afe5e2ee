"""What is added to a list of words stands everywhere else that it must: in laws, in the profiles of
frameworks, in help and in the documentation.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshwright import Job, Layout, catalog, predict
from meshwright.cost.attention import SCORE_PASSES
from meshwright.describe.assumptions import SETS, ChipTime, NetworkTime, Stack
from meshwright.describe.fields import fields_of
from meshwright.describe.framework import Framework, frameworks
from meshwright.describe.kernels import all_kernels
from meshwright.describe.software import ATTENTION, UNFUSED, Software
from meshwright.exchange import EXCHANGES
from meshwright.formats.options import flags
from meshwright.schedule import get
from meshwright.schedule.rules import Rule
from meshwright.schedule.schedule import Schedule
from refusals import refusal

DOCS = Path(__file__).parents[1] / "docs"
NEW = "entirely-new"

DENSE = Layout(tp=4, pp=2, dp=8, zero=1)
EXPERTS = Layout(ep=64, pp=4, dp=64, zero=1)
JOBS = [
    (Job("llama3-8b", "64xh100-sxm", 128), DENSE),
    (
        Job("llama3-8b", "64xh100-sxm", 128),
        DENSE.with_(sequence_parallel=False),
    ),
    (Job("llama3-8b", "64xh100-sxm", 128, precision="fp8"), DENSE),
    (Job("llama3-8b", "64xb200", 128, precision="fp8"), DENSE),
    (Job("mixtral-8x7b", "64xh100-sxm", 512), Layout(tp=2, ep=8, dp=32)),
    (Job("deepseek-v3", "256xgb200", 512), EXPERTS),
    (
        Job("deepseek-v2-lite", "64xh100-sxm", 128),
        Layout(tp=2, ep=8, dp=32, zero=1),
    ),
    (Job("llama3-8b", "64xh100-sxm", 128), Layout(dp=64, zero=3)),
    (
        Job(
            replace(catalog.model("llama3-8b"), norms_per_layer=1),
            "64xh100-sxm",
            128,
        ),
        DENSE.with_(recompute="full"),
    ),
    (
        Job("qwen3-30b-a3b", "8xh100-sxm", 64, framework="automodel"),
        Layout(dp=8, ep=8, zero=1),
    ),
    (
        Job("llama3-8b", "64xh100-sxm", 128, framework="megatron-bridge"),
        DENSE,
    ),
    (Job("gpt3-6.7b", "64xh100-sxm", 128), Layout(cp=2, dp=32, zero=3)),
    (Job("gpt-oss-20b", "8xh100-sxm", 64), Layout(dp=8, ep=8, zero=1)),
    (
        Job("llama3-8b", "64xh100-sxm", 128, framework="fsdp"),
        Layout(dp=64, zero=2),
    ),
    (
        Job("mixtral-8x7b", "64xh100-sxm", 512, precision="fp8"),
        Layout(pp=4, schedule="zb-h2", dp=16, ep=8),
    ),
    (Job("llama3-8b", "24xa100-80", 24), Layout(tp=2, dp=3, pp=4)),
    # the host launches graphs, which hold experts whose tokens are padded
    (
        Job(
            "qwen3-30b-a3b",
            "8xh100-sxm",
            64,
            framework=replace(
                frameworks()["megatron-core"], cuda_graphs="parts"
            ),
        ),
        Layout(dp=8, ep=8, zero=1),
    ),
    # ranks that end a step apart
    (
        Job("gpt3-6.7b", "64xh100-sxm", 512),
        Layout(pp=4, schedule="zb-h2", dp=16, zero=1),
    ),
]
"""In one of them every word of the software means something else than the others."""
EQUAL = {
    ("blockwise", "mxfp8"): "as many bytes on Hopper and on Blackwell",
}
"""Words with one law, and why."""


APART = (
    *(
        "attention",
        "attention_otherwise",
        "flash",
        "unfused",
    ),  # kernels: rates
    *("selective", "full_compiled"),  # words of `layout.recompute`
)
OWN = [
    name
    for name, field in fields_of(Framework).items()
    if name not in (*fields_of(Software), *APART)
    and (
        field.kind.type is bool
        or (field.kind.words and field.kind.type is str)
    )
]
"""What only a framework's profile says in words."""


def without_law(name: str) -> list[tuple[str, str]]:
    """Pairs of words of a setting that no job's time or memory tells apart."""
    kind = fields_of(Framework)[name].kind
    words: tuple[Any, ...] = (True, False) if kind.type is bool else kind.words
    answers = {word: [] for word in words}
    for job, layout in JOBS:
        for word in words:
            said = {name: word}
            other = (
                replace(job, framework=replace(job.profile, **said))
                if name in OWN
                else replace(job, software=Software(**said))
            )
            found = predict(other, layout)
            seconds = found.step_time_s
            answers[word].append((seconds, found.memory_bytes["needed"]))
    return [
        (a, b)
        for a, b in combinations(words, 2)
        if answers[a] == answers[b] and (a, b) not in EQUAL
    ]


@pytest.mark.parametrize("name", (*fields_of(Software), *OWN))
def test_every_word_of_the_software_has_a_law(name: str) -> None:
    """Predictions take a word that no law knows for another one, without a note."""
    assert without_law(name) == []


def test_a_word_without_a_law_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (Software, Framework, Stack):
        field = fields_of(owner)["norm"]
        kind = replace(field.kind, words=(*field.kind.words, NEW))
        monkeypatch.setitem(
            fields_of(owner), "norm", replace(field, kind=kind)
        )
    assert without_law("norm") == [("fused", NEW)]


def test_every_attention_kernel_has_rates() -> None:
    """Fused ones on some chip of the catalogue, others by the bytes of their scores."""
    fused = {word for law in all_kernels().values() for word in law.attention}
    assert fused == {*ATTENTION} - {*UNFUSED}
    assert {*SCORE_PASSES} == {*UNFUSED}


def test_rates_of_another_attention_kernel_are_said() -> None:
    """FlashAttention-3 is for Hopper: on an A100 cuDNN's rates are taken, of the same generation."""
    job = Job("llama3-8b", "64xa100-80", 128)
    other = predict(replace(job, attention_kernel="fa3"), DENSE)
    said = "kernel fa3 is unmeasured on a100-80: the rates of cudnn are taken"
    assert any(said in note for note in other.notes)
    named = predict(replace(job, attention_kernel="cudnn"), DENSE)
    assert other.step_time_s == named.step_time_s
    assert not any("attention kernel" in note for note in named.notes)


@pytest.mark.parametrize("name", frameworks())
def test_a_framework_runs_the_exchanges_that_it_names(name: str) -> None:
    profile = frameworks()[name]
    job = Job("llama3-8b", "64xh100-sxm", 64, framework=name)
    cut = Layout(cp=4, dp=16, zero=3)
    over_cp = not profile.choices or any(
        4 in one.get("cp", (4,)) for one in profile.choices
    )
    assert over_cp == bool(profile.exchanges)
    for word in EXCHANGES:
        if word in profile.exchanges:
            continue
        allowed = ", ".join(profile.exchanges)
        why = f"cp_exchange {allowed}, not" if allowed else "cp 1, not 4"
        with refusal(f"{name} allows {why}|not trained"):
            predict(job, cut.with_(cp_exchange=word))


def test_help_names_every_word() -> None:
    texts = {flag.name: flag.help for flag in flags()}
    for owner in (Job, Software, Layout):
        for name, field in fields_of(owner).items():
            unsaid = [w for w in field.kind.words if w not in texts[name]]
            assert not unsaid, (name, unsaid)


def test_every_set_stands_in_the_documentation() -> None:
    page = (DOCS / "assumptions.md").read_text("utf-8")
    unsaid = [name for name in SETS if f"| `{name}`" not in page]
    # the second name of a row
    assert [n for n in unsaid if f", `{n}` |" not in page] == []


def test_a_table_written_by_hand_has_every_framework() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    firsts = " ".join(line.split("|")[1] for line in rows)
    assert [name for name in frameworks() if f"`{name}`" not in firsts] == []


def test_every_option_of_chip_and_network_names_its_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "site"))
    import formulas
    import sets

    options = (
        ("chip", ChipTime, "model"),
        ("network", NetworkTime, "collective"),
    )
    words = {
        (joint, word)
        for joint, owner, name in options
        for word in fields_of(owner)[name].kind.words
    }
    assert {*sets.LAWS} == words
    for paths in (*sets.LAWS.values(), *sets.ALWAYS.values()):
        assert all(formulas.function(path) for path in paths)
    for module in ("formulas", "sets"):
        sys.modules.pop(module)


def scalar(first: Schedule) -> Schedule:
    """1F1B whose closed forms are written for numbers."""

    def flight(p: int, m: int, v: int, rank: int) -> int:
        return min(m, p - rank)

    def closed(p: int, m: int, v: int, f: float, i: float, w: float) -> float:
        return 0.0 if p == 1 else sum(f + i + w for _ in range(p - 1))

    def heads(p: int, m: int, v: int) -> tuple[int, int]:
        return (1, 0) if m else (0, 0)

    rule = Rule(lambda p, m, v: m >= p and v == 1, lambda p, m, v: "")
    return replace(
        first, closed=closed, flight=flight, heads=heads, needs=(rule,)
    )


def test_a_schedule_may_be_written_for_numbers() -> None:
    """What a search asks of columns is answered row by row where a law has `min`, `if`, `range`."""
    of_numbers = scalar(get("1f1b"))
    p = np.array([1.0, 2.0, 4.0])
    m = np.array([[8.0], [2.0]])
    one = of_numbers.bubble(p, m, 1.0, 1.0, 2.0, 0.5)
    assert np.broadcast_to(one, (2, 3)).tolist() == [[0.0, 3.5, 10.5]] * 2
    flight = of_numbers.in_flight(p, m, 1.0, 0.0)
    assert flight.tolist() == [[1, 2, 4], [1, 2, 2]]
    assert of_numbers.legal(p, m, 1).tolist() == [
        [True] * 3,
        [True, True, False],
    ]
    kept, late = of_numbers.logits(p, m, 1.0)
    assert np.all(kept == 1) and np.all(late == 0)
    with pytest.raises(TypeError):
        of_numbers.bubble(2, 8, 1, "a second", 1.0, 1.0)
