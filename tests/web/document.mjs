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

class Text {
  nodeType = 3;
  constructor(text) { this.textContent = text; }
  remove() { this.parent.children = this.parent.children.filter((kid) => kid !== this); }
}

class Node {
  nodeType = 1;
  constructor(tag) {
    Object.assign(this, {
      tagName: tag.toUpperCase(), children: [], attributes: {}, dataset: {},
      isConnected: true, clientWidth: 800, classList: new List(this),
    });
  }
  get id() { return this.attributes.id || ""; }
  set className(names) { this.attributes.class = names; }
  get firstChild() { return this.children[0]; }
  get childNodes() { return this.children; }
  get textContent() { return this.children.map((kid) => kid.textContent).join(""); }
  set textContent(text) { this.replaceChildren(text); }
  get style() { return { setProperty() {} }; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getAttribute(name) { return this.attributes[name] ?? null; }
  getAttributeNames() { return Object.keys(this.attributes); }
  hasAttribute(name) { return name in this.attributes; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener() {}
  append(...kids) { for (const kid of kids) this.insertBefore(kid.nodeType ? kid : new Text(String(kid)), null); }
  insertBefore(kid, other) {
    if (kid.parent) kid.parent.children = kid.parent.children.filter((one) => one !== kid);
    kid.parent = this;
    this.children.splice(other ? this.children.indexOf(other) : this.children.length, 0, kid);
  }
  replaceChildren(...kids) { this.children = []; this.append(...kids); }
  replaceWith(kid) { this.parent.insertBefore(kid, this); this.remove(); }
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
  createTextNode: (text) => new Text(text),
  getElementById: (id) => body.nodes.find((node) => node.id === id) || null,
};
globalThis.ResizeObserver = class { observe() {} };
globalThis.requestAnimationFrame = (does) => setTimeout(does, 0);
export const all = (fits) => body.nodes.filter(fits);
