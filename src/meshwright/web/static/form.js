// The form of the question. page: of main.js, with `set`.

import { h, put } from "./dom.js";
import { $, field, line, suggestions, select } from "./controls.js";
import { modelName, priceOf, withPrice } from "./state.js";
import { shown } from "./plan.js";

const PLAIN = ["model", "on", "batch", "tokens"];
const CHOSEN = { network: "networks", precision: "precisions", framework: "frameworks" };
const BELOW = ["seq", ...Object.keys(CHOSEN), "assumptions"];

const input = (page, name, more = {}) =>
  line(`q-${name}`, "", (text) => page.set({ [name]: text }, true), more);

const choice = (page, name, values, first) =>
  select(`q-${name}`, [["", first], ...values], "", (value) => page.set({ [name]: value }));

// "512xh100-sxm" -> ["512", "h100-sxm"]
const cluster = (page) => {
  const match = /^\s*([\d,_]*)\s*[x×*]\s*(.*)$/i.exec(page.state.on || "");
  return match ? [match[1], match[2]] : ["", page.state.on || ""];
};

const written = () => ["q-count", "q-chip"].map((id) => $(id).value.trim());
const together = (count, chip) => (chip ? `${count}x${chip}` : count);

export function form(page) {
  const c = page.catalogue;
  const chips = () => page.set({ on: together(...written()) }, true);
  const digits = { inputmode: "numeric" };
  const machines = { list: "machines", spellcheck: "false" };
  const count = line("q-count", "", chips, digits);
  const chip = line("q-chip", "", chips, machines);
  const narrow = matchMedia("(max-width: 760px)");
  const asked = h(
    "details",
    { id: "asked", open: !narrow.matches },
    h("summary", {}, h("span", { id: "asked-words" })),
    h(
      "div",
      { class: "fields" },
      field("model", input(page, "model", { list: "models", spellcheck: "false" }), "model"),
      field("chips", count, "number"),
      field("of", chip, "chip"),
      field("batch, tokens", input(page, "batch"), "number"),
      field("run, tokens", input(page, "tokens", { placeholder: "15T" }), "number"),
      moreOf(page),
    ),
    h("p", { id: "facts", class: "note" }),
  );
  narrow.addEventListener("change", () => {
    asked.open = !narrow.matches;
  });
  put(
    $("question"),
    suggestions("models", c.models),
    suggestions("machines", [...c.chips, ...c.networks]),
    asked,
  );
}

// What most questions leave as it is usual.
function moreOf(page) {
  const c = page.catalogue;
  const rest = c.question.filter(
    ({ name, table }) => ![...PLAIN, ...BELOW, "model", "job"].includes(name) && table !== "layout",
  );
  const paid = (text) => {
    page.set({ prices: withPrice(page.state, ownChip(page), text.replace(",", ".")) }, true);
  };
  const price = line("q-price", "", paid, {
    inputmode: "decimal",
    placeholder: "as listed",
    title:
      "Your price of a chip for an hour: what the run costs; in Compare clusters prices of " +
      "other chips can be said, too",
  });
  const budget = input(page, "budget", {
    placeholder: "30 d, 5M$",
    title: "Days or dollars: how many tokens they are enough for",
  });
  return h(
    "details",
    { id: "more" },
    h("summary", {}, h("span", { id: "more-words" })),
    h(
      "div",
      { class: "more" },
      Object.entries(CHOSEN).map(([name, list]) =>
        field(name, choice(page, name, c[list], "usual")),
      ),
      field("sequence", input(page, "seq", { placeholder: "model's" })),
      field("budget", budget),
      field("USD/h a chip", price),
      field("assumptions", choice(page, "assumptions", c.assumptions, "realistic")),
      rest.map(({ name, help: title }) =>
        field(name.replace(/_/g, " "), input(page, name, { title }), "", { title }),
      ),
    ),
    h("p", { id: "job-note", class: "note" }),
  );
}

// The question in a line, and what its fold holds that is not as usual.
function summaries(page) {
  const { on, batch, tokens } = page.state;
  const words = [modelName(page.state), on, batch, tokens];
  $("asked-words").textContent = words.filter(Boolean).join(" · ");
  const odd = [...BELOW, "budget", "prices"].filter((name) => page.state[name]);
  $("more-words").textContent = odd.length
    ? odd.map((name) => `${name} ${page.state[name]}`).join(", ")
    : "precision, network, prices …";
}

// Whose price it is: a job of a file does not say its chip here.
const ownChip = (page) => cluster(page)[1] || shown.chip || "";

// The controls show the state; the one that is being typed in is left alone.
export function fill(page) {
  if (!$("asked")) return;
  summaries(page);
  // half a number is no number of chips yet, and no part of their name either
  const [n, chip] = together(...written()) === page.state.on ? written() : cluster(page);
  const texts = {
    ...page.state,
    count: n,
    chip,
    price: priceOf(page.state, ownChip(page)),
    model:
      page.state.model && !page.state.model.startsWith("{")
        ? page.state.model
        : modelName(page.state) && `(${modelName(page.state)})`,
  };
  for (const node of document.querySelectorAll("#question [id^=q-]")) {
    const value = texts[node.id.slice(2)] || "";
    if (node !== document.activeElement && node.value !== value) {
      if (node.tagName === "SELECT" && value && ![...node.options].some((o) => o.value === value))
        node.append(h("option", { value }, value));
      node.value = value;
    }
  }
  if ($("job-note"))
    $("job-note").textContent = page.state.job
      ? "The rest comes from the file that was dropped; fields here replace what it says."
      : "";
}
