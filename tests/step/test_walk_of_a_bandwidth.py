"""A link's bandwidth on its way from a file to a picture: docs/architecture.md names its stops."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from by_hand import TOKENS, WIDTH, by_hand
from meshwright import Dim, Layout, Prediction, predict
from meshwright.cost.layer import Timer
from meshwright.count.model import layer
from meshwright.describe.layers import kinds
from meshwright.describe.read import read
from meshwright.report.predict import time_table
from meshwright.report.text import CAUSES
from meshwright.step import clock_of

MESSAGE = 2 * TOKENS * WIDTH
"""Bytes of a layer's input in 16 bits; of two ranks each sends half."""


def stops(bandwidth: str) -> dict[str, float]:
    """What a layer's first gather over two tp ranks is at each stop."""
    fields = {"name": "switch", "bandwidth": bandwidth, "latency": "0 s"}
    dim: Dim = read(Dim, fields, "dim")
    job = by_hand(Layout(tp=2, dp=1), 3).job
    net = replace(job.cluster.network, dims=(dim,))
    job = replace(job, cluster=replace(job.cluster, network=net))
    p = predict(job)
    at = clock_of(job)
    ops = layer(job, p.layout, kinds(job.model)[0])
    op = next(op for op in ops if op.forward.comm)
    (message,) = op.forward.comm
    load = at.fabric.load(
        message.kind, message.bytes, p.layout.group("tp"), message.draw
    )
    cost = Timer(at, p.layout).pass_cost(op, op.forward)
    return {
        "Dim.bandwidth": dim.bandwidth,
        "Links.rates": at.fabric.rates[0],
        "Load.seconds": float(load.seconds),
        "PassCost.time": float(cost.time.tp_comm),
        "LayerCost.causes": float(p.cost.typical.causes.both.tp_comm),
        "Prediction.time_s": p.time_s["tp_comm"],
        "picture": shown(p),
    }


def shown(p: Prediction) -> float:
    """Seconds of tensor-parallel communication as the table beside the bars has them."""
    console = Console(width=200, file=StringIO(), force_terminal=False)
    console.print(time_table(p))
    (line,) = (
        line
        for line in console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        if CAUSES["tp_comm"] in line
    )
    return float(re.findall(r"(\d+\.?\d*) s", line)[0])


def test_a_bandwidth_is_itself_at_every_stop() -> None:
    """16 kB at 8192 B/s: half of it takes a second. A layer gathers and scatters twice forward and
    twice backward, and gathers both inputs again; two layers and three microbatches do six times.
    """
    assert MESSAGE == 16384
    assert stops("8.192 kB/s") == pytest.approx(
        {
            "Dim.bandwidth": 8192.0,
            "Links.rates": 8192.0,
            "Load.seconds": 1.0,
            "PassCost.time": 1.0,
            "LayerCost.causes": 10.0,
            "Prediction.time_s": 6 * 10.0,
            "picture": 60.0,
        }
    )
    twice = stops("16.384 kB/s")
    assert twice["Load.seconds"] == 0.5
    assert twice["Prediction.time_s"] == pytest.approx(30.0)
