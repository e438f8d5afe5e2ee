"""What `reproduce` returns and writes, and how published numbers in files are recognised."""

import csv
import json
from pathlib import Path

import pytest

from meshwright.report.card import CardRow
from meshwright_studies.report.results import FIRST, reproduced_card
from meshwright_studies.reproduce import (
    PAPERS,
    PaperTable,
    Report,
    check,
    merge,
    reproduce,
)
from meshwright_studies.reproduce.epoch import FIGURES as epoch
from meshwright_studies.reproduce.lbl.plots import figures_in_order as lbl
from meshwright_studies.reproduce.megatron.plots import (
    measuring_figures as megatron,
)
from meshwright_studies.reproduce.report import Check, relative
from meshwright_studies.reproduce.scaling_book import FIGURES as book
from meshwright_studies.reproduce.sources import find, format_of
from refusals import refusal

PUBLISHED = Path(__file__).parents[1] / "published"


def test_summary_counts_and_worst_match() -> None:
    report = Report(
        "x",
        (
            check("a", 100.0, 100.05, 1e-3),
            check("b", 1.0, 1.1, 1e-3),
            Check("c", 2, 3, "erratum", source="formula"),
        ),
    )
    assert report.summary == {
        "match": 1,
        "loose": 0,
        "open": 0,
        "explained": 0,
        "erratum": 1,
        "mismatch": 1,
        "worst_match": pytest.approx(5e-4),
        "by_source": {"printed": 2, "formula": 1},
    }
    assert (
        json.loads(json.dumps(report.to_dict()))["checks"][1]["status"]
        == "mismatch"
    )


def test_relative_difference_has_no_meaning_from_zero() -> None:
    assert relative(0.0, 0.0) == 0.0
    assert relative(0.0, 1e-9) is None
    assert relative(1.0, float("nan")) is None
    assert check("x", 1.0, float("nan"), 1.0).status == "mismatch"
    assert check("x", 0.0, 1e-12, 1.0).status == "mismatch"


def test_merge_prefixes_ids_with_the_paper() -> None:
    one = Report("lbl", (check("a", 1, 1, 0),), notes=("n",), elapsed_s=1.0)
    both = merge(
        "all", [one, Report("epoch", (check("a", 1, 2, 0),), elapsed_s=2.0)]
    )
    assert [c.id for c in both.checks] == ["lbl/a", "epoch/a"]
    assert both.summary["match"] == both.summary["mismatch"] == 1
    assert both.notes == ("lbl: n",)
    assert both.elapsed_s == 3.0


def test_tables_are_written_in_full_and_to_read(tmp_path: Path) -> None:
    table = PaperTable(
        "t", "A title", ("name", "value"), (("a|b", 1 / 3), ("c", None))
    )
    Report("x", (check("a", 3.0, 3.0, 0),), (table,)).write(tmp_path / "new")
    with (tmp_path / "new" / "t.csv").open(newline="") as f:
        assert list(csv.reader(f)) == [
            ["name", "value"],
            ["a|b", repr(1 / 3)],
            ["c", ""],
        ]
    assert "| a\\|b | 0.333333 |" in (tmp_path / "new" / "t.md").read_text()
    assert (tmp_path / "new" / "x-checks.csv").exists()


def test_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refusal("cannot write"):
        Report("x", ()).write(tmp_path / "file")


def test_format_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    texts = {
        "lbl": '{"data": {}}',
        "scaling-book": '{"cases": []}',
        "nccl": "# x\ncollective,gpus_total,nodes,size_bytes\n",
        "epoch": "T_flop,n_gpu,util_vs_boost_peak\n",
        None: "a,b\n1,2\n",
    }
    for i, (kind, text) in enumerate(texts.items()):
        file = tmp_path / f"{i}.json"
        file.write_text(text)
        assert format_of(file) == kind
    assert {k: len(v) for k, v in find(tmp_path).items()} == {
        "lbl": 1,
        "scaling-book": 1,
        "nccl": 1,
        "epoch": 1,
    }
    with refusal(r"4\.json is in no format"):
        find(tmp_path / "4.json")


@pytest.mark.parametrize(
    "text", ["{", "[1]", "{} x", '{"a": ' * 3000, "\0\1", '{"a": 1e400}']
)
def test_broken_files_are_sentences(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with refusal():
        reproduce("lbl", tmp_path / "x.json")


def test_wrong_papers_and_paths_are_sentences(tmp_path: Path) -> None:
    with refusal("did you mean lbl"):
        reproduce("lbll")
    with refusal("no file or folder"):
        reproduce("lbl", tmp_path / "nothing")
    with refusal("holds no published numbers"):
        reproduce("epoch", PUBLISHED / "lbl_optima.json")
    with refusal("megatron could be held against"):
        reproduce("megatron", PUBLISHED / "lbl_optima.json")


def test_the_card_says_what_was_written_and_where_to_begin() -> None:
    figures = [
        *epoch,
        *lbl(()),
        *megatron(),
        *book,
    ]
    names = [f.name for f in figures]
    assert set(FIRST) == set(PAPERS) and set(FIRST.values()) <= set(names)
    data = Report("epoch", (check("a", 1, 1, 0),), (), epoch).to_dict()
    rows = {
        r.label: r.text
        for r in reproduced_card(data, "out").items
        if isinstance(r, CardRow)
    }
    assert rows["written"].endswith("in out; begin with epoch-figure-6.png")
    assert rows["written"].startswith(f"figures: {len(epoch)}, tables: 1,")
    usual = reproduced_card(data).items
    assert not [
        r for r in usual if isinstance(r, CardRow) and r.label == "written"
    ]
