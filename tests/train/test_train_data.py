"""Token files and the order of samples: what goes in comes out, whatever the layout, from any step on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
from meshwright.errors import BadInput  # noqa: E402
from meshwright.train import corpus, data  # noqa: E402


def made(folder: Path, text: str = "abcdefghij" * 10) -> Path:
    (folder / "text.txt").write_text(text, "utf-8")
    data.prepare(folder / "text.txt", folder / "tokens")
    return folder / "tokens"


def test_bytes_come_back(tmp_path: Path) -> None:
    path = made(tmp_path, "Grüße, 世界")
    assert path.with_suffix(".bin").read_bytes()[::2].decode() == "Grüße, 世界"
    header = json.loads(path.with_suffix(".json").read_text())
    assert header["tokens"] == len("Grüße, 世界".encode()) and header["vocab"] == 256 and header["dtype"] == "uint16"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["text.txt", "tokens.bin", "tokens.json"]


def test_documents_of_jsonl_end_with_a_zero(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"body": "one"}\n{"body": "two"}\n')
    data.prepare(tmp_path / "d.jsonl", tmp_path / "t", key="body")
    assert bytes(np.fromfile(tmp_path / "t.bin", "<u2").astype("u1")) == b"one\0two\0"


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    data.write(tmp_path / "t", [np.array([70000, 3])], 100_000, "invented", "invented")
    assert data.File(tmp_path / "t", 100_000, 1, 0).sample(0).tolist() == [70000, 3]


def test_an_epoch_is_every_sample_once(tmp_path: Path) -> None:
    file = data.File(made(tmp_path), 256, seq=9, seed=3)
    assert file.count == 11
    epochs = [file.samples(11 * e, 11) for e in range(2)]
    for epoch in epochs:
        assert sorted(map(tuple, epoch.tolist())) == sorted(
            tuple(file.tokens[9 * i : 9 * i + 10].tolist()) for i in range(11)
        )
    assert not np.array_equal(*epochs), "every epoch has its own order"


@pytest.mark.parametrize(
    "source", [lambda path, seed: data.File(path, 256, 9, seed), lambda path, seed: data.Synthetic(256, 9, seed)]
)
def test_the_order_is_that_of_the_seed_alone(tmp_path: Path, source: Callable[[Path, int], data.Source]) -> None:
    """A step's samples are the same for one replica or three, and after a restart in the middle of an epoch."""
    path = made(tmp_path)
    whole = source(path, 1).samples(0, 36)
    assert whole.shape == (36, 10) and whole.min() >= 0 and whole.max() < 256
    for step in range(3):
        replicas = [source(path, 1).samples(12 * step + 4 * d, 4) for d in range(3)]
        assert np.array_equal(np.concatenate(replicas), whole[12 * step : 12 * step + 12])
    assert not np.array_equal(source(path, 2).samples(0, 36), whole)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = made(tmp_path)
    with pytest.raises(BadInput, match="made with 256 tokens, but model.vocab is only 100"):
        data.File(path, 100, 9, 0)
    with pytest.raises(BadInput, match="less than one sequence of 100"):
        data.File(path, 256, 100, 0)
    path.with_suffix(".bin").write_bytes(b"xyz")
    with pytest.raises(BadInput, match="has 3 bytes, but its header says 200: it is damaged"):
        data.File(path, 256, 9, 0)
    path.with_suffix(".json").write_text("[]")
    with pytest.raises(BadInput, match="JSON object"):
        data.File(path, 256, 9, 0)


@pytest.mark.parametrize(
    ("content", "says"),
    [('{"text": 3}', "line 1 has no text in its field 'text'"), ("{", "line 1 is not valid JSON")],
)
def test_bad_jsonl_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "d.jsonl").write_text(content)
    with pytest.raises(BadInput, match=says):
        data.prepare(tmp_path / "d.jsonl", tmp_path / "t")
    assert not (tmp_path / "t.json").exists()


def test_a_missing_tokenizer_package_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="pip install tokenizers|is not a tokenizer.json"):
        data.encoder(str(tmp_path / "tokenizer.json"))


def test_the_corpus_is_the_documentation_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "b.py").write_text('"""Of b."""\ndef f():\n    """Of f."""\n')
    (library / "a.py").write_text('x = 1\nclass C:\n    """Of C, \\d."""\n')
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(library))
    corpus.make(tmp_path / "c")
    assert bytes(np.fromfile(tmp_path / "c.bin", "<u2").astype("u1")) == b"a\n\nOf C, \\d.\n\nb\n\nOf b.\n\nOf f.\n\n"
    assert corpus.make(tmp_path / "c")["tokens"] == 31
