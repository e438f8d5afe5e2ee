"""The page's own modules, run by node where it is there, without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from layouts import cut
from meshwright import Job, Layout
from meshwright.report.text import layout_words
from meshwright.schedule import SCHEDULES
from meshwright.web.endpoints import endpoints
from meshwright.web.question import laid_out

STATIC = resources.files("meshwright.web") / "static"
DOCUMENT = Path(__file__).with_name("document.mjs")
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(not NODE, reason="no node")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """The modules, where node takes them for modules."""
    found: Path = tmp_path_factory.mktemp("page")
    for file in STATIC.iterdir():
        if file.name.endswith(".js"):
            (found / file.name).write_text(file.read_text("utf-8"))
    (found / "document.mjs").write_text(DOCUMENT.read_text("utf-8"))
    (found / "package.json").write_text('{"type": "module"}')
    return found


def run(folder: Path, script: str) -> Any:
    """What a script tells last, as JSON."""
    assert NODE
    (folder / "asked.mjs").write_text(script)
    found = subprocess.run(
        [NODE, "asked.mjs"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


PLANNED = """
import { all } from "./document.mjs";
import { plan, shown } from "./plan.js";
import { source } from "./ask.js";
import { fields, know } from "./state.js";
import { h, put } from "./dom.js";

know({ question: ["model", "on", "batch", "tp", "pp"].map((name) => ({ name })), layout: ["tp", "pp"] });
const memory = { needed: 1, capacity: 2, weights: 1 };
const answer = (question) => ({ step_time_s: 1, time_s: { compute: 1 }, memory_bytes: memory, fits: true, mfu: 0.5, tokens_per_s: 100, chips: 8,
  batch_sequences: 8, seq_tokens: 8, model: question.model, cluster: question.on,
  layout: { tp: question.batch === "A" ? 1 : 2, pp: 1 }, layout_words: "words", risk_of_oom: 0 });
const asked = [];
source.worker = async (name, body) => {
  asked.push([name, body]);
  if (name === "plan") return { best: answer(body.question), searched: 1, elapsed_s: 1, rejected: {}, resolution: 0.03, tie_s: 1.02, price: body.prices && { usd_per_hour: 2, yours: true } };
  if (name === "beside") return { values: { tp: [1, 2] }, choices: [] };
  if (name === "advise") return { run: { fits: true }, tie: 0.06, changes: [] };
  return answer(body.question);
};
source.worker.lines = async function* (name, body) {
  if (name === "plan_lines") {
    yield { closed_form: { ...answer(body.question), layout_words: "closed" } };
    yield { schema: 1, ...await source.worker("plan", body) };
  }
  if (name === "what_if") {
    yield { name: "more chips", set: { on: "16" }, ...answer(body.question), slower: -0.9 };
    yield { name: "twice the bandwidth", set: {}, ...answer(body.question), slower: -0.01 };
  }
};
const main = h("main", { id: "main" });
document.body.append(main);
put(main, plan.skeleton());
const texts = (id) => document.getElementById(id).textContent;

// Shows the view for a state, until this part of it is drawn or it ends.
async function show(state, until = "") {
  const stop = new AbortController();
  await new Promise((done) => {
    const ctx = { state: { model: "m", on: "8xc", ...state }, set() {}, announce() {}, signal: stop.signal, catalogue: {},
      drawn: (what) => what === until && setTimeout(() => { stop.abort(new Error("left")); done(); }, 100) };
    plan.show(ctx).then(done, (error) => { if (!stop.signal.aborted) { console.error(error); process.exit(1); } });
  });
}
"""


def planned(folder: Path, script: str) -> Any:
    return run(folder, PLANNED + script)


def test_what_is_copied_is_the_answer_that_is_shown(folder: Path) -> None:
    """Also where it was asked before, and the latest that was worked out is another."""
    first, second, again, at = planned(
        folder,
        """
        const told = [];
        for (const batch of ["A", "B", "A"]) { await show({ batch }, "plan"); told.push(shown.answer); }
        console.log(JSON.stringify([...told, texts("answer")]));
        """,
    )
    assert first["question"]["batch"] == "A" and first["layout"]["tp"] == 1
    assert second["question"]["batch"] == "B" and second["layout"]["tp"] == 2
    assert again == first
    assert "words" in at and "m on 8xc" in again["words"]
    script = (STATIC / "main.js").read_text("utf-8")
    assert "page.shown === plan && shown.answer" in script


def test_the_best_by_closed_forms_is_drawn_first_and_says_so(
    folder: Path,
) -> None:
    """Until the plan is there; what is known already needs no first."""
    first, last, known = planned(
        folder,
        """
        let drawn = [];
        const draw = (batch) => plan.show({ state: { model: "m", on: "8xc", batch }, set() {}, announce() {}, signal: new AbortController().signal, catalogue: {},
          drawn: (what) => drawn.push([what, texts("answer"), shown.answer.layout.tp]) });
        await draw("B");
        const both = drawn.slice(0, 2);
        drawn = [];
        await draw("B");
        console.log(JSON.stringify([...both, drawn.map(([what]) => what)]));
        """,
    )
    assert first[0] == "closed" and last[0] == "plan"
    assert "best by lower bounds; replaying" in first[1]
    assert "layoutclosed" in first[1]
    assert "layoutwords" in last[1] and "closed" not in last[1]
    assert first[2] == last[2] == 2
    assert "plan" in known and "closed" not in known


def test_what_if_of_another_answer_is_dimmed_where_it_stands(
    folder: Path,
) -> None:
    """Until its own values come; of the same question it stays as it is."""
    (old, _), (new, dimmed), (mine, same) = planned(
        folder,
        """
        const told = [];
        const seen = () => told.push([texts("whatif"), document.getElementById("whatif").classList.contains("stale")]);
        await show({ batch: "A" });
        seen();
        await show({ batch: "B" }, "plan");
        seen();
        await show({ batch: "A" });
        await show({ batch: "A", mine: "tp 1" }, "plan");
        seen();
        console.log(JSON.stringify(told));
        """,
    )
    assert "more chips" in old and "working" not in old
    assert new == old and dimmed
    assert mine == old and not same, "the question is the same"


def test_only_what_can_be_chosen_looks_like_it(folder: Path) -> None:
    tags = planned(
        folder,
        """
        await show({ batch: "A" });
        const option = (node) => [node.tagName, node.getAttribute("class"), node.textContent];
        console.log(JSON.stringify(document.getElementById("whatif").nodes.filter((n) => n.tagName === "BUTTON" || n.getAttribute("class") === "told").map(option)));
        """,
    )
    assert tags == [
        ["BUTTON", "option", "more chips\u221290%"],
        ["SPAN", "told", "twice the bandwidth\u22121% ≈"],
    ]


def test_an_option_stays_the_element_that_it_is(folder: Path) -> None:
    """While another answer is searched for: its value stands there dimmed, its focus stays."""
    same, before, between, after = planned(
        folder,
        """
        const told = source.worker;
        let gain = 1.1;
        const choice = () => ({ field: "tp", value: 3, step_time_s: gain, fits: true, risk_of_oom: 0, needed_bytes: 1, why: "", note: "" });
        source.worker = async (name, body) => {
          if (name !== "beside") return told(name, body);
          await new Promise((done) => setTimeout(done, gain === 1.2 ? 400 : 0));
          return { values: { tp: [1, 2, 3] }, choices: [choice()] };
        };
        source.worker.lines = told.lines;
        const node = (id) => document.getElementById(id);
        const seen = () => [texts("delta-tp-3"), node("delta-tp-3").getAttribute("class")];
        await show({ batch: "A" });
        const [option, before] = [node("opt-tp-3"), seen()];
        gain = 1.2;
        await show({ batch: "B" }, "plan");
        const between = seen();
        await show({ batch: "B" });
        console.log(JSON.stringify([option === node("opt-tp-3"), before, between, seen()]));
        """,
    )
    assert same
    assert before[0] == "+10%" and after[0] == "+20%"
    assert between == ["+10%", "delta first old"]


def test_put_takes_the_dimming_away(folder: Path) -> None:
    found = planned(
        folder,
        """
        for (const node of main.children) node.classList.add("stale");
        await show({ batch: "A" });
        console.log(JSON.stringify(main.children.filter((node) => node.classList.contains("stale")).map((node) => node.id)));
        """,
    )
    assert found == ["", "lessons"], (
        "the cards have a class of their own, lessons are of no question"
    )


def test_prices_are_read_or_said_to_be_none(folder: Path) -> None:
    read = run(
        folder,
        """
        import { priced, prices } from "./state.js";
        const of = (text) => prices({ prices: text });
        console.log(JSON.stringify([of("A100 80GB:1.8, b200 : $4"), of("h100,b200:4"), of("h100:x"), of(undefined), priced({}), priced({ prices: "h100:2" })]));
        """,
    )
    assert read == [
        [{"A100 80GB": 1.8, "b200": 4}, ""],
        [{"b200": 4}, "h100"],
        [{}, "h100:x"],
        [{}, ""],
        {},
        {"prices": {"h100": 2}},
    ]


def test_prices_of_the_address_reach_every_cost(folder: Path) -> None:
    asked, answer = planned(
        folder,
        """
        await show({ batch: "A", prices: "c:2", mine: "tp 1", tokens: "1T" });
        console.log(JSON.stringify([asked.filter(([, body]) => body.prices), document.getElementById("answer").textContent]));
        """,
    )
    assert {name for name, _ in asked} == {"plan", "predict"}
    assert all(body["prices"] == {"c": 2} for _, body in asked)


def test_sizes_of_a_chip_are_planned_once_and_in_order(folder: Path) -> None:
    found = run(
        folder,
        """
        import { sizes } from "./clusters.js";
        console.log(JSON.stringify([...sizes(["32xA100", "16 x a100", "4xb200", "nothing"])]));
        """,
    )
    assert found == [
        ["A100", [f"{n}xA100" for n in (4, 8, 16, 32, 64, 128)]],
        ["b200", [f"{n}xb200" for n in (1, 2, 4, 8, 16)]],
    ]


def test_every_size_planned_has_a_marker(folder: Path) -> None:
    count = run(
        folder,
        """
        import { all } from "./document.mjs";
        import { curves as lines } from "./curves.js";
        const points = [...Array(10).keys()].map((n) => [n + 1, n + 1]);
        const axis = { name: "", log: true, write: String };
        const dots = (marked) => lines({ series: [{ name: "a", marked, points }], x: axis, y: axis, label: "" })(600).nodes.filter((n) => n.tagName === "CIRCLE" && n.getAttribute("fill")).length;
        console.log(JSON.stringify([dots(true), dots(false)]));
        """,
    )
    assert count == [10, 5]


def test_what_does_not_fit_says_why(folder: Path) -> None:
    """Below a risk of nine of ten it may run."""
    said = run(
        folder,
        """
        import { fits } from "./answer.js";
        import { bestOf, fields } from "./state.js";
        import "./document.mjs";
        fields.layout = ["tp", "pp"];
        const of = (needed, risk, well) => fits({ fits: well, risk_of_oom: risk, memory_bytes: { needed: needed * 2 ** 30, capacity: 80 * 2 ** 30 } });
        console.log(JSON.stringify([of(60, 0.02, true)[0], of(75, 0.2, false)[0], of(82, 0.7, false)[0], of(90, 0.95, false)[0], bestOf({ tp: "8", pp: "4" }, "The best layout"), bestOf({}, "The best layout")]));
        """,
    )
    assert said == [
        "fits",
        "may not fit",
        "may not fit",
        "does NOT fit",
        "The best layout with tp 8 pp 4 fixed",
        "The best layout",
    ]


def test_a_pasted_file_is_called_what_it_is(folder: Path) -> None:
    """Title and field of the model: a script of Megatron is neither "my job" nor a JOB.toml."""
    script = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
        " --num-attention-heads 32 --seq-length 4096 --global-batch-size 64 --vocab-size 32000"
    )
    read = endpoints()["read"].ask({"text": script}, lambda *told: None)
    job = dict(read)["question"]["job"]
    states = [
        {"job": job},
        {"model": "llama3-8b", "job": job},
        {"model": "{}"},
        {"job": "[job]\nbatch = 3"},
        {},
    ]
    said = run(
        folder,
        f"""
        import {{ modelName }} from "./state.js";
        console.log(JSON.stringify({json.dumps(states)}.map(modelName)));
        """,
    )
    assert said == [
        "a model of Megatron-LM",
        "llama3-8b",
        "a config.json",
        "a JOB.toml",
        "",
    ]


def test_words_of_numbers(folder: Path) -> None:
    said = run(
        folder,
        """
        import { change, range, step } from "./format.js";
        import { binding } from "./answer.js";
        import "./document.mjs";
        console.log(JSON.stringify([range([0.846, 1.23], step), range([3.1, 4.3], step), change(1 / 4.7), change(5), change(0.5),
          binding({ step_time_s: 1, time_s: { compute: 0.8, overlap_slowdown: 0.12, tp_comm: 0.08 } })]));
        """,
    )
    assert said == [
        "846 ms \u2013 1.23 s",
        "3.10 \u2013 4.30 s",
        "\u221279 %",
        "5.0 times",
        "\u221250 %",
        "Compute takes 80 % of the step; next come overlap slowdown (12 %), tensor parallel (8 %).",
    ]


def test_the_best_of_what_was_left_free_is_said_to_be_that(
    folder: Path,
) -> None:
    free, fixed = planned(
        folder,
        """
        const told = [];
        for (const pinned of [{}, { tp: "2", pp: "1" }]) { await show({ batch: "A", mine: "tp 1", ...pinned }); told.push(texts("mine-answer")); }
        console.log(JSON.stringify(told));
        """,
    )
    assert "; against the best \u00b1" in free
    assert "; against the best with tp 2 pp 1 fixed \u00b1" in fixed


def test_a_timeline_says_whose_layout_it_draws(folder: Path) -> None:
    best, fixed, mine = planned(
        folder,
        """
        import { timeline } from "./timeline.js";
        source.worker = async (name, body) => (name === "plan" ? (body.question.pp?.startsWith("2") ? {} : { best: { layout: { pp: 1, schedule: "1f1b" } } })
          : { ranks: 1, makespan_s: 1, exact_s: 1, schedule: "1f1b", bubble_fraction: 0, step_time_s: 1, busy_s: [], layout_words: "pp 1" });
        put(main, timeline.skeleton());
        const told = [];
        for (const state of [{}, { pp: "1" }, { mine: "pp 1", schedule1: "zb-h1" }]) {
          await timeline.show({ state: { model: "m", ...state }, catalogue: { schedules: [] }, set() {}, announce() {}, drawn() {} });
          told.push(texts("timeline-layout"));
        }
        console.log(JSON.stringify(told));
        """,
    )
    assert best == "Drawn is the best layout: pp 1."
    assert fixed == "Drawn is the best layout with pp 1 fixed: pp 1."
    assert mine.startswith("Drawn is your layout (")
    assert mine.endswith(", under zb-h1: pp 1.")


def test_every_value_says_what_choosing_it_costs(folder: Path) -> None:
    """For the mouse and for screen readers: seconds, memory and the chance to fit, or why not; what
    changes nothing is not marked as the answer.
    """
    titles, waiting, shown = planned(
        folder,
        """
        const told = source.worker, lines = source.worker.lines;
        const GiB = 2 ** 30;
        const choice = (field, value, seconds, more) => ({ field, value, step_time_s: seconds, fits: true, risk_of_oom: 0.05, needed_bytes: 50 * GiB, why: "", note: "", ...more });
        const values = { tp: [1, 2, 3], sequence_parallel: [true, false] };
        source.worker = async (name, body) => {
          if (name === "beside") return { values, choices: [choice("tp", 2, 1.01), choice("tp", 3, null, { why: "heads over 3" }), choice("sequence_parallel", false, null, { why: "changes nothing" })] };
          const found = await told(name, body);
          if (name === "plan") Object.assign(found.best.layout, { sequence_parallel: true });
          return found;
        };
        source.worker.lines = async function* (name, body) {
          if (name === "choices") yield choice("tp", 2, 0.98, { layout_words: "tp 2 pp 4", risk_of_oom: 0 });
          else yield* lines(name, body);
        };
        const title = (id) => document.getElementById(`opt-${id}`).getAttribute("title");
        await show({ batch: "A" }, "plan");
        const waiting = title("tp-1");
        await show({ batch: "A" });
        console.log(JSON.stringify([["tp-", "tp-1", "tp-2", "tp-3", "sequence_parallel-true", "sequence_parallel-false"].map(title), waiting, texts("delta-sequence_parallel-true")]));
        """,
    )
    chosen, answer, both, odd, idle, other = titles
    assert chosen == "The search chooses tp." and waiting == answer
    assert answer.startswith("The answer: a step of 1.00 s, needs")
    assert both == (
        "The rest searched again (tp 2 pp 4): a step of 980 ms, needs 50.0 GiB, fits with a chance"
        " of 100 %: expected 980 ms, \u22122 %. This alone changed: a step of 1.01 s, needs 50.0 GiB,"
        " fits with a chance of 95.0 %: expected 1.06 s, +6.3 %."
    )
    assert odd == "heads over 3" and other == "changes nothing"
    assert idle == "The answer has tp 1, where this changes nothing."
    assert shown == "no effect"


def test_why_the_answer_wins_and_what_is_idle_stand_first(
    folder: Path,
) -> None:
    """Both as the server says them; the reason of all families takes the place of the first."""
    first, then, below = planned(
        folder,
        """
        const told = source.worker;
        source.worker = async (name, body) => {
          const found = await told(name, body);
          return name === "plan" ? { ...found, why: body.families === false ? "Why this one: A." : "Why this one: B.", idle: "8 chips are", notes: ["8 chips are", "another"] } : found;
        };
        source.worker.lines = told.lines;
        await show({ batch: "A" }, "plan");
        const first = texts("answer") + texts("why");
        await show({ batch: "A" });
        console.log(JSON.stringify([first, texts("why"), texts("searched")]));
        """,
    )
    assert "Some chips are idle. 8 chips are." in first
    assert "Why this one: A." in first and "Why this one: B." in then
    assert "another" in below and "8 chips are" not in below


def test_alternatives_say_what_is_counted(folder: Path) -> None:
    """Step time, chance and expected time are columns of their own."""
    head, row = planned(
        folder,
        """
        const told = source.worker;
        source.worker = async (name, body) => {
          const found = await told(name, body);
          if (name !== "plan") return found;
          const other = { ...found.best, layout_words: "others", step_time_s: 1.2, risk_of_oom: 0.04 };
          return { ...found, families: [{ name: "FSDP", prediction: other, tie: false, note: "" }], alternatives: [] };
        };
        source.worker.lines = told.lines;
        await show({ batch: "A" });
        const cells = document.getElementById("families").nodes.filter((n) => ["TH", "TD"].includes(n.tagName)).map((n) => n.textContent);
        const at = cells.findIndex((text) => text.startsWith("FSDP"));
        console.log(JSON.stringify([cells.slice(0, 8), cells.slice(at, at + 6)]));
        """,
    )
    assert head[1:5] == [
        "step time",
        "chance it fits",
        "expected time",
        "against the answer",
    ]
    assert row[1:5] == ["1.20 s", "96.0 %", "1.25 s", "+25 %"]


def test_the_price_of_the_own_chip_is_one_of_the_prices(
    folder: Path,
) -> None:
    found = run(
        folder,
        """
        import { priceOf, withPrice } from "./state.js";
        const state = { prices: "A100 80GB:1.8, b200 : $4" };
        console.log(JSON.stringify([priceOf(state, "B200"), priceOf(state, "h100"), withPrice(state, "b200", "3"), withPrice(state, "h100", "2.5"), withPrice(state, "b200", ""), withPrice({}, "h100", "2")]));
        """,
    )
    assert found == [
        "$4",
        "",
        "A100 80GB:1.8,b200:3",
        "A100 80GB:1.8,b200 : $4,h100:2.5",
        "A100 80GB:1.8",
        "h100:2",
    ]


def test_a_server_that_is_gone_is_said_in_words(folder: Path) -> None:
    """What was asked no more is no refusal."""
    gone, left = run(
        folder,
        """
        import { Refused, ask } from "./ask.js";
        globalThis.fetch = async () => { throw new TypeError("Failed to fetch"); };
        const told = async (signal) => ask("plan", {}, signal).catch((error) => [error instanceof Refused, error.message]);
        const stop = new AbortController();
        stop.abort();
        console.log(JSON.stringify([await told(), await told(stop.signal)]));
        """,
    )
    assert gone == [
        True,
        "The server does not answer: is meshwright serve still running?",
    ]
    assert left == [False, "Failed to fetch"]


def test_a_place_in_the_queue_is_told_and_is_no_line(folder: Path) -> None:
    script = """
import { lines, source } from "./ask.js";
source.worker = {
  async *lines() {
    for (const one of [{ waiting: 2 }, { waiting: 0 }, { name: "a" }, { name: "b" }]) yield one;
  },
};
const places = [], got = [];
source.waits = (place) => places.push(place ?? "none");
for await (const one of lines("what_if", {})) got.push(one.name);
console.log(JSON.stringify({ places, got }));
"""
    assert run(folder, script) == {
        "places": [2, 0, "none", "none"],
        "got": ["a", "b"],
    }


def test_schemes_with_the_same_curves_are_one_pair_of_lines(
    folder: Path,
) -> None:
    script = """
import "./document.mjs";
import { distinct } from "./roofline.js";
const one = (name, compute, sent) => ({ name, curve: { compute_s: compute, comm_sum_s: sent, comm_max_s: [0] } });
const three = [one("FSDP", [1, 2], [3]), one("TP", [1, 2], [4]), one("FSDP+TP", [1, 2], [3])];
console.log(JSON.stringify(["comm_sum_s", "comm_max_s"].map((sent) => distinct(three, sent).map((s) => s.name))));
"""
    assert run(folder, script) == [
        ["FSDP = FSDP+TP", "TP"],
        ["FSDP = TP = FSDP+TP"],
    ]


def test_an_answer_in_one_piece_comes_after_places_in_the_queue(
    folder: Path,
) -> None:
    """On the last of the lines; whole where it is not late; refused as any other."""
    script = """
import { ask, source } from "./ask.js";
const reply = (kind, text) => new Response(text, { headers: { "content-type": kind } });
const replies = [
  reply("application/x-ndjson", '{"waiting":3}\\n{"waiting":0}\\n{"a":1}\\n'),
  reply("application/json", '{"a":2}'),
  reply("application/x-ndjson", '{"waiting":1}\\n{"error":"it is not so"}\\n'),
  reply("application/x-ndjson", '{"waiting":1}\\n'),
];
let accepts;
globalThis.fetch = async (_, { headers }) => ((accepts = headers.accept), replies.shift());
const places = [];
source.waits = (place) => place === undefined || places.push(place);
const told = [];
for (const n of [1, 2, 3, 4])
  told.push(await ask("beside", { n }).then((one) => one.a, (error) => error.message));
console.log(JSON.stringify({ accepts, places, told }));
"""
    assert run(folder, script) == {
        "accepts": "application/json, application/x-ndjson",
        "places": [3, 0, 1, 1],
        "told": [
            1,
            2,
            "it is not so",
            "the answer ended before its last line: ask again",
        ],
    }


def test_a_chip_is_a_peer_along_one_axis(folder: Path) -> None:
    """The first chip is none of its own peers; far and near ranks of one axis are one group."""
    peers, shown = run(
        folder,
        """
        import "./document.mjs";
        import { peer, some } from "./machine.js";
        const none = [0, 0, 0, 0];
        const peers = [[none, none], [[1, 0, 0, 0], none], [none, [0, 0, 3, 0]], [[0, 0, 1, 0], [0, 0, 3, 0]], [[1, 0, 0, 0], [0, 0, 0, 1]]];
        console.log(JSON.stringify([peers.map(([near, far]) => peer(near, far)), [some(3, 4), some(16, 4)]]));
        """,
    )
    assert peers == ["", "tp", "dp", "dp", None]
    assert shown == [[0, 1, 2], [0, 1, 2, None, 15]]


def test_sources_have_marks_of_their_own(folder: Path) -> None:
    """By shape alone, without colours."""
    marks = run(
        folder,
        """
        import "./document.mjs";
        import { marker } from "./curves.js";
        const mark = (i) => { const { fill, stroke, ...shape } = marker(i, 0, 0, "red").attributes; return JSON.stringify([shape, fill === "none"]); };
        console.log(JSON.stringify([...Array(14).keys()].map(mark)));
        """,
    )
    assert len({*marks}) == 14


def test_a_roofline_says_what_binds_each_scheme(folder: Path) -> None:
    said = planned(
        folder,
        """
        import { roofline } from "./roofline.js";
        const scheme = (name, sent, least, memory_bytes = 1) => ({ name, compute_s: 1, comm_sum_s: sent, compute_bound_sum: sent <= 1, least_batch_sum_tokens: least, memory_bytes, curve: { batch_tokens: [], compute_s: [], comm_sum_s: [] } });
        source.worker = async () => ({ batch_tokens: 4000, tokens_per_chip: 8, model: "m", chip: "c", chips: 8, intensity: [], hbm_tokens: 1, largest_tensor: 1, capacity_bytes: 2, microbatches: { DP: 0, both: 1, FSDP: 1, TP: 1 }, schemes: [scheme("DP", 0.5, 1, 3), scheme("both", 0.5, 1), scheme("FSDP", 2, 8000), scheme("TP", 21, null)] });
        put(main, roofline.skeleton());
        await roofline.show({ state: { model: "m" }, set() {}, announce() {}, drawn() {} });
        console.log(JSON.stringify(texts("roofline-sentence")));
        """,
    )
    assert (
        "DP (which does not fit in memory); both are bound by compute." in said
    )
    assert (
        "Bound by communication: FSDP (messages take 2.0 times as long as the arithmetic, which"
        " binds from 8,000 tokens on); TP (messages take 21 times as long as the arithmetic, and no"
        " batch is large enough)." in said
    )


def test_the_split_of_x_and_y_slides(folder: Path) -> None:
    """It begins at the least of the edition asked for, names both parts, and follows the slider."""
    begins, moved, other = planned(
        folder,
        """
        import { roofline } from "./roofline.js";
        const row = (x, y, data_s, tensor_s) => ({ x, y, compute_s: 2, data_s, tensor_s, comm_sum_s: data_s + tensor_s, comm_max_s: Math.max(data_s, tensor_s) });
        source.worker = async () => ({ batch_tokens: 4000, tokens_per_chip: 8, model: "m", chip: "c", chips: 8, intensity: [], hbm_tokens: 1, largest_tensor: 1, schemes: [], degrees: [row(8, 1, 4, 0), row(4, 2, 2, 1), row(2, 4, 1.8, 1.8)] });
        put(main, roofline.skeleton());
        const at = async (state) => { await roofline.show({ state: { model: "m", ...state }, set() {}, announce() {}, drawn() {} }); return texts("roofline-split-sentence"); };
        const begins = await at({});
        const slider = document.getElementById("roofline-split-slider");
        slider.value = 0;
        slider.oninput({ target: slider });
        const moved = texts("roofline-split-sentence");
        console.log(JSON.stringify([begins, moved, await at({ edition: "max" })]));
        """,
    )
    assert begins.startswith(
        "X 4 \u00d7 Y 2: weights 2.00 s, activations 1.00 s"
    )
    assert "3.00 s, the least of all splits" in begins
    assert begins.endswith("does not hide them.")
    assert (
        moved.startswith("X 8 \u00d7 Y 1: ") and "1.3 times the least" in moved
    )
    assert other.startswith("X 2 \u00d7 Y 4: ") and other.endswith(
        "hides them."
    )


def test_runs_of_the_class_are_marked_in_words(folder: Path) -> None:
    said, cells, classes = planned(
        folder,
        """
        import { sure } from "./sure.js";
        const row = (model, of_class) => ({ id: model, model, of_class, chips: 8, chip: "c", precision: "bf16", predicted_s: 1, step_s: 1, source: "s" });
        source.worker = async (name) => (name === "plan" ? {} : name === "runs" ? { rows: [] } : { class: "Hopper, FSDP, dense", rows: [row("a", true), row("b", false)] });
        put(main, sure.skeleton());
        await sure.show({ state: { model: "m" }, set() {}, announce() {}, drawn() {} });
        const near = document.getElementById("sure-near");
        const rows = near.nodes.filter((n) => n.tagName === "TR").slice(1);
        console.log(JSON.stringify([near.textContent, rows.map((r) => r.children[1].textContent), rows.map((r) => r.getAttribute("class"))]));
        """,
    )
    assert cells == ["\u2713 of its class", "another"]
    assert classes == ["picked", None]
    assert "Hopper, FSDP, dense" in said and "1 of these 2" in said


def test_values_say_what_they_cost_and_what_is_a_tie(folder: Path) -> None:
    """Up to the seconds, over the chance to fit, that the server tells; ties and what no published
    run does are said to be that.
    """
    deltas = planned(
        folder,
        """
        const told = source.worker, lines = source.worker.lines;
        const choice = (value, seconds, more) => ({ field: "tp", value, step_time_s: seconds, fits: true, risk_of_oom: 0, needed_bytes: 1, why: "", note: "", ...more });
        source.worker = async (name, body) => (name === "beside" ? { values: { tp: [1, 2, 3, 4, 5, 6] }, choices: [choice(2, 1.01), choice(3, null, { why: "odd" })] } : told(name, body));
        source.worker.lines = async function* (name, body) {
          if (name === "choices") yield* [choice(4, 1.03), choice(5, 1.01, { risk_of_oom: 0.05 }), choice(6, 0.99, { note: "no run has it" })];
          else yield* lines(name, body);
        };
        await show({ batch: "A" });
        console.log(JSON.stringify([1, 2, 3, 4, 5, 6].map((n) => texts(`delta-tp-${n}`))));
        """,
    )
    assert deltas == [
        "answer",
        "+1% ≈",
        "not legal",
        "+3%",
        "+6.3%",
        "\u22121% ≈ †",
    ]


def test_what_is_fixed_costs_nothing_or_cannot_be_told_to_cost(
    folder: Path,
) -> None:
    """Of another layout that is a tie it is not said that the answer has it."""
    same, tie, more = planned(
        folder,
        """
        const told = source.worker;
        let fixed = {};
        source.worker = async (name, body) => {
          const found = await told(name, body);
          return name === "plan" && body.question.tp ? { ...found, best: { ...found.best, ...fixed } } : found;
        };
        source.worker.lines = told.lines;
        const said = [];
        for (const [k, one] of [{}, { step_time_s: 0.99, layout_words: "another" }, { step_time_s: 1.1, layout_words: "another" }].entries()) {
          fixed = one;
          await show({ batch: `A${k}`, tp: "1" });
          said.push(texts("answer"));
        }
        console.log(JSON.stringify(said));
        """,
    )
    assert "What you fixed costs nothing." in same
    assert "The answer has what you fixed where all is free, too." in same
    assert "costs nothing that anybody could tell." in tie
    assert "What you fixed: \u22121 %" in tie
    assert "What you fixed costs +10 %" in more
    assert "Where all is free, the answer is words." in more


def test_what_takes_too_long_is_said_where_it_would_stand(
    folder: Path,
) -> None:
    """The answer stands without an error, and the parts that follow are drawn."""
    error, layout, what = planned(
        folder,
        """
        import { Refused } from "./ask.js";
        const lines = source.worker.lines;
        source.worker.lines = async function* (name, body) {
          if (name === "choices") throw new Refused("this takes longer than 60 s");
          yield* lines(name, body);
        };
        await show({ batch: "A" });
        console.log(JSON.stringify(["plan-error", "layout", "whatif"].map(texts)));
        """,
    )
    assert error == ""
    assert "Not all of this was worked out: this takes longer than" in layout
    assert "more chips" in what and "working" not in what


def test_a_wrong_price_or_budget_is_said_in_plan(folder: Path) -> None:
    told = planned(
        folder,
        """
        const told = [];
        for (const more of [{ prices: "c:2" }, { prices: "c:two" }, { budget: "30 lakh" }]) { await show({ batch: "A", ...more }, "plan"); told.push(texts("plan-error")); }
        console.log(JSON.stringify(told));
        """,
    )
    assert told[0] == ""
    assert told[1].startswith('prices: "c:two" is no chip with a price')
    assert told[2].startswith('budget: "30 lakh" is neither a time')


def test_a_budget_buys_tokens(folder: Path) -> None:
    """Of the fake's 100 tokens a second on 8 chips at 2 USD/h: 16 dollars are an hour."""
    read, days, dollars, free = planned(
        folder,
        """
        import { budgeted } from "./state.js";
        const of = (budget) => budgeted({ budget })[0];
        const told = [["30 days", "12h", "3 months", "5M$", "$5M", "2,000 USD", "5M", "x"].map((text) => { const b = of(text); return b && Math.round(100 * (b.days ?? b.usd)) / 100; })];
        for (const more of [{ budget: "10 d", prices: "c:2" }, { budget: "16$", prices: "c:2" }, { budget: "16$" }]) { await show({ batch: "A", ...more }, "plan"); told.push(texts("answer")); }
        console.log(JSON.stringify(told));
        """,
    )
    assert read == [30, 0.5, 91.32, 5e6, 5e6, 2000, None, None]
    assert "for 10 d86.4 M tokens, 3,840 USD" in days
    assert "for 16$360 k tokens in 60.0 min" in dollars
    assert "for 16$no price of this chip is known" in free


def test_where_scaling_ends(folder: Path) -> None:
    """Between the two sizes where a chip falls below four fifths of its best, on a log axis."""
    at, none, falls, stops, *planned = run(
        folder,
        """
        import { ownSentence, scales } from "./limits.js";
        import "./document.mjs";
        const row = (chips, rate) => ({ chips, tokens_per_s_per_chip: rate, train_time_s: 864000 });
        const good = [{ chips: 4, why: "too big" }, row(8, 9), row(16, 10), row(32, 9), row(64, 7)];
        const state = { model: "m" };
        console.log(JSON.stringify([scales(good, 0.8), scales(good.slice(0, 4), 0.8), ownSentence(state, good), ownSentence(state, [...good.slice(0, 4), { chips: 64, why: "nothing is legal" }]),
            ...[true, false].flatMap((ended) => [1, 3].map((n) => ownSentence(state, good.slice(0, n), ended)))]));
        """,
    )
    assert at == pytest.approx(32 * 2**0.5)
    assert none is None
    assert "at least 80 % of its best on up to about 45 chips" in falls
    assert "on 32 the run takes 10.0 days" in falls
    assert "on 64 it does 70 %" in falls
    assert "up to 32 chips, the most that were planned" in stops
    assert "On 64: nothing is legal" in stops
    nowhere, most, silent, so_far = planned
    assert nowhere == "m fits on none of these sizes."
    assert silent == "", "larger ones are still planned"
    assert "most that were planned." in most
    assert "most that were planned so far." in so_far


def test_middle_stages_are_those_that_hold_what_the_second_does(
    folder: Path,
) -> None:
    """With a rank named beside, the second stage is one of its own."""
    names = run(
        folder,
        """
        import "./document.mjs";
        import { stageName } from "./answer.js";
        const three = { first: {}, second: {}, last: {} };
        const more = { first: {}, second: {}, "rank 2": {}, last: {} };
        console.log(JSON.stringify([three, more].map((of) => Object.keys(of).map((end) => stageName(end, of)))));
        """,
    )
    assert names == [
        ["first stage", "middle stages", "last stage"],
        ["first stage", "second stage", "rank 2", "last stage"],
    ]


LAYOUTS = (
    Layout(tp=2, pp=4, dp=16, schedule="interleaved", interleave=8, zero=1, stages="slots"),
    cut("tp2 dp4 zero3 full"),
    cut("tp2 selective whole"),
    cut("pp4 dp2 microbatch2 interleave2 zbv"),
    Layout(dp=64, dp_replicate=8, zero=2, recompute="full:4"),
    cut("pp2 dp8 ep8 zb-h1 layernorm+moe_act"),
)  # fmt: skip


def test_words_of_a_layout_are_read_as_that_layout(folder: Path) -> None:
    """As the page shows them, so that they can be copied into: why not mine."""
    shown = [layout_words(layout, 4) for layout in LAYOUTS]
    typed = [
        "TP=8, PP=4 mbs 2",
        "tp8 zero-1 selective",
        "fsdp",
        "--schedule interleaved --vpp 2 tp: 2 sp false",
    ]
    read = run(
        folder,
        f"""
        import {{ inParts }} from "./answer.js";
        import {{ know, words }} from "./state.js";
        know({{ question: [], layout: [], schedules: {[*SCHEDULES]} }});
        const shown = {json.dumps(shown)};
        console.log(JSON.stringify([...shown, ...shown.map(inParts), ...{json.dumps(typed)}].map(words)));
        """,
    )
    job = Job("mixtral-8x7b", "64xh100-sxm", 64)
    for layout, found in zip(2 * LAYOUTS, read, strict=False):
        assert laid_out(job, found) == layout
    assert read[2 * len(LAYOUTS) :] == [
        {"tp": "8", "pp": "4", "microbatch": "2"},
        {"tp": "8", "zero": "1", "recompute": "selective"},
        {"zero": "3"},
        {
            "schedule": "interleaved",
            "interleave": "2",
            "tp": "2",
            "sequence_parallel": "false",
        },
    ]


def test_a_best_layout_of_one_stage_is_drawn_with_more(folder: Path) -> None:
    said, drawn, none = run(
        folder,
        """
        import { all } from "./document.mjs";
        import { Refused, source } from "./ask.js";
        import { timeline } from "./timeline.js";
        import { h, put } from "./dom.js";
        const main = h("main", { id: "main" });
        document.body.append(main);
        const asked = [];
        let fits = true;
        source.worker = async (name, body) => {
          asked.push([name, body.layout?.pp]);
          if (name === "plan" && body.question.pp && !fits) throw new Refused("not here");
          return name === "plan" ? { best: { layout: { pp: body.question.pp ? 4 : 1, schedule: "1f1b" } } }
            : { ranks: 1, makespan_s: 1, exact_s: 1, schedule: "1f1b", bubble_fraction: 0, step_time_s: 1, busy_s: [], layout_words: "words" };
        };
        put(main, timeline.skeleton());
        const show = (model) => timeline.show({ state: { model }, catalogue: { schedules: [] }, set() {}, announce() {}, drawn() {} });
        const said = () => document.getElementById("timeline-layout").textContent;
        await show("m");
        const told = [said(), asked.filter(([name]) => name === "timeline")];
        fits = false;
        await show("n");
        console.log(JSON.stringify([...told, said()]));
        """,
    )
    assert said.startswith("Drawn is the best layout with a pipeline")
    assert drawn == [["timeline", 4]]
    assert none == "Drawn is the best layout: words."


def test_colours_of_a_timeline_have_a_key(folder: Path) -> None:
    """Of the kinds that are drawn, in the colours that draw them."""
    kinds = run(
        folder,
        """
        import { all } from "./document.mjs";
        import { source } from "./ask.js";
        import { timeline } from "./timeline.js";
        import { h, put } from "./dom.js";
        const main = h("main", { id: "main" });
        document.body.append(main);
        source.worker = async (name) => (name === "plan" ? { best: { layout: { pp: 2, schedule: "1f1b" } } }
          : { ranks: 2, makespan_s: 2, exact_s: 2, schedule: "1f1b", bubble_fraction: 0, step_time_s: 2, busy_s: [], layout_words: "pp 2", actions: [[["F", 0, 0, 0, 1]], [["B", 1, 0, 1, 2]]] });
        put(main, timeline.skeleton());
        await timeline.show({ state: { model: "m" }, catalogue: { schedules: [] }, set() {}, announce() {}, drawn() {} });
        console.log(JSON.stringify(all((n) => n.getAttribute("class") === "key").map((n) => n.textContent)));
        process.exit(); // nothing is painted
        """,
    )
    assert kinds == ["forward", "backward", "idle", "microbatches held"]


def test_the_page_lists_gains_and_the_pair(folder: Path) -> None:
    """Slower changes and ties are not listed; of a run that was measured none is for its memory."""
    said = run(
        folder,
        """
        import "./document.mjs";
        import { h } from "./dom.js";
        import { adviceOn } from "./advise.js";
        import { source } from "./ask.js";
        import { know } from "./state.js";
        know({ question: ["model", "on", "batch"].map((name) => ({ name })), layout: ["tp"] });
        const change = (words, gain) => ({ words, gain, step_time_s: 2, memory_bytes: 2 ** 30, risk_of_oom: 0.01, fits: true });
        let asked;
        source.worker = async (name, body) => {
          asked = [name, body.layout];
          return { run: { fits: true, step_time_s: 3 }, measured: null, tie: 0.06, pair: change("both", 0.3), triple: null,
            changes: [change("--faster", 0.2), change("--tie", 0.01), change("--slower", -0.2)] };
        };
        document.body.append(h("div", { id: "box" }, ...adviceOn({ model: "m", on: "8xc", mine: "tp 4" })));
        await document.getElementById("advise-ask").onclick();
        const text = document.getElementById("advise-found").textContent;
        console.log(JSON.stringify([asked, document.getElementById("advise-said").textContent, text]));
        """,
    )
    (name, layout), sentence, text = said
    assert name == "advise" and str(layout["tp"]) == "4"
    assert "1 change beyond ties of 6 %" in sentence
    assert "--faster" in text and "pair: both" in text
    assert "--tie" not in text and "--slower" not in text


def test_the_own_run_stands_first_and_the_best_second(folder: Path) -> None:
    """Differences by cause are against the own run; the changes are the best of each choice."""
    rows, said, without, kept = run(
        folder,
        """
        import { all } from "./document.mjs";
        import { h } from "./dom.js";
        import { mineBeside } from "./advise.js";
        import { Refused, source } from "./ask.js";
        import { know } from "./state.js";
        know({ question: ["model", "on", "batch"].map((name) => ({ name })), layout: ["tp"] });
        const memory = { needed: 2 ** 30, capacity: 2 ** 31 };
        const p = (layout_words, step_time_s, tp_comm) => ({ layout_words, step_time_s, memory_bytes: memory,
          time_s: { compute: 2, tp_comm }, fits: true, risk_of_oom: 0, train_time_s: step_time_s * 86400, cost_usd: step_time_s * 1000 });
        const change = (words, gain, field) => ({ ...p("", 4 / (1 + gain), 2 - gain), words, gain, memory_bytes: 2 ** 30, fields: { [field]: [1, 2] } });
        source.worker = async (name, body) => name === "predict" ? p("tp 4", 4, 2) : { run: { fits: true }, tie: 0.06,
          changes: [change("--faster 2", 0.25, "a"), change("--faster 3", 0.2, "a"), change("--tie", 0.02, "b"), change("--slower", -0.02, "c")] };
        const box = h("section", {});
        document.body.append(box);
        const ctx = { state: { model: "m", on: "8xc", mine: "tp 4" } };
        await mineBeside(box, ctx, p("tp 2", 3, 1));
        const rows = all((node) => node.tagName === "TR").slice(1).map((tr) => tr.children.map((cell) => cell.textContent));
        const said = all((node) => node.attributes.role === "status")[0].textContent;
        await mineBeside(box, { state: {} }, p("tp 2", 3, 1));
        const without = box.children.length;
        const answered = source.worker;
        source.worker = async (name, body) => { if (name === "advise") throw new Refused("not here"); return answered(name, body); };
        await mineBeside(box, { state: { ...ctx.state, batch: "2" } }, p("tp 2", 3, 1));
        const kept = all((node) => node.tagName === "TR").length;
        console.log(JSON.stringify([rows, said, without, kept]));
        """,
    )
    assert [row[0] for row in rows] == [
        "yours: tp 4",
        "the best layout: tp 2",
        "change: --faster 2",
        "change: --tie",
    ]
    shares = [row[2] for row in rows]
    assert shares == ["–", "−25 %", "−20 %", "−2 % ≈"]
    assert rows[1][5] == "tensor parallel −1.0 s"
    assert rows[2][3].startswith("3.20 days") and "3,200 USD" in rows[2][3]
    assert "Within 6 % is a tie" in said
    assert not without, "without a run of one's own nothing stands there"
    assert kept == 3, "both runs stay where changes cannot be asked"
