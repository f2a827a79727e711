/* The actions of a user: moving through an image and its findings, and reviewing them. */

import { writeAddress } from "./address.js";
import { boxIn, cellAt } from "./cells.js";
import { byId, few } from "./dom.js";
import { redraw } from "./drawing.js";
import { around, cellsOf, pathTo } from "./findings.js";
import { boxOnImage } from "./place.js";
import { writeRegion } from "./report.js";
import { boxText, judgeFinding, sizeText } from "./sidebar.js";
import { now, resultOf, state, treeOf } from "./state.js";
import { placeOf } from "./words.js";

/** Describe and outline a region.
    @param {number | null} region */
export function lookAt(region) {
  if (region === state.hover) return;
  state.hover = region;
  writeRegion();
  redraw();
}

/** Look into a region: its areas and their strengths.
    @param {number | null} region */
export function focusOn(region) {
  state.focus = region;
  state.hover = null;
  const tree = treeOf(state.current);
  const { view, cameras } = now();
  if (region !== null) {
    const box = around(view, cellsOf(tree, region));
    cameras.forEach((camera, axis) => camera.fit(boxIn(view, box, axis), 1.3));
  }
  state.said = region === null ? null
    : `Areas of ${placeOf(tree, pathTo(tree, region))}, strength ${few(tree.weight[region])}`;
  redraw({ images: true, words: true });
}

export function goUp() {
  if (state.focus === null) return;
  const above = treeOf(state.current).parent[state.focus];
  focusOn(above === treeOf(state.current).root ? null : above);
  if (state.focus === null) for (const camera of now().cameras) camera.fit();
}

/** Look into the area at a place of the image.
    @param {number[]} place */
export function descend(place) {
  const tree = treeOf(state.current);
  const cell = cellAt(now().cells, now().view, place);
  if (cell === null) return;
  const path = pathTo(tree, tree.cells[cell]);
  const at = state.focus === null ? 0 : path.indexOf(state.focus);
  if (at === -1) { // a click outside
    goUp();
    return;
  }
  const part = path[at + 1];
  if (part === undefined) return;
  if (tree.gameOf[part] === null) {
    state.hover = part;
    state.said = `This area was not divided further; strength ${few(tree.weight[part])}`;
    redraw({ words: true });
  } else focusOn(part);
}

/** Show the finding of a number, counted around the list.
    @param {number} i */
export function goTo(i) {
  const { findings, leafOf } = resultOf(state.current);
  if (!findings.length) return;
  const { view, cameras } = now();
  const tree = treeOf(state.current);
  state.finding = (i + findings.length) % findings.length;
  state.focus = null;
  const finding = findings[state.finding];
  state.hover = finding.cells.map((cell) => leafOf[cell])
    .reduce((a, b) => (tree.strength[b] > tree.strength[a] ? b : a));
  const onScreen = boxOnImage(view, finding.box);
  if (view.axes === 3) state.at = [0, 1, 2].map((axis) => Math.floor((onScreen[axis] + onScreen[3 + axis]) / 2));
  cameras.forEach((camera, axis) => camera.fit(boxIn(view, finding.box, axis), 3));
  state.said = `Finding ${state.finding + 1} of ${findings.length}, strength ${few(finding.score)}, at ${boxText(finding.at)}${sizeText(view, finding.at)}`;
  writeAddress(true);
  redraw({ images: true, words: true });
}

/** Keep the review of a finding.
    @param {number} i
    @param {Partial<Review>} change */
export function judge(i, change) {
  const finding = resultOf(state.current).findings[i];
  if (!finding) return;
  judgeFinding(treeOf(state.current), finding, state.asked, change);
  state.said = `Finding ${i + 1} ${change.verdict ?? (change.note === undefined ? "has no verdict" : "has a note")}`;
  redraw({ words: true });
}

/** @param {Layer} layer */
export function toggle(layer) {
  state.layers[layer] = !state.layers[layer];
  byId(`layer-${layer}`).checked = state.layers[layer];
  redraw();
}

/** Hide all that lies over the image, or show it again. */
export function toggleOverlay() {
  state.hidden = !state.hidden;
  byId("hide").setAttribute("aria-pressed", String(state.hidden));
  redraw();
}
