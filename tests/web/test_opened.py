"""What stands behind a number of the page, and the machine that a layout lies on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asking import ask

from meshwright.cli.main import main

QUESTION = {
    "model": "llama3-70b",
    "on": "512xh100-sxm",
    "batch": "4Mi",
    "tokens": "1T",
}
LAYOUT = {"tp": 8, "pp": 4, "zero": 1}


def explained(term: str, **more: Any) -> Any:
    body = {"question": QUESTION, "layout": LAYOUT, "term": term, **more}
    return ask("explain", body).json["terms"]


@pytest.mark.parametrize(
    "term", ["step_time", "step_time/tp_comm", "memory", "mfu", "train_time"]
)
def test_a_term_is_what_the_command_explains(
    term: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--on", "512xh100-sxm", "--batch", "4Mi", "--tokens", "1T"]
    layout = ["--tp", "8", "--pp", "4", "--zero", "1"]
    words = ["predict", "llama3-70b", *options, *layout, "--explain", term]
    main([*words, "--json"])
    told = json.loads(capsys.readouterr().out)
    (said,) = told["explain"] if "explain" in told else told["terms"]
    (one,) = explained(term)
    for field in ("path", "value", "unit", "formula", "source"):
        assert one[field] == said[field]
    assert [(p["name"], p["value"]) for p in one["parts"]] == [
        (p["name"], p["value"]) for p in said["parts"]
    ]


def test_parts_add_up_and_open_in_their_turn() -> None:
    (step,) = explained("step_time")
    assert sum(p["value"] for p in step["parts"]) == pytest.approx(
        step["value"], rel=1e-9
    )
    inside = {p["name"]: p["inside"] for p in step["parts"]}
    (tensor,) = explained("step_time/tp_comm")
    assert len(tensor["parts"]) == inside["tp_comm"] > 5
    (leaf,) = explained(f"step_time/tp_comm/{tensor['parts'][0]['name']}")
    assert leaf["expression"]["text"] and leaf["expression"]["values"]


def test_a_run_is_its_steps_and_what_it_loses() -> None:
    """A price of one's own is in its rent: 512 chips at 2 USD/h."""
    (whole,) = explained("train_time")
    assert sum(p["value"] for p in whole["parts"]) == pytest.approx(
        whole["value"]
    )
    (rent,) = explained("cost", prices={"h100-sxm": 2.0})
    assert rent["value"] == pytest.approx(whole["value"] / 3600 * 512 * 2.0)


def test_a_term_that_is_not_there_names_those_near() -> None:
    reply = ask(
        "explain", {"question": QUESTION, "layout": LAYOUT, "term": "tp_cmm"}
    )
    assert reply.status == 422 and "tp_comm" in reply.json["error"]


@pytest.mark.parametrize("chips", [8, 512, 98304])
def test_groups_lie_where_the_layout_places_them(chips: int) -> None:
    """Tensor groups in a node, replicas beyond; seconds are those of the answer."""
    body = {
        "question": {**QUESTION, "on": f"{chips}xh100-sxm", "batch": "256Mi"},
        "layout": {"tp": 8, "zero": 1},
    }
    told = ask("machine", body).json
    assert told["chips"] == chips
    assert [dim["members"] for dim in told["dims"]] == [8, chips // 8]
    time = ask("predict", body).json["time_s"]
    found = {group["axis"]: group for group in told["groups"]}
    assert found["tp"]["ranks"] == [8, 1] and found["tp"]["link"] == "nvlink"
    assert found["tp"]["exposed_s"] == time["tp_comm"] > 0
    assert found["tp"]["sent_s"] >= time["tp_comm"]
    if chips > 8:
        assert found["dp"]["ranks"] == [1, chips // 8]
        assert found["dp"]["link"] == "ib"
        assert found["dp"]["exposed_s"] == time["dp_comm"]
    else:
        assert "dp" not in found
