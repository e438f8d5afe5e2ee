// The view Roofline: from which batch on communication no longer binds, by scheme, in both
// editions of the scaling book.

import { h, put, table } from "./dom.js";
import { $, check, field, select } from "./controls.js";
import { ask } from "./ask.js";
import { notesList } from "./answer.js";
import { COLOURS, figure } from "./chart.js";
import { curves } from "./curves.js";
import { items, question } from "./state.js";
import { count, gib, grouped, seconds, sig } from "./format.js";

export const roofline = { name: "roofline", title: "Roofline", show, skeleton };
const LAYERS = {
  book: "two feed-forward matrices, as in the book",
  mlp: "the feed-forward as it is",
  projections: "feed-forward and attention projections",
  block: "the whole layer",
};
const EDITIONS = { sum: "one after the other (sum)", max: "beside each other (max)" };
const FIRST = 4;

function skeleton() {
  return [
    h("div", { id: "roofline-error" }),
    h("div", { class: "controls", id: "roofline-controls" }),
    h("p", { class: "why", id: "roofline-sentence" }),
    h("div", { id: "roofline-chart" }),
    h("section", { id: "roofline-split", "aria-label": "The split of X and Y" }),
    h("section", { id: "roofline-table", "aria-label": "Schemes" }),
  ];
}

function controls(ctx, told) {
  const names = told.schemes.map((one) => one.name);
  const on = shown(ctx, names);
  const slider = $("roofline-batch");
  const value = Math.log2(told.batch_tokens);
  if (slider && slider === document.activeElement) {
    $("roofline-batch-text").textContent = `batch ${count(told.batch_tokens)} tokens`;
    return;
  }
  put(
    $("roofline-controls"),
    field(
      "what of a layer counts",
      select("roofline-layer", Object.entries(LAYERS), ctx.state.layer || "book", (layer) =>
        ctx.set({ layer: layer === "book" ? "" : layer }),
      ),
    ),
    field(
      "collectives of different axes",
      select("roofline-edition", Object.entries(EDITIONS), ctx.state.edition || "sum", (edition) =>
        ctx.set({ edition: edition === "sum" ? "" : edition }),
      ),
    ),
    field(
      h("span", { id: "roofline-batch-text" }, `batch ${count(told.batch_tokens)} tokens`),
      h("input", {
        id: "roofline-batch",
        type: "range",
        min: 12,
        max: 30,
        step: 0.5,
        value,
        "aria-valuetext": `${count(told.batch_tokens)} tokens`,
        oninput: (e) => ctx.set({ batch: String(Math.round(2 ** Number(e.target.value))) }, true),
      }),
    ),
    h(
      "fieldset",
      { class: "choice" },
      h("legend", { class: "hidden" }, "schemes shown"),
      names.map((name) =>
        check(`scheme-${name.replace(/\W/g, "-")}`, name, on.includes(name), (checked) => {
          const kept = names.filter((n) => (n === name ? checked : on.includes(n)));
          ctx.set({ schemes: kept.join(",") || names[0] });
        }),
      ),
    ),
  );
}

const shown = (ctx, names) =>
  ctx.state.schemes
    ? names.filter((n) => items(ctx.state.schemes).includes(n))
    : names.slice(0, FIRST);

async function show(ctx) {
  put($("roofline-error"));
  const told = await ask(
    "roofline",
    {
      question: question(ctx.state, true),
      layer: ctx.state.layer || "book",
      ...(ctx.state.shape ? { shape: ctx.state.shape } : {}),
    },
    ctx.signal,
  );
  controls(ctx, told);
  draw(ctx, told);
  split(ctx, told);
  ctx.drawn("roofline");
}

// Communication over the split: X chips share the weights (FSDP), Y the matrices (TP). The slider
// walks along the splits; the shortest is where it begins, and where it returns with the batch.
function split(ctx, told) {
  const place = $("roofline-split");
  const rows = told.degrees || [];
  if (rows.length < 2) return put(place);
  const comm = `comm_${ctx.state.edition || "sum"}_s`;
  const least = rows.reduce((best, row, i) => (row[comm] < rows[best][comm] ? i : best), 0);
  const name = ({ x, y }) => `X ${grouped(x)} \u00d7 Y ${grouped(y)}`;
  const words = h("p", { class: "why", id: "roofline-split-sentence" });
  const chart = h("div");
  const say = (i) => {
    const row = rows[i];
    const hides = row[comm] <= row.compute_s;
    const times = sig(row[comm] / rows[least][comm], 2);
    const rest = i === least ? "the least of all splits" : `${times} times the least`;
    words.textContent =
      `${name(row)}: weights ${seconds(row.data_s)}, activations ${seconds(row.tensor_s)}, ` +
      `together ${seconds(row[comm])}, ${rest}; arithmetic ${seconds(row.compute_s)}, which ` +
      `${hides ? "hides them" : "does not hide them"}.`;
    const line = (title, key, colour, dash) => ({
      name: title,
      colour: COLOURS[colour],
      dash,
      points: rows.map((one) => [one.y, one[key]]).filter(([, time]) => time > 0),
    });
    put(
      chart,
      figure({
        id: "roofline-split",
        title: "The split: time of a layer by tensor-parallel degree",
        source: "How To Scale Your Model, part 5",
        note: "Each split of the chips into X for the weights and Y for the matrices.",
        draw: curves({
          series: [
            line("communication", comm, 0, ""),
            line("of weights (X)", "data_s", 1, "6 3"),
            line("of activations (Y)", "tensor_s", 2, "2 3"),
            line("arithmetic", "compute_s", 3, ""),
          ],
          x: { name: "Y, chips of a tensor-parallel group", log: true, write: (y) => grouped(y) },
          y: { name: "time of a layer", log: true, write: (x) => seconds(x, 2) },
          down: [
            { x: rows[least].y, name: "least" },
            ...(i === least ? [] : [{ x: row.y, name: "this split" }]),
          ],
          label: words.textContent,
          height: 300,
        }),
        head: ["X", "Y", "communication", "of weights", "of activations", "arithmetic"],
        rows: rows.map((one) => [
          grouped(one.x),
          grouped(one.y),
          ...[comm, "data_s", "tensor_s", "compute_s"].map((key) => seconds(one[key])),
        ]),
      }),
    );
  };
  const slide = ({ target }) => {
    target.setAttribute("aria-valuetext", name(rows[target.value]));
    say(Number(target.value));
  };
  put(
    place,
    field(
      "split of X and Y",
      h("input", {
        id: "roofline-split-slider",
        type: "range",
        min: 0,
        max: rows.length - 1,
        step: 1,
        value: least,
        "aria-valuetext": name(rows[least]),
        oninput: slide,
      }),
    ),
    words,
    chart,
  );
  say(least);
}

// Schemes with the same curves are one pair of lines: FSDP+TP is FSDP where Y = 1 is best.
export function distinct(schemes, sent) {
  const seen = new Map();
  for (const one of schemes) {
    const both = JSON.stringify([one.curve.compute_s, one.curve[sent]]);
    const other = seen.get(both);
    seen.set(both, other ? { ...other, name: `${other.name} = ${one.name}` } : one);
  }
  return [...seen.values()];
}

function draw(ctx, told) {
  const edition = ctx.state.edition || "sum";
  const used = told.schemes.filter((one) =>
    shown(
      ctx,
      told.schemes.map((x) => x.name),
    ).includes(one.name),
  );
  const least = (one) => one[`least_batch_${edition}_tokens`];
  const bound = (one) => one[`compute_bound_${edition}`];
  const room = (one) => {
    const n = told.microbatches?.[one.name];
    if (n === 0) return " (which does not fit in memory)";
    return n > 1 ? ` (in ${grouped(n)} microbatches)` : "";
  };
  const free = told.schemes.filter((one) => bound(one)).map((one) => one.name + room(one));
  const times = (one) => {
    const [sent, work] = [one[`comm_${edition}_s`], one.compute_s];
    const from = least(one);
    const until =
      from === null
        ? "and no batch is large enough"
        : `which binds from ${count(from)} tokens on`;
    const share = sig(sent / work, 2);
    return `${one.name} (messages take ${share} times as long as the arithmetic, ${until})`;
  };
  const bind = told.schemes.filter((one) => !bound(one)).map(times);
  const some = `${free.join("; ")} ${free.length > 1 ? "are" : "is"}`;
  const said =
    `At ${count(told.batch_tokens)} tokens a step, ${sig(told.tokens_per_chip)} a chip, ` +
    `${free.length ? some : "no scheme is"} bound by compute.` +
    (bind.length ? ` Bound by communication: ${bind.join("; ")}.` : "");
  $("roofline-sentence").textContent = said;
  ctx.announce(said);
  const series = distinct(used, `comm_${edition}_s`).flatMap((one, i) => {
    const points = (key) =>
      one.curve.batch_tokens.map((x, k) => [x, one.curve[key][k]]).filter(([, y]) => y > 0);
    return [
      {
        name: `${one.name}: compute`,
        colour: COLOURS[i % COLOURS.length],
        dash: "",
        points: points("compute_s"),
        bare: true,
      },
      {
        name: `${one.name}: communication`,
        colour: COLOURS[i % COLOURS.length],
        dash: "6 3",
        points: points(`comm_${edition}_s`),
      },
    ];
  });
  put(
    $("roofline-chart"),
    figure({
      id: "roofline",
      title: `One layer of ${told.model} on ${told.chips.toLocaleString("en-US")} × ${told.chip}`,
      source: "How To Scale Your Model, part 5",
      note:
        "A scheme is bound by compute where its solid line is above its dashed one. DP is drawn " +
        "in the backward pass, the only one in which it sends; FSDP, TP and their mixtures in " +
        "the forward pass, where they have least to hide behind.",
      draw: curves({
        series,
        x: {
          name: "tokens a step",
          log: true,
          write: (x) => count(x, 2),
          range: [told.batch_tokens / 300, told.batch_tokens * 100],
        },
        y: { name: "time of a layer", log: true, write: (x) => seconds(x, 2) },
        down: [{ x: told.batch_tokens, name: "this batch" }],
        label: said,
        height: 380,
      }),
      head: ["scheme", "tokens a step", "compute", "communication"],
      rows: used.flatMap((one) =>
        one.curve.batch_tokens.map((x, k) => [
          one.name,
          count(x),
          seconds(one.curve.compute_s[k]),
          seconds(one.curve[`comm_${edition}_s`][k]),
        ]),
      ),
    }),
  );
  put(
    $("roofline-table"),
    table(
      [
        "scheme",
        "degrees",
        "compute",
        "communication",
        "bound by compute from",
        "now",
        "memory of a chip",
      ],
      told.schemes.map((one) => [
        one.name,
        h("span", { class: "note" }, one.degrees),
        seconds(one.compute_s),
        seconds(one[`comm_${edition}_s`]),
        least(one) === null ? "no batch" : `${count(least(one))} tokens`,
        h("span", { class: bound(one) ? "good" : "bad" }, bound(one) ? "compute" : "communication"),
        gib(one.memory_bytes),
      ]),
      `Schemes at this batch, collectives ` +
      `${edition === "sum" ? "one after the other" : "beside each other"}`,
    ),
    h(
      "p",
      { class: "note" },
      `FLOPs for each byte of a link: ` +
      `${[...new Set(told.intensity.map((a) => sig(a)))].join(", ")}; of HBM: ` +
      `${sig(told.hbm_tokens)}. ` +
      (told.largest_tensor > 1
        ? `Messages of tensor parallelism hide up to ${told.largest_tensor} ways.`
        : "Messages of tensor parallelism show at any degree."),
    ),
    notesList(told.notes),
  );
}
