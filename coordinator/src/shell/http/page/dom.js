// Builds and updates elements. Text comes in as text only, whatever it holds: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** Returns the element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** Makes an element: `make("p", { class: "quiet" }, "text", child)`. */
export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** Makes an element of a drawing. */
export const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(node, name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets an attribute if it differs; `null` and `false` remove it. */
export function set(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : String(value));
}

/** Sets the text of an element if it differs, so that a selection in it stays. */
export function write(node, text) {
  const wanted = String(text ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Sets a sentence in which names stand in backticks, as in the coordinator's log. */
export function writeSentence(node, text) {
  if (node.textContent === text.replaceAll("`", "")) return;
  node.replaceChildren(...text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part)));
}

/** Shows or hides an element. */
export const show = (node, is_shown) => set(node, "hidden", !is_shown);

/**
 * Makes the children of `parent` those of `items`, in order. A child stays the same element as long as its key stays, so
 * that focus, selection and scrolling do. `create(item)` makes a child and `update(child, item)` fills it.
 */
export function list(parent, items, keyOf, create, update = () => {}) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === before) before = before.nextElementSibling;
    else parent.insertBefore(child, before);
    update(child, item);
  }
  for (const child of known.values()) child.remove();
}

/**
 * Fills a table. A column is `{ title, of }`; `number: true` aligns it to the right, and `wide: true` breaks long texts in it.
 * `of(row)` returns text, or an element that is made anew.
 */
export function table(node, caption, columns, rows, keyOf, empty) {
  if (!node.tHead) {
    node.append(make("caption", { class: "unseen" }, caption), make("thead", {}, make("tr")), make("tbody"));
  }
  list(node.tHead.rows[0], columns, (column) => column.title, (column) =>
    make("th", { scope: "col", class: kind(column) }, column.title));
  const shown = rows.length ? rows : [null];
  list(node.tBodies[0], shown, (row) => (row ? keyOf(row) : "empty"), () => make("tr"), (line, row) => {
    if (!row) {
      if (!line.cells.length) line.append(make("td", { colspan: columns.length, class: "quiet" }, empty));
      return;
    }
    columns.forEach((column, at) => cell(line, column, at, column.of(row)));
  });
}

const kind = (column) => (column.number ? "number" : column.wide ? "wide" : null);

function cell(line, column, at, value) {
  if (!line.cells[at]) {
    line.append(make(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: kind(column) }));
  }
  if (value instanceof Element) line.cells[at].replaceChildren(value);
  else write(line.cells[at], value);
}
