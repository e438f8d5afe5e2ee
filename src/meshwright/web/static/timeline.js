// The view Timeline: the pipeline of the best layout under one or two schedules, aligned.

import { fold, h, put, save, table } from "./dom.js";
import { $, field, select } from "./controls.js";
import { Refused, ask } from "./ask.js";
import { bestOf, priced, question, words } from "./state.js";
import { alike } from "./answer.js";
import { HELD, MEANS, STYLE, gantt } from "./gantt.js";
import { gib, percent, seconds } from "./format.js";

export const timeline = { name: "timeline", title: "Timeline", show, skeleton };
const STAGES = "2,4,8,16";
const CHUNKED = { interleaved: true, "interleaved-zero-bubble": true };

function skeleton() {
  return [
    h("div", { id: "timeline-error" }),
    h("div", { class: "controls", id: "timeline-controls" }),
    h("p", { class: "note", id: "timeline-layout" }),
    h("div", { id: "timeline-charts" }),
    h("section", { id: "timeline-table" }),
  ];
}

function controls(ctx) {
  if ($("schedule1")) {
    for (const key of ["schedule1", "schedule2"]) $(key).value = ctx.state[key] || "";
    return;
  }
  const pick = (key, label, first) => {
    const values = [["", first], ...ctx.catalogue.schedules];
    const now = ctx.state[key] || "";
    return field(
      label,
      select(key, values, now, (value) => ctx.set({ [key]: value })),
    );
  };
  const part = (text, from, to) =>
    h(
      "button",
      {
        type: "button",
        onclick: () => ctx.set({ zoom: from === 0 && to === 1 ? "" : `${from}-${to}` }),
      },
      text,
    );
  put(
    $("timeline-controls"),
    pick("schedule1", "schedule", ctx.state.mine ? "my layout's" : "the best layout's"),
    pick("schedule2", "beside it", "none"),
    h(
      "div",
      { class: "row", role: "group", "aria-label": "Zoom" },
      part("all", 0, 1),
      part("fill", 0, 0.2),
      part("middle", 0.4, 0.6),
      part("drain", 0.8, 1),
    ),
  );
}

async function show(ctx) {
  controls(ctx);
  put($("timeline-error"));
  const base = await pipelined(ctx, await layoutOf(ctx));
  const names = [ctx.state.schedule1 || base.schedule, ctx.state.schedule2].filter(Boolean);
  const told = [];
  for (const name of names)
    told.push(
      await ask(
        "timeline",
        { question: question(ctx.state, true), layout: under(base, name) },
        ctx.signal,
      ),
    );
  draw(ctx, told);
  ctx.drawn("timeline");
}

async function layoutOf(ctx) {
  if (ctx.state.mine) {
    const mine = words(ctx.state.mine);
    return { schedule: Number(mine.interleave) > 1 ? "interleaved" : "1f1b", ...mine };
  }
  const found = await ask(
    "plan",
    { question: question(ctx.state), families: false, top: 1, ...priced(ctx.state) },
    ctx.signal,
  );
  if (!found.best) throw new Error((found.notes || ["no layout fits"])[0]);
  return found.best.layout;
}

// A best layout of one stage has no pipeline to draw: then the best that has one.
async function pipelined(ctx, base) {
  ctx.several = base.pp === 1 && !ctx.state.pp && !ctx.state.mine;
  if (!ctx.several) return base;
  const body = {
    question: { ...question(ctx.state), pp: STAGES },
    families: false,
    top: 1,
    ...priced(ctx.state),
  };
  const found = await ask("plan", body, ctx.signal).catch((error) => {
    if (error instanceof Refused) return {};
    throw error;
  });
  ctx.several = Boolean(found.best);
  return found.best?.layout || base;
}

// The layout under another schedule; chunks go with it.
function under(layout, schedule) {
  if (schedule === layout.schedule) return layout;
  const { interleave, placement, ...rest } = layout;
  return {
    ...rest,
    schedule,
    interleave: CHUNKED[schedule] ? Math.max(Number(interleave) || 2, 2) : 1,
    ...(placement ? { placement } : {}),
  };
}

function whose(state, several) {
  const layout = several
    ? `the best layout with a pipeline of ` +
      `${STAGES.replace(/,/g, ", ").replace(/, (?=\d+$)/, " or ")} stages (Plan's answer has ` +
      `one stage and nothing to draw; with pp fixed to these Plan answers this one)`
    : state.mine
      ? "your layout (empty Why not mine? in Plan to draw the best)"
      : bestOf(state, "the best layout");
  return layout + (state.schedule1 ? `, under ${state.schedule1}` : "");
}

const IDLE =
  "Idle is a stage that waits: while the pipeline fills and drains, for a stage that takes " +
  "longer, or for a send. Plan's pipeline bubble is only the first of these: there, waiting for " +
  "a longer stage counts with what that stage does, and sends are a line of their own.";

function draw(ctx, told) {
  const longest = Math.max(...told.map((t) => t.makespan_s));
  const [from, to] = (ctx.state.zoom || "0-1").split("-").map(Number);
  $("timeline-layout").textContent =
    `Drawn is ${whose(ctx.state, ctx.several)}: ${told[0].layout_words}.`;
  const charts = [];
  const zoomed = (i) => (a, b) => {
    charts.forEach(
      (c, k) => k !== i && c && c.zoom(a * told[i].makespan_s, b * told[i].makespan_s, false),
    );
    ctx.remember({ zoom: a <= 0 && b >= 1 ? "" : `${a.toFixed(4)}-${b.toFixed(4)}` });
  };
  const drawn = told.filter((t) => t.ranks > 1);
  put(
    $("timeline-charts"),
    drawn.length ? legend(drawn) : null,
    told.some((t) => t.ranks > 1) && fold("What is idle", h("p", { class: "note" }, IDLE)),
    told.map((t, i) => {
      if (t.ranks === 1)
        return h(
          "p",
          { class: "note" },
          "One stage: there is no pipeline to draw. Fix pp above 1 in Plan, or say a layout of " +
          "yours there.",
        );
      const one = gantt(t, [from * longest, to * longest], zoomed(i), t.schedule);
      charts[i] = one;
      return h(
        "figure",
        { class: "chart" },
        h(
          "figcaption",
          {},
          h("h3", {}, t.schedule),
          h(
            "p",
            {},
            `${seconds(t.exact_s, 4)} in the pipeline, ${percent(t.bubble_fraction, 1)} of all ` +
            `device time idle; a step takes ${seconds(t.step_time_s)}.`,
          ),
        ),
        one.node,
        h(
          "div",
          { class: "tools", role: "group", "aria-label": `Save: ${t.schedule}` },
          h(
            "button",
            {
              type: "button",
              onclick: () =>
                one.png((blob) => save(`meshwright-timeline-${t.schedule}.png`, blob)),
            },
            "PNG",
          ),
          h("button", { type: "button", onclick: () => trace(ctx, t) }, "Perfetto trace"),
        ),
      );
    }),
  );
  ctx.announce(
    told
      .map((t) => `${t.schedule}: ${seconds(t.exact_s)}, ${percent(t.bubble_fraction, 1)} idle`)
      .join("; "),
  );
  const rows = told.flatMap((t) =>
    t.busy_s.map((busy, rank) => [
      `${t.schedule}, rank ${rank}`,
      seconds(busy),
      seconds(t.idle_s[rank]),
      percent(t.idle_s[rank] / t.makespan_s, 1),
      t.in_flight_microbatches[rank].toFixed(2),
      memoryOf(t, rank),
    ]),
  );
  put(
    $("timeline-table"),
    h(
      "details",
      {},
      h("summary", {}, "Table"),
      table(
        ["rank", "busy", "idle", "idle share", "microbatches held", "weights and states"],
        rows,
        "What each rank does and holds",
      ),
    ),
  );
}

function memoryOf(t, rank) {
  const ends = t.memory_by_stage_bytes;
  const m =
    rank === 0
      ? ends.first
      : rank === t.ranks - 1
        ? ends.last
        : ends[`rank ${rank}`] || ((rank === 1 || alike(ends)) && ends.second);
  return m ? gib(m.weights + m.gradients + m.optimizer) : "–";
}

const key = (colour, text, cls = "") =>
  h("span", { class: "key" }, h("i", { class: cls, css: { "background-color": colour } }), text);

// The colours, of the kinds that these timelines have; numbers in the boxes are microbatches.
function legend(told) {
  const kinds = Object.keys(MEANS).filter((kind) =>
    told.some((t) => t.actions.flat().some(([one]) => one === kind)),
  );
  const of = (colour) => kinds.filter((kind) => STYLE[kind][0] === colour);
  return [
    h(
      "p",
      { class: "note keys" },
      [...new Set(kinds.map((kind) => STYLE[kind][0]))].map((colour) =>
        key(
          colour,
          of(colour)
            .map((kind) => MEANS[kind])
            .join(" or "),
          of(colour)[0] === "W" ? "hatched" : "",
        ),
      ),
      key("transparent", "idle"),
      key(HELD, "microbatches held"),
      "A number is a microbatch.",
    ),
    h(
      "p",
      { class: "note" },
      "Drag to zoom in, double click for all; with the keyboard: arrows, +, −, 0.",
    ),
  ];
}

async function trace(ctx, t) {
  const base = await pipelined(ctx, await layoutOf(ctx));
  const told = await ask("trace", {
    question: question(ctx.state, true),
    layout: under(base, t.schedule),
  });
  save(`meshwright-${t.schedule}.json`, JSON.stringify(told), "application/json");
}
