// Horizontal bars, whose parts differ by hatching too.

import { s } from "./dom.js";
import { COLOURS, laid } from "./chart.js";
import { sig } from "./format.js";

// Hatching of bars: part i of a kind.
function hatch(i, colour, key) {
  const kind = i % 4;
  const id = `hatch-${key}-${i}`;
  if (!kind) return [colour, null];
  const mark = [null, "M-1 1l2-2M0 6l6-6M5 7l2-2", "M0 3h6", "M3 0v6"][kind];
  return [
    `url(#${id})`,
    s(
      "pattern",
      { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      s("rect", { width: 6, height: 6, fill: colour }),
      s("path", { d: mark, class: "hatch" }),
    ),
  ];
}

let pictures = 0;

// Horizontal bars. rows: [{name, parts: [[kind, value], ...], text, strong}]; kinds: names in the
// order of the legend; room: for how many rows at least. On a narrow screen name and text stand
// above their bar.
export function bars({ rows, kinds, label, most, limit, limitName, room = 0, write = sig }) {
  return (width) => {
    const key = ++pictures;
    const narrow = width < 520;
    const left = narrow ? 0 : Math.min(230, 16 + 7.6 * Math.max(...rows.map((r) => r.name.length)));
    const right = narrow ? 0 : 12 + 7.2 * Math.max(...rows.map((r) => (r.text || "").length));
    const [each, thick] = narrow ? [34, 10] : [26, 18];
    const legend = kinds.length > 1 ? laid(kinds, width) : { lines: 0, at: [] };
    const top = 6 + legend.lines * 20 + (limit ? 16 : 0);
    const height = top + Math.max(rows.length, room) * each + 6;
    const scale =
      (width - left - right) /
      Math.max(
        most || Math.max(...rows.map((r) => r.parts.reduce((sum, [, v]) => sum + v, 0))),
        1e-300,
      );
    const fills = kinds.map((_, i) => hatch(i, COLOURS[i % COLOURS.length], key));
    const svg = s(
      "svg",
      { width, height, role: "img", "aria-label": label },
      s(
        "defs",
        {},
        fills.map(([, pattern]) => pattern),
      ),
    );
    legend.at.forEach(([x, y], i) =>
      svg.append(
        s("rect", { x, y: y + 4, width: 12, height: 12, fill: fills[i][0], class: "edge" }),
        s("text", { x: x + 17, y: y + 14, class: "small" }, kinds[i]),
      ),
    );
    rows.forEach((row, r) => {
      const y = top + r * each + (narrow ? 18 : 3);
      const at = { x: narrow ? 0 : left - 8, y: narrow ? y - 5 : y + 14 };
      const anchor = narrow ? "start" : "end";
      const name = { ...at, "text-anchor": anchor, class: row.strong ? "strong" : null };
      // what a bar is about, and the term that it opens
      const line = s("g", { "data-cause": row.cause, "data-term": row.term });
      svg.append(line);
      line.append(s("text", name, row.name));
      let x = left;
      for (const [kind, value] of row.parts) {
        const w = Math.max(value * scale, 0);
        const fill = fills[kinds.indexOf(kind)][0];
        const term = row.terms ? `${row.terms}/${kind}` : null;
        const about = { "data-term": term, "data-cause": term && kind };
        if (w > 0.3)
          line.append(
            s(
              "rect",
              { x, y, width: w, height: thick, fill, class: "edge", ...about },
              s("title", {}, `${row.name}: ${kind} ${write(value)}`),
            ),
          );
        x += w;
      }
      const edge = limit * scale > width / 2 ? limit * scale - 6 : width;
      const end = narrow ? { x: edge, y: at.y, "text-anchor": "end" } : { x: x + 6, y: at.y };
      line.append(s("text", end, row.text || ""));
    });
    if (limit) {
      const x = left + limit * scale;
      svg.append(
        s("line", { x1: x, x2: x, y1: top - 4, y2: height - 4, class: "limit" }),
        s(
          "text",
          {
            x: Math.min(x, width - 4),
            y: top - 7,
            "text-anchor": x > width - 80 ? "end" : "middle",
            class: "small",
          },
          limitName,
        ),
      );
    }
    return svg;
  };
}
