// The view Compare clusters: what the same run takes and costs on several machines.

import { h, put, table, withRange } from "./dom.js";
import { $, check, field, line } from "./controls.js";
import { Refused, lines } from "./ask.js";
import { figure } from "./chart.js";
import { bars } from "./bars.js";
import { curves } from "./curves.js";
import { bestOf, items, prices, question, unpriced } from "./state.js";
import { count, energy, grouped, plural, range, seconds, sig, step, usd } from "./format.js";
import { CAUSES, along, valueOf } from "./answer.js";

const CHIPS = ["h100-sxm", "h200", "b200", "mi300x", "tpu-v5p"];
const SIZES = [0.25, 0.5, 1, 2, 4];

export const clusters = { name: "clusters", title: "Compare clusters", show, skeleton };

function skeleton() {
  return [
    h("div", { id: "clusters-error" }),
    h("div", { class: "controls", id: "clusters-controls" }),
    h("section", { id: "clusters-table", "aria-label": "Clusters" }),
    h("section", { id: "clusters-shares" }),
    h("section", { id: "clusters-curves" }),
  ];
}

// As many of the usual chips as the question has, its own first.
function usual(state) {
  const [, count, own] = /^([^x]*)x(.*)$/.exec(state.on || "") || ["", "512", CHIPS[0]];
  return [own, ...CHIPS.filter((chip) => chip !== own)]
    .slice(0, CHIPS.length)
    .map((chip) => `${count}x${chip}`)
    .join(",");
}

const chosen = (state) => items(state.clusters || usual(state)).slice(0, 12);

function said(state) {
  const wrong = unpriced(state);
  if (wrong) throw new Refused(wrong);
  return prices(state)[0];
}

// What is compared, to be copied.
export const comparison = (state) => ({
  question: question(state),
  clusters: chosen(state),
  prices: said(state),
});

function controls(ctx) {
  const list = $("clusters-list");
  if (list) {
    if (list !== document.activeElement) list.value = ctx.state.clusters || usual(ctx.state);
    return;
  }
  const { state } = ctx;
  const typed = (id, key, value, size) =>
    line(id, value, (text) => ctx.set({ [key]: text }, true), { size });
  put(
    $("clusters-controls"),
    field(
      "clusters, by commas",
      typed("clusters-list", "clusters", state.clusters || usual(state), 56),
    ),
    field(
      "prices, such as h100-sxm:2.5,b200:4 (USD/h a chip)",
      typed("clusters-prices", "prices", state.prices || "", 36),
    ),
    check("clusters-axis", "over the number of chips", state.axis === "chips", (on) =>
      ctx.set({ axis: on ? "chips" : "" }),
    ),
  );
}

async function show(ctx) {
  controls(ctx);
  put($("clusters-error"));
  put($("clusters-shares"));
  put($("clusters-curves"));
  const body = comparison(ctx.state);
  const rows = [];
  for await (const row of lines("clusters", body, ctx.signal)) {
    rows.push(row);
    drawTable(ctx, rows);
  }
  ctx.drawn("clusters");
  shares(rows.filter((r) => !r.why));
  ctx.announce(sentence(rows));
  if (ctx.state.axis === "chips") await overChips(ctx, body.question, rows);
}

function sentence(rows) {
  const good = rows.filter((r) => !r.why);
  if (!good.length) return "No layout fits on any of these clusters.";
  const fast = good.reduce((a, b) => (b.step_time_s < a.step_time_s ? b : a));
  const priced = good.filter((r) => valueOf(r.cost_usd));
  const cheap = priced.length
    ? priced.reduce((a, b) => (valueOf(b.cost_usd) < valueOf(a.cost_usd) ? b : a))
    : null;
  const price = cheap && `${cheap.cluster}, ${usd(valueOf(cheap.cost_usd))}`;
  const among = priced.length < good.length ? " of those with a price" : "";
  const least = price ? ` Cheapest${among}: ${price}.` : "";
  return `Fastest: ${fast.cluster}, ${step(fast.step_time_s)} a step.${least}`;
}

const HEAD = [
  "cluster",
  "step",
  "90 %",
  "run",
  "cost",
  "energy",
  "tokens per USD",
  "USD/h",
  "evidence",
  "layout",
];

function cells(r) {
  const time = valueOf(r.train_time_s);
  const cost = valueOf(r.cost_usd);
  const tokens = time ? r.tokens_per_s * time : null;
  const within = (value, write) => (value && r.interval_s ? range(along(r, value), write) : "");
  return [
    r.cluster,
    step(r.step_time_s),
    r.interval_s ? range(r.interval_s, step) : "no runs",
    time ? withRange(seconds(time), within(time, seconds)) : "–",
    cost ? withRange(usd(cost), within(cost, usd)) : "no price",
    energy(valueOf(r.energy_j)),
    cost ? count(tokens / cost) : "–",
    r.usd_per_hour ? sig(r.usd_per_hour) : "–",
    r.evidence?.rows ? `${plural(r.evidence.rows, "run")} of its class` : "no run of its class",
    h("span", { class: "note" }, r.layout_words),
  ];
}

function drawTable(ctx, rows) {
  put(
    $("clusters-table"),
    h("p", { class: "why" }, sentence(rows)),
    table(
      HEAD,
      rows.map((r) =>
        r.why ? [r.cluster, ...Array(8).fill("–"), h("span", { class: "bad" }, r.why)] : cells(r),
      ),
      `${bestOf(ctx.state, "The best layout")} on each cluster`,
    ),
  );
}

function shares(rows) {
  if (!rows.length) return;
  const kinds = Object.keys(CAUSES)
    .filter((c) => rows.some((r) => r.time_s[c] > 0.01 * r.step_time_s))
    .map((c) => CAUSES[c]);
  const shown = rows.map((r) => ({
    name: r.cluster,
    parts: Object.entries(r.time_s)
      .filter(([c]) => kinds.includes(CAUSES[c]))
      .map(([c, v]) => [CAUSES[c], v]),
    text: step(r.step_time_s),
  }));
  put(
    $("clusters-shares"),
    figure({
      id: "clusters-shares",
      title: "Where the time of a step goes on each",
      draw: bars({
        rows: shown,
        kinds,
        label: "Time of a step by cause on each cluster",
        write: seconds,
      }),
      head: ["cluster", ...kinds],
      rows: shown.map((r) => [
        r.name,
        ...kinds.map((k) => seconds(r.parts.find(([c]) => c === k)?.[1] || 0)),
      ]),
    }),
  );
}

// The same kinds of chips in other numbers: days and cost against chips, and where two are equal.
async function overChips(ctx, asked, rows) {
  const found = new Map();
  const own = Object.keys(said(ctx.state)).length > 0;
  for (const [kind, names] of sizes(chosen(ctx.state))) {
    const { chip, usd_per_hour: rate } =
      rows.find((r) => r.chip && parts(r.cluster)[1].toLowerCase() === kind.toLowerCase()) || {};
    for await (const row of lines(
      "clusters",
      { question: asked, clusters: names, prices: own && rate ? { [chip]: rate } : {} },
      ctx.signal,
    )) {
      if (row.why) continue;
      found.set(kind, [...(found.get(kind) || []), row]);
      drawCurves(found);
    }
  }
  ctx.drawn("curves");
}

// "16 x A100" -> ["16", "A100"]
const parts = (name) => (/^\s*([\d,_]+)\s*[x×*]\s*(.*\S)/i.exec(name) || ["", "", ""]).slice(1);

// Kind of chip -> the clusters of it to plan, by rising size: each size once, however many of a
// kind are compared.
export function sizes(clusters) {
  const counts = new Map();
  for (const name of clusters) {
    const [count, kind] = parts(name);
    if (!kind) continue;
    const same =
      [...counts.keys()].find((other) => other.toLowerCase() === kind.toLowerCase()) || kind;
    const base = Number(count.replace(/[,_]/g, ""));
    counts.set(same, [
      ...(counts.get(same) || []),
      ...SIZES.map((f) => Math.round(base * f)).filter((n) => n >= 1),
    ]);
  }
  return new Map(
    [...counts].map(([kind, all]) => [
      kind,
      [...new Set(all)].sort((a, b) => a - b).map((n) => `${n}x${kind}`),
    ]),
  );
}

function drawCurves(found) {
  const series = [...found].map(([name, rows]) => ({
    name,
    marked: true,
    points: rows.map((r) => [r.chips, days(r)]),
  }));
  const timed = [...found.values()].flat().some((r) => valueOf(r.train_time_s));
  const write = (x) => (timed ? sig(x, 2) : step(x, 2));
  put(
    $("clusters-curves"),
    figure({
      id: "clusters-curves",
      title: timed ? "Days of the run against chips" : "Step time against chips",
      note: crossings(series),
      draw: curves({
        series,
        x: { name: "chips", log: true, write: (x) => count(x, 2) },
        y: { name: timed ? "days" : "s a step", log: true, write },
        label: "Time against the number of chips for each kind",
      }),
      head: ["chip", "chips", "step", "run", "cost"],
      rows: [...found].flatMap(([name, rows]) =>
        rows.map((r) => [
          name,
          grouped(r.chips),
          step(r.step_time_s),
          seconds(valueOf(r.train_time_s)),
          usd(valueOf(r.cost_usd)),
        ]),
      ),
    }),
  );
}

const days = (r) => (valueOf(r.train_time_s) ? valueOf(r.train_time_s) / 86400 : r.step_time_s);

// Where the curves of two kinds of chips cross, between the sizes that were planned.
function crossings(series) {
  const said = [];
  for (let i = 0; i < series.length; i++)
    for (let j = i + 1; j < series.length; j++) {
      const at = equal(series[i].points, series[j].points);
      if (at)
        said.push(
          `${series[i].name} and ${series[j].name} are equal at about ${count(at, 2)} chips`,
        );
    }
  return said.join("; ");
}

function equal(a, b) {
  const value = (points, x) => {
    for (let k = 1; k < points.length; k++)
      if (x >= points[k - 1][0] && x <= points[k][0]) {
        const t = Math.log(x / points[k - 1][0]) / Math.log(points[k][0] / points[k - 1][0]);
        return Math.log(points[k - 1][1]) * (1 - t) + Math.log(points[k][1]) * t;
      }
    return null;
  };
  const xs = [...new Set([...a, ...b].map(([x]) => x))].sort((p, q) => p - q);
  let before = null;
  for (const x of xs) {
    const [u, v] = [value(a, x), value(b, x)];
    if (u === null || v === null) {
      before = null;
      continue;
    }
    const d = u - v;
    if (before && before.d * d < 0)
      return Math.exp(Math.log(before.x) + (Math.log(x / before.x) * before.d) / (before.d - d));
    before = { x, d };
  }
  return null;
}
