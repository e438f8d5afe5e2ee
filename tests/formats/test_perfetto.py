"""The trace of a timeline: what it shows, and what viewers require of it."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from meshwright.formats import perfetto
from meshwright.schedule import SCHEDULES, Timeline, get, timeline_of_order


def example(name: str, send_s: float) -> Timeline:
    v = 2 if get(name).chunks(7) == 7 else 1
    schedule = get(name)
    return timeline_of_order(
        schedule.order(4, 8, v),
        schedule.placement(4, v),
        [(0.1, 0.13, 1 / 7)] * (4 * int(schedule.chunks(v))),
        send_s,
    )


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("send_s", [0.0, 0.003, 0.9])
def test_slices_of_a_track_do_not_overlap(name: str, send_s: float) -> None:
    trace = json.loads(json.dumps(perfetto.write_trace(example(name, send_s))))
    tracks = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] > 0
            tracks[event["pid"], event["tid"]].append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for slices in tracks.values():
        # 0.1 ns of rounding
        assert all(
            after[0] >= before[1] - 1e-4
            for before, after in pairwise(sorted(slices))
        )
    names = {
        (e["pid"], e["tid"])
        for e in trace["traceEvents"]
        if e["name"] == "thread_name"
    }
    assert names == set(tracks)


def test_every_action_and_every_message_is_there() -> None:
    result = example("zbv", 0.9)
    trace = perfetto.write_trace(result, "ZB-V")
    events = trace["traceEvents"]
    computed = [e for e in events if e["ph"] == "X" and e["tid"] == 0]
    assert len(computed) == sum(map(len, result.order)) == 4 * 8 * 2 * 3
    assert sum(e["dur"] for e in computed if e["pid"] == 2) == pytest.approx(
        1e6 * result.busy_s[2], abs=1
    )
    assert max(e["ts"] + e["dur"] for e in computed) == pytest.approx(
        1e6 * result.makespan_s, abs=1e-3
    )
    assert (
        computed[0]["args"] == {"stage": 0, "chunk": 0, "microbatch": 0}
        and computed[0]["cat"] == "forward"
    )
    starts, ends = (
        {e["id"]: e for e in events if e["ph"] == ph} for ph in "sf"
    )
    assert (
        starts.keys() == ends.keys()
        and len(starts) == len(result.sends) == 2 * 8 * 6
    )
    assert {(starts[k]["pid"], ends[k]["pid"]) for k in starts} == {
        (a, b) for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4
    }
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    # arrows have ends
    assert all(
        (e["pid"], e["tid"], e["ts"]) in slices
        for e in [*starts.values(), *ends.values()]
    )
    assert trace["otherData"]["title"] == "ZB-V"


def test_streams_and_ranks_have_names() -> None:
    events = perfetto.write_trace(example("1f1b", 0.9))["traceEvents"]
    threads = {
        (e["pid"], e["args"]["name"])
        for e in events
        if e["name"] == "thread_name"
    }
    assert {
        (0, "compute"),
        (0, "send"),
        (0, "send 2"),
        (0, "receive"),
        (3, "compute"),
    } <= threads
    assert {
        e["args"]["name"] for e in events if e["name"] == "process_name"
    } == {f"rank {r}" for r in range(4)}


def test_free_sends_are_not_drawn() -> None:
    assert {
        e["tid"]
        for e in perfetto.write_trace(example("gpipe", 0.0))["traceEvents"]
    } == {0}
