// The machine that a layout is placed on: a unit of it and how often it is there; whom the first
// chip sends to, over which link, and for how many seconds of a step.

import { h, put, s } from "./dom.js";
import { COLOURS, figure } from "./chart.js";
import { CAUSES } from "./answer.js";
import { count, gib, grouped, seconds, sig } from "./format.js";

const AXES = ["tp", "cp", "dp", "pp"]; // nearest first
const COLOUR = { tp: 0, cp: 2, dp: 4, pp: 3, ep: 5 };
const MOST = { columns: 5, lines: 4, size: 26 };
const [LEFT, TOP, HEIGHT, BETWEEN, GAP] = [30, 34, 226, 10, 2]; // pixels

const cause = (axis) => `${axis}_comm`;
const colour = (axis) => COLOURS[COLOUR[axis]];
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
export const rate = (bytes) => `${sig(bytes / 1e9)} GB/s`;

// Which of so many are shown: all, or the first ones and the last, null for what lies between.
export function some(many, most) {
  if (many <= most) return [...Array(many).keys()];
  return [...Array(most - 1).keys(), null, many - 1];
}

// An axis' ranks in a box of chips that the nearest links join, and across boxes.
function shares(groups) {
  const of = (axis) => groups.find((group) => group.axis === axis)?.ranks || [1];
  const whole = (n) => Math.max(Math.floor(n), 1);
  return AXES.map((axis) => {
    const [near, ...far] = of(axis);
    return { axis, near: whole(near), far: whole(product(far)) };
  });
}

// Indices of all axes, the nearest first.
function digits(index, radices) {
  return radices.map((radix) => {
    const digit = index % radix;
    index = Math.floor(index / radix);
    return digit;
  });
}

// The axis over which a chip is the first one's peer: "" is the first itself, null none.
export function peer(near, far) {
  const apart = AXES.filter((_, i) => near[i] || far[i]);
  return apart.length > 1 ? null : apart[0] || "";
}

// Whether a chip is of the first one's group of experts, where that lies within the replicas.
function shareExperts(near, far, experts) {
  if (!experts || near[0] || near[1] || far[0] || far[1] || near[3] || far[3]) return false;
  return near[2] < experts.near && far[2] < experts.far;
}

function chipsOf(axes, far, at, { inner, wide, size, experts }) {
  const radices = axes.map((a) => a.near);
  return [...Array(inner).keys()].map((i) => {
    const near = digits(i, radices);
    const used = i < product(radices);
    const axis = used ? peer(near, far) : null;
    const expert = used && shareExperts(near, far, experts);
    return s("rect", {
      x: at.x + 6 + (i % wide) * (size + GAP),
      y: at.y + 6 + Math.floor(i / wide) * (size + GAP),
      width: size,
      height: size,
      rx: 2,
      class: axis === "" ? "chip first" : used ? "chip" : "chip idle",
      fill: axis ? colour(axis) : null,
      stroke: expert ? colour("ep") : null,
      "stroke-width": expert ? 2.5 : null,
      "data-cause": expert ? cause("ep") : axis ? cause(axis) : null,
    });
  });
}

// The group of experts in ranks near and far, if no tensor or context group lies inside it.
function expertsOf(groups) {
  const group = groups.find(({ axis }) => axis === "ep");
  if (!group || groups.some(({ axis }) => axis === "tp" || axis === "cp")) return null;
  const [near, ...far] = group.ranks;
  return { near, far: product(far) };
}

// Boxes of chips, [column, line, stage, row of replicas], null for those left out: a column for
// each stage; without stages in other boxes all lines are filled with replicas.
function arrangement(stages, rows) {
  if (stages === 1)
    return some(rows, MOST.columns * MOST.lines - 1).map((row, i) => [
      i % MOST.columns,
      Math.floor(i / MOST.columns),
      0,
      row,
    ]);
  const [across, down] = [some(stages, MOST.columns - 1), some(rows, MOST.lines - 1)];
  return down.flatMap((row, line) => across.map((stage, column) => [column, line, stage, row]));
}

// Chips side by side in a box, [how many, their size]: whole groups of `unit`, as large as fits.
function packing(inner, unit, wide, high) {
  const size = (n) => Math.min((wide - 12) / n, (high - 12) / Math.ceil(inner / n)) - GAP;
  const best = [...Array(Math.ceil(inner / unit)).keys()]
    .map((k) => unit * (k + 1))
    .reduce((one, other) => (size(other) > size(one) ? other : one));
  return [best, Math.min(Math.max(size(best), 1), MOST.size)];
}

// All pictures are equally high, so that nothing below moves when the layout changes.
function drawing(told) {
  const axes = shares(told.groups);
  const inner = told.dims[0].members;
  const far = axes.slice(0, 3).map((axis) => axis.far);
  const stages = axes[3].far;
  const boxes = arrangement(stages, product(far));
  const columns = 1 + Math.max(...boxes.map(([column]) => column));
  const lines = 1 + Math.max(...boxes.map(([, line]) => line));
  const unit = Math.min(axes[0].near > 1 ? axes[0].near : 4, inner);
  return (width) => {
    const [cell, line] = [(width - LEFT) / columns, (HEIGHT - TOP) / lines];
    const [wide, size] = packing(inner, unit, cell - BETWEEN, line - BETWEEN);
    const sizes = { inner, wide, size, experts: expertsOf(told.groups) };
    const box = {
      width: wide * (size + GAP) + 10,
      height: Math.ceil(inner / wide) * (size + GAP) + 10,
    };
    const name = { role: "img", "aria-label": sentence(told) };
    const svg = s("svg", { width, height: HEIGHT, ...name });
    for (const [column, down, stage, row] of boxes) {
      const at = { x: LEFT + column * cell, y: TOP + down * line };
      if (row === null || stage === null)
        svg.append(...dots(at.x + box.width / 2, at.y + box.height / 2));
      else
        svg.append(
          s("rect", { ...at, ...box, rx: 5, class: "node" }),
          ...chipsOf(axes, [...digits(row, far), stage], at, sizes),
        );
    }
    const right = LEFT + (columns - 1) * cell + box.width;
    const bottom = TOP + (lines - 1) * line + box.height;
    svg.append(...links(told, stages, right, bottom));
    return svg;
  };
}

// What is left out between the boxes that are drawn.
const dots = (cx, cy) =>
  [-8, 0, 8].map((dx) => s("circle", { cx: cx + dx, cy, r: 1.5, class: "more" }));

const label = (x, y, text, more) => s("text", { x, y, class: "small", ...more }, text);

// The links between boxes, to the right end and the bottom of them: of stages along the top, of
// what else leaves a box down the side, or along the top where there are no stages: a line for
// each axis.
function links(told, stages, right, bottom) {
  const by = Object.fromEntries(told.groups.map((group) => [group.axis, group]));
  const line = (axis, from, to) =>
    s(
      "g",
      { "data-cause": cause(axis), "data-term": `step_time/${cause(axis)}` },
      s("line", { ...from, ...to, stroke: colour(axis), "stroke-width": 4 }),
      s("title", {}, words(by[axis])),
    );
  const along = (axis, i = 0) =>
    line(axis, { x1: LEFT, y1: TOP - 8 + 5 * i }, { x2: right, y2: TOP - 8 + 5 * i });
  const far = (axis) => product(by[axis]?.ranks.slice(1) || []);
  const others = ["tp", "cp", "dp"].filter((axis) => far(axis) > 1);
  const counts = others.map((axis) => `${axis} ${grouped(far(axis))}`).join(" × ");
  const cost = (axis) => `${by[axis].link} ${took(by[axis])}`;
  if (stages === 1) {
    const text = `${counts} boxes, ${others.map(cost).join(" + ")}`;
    return others.length ? [...others.map(along), label(LEFT, TOP - 16, text)] : [];
  }
  const x = (i) => LEFT - 8 - 7 * i;
  const text = `${grouped(stages)} stages, ${cost("pp")}${counts && `; ↓ ${counts}`}`;
  return [
    along("pp"),
    ...others.map((axis, i) => line(axis, { x1: x(i), y1: TOP }, { x2: x(i), y2: bottom })),
    label(LEFT, TOP - 16, text),
  ];
}

const took = (group) => seconds(group.exposed_s, 3);
const degree = (group) => Math.round(product(group.ranks));
const name = (group) => CAUSES[cause(group.axis)];

function words(group) {
  const hidden = group.sent_s > 1.01 * group.exposed_s;
  return (
    `${name(group)}: ${grouped(degree(group))} ranks, the farthest over ${group.link}: ` +
    `${took(group)} of a step${hidden ? `, of ${seconds(group.sent_s)} sent` : ""}`
  );
}

function sentence(told) {
  const [near] = told.dims;
  const units = `${grouped(told.chips)} chips in groups of ${near.members} on ${near.name}`;
  return [units, ...told.groups.map(words)].join("; ");
}

// What messages each group sends over which link, as buttons that open their terms; of one rank
// a word, in its place.
const groupRow = (axis, group) =>
  group
    ? h(
        "button",
        {
          type: "button",
          class: "group",
          "data-cause": cause(axis),
          "data-term": `step_time/${cause(axis)}`,
          title: words(group),
        },
        h("i", { css: { "background-color": colour(axis) } }),
        h("b", {}, `${axis} ${grouped(degree(group))} `),
        h("span", {}, `${group.link} `),
        took(group),
      )
    : h("span", { class: "group note" }, `${axis} 1`);

export function drawMachine(box, told) {
  const [near] = told.dims;
  const units = Math.ceil(told.chips / near.members);
  const by = Object.fromEntries(told.groups.map((group) => [group.axis, group]));
  const axes = by.ep ? [...AXES, "ep"] : AXES;
  const groups = axes.map((axis) => groupRow(axis, by[axis]));
  const rows = told.groups.map((group) => [
    name(group),
    group.ranks.map((n) => grouped(n)).join(" × "),
    group.link,
    rate(told.dims.find((dim) => dim.name === group.link).bytes_per_s),
    took(group),
    seconds(group.sent_s),
  ]);
  put(
    box,
    figure({
      id: "machine",
      title: `The machine: ${grouped(units)} × ${near.members} chips`,
      aside:
        "In the ink of the text: the first chip. Coloured: whom it sends to, by kind of group; " +
        "grey: chips that it sends nothing. A box is what the nearest links join; columns are " +
        "stages.",
      draw: drawing(told),
      under: h("div", { class: "groups" }, groups),
      head: ["group", "ranks a dimension", "farthest link", "one way", "of a step", "sent"],
      rows,
    }),
  );
}

// What the question's model and chip are, in a line beside it.
export function facts(p, told) {
  const flops = p.model_flops_per_s_per_chip / p.tokens_per_s_per_chip;
  const active =
    p.active_parameters < p.parameters ? ` (${count(p.active_parameters)} active)` : "";
  const { chip, dims } = told;
  const speeds = dims.filter((dim) => dim.members > 1);
  return [
    `${count(p.parameters)} parameters${active}, ${sig(flops / 1e9)} GFLOP a token`,
    `${chip.name}: ${sig(chip.peak_flops / 1e12)} TFLOP/s ${chip.precision}, ` +
      `${gib(chip.memory_bytes)} at ${sig(chip.memory_bytes_per_s / 1e12)} TB/s`,
    ...speeds.map((dim) => `${dim.name} ${rate(dim.bytes_per_s)} one way`),
  ].join(" · ");
}
