// The view Limits: how far training scales before data movement stops it.

import { h, put, table, wait } from "./dom.js";
import { $, check, field, line, suggestions, select } from "./controls.js";
import { Refused, ask, lines } from "./ask.js";
import { figure } from "./chart.js";
import { curves } from "./curves.js";
import { bestOf, items, priced, question } from "./state.js";
import { count, flop, grouped, percent, seconds, sig, step, usd } from "./format.js";
import { valueOf } from "./answer.js";

export const limits = { name: "limits", title: "Limits", show, skeleton };
const PAUSE = 150; // somebody who types is left alone
const USUAL = "h100,a100,v100";
const SLIDERS = {
  flops: "arithmetic of a chip",
  hbm: "memory bandwidth",
  memory: "memory",
  bandwidth: "network bandwidth",
  latency: "network latency",
  launch: "kernel launch",
};

function skeleton() {
  return [
    h("div", { id: "limits-error" }),
    h("section", { id: "limits-own", "aria-labelledby": "limits-own-title" }),
    h("h2", {}, "Any dense transformer"),
    h(
      "p",
      { class: "note" },
      "At each size of the best shape, on as many chips as are best: the question above does " +
      "not matter here.",
    ),
    h("div", { class: "controls", id: "limits-controls" }),
    h("p", { class: "why", id: "limits-sentence" }),
    h("div", { id: "limits-curve" }),
    h("div", { id: "limits-split" }),
    h("section", { id: "limits-table", "aria-label": "Largest runs" }),
  ];
}

const chosen = (state) => items(state.scenarios || USUAL).slice(0, 8);
const factors = (state) =>
  Object.fromEntries(
    items(state.factors)
      .map((t) => t.split(":"))
      .filter(([k, v]) => k in SLIDERS && Number(v) > 0 && Number(v) !== 1)
      .map(([k, v]) => [k, Number(v)]),
  );

function controls(ctx, names) {
  if ($("limits-scenarios")) return shownValues(ctx);
  const number = (key, name, usual, more) => {
    const changed = (text) => ctx.set({ [key]: text === String(usual) ? "" : text }, true);
    const now = ctx.state[key] || usual;
    return field(name, line(`limits-${key}`, now, changed, { type: "number", ...more }), "number");
  };
  const yes = (key, name) =>
    check(`limits-${key}`, name, Boolean(ctx.state[key]), (on) =>
      ctx.set({ [key]: on ? "1" : "" }),
    );
  const added = (name) => {
    if (!name) return;
    const all = [...chosen(ctx.state), name].join(",");
    $("limits-add").value = "";
    $("limits-scenarios").value = all;
    ctx.set({ scenarios: all });
  };
  put(
    $("limits-controls"),
    field(
      "scenarios, by commas; CHIP@NETWORK too",
      line(
        "limits-scenarios",
        ctx.state.scenarios || USUAL,
        (scenarios) => ctx.set({ scenarios }, true),
        { size: 44, list: "limits-names" },
      ),
    ),
    suggestions("limits-names", names),
    field("add", select("limits-add", [["", "a scenario …"], ...names], "", added)),
    number("months", "months", 3, { min: 0.1, max: 1200, step: 0.5 }),
    number("linear", "linear to", 0.8, { min: 0.05, max: 1, step: 0.05 }),
    yes("failures", "chips fail"),
    yes("grid", "the paper's grid"),
    h(
      "details",
      {},
      h("summary", {}, "Change the machine (the first scenario)"),
      h(
        "div",
        { class: "more" },
        Object.entries(SLIDERS).map(([key, label]) => {
          const value = factors(ctx.state)[key] || 1;
          return field(
            h("span", { id: `factor-text-${key}` }, `${label} × ${sig(value, 2)}`),
            h("input", {
              id: `factor-${key}`,
              type: "range",
              min: -4,
              max: 6,
              step: 0.5,
              value: Math.log2(value),
              "aria-valuetext": `times ${sig(value, 2)}`,
              oninput: () => ctx.set({ factors: sliders() }, true),
            }),
          );
        }),
      ),
    ),
  );
}

const sliders = () =>
  Object.keys(SLIDERS)
    .map((key) => [key, 2 ** Number($(`factor-${key}`).value)])
    .filter(([, v]) => v !== 1)
    .map(([k, v]) => `${k}:${Number(v.toPrecision(3))}`)
    .join(",");

function shownValues(ctx) {
  for (const [key, label] of Object.entries(SLIDERS)) {
    const value = 2 ** Number($(`factor-${key}`).value);
    $(`factor-text-${key}`).textContent = `${label} × ${sig(value, 2)}`;
    $(`factor-${key}`).setAttribute("aria-valuetext", `times ${sig(value, 2)}`);
  }
}

async function show(ctx) {
  let mine = null;
  await scenarioCurves(ctx, () => {
    mine ??= own(ctx).catch((error) => error);
  }); // after the first curve, beside the rest
  const rows = await mine;
  if (rows instanceof Error) throw rows;
  // said last, whichever of the two ends first: it is of the question
  if (rows?.length) ctx.announce(ownSentence(ctx.state, rows));
}

// How far the question's own job scales: what a chip does on more and more of them. Returns the
// rows that were drawn.
async function own(ctx) {
  const rows = [];
  const shown = (more) => drawOwn(ctx, rows, more);
  if (ctx.typing) await wait(PAUSE, ctx.signal);
  try {
    for await (const row of lines(
      "scaling",
      { question: question(ctx.state), ...priced(ctx.state) },
      ctx.signal,
    )) {
      rows.push(row);
      shown(h("p", { class: "note" }, "working …"));
    }
    shown();
    return rows;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    shown(h("p", { class: "error" }, error.message)); // below the sizes that were planned before it
    return [];
  }
}

const most = (rows) => Math.max(...rows.map((r) => r.tokens_per_s_per_chip || 0));
const job = (state) => (state.model?.startsWith("{") || !state.model ? "this job" : state.model);
const ownTitle = (state) => h("h2", { id: "limits-own-title" }, `How far ${job(state)} scales`);
const about = (chips) => grouped(Number(chips.toPrecision(2)));
const least = (state) => Number(state.linear || 0.8);

// Where the share of what a chip does at best falls below the least that counts as linear,
// between two sizes that were planned.
export function scales(rows, least) {
  const best = most(rows);
  const shares = rows
    .filter((r) => !r.why)
    .map((r) => [Math.log(r.chips), r.tokens_per_s_per_chip / best]);
  const k = shares.findLastIndex(([, share]) => share >= least);
  if (k < 0 || k === shares.length - 1) return null;
  const [[x, a], [y, b]] = [shares[k], shares[k + 1]];
  return Math.exp(x + ((y - x) * (a - least)) / (a - b));
}

// ended: false while larger sizes are planned, or where they cannot be.
export function ownSentence(state, rows, ended = true) {
  const good = rows.filter((r) => !r.why);
  if (!good.length) return ended ? `${job(state)} fits on none of these sizes.` : "";
  const [at, last, end] = [scales(rows, least(state)), good.at(-1), rows.at(-1)];
  const near = at && good.findLast((r) => r.chips <= at);
  const run =
    near && valueOf(near.train_time_s)
      ? ` (on ${grouped(near.chips)} the run takes ${seconds(valueOf(near.train_time_s))})`
      : "";
  const said = at
    ? `With this batch a chip does at least ${percent(least(state))} of its best on up to ` +
      `about ${about(at)} chips${run}; on ${grouped(last.chips)} it does ` +
      `${percent(last.tokens_per_s_per_chip / most(rows))}.`
    : `With this batch a chip does at least ${percent(least(state))} of its best on up to ` +
      `${grouped(last.chips)} chips, the most that were planned${ended ? "" : " so far"}.`;
  return said + (end.why ? ` On ${grouped(end.chips)}: ${end.why}.` : "");
}

// more: what stands below the answer while it is not whole.
function drawOwn(ctx, rows, more) {
  const good = rows.filter((r) => !r.why);
  const said = ownSentence(ctx.state, rows, !more);
  const at = scales(rows, least(ctx.state));
  put(
    $("limits-own"),
    ownTitle(ctx.state),
    h("p", { class: "why" }, said),
    h(
      "p",
      { class: "note" },
      `The same batch on more and more chips, ${bestOf(ctx.state, "the fastest layout")} on ` +
      `each. A larger batch goes further: change it above.`,
    ),
    good.length > 1 &&
      figure({
        id: "limits-own",
        title: "What a chip does, against chips",
        source: job(ctx.state),
        draw: curves({
          series: [
            {
              name: job(ctx.state),
              marked: true,
              points: good.map((r) => [r.chips, r.tokens_per_s_per_chip / most(rows)]),
            },
          ],
          height: 260,
          x: { name: "chips", log: true, write: (x) => count(x, 2) },
          y: { name: "share of its best", write: (x) => percent(x), range: [0, 1] },
          across: [{ y: least(ctx.state), name: `linear down to ${percent(least(ctx.state))}` }],
          down: at ? [{ x: at, name: `${about(at)} chips` }] : [],
          label: said,
        }),
        head: ["chips", "step", "tokens/s", "a chip, of its best", "run", "cost", "layout"],
        rows: rows.map((r) =>
          r.why
            ? [grouped(r.chips), ...Array(5).fill("–"), r.why]
            : [
                grouped(r.chips),
                step(r.step_time_s),
                count(r.tokens_per_s),
                percent(r.tokens_per_s_per_chip / most(rows)),
                seconds(valueOf(r.train_time_s)),
                usd(valueOf(r.cost_usd)),
                r.layout_words,
              ],
        ),
      }),
    more,
  );
}

// The curves of the scenarios; begun: called once one is drawn.
async function scenarioCurves(ctx, begun) {
  const { scenarios } = await ask("scenarios", {});
  controls(ctx, scenarios);
  put($("limits-error"));
  const { state } = ctx;
  const common = {
    months: Number(state.months || 3),
    linear: Number(state.linear || 0.8),
    ...(state.failures ? { failures: true } : {}),
    ...(state.grid ? { grid: true } : {}),
  };
  const changed = factors(state);
  const found = [];
  const names = chosen(state);
  const bodies = Object.keys(changed).length
    ? [
        { scenarios: [names[0]], factors: changed, ...common },
        { scenarios: names, ...common },
      ]
    : [{ scenarios: names, ...common }];
  for (const body of bodies)
    for await (const line of lines("limits", body, ctx.signal)) {
      const rough = found.findIndex((one) => one.curve === "coarse" && one.name === line.name);
      if (rough >= 0 && line.curve === "smooth") found[rough] = line;
      else found.push(line);
      draw(ctx, found);
      if (line === found[0]) ctx.drawn(line.curve === "coarse" ? "curve" : "whole curve");
      begun();
    }
}

const named = (line) => line.name + (line.curve === "grid" ? ", grid" : "");
const end = (line) => line.crossing.last_flops || line.crossing.first_flops;

// grid: the same scenario with degrees that are powers of two, whose curve is nowhere above.
function sentence(line, grid) {
  const months = `${Number((line.duration_s / (3.154e7 / 12)).toPrecision(2))} months`;
  const least = percent(line.threshold / line.sustained_utilisation);
  if (line.crossing.never)
    return `${line.name}: utilisation is below ${least} of what a chip can sustain at every size.`;
  const last = line.points.at(-1);
  if (!last) return `${line.name}: no model as wide as GPT-3's is trained in ${months}.`;
  if (!end(line))
    return `${line.name}: linear up to ${flop(last.flops)} FLOP, where the curve ends.`;
  const most = line.ends && `; above ${flop(last.flops)} FLOP nothing can be trained in time`;
  const run = `a run of ${flop(end(line))} FLOP in ${months} with degrees of any size`;
  const first = grid?.crossing.first_flops;
  const rule = first ? `, ${flop(first)} on the paper's grid` : "";
  return `${line.name}: scaling is linear up to ${run}${rule}${most || ""}.`;
}

function draw(ctx, found) {
  const smooth = found.filter((f) => f.curve !== "grid");
  const one = smooth[0] || found[0];
  const said = sentence(one, found.find((f) => f.curve === "grid" && f.scenario === one.scenario));
  $("limits-sentence").textContent = said;
  ctx.announce(said);
  const series = found.map((line) => ({
    name: named(line),
    points: line.points.map((p) => [p.flops, p.utilisation]),
    width: line.curve === "grid" ? 1 : 2,
  }));
  put(
    $("limits-curve"),
    figure({
      id: "limits",
      title: "Utilisation against the size of the run",
      source: "model of Erdil & Schneider-Joseph 2024, arXiv 2411.01137",
      note: "A dashed line is the utilisation below which a scenario's scaling no longer " +
        "counts as linear; a vertical one marks where the first scenario gets there.",
      draw: curves({
        series,
        x: { name: "training compute, FLOP", log: true, write: (x) => flop(x) },
        y: {
          name: "share of the peak",
          write: (x) => percent(x),
          range: [0, Math.max(0.8, ...series.flatMap((one) => one.points.map((p) => p[1])))],
        },
        across: [
          ...new Map(
            found.map((f) => [
              f.threshold.toFixed(3),
              { y: f.threshold, name: `${f.name}: ${percent(f.threshold)}` },
            ]),
          ).values(),
        ],
        down: found
          .filter((f) => end(f) && f.curve === "smooth")
          .slice(0, 1)
          .map((f) => ({ x: end(f), name: `${f.name}: ${flop(end(f))}` })),
        label: said,
      }),
      head: ["scenario", "FLOP", "utilisation", "chips", "parameters", "tokens a step", "cost"],
      rows: found.flatMap((f) =>
        f.points.map((p) => [
          named(f),
          flop(p.flops, 3),
          percent(p.utilisation, 1),
          count(p.chips),
          count(p.parameters),
          count(p.batch_tokens),
          usd(p.cost_usd),
        ]),
      ),
    }),
  );
  split(smooth[0] || found[0]);
  put(
    $("limits-table"),
    h("h2", {}, "Largest runs"),
    table(
      [
        "scenario",
        "chip",
        "linear up to, FLOP",
        "largest that trains, FLOP",
        "chips there",
        "parameters",
        "dp · tp · pp · ep",
      ],
      found.map((f) => {
        const last = f.points.at(-1);
        const d = last?.degrees;
        return [
          named(f),
          f.chip,
          f.crossing.never || !last ? "at no size" : end(f) ? flop(end(f)) : "the whole curve",
          last ? flop(last.flops) + (f.ends ? "" : " or more") : "–",
          last ? count(last.chips) : "–",
          last ? count(last.parameters) : "–",
          d ? [d.dp, d.tp_model * d.tp_ff, d.pp, d.ep].map((n) => count(n, 2)).join(" · ") : "–",
        ];
      }),
      "Largest runs of each scenario",
    ),
  );
}

// How the parallelism is divided along the curve: shares of log(chips).
function split(line) {
  if (!line) return put($("limits-split"));
  const axes = { dp: "data", tp: "tensor", pp: "pipeline", ep: "expert" };
  const series = Object.entries(axes)
    .filter(([a]) => line.points.some((p) => p.split[a] > 0))
    .map(([a, name]) => ({ name, points: line.points.map((p) => [p.flops, p.split[a]]) }));
  put(
    $("limits-split"),
    figure({
      id: "limits-split",
      title: `How ${line.name} is parallelised best`,
      note: "Share of the logarithm of the number of chips that each kind of parallelism has; " +
        "together 1.",
      draw: curves({
        series,
        height: 240,
        x: { name: "training compute, FLOP", log: true, write: (x) => flop(x) },
        y: { name: "share", write: (x) => percent(x), range: [0, 1] },
        label: `Kinds of parallelism along the curve of ${line.name}`,
      }),
      head: ["FLOP", "chips", ...Object.values(axes)],
      rows: line.points.map((p) => [
        flop(p.flops, 3),
        count(p.chips),
        ...Object.keys(axes).map((a) => percent(p.split[a])),
      ]),
    }),
  );
}
