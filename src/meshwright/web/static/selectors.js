// The choices of a layout: what each other value would cost.

import { fold, h, renew } from "./dom.js";
import { $ } from "./controls.js";
import { ask, lines } from "./ask.js";
import { fields, items, pins, question } from "./state.js";
import { change, gib, percent, step } from "./format.js";
import { WORDS, chance, decides, expected, slower, tied } from "./answer.js";

export const NAMES = {
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

// What is known of the question before stands there until this one's is.
const previous = { values: {}, deltas: {} };

export const forget = () => Object.assign(previous, { values: {}, deltas: {} });

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

export function selectors(ctx, told, found) {
  const best = told.best;
  // until the values of this question are known those of the one before stand there, so that no
  // option goes away under a pointer or a key
  const values = (previous.values = found?.values || previous.values);
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
  const pinned = items(ctx.state[field]);
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
      const [signs, why, cls] = standing(told, field, value, by.get(`${field}=${value}`));
      // until this question's is known the one of the question before stands there, dimmed
      const text = signs || previous.deltas[key] || "…";
      if (!told.none) previous.deltas[key] = text;
      const mark = h(
        "span",
        { class: `delta first ${signs ? "" : "old"}`, id: `delta-${key}` },
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

// How many times as long, where there is little room: "+6%", "7.3×".
export const briefly = (ratio) => change(ratio).replace(" %", "%").replace(" times", "×");

function delta(choice, told) {
  if (choice.step_time_s === null)
    return choice.why?.includes("changes nothing") ? "no effect" : "not legal";
  if (!choice.fits) return "no fit";
  const marks = (tied(choice, told) ? " ≈" : "") + (choice.note ? " †" : "");
  return briefly(slower(choice, told.best)) + marks;
}

export async function beside(ctx, told) {
  const best = told.best;
  const found = await ask(
    "beside",
    { question: question(ctx.state, true), layout: best.layout },
    ctx.signal,
  );
  selectors(ctx, told, found);
  ctx.drawn("beside");
}

// Each value fixed, the rest searched again: streamed, since each is a search.
export async function searchedAgain(ctx, told) {
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
    previous.deltas[`${c.field}-${c.value}`] = node.textContent;
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
