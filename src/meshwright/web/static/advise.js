// What to change of a run: of the one whose script or log is pasted, else of the layout under
// "Why not mine?".

import { h, put, renew, table } from "./dom.js";
import { Refused, ask } from "./ask.js";
import { change, gib, percent, plural, seconds, step, usd } from "./format.js";
import { causes, decides, fits, valueOf } from "./answer.js";
import { priced, question, words } from "./state.js";

export function adviceOn(state) {
  const text = h("textarea", {
    id: "advise-text",
    "aria-label": "Script or log of a run",
    placeholder: "The script, configuration or log of a run; empty: the layout under Why not mine",
  });
  const said = h("p", { role: "status", id: "advise-said" });
  const found = h("div", { id: "advise-found" });
  const asked = async () => {
    put(found);
    said.textContent = "Every single change is tried.";
    try {
      const told = await ask("advise", {
        text: text.value,
        question: question(state, true),
        layout: words(state.mine || ""),
      });
      said.textContent = adviseSentence(told);
      put(found, adviseRows(told));
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return [
    h(
      "p",
      { class: "note" },
      "Single changes, in the words of the run's own file. Nothing leaves this machine.",
    ),
    text,
    h("p", {}, h("button", { type: "button", id: "advise-ask", onclick: asked }, "Advise")),
    said,
    found,
  ];
}

// Where a run does not fit, what makes it fit; one that was measured did.
const adviseGains = ({ run, measured, changes, tie }) =>
  changes.filter((c) => (run.fits || measured ? c.gain > tie : c.fits));

function adviseSentence(told) {
  const { measured, run, tie } = told;
  const ran = measured
    ? `${step(measured.step_time_s)} a step measured, ${step(measured.predicted_s)} predicted`
    : `${step(run.step_time_s)} a step`;
  return `${ran}; ${plural(adviseGains(told).length, "change")} beyond ties of ${percent(tie)}.`;
}

function adviseRows(told) {
  const row = (c, name = "") => [
    name + c.words,
    percent(c.gain),
    step(c.step_time_s),
    gib(c.memory_bytes),
    percent(c.risk_of_oom),
  ];
  const more = ["pair", "triple"]
    .filter((name) => told[name])
    .map((name) => row(told[name], `${name}: `));
  return table(
    ["change", "more tokens a second", "step", "memory", "risk"],
    [...adviseGains(told).map((c) => row(c)), ...more],
    "Changes by gain",
  );
}

// --- mine beside best ---------------------------------------------------------------------------

const MOST_CHANGES = 6;
const LEAST_GAIN = 0.01; // of a tie that is shown
const ALL_CAUSES = 20;

// The layout of the address first, the best second, then single changes of the first by gain, in
// one table; of a log that was dropped also what it measured.
export async function mineBeside(box, ctx, best) {
  if (!ctx.state.mine) return put(box);
  const asked = { question: question(ctx.state, true), layout: words(ctx.state.mine) };
  try {
    const mine = await ask("predict", { ...asked, ...priced(ctx.state) }, ctx.signal);
    const log = ctx.log && (await ask("log", { ...asked, text: ctx.log }, ctx.signal));
    const rows = [...mineRows(mine, log?.comparison), bestRow(best, mine)];
    drawBeside(box, rows, "Every single change is tried …");
    await changesBelow(box, ctx, asked, mine, rows);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    put(box); // why the layout is none is said under Why not mine
  }
}

// The single changes under the rows that stand there; a saved page has none.
async function changesBelow(box, ctx, asked, mine, rows) {
  try {
    const told = await ask("advise", asked, ctx.signal);
    const changes = firstOfEach(worthALine(told));
    const tie = percent(told.tie);
    const said = changes.length
      ? `Changes are of your run, one alone. Within ${tie} is a tie (≈).`
      : "No single change makes your run faster.";
    const lines = changes.map((c) => changeRow(c, mine, told.tie));
    drawBeside(box, [...rows, ...lines], said);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    drawBeside(box, rows, error.message);
  }
}

const BESIDE = [
  "run",
  "step",
  "against your run",
  "whole run",
  "memory",
  "what differs in a step",
];

const drawBeside = (box, rows, said) =>
  renew(
    box,
    h("h2", {}, "Your run beside the best"),
    table(BESIDE, rows, "Your run, the best layout, and single changes", { id: "beside-table" }),
    h("p", { class: "note", role: "status" }, said),
  );

// Days and money of a run that is so many times as long as this prediction's.
function wholeRun(p, times = 1) {
  const of = [p.train_time_s, p.cost_usd].map((x) => valueOf(x) * times);
  return [of[0] && seconds(of[0]), of[0] && of[1] && usd(of[1])].filter(Boolean).join(", ") || "–";
}

const held = (p) => `${gib(p.memory_bytes.needed)}, ${fits(p)[0]}`;
const named = (name, text) => h("span", {}, h("b", {}, `${name}: `), text);

function mineRows(p, measured) {
  const mine = named("yours", p.layout_words);
  const predicted = [mine, step(decides(p)), "–", wholeRun(p), held(p), ""];
  if (!measured) return [predicted];
  const took = measured.step_time_s.measured;
  const times = took / decides(p);
  const ran = named("yours, measured", `the log's ${plural(measured.timed_steps, "step")}`);
  return [[ran, step(took), change(times), wholeRun(p, times), "–", ""], predicted];
}

const bestRow = (p, mine) => [
  named("the best layout", p.layout_words),
  step(decides(p)),
  change(decides(p) / decides(mine)),
  wholeRun(p),
  held(p),
  h("span", { class: "note" }, causes(p, mine, ALL_CAUSES)),
];

// Changes that help, and ties that might.
const worthALine = (told) => {
  const helping = new Set(adviseGains(told));
  return told.changes.filter((c) => helping.has(c) || (c.fits && c.gain >= LEAST_GAIN));
};

// The best value of each thing that can be changed; changes come by gain.
const firstOfEach = (changes) => {
  const by = new Map();
  for (const c of changes) {
    const key = Object.keys(c.fields).join();
    if (!by.has(key)) by.set(key, c);
  }
  return [...by.values()].slice(0, MOST_CHANGES);
};

const changeRow = (c, mine, tie) => [
  named("change", h("code", {}, c.words.replace(/ -> /g, "\u00a0\u2192\u00a0"))),
  step(c.step_time_s),
  change(1 / (1 + c.gain)) + (Math.abs(c.gain) <= tie ? " ≈" : ""),
  wholeRun(mine, 1 / (1 + c.gain)),
  gib(c.memory_bytes),
  h("span", { class: "note" }, causes(c, mine)),
];
