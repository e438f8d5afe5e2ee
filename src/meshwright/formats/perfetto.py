"""Chrome trace JSON of a timeline, for ui.perfetto.dev, chrome://tracing and the tools that read
profiler traces (write only).

A process is a rank; its threads are streams: compute, send, receive. Two slices of one thread never
overlap, which the format forbids: messages under way at once get threads of their own, "send 2" and
so on. Arrows (flow events) lead from a message at its sender to the same one at its receiver. Times
are in microseconds, rounded to nanoseconds; sends that take no time are left out.

Source: "Trace Event Format" (Google, 2016): ph X complete event, M metadata, s and f flow; Perfetto
documentation, "Other formats".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..schedule.timeline import Send, Timeline

Event = dict[str, Any]
CATEGORY = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
}
STREAMS = ("compute", "send", "receive")
LANES = 1000
"""Thread ids of one stream: compute 0, send 1000 ..., receive 2000 ..."""


def write_trace(
    timeline: Timeline, title: str = "pipeline schedule"
) -> dict[str, Any]:
    """The trace as a JSON object; `json.dump` it into a .json file."""
    return write_all({"": timeline}, title)


def write_all(timelines: Mapping[str, Timeline], title: str) -> dict[str, Any]:
    """Several timelines in one trace, one below the other: the processes of each begin with its
    name.
    """
    events = list[Event]()
    names = list[Event]()
    first = 0
    for name, timeline in timelines.items():
        rows = _events(timeline)
        flows = len(events)
        threads = sorted({(event["pid"], event["tid"]) for event in rows})
        for event in (*_names(threads, name), *rows):
            event["pid"] += first
            if "id" in event:
                event["id"] += (
                    flows  # no two arrows of one trace share a number
                )
            if event["name"] == "process_sort_index":
                event["args"]["sort_index"] += first
            (names if event["ph"] == "M" else events).append(event)
        first += len(timeline.order)
    one = next(iter(timelines.values()))
    return {
        "traceEvents": [*names, *events],
        "displayTimeUnit": "ms",
        "otherData": {
            "title": title,
            "makespan_s": one.makespan_s,
            "bubble_fraction": one.bubble_fraction,
        },
    }


def _events(timeline: Timeline) -> list[Event]:
    """Slices and arrows of one timeline."""
    sends = [send for send in timeline.sends if send.end_s > send.start_s]
    sent = _lanes([(send.sender, send) for send in sends])
    received = _lanes([(send.receiver, send) for send in sends])
    events = [*_computed(timeline)]
    for flow, (send, out, into) in enumerate(
        zip(sends, sent, received, strict=True)
    ):
        events.extend(_message(send, flow, LANES + out, 2 * LANES + into))
    return events


def _computed(timeline: Timeline) -> Iterator[Event]:
    """A slice for each action."""
    for rank, actions in enumerate(timeline.order):
        times = zip(
            actions,
            timeline.stages[rank],
            timeline.start_s[rank],
            timeline.end_s[rank],
            strict=True,
        )
        for action, stage, start, end in times:
            args = {
                "stage": stage,
                "chunk": action.chunk,
                "microbatch": action.microbatch,
            }
            name = f"{action.kind} {action.microbatch}"
            yield _slice(
                name,
                CATEGORY[action.kind],
                rank,
                tid=0,
                start_s=start,
                end_s=end,
                args=args,
            )


def _message(send: Send, flow: int, out: int, into: int) -> Iterator[Event]:
    """The message at both ends, and the arrow between them."""
    name = f"{send.kind} {send.microbatch}"
    args = {"from": send.sender, "to": send.receiver, "stage": send.stage}
    for end, rank, tid in (
        ("send", send.sender, out),
        ("receive", send.receiver, into),
    ):
        yield _slice(
            name,
            end,
            rank,
            tid=tid,
            start_s=send.start_s,
            end_s=send.end_s,
            args=args,
        )
    arrow = {
        "name": name,
        "cat": "message",
        "id": flow,
        "ts": _microseconds(send.start_s),
    }
    yield {**arrow, "ph": "s", "pid": send.sender, "tid": out}
    yield {**arrow, "ph": "f", "bp": "e", "pid": send.receiver, "tid": into}


def _slice(
    name: str,
    category: str,
    pid: int,
    tid: int,
    start_s: float,
    end_s: float,
    args: Event,
) -> Event:
    begin = _microseconds(start_s)
    length = round(_microseconds(end_s) - begin, 3)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": length,
        "args": args,
    }


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _lanes(messages: list[tuple[int, Send]]) -> list[int]:
    """For each (rank, message), ascending by start, the first of the rank's lanes that is free by
    then.
    """
    free: dict[
        int, list[float]
    ] = {}  # rank -> when each of its lanes is free again
    taken = []
    for rank, send in messages:
        lanes = free.setdefault(rank, [])
        lane = next(
            (
                k
                for k, until in enumerate(lanes)
                if until <= _microseconds(send.start_s)
            ),
            len(lanes),
        )
        lanes[lane : lane + 1] = [_microseconds(send.end_s)]
        taken.append(lane)
    return taken


def _names(threads: list[tuple[int, int]], of: str) -> Iterator[Event]:
    """Names of ranks and streams, and their order from top to bottom."""
    for rank in sorted({pid for pid, _ in threads}):
        for key, args in (
            ("process_name", {"name": f"{of} rank {rank}".strip()}),
            ("process_sort_index", {"sort_index": rank}),
        ):
            yield {"name": key, "ph": "M", "pid": rank, "tid": 0, "args": args}
    for pid, tid in threads:
        stream = STREAMS[tid // LANES]
        lane = tid % LANES
        name = f"{stream} {lane + 1}" if lane else stream
        for key, args in (
            ("thread_name", {"name": name}),
            ("thread_sort_index", {"sort_index": tid}),
        ):
            yield {
                "name": key,
                "ph": "M",
                "pid": pid,
                "tid": tid,
                "args": args,
            }
