"""The verb `roofline` from outside."""

from __future__ import annotations

import json

import pytest

from meshwright.cli.main import main

LINE = ["roofline", "llama3-8b", "--on", "64xtpu-v5p", "--batch", "4M"]


def test_tables(capsys):
    assert main([*LINE, "--all"]) == 0
    out = capsys.readouterr().out
    for word in ("FSDP", "best sum", "best max", "X_opt", "ring"):
        assert word in out
    assert "rounded to 488 sequences" in out


def test_json(capsys):
    words = "--json --layer mlp --shorthand --shape 2x4x8"
    assert main([*LINE, *words.split()]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (
        data["shape"] == [2, 4, 8]
        and data["kinds"] == ["line"] * 3
        and data["layer"] == "mlp"
    )
    assert (
        data["batch_tokens"] == 488 * 8192
        and data["schemes"][1]["name"] == "FSDP"
    )
    fsdp = data["schemes"][1]["least_batch_sum_tokens"]
    assert fsdp == pytest.approx(64 * 459e12 / (3 * 90e9), rel=1e-9)


@pytest.mark.parametrize("kind", ["json", "csv", "png", "svg"])
def test_files(tmp_path, kind, capsys):
    assert main([*LINE, "-o", str(tmp_path / f"r.{kind}")]) == 0
    assert (tmp_path / f"r.{kind}").stat().st_size > 300


@pytest.mark.parametrize(
    "extra",
    [
        ["--shape", "5"],
        ["--shape", "axb"],
        ["--layer", "x"],
        ["--context", "9"],
    ],
)
def test_mistakes_are_one_sentence(extra, capsys):
    assert main([*LINE, *extra]) == 2
    found = capsys.readouterr()
    assert not found.out and found.err.count("\n") == 1


def test_a_shape_is_for_a_torus(capsys: pytest.CaptureFixture[str]) -> None:
    words = "roofline llama3-70b --on 512xh100-sxm --batch 4Mi --shape 8x8"
    assert main(words.split()) == 2
    assert "a shape is for slices of a torus" in capsys.readouterr().err
