// The frame of the page: question, views, address; each change of the state is drawn at once.

import { dialog, h, put, save } from "./dom.js";
import { $ } from "./controls.js";
import { fill, form } from "./form.js";
import { ran, readDialog, taken } from "./reading.js";
import { Refused, answers, ask, source } from "./ask.js";
import { address, know, modelName, parse, priced, question, withoutLayout } from "./state.js";
import { engine, engineState } from "./engine.js";
import { versionOf } from "./chart.js";
import { plan, shown } from "./plan.js";
import { clusters, comparison } from "./clusters.js";
import { timeline } from "./timeline.js";
import { limits } from "./limits.js";
import { roofline } from "./roofline.js";
import { sure } from "./sure.js";
import { inside, runs } from "./runs.js";
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
  set,
  replace,
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
  fill(page);
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
      !source.recorded && h("button", { type: "button", onclick: readHere }, "Paste or drop"),
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

const readHere = () => readDialog(page);
const adviseDialog = () => dialog("Which change makes a run faster?", ...adviceOn(page.state));

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

// --- the program in the browser ------------------------------------------------------------------

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
  form(page);
  fill(page);
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
      if (entry?.isDirectory) return await ran(page, await inside(entry));
      const [file] = e.dataTransfer.files;
      return await taken(page, file ? await file.text() : e.dataTransfer.getData("text"));
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
