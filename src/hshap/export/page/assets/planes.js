/* Planes: a slider for each axis of a volume or a video, and a strip that shows where its findings are. */

import { byId, inkOf, make } from "./dom.js";
import { colourAt } from "./colours.js";
import { redraw } from "./drawing.js";
import { boxOnImage } from "./place.js";
import { now, resultOf, state } from "./state.js";

/** @type {Record<string, string>} */
const NAMES = { T: "Time", Z: "Slice", D: "Slice", Y: "Row", H: "Row", X: "Column", W: "Column" };

/** The name of an axis of the open image. @param {number} axis */
export const axisName = (axis) => NAMES[now().view.letters[axis] ?? "ZYX"[axis]];

/** Build a slider for each axis of a volume; a picture has none. */
export function buildPlanes() {
  const { view } = now();
  byId("planes").hidden = view.axes !== 3;
  byId("planes").replaceChildren(...(view.axes !== 3 ? [] : view.shown.map((count, axis) => {
    const id = `plane-${axis}`;
    const range = make("input", { type: "range", id, min: 0, max: count - 1, step: 1 });
    range.addEventListener("input", () => {
      state.at = state.at.map((at, i) => (i === axis ? Number(range.value) : at));
      redraw({ images: true, words: true });
    });
    const strip = make("canvas", { className: "strip", width: 240, height: 10, role: "img" });
    return make("div", { className: "slider" },
      make("label", { for: id, textContent: axisName(axis) }), make("output", { for: id }), range, strip);
  })));
}

/** The strength of the strongest finding in each plane across an axis.
    @param {number} axis
    @returns {number[]} */
export function profileOf(axis) {
  const { view } = now();
  const most = Array.from({ length: view.shown[axis] }, () => 0);
  for (const { box, score } of resultOf(state.current).findings) {
    const whole = boxOnImage(view, box);
    const first = Math.max(Math.floor(whole[axis] + 1e-6), 0);
    const stop = Math.min(Math.ceil(whole[3 + axis] - 1e-6), most.length);
    for (let at = first; at < stop; at++) most[at] = Math.max(most[at], score);
  }
  return most;
}

/** Let the sliders show the planes in sight, and the strips the planes with findings. */
export function showPlanes() {
  if (now().view.axes !== 3) return;
  [...byId("planes").children].forEach((row, axis) => {
    const range = /** @type {HTMLInputElement} */ (row.querySelector("input"));
    const strip = /** @type {HTMLCanvasElement} */ (row.querySelector("canvas"));
    const told = /** @type {HTMLOutputElement} */ (row.querySelector("output"));
    range.value = String(state.at[axis]);
    told.textContent = `${state.at[axis]} of 0 to ${range.max}`;
    const profile = profileOf(axis);
    const top = Math.max(...profile, 0);
    const context = inkOf(strip);
    context.clearRect(0, 0, strip.width, strip.height);
    const wide = strip.width / profile.length;
    profile.forEach((score, at) => {
      if (score <= 0) return;
      context.fillStyle = `rgb(${colourAt(state.map, score / top).join(" ")})`;
      context.fillRect(at * wide, 0, Math.max(wide, 1), strip.height);
    });
    const found = profile.filter((score) => score > 0).length;
    strip.setAttribute("aria-label", `${axisName(axis)}: findings in ${found} of ${profile.length}`);
  });
}
