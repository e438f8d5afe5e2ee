// Controls with their names, of the form and of the views.

import { h } from "./dom.js";

export const $ = (id) => document.getElementById(id);

// A control under its name; more: attributes of both together.
export const field = (name, control, cls = "", more = {}) =>
  h("label", { class: `field ${cls}`, ...more }, name, control);

// A line to type in; changed is told each text.
export const line = (id, value, changed, more = {}) =>
  h("input", { id, value, oninput: ({ target }) => changed(target.value.trim()), ...more });

// A list to choose from; values: texts, or [text, what it is called].
export const select = (id, values, chosen, changed) =>
  h(
    "select",
    { id, onchange: ({ target }) => changed(target.value) },
    values.map((one) => {
      const [value, name] = Array.isArray(one) ? one : [one, one];
      return h("option", { value, selected: value === chosen }, name);
    }),
  );

// A box to tick, and what it means.
export const check = (id, name, checked, changed) =>
  h(
    "label",
    { class: "check" },
    h("input", {
      type: "checkbox",
      id,
      checked,
      onchange: ({ target }) => changed(target.checked),
    }),
    name,
  );

// Words that a field offers.
export const suggestions = (id, values) =>
  h(
    "datalist",
    { id },
    values.map((value) => h("option", { value })),
  );
