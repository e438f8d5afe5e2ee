"""The page over HTTP: the same numbers as the command, and a sentence for everything else."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import time
import zlib
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")

import anyio  # noqa: E402
from asking import QUESTION, Client, ask, call  # noqa: E402

from meshwright import BadInput
from meshwright.cli.serve import bound
from meshwright.describe.fields import fields_of
from meshwright.describe.layout import SCHEMES, Layout
from meshwright.limits.simulate import Machine
from meshwright.prediction import certainty
from meshwright.web import app as web
from meshwright.web import changes, page
from meshwright.web.app import app
from meshwright.web.endpoints import Endpoint, endpoints, openapi
from meshwright.web.explorers import scenario
from meshwright.web.guard import LARGEST_BODY, POLICY
from meshwright.web.prices import with_price
from meshwright.web.question import OPENING
from meshwright.web.question import ask as job_and_space
from meshwright.web.work import Asking, Stopped
from shell import Shell

ASKED = "llama3-8b --on 8xh100-sxm --batch 64seq"
"""The question as a line."""


def test_the_page_and_the_command_say_the_same(shell: Shell) -> None:
    line = f"{ASKED} --tokens 1T"
    question = {**QUESTION, "tokens": "1T"}
    mine = ask("plan", {"question": question, "top": 10}).json
    theirs = shell.json("plan", line)
    for name in ("rejected", "searched", "feasible", "notes"):
        assert mine[name] == theirs[name]
    assert any("critical batch" in note for note in mine["notes"])
    assert {key: mine["best"][key] for key in theirs["best"]} == theirs["best"]
    assert [f["name"] for f in mine["families"]] == [
        f["name"] for f in theirs["families"]
    ]


UNDEALT = {"model": "llama3-8b", "on": "24xh100-sxm", "batch": "1M"}
"""With a batch that no layout deals."""


@pytest.mark.parametrize(
    ("name", "question", "layout", "line"),
    [
        (
            "predict",
            {**QUESTION, "tokens": "1T"},
            {"tp": 2, "zero": 1},
            f"{ASKED} --tokens 1T --tp 2 --dp 4 --zero 1",
        ),
        (
            "predict",
            {**QUESTION, "tp": "2", "zero": "1"},
            None,
            f"{ASKED} --tp 2 --dp 4 --zero 1",
        ),
        (
            "timeline",
            QUESTION,
            {"tp": 1, "pp": 4, "zero": 1},
            f"{ASKED} --dp 2 --pp 4 --zero 1",
        ),
        *(
            (
                "roofline",
                UNDEALT | more,
                None,
                " ".join(
                    (
                        "llama3-8b --on 24xh100-sxm --batch 1M",
                        *(f"--{key} {text}" for key, text in more.items()),
                    )
                ),
            )
            for more in (
                {},
                {"precision": "fp8"},
                {"assumptions": "scaling-book-max"},
            )
        ),
    ],
)
def test_an_answer_is_that_of_the_command(
    shell: Shell,
    name: str,
    question: dict[str, str],
    layout: dict[str, int] | None,
    line: str,
) -> None:
    body = {"question": question} | ({"layout": layout} if layout else {})
    page = ask(name, body).json
    command = shell.json(f"{name} {line}")
    assert command == {key: page[key] for key in command}
    if name == "timeline":
        busy = [sum(a[4] - a[3] for a in rank) for rank in page["actions"]]
        assert busy == pytest.approx(page["busy_s"])


def test_streams_give_a_line_for_each_part() -> None:
    rest = {
        "pp": "1",
        "cp": "1",
        "schedule": "1f1b",
        "recompute": "none",
        "microbatch": "1",
    }
    question = {**QUESTION, **rest}
    body = {"question": question, "layout": {"tp": 1, "zero": 1}}
    lines = ask("choices", body).lines
    tensor = {
        line["value"]: line["step_time_s"]
        for line in lines
        if line["field"] == "tp"
    }
    assert set(tensor) == {2, 4, 8}
    pinned = ask("plan", {"question": {**question, "tp": "4"}}).json
    assert tensor[4] == pytest.approx(pinned["best"]["step_time_s"], rel=1e-12)
    assert not {line["field"] for line in lines} & {*rest}, (
        "what is fixed is not asked again"
    )


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("clusters", {"question": QUESTION, "clusters": [3]}),
        ("clusters", {"clusters": ["8xh100-sxm"], "prices": {"b200": "x"}}),
        ("what_if", {"question": {**QUESTION, "batch": "nonsense"}}),
        ("choices", {"question": QUESTION, "layout": {"tp": [2]}}),
        ("predict", {"question": {**QUESTION, "tp": "2,4"}}),
        ("limits", {"scenarios": ["nowhere"]}),
        ("limits", {"scenarios": ["h100"], "factors": {"chip": True}}),
    ],
)
def test_a_wrong_question_is_refused_before_the_first_line(
    name: str, body: dict
) -> None:
    assert ask(name, body).refused


def test_only_networks_that_join_something_are_changed() -> None:
    job, _ = job_and_space(QUESTION, [])
    names = [change.name for change in changes.changes_of(job)]
    assert names[:2] == [
        "twice nvlink",
        "half nvlink",
    ]
    assert not [name for name in names if " ib" in name]


def test_what_if_is_a_plan_of_the_changed_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More chips keep the network, other chips come on their own, in the question too."""
    every = changes.changes_of
    wanted = ("16 chips", "h200", "memory \N{MINUS SIGN}10 %")
    monkeypatch.setattr(
        changes,
        "changes_of",
        lambda job: [c for c in every(job) if c.name in wanted],
    )
    question = {**QUESTION, "network": "ethernet-100g", "tp": "8", "pp": "1"}
    found = {
        line["name"]: line
        for line in ask("what_if", {"question": question}, app()).lines
    }
    assert [found[name]["set"] for name in wanted] == [
        {"on": "16xh100-sxm"},
        {"on": "8xh200", "network": ""},
        {},
    ]
    more = {**question, **found["16 chips"]["set"]}
    plan = ask("plan", {"question": more, "top": 5}, app()).json
    # the fastest over its chance to fit: a plan answers with the simplest of its ties
    every_plan = [{"slower": 0.0, **plan["best"]}, *plan["alternatives"]]
    fastest = min(every_plan, key=lambda p: p["slower"])
    assert found["16 chips"]["step_time_s"] == fastest["step_time_s"]


def test_scaling_is_a_plan_at_each_size_up_to_where_chips_are_wasted() -> None:
    """Twice as many each time, until one does less than half of its best."""
    question = {**QUESTION, "recompute": "none", "zero": "1", "tokens": "1T"}
    body = {"question": question, "prices": {"h100-sxm": 3.0}}
    rows = ask("scaling", body).lines
    assert [row["chips"] for row in rows] == [2**k for k in range(len(rows))]
    good = [row for row in rows if "why" not in row]
    assert len(good) < len(rows), "one chip is too few"
    rates = [row["tokens_per_s_per_chip"] for row in good]
    assert rates[-1] < 0.5 * max(rates) <= min(rates[:-1]) * 1.0
    at = good[2]["chips"]
    for row in good:
        assert row["cost_usd"] == pytest.approx(3.0 * row["chip_hours"])
    pinned = {**question, "on": f"{at}xh100-sxm"}
    one = ask("plan", {"question": pinned, "top": 5}).json
    every = [one["best"], *one["alternatives"]]
    steps = [p["step_time_s"] for p in every]
    assert good[2]["step_time_s"] in steps


def test_a_plan_tells_up_to_where_layouts_are_a_tie() -> None:
    """Also where one layout is asked for: of the fastest, which need not be the answer."""
    big = {"model": "llama3-70b", "on": "1024xh100-sxm", "batch": "4Mi"}
    question = {**big, "recompute": "none", "microbatch": "1"}
    body = {"question": question, "families": False}
    many = ask("plan", {**body, "top": 10}).json
    one = ask("plan", {**body, "top": 1}).json
    assert one["tie_s"] == many["tie_s"] and one["alternatives"] == []
    assert min(row["slower"] for row in many["alternatives"]) < 0
    for row in many["alternatives"]:
        worth = row["replayed_s"] / (1 - row["risk_of_oom"])
        assert row["tie"] == (worth <= many["tie_s"])


def test_a_plan_says_why_its_answer_wins(shell: Shell) -> None:
    """Of ties what is simpler about it; else that it takes least; and what the best of the families
    that are no ties takes more. The command says the same.
    """
    mixtral = {"model": "mixtral-8x7b", "on": "64xh100-sxm", "batch": "4Mi"}
    tie = ask("plan", {"question": mixtral}).json
    fastest = min(tie["alternatives"], key=lambda p: p["slower"])
    assert fastest["slower"] < 0
    assert "of the layouts within 6 % of the fastest" in tie["why"]
    assert re.search(r"the one with [a-z -]+ \(fastest: ", tie["why"])
    clear = [f for f in tie["families"] if f["slower"] > 0 and not f["tie"]]
    nearest = min(clear, key=lambda f: f["slower"])
    assert f"the next family ({nearest['name']})" in tie["why"]
    assert f"takes {100 * nearest['slower']:+.1f} %" in tie["why"]
    least = ask("plan", {"question": QUESTION}).json
    assert least["best"] and not any(
        p["slower"] < 0 for p in least["alternatives"]
    )
    assert "best risk-adjusted time of all layouts searched" in least["why"]
    said = " ".join(shell("plan", ASKED, "--why").out.split())
    assert least["why"].split(":")[1][:40] in said


def test_runs_of_the_class_of_a_question_are_told() -> None:
    """Those on which its interval rests: as many as the evidence counts, among all runs."""
    found = ask("nearest", {"question": QUESTION}).json
    best = ask("plan", {"question": QUESTION, "top": 1}).json["best"]
    assert found["class"] == best["evidence"]["class"]
    marked = [row for row in found["rows"] if row["of_class"]]
    assert marked and {r["source"] for r in marked} <= {
        *best["evidence"]["sources"]
    }
    of_class = [
        r for r in certainty.evidence_runs() if r.class_ == found["class"]
    ]
    assert len(of_class) == best["evidence"]["rows"]


def test_static_files_are_served_and_nothing_else() -> None:
    for path in ("/", "/page.js", "/style.css", "/single.html"):
        reply = call("GET", path)
        assert reply.status == 200
        assert reply.headers["content-security-policy"] == POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
    for path in (
        "/../app.py",
        "/static/main.js",
        "/main.js",
        "/%2e%2e/app.py",
        "//etc/passwd",
        "/page.js/..",
        "/a\0b",
        "/" + "a" * 5000,
    ):
        reply = call("GET", path)
        assert reply.status == 404
        assert set(reply.json) == {"error"}


def test_the_first_answers_need_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stand in the first file, as the page looks for them, and are those of the interface."""
    small = {"model": "llama3-8b", "on": "8xh100-sxm", "batch": "64seq"}
    monkeypatch.setattr(web, "OPENING", small)
    api, files = web.Api(), web.Files()
    web.warm(api, files)
    held = re.search(
        r'id="known">(.*?)</script>', files.texts["/"].decode(), re.S
    )
    assert held
    found = json.loads(held[1])
    body = {"question": small, "families": False, "top": 1}
    plan = found["answers"][page.key("plan", body)]
    assert page.key("catalogue", {}) in found["answers"]
    assert "state" not in found, "an address that is given holds"
    kept = api.kept.get(web.digest("plan", body))
    assert kept and json.loads(kept) == plan
    beside = {"question": small, "layout": plan["best"]["layout"]}
    assert api.kept.get(web.digest("beside", beside))
    later = ask("plan", body, app()).json["best"]
    assert later["step_time_s"] == plan["best"]["step_time_s"]


def test_the_page_and_the_server_open_with_one_question() -> None:
    state = page.static("state.js")
    said = re.search(r"FIRST = \{\s*view: .*?,(.*?)\};", state, re.DOTALL)
    assert said
    pairs = dict(re.findall(r'(\w+): "([^"]*)"', said[1]))
    assert pairs == OPENING


def test_small_answers_are_sent_at_once() -> None:
    """Else the second half of an answer waits 40 ms for the first to be acknowledged."""
    heard: list[int] = []

    class Told(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            own = transport.get_extra_info("socket")
            heard.append(
                own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            )

    async def ask_once() -> None:
        with bound("127.0.0.1", 0) as listening:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(Told, sock=listening)
            _, link = await asyncio.open_connection(*listening.getsockname())
            while not heard:
                await asyncio.sleep(0.001)
            link.close()
            server.close()

    asyncio.run(ask_once())
    assert heard[0] == 1


def test_only_its_own_host_and_origin_are_answered() -> None:
    body = json.dumps({"question": QUESTION}).encode()

    def status(**headers: str) -> int:
        given = {
            key.replace("_", "-"): value for key, value in headers.items()
        }
        return call("POST", "/api/copies", body, given).status

    assert status() == 200
    assert status(origin="http://localhost:8321") == 200
    assert status(host="127.0.0.1:9") == 200
    assert status(host="[::1]:9") == 200
    assert status(host="evil.example") == 421
    assert status(host="localhost.evil.example:8321") == 421
    assert status(host="") == 421
    assert status(origin="http://evil.example") == 403
    assert status(origin="http://localhost:1") == 403
    assert status(origin="null") == 403
    assert status(sec_fetch_site="cross-site") == 403
    assert status(content_type="text/plain") == 415
    named = app(("box.example",))
    own = {"host": "box.example", "origin": "http://box.example"}
    assert call("POST", "/api/copies", body, own, named).status == 200


def posed(**fields: object) -> bytes:
    """A question with other fields."""
    return json.dumps({"question": {**QUESTION, **fields}}).encode()


BAD = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "nested": b"[" * 100_000,
    "a number too long": b'{"question": ' + b"9" * 6000 + b"}",
    "not a number": posed(batch=float("nan")),
    "no question": b'{"question": 3}',
    "another field": b'{"questions": {}}',
    "top": posed()[:-1] + b', "top": 1000000000}',
    "a truth for a number": posed()[:-1] + b', "top": true}',
    "a list in it": posed(tp=["1"]),
    "a file": posed(model="/etc/passwd"),
    "a script": posed(model="run.sh"),
    "a tree": posed(model="a/b.yaml"),
    "another model": posed(model_="/etc/passwd"),
    "a toml file": posed(model="a.toml"),
    "a machine's file": posed(on="8x/tmp/m.toml"),
    "placement": posed(placement="tp=1"),
    "too large": b" " * (LARGEST_BODY + 1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_sentence(name: str) -> None:
    reply = call("POST", "/api/plan", BAD[name])
    assert reply.status == (413 if name == "too large" else 422)
    assert set(reply.json) == {"error"}
    assert "Traceback" not in reply.json["error"]
    assert 10 < len(reply.json["error"]) < 600


def test_a_body_that_hides_its_length_is_cut_off() -> None:
    body = b" " * (LARGEST_BODY + 1)
    reply = call("POST", "/api/plan", body, {"content-length": "10"})
    assert reply.status == 413


def test_a_config_of_a_job_that_names_a_file_is_refused() -> None:
    text = '[model]\nconfig = "/etc/hostname"\n[cluster]\non = "8xh100-sxm"\n[job]\nbatch = "8seq"\n'
    reply = ask("plan", {"question": {"job": text}})
    assert "files are not read here" in reply.refused


@pytest.mark.parametrize("price", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_called_so(price: str) -> None:
    """JSON has no such numbers, but Python reads them."""
    text = json.dumps({"question": QUESTION, "prices": {"h100-sxm": 0}})
    body = text.replace(": 0}", f": {price}}}").encode()
    reply = call("POST", "/api/plan", body)
    assert re.search(
        "prices.h100-sxm must be a finite number, not (nan|-?inf)$",
        reply.refused,
    )


@pytest.mark.parametrize("streams", [False, True])
def test_an_answer_beyond_numbers_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """Whatever led to it; it was an internal error."""

    def answer(body: object, progress: object) -> dict:
        return {"best": [{"cost_usd": 1.0}, {"cost_usd": float("inf")}]}

    def lines(body: object, progress: object) -> object:
        yield {"first": 1}
        yield answer(body, progress)

    made = Endpoint(lines if streams else answer, streams=streams)
    monkeypatch.setattr(web, "endpoints", lambda runs: {"plan": made})
    reply = ask("plan", {}, app())
    assert reply.status == (200 if streams else 422)
    assert "the answer.best.1.cost_usd" in reply.lines[-1]["error"]
    assert "no finite number" in reply.lines[-1]["error"]


def test_a_body_has_one_length() -> None:
    """Two ways to say where it ends may be read differently by what stands between."""
    both = {"transfer-encoding": "chunked"}
    reply = call("POST", "/api/predict", b"{}", both)
    assert reply.status == 400
    assert "not both" in reply.json["error"]


SMALL = {"accept-encoding": "gzip, br"}


@pytest.mark.parametrize(
    "path, body",
    [
        ("/", None),
        ("/page.js", None),
        ("/openapi.json", None),
        ("/api/catalogue", {}),
        ("/api/plan", {"question": QUESTION, "top": 1}),
    ],
)
def test_what_is_sent_is_compressed_where_the_browser_takes_it(
    path: str, body: object
) -> None:
    method, sent = "GET", b""
    if body is not None:
        method, sent = "POST", json.dumps(body).encode()
    plain = call(method, path, sent)
    small = call(method, path, sent, SMALL)
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in small.headers["vary"].lower()
    assert small.headers["content-length"] == str(len(small.body))
    assert gzip.decompress(small.body) == plain.body
    assert len(small.body) < 0.6 * len(plain.body)


def test_lines_are_sent_one_by_one_compressed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has arrived after each line unpacks to all lines so far."""
    texts = [{"line": i, "rest": "x" * i} for i in range(3)]
    made = Endpoint(lambda body, progress: iter(texts), streams=True)
    monkeypatch.setattr(web, "endpoints", lambda runs: {"plan_lines": made})
    reply = call("POST", "/api/plan_lines", b"{}", SMALL, app())
    assert reply.headers["content-encoding"] == "gzip"
    opened = zlib.decompressobj(16 + zlib.MAX_WBITS)
    lines = [opened.decompress(part) for part in reply.parts]
    assert [json.loads(line) for line in lines if line] == texts
    assert all(line.endswith(b"\n") for line in lines if line)


def test_what_is_pasted_is_read_beside_what_is_quick() -> None:
    """A large text takes seconds: not in the interpreter that answers predictions."""
    asked = endpoints()
    assert asked["predict"].quick and not asked["read"].quick


def stopped(what: str, share: float) -> None:
    """Nobody waits any more."""
    raise Stopped


def test_a_text_is_given_up_when_nobody_waits_for_it() -> None:
    text = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2"
    with pytest.raises(Stopped):
        endpoints()["read"].ask({"text": text}, stopped)


def test_other_methods_and_names() -> None:
    assert call("GET", "/api/nothing").status == 404
    assert call("POST", "/api/nothing", b"{}").status == 404
    for method in ("GET", "DELETE", "TRACE"):
        refused = call(method, "/api/plan")
        assert refused.status == 405, method
        assert refused.headers["allow"] == "POST"


def test_work_stops_when_the_asker_leaves() -> None:
    work = Asking()
    work.progress("", 0.5)
    work.stop.set()
    with pytest.raises(Stopped):
        work.progress("", 0.5)


def test_a_search_stops_at_its_next_round() -> None:
    """Every endpoint that searches hands its progress on."""
    asked = endpoints()
    body = {
        "question": QUESTION,
        "layout": {"tp": 1, "zero": 1},
        "clusters": ["8xh100-sxm"],
    }

    for name in (
        "plan",
        "plan_lines",
        "beside",
        "choices",
        "what_if",
        "clusters",
    ):
        used = {key: body[key] for key in asked[name].fields if key in body}
        with pytest.raises(Stopped):
            found = asked[name].ask(used, stopped)
            list(found)


def test_a_search_lets_what_is_quick_go_first() -> None:
    """A prediction takes milliseconds; beside a search it would take several times as long."""
    api = web.Api()
    seen: list[str] = []

    def told(name: str, seconds: float) -> Endpoint:
        def answer(body: object, progress: object) -> dict:
            time.sleep(seconds)
            seen.append(name)
            return {}

        return Endpoint(answer, quick=name == "predict")

    async def both() -> None:
        async with anyio.create_task_group() as group:
            for name, seconds in (("predict", 0.03), ("plan", 0.0)):
                asked = told(name, seconds)
                group.start_soon(api.reply, name, asked, {}, Client())

    anyio.run(both)
    assert seen == ["predict", "plan"]
    assert api.first.none.is_set(), "and the next search waits for nothing"


def test_the_description_says_what_each_field_means_and_may_be() -> None:
    told = openapi(endpoints())
    assert {*told["paths"]} == {f"/api/{name}" for name in endpoints()}
    assert all(path["post"]["summary"] for path in told["paths"].values())
    schemas = told["components"]["schemas"]
    layout = schemas["Layout"]["properties"]
    assert [*layout] == [*fields_of(Layout)]
    assert all(one["description"] for one in layout.values())
    assert layout["zero"]["maximum"] == 3
    assert layout["scheme"]["enum"] == [*SCHEMES]
    asked = schemas["Question"]["properties"]
    assert asked["seq"]["description"].startswith("Sequence length")


def test_the_best_by_closed_forms_comes_before_the_plan() -> None:
    """On fewer chips another is faster, which comes last, and is kept for who asks for it alone."""
    question = {
        "model": "llama3-8b",
        "on": "256xh100-sxm",
        "batch": "112seq",
    }
    body = {"question": question, "families": False, "top": 1}
    api = app()
    first, last = ask("plan_lines", body, api).lines
    best = first["closed_form"]
    assert set(first) == {"closed_form", "price"}
    asked = {"question": question, "layout": best["layout"]}
    assert best == {
        k: v for k, v in ask("predict", asked).json.items() if k in best
    }
    assert last["best"]["step_time_s"] < best["step_time_s"]
    assert ask("plan", body, api).json == last, "elapsed_s too"
    assert ask("plan_lines", body, api).lines == [last], "nothing to wait for"
    wrong = {"question": {**question, "batch": "x"}}
    assert ask("plan_lines", wrong, api).refused


def test_a_timeline_that_no_page_draws_is_refused_before_it_is_made() -> None:
    question = {
        "model": "llama3-70b",
        "on": "512xh100-sxm",
        "batch": "7000seq",
    }
    start = time.process_time()
    reply = ask(
        "timeline",
        {"question": question, "layout": {"pp": 64, "zero": 1, "dp": 1}},
    )
    assert "896,000 actions" in reply.refused
    assert time.process_time() - start < 1


def test_limits_are_those_of_the_command(shell: Shell) -> None:
    lines = ask(
        "limits", {"scenarios": ["h100"], "months": 6, "grid": True}
    ).lines
    (command,) = shell.json("limits h100 --months 6")["scenarios"]
    coarse, smooth, grid = lines
    assert smooth["crossing"] == command["smooth_crossing"]
    assert grid["crossing"] == command["crossing"]
    assert [p["flops"] for p in grid["points"]] == [
        p["flops"] for p in command["points"]
    ]
    assert coarse["points"] == smooth["points"][::4], "a few of the same"


def test_a_slider_is_a_changed_machine() -> None:
    """Each number of the machine follows its slider, and no other does."""

    def machine(**factors: float) -> Machine:
        return scenario("h100", {"factors": factors}).machine

    usual = machine()
    assert machine(bandwidth=1) == usual
    fast = machine(flops=2)
    assert fast.rates.matrix == pytest.approx(2 * usual.rates.matrix)
    assert fast.peak == pytest.approx(2 * usual.peak)
    assert fast.fabric == usual.fabric
    assert machine(memory=2).memory == pytest.approx(2 * usual.memory)
    assert machine(launch=0.5).rates.launch_s == pytest.approx(
        usual.rates.launch_s / 2
    )
    wide = machine(bandwidth=2)
    assert [*wide.fabric.rates] == pytest.approx(
        [2 * rate for rate in usual.fabric.rates]
    )
    assert wide.rates == usual.rates
    assert machine(hbm=2).rates != usual.rates
    assert machine(latency=2).fabric != usual.fabric
    for factors, why in (
        (
            {"speed": 2},
            "factors: field 'speed' is not known; known: bandwidth, flops",
        ),
        ({"flops": 0}, "factors.flops must be between"),
        ({"flops": "2"}, "factors.flops must be of type number"),
    ):
        body = {"scenarios": ["h100"], "factors": factors}
        assert why in ask("limits", body).refused


def test_a_price_changes_the_money_and_nothing_else() -> None:
    body = {
        "question": {**QUESTION, "tokens": "1T"},
        "clusters": ["8xh100-sxm", "8xnothing"],
    }
    usual, wrong = ask("clusters", body).lines
    dear, _ = ask("clusters", {**body, "prices": {"h100-sxm": 10.0}}).lines
    assert "why" in wrong and "nothing" in wrong["why"]
    assert dear["step_time_s"] == usual["step_time_s"]
    assert dear["cost_usd"] == pytest.approx(10.0 * dear["chip_hours"])
    assert dear["interval_s"] == usual["interval_s"]
    body = {"question": body["question"], "top": 1, "families": False}
    best = ask("plan", {**body, "prices": {"H100": 10.0, "b200": 1}})
    told = best.json
    assert told["price"]["usd_per_hour"] == 10 and told["price"]["yours"]
    assert told["best"]["cost_usd"] == dear["cost_usd"]
    assert told["best"]["step_time_s"] == usual["step_time_s"]
    assert "yours" not in ask("plan", body).json["price"]


def test_a_price_of_ones_own_does_not_stand_under_anothers_name() -> None:
    """The catalogue's source is that of the catalogue's price; a job file would repeat it."""
    job, _ = job_and_space(QUESTION, [])
    theirs = job.cluster.chip.sources["usd_per_hour"]["source"]
    mine = with_price(job, 2.5).cluster.chip
    assert mine.usd_per_hour == 2.5
    assert mine.sources["usd_per_hour"]["source"] != theirs
    assert "one's own" in mine.sources["usd_per_hour"]["source"]
    assert mine.sources["hbm_bytes"] == job.cluster.chip.sources["hbm_bytes"]
    assert with_price(job, None) is job


@pytest.mark.parametrize(
    "prices, said",
    [
        (
            {"nonsense": 4.0},
            "prices: chip 'nonsense' is not known; known: a100-80, h100-sxm",
        ),
        (
            {"a100-40": 4.0},
            "prices: chip 'a100-40' is not known; did you mean a100-80 or h100-sxm?",
        ),
        ({"h100": 2.5, "h100-sxm": 3.0}, "h100-sxm is said twice, 2.5 and 3"),
        ({"h100": 0}, "'h100' must cost more than 0 and at most 1,000,000"),
        # which made infinite dollars of a run
        ({"h100": 1e308}, "at most 1,000,000 USD/h, not 1e+308"),
        # which no float holds
        ({"h100": 10**400}, "prices.h100 must be a finite number"),
    ],
)
def test_a_price_of_no_chip_compared_is_refused(
    prices: dict[str, float], said: str
) -> None:
    clusters = ["8xh100-sxm", "8xA100 80GB", "8xnothing"]
    body = {"question": QUESTION, "clusters": clusters, "prices": prices}
    assert said in ask("clusters", body).refused


def test_idle_is_fill_and_drain_and_waiting_for_a_longer_stage() -> None:
    """What the page says of the two shares that stand in Plan and in Timeline."""
    body = {
        "question": {
            "model": "qwen2.5-32b",
            "on": "256xh100-sxm",
            "batch": "480seq",
            "seq": "4096",
        },
        "layout": {"tp": 2, "pp": 8, "interleave": 3, "zero": 1},
    }
    asked = endpoints()
    p = asked["predict"].ask(body, lambda what, share: None)
    drawn = asked["timeline"].ask(body, lambda what, share: None)
    stages = [sum(one.values()) for one in drawn["stage_s"]]
    ranks = [sum(stages[rank::8]) for rank in range(8)]
    uneven = 1 - sum(ranks) / len(ranks) / max(ranks)
    drain = p["time_s"]["bubble"] / drawn["exact_s"]
    assert uneven > 0.1, "the last has the head"
    assert drawn["bubble_fraction"] == pytest.approx(uneven + drain, abs=0.02)


def test_who_waits_is_told_his_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty ask at once where two can be answered: each hears of his place until it is his turn,
    what is refused late is refused in a line, and everybody is answered.
    """
    monkeypatch.setattr(web, "SAID_S", 0.05)
    api = web.Api()
    clients, refused = 20, 7

    def slow(body: dict, progress: object) -> Iterator[dict]:
        time.sleep(0.04)
        if body["n"] == refused:
            raise BadInput("seven is not answered")
        yield {"n": body["n"]}

    asked = Endpoint(slow, streams=True)
    heard: dict[int, list[dict]] = {}

    async def client(n: int) -> None:
        reply = await api.reply("slow", asked, {"n": n}, Client())
        heard[n] = [json.loads(line) async for line in reply.body_iterator]

    async def everybody() -> None:
        async with anyio.create_task_group() as group:
            for n in range(clients):
                group.start_soon(client, n)

    anyio.run(everybody)
    answered = {
        n: next(k for k, line in enumerate(lines) if "waiting" not in line)
        for n, lines in heard.items()
    }
    assert [heard[n][answered[n]] for n in range(clients)] == [
        {"error": "seven is not answered"} if n == refused else {"n": n}
        for n in range(clients)
    ]
    places = {
        n: [line["waiting"] for line in heard[n][:answer]]
        for n, answer in answered.items()
    }
    assert not any(places[0]), "the first waits for nobody"
    last = places[clients - 1]
    assert last[0] > 5, "most of the others are before the last"
    assert len({*last}) > 3, "and fewer and fewer"
    for said in places.values():
        assert said == sorted(said, reverse=True), "nobody passes another"
    assert not api.waiting
    assert not api.under_way


def test_an_answer_in_one_piece_tells_its_place_to_who_takes_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Late ones only; and to nobody who asks for JSON alone."""
    monkeypatch.setattr(web, "SAID_S", 0.05)
    api = web.Api()

    def slow(body: dict, progress: object) -> dict:
        time.sleep(body["s"])
        return {"n": body["n"]}

    asked = Endpoint(slow, kept=False)
    late, soon, alone = (
        {"n": 1, "s": 0.3},
        {"n": 2, "s": 0.0},
        {"n": 3, "s": 0.3},
    )
    lines = "application/json, application/x-ndjson"

    async def everybody() -> list:
        reply = await api.reply("slow", asked, late, Client(lines))
        told = [json.loads(line) async for line in reply.body_iterator]
        one = await api.reply("slow", asked, soon, Client(lines))
        plain = await api.reply("slow", asked, alone, Client())
        return [told, json.loads(one.body), json.loads(plain.body)]

    told, one, plain = anyio.run(everybody)
    assert told[-1] == {"n": 1} and len(told) > 1
    assert {*map(str, told[:-1])} == {"{'waiting': 0}"}
    assert (one, plain) == ({"n": 2}, {"n": 3})
    assert not api.waiting and not api.under_way
