// What else: the best layout of each family, and the runners-up.

import { fold, h, renew, table } from "./dom.js";
import { $ } from "./controls.js";
import { fields } from "./state.js";
import { change, gib, plural, step } from "./format.js";
import { causes, chance, expected, slower, tied } from "./answer.js";
import { NAMES } from "./selectors.js";

// The best of each family of layouts, then the runners-up; what nobody can tell apart is a tie.
export function families(ctx, told) {
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
