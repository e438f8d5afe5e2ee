"""The page under load, and how long it takes to redraw.

    python benchmarks/page.py load --seconds 60       20 clients with mixed requests, fair and foul: errors, latency, memory
    python benchmarks/page.py fuzz --seconds 120      bodies by the interface's own description (needs schemathesis)
    python benchmarks/page.py leave                   CPU seconds spent for an asker who has left
    python benchmarks/page.py typing --on 1024xh100-sxm   Chromium: milliseconds from a key to the answer
    python benchmarks/page.py slow                        Chromium on slow 3G (400 kbit/s, 400 ms): bytes, seconds to the first answer
    python benchmarks/page.py picture                     Chromium: docs/images/page.png anew

Seconds on the clock say little on a machine that does other things; load averages are printed too.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

CLIENTS = 20
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]
SMALL = {"model": "llama3-8b", "on": "16xh100-sxm", "batch": "64seq"}
LAYOUT = {"tp": 2, "pp": 2, "zero": 1}
FUZZED = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method"
)
"""What schemathesis checks; that words of the right type are refused by their meaning is no failure."""
JSON = {"content-type": "application/json"}
WATCH = """() => {
    window.drawn = [];
    new MutationObserver(() => {
        const what = document.body.dataset.drawn;
        const entry = [what, performance.now(), 0];
        window.drawn.push(entry);
        requestAnimationFrame(() => setTimeout(() => { entry[2] = performance.now(); }));
    }).observe(document, { subtree: true, attributeFilter: ["data-drawn"] });
}"""
"""Notes what is drawn, when, and when its frame is shown."""
FIRST = """async () => {
    while (!window.drawn?.some((entry) => entry[0] === "plan" && entry[2]))
        await new Promise((go) => setTimeout(go, 10));
    return window.drawn.find((entry) => entry[0] === "plan").slice(1);
}"""
"""Milliseconds from navigation to the first best layout: drawn, and its frame shown."""
TYPE = """async (text) => {
    const field = document.getElementById("q-batch");
    window.drawn.length = 0;
    const start = performance.now();
    field.value = text;
    field.dispatchEvent(new Event("input"));
    while (!window.drawn.some((entry) => entry[0] === "plan" && entry[2]))
        await new Promise((go) => setTimeout(go, 10));
    return window.drawn.map(([what, at, seen]) => [what, [at - start, seen - start]]);
}"""
"""A key, and what was drawn until nothing changes the best any more: milliseconds to the drawing
and to its frame.
"""


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """(process, host, port) of a server of its own."""
    command = [sys.executable, "-m", "meshwright", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = process.stderr.readline()
    found = re.search(r"http://([\d.]+):(\d+)/", line)
    if not found:
        sys.exit(line or "the server did not start")
    try:
        yield process, found[1], int(found[2])
    finally:
        process.terminate()
        process.wait(10)


def usage(pid: int) -> tuple[float, float]:
    """(MiB of memory, CPU seconds) of a process and of those that it started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(one) for path in lists for one in path.read_text().split()]
    each = [_usage(one) for one in (pid, *children)]
    return sum(memory for memory, _ in each), sum(cpu for _, cpu in each)


def _usage(pid: int) -> tuple[float, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    resident = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return resident, (int(times[11]) + int(times[12])) / os.sysconf(
        "SC_CLK_TCK"
    )


def post(
    host: str, port: int, name: str, body: object, timeout: float = 120.0
) -> tuple[int, bytes]:
    """(status, body) of one request."""
    link = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        link.request("POST", f"/api/{name}", json.dumps(body), JSON)
        reply = link.getresponse()
        return reply.status, reply.read()
    finally:
        link.close()


def mixed(draw: random.Random) -> tuple[str, object]:
    """A request as people make them: mostly predictions and plans, each of its own."""
    question = {**SMALL, "batch": f"{draw.randrange(16, 512) * 4}seq"}
    asked = {"question": question}
    return draw.choice(
        [
            ("predict", {**asked, "layout": LAYOUT}),
            ("predict", {**asked, "layout": LAYOUT}),
            ("predict", {**asked, "layout": LAYOUT}),
            ("plan", {**asked, "families": False}),
            ("plan", {"question": {**question, "pp": "1"}, "families": False}),
            ("beside", {**asked, "layout": LAYOUT}),
            ("copies", asked),
            ("nearest", asked),
            ("runs", {}),
            ("timeline", {**asked, "layout": LAYOUT}),
            ("predict", {"question": {**question, "batch": "nonsense"}}),
        ]
    )


@dataclass(frozen=True)
class Foul:
    """A request that nobody should make, and what it must be told."""

    name: str
    status: int
    path: str = "/api/predict"
    method: str = "POST"
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


FOUL = (
    Foul("10 MB", 413, body=b" " * 10_000_000),
    Foul("10 MB in chunks", 413, headers={"transfer-encoding": "chunked"}),
    Foul("deep lists", 422, body=b"[" * 500_000),
    Foul("deep objects", 422, body=b'{"a":' * 150_000),
    Foul("deep question", 422, body=b'{"question":' + b"[" * 90_000),
    Foul("no JSON", 422, body=b"\xff\xfe"),
    Foul("a list", 422, body=b"[1]"),
    Foul(
        "digits", 422, body=b'{"question": {"batch": "' + b"9" * 900 + b'"}}'
    ),
    Foul("number", 422, body=b'{"layout": {"tp": 1' + b"0" * 5_000 + b"}}"),
    Foul("path", 404, path="/../../etc/passwd", method="GET"),
    Foul("coded path", 404, path="/%2e%2e/%2e%2e/etc/passwd", method="GET"),
    Foul("zero in path", 404, path="/api/%00", method="POST"),
    Foul("long path", 404, path="/" + "a" * 20_000, method="GET"),
    Foul("method", 405, method="DELETE"),
    Foul("no JSON type", 415, headers={"content-type": "text/plain"}),
    Foul("foreign host", 421, headers={"host": "example.org"}),
    Foul("foreign origin", 403, headers={"origin": "http://example.org"}),
    Foul("foreign site", 403, headers={"sec-fetch-site": "cross-site"}),
)


def foul(host: str, port: int, one: Foul) -> int:
    """The status of a foul request; 0 where the server hung up before it was told all."""
    link = http.client.HTTPConnection(host, port, timeout=120.0)
    body: object = one.body
    headers = {**JSON, **one.headers}
    if chunked := "transfer-encoding" in headers:
        body = (b" " * 100_000 for _ in range(100))
    try:
        # refused before it was sent to its end: the answer is there
        with suppress(BrokenPipeError, ConnectionResetError):
            link.request(
                one.method, one.path, body, headers, encode_chunked=chunked
            )
        reply = link.getresponse()
        said = json.loads(reply.read())
        assert {*said} == {"error"} and "\n" not in said["error"], said
        return reply.status
    except (ConnectionResetError, http.client.RemoteDisconnected):
        return 0
    finally:
        link.close()


def left(host: str, port: int, draw: random.Random) -> None:
    """A search that nobody waits for."""
    question = {
        "model": "llama3-70b",
        "on": "512xh100-sxm",
        "batch": f"{draw.randrange(64, 512) * 8}seq",
    }
    link = http.client.HTTPConnection(host, port, timeout=120.0)
    link.request("POST", "/api/plan", json.dumps({"question": question}), JSON)
    time.sleep(draw.uniform(0.0, 0.5))
    link.close()


class Load:
    """What many clients at once were told."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self.host, self.port = host, port
        self.end = time.monotonic() + seconds
        self.took: dict[str, list[float]] = defaultdict(list)
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.wrong: list[str] = []

    def client(self, seed: int) -> None:
        """One client until the end: mostly fair requests, some foul, some left."""
        draw = random.Random(seed)
        while time.monotonic() < self.end:
            try:
                share = draw.random()
                if share < 0.1:
                    self.foul(draw.choice(FOUL))
                elif share < 0.12:
                    left(self.host, self.port, draw)
                    self.statuses["(left)", 0] += 1
                else:
                    self.fair(*mixed(draw))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                self.wrong.append(f"{type(error).__name__}: {error}")

    def fair(self, name: str, body: object) -> None:
        """A request as people make them."""
        start = time.monotonic()
        status, said = post(self.host, self.port, name, body)
        self.took[name].append(time.monotonic() - start)
        self.statuses[name, status] += 1
        if status not in (200, 422):
            self.wrong.append(f"{name}: {status} {said[:200]!r}")

    def foul(self, one: Foul) -> None:
        """A request that nobody should make."""
        status = foul(self.host, self.port, one)
        self.statuses[f"({one.name})", status] += 1
        if status not in (one.status, 0):
            self.wrong.append(f"{one.name}: {status}, not {one.status}")


def load(seconds: float) -> int:
    """Many clients at once; 1 if one of them was answered wrongly."""
    with served() as (process, host, port):
        post(host, port, "plan", {"question": SMALL})
        before = usage(process.pid)
        run = Load(host, port, seconds)
        threads = [
            threading.Thread(target=run.client, args=(seed,))
            for seed in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        memory = [before[0]]
        while any(thread.is_alive() for thread in threads):
            time.sleep(5.0)
            memory.append(usage(process.pid)[0])
        time.sleep(3.0)
        after = usage(process.pid)
        time.sleep(3.0)
        idle = usage(process.pid)[1] - after[1]
    print(
        f"{sum(run.statuses.values())} requests of {CLIENTS} clients in"
        f" {seconds:g} s, load {os.getloadavg()}"
    )
    for (name, status), count in sorted(run.statuses.items()):
        print(f"  {name:20} {status} {count:6}")
    for name, times in sorted(run.took.items()):
        print(f"  {name:10} {spread(times)}")
    print(f"  memory (MiB): {', '.join(f'{m:.0f}' for m in memory)}")
    print(f"  {after[1] - before[1]:.0f} CPU-s; afterwards {idle:.2f} in 3 s")
    print(f"  wrong: {len(run.wrong)}", *run.wrong[:10], sep="\n    ")
    return bool(run.wrong)


def fuzz(seconds: float, only: str) -> int:
    """Bodies and methods that the description of the interface makes."""
    with served() as (process, host, port):
        command = [
            *("schemathesis", "run", f"http://{host}:{port}/openapi.json"),
            *("--include-path-regex", only, "--checks", FUZZED),
            *("--max-time", f"{seconds:.0f}", "--request-timeout", "70"),
            *("--continue-on-failure", "--max-examples", "25"),
        ]
        status = subprocess.run(command).returncode
        print(f"memory {usage(process.pid)[0]:.0f} MiB")
    return status


def spread(times: list[float]) -> str:
    """Median and 95th percentile."""
    ordered = sorted(times)
    late = ordered[int(len(ordered) * 0.95)]
    return f"median {statistics.median(ordered):.3f} s, 95 % {late:.3f} s"


def leave() -> None:
    """An asker who leaves after 0.3 s, beside one who waits."""
    body = {
        "question": {
            "model": "deepseek-v3",
            "on": "2048xh100-sxm",
            "batch": "4Mi",
        }
    }
    with served() as (process, host, port):
        for stays in (True, False):
            body["question"]["tokens"] = (
                f"{10 + stays}T"  # none was answered before
            )
            _, start = usage(process.pid)
            link = http.client.HTTPConnection(host, port, timeout=120)
            link.request(
                "POST",
                "/api/plan",
                json.dumps(body),
                {"content-type": "application/json"},
            )
            if stays:
                link.getresponse().read()
            else:
                time.sleep(0.3)
            link.close()
            quiet = usage(process.pid)[1]
            while True:
                time.sleep(1.0)
                now = usage(process.pid)[1]
                if now - quiet < 0.05:
                    break
                quiet = now
            print(f"{'stays' if stays else 'leaves'}: {now - start:.2f} CPU-s")


def typing(model: str, on: str, keys: int, pause: float, by: int) -> None:
    """From a changed field to the layout shown predicted again, to the new best by closed forms, and
    to the best of all, pipelines replayed and fewer chips tried."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with served() as (process, host, port), sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page()
        tab.add_init_script(f"({WATCH})()")
        tab.goto(
            f"http://{host}:{port}/#v=1&view=plan&model={model}&on={on}&batch=4Mi&tokens=15T",
            wait_until="commit",
        )
        first = tab.evaluate(FIRST)
        drawn: dict[str, list[tuple[float, float]]] = defaultdict(list)
        spent = []
        for k in range(keys):
            time.sleep(pause)
            _, before = usage(process.pid)
            seen = tab.evaluate(TYPE, f"{256 + by * (k + 1)}seq")
            spent.append(usage(process.pid)[1] - before)
            for what, (at, shown) in seen:
                drawn[what].append((at, shown or at))
        browser.close()
    print("first draw {:.0f} ms, shown {:.0f} ms".format(*first))
    for what, name in (
        ("predict", "predicted again"),
        ("closed", "new best by closed forms"),
        ("plan", "replayed, on fewer chips too"),
    ):
        if times := drawn[what]:
            at, shown = zip(*times, strict=True)
            print(f"{name} ({len(times)}): {late(at)}; shown {late(shown)}")
    print(
        f"CPU of the server for each: median {1e3 * statistics.median(spent):.0f} ms; load {os.getloadavg()}"
    )


SLOW = {
    "offline": False,
    "latency": 400,
    "downloadThroughput": 50_000,
    "uploadThroughput": 50_000,
}
"""Slow 3G: milliseconds before each answer, bytes a second."""


def slow() -> None:
    """From an empty cache to the first answer and to the choices around it, over a slow link."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with served() as (_, host, port), sync_playwright() as p:
        time.sleep(5.0)  # the first answer stands in the first file by then
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page()
        tab.add_init_script(f"({WATCH})()")
        link = tab.context.new_cdp_session(tab)
        link.send("Network.enable")
        link.send("Network.emulateNetworkConditions", SLOW)
        names: dict[str, str] = {}
        link.on(
            "Network.requestWillBeSent",
            lambda e: names.update({e["requestId"]: e["request"]["url"]}),
        )
        link.on(
            "Network.loadingFinished",
            lambda e: print(
                f"{e['encodedDataLength']:9.0f} bytes {names[e['requestId']]}"
            ),
        )
        tab.goto(f"http://{host}:{port}/", wait_until="commit")
        drawn, shown = tab.evaluate(FIRST)
        time.sleep(10.0)
        entries = {what: at for what, at, _ in tab.evaluate("window.drawn")}
        print(
            f"first answer drawn {drawn:.0f} ms, shown {shown:.0f} ms; choices"
            f" around it {entries.get('beside', 0.0):.0f} ms"
        )
        browser.close()


PICTURE = Path(__file__).parents[1] / "docs" / "images" / "page.png"


def picture(model: str, on: str) -> None:
    """The first screen of the page, as README.md and docs/page.md show it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with served() as (_, host, port), sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page(viewport={"width": 1262, "height": 764})
        tab.add_init_script(f"({WATCH})()")
        tab.goto(
            f"http://{host}:{port}/#v=1&view=plan&model={model}&on={on}&batch=4Mi&tokens=15T"
        )
        tab.evaluate(FIRST)
        tab.screenshot(path=PICTURE)
        browser.close()


def late(times: Iterable[float]) -> str:
    """Median and 95th percentile of milliseconds."""
    ordered = sorted(times)
    last = ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
    return f"median {statistics.median(ordered):.0f} ms, 95 % {last:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what",
        choices=("load", "fuzz", "leave", "typing", "slow", "picture"),
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--only", default="", help="of fuzz: a pattern of paths"
    )
    parser.add_argument("--model", default="llama3-70b")
    parser.add_argument("--on", default="1024xh100-sxm")
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument(
        "--by",
        type=int,
        default=32,
        help="sequences from one batch to the next; of 2 few share divisors with the chips",
    )
    parser.add_argument(
        "--pause",
        type=float,
        default=0.0,
        help="seconds from an answer to the next key",
    )
    given = parser.parse_args()
    if given.what == "load":
        sys.exit(load(given.seconds))
    elif given.what == "fuzz":
        sys.exit(fuzz(given.seconds, given.only))
    elif given.what == "leave":
        leave()
    elif given.what == "slow":
        slow()
    elif given.what == "picture":
        picture(given.model, given.on)
    else:
        typing(given.model, given.on, given.keys, given.pause, given.by)


if __name__ == "__main__":
    main()
