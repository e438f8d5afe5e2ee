// The view Plan: the answer, what each other choice costs, what each change would bring.

import { fold, h, put, renew, table, wait } from "./dom.js";
import { $, line } from "./controls.js";
import { drawMachine, facts } from "./machine.js";
import { mineBeside } from "./advise.js";
import { lessonList } from "./lessons.js";
import { Refused, ask, lines, settled, source } from "./ask.js";
import {
  bestOf,
  budgeted,
  fields,
  listed,
  pins,
  priced,
  question,
  unpriced,
  withoutLayout,
  words,
} from "./state.js";
import { change, gib, grouped, percent, plural, seconds, sig, step, usd } from "./format.js";
import {
  WORDS,
  causes,
  chance,
  decides,
  differs,
  expected,
  fits,
  headline,
  inParts,
  memoryFigure,
  notesList,
  slower,
  spoken,
  tied,
  timeFigure,
  valueOf,
  waits,
} from "./answer.js";

const NAMES = {
  tp: "tensor parallel",
  cp: "context parallel",
  pp: "pipeline stages",
  ep: "expert parallel",
  microbatch: "sequences at once",
  interleave: "chunks a device",
  schedule: "order of microbatches",
  zero: "",
  recompute: "",
  sequence_parallel: "tokens cut over tp",
};
const IDLE = 500;
const DIM = 150; // an answer that is not drawn anew by then is dimmed
const PAUSE = 150; // somebody who types is left alone
const WAITING = "Worked out after the other choices …";
const last = { layout: null, on: "", network: "", model: "", asked: "", values: {}, deltas: {} };

// The answer on the screen: its question, its layout and both in words.
export const shown = { answer: null, chip: "" };

export const plan = { name: "plan", title: "Plan", show, skeleton };

function skeleton() {
  Object.assign(shown, { answer: null });
  Object.assign(last, { asked: "", values: {}, deltas: {} });
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
    families(ctx, await ask("plan", { question: asked }, ctx.signal));
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
  const body = { question: freeOf(ctx.state), layout: best.layout };
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
    closest && h("p", { class: "words" }, inParts(closest.layout_words || brief(closest.layout))),
    notesList(told.notes),
  );
  if (closest) figures(closest);
  else for (const id of CARDS.slice(1)) $(id).classList.add("gone");
  if (closest) machineShown(ctx, closest).catch(() => null);
  for (const id of ["families", "whatif", "searched", "mine", "mine-beside"]) put($(id));
  $("families").classList.remove("stale");
  if (closest || Object.keys(last.values).length)
    selectors(ctx, { best: { layout: closest?.layout || {} }, none: true }, null);
  else put($("layout"), free(ctx));
  ctx.announce(`N${said.slice(1)}: ${sentence}.`);
}

const free = (ctx) =>
  pins(ctx.state).length > 0 &&
  h(
    "button",
    {
      type: "button",
      onclick: () => ctx.set(Object.fromEntries(fields.layout.map((f) => [f, ""]))),
    },
    "let every choice free",
  );

// --- selectors ----------------------------------------------------------------------------------

function selectors(ctx, told, found) {
  const best = told.best;
  // until the values of this question are known those of the one before stand there, so that no
  // option goes away under a pointer or a key
  const values = (last.values = found?.values || last.values);
  const by = new Map((found?.choices || []).map((c) => [`${c.field}=${c.value}`, c]));
  const names = Object.keys(values).length
    ? Object.keys(values)
    : Object.keys(NAMES).filter((f) => f in best.layout && (f !== "ep" || best.layout.ep > 1));
  const row = (field) =>
    fieldset(ctx, told, field, withAnswer(values[field], best.layout[field]), by);
  const rare = names.filter((field) => RARE.includes(field));
  renew(
    $("layout"),
    h("h2", { id: "layout-title" }, "Layout ", free(ctx)),
    fold("≈ tie, † beyond practice", readingOf(told), wordsOfLayouts()),
    names.filter((field) => !rare.includes(field)).map(row),
    rare.length
      ? h("details", { id: "rare" }, h("summary", {}, "More choices"), rare.map(row))
      : "",
  );
  if (rare.some((field) => ctx.state[field])) $("rare").open = true;
}

// Choices that few touch, behind a fold.
const RARE = ["microbatch", "interleave", "schedule", "sequence_parallel"];

const readingOf = (told) =>
  h(
    "p",
    { class: "note" },
    "Marked: the answer. Choose a value to fix it. ",
    h("em", {}, "In italics"),
    ": this one thing changed, the rest kept. ",
    h("b", {}, "In bold"),
    ": the rest searched again.",
    told.resolution
      ? " Counted is the expected time: that of a step over the chance that it fits. " +
          `Within ${percent(told.resolution)} of the fastest is a tie (≈): nobody can tell which ` +
          "is faster, so what runs and recipes show, else the simplest, is the answer."
      : "",
    " Dashed: not legal, or nothing fits. Beyond practice (†): no published run is laid out like ",
    "that, or the framework does not run it. Rest on a value to read why.",
  );

const wordsOfLayouts = () =>
  h(
    "dl",
    { class: "facts" },
    Object.entries(WORDS).map(([word, text]) => [h("dt", {}, word), h("dd", {}, text)]),
  );

function withAnswer(values = [], answer) {
  return answer === undefined || values.includes(answer)
    ? values
    : [...values, answer].sort((a, b) =>
        typeof a === "number" && typeof b === "number" ? a - b : 0,
      );
}

function fieldset(ctx, told, field, values, by) {
  const pinned = listed(ctx.state[field]);
  const option = (value, shown, extra, cls, why) => {
    const id = `opt-${field}-${value}`;
    return h(
      "label",
      { class: `option ${cls}` },
      h("input", {
        type: "radio",
        name: field,
        id,
        value,
        title: why,
        checked: value === "" ? !pinned.length : pinned.length === 1 && pinned[0] === String(value),
        onchange: () => ctx.set({ [field]: String(value) }),
      }),
      h("span", {}, shown),
      extra,
    );
  };
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", {}, field.replace("_", " "), h("small", {}, NAMES[field] || "")),
    option("", "any", "", "", `The search chooses ${field.replace("_", " ")}.`),
    values.map((value) => {
      const key = `${field}-${value}`;
      const [known, why, cls] = standing(told, field, value, by.get(`${field}=${value}`));
      // until this question's is known the one of the question before stands there, dimmed
      const text = known || last.deltas[key] || "…";
      if (!told.none) last.deltas[key] = text;
      const mark = h(
        "span",
        { class: `delta first ${known ? "" : "old"}`, id: `delta-${key}` },
        text,
      );
      return option(value, worded(value), mark, cls, why);
    }),
  );
}

// How a value stands beside the answer: a few signs, a sentence, and a class; no signs as long as
// its choice, of the layout with this one thing changed, is not known.
function standing(told, field, value, choice) {
  const { best, none } = told;
  const own = value === best.layout[field];
  if (none)
    return [
      own ? "closest" : "–",
      "Nothing fits with what is fixed: choose another value, or any.",
      own ? "now" : "",
    ];
  if (own && best.layout[NEEDS[field]] === 1)
    return ["no effect", `The answer has ${NEEDS[field]} 1, where this changes nothing.`, ""];
  if (own) return ["answer", `The answer: ${costs(best)}.`, "now"];
  if (!choice) return ["", "Being worked out …", ""];
  return [delta(choice, told), changedAlone(choice, best), choice.why ? "not" : ""];
}

// Choices that change nothing where this degree is 1.
const NEEDS = { interleave: "pp", schedule: "pp", sequence_parallel: "tp" };

// What a layout costs, in words.
const costs = (p) =>
  `a step of ${step(decides(p))}, needs ${gib(p.needed_bytes ?? p.memory_bytes.needed)}, fits ` +
  `with a chance of ${chance(p)}`;
const costsBeside = (c, best) =>
  `${costs(c)}: expected ${step(expected(c))}, ${change(slower(c, best))}` +
  (c.fits ? "" : "; does not fit") +
  (c.note ? `; beyond practice: ${c.note}` : "");
const changedAlone = (c, best) =>
  c.step_time_s === null ? c.why : `This alone changed: ${costsBeside(c, best)}.`;
const searchedToo = (c, best) =>
  c.step_time_s === null
    ? c.why
    : `The rest searched again${c.layout_words ? ` (${c.layout_words})` : ""}: ` +
      `${costsBeside(c, best)}.`;

const worded = (value) => (value === true ? "yes" : value === false ? "no" : String(value));

function delta(choice, told) {
  if (choice.step_time_s === null)
    return choice.why?.includes("changes nothing") ? "no effect" : "not legal";
  if (!choice.fits) return "no fit";
  const marks = (tied(choice, told) ? " ≈" : "") + (choice.note ? " †" : "");
  return change(slower(choice, told.best)).replace(" %", "%") + marks;
}

async function beside(ctx, told) {
  const best = told.best;
  const found = await ask(
    "beside",
    { question: freeOf(ctx.state), layout: best.layout },
    ctx.signal,
  );
  selectors(ctx, told, found);
  ctx.drawn("beside");
}

const freeOf = (state) => question(state, true);

// Each value fixed, the rest searched again: streamed, since each is a search.
async function searchedAgain(ctx, told) {
  for await (const c of lines(
    "choices",
    { question: question(ctx.state), layout: told.best.layout },
    ctx.signal,
  )) {
    const node = $(`delta-${c.field}-${c.value}`);
    if (!node || ctx.signal.aborted) continue;
    const none = / legal/.test(c.why) ? "not legal" : "none fits";
    node.className = "delta sure";
    node.textContent = c.step_time_s === null ? none : delta(c, told);
    last.deltas[`${c.field}-${c.value}`] = node.textContent;
    node.closest("label").classList.toggle("not", c.step_time_s === null);
    const input = $(`opt-${c.field}-${c.value}`);
    input.setAttribute(
      "title",
      [searchedToo(c, told.best), c.step_time_s !== null && input.getAttribute("title")]
        .filter(Boolean)
        .join(" "),
    );
  }
  ctx.drawn("choices");
}

// --- what pins cost, families, mine, what if ----------------------------------------------------

async function compared(ctx, told) {
  if (!pins(ctx.state).length) return;
  const all = await ask(
    "plan",
    { question: freeOf(ctx.state), families: false, top: 1 },
    ctx.signal,
  ).catch(() => null);
  if (!all?.best || ctx.signal.aborted) return;
  const same = told.best.layout_words === all.best.layout_words;
  const cost = tied(told.best, all)
    ? "nothing that anybody could tell"
    : change(decides(told.best) / decides(all.best));
  put($("state"), h("b", {}, `What you fixed costs ${same ? "nothing" : cost}.`));
  put(
    $("pinned"),
    same
      ? "The answer has what you fixed where all is free, too."
      : `What you fixed: ${differs(told.best, all.best)}. Where all is free, the answer is ` +
          `${all.best.layout_words}.`,
  );
}

// The best of each family of layouts, then the runners-up; what nobody can tell apart is a tie.
function families(ctx, told) {
  $("families").classList.remove("stale");
  const best = told.best;
  const row = (name, p, i, said) => [
    h(
      "span",
      {},
      name ? h("b", {}, `${name}: `) : "",
      p ? p.layout_words || brief(p.layout) : "none of them fits",
    ),
    ...(p
      ? [
          step(p.step_time_s),
          chance(p),
          step(expected(p)),
          (i ? change(slower(p, best)) : "–") + (i && said ? ", a tie" : ""),
          gib(p.memory_bytes.needed),
        ]
      : Array(5).fill("–")),
    h("span", { class: "note" }, p && i ? causes(p, best) : ""),
    p &&
      h(
        "button",
        {
          type: "button",
          "aria-label": `fix this layout: ${p.layout_words || ""}`,
          onclick: () => ctx.set(fixed(p.layout)),
        },
        "fix",
      ),
  ];
  const head = [
    "layout",
    "step time",
    "chance it fits",
    "expected time",
    "against the answer",
    "memory",
    "what differs in a step",
    "",
  ];
  const what =
    "Expected time: the step time over the chance that it fits (what runs out of memory is " +
    "started again with another layout). The answer against which the others are compared has " +
    "the least of it, or is what runs and recipes show of ties, else their simplest.";
  const answers = (f) => f.prediction?.layout_words === best.layout_words;
  const others = (told.families || [])
    .filter((f) => !answers(f))
    .map((f) => row(f.note ? `${f.name} (${f.note})` : f.name, f.prediction, 1, f.tie));
  const own = told.families?.find(answers)?.name;
  const kinds = others.length
    ? table(
        head,
        [row(own ? `the answer, ${own}` : "the answer", best, 0), ...others],
        "The best of each family of layouts",
      )
    : null;
  const rest = table(
    head,
    [
      row("", best, 0),
      ...(told.alternatives || []).map((p) => row("", p, 1, p.tie ?? tied(p, told))),
    ],
    "The best layouts",
  );
  reason(told);
  renew(
    $("families"),
    h("h2", { id: "families-title" }, "What else"),
    fold(
      others.length ? `${plural(others.length, "other family", "other families")}` : "Runners-up",
      h("p", { class: "note" }, what),
      kinds,
      kinds ? fold("The best layouts of all families", rest) : rest,
    ),
  );
}

const brief = (l) =>
  ["tp", "cp", "pp", "dp", "ep"]
    .filter((a) => l[a] > 1)
    .map((a) => `${a} ${l[a]}`)
    .join(" · ");
const fixed = (layout) =>
  Object.fromEntries(
    fields.layout
      .filter((f) => f in NAMES && layout[f] !== undefined)
      .map((f) => [f, String(layout[f])]),
  );

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
      { question: freeOf(ctx.state), layout: words(ctx.state.mine), ...priced(ctx.state) },
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

async function whatIf(ctx, told) {
  const box = $("whatif-row") || h("div", { class: "row", id: "whatif-row" });
  const more = h("p", { class: "note" }, "working …");
  put($("whatif"), whatIfTitle(ctx, told), box, more);
  let count = 0;
  for await (const c of lines("what_if", { question: question(ctx.state) }, ctx.signal)) {
    const fresh = whatIfBox(ctx, told, c); // what was there before is replaced in its place
    if (box.children[count]) box.children[count].replaceWith(fresh);
    else box.append(fresh);
    count += 1;
  }
  for (const left of [...box.children].slice(count)) left.remove();
  more.remove();
  ctx.drawn("what_if");
}

function whatIfBox(ctx, told, c) {
  const usable = Object.keys(c.set).length > 0;
  const tie = c.slower && Math.abs(c.slower) < (told.resolution || 0) ? " ≈" : "";
  const text = c.why ? "nothing fits" : change(1 + c.slower).replace(" %", "%") + tie;
  const props = usable
    ? { class: "option", type: "button", onclick: () => ctx.set(c.set) }
    : { class: "told" };
  return h(
    usable ? "button" : "span",
    { ...props, title: c.why || c.layout_words },
    h("span", {}, c.name.replace(" %", "%")),
    h("span", { class: "delta sure" }, text),
  );
}

const whatIfTitle = (ctx, told) => [
  h("h2", { id: "whatif-title" }, "What if"),
  fold(
    "how to read",
    h(
      "p",
      { class: "note" },
      "The time a token takes if one thing is changed and ",
      pins(ctx.state).length ? "all that is not fixed" : "everything",
      " is searched again: the fastest layout then against the fastest now. ",
      told ? waits(told.best) : "",
      " Press a button to make it the question; what has no frame is only told.",
    ),
  ),
];
