// What is wrong with the question, in the words of its form and beside the field that it is about.

import { h } from "./dom.js";

const MARGIN = 8; // pixels from the edge of the window
const NUMBER = "Write a number, such as";
const MISSING = {
  model: ["model", "Which model? Such as llama3-8b, or a config.json that is pasted here."],
  on: ["count", "How many chips, and of which kind? Such as 512 of h100-sxm."],
  batch: ["batch", "How many tokens does a step take? Such as 4Mi, or 512seq in sequences."],
};

// The field that a sentence is about and the sentence in the form's words; null: of none.
function aboutField(said, state) {
  const missing = /^--(\w+) is missing/.exec(said);
  if (missing) return MISSING[missing[1]] || null;
  const [, text] = /'([^']*)'/.exec(said) || [];
  if (/^cluster /.test(said)) return ["count", `${NUMBER} 512, of a chip that is named beside it.`];
  if (/^(chip|network) /.test(said))
    return [state.network && text === state.network ? "network" : "chip", said];
  const named = /^(?:job\.)?(model|batch|tokens|seq|precision|framework)\b/.exec(said);
  return named ? [named[1], said.replace(/^job\./, "")] : null;
}

// Say it beside its field, and there alone; false where the form does not show that field.
export function saidBeside(said, state) {
  unsaid();
  const [name, text] = aboutField(said, state) || [];
  const input = name && document.getElementById(`q-${name}`);
  if (!input || input.closest("[hidden]")) return false;
  for (let box = input.closest("details"); box; box = box.parentElement.closest("details"))
    box.open = true;
  const id = `wrong-${name}`;
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", id);
  const box = h("small", { id, class: "error beside", role: "alert" }, text);
  input.after(box);
  const beyond = box.getBoundingClientRect().right + MARGIN - document.documentElement.clientWidth;
  if (beyond > 0) box.style.setProperty("left", `${-beyond}px`);
  return true;
}

// Nothing is wrong any more.
export function unsaid() {
  for (const node of document.querySelectorAll("#question .beside")) node.remove();
  for (const input of document.querySelectorAll("#question [aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
}
