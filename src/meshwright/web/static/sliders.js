// Sliders on what a number follows from: chips, batch, sequence and degrees, in powers of two.

import { h } from "./dom.js";

const FAR = 5; // powers of two either way
const DEGREES = ["tp", "cp", "pp"];
const MOST_DEGREE = 6;

// "512xh100-sxm" -> 512 and what surrounds it; null where a text does not begin with a number.
const parts = (text) => {
  const [, number, rest] = /^\s*([\d._]+)(.*)$/.exec(text || "") || [];
  return number ? { number: Number(number.replace(/_/g, "")), rest } : null;
};

// The inputs of a question and its layout that can slide: [name, from, to, start, write, changed].
function inputs({ question, layout }) {
  const texts = [
    ["chips", "on"],
    ["batch", "batch"],
    ["sequence", "seq"],
    ["run", "tokens"],
  ];
  const asked = texts.flatMap(([name, key]) => {
    const text = parts(question[key]);
    if (!text || !text.number) return [];
    const times = (k) => `${text.number * 2 ** k}${text.rest}`;
    const least = Math.max(-FAR, /^(on|seq)$/.test(key) ? -Math.log2(text.number) : -FAR);
    return [{ name, from: Math.ceil(least), to: FAR, start: 0, key, write: times }];
  });
  const cut = DEGREES.filter((name) => Number.isInteger(Math.log2(layout[name]))).map((name) => ({
    name,
    from: 0,
    to: MOST_DEGREE,
    start: Math.log2(layout[name]),
    degree: true,
    write: (k) => String(2 ** k),
  }));
  return [...asked, ...cut];
}

// Sliders; changed is given the question and layout as they then are, replicas filling the chips.
// first: the one that has the focus.
export function sliders(asked, changed, first) {
  const values = new Map();
  const all = inputs(asked);
  const moved = () => {
    const { dp, placement, dp_replicate, ...kept } = asked.layout;
    const [question, layout] = [{ ...asked.question }, kept];
    for (const { name, key, degree, write } of all) {
      if (degree) layout[name] = 2 ** values.get(name);
      else if (values.get(name)) question[key] = write(values.get(name));
    }
    const same = all.every(({ name, start }) => values.get(name) === start);
    changed(same ? asked : { ...asked, question, layout });
  };
  const one = ({ name, from, to, start, write }) => {
    values.set(name, start);
    const out = h("output", {}, write(start));
    const slide = ({ target }) => {
      const value = Number(target.value);
      out.textContent = write(value);
      target.setAttribute("aria-valuetext", write(value));
      values.set(name, value);
      moved();
    };
    return h(
      "label",
      { class: "slider" },
      h("span", {}, name, " ", out),
      h("input", {
        type: "range",
        autofocus: name === first,
        min: from,
        max: to,
        step: 1,
        value: start,
        "aria-label": `${name}, in powers of two`,
        "aria-valuetext": write(start),
        oninput: slide,
      }),
    );
  };
  return h("div", { class: "sliders", role: "group", "aria-label": "What if" }, all.map(one));
}
