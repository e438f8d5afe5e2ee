// The state of the page is its address:
// #v=1&view=plan&model=llama3-70b&on=512xh100-sxm&batch=4Mi&tp=8
// The same text for the same question: keys in one order, empty ones left out.

const VERSION = "1";
export const FIRST = {
  view: "plan",
  model: "llama3-70b",
  on: "512xh100-sxm",
  batch: "4Mi",
  tokens: "15T",
};
const OWN = [
  "view",
  "mine",
  "schedule1",
  "schedule2",
  "zoom",
  "budget",
  "clusters",
  "prices",
  "axis",
  "scenarios",
  "months",
  "linear",
  "failures",
  "grid",
  "factors",
  "layer",
  "edition",
  "schemes",
  "shape",
  "source",
  "run",
  "lesson",
];

// What of a state is the question itself, and which of it fixes the layout.
export const fields = {
  question: ["model", "job", "on", "network", "batch", "tokens"],
  layout: [],
  schedules: [],
  causes: {}, // of time -> what it is
};

export function know(catalogue) {
  fields.question = catalogue.question.map((field) => field.name);
  fields.layout = catalogue.layout;
  fields.schedules = catalogue.schedules || [];
  fields.causes = catalogue.causes || {};
}

const ordered = () => [...new Set(["view", ...fields.question, ...OWN.slice(1)])];

// What the model is called that a question names or holds as text, in a sentence and in its field.
export function modelName(state) {
  if (state.model) return state.model.startsWith("{") ? "a config.json" : state.model;
  return state.job
    ? state.job.match(/^\[model\]\s*?\nname = "([^"\n]*)"$/m)?.[1] || "a JOB.toml"
    : "";
}

export function parse(hash) {
  const found = {};
  for (const pair of hash
    .replace(/^[^#]*#/, "")
    .replace(/^#/, "")
    .split("&")) {
    const [key, ...rest] = pair.split("=");
    if (!rest.length) continue;
    try {
      found[decodeURIComponent(key)] = decodeURIComponent(rest.join("=").replace(/\+/g, " "));
    } catch {
      /* not ours */
    }
  }
  delete found.v;
  if (!found.model && !found.job) return { ...FIRST, ...found };
  return { view: "plan", ...found };
}

export function address(state) {
  const keep = (text) =>
    encodeURIComponent(text)
      .replace(/%2C/g, ",")
      .replace(/%3A/g, ":")
      .replace(/%2F/g, "/")
      .replace(/%20/g, "+");
  const known = ordered();
  const keys = [
    ...known.filter((key) => state[key]),
    ...Object.keys(state)
      .filter((key) => state[key] && !known.includes(key))
      .sort(),
  ];
  return "#" + [`v=${VERSION}`, ...keys.map((key) => `${key}=${keep(state[key])}`)].join("&");
}

// The texts of the question; without those that fix the layout where they would not be read.
export function question(state, free = false) {
  const keys = fields.question.filter((key) => state[key]);
  const all = Object.fromEntries(keys.map((key) => [key, state[key]]));
  return free ? withoutLayout(all) : all;
}

// The fields of a question that fix no layout.
export const withoutLayout = (asked) =>
  Object.fromEntries(Object.entries(asked).filter(([key]) => !fields.layout.includes(key)));

// What a question that was read says: the layout that it fixes is "mine".
export function withMine(asked) {
  const mine = fields.layout.filter((key) => asked[key]).map((key) => `${key} ${asked[key]}`);
  return { ...withoutLayout(asked), ...(mine.length ? { mine: mine.join(" ") } : {}) };
}

// "a, b" -> ["a", "b"]
export const items = (text) =>
  (text || "")
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);

// "A100 80GB:1.8, b200:4" -> {"A100 80GB": 1.8, b200: 4}, and the first piece that is no price.
export function prices(state) {
  const found = {};
  let wrong = "";
  for (const piece of items(state.prices)) {
    const [, chip, usd] = /^(.*\S)\s*[:=]\s*\$?\s*([\d.]+)$/.exec(piece) || [];
    if (Number(usd) > 0) found[chip] = Number(usd);
    else wrong ||= piece;
  }
  return [found, wrong];
}

// The price of one chip in the text of all prices, and that text with another one; names are as
// "of" has them.
const same = (chip) => (piece) =>
  piece
    .replace(/\s*[:=][^:=]*$/, "")
    .trim()
    .toLowerCase() === chip.toLowerCase();
export const priceOf = (state, chip) =>
  (chip &&
    items(state.prices)
      .find(same(chip))
      ?.replace(/^.*[:=]\s*/, "")) ||
  "";
export const withPrice = (state, chip, usd) =>
  [
    ...items(state.prices).filter((piece) => !same(chip)(piece)),
    ...(usd ? [`${chip}:${usd}`] : []),
  ].join(",");

// The sentence for a piece of the prices that is none.
export function unpriced(state) {
  const [, wrong] = prices(state);
  return wrong && `prices: "${wrong}" is no chip with a price, such as h100-sxm:2.5`;
}

const DAYS = {
  h: 1 / 24,
  hour: 1 / 24,
  d: 1,
  day: 1,
  w: 7,
  week: 7,
  month: 30.44,
  y: 365.25,
  year: 365.25,
};
const MANY = { "": 1, k: 1e3, m: 1e6, b: 1e9 };

// "30 days" -> [{days: 30, text}, ""], "5M$" or "$5M" -> [{usd: 5e6, text}, ""]; [null,
// sentence] of what is neither.
export function budgeted(state) {
  const text = (state.budget || "").trim();
  if (!text) return [null, ""];
  const [, front, digits, rest] = /^(\$?)\s*([\d.,]+)\s*(.*)$/.exec(text) || ["", "", "", ""];
  const unit = rest.toLowerCase().replace(/(?<=[a-z]{2})s$/, "");
  const value = Number(digits.replace(/,/g, "")) || 0;
  const [, many, paid] = /^([kmb]?)\s*(\$|usd|dollar)?$/.exec(unit) || [];
  if (value > 0 && DAYS[unit] && !front) return [{ days: value * DAYS[unit], text }, ""];
  if (value > 0 && many !== undefined && (front || paid))
    return [{ usd: value * MANY[many], text }, ""];
  return [null, `budget: "${text}" is neither a time, such as 30 days, nor dollars, such as 5M$`];
}

// Prices in the address, as a field of what is asked; none, where there are none.
export function priced(state) {
  const [found] = prices(state);
  return Object.keys(found).length ? { prices: found } : {};
}

export const pins = (state) => fields.layout.filter((key) => state[key]);

// "the best layout", of what was left free: "the best layout with tp 8 pp 4 fixed".
export function bestOf(state, best) {
  const fixed = pins(state)
    .map((key) => `${key.replace(/_/g, " ")} ${state[key]}`)
    .join(" ");
  return fixed ? `${best} with ${fixed} fixed` : best;
}

const SHORT = { vpp: "interleave", mbs: "microbatch", sp: "sequence_parallel" };
const PHRASES = [
  [/[\u00a0\u2003]/g, " "], // these two as layouts are shown (answer.js)
  [/\u2011/g, "-"],
  [/\(.*?\)/g, " "],
  [/\bno sequence parallelism\b/gi, "sequence_parallel false"],
  [/\bno recomput\w+/gi, "recompute none"],
  [/(\S+) recomputation\b/gi, "recompute $1"],
  [/\bdp replicate\b/gi, "dp_replicate"],
  [/\b(\d+) chunks\b/gi, "interleave $1"],
  [/\bembedding and loss as layers\b/gi, "stages slots"],
  [/\bthe rest in the last stage\b/gi, "stages rest"],
  [/--|:(?=\s)/g, " "],
];
const ALONE = {
  fsdp: ["zero", "3"],
  selective: ["recompute", "selective"],
  full: ["recompute", "full"],
};

// "tp=8 pp=4 zero=1" -> {tp: "8", pp: "4", zero: "1"}; words of a command line are read too, and
// those in which layouts are shown.
export function words(text) {
  const found = {};
  const tokens = PHRASES.reduce((said, [from, to]) => said.replace(from, to), text)
    .split(/[\s,;·=]+/)
    .filter(Boolean);
  for (let i = 0; i < tokens.length; i++) {
    const word = tokens[i].toLowerCase();
    const stuck = /^([a-z_]+?)[-_]?(\d+)$/.exec(word); // as people write it: tp8, zero-1
    const key = (stuck ? stuck[1] : word).replace(/-/g, "_");
    if (fields.schedules.includes(word)) found.schedule = word;
    else if (ALONE[word]) found[ALONE[word][0]] = ALONE[word][1];
    else found[SHORT[key] || key] = stuck ? stuck[2] : (tokens[++i] ?? "");
  }
  return found;
}
