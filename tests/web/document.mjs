// As much of a document as the page's modules need to draw: elements with ids, classes and texts.

class List {
  constructor(node) { this.node = node; }
  get all() { return (this.node.attributes.class || "").split(" ").filter(Boolean); }
  set all(names) { this.node.attributes.class = names.join(" "); }
  add(name) { if (!this.contains(name)) this.all = [...this.all, name]; }
  remove(name) { this.all = this.all.filter((one) => one !== name); }
  contains(name) { return this.all.includes(name); }
  toggle(name, on = !this.contains(name)) { if (on) this.add(name); else this.remove(name); }
}

class Node {
  constructor(tag) { Object.assign(this, { tagName: tag.toUpperCase(), children: [], attributes: {}, heard: {}, dataset: {}, isConnected: true, clientWidth: 800, classList: new List(this) }); }
  get id() { return this.attributes.id || ""; }
  set className(names) { this.attributes.class = names; }
  get firstChild() { return this.children[0]; }
  get textContent() { return this.children.map((kid) => kid.textContent ?? String(kid)).join(""); }
  set textContent(text) { this.children = [text]; }
  get style() { return { setProperty() {} }; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getAttribute(name) { return this.attributes[name] ?? null; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(name, does) { this.heard[name] = does; }
  append(...kids) { for (const kid of kids) { if (kid instanceof Node) kid.parent = this; this.children.push(kid); } }
  replaceChildren(...kids) { this.children = []; this.append(...kids); }
  remove() { this.parent.children = this.parent.children.filter((kid) => kid !== this); }
  contains(node) { return this === node || this.nodes.includes(node); }
  closest() { return this.parent; }
  querySelector() { return null; }
  get nodes() { return this.children.filter((kid) => kid instanceof Node).flatMap((kid) => [kid, ...kid.nodes]); }
}

const body = new Node("body");
globalThis.document = {
  body, activeElement: null,
  createElement: (tag) => new Node(tag), createElementNS: (_, tag) => new Node(tag),
  getElementById: (id) => body.nodes.find((node) => node.id === id) || null,
};
globalThis.ResizeObserver = class { observe() {} };
globalThis.requestAnimationFrame = (does) => setTimeout(does, 0);
export const all = (fits) => body.nodes.filter(fits);
