/* The state of the page: the user's choices, and the image that is open. */

import { USUAL } from "./colours.js";
import { byId } from "./dom.js";
import { resultAt } from "./findings.js";
import { data } from "./parts.js";

export const MOST_SHOWN = 4;
export const entries = data.views;

/** @type {State} */
export const state = {
  number: null,
  asked: { tolerance: null, percentile: null, side: null, area: null },
  layers: { map: true, heat: false, leaves: false, boxes: false, truth: true, visited: false },
  hidden: false,
  opacity: 0.85,
  map: "viridis",
  pixelMap: USUAL,
  context: "all",
  shown: [],
  current: 0,
  focus: null,
  hover: null,
  finding: -1,
  at: [0, 0, 0],
  window: [0, 255],
  said: null,
};

/** An image that is open: its data, its pixels, and its findings at the current limits.
    @typedef {{ view: View, cells: CellMap, maps: ClassMaps[], source: Source, results: Result[], panels: Panel[], cameras: Camera[], seen: Map<number, { key: string, seen: Seen }> }} Opened */

/** The image that is open, null in the gallery and while one is loaded; and the sliders in use. */
export const live = { opened: /** @type {Opened | null} */ (null), sliders: /** @type {Slider[]} */ ([]) };

/** The open image; called only while there is one. @returns {Opened} */
export function now() {
  if (live.opened === null) throw new Error("no image is open");
  return live.opened;
}

/** @param {number} klass */
export const treeOf = (klass) => now().view.trees[klass];
/** @param {number} klass */
export const resultOf = (klass) => now().results[klass];
/** Whether all limits are those of the run. */
export const isAsRun = () => Object.values(state.asked).every((limit) => limit === null);

/** The map of a class where it is shown: it is that of the run, so other limits hide it.
    @param {number} klass
    @returns {PixelMap | null} */
export function mapOf(klass) {
  const isInside = klass === state.current && state.focus !== null;
  if (!state.layers.map || state.layers.heat || state.hidden || !isAsRun() || isInside) return null;
  return now().maps[klass][state.context] ?? null;
}

/** Find the findings of the open image at the current limits. */
export function recompute() {
  const { view } = now();
  now().results = view.trees.map((tree) => resultAt(view, tree, state.asked));
  if (state.finding >= resultOf(state.current).findings.length) state.finding = -1;
}

byId("title").textContent = data.title;
