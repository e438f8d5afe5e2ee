// The answer to a question: headline, where the time goes, what memory holds. Shared by several
// views.

import { fold, h } from "./dom.js";
import { figure } from "./chart.js";
import { bars } from "./bars.js";
import { fields } from "./state.js";
import {
  change,
  count,
  energy,
  gib,
  grouped,
  percent,
  plural,
  range,
  seconds,
  sig,
  step,
  usd,
} from "./format.js";

// As the cards of the command line call them, where they have room.
export const CAUSES = {
  compute: "compute",
  memory: "memory traffic",
  host: "kernel launches",
  tp_comm: "tensor parallel",
  cp_comm: "context parallel",
  ep_comm: "expert all-to-all",
  pp_comm: "pipeline sends",
  dp_comm: "data parallel",
  bubble: "pipeline bubble",
  overlap_slowdown: "overlap slowdown",
  optimizer: "optimizer",
  other: "not explained",
};
// Of the words of a layout those that few know.
export const WORDS = {
  "ZeRO-1, 2, 3":
    "each replica keeps its share of the optimizer's state; of gradients too (2); of weights " +
    "too (3, FSDP)",
  "microbatch 1 (4 a step)":
    "sequences that a replica takes at once, and how often it does so in a step",
  "interleaved, 4 chunks":
    "each device holds 4 chunks of layers, so that the pipeline fills sooner",
  "embedding and loss as layers":
    "each counts as a layer where layers are dealt to stages, so that the first and the last " +
    "stage hold fewer (stages slots)",
  "the rest in the last stage":
    "all other stages hold as many layers, and the last one, which has the loss too, what is " +
    "left (stages rest)",
  "dp replicate 4": "replicas are cut into 4 groups, inside which weights are sharded (HSDP)",
  "sequence parallelism":
    "what tp does not cut (norms, dropout) is cut along the sequence; costs no more messages",
  "zb-h1, zb-h2, zbv":
    "schedules that compute gradients of weights where a stage would be idle (zero bubble)",
};
const KINDS = ["weights", "gradients", "optimizer", "activations", "buffers"];

export const valueOf = (x) =>
  x && typeof x === "object" && !Array.isArray(x) ? (x.expected ?? x.value ?? null) : x;
export const decides = (p) => p.replayed_s || p.step_time_s;

// What ranks layouts: seconds over the chance to fit; and how many times that of another one it is.
export const expected = (p) => decides(p) / Math.max(1 - (p.risk_of_oom || 0), 1e-9);
export const chance = (p) =>
  p.risk_of_oom < 0.0005
    ? "100 %"
    : p.risk_of_oom < 0.1
      ? percent(1 - p.risk_of_oom, 1)
      : percent(1 - p.risk_of_oom);
export const slower = (p, other) => expected(p) / expected(other);
export const tied = (p, told) => Boolean(told.tie_s) && expected(p) <= told.tie_s;

// Ends of an interval of something proportional to the step time.
export const along = (p, value) =>
  p.interval_s && value !== null && value !== undefined
    ? p.interval_s.map((end) => (value * end) / p.step_time_s)
    : null;

export function fits(p) {
  const memory = p.memory_bytes;
  const risk =
    p.risk_of_oom > 0 && p.risk_of_oom < 1
      ? `, risk of running out ${p.risk_of_oom < 0.01 ? "below 1 %" : percent(p.risk_of_oom)}`
      : "";
  const short = p.risk_of_oom > 0.9 ? "does NOT fit" : "may not fit";
  return [p.fits ? "fits" : short, `${gib(memory.needed)} of ${gib(memory.capacity)}${risk}`];
}

// One sentence for people who do not see the page.
export function spoken(p) {
  const [word, room] = fits(p);
  const between = p.interval_s ? `, ${range(p.interval_s, step)}` : "";
  return `${step(p.step_time_s)} a step${between}; ${word}: ${room}.`;
}

// A number that opens the term it comes from.
const number = (term, value) =>
  h(
    "button",
    { type: "button", class: "number", "data-term": term, title: "Formula, values and source" },
    h("b", {}, value),
  );

// Three numbers: how long, how much, whether it fits; where no run is said the speed of a step.
function leads(p, price) {
  const [word] = fits(p);
  const { needed, capacity } = p.memory_bytes;
  const time = valueOf(p.train_time_s);
  const cost = valueOf(p.cost_usd);
  const room = `${gib(needed).replace(/ .*/, "")} of ${gib(capacity)}`;
  const lead = (term, value, under, cls = "") =>
    h("p", { class: `lead ${cls}` }, number(term, value), h("small", {}, under));
  return [
    time
      ? lead("train_time", seconds(time), range(along(p, time), seconds) || "the run")
      : lead("step_time", step(p.step_time_s), "a step"),
    time && cost
      ? lead("cost", usd(cost), range(along(p, cost), usd) || "the run")
      : lead("tokens_per_s", count(p.tokens_per_s), "tokens a second"),
    lead("memory", word, room, p.fits ? "good" : "bad"),
  ];
}

// The step, and how sure that is, in a sentence.
function stepLine(p) {
  const rows = p.evidence?.rows;
  const judged = rows ? `, by ${plural(rows, "run")}` : "";
  return h(
    "p",
    { class: "step" },
    [p.model, `on ${plural(p.chips, "chip")}`].filter(Boolean).join(" "),
    " takes ",
    number("step_time", step(p.step_time_s)),
    " a step ",
    h(
      "span",
      { class: "note" },
      p.interval_s
        ? `(90 %: ${range(p.interval_s, step)}${judged})`
        : "(no published runs to judge this by)",
    ),
  );
}

// The parts of a layout, none of which is broken over two lines.
export const inParts = (text) =>
  text
    .split(" · ")
    .map((part) => part.replace(/ /g, "\u00a0").replace(/-/g, "\u2011"))
    .join("\u2003");

export function headline(p, price, budget) {
  const fact = (name, ...text) => [h("dt", {}, name), h("dd", {}, ...text)];
  const time = valueOf(p.train_time_s);
  const memory = fits(p);
  const question = [
    `${grouped(p.chips)} chips`,
    `${grouped(p.batch_sequences)} sequences of ${grouped(p.seq_tokens)} a step`,
    p.precision,
    p.framework,
  ];
  return h(
    "div",
    {},
    h("div", { class: "leads" }, leads(p, price)),
    stepLine(p),
    budget && h("dl", { class: "facts" }, fact(`for ${budget.text}`, bought(p, price, budget))),
    h("p", { class: "words" }, inParts(p.layout_words || "")),
    fold(
      "Speed, energy, what binds",
      h(
        "dl",
        { class: "facts" },
        fact(
          "speed",
          number("tokens_per_s", count(p.tokens_per_s)),
          " tokens/s, MFU ",
          number("mfu", percent(p.mfu)),
        ),
        fact("memory", h("span", { class: p.fits ? "good" : "bad" }, memory[0]), `: ${memory[1]}`),
        time && valueOf(p.energy_j)
          ? fact("energy", number("energy", energy(valueOf(p.energy_j))), " at the power limit")
          : null,
        time && price?.usd_per_hour
          ? fact("price", `${sig(price.usd_per_hour)} USD/h a chip${price.yours ? ", yours" : ""}`)
          : null,
        time ? null : fact("the run", "say its tokens above for days, money and energy"),
        fact("on", question.filter(Boolean).join(", ")),
        fact("layout", p.layout_words || ""),
      ),
      h("p", { class: "why" }, binding(p)),
    ),
  );
}

// What a budget of days or of dollars is enough for.
function bought(p, price, { days, usd: money }) {
  const rate = (p.chips * (price?.usd_per_hour || 0)) / 3600; // dollars a second
  if (money && !rate) return "no price of this chip is known: say one above";
  const time = days ? days * 86400 : money / rate;
  const tokens = p.tokens_per_s * time;
  const ends = range(p.interval_s?.map((end) => (tokens * p.step_time_s) / end).reverse(), count);
  return [
    `${count(tokens)} tokens`,
    ends && ` (${ends})`,
    days ? rate > 0 && `, ${usd(rate * time)}` : ` in ${seconds(time)}`,
  ]
    .filter(Boolean)
    .join("");
}

// How much of the step a network could save at most, in a sentence.
const WIRE = ["tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm", "overlap_slowdown"];
export const waits = (p) =>
  `Of the answer's step ` +
  `${percent(WIRE.reduce((sum, cause) => sum + (p.time_s[cause] || 0), 0) / p.step_time_s)} ` +
  `waits for networks or is slowed by messages: no faster network saves that layout more.`;

// What binds, in a sentence.
export function binding(p) {
  const ranked = Object.entries(p.time_s)
    .filter(([cause, t]) => cause !== "compute" && t >= 0.02 * p.step_time_s)
    .sort((a, b) => b[1] - a[1]);
  const words = ranked
    .map(([cause, t]) => `${CAUSES[cause] || cause} (${percent(t / p.step_time_s)})`)
    .join(", ");
  return `Compute takes ${percent(p.time_s.compute / p.step_time_s)} of the step; next ` +
    `${ranked.length > 1 ? "come" : "comes"} ${words || "nothing that takes 2 %"}.`;
}

// Why one layout is slower than another, in a sentence.
export function differs(slow, fast) {
  const parts = causes(slow, fast);
  return `${change(decides(slow) / decides(fast))}${parts ? `: ${parts}` : ""}`;
}

export function causes(slow, fast, most = 3) {
  return Object.keys(fast.time_s)
    .map((cause) => [cause, slow.time_s[cause] - fast.time_s[cause]])
    .filter(([, d]) => Math.abs(d) > 1e-3 * fast.step_time_s)
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]))
    .slice(0, most)
    .map(([cause, d]) => `${CAUSES[cause] || cause} ${d > 0 ? "+" : "−"}${seconds(Math.abs(d), 2)}`)
    .join(", ");
}

const BARS = 6; // of a step's causes, so that the picture is as high for every layout
const SMALL = 5e-3; // of a step, below which a cause has no bar of its own

// The largest causes in the order of the step, and a bar of all others: they add up to the step.
function largest(p) {
  const all = Object.entries(p.time_s);
  const kept = all
    .filter(([, t]) => t > SMALL * p.step_time_s)
    .sort((a, b) => b[1] - a[1])
    .slice(0, BARS - 1)
    .map(([cause]) => cause);
  const rest = all.filter(([cause]) => !kept.includes(cause)).reduce((sum, [, t]) => sum + t, 0);
  return [...all.filter(([cause]) => kept.includes(cause)), ["rest", rest]];
}

export function timeFigure(p, id = "time") {
  const rows = largest(p).map(([cause, t]) => ({
    name: CAUSES[cause] || "all else",
    cause,
    term: CAUSES[cause] ? `step_time/${cause}` : "step_time",
    parts: [["time", t]],
    text: `${seconds(t)}  ${percent(t / p.step_time_s).replace(" ", "")}`,
  }));
  return figure({
    id,
    title: "Where the time goes",
    source: p.model && `${p.model} on ${p.cluster}`,
    draw: bars({
      rows,
      kinds: ["time"],
      label: `Where the time of a step goes: ${binding(p)}`,
      most: p.step_time_s,
      write: seconds,
      room: BARS,
    }),
    head: ["cause", "time", "share of the step", "what it is"],
    rows: Object.entries(p.time_s).map(([cause, t]) => [
      CAUSES[cause] || cause,
      seconds(t),
      percent(t / p.step_time_s, 1),
      fields.causes[cause] || "",
    ]),
  });
}

const STAGES = ["first", "second", "last"];

// Whether every stage between the first and the last holds what the second does: no other is named.
export const alike = (stages) => Object.keys(stages).every((end) => STAGES.includes(end));

export function stageName(end, stages) {
  if (end === "second" && alike(stages)) return "middle stages";
  return STAGES.includes(end) ? `${end} stage` : end;
}

export function memoryFigure(p, id = "memory") {
  const ends = p.memory_by_stage_bytes || { first: p.memory_bytes };
  const stages = Object.entries(ends);
  const several = p.layout.pp > 1;
  const used = several
    ? stages.filter(([end]) => end !== "second" || p.layout.pp > 2)
    : stages.slice(0, 1);
  const rows = used.map(([end, kinds]) => {
    const parts = KINDS.map((kind) => [kind, kinds[kind] || 0]);
    return {
      name: several ? stageName(end, ends) : "each chip",
      terms: several ? null : "memory", // the tree is of one device
      parts,
      text: gib(parts.reduce((sum, [, v]) => sum + v, 0)),
    };
  });
  const m = p.memory_bytes;
  return figure({
    id,
    title: "What memory holds",
    aside:
      `Live tensors at the peak. ${gib(m.needed)} of ${gib(m.capacity)} are needed in all, ` +
      "for the allocator has to hold more than them.",
    source: p.model && `${p.model} on ${p.cluster}`,
    draw: bars({
      rows,
      kinds: KINDS,
      label: `Memory of a chip: ${fits(p).join(", ")}`,
      most: Math.max(
        m.capacity * 1.02,
        ...rows.map((r) => r.parts.reduce((sum, [, v]) => sum + v, 0)),
      ),
      limit: m.capacity,
      limitName: `capacity ${gib(m.capacity)}`,
      room: STAGES.length,
      write: gib,
    }),
    head: ["stage", ...KINDS, "sum"],
    rows: rows.map((row) => [row.name, ...row.parts.map(([, v]) => gib(v)), row.text]),
  });
}

export function notesList(notes) {
  return notes?.length
    ? h(
        "ul",
        { class: "note" },
        notes.map((note) => h("li", {}, note)),
      )
    : null;
}

export const short = (p) => sig(p.step_time_s);
