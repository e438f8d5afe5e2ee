// Curves and dots over two axes, which differ by dash and marker too.

import { s } from "./dom.js";
import { COLOURS, laid } from "./chart.js";

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];
const TEXT = 12;

const trimmed = (text) => text.replace(/\.0+(?=\D|$)/, "");

function ticks(low, high, log, room) {
  if (log) {
    const [a, b] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
    const every = Math.max(1, Math.ceil((b - a) / room));
    const steps = b - a <= 2 || high / low <= 100 ? [1, 2, 5] : [1];
    const found = [];
    for (let power = a; power <= b; power += every)
      for (const m of steps) found.push(m * 10 ** power);
    return found.filter((x) => x >= low * 0.999 && x <= high * 1.001);
  }
  const raw = (high - low) / room;
  const size = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 2.5, 5, 10].find((m) => m * size >= raw) * size;
  const found = [];
  for (let x = Math.ceil(low / unit - 1e-9) * unit; x <= high + unit * 1e-6; x += unit)
    found.push(Math.abs(x) < unit * 1e-9 ? 0 : x);
  return found;
}

// A scale: value -> place; a range that is empty or upside down becomes one that is not.
function scale(values, from, to, log, fixed) {
  const good = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  let [low, high] = fixed || [Math.min(...good), Math.max(...good)];
  if (!good.length && !fixed) [low, high] = [1, 10];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 1, high + 1];
  const f = log ? Math.log : (v) => v;
  const place = (v) => from + ((to - from) * (f(v) - f(low))) / (f(high) - f(low));
  return Object.assign(place, { low, high, log });
}

// Lines and dots. series: [{name, points: [[x, y], ...], dots, colour, dash, area, titles,
// marked}];
// across: [{y, name}] and down: [{x, name}] are marks.
export function curves({
  series,
  x,
  y,
  label,
  across = [],
  down = [],
  diagonal,
  height = 330,
  picked,
}) {
  return (width) => {
    const tall = width < 520 ? Math.round(height * 0.9) : height;
    const names = series.map((one) => one.name);
    const legend = names.length > 1 ? laid(names, width - 10) : { at: [], lines: 0 };
    const [left, right, top, bottom] = [72, width - 12, 10 + 20 * legend.lines, tall - 44];
    const all = series.flatMap((one) => one.points);
    const px = scale(
      [...all.map((p) => p[0]), ...down.map((m) => m.x)],
      left,
      right,
      x.log,
      x.range,
    );
    const py = scale(
      [...all.map((p) => p[1]), ...across.map((m) => m.y)],
      bottom,
      top,
      y.log,
      y.range,
    );
    const svg = s("svg", { width, height: tall, role: "img", "aria-label": label });
    for (const tick of ticks(px.low, px.high, x.log, width / 90)) {
      svg.append(
        s("line", { x1: px(tick), x2: px(tick), y1: top, y2: bottom, class: "grid" }),
        s(
          "text",
          { x: px(tick), y: bottom + 17, "text-anchor": "middle", class: "small" },
          trimmed(x.write(tick)),
        ),
      );
    }
    for (const tick of ticks(py.low, py.high, y.log, tall / 50)) {
      svg.append(
        s("line", { x1: left, x2: right, y1: py(tick), y2: py(tick), class: "grid" }),
        s(
          "text",
          { x: left - 6, y: py(tick) + 4, "text-anchor": "end", class: "small" },
          trimmed(y.write(tick)),
        ),
      );
    }
    svg.append(
      s("text", { x: (left + right) / 2, y: tall - 6, "text-anchor": "middle" }, x.name),
      s(
        "text",
        {
          x: 14,
          y: (top + bottom) / 2,
          "text-anchor": "middle",
          transform: `rotate(-90 14 ${(top + bottom) / 2})`,
        },
        y.name,
      ),
    );
    if (diagonal) {
      const [a, b] = [Math.max(px.low, py.low), Math.min(px.high, py.high)];
      svg.append(s("line", { x1: px(a), y1: py(a), x2: px(b), y2: py(b), class: "axis" }));
    }
    const points = series.flatMap((one) => one.points.map(([a, b]) => [px(a), py(b)]));
    const free = places(
      points,
      across.map((mark) => py(mark.y)),
      [left, right, top, bottom],
    );
    for (const mark of across)
      svg.append(s("line", { x1: left, x2: right, y1: py(mark.y), y2: py(mark.y), class: "mark" }));
    for (const mark of down)
      svg.append(s("line", { x1: px(mark.x), x2: px(mark.x), y1: top, y2: bottom, class: "mark" }));
    const words = [
      ...down.map((mark) => free(mark.name, beside(px(mark.x), top, bottom))),
      ...across.map((mark) => free(mark.name, along(py(mark.y), left, right))),
    ];
    series.forEach((one, i) => svg.append(...drawn(one, i, px, py, [left, right, top, bottom])));
    svg.append(...words);
    legend.at.forEach(([lx, ly], i) => svg.append(...sample(series[i], i, lx + 4, ly + 10)));
    svg.append(...hover(series, px, py, x, y, [left, right, top, bottom], picked));
    return svg;
  };
}

const HIGH = 13; // of a line of small text
const WIDE = 6.6; // of one of its letters

// Where the name of a mark may stand: [x, y of its base, anchor], the best first.
const along = (y, left, right) =>
  [
    [right - 4, "end"],
    [left + 4, "start"],
    [(left + right) / 2, "middle"],
  ].flatMap(([x, anchor]) => [
    [x, y - 4, anchor],
    [x, y + HIGH, anchor],
  ]);
const beside = (x, top, bottom) =>
  [top + 11, top + 11 + HIGH, bottom - 6, bottom - 6 - HIGH].flatMap((y) => [
    [x + 5, y, "start"],
    [x - 5, y, "end"],
  ]);

// Puts texts where they lie on no other, inside the picture, and on as few lines and points of
// the curves as can be.
function places(points, levels, [left, right, top, bottom]) {
  const taken = [];
  const meets = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
  return (text, candidates) => {
    const w = WIDE * text.length;
    const found = candidates
      .map(([x, y, anchor], k) => {
        const box = {
          x: anchor === "end" ? x - w : anchor === "middle" ? x - w / 2 : x,
          y: y - HIGH + 3,
          w,
          h: HIGH,
        };
        const out =
          box.x < left || box.x + w > right || box.y < top - 2 || box.y + HIGH > bottom + 2;
        const under = points.filter(([a, b]) => meets(box, { x: a, y: b, w: 0, h: 0 })).length;
        const crossed = levels.filter((level) => box.y < level && level < box.y + HIGH).length;
        return {
          x,
          y,
          anchor,
          box,
          cost:
            1000 * taken.filter((other) => meets(box, other)).length +
            (out ? 100 : 0) +
            5 * crossed +
            3 * under +
            0.1 * k,
        };
      })
      .reduce((best, one) => (one.cost < best.cost ? one : best));
    taken.push(found.box);
    return s(
      "text",
      { x: found.x, y: found.y, "text-anchor": found.anchor, class: "small name" },
      text,
    );
  };
}

const colourOf = (one, i) => one.colour || COLOURS[i % COLOURS.length];
const dashOf = (one, i) => one.dash ?? DASHES[i % DASHES.length];

// Marks that differ by their shape alone: seven filled, then the same seven hollow; colours
// repeat sooner.
export function marker(i, x, y, colour, r = 3.2) {
  const [a, b] = [r + 1, r / 2.5];
  const [arm, width] = [b - a, 2 * b];
  const plus =
    `v${arm}h${width}v${-arm}h${-arm}v${width}h${arm}v${-arm}` +
    `h${-width}v${arm}h${arm}v${-width}z`;
  const shapes = [
    ["circle", { cx: x, cy: y, r }],
    ["rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r }],
    ["path", { d: `M${x} ${y - a}l${a} ${2 * r}h${-2 * a}z` }],
    ["path", { d: `M${x} ${y - a}l${a} ${a}l${-a} ${a}l${-a} ${-a}z` }],
    ["path", { d: `M${x} ${y + a}l${a} ${-2 * r}h${-2 * a}z` }],
    ["path", { d: `M${x - b} ${y - b}${plus}` }],
    ["path", { d: `M${x - b} ${y - b}${plus}`, transform: `rotate(45 ${x} ${y})` }],
  ];
  const [tag, props] = shapes[i % shapes.length];
  const hollow = Math.floor(i / shapes.length) % 2;
  return s(tag, {
    ...props,
    fill: hollow ? "none" : colour,
    ...(hollow ? { stroke: colour, "stroke-width": 1.4 } : {}),
  });
}

function drawn(one, i, px, py, [left, right, top, bottom]) {
  const colour = colourOf(one, i);
  const at = one.points
    .filter(([a, b]) => Number.isFinite(px(a)) && Number.isFinite(py(b)))
    .map(([a, b]) => [px(a), Math.min(Math.max(py(b), top - 2), bottom + 2)]);
  const inside = at.filter(([a]) => a >= left - 1 && a <= right + 1);
  if (one.dots) return inside.map(([a, b]) => marker(i, a, b, colour));
  if (!inside.length) return [];
  const path = inside
    .map(([a, b], k) => `${k ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`)
    .join("");
  const every = one.marked ? 1 : Math.max(1, Math.ceil(inside.length / 8));
  return [
    s("path", {
      d: path,
      fill: "none",
      stroke: colour,
      "stroke-width": one.width || 2,
      "stroke-dasharray": dashOf(one, i),
    }),
    ...(one.bare
      ? []
      : inside.filter((_, k) => k % every === 0).map(([a, b]) => marker(i, a, b, colour))),
  ];
}

function sample(one, i, x, y) {
  const colour = colourOf(one, i);
  return [
    one.dots
      ? marker(i, x + 8, y, colour)
      : s("line", {
          x1: x,
          x2: x + 18,
          y1: y,
          y2: y,
          stroke: colour,
          "stroke-width": 2,
          "stroke-dasharray": dashOf(one, i),
        }),
    s("text", { x: x + 23, y: y + 4, class: "small" }, one.name),
  ];
}

// The point nearest to the pointer, in words.
function hover(series, px, py, x, y, [left, right, top, bottom], picked) {
  const ring = s("circle", { r: 6, class: "ring", visibility: "hidden" });
  const text = s("text", { class: "tip", visibility: "hidden" });
  const near = (event) => {
    const box = event.currentTarget.ownerSVGElement.getBoundingClientRect();
    const [mx, my] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    series.forEach((one) =>
      one.points.forEach(([a, b], k) => {
        const d = (px(a) - mx) ** 2 + (py(b) - my) ** 2;
        if (Number.isFinite(d) && (!best || d < best.d)) best = { d, one, k, a, b };
      }),
    );
    return best;
  };
  const show = (event) => {
    const best = near(event);
    if (!best || best.d > 3600) return hide();
    const [cx, cy] = [px(best.a), py(best.b)];
    ring.setAttribute("cx", cx);
    ring.setAttribute("cy", cy);
    ring.setAttribute("visibility", "visible");
    text.textContent =
      best.one.titles?.[best.k] || `${best.one.name}: ${x.write(best.a)}, ${y.write(best.b)}`;
    const end = cx > (left + right) / 2;
    text.setAttribute("x", end ? cx - 10 : cx + 10);
    text.setAttribute("y", Math.max(cy - 9, top + TEXT));
    text.setAttribute("text-anchor", end ? "end" : "start");
    text.setAttribute("visibility", "visible");
  };
  const hide = () => {
    ring.setAttribute("visibility", "hidden");
    text.setAttribute("visibility", "hidden");
  };
  return [
    ring,
    text,
    s("rect", {
      x: left,
      y: top,
      width: right - left,
      height: bottom - top,
      fill: "transparent",
      onpointermove: show,
      onpointerleave: hide,
      onclick: (event) => {
        const best = near(event);
        if (best && picked && best.d < 400) picked(best.one, best.k);
      },
    }),
  ];
}
