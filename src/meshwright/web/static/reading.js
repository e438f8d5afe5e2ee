// What is pasted or dropped, and what the page makes of it. page: of main.js, with `set` and
// `replace`.

import { dialog, h } from "./dom.js";
import { Refused, ask } from "./ask.js";
import { parse, question, withMine } from "./state.js";
import { runFiles } from "./runs.js";

// Lines of a log with the seconds of a step (formats/logs.py); the newest are enough.
const LOGGED = /elapsed time per iteration|train_step_timing|\bstep:.*\btps:/;
const MOST_LINES = 2000;

export async function taken(page, text) {
  if (/^\s*(https?|file):\/\/\S*#/.test(text)) {
    page.replace(parse(text.trim()), "a link");
    return;
  }
  const lines = text.split("\n").filter((line) => LOGGED.test(line));
  if (lines.length) {
    page.log = lines.slice(-MOST_LINES).join("\n");
    page.run = null;
    return page.set({ ...(await argumentsOf(page, text)), view: "runs" });
  }
  const told = await ask("read", { text, question: question(page.state) });
  page.replace(stateRead(page, told), told.said);
}

// What the arguments at the beginning of a log say; nothing, where it has none.
async function argumentsOf(page, text) {
  if (LOGGED.test(text.trimStart().split("\n", 1)[0])) return {}; // it begins with its steps
  try {
    const before = Object.fromEntries(Object.keys(question(page.state)).map((key) => [key, ""]));
    const told = await ask("read", { text, question: question(page.state) });
    return { ...before, ...stateRead(page, told) };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return {};
  }
}

// The state of a question that was read: its layout is "mine", what it leaves open stays.
function stateRead(page, told) {
  const kept = Object.fromEntries(
    ["on", "network", "batch", "tokens"]
      .filter((k) => page.state[k] && !told.question.job)
      .map((k) => [k, page.state[k]]),
  );
  return { view: page.state.view, ...kept, ...withMine(told.question) };
}

// The folder of a run, its files as [path, File].
export async function ran(page, files) {
  const run = await runFiles(files);
  if (!run["job.toml"])
    throw new Error(
      "This is not the folder of a run: it has no job.toml. meshwright train creates one.",
    );
  page.run = run;
  page.log = null;
  page.set({ view: "runs" });
}

export function readDialog(page) {
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
              await ran(page, [...e.target.files].map((f) => [f.webkitRelativePath, f]));
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
              await taken(page, text.value);
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
