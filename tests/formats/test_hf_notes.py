"""What a config.json leaves open is said: the length of training, sizes, and the model's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.formats import flags
from meshwright.formats.hf import load_hf
from shell import Shell

FILE: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 17408,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}


def put(folder: Path, data: dict[str, Any]) -> Path:
    """The config.json of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(data), "utf-8")
    return folder / "config.json"


def test_a_length_that_is_taken_is_said_unless_it_is_given(
    tmp_path: Path,
) -> None:
    given = {"on": "64xh100-sxm", "batch": "64seq"}
    path = str(put(tmp_path / "Qwen3-14B", FILE))
    (note,) = flags.read_flags(path, given).model.notes
    assert "40,960" in note and "sequences of 8,192" in note
    assert "--seq" in note
    own = flags.read_flags(path, {**given, "seq": "4096"})
    assert own.model.notes == () and own.T == 4096
    short = put(tmp_path / "short", {**FILE, "max_position_embeddings": 4096})
    assert load_hf(short).notes == ()


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        ("hidden_size", "hidden_size (4,096)"),
        ("num_hidden_layers", "num_hidden_layers (32)"),
        ("vocab_size", "vocab_size (151,936)"),
        ("intermediate_size", "intermediate_size (22,016)"),
    ],
)
def test_a_size_that_is_left_to_the_class_is_said(
    key: str, taken: str, tmp_path: Path
) -> None:
    """The defaults of Qwen3Config (transformers 4.51) are those of an 8 B model."""
    less = {k: v for k, v in FILE.items() if k != key}
    found = [n for n in load_hf(put(tmp_path / "m", less)).notes if key in n]
    assert len(found) == 1 and taken in found[0]
    whole = load_hf(put(tmp_path / "m", FILE)).notes
    assert not any("does not say" in n for n in whole)


def test_a_folder_that_says_nothing_gives_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_hf(put(tmp_path / "in", FILE)).name == "qwen3"
    told = {**FILE, "_name_or_path": "Qwen/Qwen3-14B"}
    assert load_hf(put(tmp_path / "models", told)).name == "Qwen3-14B"
    own = put(tmp_path / "my-qwen", told)
    assert load_hf(own).name == "my-qwen"
    monkeypatch.chdir(own.parent)
    assert load_hf("config.json").name == "my-qwen"
    assert load_hf(".").name == "my-qwen"
    (tmp_path / "my-qwen" / "below").mkdir()
    monkeypatch.chdir(tmp_path / "my-qwen" / "below")
    assert load_hf("../config.json").name == "my-qwen"
    assert load_hf("..").name == "my-qwen"


def test_the_first_line_says_how_large_the_model_is(
    tmp_path: Path, shell: Shell
) -> None:
    """40 x (2 x 5120^2 + 2 x 5120 x 1024 + 3 x 5120 x 17408) + 2 x 151936 x 5120 = 14.77e9."""

    path = str(put(tmp_path / "mine", FILE))
    words = [path, "--on", "64xh100-sxm", "--batch", "64seq", "--zero", "3"]
    words += ["--seq", "2048"]
    assert shell("predict", *words).out.startswith(
        "Predict mine (14.8 B) on 64 x"
    )
