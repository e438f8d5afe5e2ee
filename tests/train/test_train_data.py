"""Token files and the order of samples: what goes in comes out, whatever the layout, from any step
on.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from meshwright.describe.layout import Layout
from meshwright.train import data, texts
from meshwright.train.data import Blend, Shuffle
from meshwright.train.feed import batch, prefetched
from meshwright.train.texts import encoder  # noqa: E402
from refusals import refusal  # noqa: E402


def made(folder: Path, text: str = "abcdefghij" * 10) -> Path:
    (folder / "text.txt").write_text(text, "utf-8")
    texts.prepare(folder / "text.txt", folder / "tokens")
    return folder / "tokens"


def prepared(
    folder: Path, content: str | bytes, name: str = "t.txt", **how: Any
) -> list[int]:
    """The ids of a file with this content; they are in t.bin."""
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(data)
    texts.prepare(folder / name, folder / "t", **how)
    ids: list[int] = np.fromfile(folder / "t.bin", "<u2").tolist()
    return ids


def test_bytes_come_back(tmp_path: Path) -> None:
    path = made(tmp_path, "Grüße, 世界")
    assert path.with_suffix(".bin").read_bytes()[::2].decode() == "Grüße, 世界"
    header = json.loads(path.with_suffix(".json").read_text())
    assert (
        header["tokens"] == len("Grüße, 世界".encode())
        and header["vocab"] == 256
        and header["dtype"] == "uint16"
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "text.txt",
        "tokens.bin",
        "tokens.json",
    ]


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    texts.write_texts(
        tmp_path / "t", [np.array([70000, 3])], 100_000, "invented", "invented"
    )
    assert data.File(tmp_path / "t", 100_000, 1, 0).sample(0).tolist() == [
        70000,
        3,
    ]


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
    "source",
    [
        lambda path, seed: data.File(path, 256, 9, seed),
        lambda path, seed: data.Synthetic(256, 9, seed),
    ],
)
def test_the_order_is_that_of_the_seed_alone(
    tmp_path: Path, source: Callable[[Path, int], data.Source]
) -> None:
    """A step's samples are the same for one replica or three, and after a restart in the middle of
    an epoch.
    """
    path = made(tmp_path)
    whole = source(path, 1).samples(0, 36)
    assert whole.shape == (36, 10) and whole.min() >= 0 and whole.max() < 256
    for step in range(3):
        replicas = [
            source(path, 1).samples(12 * step + 4 * d, 4) for d in range(3)
        ]
        assert np.array_equal(
            np.concatenate(replicas), whole[12 * step : 12 * step + 12]
        )
    assert not np.array_equal(source(path, 2).samples(0, 36), whole)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = made(tmp_path)
    with refusal("made with 256 tokens, but model.vocab is only 100"):
        data.File(path, 100, 9, 0)
    with refusal("less than one sequence of 100"):
        data.File(path, 256, 100, 0)
    path.with_suffix(".bin").write_bytes(b"xyz")
    with refusal("there is no .*nowhere.json; `meshwright data` makes"):
        data.read_header(tmp_path / "nowhere")
    with refusal("has 3 bytes, but its header says 200: it is damaged"):
        data.File(path, 256, 9, 0)
    header = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".bin").write_bytes(b"")
    path.with_suffix(".json").write_text(json.dumps({**header, "tokens": 0}))
    with refusal("holds 0 tokens, less than one sequence"):
        data.File(path, 256, 9, 0)
    path.with_suffix(".json").write_text("[]")
    with refusal("JSON object"):
        data.File(path, 256, 9, 0)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"text": 3}', "line 1 has no text in its field 'text'"),
        ('{"text": "a"}\n\n{}\n', "line 3 has no text"),
        ("{", "line 1 is not valid JSON"),
        # of a smile that was cut in two
        (
            '{"text": "\\ud83d"}',
            r"line 1 holds half of a character, '\\ud83d'",
        ),
    ],
)
def test_bad_jsonl_is_refused(tmp_path: Path, content: str, says: str) -> None:
    with refusal(says):
        prepared(tmp_path, content, "d.jsonl")
    assert not (tmp_path / "t.json").exists()


def test_what_cannot_be_written_is_a_sentence_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "empty.txt").touch()
    for name, to, says in [
        ("a.txt", tmp_path / "a.txt" / "t", "cannot be written"),
        ("a.txt", Path("."), "it has no name"),
        ("empty.txt", tmp_path / "t", "empty.txt holds no text"),
    ]:
        with refusal(says):
            texts.prepare(tmp_path / name, to)
    with refusal("it has no name"):
        data.File(Path("."), 256, 9, 0)
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "empty.txt"}


def test_a_missing_tokenizer_package_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with refusal("pip install tokenizers|is not a tokenizer.json"):
        encoder(str(tmp_path / "tokenizer.json"))


def bpe(folder: Path) -> tuple[str, Any]:
    """The file of a tokenizer of bytes with a few merges, trained here, which would cut texts off
    and put <s> before them if it were let; and one that does not cut.
    """
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    made.train_from_iterator(
        ["the rain in Spain stays mainly in the plain\n"] * 5, trainer
    )
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    made.enable_truncation(4)
    made.save(str(folder / "tokenizer.json"))
    made.no_truncation()
    return str(folder / "tokenizer.json"), made


def test_a_tokenizer_file_gives_its_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut into pieces and batches or not: the ids are those of the whole, and the text comes
    back.
    """
    file, made = bpe(tmp_path)
    text = "the rain\n\n  in Spain: Grüße, 世界\nstays\n" * 30 + "mainly"
    want = made.encode(text, add_special_tokens=False).ids
    monkeypatch.setattr(texts, "PIECE", 97)
    monkeypatch.setattr("meshwright.train.texts.BATCH", 150)
    found = prepared(tmp_path, text, tokenizer=file)
    header = data.read_header(tmp_path / "t")
    assert found == want and made.decode(found) == text
    assert (
        header["vocab"]
        == made.get_vocab_size()
        == max(made.get_vocab().values()) + 1
        and "end" not in header
    )


@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
def test_line_ends_are_those_of_the_text_and_a_mark_of_byte_order_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newline: str
) -> None:
    """Whole or in pieces, also where one ends between CR and LF."""
    file, made = bpe(tmp_path)
    text = newline.join(["the rain", "", "  in Spain", "stays"] * 30)
    for piece in (1 << 20, *range(7, 20)):
        monkeypatch.setattr(texts, "PIECE", piece)
        marked = text.encode("utf-8-sig")
        found = prepared(tmp_path, marked, tokenizer=file)
        assert made.decode(found) == text
        if 2 * piece > 60:  # two pieces hold a line end
            assert found == made.encode(text, add_special_tokens=False).ids
    assert bytes(prepared(tmp_path, marked)) == text.encode()


@pytest.mark.parametrize(
    "name",
    [
        "d.jsonl",
        "c4.00000-of-01024.json.gz",
        "d.ndjson",
        "D.JSONL.GZ",
        "d.jsonlines",
    ],
)
def test_documents_are_told_by_their_ending(tmp_path: Path, name: str) -> None:
    """C4's files end in .json.gz; as a text their keys would be trained on.  Each document ends
    with a zero, and a blank line holds none.
    """
    text = (
        b'\xef\xbb\xbf{"body": "a", "text": "x"}\r\n\r\n  \n{"body": "b"}\n\n'
    )
    if name.lower().endswith("gz"):
        text = gzip.compress(text)
    assert prepared(tmp_path, text, name, key="body") == [97, 0, 98, 0]


def test_a_dot_in_the_name_of_a_token_file_is_a_part_of_it(
    tmp_path: Path,
) -> None:
    for name, text in (("t.v1", "one"), ("t.v2", "other")):
        (tmp_path / "d.txt").write_text(text)
        texts.prepare(tmp_path / "d.txt", tmp_path / name)
    found = [
        data.read_header(tmp_path / n)["tokens"] for n in ("t.v1", "t.v2.bin")
    ]
    assert found == [3, 5]


MODELS = {
    "WordPiece": {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 9,
        "vocab": {"a": 0},
    },
    "WordLevel": {"unk_token": "[UNK]", "vocab": {"a": 0}},
    "BPE": {"unk_token": "<unk>", "vocab": {"a": 0}, "merges": []},
    "Unigram": {"unk_id": None, "vocab": [["a", -1.0]]},
}


@pytest.mark.parametrize("model", MODELS)
def test_a_tokenizer_that_lacks_its_unknown_token_is_a_sentence(
    tmp_path: Path, model: str
) -> None:
    """It can be read, and fails at the first text with what it does not know."""
    pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    whole = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": model, **MODELS[model]},
    }
    file.write_text(json.dumps(whole))
    with refusal("tokenizer.json cannot encode this text: .*(UNK|unk)"):
        prepared(tmp_path, "zebra", tokenizer=str(file))
    assert not (tmp_path / "t.json").exists()
    file.write_text(
        json.dumps(
            {**whole, "model": {"type": "BPE", "vocab": {}, "merges": []}}
        )
    )
    with refusal("tokenizer.json has no tokens"):
        encoder(str(file))


@pytest.mark.parametrize("end", [None, "<s>", "none"])
def test_documents_end_with_a_token(tmp_path: Path, end: str | None) -> None:
    file, _ = bpe(tmp_path)
    text = '{"text": "the rain in Spain"}\n{"text": ""}\n'
    found = prepared(tmp_path, text, "d.jsonl", tokenizer=file, end=end)
    header = data.read_header(tmp_path / "t")
    after = {None: [1], "<s>": [0], "none": []}[end]
    assert (
        found[-2:] == after * 2 if after else 0 not in found and 1 not in found
    )
    assert header.get("end") == (
        end or "<|endoftext|>" if end != "none" else None
    )
    with refusal("--end 'nothing' is not a token of"):
        prepared(tmp_path, text, "d.jsonl", tokenizer=file, end="nothing")


def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "PIECE", 1000)
    (tmp_path / "long.txt").write_text(
        "x" * 10_000 + "\n" + "line\n" * 5000, "utf-8"
    )
    pieces = list(texts.texts(tmp_path / "long.txt"))
    assert max(map(len, pieces)) <= 2000 and "".join(pieces) == (
        tmp_path / "long.txt"
    ).read_text("utf-8")
    (tmp_path / "d.jsonl").write_text(
        '{"text": "' + "x" * 2**22 + '"}\n', "utf-8"
    )
    with refusal("line 1 is larger than 4 MiB"):
        list(texts.texts(tmp_path / "d.jsonl"))


def test_the_corpus_is_the_documentation_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "b.py").write_text('"""Of b."""\ndef f():\n    """Of f."""\n')
    (library / "a.py").write_text('x = 1\nclass C:\n    """Of C, \\d."""\n')
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(library))
    texts.corpus(tmp_path / "c")
    assert (
        bytes(np.fromfile(tmp_path / "c.bin", "<u2").astype("u1"))
        == b"a\n\nOf C, \\d.\n\nb\n\nOf b.\n\nOf f.\n\n"
    )
    assert texts.corpus(tmp_path / "c")["tokens"] == 31


@pytest.mark.parametrize("count", [1, 2, 5, 64, 65, 1000])
def test_an_order_that_nobody_holds_has_each_place_once(count: int) -> None:
    orders = [Shuffle(count, 1, epoch) for epoch in range(3)]
    found = [[order[i] for i in range(count)] for order in orders]
    assert all(sorted(of) == list(range(count)) for of in found)
    if count > 5:
        assert found[0] != found[1] != found[2]
        moved = sum(abs(place - i) for i, place in enumerate(found[0]))
        # of a random order: a third of the way on average, (n^2 - 1) / 3 in all
        assert moved == pytest.approx((count**2 - 1) / 3, rel=0.3)


@pytest.mark.parametrize("shares", [(0.7, 0.3), (1.0, 1.0), (5.0, 2.0, 3.0)])
def test_files_that_are_mixed_give_their_shares_one_sample_after_the_other(
    shares: tuple[float, ...],
) -> None:
    blend, given = Blend([], shares), [0] * len(shares)
    for i in range(300):
        file, before = blend.whose(i)
        assert before == given[file]
        given[file] += 1
        for count, share in zip(given, shares, strict=True):
            assert abs(count - (i + 1) * share / sum(shares)) < 2


def test_the_place_of_a_sample_of_a_trillion_is_computed() -> None:
    """Nothing as long as the data is made: 183 million samples took 1.5 GB on each rank."""
    order = Shuffle(10**12, 7, 0)
    places = [order[i] for i in range(200)]
    assert len(set(places)) == 200 and max(places) < 10**12
    assert 0.4e12 < sum(places) / 200 < 0.6e12


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("of", ["d.jsonl", "d.txt"])
def test_a_packed_text_is_the_text(
    of: str, ending: str, tmp_path: Path
) -> None:
    text = b'{"text": "one"}\n{"text": "tw\\u00f6"}\n'
    module = import_module({"xz": "lzma", "gz": "gzip"}.get(ending, ending))
    packed = module.compress(text)
    plain = prepared(tmp_path, text, of)
    assert plain == prepared(tmp_path, packed, f"{of}.{ending}") != []
    with refusal("is damaged|cannot be read"):
        prepared(tmp_path, packed[:-9], f"{of}.{ending}")


def test_what_is_no_text_or_never_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, says in {
        Path("/dev/zero"): "a pipe or a device, which may never end",
        tmp_path / "pipe": "a pipe or a device, which may never end",
        tmp_path: "is a folder",
        tmp_path / "none": "No such file",
    }.items():
        with refusal(says):
            texts.prepare(path, tmp_path / "t")
    for name in ("t.zst", "t.tar.gz"):
        with refusal("is not a text: .*.gz, .bz2, .xz"):
            prepared(tmp_path, b"(", name)


def test_what_is_half_written_has_no_name(tmp_path: Path) -> None:
    """An error leaves nothing; who writes keeps the file; what a killed one left is written over."""

    def chunks() -> Iterator[Any]:
        yield np.zeros(9, np.uint16)
        assert [path.name for path in tmp_path.iterdir()] == ["t.bin.part"]
        with refusal("cannot be written"):
            texts.write_texts(tmp_path / "t", [], 256, "bytes", "text")
        assert (tmp_path / "t.bin.part").exists()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        texts.write_texts(tmp_path / "t", chunks(), 256, "bytes", "text")
    assert not list(tmp_path.iterdir())
    (tmp_path / "t.bin.part").write_bytes(b"a" * 99)
    texts.write_texts(tmp_path / "t", [np.ones(9)], 256, "bytes", "text")
    assert (tmp_path / "t.bin").read_bytes() == b"\1\0" * 9
    assert {path.name for path in tmp_path.iterdir()} == {"t.bin", "t.json"}


def test_the_next_batch_is_made_while_a_step_runs() -> None:
    """A second one is asked for before the first has been worked on, and not a third."""
    asked = [Event() for _ in range(4)]

    def batches() -> Iterator[int]:
        for number, event in enumerate(asked):
            event.set()
            yield number

    source = prefetched(batches())
    assert next(source) == 0
    assert asked[1].wait(10) and not asked[2].is_set()
    assert [*source] == [1, 2, 3]


def test_token_ids_that_the_model_has_not_are_named(tmp_path: Path) -> None:
    """Of a file whose header is right: PyTorch's sentence is "index out of range in self"."""
    path = made(tmp_path)
    tokens = np.fromfile(path.with_suffix(".bin"), "<u2")
    tokens[1] = 999
    tokens.tofile(path.with_suffix(".bin"))
    samples = data.File(path, 256, 9, seed=3)
    trainer: Any = SimpleNamespace(
        layout=Layout(dp=1),
        mesh=SimpleNamespace(replica=0),
        job=SimpleNamespace(T=9, model=SimpleNamespace(vocab=256)),
    )
    with refusal("samples 0 to 10 of the data hold token ids from 97 to 999,"):
        batch(trainer, samples, first=0, size=11, ends=None)
