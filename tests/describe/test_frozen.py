"""Descriptions and results are values: they survive pickle, copies and asdict, hash where they
compare, and print in a few lines.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meshwright import (
    Choices,
    Cluster,
    Job,
    Layout,
    Space,
    catalog,
    chip,
    cluster,
    model,
    network,
    plan,
    predict,
)
from meshwright.describe.assumptions import SETS
from meshwright.describe.frozen import (
    COLUMNS,
    LINES,
    FrozenDict,
    put,
    scaling,
)
from meshwright.prediction.replay import replay
from meshwright.roofline import roofline
from meshwright.sweep import sweep

JOB = Job(
    "mixtral-8x7b",
    "16xh100-sxm",
    batch=32,
    layout=Layout(tp=2, pp=2, dp=4, ep=4, zero=1),
)
PREDICTION = predict(JOB)
PLAN = plan(JOB, Space(schedule="1f1b"), top=3)
THINGS: dict[str, Any] = {
    "Job": JOB,
    "Layout": PREDICTION.layout,
    "Prediction": PREDICTION,
    "Plan": PLAN,
    "Chip": chip("h100-sxm"),
    "Network": network("superpod-h100"),
    "Model": model("deepseek-v3"),
    "Cluster": cluster("512xtpu-v5p"),
    "Assumptions": SETS["realistic"],
    "Sweep": sweep(JOB, "batch", ["32seq", "64seq"], fixed=True),
    "Replay": replay(PREDICTION),
    "Term": PREDICTION.term,
    "Choices": Choices(zero=(0, 1), tp=range(1, 100)),
    "Roofline": roofline(model("llama3-8b"), cluster("512xtpu-v5p"), 4e6),
}
DATACLASSES = sorted({*THINGS} - {"Choices"})


HASHED = {
    *("Job", "Layout", "Prediction", "Assumptions", "Choices"),
    *("Chip", "Network", "Model", "Cluster"),
}


@pytest.mark.parametrize(
    "copied",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)
@pytest.mark.parametrize("name", THINGS)
def test_copies_are_equal(name: str, copied: Callable[[Any], Any]) -> None:
    thing = THINGS[name]
    again = copied(thing)
    assert again == thing and type(again) is type(thing)
    if name in HASHED:
        assert len({thing, again}) == 1
    if hasattr(thing, "to_dict"):
        assert again.to_dict() == thing.to_dict(), "and say the same"


def test_what_was_computed_is_not_pickled() -> None:
    """A prediction that was read through is as small as one that was asked whether it fits (what
    descriptions alone decide stays with them)."""
    asked = predict(JOB)
    assert not asked.fits
    new = pickle.dumps(asked)
    assert (
        PREDICTION.term
        and PREDICTION.to_dict()
        and len(pickle.dumps(PREDICTION)) == len(new)
    )


@pytest.mark.parametrize("name", DATACLASSES)
def test_asdict_gives_plain_tables(name: str) -> None:
    table = dataclasses.asdict(THINGS[name])
    assert isinstance(table, dict) and not any(
        dataclasses.is_dataclass(value) for value in walk(table)
    )
    if name == "Job":
        assert table["cluster"]["chip"]["matrix_flops"][
            "bf16"
        ] == JOB.cluster.chip.peak("bf16")
        assert json.loads(json.dumps(table["layout"]))["tp"] == 2


def walk(value: Any) -> list[Any]:
    """The value and everything in it."""
    inside = (
        list(value.values())
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, (list, tuple))
        else []
    )
    return [value, *(deeper for each in inside for deeper in walk(each))]


def test_every_catalogue_entry_hashes_and_pickles() -> None:
    for kind, find in (
        ("chips", chip),
        ("networks", network),
        ("models", model),
    ):
        for name in catalog.names(kind):
            thing = find(name)
            assert pickle.loads(pickle.dumps(thing)) == thing and isinstance(
                hash(thing), int
            )


def test_a_table_of_a_user_is_frozen() -> None:
    mine = dataclasses.replace(JOB.cluster.chip, matrix_flops={"bf16": 1e15})
    assert isinstance(hash(mine), int)
    with pytest.raises(TypeError, match="dataclasses.replace"):
        mine.matrix_flops["bf16"] = 2e15  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "given"),
    [
        ("update", [{"b": 1}]),
        ("pop", ["a"]),
        ("clear", []),
        ("setdefault", ["b", 1]),
        ("__delitem__", ["a"]),
        ("__ior__", [{"b": 1}]),
        ("popitem", []),
    ],
)
def test_a_frozen_dict_stays_as_it_is(change: str, given: list[Any]) -> None:
    table = FrozenDict(a=1)
    with pytest.raises(TypeError):
        getattr(table, change)(*given)
    assert table == {"a": 1} and hash(table) == hash(FrozenDict({"a": 1}))


@pytest.mark.parametrize("name", DATACLASSES)
def test_at_most_five_short_lines(name: str) -> None:
    for text in (repr(THINGS[name]), str(THINGS[name])):
        lines = text.splitlines()
        assert (
            name in lines[0]
            and len(lines) <= LINES
            and max(map(len, lines)) <= COLUMNS + 4
        )


def test_what_is_printed_says_what_matters() -> None:
    assert repr(Layout(tp=8, dp=2, zero=1)) == "Layout(tp=8, dp=2, zero=1)", (
        "no defaults"
    )
    assert repr(JOB).startswith(
        "Job(model='mixtral-8x7b', cluster='16xh100-sxm', batch=32, layout=Layout(tp=2, pp=2,"
    )
    assert f"MFU {PREDICTION.mfu:.1%}" in repr(
        PREDICTION
    ) and "does NOT fit" in repr(PREDICTION)
    assert f"{PLAN.searched:,} layouts" in repr(PLAN) and repr(
        PLAN.best
    ).splitlines()[0] in repr(PLAN)
    assert repr(Layout(tp=np.ones(1000))) == "Layout(tp=<1000 values>)", (
        "a column of a table of layouts"
    )


def test_numbers_at_a_path() -> None:
    """Dotted paths reach through descriptions; of a tuple all members, of a table all numbers."""
    h100 = chip("epoch-h100")
    net = network("epoch-h100")
    whole = Cluster(h100, net, 8)
    faster = scaling("network.dims.bandwidth", 2.0)(whole)
    assert [d.bandwidth for d in faster.network.dims] == [
        2.0 * d.bandwidth for d in net.dims
    ]
    assert faster.chip == h100
    wide = scaling("chip.matrix_flops", 3.0)(whole).chip.matrix_flops
    assert wide == {k: 3.0 * v for k, v in h100.matrix_flops.items()}
    assert put("chip.hierarchy.dsmem", False)(
        whole
    ).chip == dataclasses.replace(
        h100, hierarchy=dataclasses.replace(h100.hierarchy, dsmem=False)
    )


def test_what_is_not_there_is_not_made_up() -> None:
    """A chip whose memories are not known stays as it is; a value that is not known may be put."""
    v5p = chip("tpu-v5p")
    assert v5p.hierarchy is None
    assert scaling("hierarchy.l2_bandwidth", 2.0)(v5p) == v5p
    assert put("hierarchy.dsmem", False)(v5p) == v5p
    unmeasured = dataclasses.replace(v5p, sustained=None)
    assert put("sustained", 0.5)(unmeasured) == dataclasses.replace(
        v5p, sustained=0.5
    )
