// What to change of a run: of the one whose script or log is pasted, else of the layout under "Why not mine?".

import { h, put, table } from "./dom.js";
import { ask } from "./ask.js";
import { gib, percent, plural, step } from "./format.js";
import { question, words } from "./state.js";

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
