/* Elements. Text is always set as text, so nothing in a name can become markup. */

/** An element of the page that is there by design.
    @param {string} id
    @returns {any} */
export const byId = (id) => document.getElementById(id);

/** Make an element; names with a dash, `role` and `for` become attributes, others properties.
    @template {keyof HTMLElementTagNameMap} Tag
    @param {Tag} tag
    @param {Record<string, unknown>} properties
    @param {(Node | string)[]} children
    @returns {HTMLElementTagNameMap[Tag]} */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, String(value));
    else Object.assign(element, { [name]: value });
  }
  element.append(...children);
  return element;
}

/** Replace the children of an element; the one of the same id as before keeps the focus.
    @param {HTMLElement} host
    @param {Node[]} children */
export function replaceIn(host, ...children) {
  const held = host.contains(document.activeElement) ? document.activeElement?.id : "";
  host.replaceChildren(...children);
  if (held) document.getElementById(held)?.focus({ preventScroll: true });
}

/** The context of a canvas.
    @param {HTMLCanvasElement} canvas
    @param {CanvasRenderingContext2DSettings} [options]
    @returns {CanvasRenderingContext2D} */
export function inkOf(canvas, options) {
  const context = canvas.getContext("2d", options);
  if (context === null) throw new Error("this browser draws no canvas");
  return context;
}

/** A number in a few digits.
    @param {number | null} value */
export function few(value) {
  if (value === null || Number.isNaN(value)) return "not known";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** A share in percent.
    @param {number} value */
export const share = (value) => (value * 100).toFixed(value < 0.01 ? 2 : 1) + " %";

/** A number of things in words.
    @param {number} n
    @param {string} one */
export const count = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;
