/* Elements, and numbers in words. Text is always set as text, so no name can become markup. */

/** An element of the page that is there by design.
    @param {string} id
    @returns {any} */
const byId = (id) => document.getElementById(id);

/** Make an element; names with a dash, `role` and `for` become attributes, others properties.
    @template {keyof HTMLElementTagNameMap} Tag
    @param {Tag} tag
    @param {Record<string, unknown>} properties
    @param {(Node | string)[]} children
    @returns {HTMLElementTagNameMap[Tag]} */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "for") element.setAttribute(key, String(value));
    else Object.assign(element, { [key]: value });
  }
  element.append(...children);
  return element;
}

/** Replace the children of an element; the one of the same id as before keeps the focus.
    @param {HTMLElement} host
    @param {Node[]} children */
function replaceIn(host, ...children) {
  const held = host.contains(document.activeElement) ? document.activeElement?.id : "";
  host.replaceChildren(...children);
  if (held) document.getElementById(held)?.focus({ preventScroll: true });
}

/** The context of a canvas.
    @param {HTMLCanvasElement} canvas
    @param {CanvasRenderingContext2DSettings} [options]
    @returns {CanvasRenderingContext2D} */
function inkOf(canvas, options) {
  const context = canvas.getContext("2d", options);
  if (context === null) throw new Error("this browser draws no canvas");
  return context;
}

/** A number in a few digits.
    @param {number | null} value */
function few(value) {
  if (value === null || Number.isNaN(value)) return "not known";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** A share in percent; only those that are 0 or 1 to the eye are rounded to them.
    @param {number} value */
function percent(value) {
  if ((value >= 0.1 && value <= 0.99) || value === 0 || value >= 1) return `${Math.round(100 * value)} %`;
  if (value > 0.999) return ">99.9 %";
  return Math.abs(value) < 0.001 ? "<0.1 %" : `${(100 * value).toFixed(1)} %`;
}

/** A number of things in words.
    @param {number} n
    @param {string} one */
const count = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

/** The product of the sides of a grid.
    @param {number[]} sides */
const product = (sides) => sides.reduce((all, side) => all * side, 1);
