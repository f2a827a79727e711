/* The sliders: limits that findings must reach, each with its own scale. */

import { make } from "./dom.js";
import { limitsFor } from "./findings.js";

const LEVELS = 1000;

/** The sliders that apply to some trees, each with its own scale.
    @param {Tree[]} trees
    @returns {Slider[]} */
export function slidersFor(trees) {
  /** @type {Slider[]} */
  const out = [];
  const searches = (/** @type {string} */ by) => trees.filter((tree) => tree.search?.by === by);
  const least = (/** @type {Tree[]} */ some) => Math.min(...some.map((tree) => tree.search?.least ?? 0));
  let some = searches("tolerance");
  if (some.length) {
    const low = least(some);
    const high = some.flatMap((tree) => Array.from(tree.weight))
      .reduce((most, phi) => Math.max(most, phi), low);
    out.push({ key: "tolerance", label: "Least strength", python: "tolerance", ...curve(low, high, 2, 3) });
  }
  some = searches("percentile");
  if (some.length) {
    out.push({ key: "percentile", label: "Least percentile", python: "percentile", ...curve(least(some), 100, 1, 4) });
  }
  for (const [key, label, python] of /** @type {["side" | "area", string, string][]} */ ([
    ["side", "Smallest side (pixels that the model saw)", "min_size"], ["area", "Smallest area (pixels that the model saw)", "min_area"],
  ])) {
    some = trees.filter((tree) => tree.search && tree.measure === key);
    if (!some.length) continue;
    const sizes = some.flatMap((tree) =>
      tree.games.map((game) => (key === "side" ? tree.sides : tree.sizes)[game.region])
        .filter((size) => size >= tree.finest));
    const low = Math.min(...some.map((tree) => tree.finest));
    out.push({ key, label, python, low, ...steps([...new Set(sizes)].sort((a, b) => a - b)) });
  }
  return out;
}

/** A scale along a power; its values have few digits, so that they can be copied.
    @param {number} low
    @param {number} high
    @param {number} power
    @param {number} digits */
function curve(low, high, power, digits) {
  const width = high - low || 1;
  return {
    low, most: LEVELS, step: /** @type {"any"} */ ("any"),
    at: (/** @type {number} */ place) => Math.max(low, Number((low + width * (place / LEVELS) ** power).toPrecision(digits))),
    place: (/** @type {number} */ value) => Math.round(LEVELS * Math.min(Math.max((value - low) / width, 0), 1) ** (1 / power)),
  };
}

/** A scale of the sizes at which the findings change.
    @param {number[]} values */
function steps(values) {
  return {
    most: values.length, step: 1,
    at: (/** @type {number} */ place) => values[place - 1],
    place: (/** @type {number} */ value) => values.filter((other) => other <= value).length,
  };
}

/** Build the sliders; a change calls `changed(key, value)`, with null for the run's own limit.
    @param {HTMLElement} host
    @param {Slider[]} sliders
    @param {(key: keyof Asked, value: number | null) => void} changed */
export function buildSliders(host, sliders, changed) {
  host.replaceChildren();
  for (const slider of sliders) {
    const id = `slider-${slider.key}`;
    const range = make("input", { type: "range", id, min: 0, max: slider.most, step: 1, value: 0 });
    const box = make("input", {
      type: "number", id: `${id}-value`, min: slider.low, step: slider.step,
      placeholder: "as run", "aria-label": `${slider.label}, as a number`,
    });
    Object.assign(slider, { range, box });
    range.addEventListener("input", () => {
      const place = Number(range.value);
      changed(slider.key, place === 0 ? null : slider.at(place));
    });
    box.addEventListener("input", () => { slider.typing = true; });
    box.addEventListener("change", () => {
      slider.typing = false;
      const value = Number(box.value);
      const given = box.value !== "" && Number.isFinite(value);
      const whole = slider.step === 1 ? Math.round(value) : value;
      changed(slider.key, given ? Math.max(slider.low, whole) : null);
    });
    host.append(make("div", { className: "slider" },
      make("label", { for: id, textContent: slider.label }), box, range));
  }
}

/** Make sliders show the requested limits.
    @param {Slider[]} sliders
    @param {Asked} asked */
export function showAsked(sliders, asked) {
  for (const { key, range, box, place, typing } of sliders) {
    if (!range || !box) continue;
    const limit = asked[key];
    range.value = String(limit === null ? 0 : place(limit));
    if (!typing) box.value = limit === null ? "" : String(limit); // leave a number alone while it is typed
    range.setAttribute("aria-valuetext", limit === null ? "as in the run" : String(limit));
  }
}

/** The call in Python with the same result.
    @param {Slider[]} sliders
    @param {Tree} tree
    @param {Asked} asked */
export function asPython(sliders, tree, asked) {
  const { level, size } = limitsFor(tree, asked);
  const given = sliders.flatMap(({ key, python }) => {
    const value = key === tree.measure ? size : tree.search && key === tree.search.by ? level : null;
    return value === null ? [] : [`${python}=${value}`];
  });
  return given.length ? `explanation.at(${given.join(", ")})` : "explanation";
}
