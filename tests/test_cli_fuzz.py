"""Thousands of malformed command lines and job files: each ends in a result or in one sentence."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.cli import main as cli
from meshwright.cli.command import VERBS
from meshwright.formats.options import flags
from meshwright.formats.toml_writer import dumps_toml

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
"""Of each test; more for a night."""
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ODD = [
    "",
    "-",
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "1e-400",
    "1" * 400,
    "0x10",
    "1,000",
    "..",
    "1..",
    "a=b",
    "=",
    ",",
    "[",
    "\x00",
    "½",
]
ODD += [
    "∞",
    "🦙",
    "'",
    '"',
    "4M",
    "4Mi",
    "512seq",
    "1.5seq",
    "-4M",
    "1 PiB",
    "true",
    "none",
    "null",
    "None",
    "{}",
    "8x",
    "x8",
    "é" * 50,
]
NAMES = [
    "llama3-8b",
    "gpt3-175b",
    "mixtral-8x7b",
    "8xh100-sxm",
    "64xa100-80",
    "7xh100-sxm",
    "20xh100-sxm",
    "1024xdgx-h100",
    "dgx-a100",
    "h100-sxm",
]
NAMES += [
    "chips",
    "networks",
    "models",
    "realistic",
    "lbl-2024",
    "bf16",
    "fp8",
    "fp4",
    "1f1b",
    "gpipe",
    "zb-h2",
    "interleaved",
    "zbv",
    "full",
]
NAMES += [
    "selective",
    "megatron",
    "summa",
    "unfused",
    "sgd",
    "tp=8x1,cp=1x1,dp=1x1,pp=1x1",
    "tp=2x1",
    "step_time",
    "memory",
    "compute/ffn",
]
NUMBERS = [
    str(n) for n in (1, 2, 3, 4, 7, 8, 16, 64, 100, 4096, 10**6, 10**9, 10**10)
] + [
    "1,2",
    "1..4",
    "2..2",
    "9..1",
]
OUT = ["x.json", "x.toml", "x.csv", "x.svg", "x", ".json", "no/x.json"]
WORDS = st.one_of(
    st.sampled_from([*ODD, *NAMES, *NUMBERS]),
    st.text(max_size=12).filter(lambda t: "/" not in t),
)


SWEEPS = st.builds(
    "{}={}".format,
    WORDS
    | st.sampled_from(
        ["model.layers", "network.ib.bandwidth", "chip.hbm_bytes"]
    ),
    WORDS,
)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Mostly a verb, its model and flags with values, so that many get past the parser."""
    verb = draw(
        st.sampled_from(
            ["predict", "timeline", "plan", "sweep", "catalog", "catalog"]
        )
    )
    words = [verb] if draw(st.integers(0, 19)) else [draw(WORDS)]
    if verb in ("predict", "timeline", "plan", "sweep"):
        words.append(
            draw(st.sampled_from(NAMES[:3]))
            if draw(st.integers(0, 9))
            else draw(WORDS)
        )
        for name, usual in (
            ("--on", NAMES[3:7]),
            ("--batch", ["64seq", "1Mi", "4M"]),
        ):
            words += [
                name,
                draw(st.sampled_from(usual))
                if draw(st.integers(0, 9))
                else draw(WORDS),
            ]
    if verb == "sweep":
        words += [
            "--over",
            draw(
                st.sampled_from(["chips=4..8", "tp=1,2,3", "batch=64seq"])
                | SWEEPS
            ),
        ]
        words += ["--fixed"] if draw(st.integers(0, 2)) else []
    names = [
        *(flag.spelled for flag in flags()),
        "--explain",
        "--top",
        "--bogus",
        "--",
    ]
    for name in draw(
        st.lists(st.sampled_from(names), max_size=5, unique=True)
    ):
        words += [name, draw(WORDS)] if draw(st.integers(0, 19)) else [name]
    if not draw(st.integers(0, 5)):
        words += ["-o", draw(st.sampled_from(OUT))]
    return words + (["--json"] if draw(st.booleans()) else [])


def ends_well(words: list[str], stdin: str = "") -> int:
    """Run a command; exit code 0 with a result, 1 or 2 with one sentence."""
    out, err = io.StringIO(), io.StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", io.StringIO(stdin))
        # it would never end
        patch.setattr("uvicorn.Server.run", lambda *_, **__: None)
        code = cli.run(words)
    if code == 2:
        assert (
            err.getvalue().startswith("meshwright: ")
            and err.getvalue().count("\n") == 1
        ), err.getvalue()
        assert len(err.getvalue()) < 3000
        if "--json" in words:
            assert json.loads(out.getvalue()).keys() == {"error"}
        else:
            assert out.getvalue() == ""
    else:
        lines = err.getvalue().splitlines()
        started = lines[:1] and lines[0].startswith("the page is at ")
        files = [line for line in lines if line.startswith("wrote ")]
        assert code in (0, 1) and (
            started or (out.getvalue() or files) and lines == files
        )
    return code


@FUZZ
@given(command_lines())
def test_command_lines(elsewhere: None, words: list[str]) -> None:
    ends_well(words)


@FUZZ
@given(
    st.lists(
        st.one_of(WORDS, st.sampled_from(["--json", "--help", *VERBS])).filter(
            lambda w: w != "all"
        ),
        max_size=6,
    )
)
def test_random_words(elsewhere: None, words: list[str]) -> None:
    # without arguments these are long, legitimate work
    if not {"reproduce", "validate", "calibrate", "fit", "site"} & {*words}:
        ends_well(words)


VALUES = st.recursive(
    st.one_of(
        WORDS, st.integers(-(10**20), 10**20), st.floats(), st.booleans()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def job_files(draw: st.DrawFn) -> str:
    """A good job with a few fields replaced by anything, now and then with a bit of its text cut
    out.
    """
    job: dict[str, Any] = {
        "model": {"name": draw(st.sampled_from(NAMES[:3]))},
        "cluster": {"on": draw(st.sampled_from(NAMES[3:7]))},
        "layout": {"tp": 2, "schedule": "1f1b"},
        "job": {"batch": "64seq"},
    }
    fields = [
        *(flag.name for flag in flags()),
        "chip",
        "chips",
        "moe",
        "mla",
        "layers",
        "heads",
        "hidden",
        "ffn",
        "vocab",
        "config",
    ]
    for _ in range(draw(st.integers(0, 4))):
        table = job.get(draw(st.sampled_from([*job])), {})
        if isinstance(table, dict):
            table[
                draw(
                    st.sampled_from(fields)
                    if draw(st.integers(0, 9))
                    else WORDS
                )
            ] = draw(VALUES)
    if not draw(st.integers(0, 9)):
        job[draw(WORDS)] = draw(VALUES)
    text = dumps_toml(job)
    if not draw(st.integers(0, 4)):
        start = draw(st.integers(0, len(text)))
        text = (
            text[:start]
            + draw(st.text(max_size=5))
            + text[start + draw(st.integers(0, 20)) :]
        )
    return text


@FUZZ
@given(job_files(), st.sampled_from(["predict", "timeline"]))
def test_job_files(elsewhere: None, text: str, verb: str) -> None:
    ends_well([verb, "-", "--json"], text)


@FUZZ
@given(st.text(max_size=200))
def test_random_files(elsewhere: None, text: str) -> None:
    assert ends_well(["predict", "-"], text) == 2


def test_the_fuzz_reaches_results(elsewhere: None) -> None:
    line = "predict llama3-8b --on 8xh100-sxm --batch 64seq --zero 3 -o x.svg"
    assert ends_well(line.split()) == 0
    tables = {
        "model": "llama3-8b",
        "cluster": "8xh100-sxm",
        "job": {"batch": "64seq"},
        "layout": {"dp": 8, "zero": 3},
    }
    assert ends_well(["predict", "-"], dumps_toml(tables)) == 0
