// Elements, and what changes them.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, props, kids) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else if (name === "css")
      for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...kids.flat(3).filter((kid) => kid !== null && kid !== undefined && kid !== false));
  return node;
}

// An element: h("p", {class: "note"}, "text", another).
export function h(tag, props, ...kids) {
  return filled(document.createElement(tag), props, kids);
}

// An element of a picture.
export function s(tag, props, ...kids) {
  return filled(document.createElementNS(SVG, tag), props, kids);
}

// Put these nodes in place of what the node holds, which then is of the question asked; the focus stays on the control of the same id.
export function put(node, ...kids) {
  const focused = document.activeElement;
  const id = focused && node.contains(focused) ? focused.id : "";
  node.replaceChildren(...kids.flat(3).filter(Boolean));
  node.classList.remove("stale");
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
}

// A table: texts, numbers already written, or nodes; the first column names the row.
export function table(head, rows, caption, props) {
  const all = rows.map((row) => row.cells || row);
  const wordy = head.map((_, i) => all.some((cells) => long(cells[i])));
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": caption || "table" },
    h(
      "table",
      { class: wordy.some(Boolean) || head.length > 5 ? "stack" : null, role: "table", ...props },
      caption && h("caption", {}, caption),
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          head.map((text, i) =>
            h("th", { scope: "col", role: "columnheader", class: wordy[i] ? "text" : null }, text),
          ),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        all.map((cells, r) =>
          h(
            "tr",
            { role: "row", ...rows[r].props },
            cells.map((cell, i) =>
              h(
                i ? "td" : "th",
                {
                  scope: i ? null : "row",
                  role: i ? "cell" : "rowheader",
                  class: wordy[i] ? "text" : null,
                  "data-head": i && head[i] ? head[i] : null,
                },
                cell,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

// A value with its interval in a second line.
export const withRange = (value, range) =>
  range ? h("span", {}, value, h("br"), h("small", { class: "note" }, range)) : value;

// Words, which may take several lines; numbers may not.
const long = (cell) =>
  (!cell?.querySelector?.("small.note") && (cell?.textContent ?? String(cell ?? "")).length > 36) ||
  Boolean(cell?.querySelector?.("br + small[title]"));

// Let the reader save a text or a blob under a name.
export function save(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Resolves after so many milliseconds; rejects when the signal aborts.
export function wait(ms, signal) {
  return new Promise((done, stopped) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      stopped(signal.reason);
    });
  });
}
