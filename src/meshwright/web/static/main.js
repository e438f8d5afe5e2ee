// The frame of the page: question, views, address; each change of the state is drawn at once.

import { dialog, h, put, save } from "./dom.js";
import { $, field, line, offered, select } from "./controls.js";
import { Refused, answers, ask, source } from "./ask.js";
import {
  address,
  fields,
  know,
  modelName,
  parse,
  priceOf,
  priced,
  question,
  withMine,
  withPrice,
  withoutLayout,
} from "./state.js";
import { engine, engineState } from "./engine.js";
import { versionOf } from "./chart.js";
import { plan, shown } from "./plan.js";
import { clusters, comparison } from "./clusters.js";
import { timeline } from "./timeline.js";
import { limits } from "./limits.js";
import { roofline } from "./roofline.js";
import { sure } from "./sure.js";
import { inside, runFiles, runs } from "./runs.js";
import { adviceOn } from "./advise.js";
import { linkedTo, opened } from "./opened.js";
import { LESSONS } from "./lessons.js";
import { saidBeside, unsaid } from "./wrong.js";

// asks: whether a view answers the question in the form, which else is not shown.
const VIEWS = [plan, clusters, timeline, limits, roofline, sure, runs];
const page = {
  state: parse(location.hash),
  catalogue: null,
  abort: null,
  shown: null,
  asked: "",
  started: 0,
};
window.meshwright = { timings: [], errors: [] };

// --- state and address --------------------------------------------------------------------------

function set(changes, typing = false) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) delete page.state[key];
    else page.state[key] = String(value);
  }
  draw({ typing }); // asks first: the address may follow
  const hash = address(page.state);
  // the first key in a field makes an entry of the history, so that Back undoes the edit
  const first = typing && page.edited !== document.activeElement;
  page.edited = typing ? document.activeElement : null;
  if (typing && !first) history.replaceState(null, "", hash);
  else if (hash !== location.hash) history.pushState(null, "", hash);
}

// Keep a change in the address without asking anything again.
function remember(changes) {
  Object.assign(page.state, changes);
  for (const key of Object.keys(changes)) if (changes[key] === "") delete page.state[key];
  history.replaceState(null, "", address(page.state));
  linked();
}

// Links to the views take the question along as it is now.
function linked() {
  for (const a of document.querySelectorAll("a[data-view]"))
    a.href = address({ ...page.state, view: a.dataset.view });
}

// What the view still shows of another question is dimmed until it is drawn anew; cards wait a
// moment (plan.js).
function dim() {
  const asked = JSON.stringify([question(page.state), page.state.clusters, page.state.prices]);
  if (asked !== page.asked)
    for (const node of document.querySelectorAll(DRAWN)) node.classList.add("stale");
  page.asked = asked;
}

const DRAWN = "#main > section, #main > p, #main > div[id]:not(.controls):not([id$=-error])";

async function draw({ typing = false, first = false } = {}) {
  page.abort?.abort(new DOMException("superseded", "AbortError"));
  page.abort = new AbortController();
  page.started = performance.now();
  source.waits?.();
  const view = VIEWS.find((v) => v.name === page.state.view) || plan;
  const ctx = {
    state: page.state,
    set,
    announce,
    signal: page.abort.signal,
    typing,
    first: first || page.shown !== view,
    catalogue: page.catalogue,
    drawn,
    remember,
    log: page.log,
    run: page.run,
  };
  if (page.shown !== view) {
    page.shown = view;
    put($("main"), h("h1", { class: "hidden" }, view.title), view.skeleton());
    header();
  }
  linked();
  dim();
  const showing = view.show(ctx);
  $("question").hidden = view.asks?.(page) === false;
  fill();
  const title = `${view.title} · ${modelName(page.state)} · Meshwright`;
  if (document.title !== title) document.title = title;
  document.body.dataset.busy = "yes";
  try {
    await showing;
    if (!ctx.signal.aborted)
      for (const node of document.querySelectorAll("#main .stale")) node.classList.remove("stale");
    drawn("all");
  } catch (error) {
    if (ctx.signal.aborted) return;
    failed(error);
  }
  if (!ctx.signal.aborted) document.body.dataset.busy = "no";
}

function drawn(what) {
  if (what !== "error") unsaid();
  if (what === "plan") lesson();
  const took = performance.now() - page.started;
  window.meshwright.timings.push([what, took]);
  document.body.dataset.drawn = what;
}

// Which place a question has where others wait for an answer too, 0: it is being worked out.
function waits(place) {
  if (!$("queue")) $("foot").before(h("p", { id: "queue", role: "status" }));
  const said =
    place === undefined
      ? ""
      : place
        ? `Number ${place} of those who wait for an answer …`
        : "This takes longer than most; it is being worked out …";
  if ($("queue").textContent !== said) $("queue").textContent = said;
}

// What an address of a lesson opens, once.
function lesson() {
  const one = LESSONS[page.state.lesson];
  if (!one || !shown.answer?.layout) return;
  remember({ lesson: "" });
  opened(askedNow(), one.term, one);
}

const askedNow = () => shown.answer?.layout && { ...priced(page.state), ...layoutShown() };

function failed(error) {
  if (!(error instanceof Refused)) window.meshwright.errors.push(String(error.stack || error));
  if (!(error instanceof Refused && saidBeside(error.message, page.state)))
    put(
      $(`${page.shown.name}-error`) || $("main"),
      h(
        "p",
        { class: "error", role: "alert" },
        error instanceof Refused ? error.message : `The page failed: ${error.message}`,
      ),
    );
  announce(error.message);
  drawn("error");
}

// Told to those who do not see the page; seen: shown to everybody for a while, with a way back
// to the state before, if there is one.
function announce(text, seen = false, before = null) {
  if (!seen) return put($("said"), text);
  const back = () => {
    put($("toast"));
    page.state = before;
    history.pushState(null, "", address(before));
    draw();
  };
  put($("toast"), text, before && h("button", { type: "button", onclick: back }, "Undo"));
  clearTimeout(page.timer);
  page.timer = setTimeout(() => put($("toast")), before ? 20000 : 4000);
}

// --- header -------------------------------------------------------------------------------------

// What is shown in Plan, as it is asked about.
function layoutShown() {
  const { question: asked, layout } = shown.answer;
  return { question: withoutLayout(asked), layout };
}

function header() {
  put(
    $("top"),
    h("h1", {}, "Meshwright"),
    h(
      "nav",
      { "aria-label": "Views" },
      VIEWS.map((v) =>
        h(
          "a",
          {
            "data-view": v.name,
            "aria-current": v === page.shown ? "page" : null,
            onclick: (e) => {
              e.preventDefault();
              set({ view: v.name });
            },
          },
          v.title,
        ),
      ),
    ),
    h("button", { type: "button", class: "menu", "aria-expanded": "false", onclick: menu }, "Menu"),
    h(
      "div",
      { class: "actions", onclick: () => unfolded(false) },
      !source.recorded && h("button", { type: "button", onclick: readDialog }, "Paste or drop"),
      !source.recorded && h("button", { type: "button", onclick: adviseDialog }, "Advise"),
      h("button", { type: "button", onclick: share }, "Copy link"),
      h("button", { type: "button", onclick: copyDialog }, "Copy as …"),
      !source.recorded && h("button", { type: "button", onclick: savePage }, "Save page"),
      h("button", { type: "button", onclick: theme, "aria-label": "Light or dark" }, "◐"),
    ),
  );
}

// The actions of a narrow screen, where they are folded, and again once one is chosen.
const menu = () => unfolded(!$("top").classList.contains("open"));

function unfolded(open) {
  $("top").classList.toggle("open", open);
  document.querySelector("#top .menu").setAttribute("aria-expanded", String(open));
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    /* private mode */
  }
}

async function share() {
  await copied(location.href, "The address of this answer is copied.");
}

async function copied(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    announce(said, true);
  } catch {
    announce("The browser does not allow copying; select the text instead.", true);
  }
}

async function copyDialog() {
  try {
    const { words, ...asked } =
      (page.shown === plan && shown.answer) ||
      (page.shown === clusters ? comparison(page.state) : { question: question(page.state) });
    const told = await ask("copies", { ...priced(page.state), ...asked });
    const part = (name, text) => [
      h(
        "h3",
        {},
        name,
        " ",
        h("button", { type: "button", onclick: () => copied(text, `${name} copied.`) }, "Copy"),
      ),
      h("pre", { tabindex: 0 }, text),
    ];
    dialog(
      "Copy as",
      words ? [h("p", { class: "note" }, words)] : [],
      part("Command", told.command),
      part("Python", told.python),
      part("JOB.toml", told.toml),
      (told.tools || []).map((t) =>
        t.text ? part(t.title, t.text) : [h("h3", {}, t.title), h("p", { class: "note" }, t.why)],
      ),
    );
  } catch (error) {
    announce(error.message, true);
  }
}

function readDialog() {
  const text = h("textarea", {
    id: "dropped",
    "aria-label": "Text to read",
    placeholder: "A config.json, a JOB.toml, a meshwright command, or a link to this page",
  });
  const said = h("p", { role: "status" });
  const box = dialog(
    "Paste or drop",
    h(
      "p",
      { class: "note" },
      "A config.json, a JOB.toml, a meshwright command, a configuration of another framework, " +
      "the log of its run, a link to this page, or the folder of a run of meshwright train. " +
      "Nothing leaves this machine.",
    ),
    text,
    h(
      "p",
      { class: "row" },
      h(
        "label",
        {},
        "a file ",
        h("input", {
          type: "file",
          "aria-label": "Choose a file",
          onchange: async (e) => {
            text.value = await e.target.files[0].text();
          },
        }),
      ),
      h(
        "label",
        {},
        "the folder of a run ",
        h("input", {
          type: "file",
          id: "run-folder",
          webkitdirectory: true,
          "aria-label": "Choose the folder of a run",
          onchange: async (e) => {
            try {
              await ran([...e.target.files].map((f) => [f.webkitRelativePath, f]));
              box.close();
            } catch (error) {
              said.textContent = error.message;
            }
          },
        }),
      ),
    ),
    said,
    h(
      "p",
      {},
      h(
        "button",
        {
          type: "button",
          onclick: async () => {
            try {
              await taken(text.value);
              box.close();
            } catch (error) {
              said.textContent = error.message;
            }
          },
        },
        "Read it",
      ),
    ),
  );
}

const adviseDialog = () => dialog("Which change makes a run faster?", ...adviceOn(page.state));

// Lines of a log with the seconds of a step (formats/logs.py); the newest are enough.
const LOGGED = /elapsed time per iteration|train_step_timing|\bstep:.*\btps:/;
const MOST_LINES = 2000;

async function taken(text) {
  if (/^\s*(https?|file):\/\/\S*#/.test(text)) {
    replace(parse(text.trim()), "a link");
    return;
  }
  const lines = text.split("\n").filter((line) => LOGGED.test(line));
  if (lines.length) {
    page.log = lines.slice(-MOST_LINES).join("\n");
    page.run = null;
    return set({ ...(await argumentsOf(text)), view: "runs" });
  }
  const told = await ask("read", { text, question: question(page.state) });
  replace(stateRead(told), told.said);
}

// What the arguments at the beginning of a log say; nothing, where it has none.
async function argumentsOf(text) {
  if (LOGGED.test(text.trimStart().split("\n", 1)[0])) return {}; // it begins with its steps
  try {
    const before = Object.fromEntries(Object.keys(question(page.state)).map((key) => [key, ""]));
    return { ...before, ...stateRead(await ask("read", { text, question: question(page.state) })) };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return {};
  }
}

// The state of a question that was read: its layout is "mine", what it leaves open stays.
function stateRead(told) {
  const kept = Object.fromEntries(
    ["on", "network", "batch", "tokens"]
      .filter((k) => page.state[k] && !told.question.job)
      .map((k) => [k, page.state[k]]),
  );
  return { view: page.state.view, ...kept, ...withMine(told.question) };
}

// The folder of a run, its files as [path, File].
async function ran(files) {
  const run = await runFiles(files);
  if (!run["job.toml"])
    throw new Error(
      "This is not the folder of a run: it has no job.toml. meshwright train creates one.",
    );
  page.run = run;
  page.log = null;
  set({ view: "runs" });
}

function replace(state, said) {
  const before = page.state;
  page.state = { ...state };
  history.pushState(null, "", address(page.state));
  draw();
  announce(`Read as ${said}.`, true, before);
}

async function savePage() {
  const empty = await (await fetch("single.html")).text();
  const held = JSON.stringify({ state: address(page.state), answers: answers() }).replace(
    /</g,
    "\\u003c",
  );
  save(
    "meshwright.html",
    empty.replace('"nothing recorded"', () => held),
    "text/html",
  );
}

// --- the question -------------------------------------------------------------------------------

const PLAIN = ["model", "on", "batch", "tokens"];
const CHOSEN = { network: "networks", precision: "precisions", framework: "frameworks" };
const BELOW = ["seq", ...Object.keys(CHOSEN), "assumptions"];

const input = (name, more = {}) =>
  line(`q-${name}`, "", (text) => set({ [name]: text }, true), more);

const choice = (name, values, first) =>
  select(`q-${name}`, [["", first], ...values], "", (value) => set({ [name]: value }));

const cluster = () => {
  const match = /^\s*([\d,_]+)\s*[x×*]\s*(.*)$/i.exec(page.state.on || "");
  return match ? [match[1], match[2]] : ["", page.state.on || ""];
};

function form() {
  const c = page.catalogue;
  const chips = (count, chip) => set({ on: chip ? `${count}x${chip}` : count }, true);
  const count = line("q-count", "", (text) => chips(text, cluster()[1]), { inputmode: "numeric" });
  const listed = { list: "machines", spellcheck: "false" };
  const chip = line("q-chip", "", (text) => chips(cluster()[0], text), listed);
  const narrow = matchMedia("(max-width: 760px)");
  const asked = h(
    "details",
    { id: "asked", open: !narrow.matches },
    h("summary", {}, h("span", { id: "asked-words" })),
    h(
      "div",
      { class: "fields" },
      field("model", input("model", { list: "models", spellcheck: "false" }), "model"),
      field("chips", count, "number"),
      field("of", chip, "chip"),
      field("batch, tokens", input("batch"), "number"),
      field("run, tokens", input("tokens", { placeholder: "15T" }), "number"),
      moreOf(c),
    ),
    h("p", { id: "facts", class: "note" }),
  );
  narrow.addEventListener("change", () => {
    asked.open = !narrow.matches;
  });
  put(
    $("question"),
    offered("models", c.models),
    offered("machines", [...c.chips, ...c.networks]),
    asked,
  );
}

// What most questions leave as it is usual.
function moreOf(c) {
  const rest = c.question.filter(
    ({ name, table }) => ![...PLAIN, ...BELOW, "model", "job"].includes(name) && table !== "layout",
  );
  const paid = (text) => {
    set({ prices: withPrice(page.state, ownChip(), text.replace(",", ".")) }, true);
  };
  const price = line("q-price", "", paid, {
    inputmode: "decimal",
    placeholder: "as listed",
    title:
      "Your price of a chip for an hour: what the run costs; in Compare clusters prices of " +
      "other chips can be said, too",
  });
  const budget = input("budget", {
    placeholder: "30 d, 5M$",
    title: "Days or dollars: how many tokens they are enough for",
  });
  return h(
    "details",
    { id: "more" },
    h("summary", {}, h("span", { id: "more-words" })),
    h(
      "div",
      { class: "more" },
      Object.entries(CHOSEN).map(([name, list]) => field(name, choice(name, c[list], "usual"))),
      field("sequence", input("seq", { placeholder: "model's" })),
      field("budget", budget),
      field("USD/h a chip", price),
      field("assumptions", choice("assumptions", c.assumptions, "realistic")),
      rest.map(({ name, help: title }) =>
        field(name.replace(/_/g, " "), input(name, { title }), "", { title }),
      ),
    ),
    h("p", { id: "job-note", class: "note" }),
  );
}

// The question in a line, and what its fold holds that is not as usual.
function summaries() {
  const { on, batch, tokens } = page.state;
  const words = [modelName(page.state), on, batch, tokens];
  $("asked-words").textContent = words.filter(Boolean).join(" · ");
  const odd = [...BELOW, "budget", "prices"].filter((name) => page.state[name]);
  $("more-words").textContent = odd.length
    ? odd.map((name) => `${name} ${page.state[name]}`).join(", ")
    : "precision, network, prices …";
}

// Whose price it is: a job of a file does not say its chip here.
const ownChip = () => cluster()[1] || shown.chip || "";

// The controls show the state; the one that is being typed in is left alone.
function fill() {
  if (!$("asked")) return;
  summaries();
  const [n, chip] = cluster();
  const texts = {
    ...page.state,
    count: n,
    chip,
    price: priceOf(page.state, ownChip()),
    model:
      page.state.model && !page.state.model.startsWith("{")
        ? page.state.model
        : modelName(page.state) && `(${modelName(page.state)})`,
  };
  for (const node of document.querySelectorAll("#question [id^=q-]")) {
    const value = texts[node.id.slice(2)] || "";
    if (node !== document.activeElement && node.value !== value) {
      if (node.tagName === "SELECT" && value && ![...node.options].some((o) => o.value === value))
        node.append(h("option", { value }, value));
      node.value = value;
    }
  }
  if ($("job-note"))
    $("job-note").textContent = page.state.job
      ? "The rest comes from the file that was dropped; fields here replace what it says."
      : "";
}

// Where the program runs in the browser: what of it is loading, or why it does not run.
function loading() {
  const { loading, failed } = engineState;
  if (!$("engine")) $("foot").before(h("p", { id: "engine", class: "note", role: "status" }));
  put(
    $("engine"),
    failed
      ? `The program does not run in this browser: ${failed}`
      : loading
        ? `Loading ${loading} … answers until then were worked out when this page was written.`
        : "The program runs in your browser: nothing is sent anywhere.",
  );
}

// --- start --------------------------------------------------------------------------------------

// The answers that stand in the page itself; without an address it opens with their question.
function written(id, use) {
  const held = JSON.parse(document.getElementById(id)?.textContent || "{}");
  if (!held.answers) return;
  use(held.answers);
  if (held.state && location.hash.length < 3) page.state = parse(held.state);
}

async function start() {
  try {
    const kept = localStorage.getItem("theme");
    if (kept) document.documentElement.dataset.theme = kept;
  } catch {
    /* private mode */
  }
  source.waits = waits;
  written("recorded", (answers) => {
    source.recorded = answers;
  });
  written("known", (answers) => {
    source.first = answers;
  });
  written("first", (answers) => {
    source.first = answers;
    engineState.changed = loading;
    engine();
  });
  page.catalogue = await ask("catalogue");
  know(page.catalogue);
  versionOf(page.catalogue.version);
  draw({ first: true });
  form();
  fill();
  put(
    $("foot"),
    `Meshwright ${page.catalogue.version}. Predictions are made on this machine; nothing is ` +
    `sent anywhere. `,
    h(
      "a",
      {
        "data-view": "sure",
        onclick: (e) => {
          e.preventDefault();
          set({ view: "sure" });
        },
      },
      "How sure is this?",
    ),
  );
  linked();
  linkedTo($("main"), askedNow);
  document.querySelector(".skip").addEventListener("click", (e) => {
    e.preventDefault();
    $("main").focus();
  });
  $("question").addEventListener("submit", (e) => e.preventDefault());
  addEventListener("popstate", () => {
    document.activeElement?.blur(); // else what was typed would stay in its field
    page.edited = null;
    page.state = parse(location.hash);
    draw();
  });
  addEventListener("dragover", (e) => e.preventDefault());
  addEventListener("drop", async (e) => {
    e.preventDefault();
    const entry = e.dataTransfer.items?.[0]?.webkitGetAsEntry?.();
    try {
      if (entry?.isDirectory) return await ran(await inside(entry));
      return await taken(
        e.dataTransfer.files[0]
          ? await e.dataTransfer.files[0].text()
          : e.dataTransfer.getData("text"),
      );
    } catch (error) {
      return announce(error.message, true);
    }
  });
  history.replaceState(null, "", address(page.state));
}

addEventListener("error", (e) => window.meshwright.errors.push(String(e.message)));
addEventListener("unhandledrejection", (e) => {
  if (e.reason?.name !== "AbortError") window.meshwright.errors.push(String(e.reason));
});
start().catch(failedToStart);

function failedToStart(error) {
  put(
    $("main"),
    h("p", { class: "error", role: "alert" }, `The page could not start: ${error.message}`),
  );
}
