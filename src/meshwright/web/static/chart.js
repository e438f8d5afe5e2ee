// Figures: a picture as SVG, its table behind it, and files to save. Colour never speaks alone.

import { h, s, put, table, save } from "./dom.js";

export const COLOURS = [
  "#0072b2",
  "#d55e00",
  "#009e73",
  "#cc79a7",
  "#e69f00",
  "#56b4e9",
  "#8c613c",
  "#7a7a7a",
];
const about = { version: "" };

export function versionOf(version) {
  about.version = version;
}

// A figure: title, one sentence that says what to see, the picture (drawn again when its width
// changes), its table.
// under: what stands below the picture; aside: what is said with the table.
export function figure({ id, title, note, under, aside, draw, head, rows, source }) {
  const box = h("div", { class: "plot" });
  let width = 0;
  const redraw = () => {
    const now = Math.max(Math.floor(box.clientWidth), 240);
    if (now !== width && box.isConnected) {
      width = now;
      put(box, draw(now));
    }
  };
  const name = `meshwright-${id}`;
  const drawn = () => standalone(box.firstChild, title, source);
  const tool = (text, onclick) => h("button", { type: "button", onclick }, text);
  const tools = h(
    "div",
    { class: "tools", role: "group", "aria-label": `Save: ${title}` },
    tool("SVG", () => save(`${name}.svg`, drawn(), "image/svg+xml")),
    tool("PNG", () => png(drawn(), (blob) => save(`${name}.png`, blob))),
    tool("CSV", () => save(`${name}.csv`, csv(head, rows), "text/csv")),
  );
  const shown = ({ target }) =>
    target.open && !target.querySelector("table") && target.append(table(head, rows, title));
  const details = h(
    "details",
    { class: "behind", ontoggle: shown },
    h("summary", {}, "Table"),
    tools,
    aside && h("p", {}, aside),
  );
  const node = h(
    "figure",
    { id: `figure-${id}`, class: "chart" },
    h("figcaption", {}, h("h3", {}, title), note && h("p", {}, note)),
    box,
    under || "",
    details,
  );
  queueMicrotask(redraw); // once it stands in the page, and before any frame shows it empty
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(box);
  return node;
}

const plainText = (cell) =>
  cell && cell.textContent !== undefined ? cell.textContent : String(cell ?? "");

function csv(head, rows) {
  const quoted = (cell) => {
    const text = plainText(cell);
    return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return (
    [head, ...rows.map((row) => row.cells || row)]
      .map((row) => row.map(quoted).join(","))
      .join("\n") + "\n"
  );
}

// The picture as a file of its own: its colours written into it, title above, source and version
// below.
function standalone(drawn, title, source = "") {
  const copy = drawn.cloneNode(true);
  const [from, to] = [
    [drawn, ...drawn.querySelectorAll("*")],
    [copy, ...copy.querySelectorAll("*")],
  ];
  from.forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of [
      "fill",
      "stroke",
      "stroke-width",
      "stroke-dasharray",
      "font-size",
      "font-weight",
      "opacity",
      "paint-order",
    ])
      if (!to[i].getAttribute(name)?.startsWith("url"))
        to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
  });
  const [width, height] = [
    Number(drawn.getAttribute("width")),
    Number(drawn.getAttribute("height")),
  ];
  const body = getComputedStyle(document.body);
  const line = (text, y, size) => s("text", { x: 8, y, "font-size": size, fill: body.color }, text);
  const said = `${source ? source + " · " : ""}meshwright ${about.version} · ` +
    `${new Date().toISOString().slice(0, 10)}`;
  const whole = s(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      width,
      height: height + 52,
      viewBox: `0 0 ${width} ${height + 52}`,
      "font-family": "system-ui, sans-serif",
    },
    s("rect", { width, height: height + 52, fill: body.backgroundColor }),
    line(title, 20, 15),
    s("g", { transform: "translate(0 28)" }, ...copy.childNodes),
    line(said, height + 44, 10),
  );
  return new XMLSerializer().serializeToString(whole);
}

function png(text, done) {
  const image = new Image();
  image.onload = () => {
    const canvas = h("canvas", { width: image.width * 2, height: image.height * 2 });
    canvas.getContext("2d").scale(2, 2);
    canvas.getContext("2d").drawImage(image, 0, 0);
    canvas.toBlob(done);
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
}

// Where the entries of a legend go: [x, y] of each, in lines that are not wider than the picture.
export function laid(names, width) {
  const at = [];
  let [x, line] = [0, 0];
  for (const name of names) {
    const w = 30 + 6.7 * name.length;
    if (x && x + w > width) {
      x = 0;
      line++;
    }
    at.push([x, line * 20]);
    x += w;
  }
  return { at, lines: line + 1 };
}
