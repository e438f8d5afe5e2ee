// The view Runs: a run of meshwright train, also while it trains, or the log of another tool,
// beside its prediction.

import { h, put, table, wait } from "./dom.js";
import { $, field, select } from "./controls.js";
import { ask, source } from "./ask.js";
import { figure } from "./chart.js";
import { bars } from "./bars.js";
import { curves } from "./curves.js";
import { change, gib, grouped, seconds, sig, step } from "./format.js";
import { CAUSES } from "./answer.js";
import { mineBeside } from "./advise.js";
import { priced, question, words } from "./state.js";

// A folder says what ran; a log does not.
export const runs = {
  name: "runs",
  title: "Runs",
  show,
  skeleton,
  asks: (page) => Boolean(page.log),
};
const EVERY = 3000;

// Of a run's folder, the files that a comparison reads; records only where all of them are small
// enough to send.
const READ = /(?:^|\/)((?:job\.toml|attempts\.jsonl|metrics\.jsonl)|record\/rank-\d{4}\.jsonl)$/;
const MOST_CHARACTERS = 800000;

// files: [path, File] of all that was dropped or chosen.
export async function runFiles(files) {
  const found = {};
  for (const [path, file] of files)
    if (READ.test(path)) found[READ.exec(path)[1]] = await file.text();
  const size = () => Object.values(found).reduce((sum, text) => sum + text.length, 0);
  if (size() > MOST_CHARACTERS)
    for (const name of Object.keys(found)) if (name.startsWith("record/")) delete found[name];
  if (size() > MOST_CHARACTERS)
    found["metrics.jsonl"] = (found["metrics.jsonl"] || "")
      .slice(-MOST_CHARACTERS / 2)
      .replace(/^[^\n]*\n/, "");
  return found;
}

// [path, File] of everything in a dropped folder.
export async function inside(entry) {
  if (entry.isFile)
    return [[entry.fullPath, await new Promise((done, failed) => entry.file(done, failed))]];
  const reader = entry.createReader();
  const all = [];
  for (;;) {
    const some = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!some.length) return all;
    for (const one of some)
      if (one.isFile || one.name === "record") all.push(...(await inside(one)));
  }
}

function skeleton() {
  return [
    h("div", { id: "runs-error" }),
    h("div", { class: "controls", id: "runs-controls" }),
    h("p", { class: "why", id: "runs-sentence" }),
    h("div", { id: "runs-charts" }),
    h("section", { id: "runs-why" }),
    h("section", { id: "runs-beside" }),
  ];
}

async function show(ctx) {
  put($("runs-error"));
  if (ctx.log) {
    draw(
      ctx,
      await ask(
        "log",
        { text: ctx.log, question: question(ctx.state, true), layout: words(ctx.state.mine || "") },
        ctx.signal,
      ),
    );
    ctx.drawn("runs");
    return besideBest(ctx);
  }
  if (ctx.run) {
    draw(ctx, await ask("run_files", { files: ctx.run }, ctx.signal));
    return ctx.drawn("runs");
  }
  const { runs: names } = await ask("folders", {}, ctx.signal);
  if (!names.length) {
    $("runs-sentence").textContent =
      "No run is shown. Drop the folder of a run of meshwright train here; or the log of a run " +
      "of Megatron-LM, NeMo or torchtitan, after the script that started it. Runs that still " +
      "train are watched by meshwright serve RUN ...";
    return ctx.drawn("runs");
  }
  const name = names.includes(ctx.state.run) ? ctx.state.run : names[0];
  put(
    $("runs-controls"),
    field("run", select("runs-run", names, name, (run) => ctx.set({ run }))),
  );
  for (let before = -1; ;) {
    const told = await ask("folder", { run: name }, ctx.signal, true);
    const steps = told.series.step?.length || 0;
    if (steps !== before) draw(ctx, told);
    before = steps;
    ctx.drawn("runs");
    document.body.dataset.busy = "no";
    if (source.recorded) return undefined;
    await wait(EVERY, ctx.signal);
  }
}

// The run of a log whose layout is known, beside the best one.
async function besideBest(ctx) {
  if (!ctx.state.mine) return;
  const asked = { question: question(ctx.state, true), families: false, top: 1 };
  const { best } = await ask("plan", { ...asked, ...priced(ctx.state) }, ctx.signal);
  if (best) await mineBeside($("runs-beside"), ctx, best);
}

// What was predicted: a log says no layout, so that a wrong one must be seen.
const under = (p) =>
  ` under ${p.layout_words}` +
  (p.fits
    ? ""
    : `, which does not fit (${gib(p.memory_bytes.needed)}): read the script that started the ` +
      "run first, or write its layout under Why not mine");

function draw(ctx, told) {
  const c = told.comparison;
  const p = told.prediction;
  const said = c
    ? `${told.folder}: ${step(c.step_time_s.measured)} a step measured over ` +
      `${grouped(c.timed_steps)} steps, ${step(c.step_time_s.predicted)} predicted ` +
      `(${change(c.step_time_s.predicted / c.step_time_s.measured)})${under(p)}.`
    : `${told.folder}: no finished step yet; ${step(p.step_time_s)} a step is predicted.`;
  $("runs-sentence").textContent = said;
  if (!ctx.told) ctx.announce(said);
  ctx.told = true;
  const s = told.series;
  const curve = (key, title, write, extra) =>
    s[key] &&
    figure({
      id: `runs-${key}`,
      title,
      draw: curves({
        series: [
          {
            name: key,
            points: s.step.map((x, k) => [x, s[key][k]]).filter(([, y]) => y !== null),
            bare: s.step.length > 60,
          },
        ],
        height: 240,
        x: { name: "step", write: (x) => sig(x, 4) },
        y: { name: title, write },
        label: `${title} against step`,
        ...extra,
      }),
      head: ["step", title],
      rows: s.step.map((x, k) => [String(x), write(s[key][k])]),
    });
  put(
    $("runs-charts"),
    curve("loss", "loss", (x) => sig(x, 3)),
    curve("step_time_s", "seconds a step", (x) => seconds(x, 2), {
      across: [{ y: p.step_time_s, name: "predicted" }],
    }),
    c?.causes && causes(c.causes),
  );
  put(
    $("runs-why"),
    c &&
      h(
        "ul",
        {},
        c.why.map((text) => h("li", {}, text)),
      ),
    c &&
      table(
        ["memory", "predicted", "measured"],
        Object.entries(c.memory_bytes).map(([kind, m]) => [
          kind.replace("_", " "),
          gib(m.predicted),
          m.measured === null ? "not measured" : gib(m.measured),
        ]),
        "Memory of the fullest rank",
      ),
  );
}

function causes(told) {
  const rows = told.rows.flatMap((r) => [
    {
      name: `${CAUSES[r.name] || r.name}, predicted`,
      parts: [["predicted", r.predicted_s]],
      text: seconds(r.predicted_s),
    },
    {
      name: `${CAUSES[r.name] || r.name}, measured`,
      parts: [["measured", r.measured_s || 0]],
      text: seconds(r.measured_s),
    },
  ]);
  return figure({
    id: "runs-causes",
    title: `Where the difference comes from (rank ${told.rank})`,
    note: `Not explained: ${seconds(told.remainder.s)}.`,
    draw: bars({
      rows,
      kinds: ["predicted", "measured"],
      label: "Predicted and measured seconds by cause",
      write: seconds,
    }),
    head: ["cause", "predicted", "measured", "difference"],
    rows: told.rows.map((r) => [
      CAUSES[r.name] || r.name,
      seconds(r.predicted_s),
      seconds(r.measured_s),
      seconds(r.difference_s),
    ]),
  });
}
