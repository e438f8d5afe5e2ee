"""The page under load, and how long it takes to redraw.

    python benchmarks/page.py load --seconds 60       20 clients with mixed requests: errors, latency, memory
    python benchmarks/page.py leave                   CPU seconds spent for an asker who has left
    python benchmarks/page.py typing --on 1024xh100-sxm   Chromium: milliseconds from a key to the answer

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
from collections.abc import Iterator
from contextlib import contextmanager
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
    """(MiB of memory, CPU seconds) of a process."""
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
    link.request(
        "POST",
        f"/api/{name}",
        json.dumps(body),
        {"content-type": "application/json"},
    )
    reply = link.getresponse()
    found = reply.status, reply.read()
    link.close()
    return found


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


def load(seconds: float) -> None:
    """Many clients at once."""
    with served() as (process, host, port):
        post(host, port, "plan", {"question": SMALL})
        before, end = usage(process.pid), time.monotonic() + seconds
        took: dict[str, list[float]] = defaultdict(list)
        statuses: Counter[tuple[str, int]] = Counter()

        def client(seed: int) -> None:
            draw = random.Random(seed)
            while time.monotonic() < end:
                name, body = mixed(draw)
                start = time.monotonic()
                try:
                    status, _ = post(host, port, name, body)
                except OSError as error:
                    status = -1
                    print(name, error)
                took[name].append(time.monotonic() - start)
                statuses[name, status] += 1

        threads = [
            threading.Thread(target=client, args=(seed,))
            for seed in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = usage(process.pid)
    print(
        f"{sum(statuses.values())} requests of {CLIENTS} clients in {seconds:g} s, load {os.getloadavg()}"
    )
    for (name, status), count in sorted(statuses.items()):
        print(f"  {name:10} {status} {count:6}")
    for name, times in sorted(took.items()):
        times.sort()
        print(
            f"  {name:10} median {statistics.median(times):.3f} s, 95 % {times[int(len(times) * 0.95)]:.3f} s"
        )
    print(
        f"  memory {before[0]:.0f} -> {after[0]:.0f} MiB, {after[1] - before[1]:.0f} CPU-s"
    )


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


def typing(model: str, on: str, keys: int) -> None:
    """From a changed field to the layout shown predicted again, and to the new best."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with served() as (process, host, port), sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = browser.new_page()
        start = time.monotonic()
        tab.goto(
            f"http://{host}:{port}/#v=1&view=plan&model={model}&on={on}&batch=4Mi&tokens=15T"
        )
        while tab.evaluate("document.body.dataset.drawn") is None:
            time.sleep(0.005)
        print(
            f"first draw {1e3 * (time.monotonic() - start):.0f} ms, by the page {tab.evaluate('meshwright.timings[0][1]'):.0f} ms"
        )
        predicted, planned, spent = [], [], []
        for k in range(keys):
            tab.evaluate("meshwright.timings.length = 0")
            _, before = usage(process.pid)
            tab.fill("#q-batch", f"{256 + 32 * (k + 1)}seq")
            while "plan" not in (
                seen := dict(tab.evaluate("meshwright.timings"))
            ):
                time.sleep(0.005)
            spent.append(usage(process.pid)[1] - before)
            planned.append(seen["plan"])
            predicted += [seen["predict"]] if "predict" in seen else []
        browser.close()
    for name, times in (("predicted again", predicted), ("new best", planned)):
        if times:
            times.sort()
            print(
                f"{name}: median {statistics.median(times):.0f} ms, 95 % {times[int(len(times) * 0.95)]:.0f} ms ({len(times)})"
            )
    print(
        f"CPU of the server for each: median {1e3 * statistics.median(spent):.0f} ms; load {os.getloadavg()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("load", "leave", "typing"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--model", default="llama3-70b")
    parser.add_argument("--on", default="1024xh100-sxm")
    parser.add_argument("--keys", type=int, default=20)
    given = parser.parse_args()
    if given.what == "load":
        load(given.seconds)
    elif given.what == "leave":
        leave()
    else:
        typing(given.model, given.on, given.keys)


if __name__ == "__main__":
    main()
