/* The stage: panels of one image, and the findings painted over it. */

import { boxIn, fillCells, fillPixels, inPlane, strokeCells } from "./cells.js";
import { BOX, DARK, MARKED, PART, TRUTH, VISITED, colourAt, packed, pixelColour } from "./colours.js";
import { few, inkOf, make } from "./dom.js";
import { around, cellsOf, partAt } from "./findings.js";
import { strokeMarks } from "./marks.js";
import { boxOnImage, rulerOf, sideOf } from "./place.js";

const TINY = 5;
const MOST_LABELS = 60;
const PLANES = ["", ", from the front", ", from the side"];

/** A panel: a canvas for the image, and one over it for the findings.
    @param {string} name
    @param {number} klass
    @param {number} axis
    @returns {Panel} */
export function makePanel(name, klass, axis) {
  const image = make("canvas", { className: "layer" });
  const overlay = make("canvas", { className: "layer" });
  const caption = make("figcaption", {}, make("strong", { textContent: name }), make("span"));
  const screen = make("div", {
    className: "screen", tabIndex: 0, role: "application",
    "aria-label": `${name}${PLANES[axis]}: arrows move, plus and minus zoom, Enter looks into an area, ` +
      "Escape goes back, n and p step through findings, h hides the overlay",
  }, image, overlay);
  return { klass, axis, element: make("figure", { className: "panel" }, caption, screen), image, overlay, screen, caption };
}

/** @typedef {{ view: View, tree: Tree, result: Result, look: State, largest: number, map: PixelMap | null, top: number, hasNegative: boolean, plane: Plane, seen: Seen, focus: number | null, hover: number | null, finding: number }} Scene */

/** Paint the findings of one class, and the region under the pointer, over the image.
    @param {Panel} panel
    @param {Scene} scene
    @param {CameraState} camera */
export function paintOverlay(panel, scene, camera) {
  const { view, tree, result, map, look, largest, plane, focus, hover, finding, seen } = scene;
  const context = inkOf(panel.overlay);
  context.clearRect(0, 0, seen.width, seen.height);
  const { thick } = seen;
  if (!look.hidden) {
    const target = context.createImageData(seen.width, seen.height);
    const parts = focus === null ? null : tree.cells.map((_, cell) => partAt(tree, focus, cell));
    if (map === null) fillCells(target, seen, fillsOf(tree, result, look, parts, focus, largest));
    else fillPixels(target, view, plane, camera, seen, map.values, coloursOf(scene, map));
    strokeCells(target, seen, outlinesOf(scene, parts));
    context.putImageData(target, 0, 0);
    if (view.marks && showsLeaves(scene)) strokeMarks(context, view.marks[panel.klass], look.map, camera, thick);
    if (focus === null) strokeBoxes(context, boxesIn(scene), camera, thick, look.layers.boxes ? Infinity : TINY * thick);
    if (focus === null && (map !== null || showsLeaves(scene) || look.layers.boxes)) labelFindings(context, scene, camera, thick, finding);
    if (parts !== null && focus !== null) writeParts(context, scene, focus, camera, thick);
    if (hover === null && view.axes === 3) strokeCross(context, inPlane(plane.axis, look.at), camera);
  }
  drawRuler(context, view, plane, camera, thick);
}

/** Whether the outlines of the findings are drawn: also where there is no map to show them.
    @param {Scene} scene */
const showsLeaves = ({ look, map }) => look.layers.leaves || (look.layers.map && map === null);

/** A colour for each value of a map from -128 on; opacity grows with the distance from 0.
    @param {Scene} scene
    @param {PixelMap} map */
const coloursOf = ({ look, top, hasNegative }, map) => Uint32Array.from({ length: 256 }, (_, i) => {
  const value = ((i - 128) / 127) * (map.top / (top || 1));
  const [red, green, blue] = pixelColour(look.pixelMap, value, hasNegative);
  return packed(red, green, blue, Math.round(255 * look.opacity * Math.sqrt(Math.min(Math.abs(value), 1))));
});

/** @param {Tree} tree
    @param {Result} result
    @param {State} look
    @param {number[] | null} parts
    @param {number | null} focus
    @param {number} largest */
function fillsOf(tree, result, look, parts, focus, largest) {
  const none = result.leafOf.length;
  const fill = new Uint32Array(none + 1);
  const alpha = Math.round(look.opacity * 255);
  const game = focus === null ? null : tree.gameOf[focus];
  const top = game === null ? largest : Math.max(...game.phi.map(Math.abs));
  const strength = parts === null ? tree.strength : tree.weight;
  for (let cell = 0; cell < none; cell++) {
    const region = parts === null ? result.leafOf[cell] : parts[cell];
    if (region === -1) fill[cell] = parts === null ? 0 : packed(0, 0, 0, 150);
    else if (look.layers.heat && strength[region] > 0) {
      const [red, green, blue] = colourAt(look.map, strength[region] / (top || 1));
      fill[cell] = packed(red, green, blue, alpha);
    }
  }
  return fill;
}

/** @param {Scene} scene
    @param {number[] | null} parts
    @returns {Outline[]} */
function outlinesOf(scene, parts) {
  const { view, tree, result, look, largest, hover } = scene;
  /** @type {Outline[]} */
  const layers = [];
  /** @type {(groups: ArrayLike<number>, inside: number | Uint32Array, outside?: number, dashed?: boolean) => void} */
  const outline = (groups, inside, outside = 0, dashed = false) => {
    const padded = new Int32Array(groups.length + 1).fill(-1);
    padded.set(groups);
    layers.push({ groups: padded, inside, outside, dashed });
  };
  if (look.layers.visited) outline(tree.cells, VISITED);
  if (showsLeaves(scene)) {
    const colours = Uint32Array.from(result.leafOf, (leaf) => {
      const [red, green, blue] = colourAt(look.map, leaf === -1 ? 0 : tree.strength[leaf] / (largest || 1));
      return packed(red, green, blue);
    });
    outline(result.leafOf, colours, DARK);
  }
  if (tree.marked) outline(tree.marked.map((one) => one - 1), MARKED, DARK, true);
  if (look.layers.truth && view.truth) outline(view.truth.map((one) => one - 1), TRUTH, DARK, true);
  if (parts !== null) outline(parts, PART, DARK);
  if (hover !== null) {
    const under = new Set(cellsOf(tree, hover));
    outline(tree.cells.map((_, cell) => (under.has(cell) ? 1 : -1)), PART, DARK);
  }
  return layers;
}

/** The boxes of the findings that the plane cuts: top, left, bottom, right, and number.
    @param {Scene} scene */
const boxesIn = ({ view, result, plane }) => result.findings.flatMap(({ box }, i) => {
  const whole = boxOnImage(view, box);
  const isCut = view.axes === 2 || (plane.at >= Math.floor(whole[plane.axis]) && plane.at < whole[3 + plane.axis]);
  return isCut ? [{ box: boxIn(view, box, plane.axis), i }] : [];
});

/** Boxes around findings up to a size on the screen, never too small to be visible.
    @param {CanvasRenderingContext2D} context
    @param {{ box: Box }[]} findings
    @param {CameraState} camera
    @param {number} thick
    @param {number} most */
export function strokeBoxes(context, findings, { x, y, scale, ratio }, thick, most) {
  for (const [width, style] of /** @type {[number, string][]} */ ([[2 * thick, "rgba(0, 0, 0, 0.55)"], [thick, BOX]])) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    for (const { box: [top, left, bottom, right] } of findings) {
      const least = 6 * thick;
      const [wide, high] = [(right - left) * scale, (bottom - top) * scale * ratio];
      if (Math.max(wide, high) > most) continue;
      const [extraX, extraY] = [Math.max(0, least - wide) / 2, Math.max(0, least - high) / 2];
      context.rect(
        (left - x) * scale - extraX, (top - y) * scale * ratio - extraY,
        wide + 2 * extraX, high + 2 * extraY,
      );
    }
    context.stroke();
  }
}

/** Text on a dark plate.
    @param {CanvasRenderingContext2D} context
    @param {string} text
    @param {number} atX
    @param {number} atY
    @param {number} thick
    @param {string} ink */
function plate(context, text, atX, atY, thick, ink = "#fff") {
  context.font = `600 ${6 * thick}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const half = context.measureText(text).width / 2 + 2 * thick;
  context.fillStyle = "rgba(0, 0, 0, 0.75)";
  context.fillRect(atX - half, atY - 4.5 * thick, 2 * half, 9 * thick);
  context.fillStyle = ink;
  context.fillText(text, atX, atY);
}

/** The numbers of the findings, as in the list.
    @param {CanvasRenderingContext2D} context
    @param {Scene} scene
    @param {CameraState} camera
    @param {number} thick
    @param {number} current */
function labelFindings(context, scene, { x, y, scale, ratio }, thick, current) {
  for (const { box: [top, left], i } of boxesIn(scene).slice(0, MOST_LABELS)) {
    const [atX, atY] = [(left - x) * scale, Math.max(6 * thick, (top - y) * scale * ratio - 6 * thick)];
    plate(context, String(i + 1), atX, atY, thick, i === current ? "#f0e442" : "#fff");
  }
}

/** The strength of each area of a region, in its middle.
    @param {CanvasRenderingContext2D} context
    @param {Scene} scene
    @param {number} focus
    @param {CameraState} camera
    @param {number} thick */
function writeParts(context, { view, tree, plane }, focus, { x, y, scale, ratio }, thick) {
  for (const part of tree.gameOf[focus]?.parts ?? []) {
    const [top, left, bottom, right] = boxIn(view, around(view, cellsOf(tree, part)), plane.axis);
    plate(context, few(tree.weight[part]), ((left + right) / 2 - x) * scale, ((top + bottom) / 2 - y) * scale * ratio, thick);
  }
}

/** The lines where the other planes of a volume cut this one.
    @param {CanvasRenderingContext2D} context
    @param {number[]} at
    @param {CameraState} camera */
function strokeCross(context, [row, column], { x, y, scale, ratio }) {
  context.strokeStyle = "rgba(240, 228, 66, 0.6)";
  context.lineWidth = 1;
  context.beginPath();
  const [atX, atY] = [Math.round((column + 0.5 - x) * scale) + 0.5, Math.round((row + 0.5 - y) * scale * ratio) + 0.5];
  context.moveTo(atX, 0);
  context.lineTo(atX, context.canvas.height);
  context.moveTo(0, atY);
  context.lineTo(context.canvas.width, atY);
  context.stroke();
}

/** The scale bar: a round length, in the unit of the pixel size, or in pixels.
    @param {CanvasRenderingContext2D} context
    @param {View} view
    @param {Plane} plane
    @param {CameraState} camera
    @param {number} thick */
function drawRuler(context, view, plane, { scale }, thick) {
  const across = inPlane(plane.axis, [0, 1, 2])[1] - 3 + view.axes;
  const side = sideOf(view, across) * (view.pixelSize?.[across] ?? 1);
  const { length, text } = rulerOf(side, view.pixelSize === null ? "px" : view.unit, (60 * thick) / scale);
  const wide = (length / side) * scale;
  const [left, bottom] = [8 * thick, context.canvas.height - 8 * thick];
  // A dark rim on all sides, so that the bar is seen on a white image, too.
  context.fillStyle = "rgba(0, 0, 0, 0.75)";
  context.fillRect(left - thick, bottom - 1.75 * thick, wide + 2 * thick, 3.5 * thick);
  context.fillStyle = "#fff";
  context.fillRect(left, bottom - 0.75 * thick, wide, 1.5 * thick);
  plate(context, text, left + wide / 2, bottom - 8 * thick, thick);
}
