// What stands behind a number: its formula, the values put in, its source and its parts, each of
// which opens in its turn; and what belongs together, lit together.

import { dialog, h, put, table } from "./dom.js";
import { ask } from "./ask.js";
import { sliders } from "./sliders.js";
import { change, count, energy, gib, percent, seconds, sig, usd } from "./format.js";

const WRITTEN = { s: seconds, B: gib, USD: usd, J: energy, "": sig };
const written = ({ value, unit }) =>
  value < 0
    ? `−${written({ value: -value, unit })}`
    : (WRITTEN[unit] || ((x) => `${count(x)} ${unit}`))(value);
const digits = (x) => (typeof x === "string" ? x : String(Number(x.toPrecision(6))));

// A dialog on one term; asked: question, layout and prices; lesson: title and words of its own.
export function opened(asked, first, lesson) {
  const box = h("div", { class: "opened", "aria-live": "polite" });
  const trail = [];
  let now = asked;
  let before = null; // the number opened, as it is without a slider moved
  const draw = async (path) => {
    try {
      const { terms } = await ask("explain", { ...now, term: path });
      if (now === asked) before = terms[0];
      const moved = now !== asked && before && change(terms[0].value / before.value);
      put(
        box,
        back(trail, open),
        terms.map((term, i) => shown(term, open, i ? "" : moved)),
      );
    } catch (error) {
      put(box, h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  const open = async (path) => {
    trail.push(path);
    if (now !== asked) {
      const { terms } = await ask("explain", { ...asked, term: path }).catch(() => ({}));
      before = terms?.[0];
    }
    return draw(path);
  };
  const again = (changed) => {
    now = changed;
    draw(trail.at(-1));
  };
  dialog(
    lesson?.title || "Where this number comes from",
    lesson && h("p", {}, lesson.says),
    sliders(asked, again, lesson?.slide),
    box,
  );
  return open(first);
}

function back(trail, open) {
  if (trail.length < 2) return null;
  const above = trail.at(-2);
  const go = () => {
    trail.splice(-2);
    open(above);
  };
  return h("button", { type: "button", onclick: go }, `← ${above}`);
}

function shown(term, open, moved) {
  const { expression, parts } = term;
  const more = moved ? ` (${moved})` : "";
  return [
    h("h3", {}, `${term.name.replace(/_/g, " ")} = ${written(term)}${more}`),
    term.formula && h("p", {}, term.formula),
    expression && h("p", {}, h("code", {}, `= ${expression.text}`)),
    expression && values(expression.values),
    term.source && h("p", { class: "note" }, `Source: ${term.source}`),
    parts.length ? partsOf(term, open) : null,
  ];
}

const values = (all) =>
  h(
    "dl",
    { class: "facts values" },
    Object.entries(all).map(([name, x]) => [h("dt", {}, name), h("dd", {}, digits(x))]),
  );

function partsOf(term, open) {
  const rows = [...term.parts]
    .sort((a, b) => b.value - a.value)
    .map((part) => [
      h(
        "button",
        { type: "button", class: "number", onclick: () => open(`${term.path}/${part.name}`) },
        part.name.replace(/_/g, " "),
      ),
      written(part),
      term.value ? percent(part.value / term.value, 1) : "–",
      part.formula,
    ]);
  return table(["part", "value", "share", "how"], rows, "Its parts");
}

// What is pointed at is lit wherever it is drawn; what is pressed opens.
export function linkedTo(main, asked) {
  const lit = (cause) => {
    main.classList.toggle("pointed", Boolean(cause));
    for (const node of main.querySelectorAll("[data-cause]"))
      node.classList.toggle("lit", node.dataset.cause === cause);
  };
  const at = ({ target }, name) => target.closest?.(`[data-${name}]`)?.dataset[name];
  main.addEventListener("mouseover", (e) => lit(at(e, "cause")));
  main.addEventListener("mouseleave", () => lit(""));
  main.addEventListener("focusin", (e) => lit(at(e, "cause")));
  main.addEventListener("click", (e) => {
    const term = at(e, "term");
    if (term && asked()) opened(asked(), term);
  });
}
