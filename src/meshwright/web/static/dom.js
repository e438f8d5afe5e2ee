// Elements, and what changes them.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, props, kids) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node[name] = value;
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

// Put these nodes in place of what the node holds, which then is of the question asked; the
// focus stays on the control of the same id.
export function put(node, ...kids) {
  const focused = document.activeElement;
  const id = focused && node.contains(focused) ? focused.id : "";
  node.replaceChildren(...kids.flat(3).filter(Boolean));
  node.classList.remove("stale");
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
}

// Make what a node holds look like these nodes, in place: elements of the same id, else of the same
// name in order, stay the elements they are, so that neither the focus nor a box is lost.
export function renew(node, ...kids) {
  node.classList.remove("stale");
  match(node, kids.flat(3).filter(Boolean));
}

const WHOLE = new Set(["FIGURE", "CANVAS"]); // what draws itself, by what it was made with
const HEARD = ["onclick", "onchange", "oninput", "ontoggle"];

function match(node, kids) {
  const known = new Map([...node.children].filter((kid) => kid.id).map((kid) => [kid.id, kid]));
  const others = [...node.children].filter((kid) => !kid.id);
  const now = kids.map((kid) => {
    const old = kid.id
      ? known.get(kid.id)
      : kid.tagName && others.find((one) => one.tagName === kid.tagName);
    if (old && !kid.id) others.splice(others.indexOf(old), 1);
    return old && old.tagName === kid.tagName && !WHOLE.has(kid.tagName) ? alike(old, kid) : kid;
  });
  const same =
    node.childNodes.length === now.length && now.every((kid, i) => node.childNodes[i] === kid);
  if (!same) refill(node, now);
}

// Texts are written anew; an element that stays is not taken out, which would lose its focus.
function refill(node, now) {
  const kept = new Set(now);
  for (const kid of [...node.childNodes]) if (!kept.has(kid)) kid.remove();
  now.forEach((kid, i) => {
    if (node.childNodes[i] !== kid) node.insertBefore(asNode(kid), node.childNodes[i] || null);
  });
}

const asNode = (kid) => (kid.nodeType ? kid : document.createTextNode(String(kid)));

function alike(old, fresh) {
  const open = old.tagName === "DETAILS"; // opened by the reader
  for (const name of old.getAttributeNames())
    if (!fresh.hasAttribute(name) && !(open && name === "open")) old.removeAttribute(name);
  for (const name of fresh.getAttributeNames())
    if (name === "style")
      old.style.cssText = fresh.style.cssText; // an attribute would be inline
    else old.setAttribute(name, fresh.getAttribute(name));
  for (const name of HEARD) old[name] = fresh[name];
  if (old.tagName === "INPUT") {
    old.checked = fresh.checked;
    if (old !== document.activeElement) old.value = fresh.value;
  }
  match(old, [...fresh.childNodes]);
  return old;
}

// What is folded behind a few words.
export const fold = (summary, ...kids) => h("details", {}, h("summary", {}, summary), ...kids);

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

// What is asked or shown above the page, until it is closed.
export function dialog(title, ...kids) {
  const box = h(
    "dialog",
    { "aria-label": title, onclose: () => box.remove() },
    h("h2", {}, title),
    ...kids,
    h("p", {}, h("button", { type: "button", onclick: () => box.close() }, "Close")),
  );
  document.body.append(box);
  box.showModal();
  return box;
}
