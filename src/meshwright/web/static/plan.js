// The view Plan: the answer, what each other choice costs, what each change would bring.

import { fold, h, put, renew, table, wait } from "./dom.js";
import { $, line } from "./controls.js";
import { drawMachine, facts } from "./machine.js";
import { mineBeside } from "./advise.js";
import { lessonList } from "./lessons.js";
import { beside, forget, searchedAgain, selectors } from "./selectors.js";
import { families } from "./families.js";
import { whatIf, whatIfTitle } from "./whatif.js";
import { Refused, ask, settled, source } from "./ask.js";
import {
  bestOf,
  budgeted,
  pins,
  priced,
  question,
  unpriced,
  withoutLayout,
  words,
} from "./state.js";
import { change, grouped, plural, seconds, sig, step, usd } from "./format.js";
import {
  decides,
  differs,
  fits,
  headline,
  inParts,
  memoryFigure,
  notesList,
  spoken,
  tied,
  timeFigure,
  valueOf,
} from "./answer.js";

const IDLE = 500;
const DIM = 150; // an answer that is not drawn anew by then is dimmed
const PAUSE = 150; // somebody who types is left alone
const WAITING = "Worked out after the other choices …";
const last = { layout: null, on: "", network: "", model: "", asked: "" };

// The answer on the screen: its question, its layout and both in words.
export const shown = { answer: null, chip: "" };

export const plan = { name: "plan", title: "Plan", show, skeleton };

function skeleton() {
  Object.assign(shown, { answer: null });
  Object.assign(last, { asked: "" });
  forget();
  return [
    h("div", { id: "plan-error" }),
    h("section", { id: "mine-beside", "aria-label": "Your run beside the best" }),
    h(
      "div",
      { class: "cards" },
      h(
        "div",
        { class: "column" },
        h("section", { class: "card", id: "answer", "aria-label": "The answer" }),
        h("section", { class: "card", id: "time", "aria-label": "Time" }),
      ),
      h(
        "div",
        { class: "column" },
        h("section", { class: "card", id: "machine", "aria-label": "The machine" }),
        h("section", { class: "card", id: "memory", "aria-label": "Memory" }),
      ),
    ),
    h("section", { id: "layout", "aria-labelledby": "layout-title" }),
    h("section", { id: "mine", "aria-labelledby": "mine-title" }),
    h("section", { id: "families", "aria-labelledby": "families-title" }),
    h("section", { id: "whatif", "aria-labelledby": "whatif-title" }),
    h("section", { id: "searched", "aria-label": "How it was found" }),
    h("nav", { id: "lessons", "aria-label": "Lessons" }, lessonList()),
  ];
}


async function show(ctx) {
  const asked = question(ctx.state);
  const body = { question: asked, families: false, top: 1, ...priced(ctx.state) };
  const [, odd] = budgeted(ctx.state);
  put(
    $("plan-error"),
    [unpriced(ctx.state), odd]
      .filter(Boolean)
      .map((said) => h("p", { class: "error", role: "alert" }, said)),
  );
  wait(DIM, ctx.signal).then(
    () => ctx.shownAgain || ctx.closed || stale(),
    () => null,
  );
  const before = last.layout && !ctx.first ? predicted(ctx, asked) : null;
  const search = settled("plan", body, ctx.signal, (told) => shownFirst(ctx, told));
  before?.then(
    (told) => shownAgain(ctx, told),
    () => null,
  );
  const told = await search;
  draw(ctx, told);
  ctx.drawn("plan");
  if (!told.best) return;
  // the answer is shown before what stands around it
  await Promise.race([new Promise(requestAnimationFrame), wait(50, ctx.signal)]);
  around(ctx, told);
  try {
    await Promise.all([
      compared(ctx, told),
      mineShown(ctx, told),
      mineBeside($("mine-beside"), ctx, told.best),
      machineShown(ctx, told.best),
    ]);
    if (ctx.typing) await wait(PAUSE, ctx.signal);
    await beside(ctx, told);
    await wait(IDLE, ctx.signal);
    const all = await ask("plan", { question: asked }, ctx.signal);
    families(ctx, all);
    reason(all);
    ctx.drawn("families");
    for (const [id, part] of [
      ["layout", searchedAgain],
      ["whatif", whatIf],
    ])
      await part(ctx, told).catch((error) => unfinished(id, error));
  } catch (error) {
    if (!(error instanceof Refused) || !source.recorded) throw error;
  }
}

// What stands around the answer may take too long, which is said where it would stand; the rest
// goes on.
function unfinished(id, error) {
  if (!(error instanceof Refused) || source.recorded) throw error;
  $(id).append(h("p", { class: "note" }, `Not all of this was worked out: ${error.message}`));
}

const CARDS = ["answer", "time", "machine", "memory"];

function stale() {
  for (const id of CARDS) $(id).classList.add("stale");
}

// The machine with the layout on it, and what model and chip are; a saved page may not have it.
async function machineShown(ctx, best) {
  const body = { question: question(ctx.state, true), layout: best.layout };
  const told = await ask("machine", body, ctx.signal).catch((error) => {
    if (!(error instanceof Refused)) throw error;
  });
  if (!told?.dims) return;
  drawMachine($("machine"), told);
  if ($("facts")) $("facts").textContent = facts(best, told);
}

// The layout on the screen, predicted for the new question at once, while the search runs.
function predicted(ctx, asked) {
  const same = last.on === asked.on && last.network === asked.network && last.model === asked.model;
  const { placement, dp, ...degrees } = last.layout;
  const layout = same ? last.layout : degrees;
  const body = { question: withoutLayout(asked), layout, ...priced(ctx.state) };
  return ask("predict", body, ctx.signal);
}

function shownAgain(ctx, told) {
  if (ctx.signal.aborted || ctx.closed) return;
  ctx.shownAgain = true;
  drawAnswer(ctx, told, null, "the layout before, predicted again; searching for better ones …");
  reason({});
  ctx.drawn("predict");
}

// A plan worked out when the page was written, while the program that answers is loading.
function shownMeanwhile(ctx, { best, price, same, of }) {
  if (ctx.signal.aborted || ctx.closed) return;
  ctx.shownAgain = true;
  const whose = same ? "Worked out" : `Not your question but a near one (${of}), worked out`;
  drawAnswer(
    ctx,
    best,
    price,
    `${whose} when this page was written. The program is loading into your browser, once some ` +
      "9 MB, and answers then …",
  );
  reason({});
  ctx.drawn("meanwhile");
}

// The best layout by lower bounds of its pipeline, while pipelines are replayed and fewer chips
// tried.
function shownFirst(ctx, told) {
  if (told.meanwhile) return shownMeanwhile(ctx, told.meanwhile);
  if (ctx.signal.aborted) return;
  ctx.closed = true;
  drawn(ctx, told.closed_form, told.price, "best by lower bounds; replaying, trying fewer chips …");
  ctx.drawn("closed");
}

// Why it wins; with families, against the next of them too.
function reason(told) {
  const why = (told.why || "").replace(/(?<= )-(?=\d)/g, "−");
  if ($("why")) put($("why"), why);
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function drawAnswer(ctx, p, price, said, idle = "") {
  shown.answer = {
    question: question(ctx.state),
    layout: p.layout,
    words: [p.model && `${p.model} on ${p.cluster}`, p.layout_words].filter(Boolean).join(": "),
  };
  renew(
    $("answer"),
    h("h2", { class: "hidden" }, "The answer"),
    headline(p, price, budgeted(ctx.state)[0]),
    fold("Why this layout", h("p", { id: "why" }), h("p", { id: "pinned" })),
    h(
      "p",
      { id: "state", class: "note" },
      idle ? [h("b", { class: "warn" }, "Some chips are idle. "), `${capital(idle)}.`] : said,
    ),
  );
  figures(p);
}

function figures(p) {
  for (const id of CARDS) $(id).classList.remove("gone");
  put($("time"), timeFigure(p));
  put($("memory"), memoryFigure(p));
}

function draw(ctx, told) {
  const best = told.best;
  ctx.closed = true;
  if (!best) return nothing(ctx, told);
  drawn(ctx, best, told.price, null, told);
  held(ctx, best, told.price);
  ctx.announce(spoken(best));
}

function drawn(ctx, best, price, said, told = {}) {
  Object.assign(last, {
    layout: best.layout,
    on: ctx.state.on,
    network: ctx.state.network,
    model: ctx.state.model,
  });
  drawAnswer(ctx, best, price, said, told.idle);
  reason(told);
}

// What a JOB.toml says, in the fields that could replace it.
function held(ctx, p, price) {
  shown.chip = price?.chip;
  $("q-price")?.setAttribute(
    "placeholder",
    price?.usd_per_hour && !price.yours ? sig(price.usd_per_hour) : "none known",
  );
  const says = {
    count: grouped(p.chips),
    chip: price?.chip,
    batch: `${p.batch_sequences}seq`,
    seq: p.seq_tokens,
  };
  for (const [name, text] of Object.entries(says))
    $(`q-${name}`)?.setAttribute(
      "placeholder",
      ctx.state.job ? text : name === "seq" ? "model's" : "",
    );
}

function around(ctx, told) {
  selectors(ctx, told, null);
  // dimmed where it stands: what is below must not jump up and down
  $("families").classList.add("stale");
  const asked = JSON.stringify(question(ctx.state));
  if (!$("whatif-row"))
    put($("whatif"), whatIfTitle(ctx, told), h("p", { class: "note" }, WAITING));
  // of another question it is dimmed where it stands
  $("whatif").classList.toggle("stale", asked !== last.asked && Boolean($("whatif-row")));
  last.asked = asked;
  const notes = (told.notes || []).filter((note) => note !== told.idle);
  notes.push(...(told.best.notes || []));
  const found = `${grouped(told.searched)} layouts searched`;
  const { tried, not_tried } = told.space || {};
  const why = { memory: "does not fit in memory", bound: "a bound shows that it is slower" };
  const left = Object.entries(told.rejected || {})
    .filter(([, n]) => n)
    .map(([reason, n]) => [why[reason] || reason, grouped(n)]);
  renew(
    $("searched"),
    fold(
      notes.length ? `${found}; ${plural(notes.length, "note")}` : found,
      h("p", { class: "note" }, `Searched in ${seconds(told.elapsed_s, 2)}.`),
      h("p", { class: "note" }, tried ? `Fastest of: ${tried}. ` : ""),
      h("p", { class: "note" }, not_tried ? `Not tried: ${not_tried}.` : ""),
      notesList(notes),
      table(["why a layout was left out", "combinations"], left, "Why layouts were left out"),
    ),
  );
}

// Where nothing fits, all cards are of the layout that comes closest; choices stay where they are.
function nothing(ctx, told) {
  const { closest } = told;
  const said = closest ? "no layout fits" : "no layout is legal";
  const sentence = (told.notes || [])[0] || said;
  Object.assign(last, { asked: "" });
  shown.answer = { question: question(ctx.state) };
  put(
    $("answer"),
    h("p", { class: "lead bad" }, h("b", {}, said)),
    closest && h("p", { class: "step" }, `Closest, and shown here: needs ${fits(closest)[1]}.`),
    closest && h("p", { class: "words" }, inParts(closest.layout_words || "")),
    notesList(told.notes),
  );
  if (closest) figures(closest);
  else for (const id of CARDS.slice(1)) $(id).classList.add("gone");
  if (closest) machineShown(ctx, closest).catch(() => null);
  for (const id of ["families", "whatif", "searched", "mine", "mine-beside"]) put($(id));
  $("families").classList.remove("stale");
  selectors(ctx, { best: { layout: closest?.layout || {} }, none: true }, null);
  ctx.announce(`N${said.slice(1)}: ${sentence}.`);
}

async function compared(ctx, told) {
  if (!pins(ctx.state).length) return;
  const all = await ask(
    "plan",
    { question: question(ctx.state, true), families: false, top: 1 },
    ctx.signal,
  ).catch(() => null);
  if (!all?.best || ctx.signal.aborted) return;
  const same = told.best.layout_words === all.best.layout_words;
  const cost = tied(told.best, all)
    ? "nothing that anybody could tell"
    : change(decides(told.best) / decides(all.best));
  $("state").append(h("b", {}, ` What you fixed costs ${same ? "nothing" : cost}.`));
  put(
    $("pinned"),
    same
      ? "The answer has what you fixed where all is free, too."
      : `What you fixed: ${differs(told.best, all.best)}. Where all is free, the answer is ` +
          `${all.best.layout_words}.`,
  );
}

async function mineShown(ctx, told) {
  const input = line("mine-text", ctx.state.mine || "", (mine) => ctx.set({ mine }, true), {
    size: 44,
    placeholder: "tp 8 pp 4 zero 1",
    "aria-label": "my layout",
  });
  const out = h("p", { id: "mine-answer" });
  if (document.activeElement?.id !== "mine-text")
    put(
      $("mine"),
      h("h2", { id: "mine-title" }, "Why not mine?"),
      h("div", { class: "row" }, input),
      out,
    );
  const box = $("mine-answer");
  if (!ctx.state.mine) return put(box);
  try {
    const p = await ask(
      "predict",
      { question: question(ctx.state, true), layout: words(ctx.state.mine), ...priced(ctx.state) },
      ctx.signal,
    );
    const [word, room] = fits(p);
    const cost = valueOf(p.cost_usd) ? ` and costs ${usd(valueOf(p.cost_usd))}` : "";
    const time = p.train_time_s && seconds(valueOf(p.train_time_s));
    const run = time ? `; the run takes ${time}${cost}` : "";
    put(
      box,
      h("b", {}, `${step(p.step_time_s)} a step`),
      ` (${p.layout_words}); `,
      h("span", { class: p.fits ? "good" : "bad" }, word),
      `: ${room}${run}; against ${bestOf(ctx.state, "the best")} ${differs(p, told.best)}.`,
    );
  } catch (error) {
    if (!ctx.signal.aborted) put(box, h("span", { class: "bad" }, error.message));
  }
}
