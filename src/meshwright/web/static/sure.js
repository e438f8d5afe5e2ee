// The view How sure: every published run beside its prediction, and those nearest to this question.

import { h, put, table } from "./dom.js";
import { $, field, select } from "./controls.js";
import { Refused, ask, source } from "./ask.js";
import { figure } from "./chart.js";
import { curves } from "./curves.js";
import { fields, priced, question, withMine } from "./state.js";
import { change, grouped, percent, plural, range, seconds, step } from "./format.js";

export const sure = { name: "sure", title: "How sure", show, skeleton };

// The runs that an interval rests on.
const basis = (e) =>
  e.rows
    ? `published runs, ${grouped(e.rows)} of its class (${e.class}) from ` +
      plural(e.sources.length, "source")
    : "published runs of other classes";

function skeleton() {
  return [
    h("div", { id: "sure-error" }),
    h("p", { class: "why", id: "sure-sentence" }),
    h("section", { id: "sure-near", "aria-label": "Nearest runs" }),
    h("div", { class: "controls", id: "sure-controls" }),
    h("div", { id: "sure-chart" }),
  ];
}

async function show(ctx) {
  put($("sure-error"));
  try {
    const found = await ask(
      "plan",
      { question: question(ctx.state), families: false, top: 1, ...priced(ctx.state) },
      ctx.signal,
    );
    said(ctx, found.best || found.closest);
    nearest(ctx, await ask("nearest", { question: question(ctx.state, true) }, ctx.signal));
    ctx.drawn("nearest");
  } catch (error) {
    if (!(error instanceof Refused) || !source.recorded) throw error;
  }
  scatter(ctx, (await ask("runs", {}, ctx.signal)).rows);
}

// The interval of this question and what it rests on.
function said(ctx, p) {
  const e = p?.evidence;
  const text = !e
    ? "No published runs were compared with predictions of this kind: there is no interval for " +
      "this question."
    : `${step(p.step_time_s)} a step; nine of ten runs like this take ` +
      `${range(p.interval_s, step)}. That rests on ${basis(e)}` +
      `${e.note ? `; less sure than most, because: ${e.note}` : ""}.`;
  $("sure-sentence").textContent = text;
  ctx.announce(text);
}

function nearest(ctx, told) {
  const same = told.rows.filter((r) => r.of_class).length;
  put(
    $("sure-near"),
    h("h2", {}, "The published runs nearest to this question"),
    h(
      "p",
      { class: "note" },
      h("b", {}, "✓ of its class"),
      `: the same kind of chip, software and model (${told.class}), on which the interval rests; ` +
        `${same ? `${same} of these ${told.rows.length}` : "none of these"}.`,
    ),
    table(
      [
        "run",
        "class",
        "",
        "chips",
        "precision",
        "predicted",
        "measured",
        "off by",
        "software and source",
        "layout",
      ],
      told.rows.map((r) => ({
        props: { class: r.of_class ? "picked" : null },
        cells: [
          r.model,
          r.of_class ? h("b", {}, "✓ of its class") : h("span", { class: "note" }, "another"),
          r.question &&
            h(
              "button",
              {
                type: "button",
                "aria-label": `Load ${r.model} on ${r.chips} ${r.chip}`,
                onclick: () => load(ctx, r.question),
              },
              "load",
            ),
          `${grouped(r.chips)} × ${r.chip}`,
          r.precision,
          step(r.predicted_s),
          step(r.step_s),
          change(r.predicted_s / r.step_s),
          h(
            "span",
            {},
            r.software || r.framework,
            h("br"),
            h("small", { class: "note", title: r.id }, r.source_ref || r.source),
          ),
          h("span", { class: "note" }, r.layout_words || ""),
        ],
      })),
      "Nearest published runs",
    ),
  );
}

// Their configuration becomes the question; their layout becomes "mine".
function load(ctx, asked) {
  const before = { ...ctx.state };
  const clear = Object.fromEntries([...fields.question, "mine"].map((key) => [key, ""]));
  ctx.set({ ...clear, ...withMine(asked), view: "plan" });
  ctx.announce("The question is now that of the run.", true, before);
}

function scatter(ctx, rows) {
  const sources = [...new Set(rows.map((r) => r.source))].sort();
  const chosen = ctx.state.source;
  const counted = (name) => `${name} (${rows.filter((r) => r.source === name).length})`;
  put(
    $("sure-controls"),
    field(
      "source",
      select(
        "sure-source",
        [["", `all ${rows.length} runs`], ...sources.map((name) => [name, counted(name)])],
        chosen || "",
        (source) => ctx.set({ source }),
      ),
    ),
  );
  const used = rows.filter((r) => !chosen || r.source === chosen);
  const errors = used.map((r) => Math.abs(r.predicted_s / r.step_s - 1)).sort((a, b) => a - b);
  const at = (share) =>
    percent(errors[Math.min(Math.floor(errors.length * share), errors.length - 1)] || 0);
  const series = sources
    .filter((name) => !chosen || name === chosen)
    .map((name) => {
      const mine = used.filter((r) => r.source === name);
      return {
        name,
        dots: true,
        points: mine.map((r) => [r.step_s, r.predicted_s]),
        titles: mine.map(
          (r) =>
            `${r.model}${r.chips ? `, ${r.chips} × ${r.chip}` : ""}: ${step(r.predicted_s)} ` +
              `predicted, ${step(r.step_s)} measured`,
        ),
        ids: mine.map((r) => r.id),
      };
    });
  put(
    $("sure-chart"),
    figure({
      id: "sure",
      title: "Predicted against measured, every published run",
      note: `Half of them are off by less than ${at(0.5)}, nine of ten by less than ` +
        `${at(0.9)}. On the line the prediction is right. Choose a dot to load its configuration.`,
      draw: curves({
        series,
        diagonal: true,
        height: 460,
        x: { name: "measured seconds a step", log: true, write: (x) => seconds(x, 2) },
        y: { name: "predicted seconds a step", log: true, write: (x) => seconds(x, 2) },
        label: `Predicted against measured step times of ${used.length} published runs; half ` +
          `are off by less than ${at(0.5)}`,
        picked: async (one, k) =>
          load(ctx, (await ask("run_question", { id: one.ids[k] })).question),
      }),
      head: ["run", "source", "chips", "predicted", "measured", "off by"],
      rows: used.map((r) => [
        r.model,
        r.source,
        r.chips ? `${grouped(r.chips)} × ${r.chip}` : "",
        step(r.predicted_s),
        step(r.step_s),
        change(r.predicted_s / r.step_s),
      ]),
    }),
  );
  ctx.drawn("runs");
}
