// What if: the fastest layout with one thing of the question changed.

import { fold, h, put } from "./dom.js";
import { $ } from "./controls.js";
import { lines } from "./ask.js";
import { pins, question } from "./state.js";
import { waits } from "./answer.js";
import { briefly } from "./selectors.js";

export async function whatIf(ctx, told) {
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
  const text = c.why ? "nothing fits" : briefly(1 + c.slower) + tie;
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

export const whatIfTitle = (ctx, told) => [
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
