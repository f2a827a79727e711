/* Drawing the open image: once a frame at most, and only what has changed. */

import { planeOf, seeCells } from "./cells.js";
import { colourAt, pixelColour } from "./colours.js";
import { byId, few, inkOf } from "./dom.js";
import { paintOverlay } from "./stage.js";
import { live, mapOf, now, resultOf, state, treeOf } from "./state.js";
import { CONTEXTS } from "./words.js";

/** Draw the image of every panel. */
export function drawImages() {
  const { view, source, panels, cameras } = now();
  for (const { image, axis } of panels) {
    source.draw(inkOf(image), planeOf(view, axis, state.at), cameras[axis].camera, state.window);
  }
}

/** The cells in the sight of a camera, kept until it moves; all panels have the same size.
    @param {number} axis
    @returns {Seen} */
function seenAt(axis) {
  const { view, cells, cameras, panels, seen } = now();
  const { width, height } = panels[0].overlay;
  const thick = Math.max(1, Math.round(1.5 * devicePixelRatio));
  const plane = planeOf(view, axis, state.at);
  const key = [...Object.values(cameras[axis].camera), plane.at, width, height, thick].join();
  const known = seen.get(axis);
  if (known?.key === key) return known.seen;
  const fresh = seeCells(cells, view, plane, cameras[axis].camera, width, height, thick);
  seen.set(axis, { key, seen: fresh });
  return fresh;
}

/** Paint the findings over the image of every panel. */
export function drawOverlays() {
  const { view, panels, cameras } = now();
  const largest = Math.max(...state.shown.map((klass) => resultOf(klass).largest), 0);
  const maps = state.shown.flatMap((klass) => mapOf(klass) ?? []);
  const top = Math.max(...maps.map((map) => map.top), 0);
  const hasNegative = maps.some(({ values }) => values.some((value) => value < 0));
  for (const panel of panels) {
    const isCurrent = panel.klass === state.current;
    const map = mapOf(panel.klass);
    panel.image.classList.toggle("grey", map !== null);
    paintOverlay(panel, {
      view, tree: treeOf(panel.klass), result: resultOf(panel.klass), look: state, largest, map, top, hasNegative,
      plane: planeOf(view, panel.axis, state.at), seen: seenAt(panel.axis),
      focus: isCurrent ? state.focus : null, hover: isCurrent ? state.hover : null,
      finding: isCurrent ? state.finding : -1,
    }, cameras[panel.axis].camera);
  }
  byId("map").value = mapOf(state.current) === null ? state.map : state.pixelMap;
  if (mapOf(state.current) === null) drawStrengths(largest);
  else {
    const low = hasNegative ? -1 : 0;
    const side = state.context === "all" ? "" : `, ${CONTEXTS[state.context].toLowerCase()}${top ? "" : ": nothing"}`;
    drawLegend(low * top, top, `Score per pixel${side}`, (at) => pixelColour(state.pixelMap, low + (1 - low) * at, hasNegative));
  }
}

/** The legend of regions.
    @param {number} largest */
function drawStrengths(largest) {
  const game = state.focus === null ? null : treeOf(state.current).gameOf[state.focus];
  const top = game === null ? largest : Math.max(...game.phi.map(Math.abs));
  drawLegend(0, top, "Strength of a finding, in the unit of the score", (at) => colourAt(state.map, at));
}

/** The legend: colours for values, with numbers.
    @param {number} low
    @param {number} top
    @param {string} unit
    @param {(at: number) => number[]} colour */
function drawLegend(low, top, unit, colour) {
  const bar = byId("bar");
  const context = inkOf(bar);
  for (let i = 0; i < bar.width; i++) {
    context.fillStyle = `rgb(${colour(i / (bar.width - 1)).join(" ")})`;
    context.fillRect(i, 0, 1, bar.height);
  }
  byId("legend-low").textContent = low ? few(low) : "0";
  byId("legend-middle").textContent = low ? "0" : few(top / 2);
  byId("legend-high").textContent = few(top);
  byId("unit").textContent = unit;
  bar.setAttribute("aria-label", `${unit}: colours from ${low ? few(low) : "0"} to ${few(top)}`);
}

/** @type {{ images: boolean, words: boolean } | null} */
let queued = null;
/** The function that writes all text; the page sets it when it starts. */
export const writer = { write: () => {} };

/** Draw with the next frame. */
export function redraw({ images = false, words = false } = {}) {
  if (queued === null) {
    queued = { images: false, words: false };
    requestAnimationFrame(() => {
      const { images: moved, words: changed } = queued ?? { images: true, words: true };
      queued = null;
      if (live.opened === null || !live.opened.panels.length) return;
      if (moved) drawImages();
      drawOverlays();
      if (changed) writer.write();
    });
  }
  queued.images ||= images;
  queued.words ||= words;
}

/** Give the canvases the size of their panels. */
export function fitPanels() {
  if (!live.opened?.panels.length) return;
  const { panels, cameras, view } = live.opened;
  for (const { screen, image, overlay } of panels) {
    const { clientWidth, clientHeight } = screen;
    for (const canvas of [image, overlay]) {
      canvas.width = Math.max(1, Math.round(clientWidth * devicePixelRatio));
      canvas.height = Math.max(1, Math.round(clientHeight * devicePixelRatio));
    }
  }
  const sides = [1, ...view.grid.map((_, axis) => view.sides[axis])].slice(-3);
  for (const [axis, camera] of cameras.entries()) {
    const [down, across] = sides.filter((_, i) => i !== axis);
    camera.resize(panels[0].image.width, panels[0].image.height, planeOf(view, axis, state.at), down / across);
  }
  drawImages();
  drawOverlays();
}
