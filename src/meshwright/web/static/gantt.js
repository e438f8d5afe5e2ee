// Gantt charts of pipelines on a canvas: one row a rank, brush and keys to zoom, what each rank
// holds beneath.

import { h } from "./dom.js";
import { seconds } from "./format.js";

export const STYLE = {
  F: ["#0072b2", "#fff"],
  B: ["#009e73", "#fff"],
  I: ["#009e73", "#fff"],
  W: ["#e69f00", "#16191d"],
};
export const MEANS = {
  F: "forward",
  B: "backward",
  I: "gradient of the input",
  W: "gradient of the weights",
};
export const HELD = "#cc79a7"; // what a rank holds
const LEFT = 46;
const TOP = 20;

// A canvas that draws `told` (an answer of `timeline`) between two times; zoomed(from, to) is
// called when the reader zooms.
export function gantt(told, window_, zoomed, name) {
  const canvas = h("canvas", {
    tabindex: 0,
    role: "img",
    "aria-label": `${name}: ${told.ranks} ranks, ${seconds(told.makespan_s)}. Arrow keys move, ` +
      `plus and minus zoom, 0 shows all.`,
  });
  const tip = h("p", { class: "note", "aria-live": "off" }, " ");
  let view = [...window_];
  const rows = told.actions.length;
  const each = Math.max(8, Math.min(24, Math.floor(360 / rows)));
  const held = told.actions.map(holding);
  const most = Math.max(...held.flatMap((row) => row.map((p) => p[1])), 1);
  const lower = Math.max(6, Math.min(16, Math.floor(220 / rows)));
  const height = TOP + rows * each + 26 + rows * lower + 6;

  function paint() {
    const width = canvas.clientWidth;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.setProperty("height", `${height}px`);
    const on = canvas.getContext("2d");
    on.scale(ratio, ratio);
    const ink = getComputedStyle(document.body);
    const soft = getComputedStyle(tip).color;
    on.font = "11px system-ui, sans-serif";
    on.textBaseline = "middle";
    const x = (t) => LEFT + ((width - LEFT - 4) * (t - view[0])) / (view[1] - view[0]);
    on.fillStyle = soft;
    for (let k = 0; k <= 4; k++) {
      const t = view[0] + ((view[1] - view[0]) * k) / 4;
      on.textAlign = k === 0 ? "left" : k === 4 ? "right" : "center";
      on.fillText(seconds(t, 3), x(t), 9);
    }
    told.actions.forEach((actions, r) => {
      const y = TOP + r * each;
      on.fillStyle = soft;
      on.textAlign = "right";
      if (each >= 11 || r % 4 === 0) on.fillText(String(r), LEFT - 6, y + each / 2);
      for (const [kind, stage, microbatch, begin, end] of actions) {
        if (end < view[0] || begin > view[1]) continue;
        const [a, b] = [Math.max(x(begin), LEFT), Math.min(x(end), width - 4)];
        on.fillStyle = STYLE[kind][0];
        on.fillRect(a, y + 1, Math.max(b - a - 0.5, 0.5), each - 2);
        if (kind === "W" && b - a > 6) hatch(on, a, y + 1, b - a - 0.5, each - 2);
        if (b - a > 20 && each >= 12) {
          on.fillStyle = STYLE[kind][1];
          on.textAlign = "center";
          on.fillText(String(microbatch), (a + b) / 2, y + each / 2);
        }
      }
    });
    const base = TOP + rows * each + 22;
    on.fillStyle = ink.color;
    on.textAlign = "left";
    on.fillText("what each rank holds: microbatches of a chunk", LEFT, base - 10);
    held.forEach((points, r) => {
      const y = base + (r + 1) * lower - 1;
      on.fillStyle = soft;
      on.textAlign = "right";
      if (lower >= 11 || r % 4 === 0) on.fillText(String(r), LEFT - 6, y - lower / 2);
      on.fillStyle = HELD;
      points.forEach(([t, n], k) => {
        const until = points[k + 1]?.[0] ?? told.makespan_s;
        if (until < view[0] || t > view[1] || !n) return;
        const [a, b] = [Math.max(x(t), LEFT), Math.min(x(until), width - 4)];
        on.fillRect(
          a,
          y - ((lower - 2) * n) / most,
          Math.max(b - a, 0.5),
          ((lower - 2) * n) / most,
        );
      });
    });
  }

  function hatch(on, x, y, w, hgt) {
    on.save();
    on.beginPath();
    on.rect(x, y, w, hgt);
    on.clip();
    on.strokeStyle = "rgba(255,255,255,.6)";
    on.lineWidth = 1;
    on.beginPath();
    for (let k = x - hgt; k < x + w; k += 6) {
      on.moveTo(k, y + hgt);
      on.lineTo(k + hgt, y);
    }
    on.stroke();
    on.restore();
  }

  const whole = told.makespan_s;
  function zoom(from, to, tell = true) {
    const span = Math.min(Math.max(to - from, whole * 1e-3), whole);
    const start = Math.min(Math.max(from, 0), whole - span);
    view = [start, start + span];
    paint();
    if (tell) zoomed(view[0] / whole, view[1] / whole);
  }
  const timeAt = (event) => {
    const box = canvas.getBoundingClientRect();
    return (
      view[0] + ((view[1] - view[0]) * (event.clientX - box.left - LEFT)) / (box.width - LEFT - 4)
    );
  };
  let brush = null;
  canvas.addEventListener("keydown", (e) => {
    const span = view[1] - view[0];
    const moves = {
      ArrowLeft: [-0.2, -0.2],
      ArrowRight: [0.2, 0.2],
      "+": [0.2, -0.2],
      "=": [0.2, -0.2],
      "-": [-0.34, 0.34],
    };
    if (e.key === "0" || e.key === "Home") zoom(0, whole);
    else if (moves[e.key]) zoom(view[0] + moves[e.key][0] * span, view[1] + moves[e.key][1] * span);
    else return;
    e.preventDefault();
  });
  canvas.addEventListener("pointerdown", (e) => {
    brush = timeAt(e);
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointerup", (e) => {
    const to = timeAt(e);
    if (brush !== null && Math.abs(to - brush) > 0.01 * (view[1] - view[0]))
      zoom(Math.min(brush, to), Math.max(brush, to));
    brush = null;
  });
  canvas.addEventListener("dblclick", () => zoom(0, whole));
  canvas.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect();
    const rank = Math.floor((e.clientY - box.top - TOP) / each);
    const t = timeAt(e);
    const hit = told.actions[rank]?.find((a) => a[3] <= t && t < a[4]);
    tip.textContent = hit
      ? `rank ${rank}, stage ${hit[1]}: ${MEANS[hit[0]]} of microbatch ${hit[2]}, ` +
        `${seconds(hit[4] - hit[3])}, from ${seconds(hit[3])}`
      : told.actions[rank]
        ? `rank ${rank} is idle at ${seconds(t)}`
        : " ";
  });
  new ResizeObserver(() => requestAnimationFrame(paint)).observe(canvas);
  requestAnimationFrame(paint);
  return {
    node: h("div", {}, canvas, tip),
    zoom,
    paint,
    png: (done) => canvas.toBlob(done),
    height,
  };
}

// [time, chunks held] of a rank: a forward takes hold, the end of its backward (or of its weight
// gradient) lets go.
function holding(actions) {
  const split = actions.some(([kind]) => kind === "W");
  const events = actions.flatMap(([kind, , , begin, end]) =>
    kind === "F"
      ? [[begin, 1]]
      : kind === "B" || (kind === "W" && split) || (kind === "I" && !split)
        ? [[end, -1]]
        : [],
  );
  let n = 0;
  return events.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([t, d]) => [t, (n += d)]);
}
