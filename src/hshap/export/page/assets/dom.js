/* Elements. Text is always set as text, so nothing in a name can become markup. */

const byId = (id) => document.getElementById(id);

/** Make an element; names with a dash, `role` and `for` become attributes, others properties. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** A number in a few digits. */
function few(value) {
  if (value === null || Number.isNaN(value)) return "not known";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

const share = (value) => (value * 100).toFixed(value < 0.01 ? 2 : 1) + " %";
const count = (n, one, many = one + "s") => `${n} ${n === 1 ? one : many}`;
