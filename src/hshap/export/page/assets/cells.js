/* The map of cells, and drawing it: the cell under each pixel of the screen, fills and outlines. */

import { fromBase64, unpacked } from "./parts.js";
import { boxOnImage, onGrid } from "./place.js";

/** Unpack the map of cells of a view.
    @param {View} view
    @returns {Promise<CellMap>} */
export async function loadCells(view) {
  const runs = new Uint32Array(await unpacked(fromBase64(view.runs)));
  const [ys, zs = [1]] = [...view.repeats].reverse();
  const lines = ys.length * zs.length;
  const first = new Uint32Array(lines + 1);
  for (let i = 0; i < lines; i++) first[i + 1] = first[i] + runs[i];
  const total = first[lines];
  const ends = runs.slice(lines, lines + total);
  for (let i = 0; i < lines; i++) for (let at = first[i] + 1; at < first[i + 1]; at++) ends[at] += ends[at - 1];
  const lineOf = new Uint32Array(view.depth * view.height);
  let row = 0;
  zs.forEach((planes, z) => {
    for (let k = 0; k < planes; k++) {
      ys.forEach((rows, y) => {
        lineOf.fill(z * ys.length + y, row, row + rows);
        row += rows;
      });
    }
  });
  return { first, ends, cells: runs.slice(lines + total), lineOf };
}

/** Unpack a map.
    @param {PackedMap} map
    @returns {Promise<PixelMap>} */
const unpackMap = async ({ top, values }) => ({ top, values: new Int8Array(await unpacked(fromBase64(values))) });

/** Unpack the maps of each class. A side that is 0 everywhere is a map, too: it is an answer.
    @param {View} view
    @returns {Promise<ClassMaps[]>} */
export const loadMaps = (view) => Promise.all(view.classes.map(async ({ map, contexts }) => {
  const all = map && await unpackMap(map);
  if (contexts === null) return { all };
  const none = { top: 0, values: new Int8Array(view.depth * view.height * view.width) };
  const [alone, missing] = await Promise.all(
    [contexts.alone, contexts.missing].map((side) => side === null ? none : unpackMap(side)));
  return { all, alone, missing };
}));

/** The run of a line that has a column in it.
    @param {CellMap} map
    @param {number} line
    @param {number} column */
function runAt({ first, ends }, line, column) {
  let [low, high] = [first[line], first[line + 1] - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] > column) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The cell at a place of the grid: plane, row and column.
    @param {CellMap} map
    @param {View} view
    @param {number[]} place */
export const cellOf = (map, view, [z, y, x]) => map.cells[runAt(map, map.lineOf[z * view.height + y], x)];

/** The place on the grid of a pixel of the image; null beside the grid.
    @param {View} view
    @param {number[]} place
    @returns {number[] | null} */
export function gridPlace(view, place) {
  const skipped = 3 - view.axes; // a picture has one plane
  const found = place.map((at, i) => (i < skipped ? 0 : Math.floor(onGrid(view, i - skipped, at + 0.5))));
  return found.every((at, i) => at >= 0 && at < [view.depth, view.height, view.width][i]) ? found : null;
}

/** The cell at a pixel of the image; null beside the grid.
    @param {CellMap} map
    @param {View} view
    @param {number[]} place */
export function cellAt(map, view, place) {
  const found = gridPlace(view, place);
  return found === null ? null : cellOf(map, view, found);
}

/** The plane of a view across an axis; a picture has only that across axis 0.
    @param {View} view
    @param {number} axis
    @param {number[]} at
    @returns {Plane} */
export function planeOf(view, axis, at) {
  const [rows, columns] = inPlane(axis, view.shown);
  return { axis, at: at[axis], rows, columns };
}

/** The place of a pixel of a plane.
    @param {Plane} plane
    @param {number} row
    @param {number} column
    @returns {number[]} */
export function placeIn({ axis, at }, row, column) {
  return axis === 0 ? [at, row, column] : axis === 1 ? [row, at, column] : [row, column, at];
}

/** Row and column of a place in a plane across an axis.
    @param {number} axis
    @param {number[]} place */
export const inPlane = (axis, place) => place.filter((_, i) => i !== axis);

/** A box of the grid in a plane of the image: top, left, bottom, right.
    @param {View} view
    @param {Box} box
    @param {number} axis */
export function boxIn(view, box, axis) {
  const found = boxOnImage(view, box);
  if (view.axes === 2) return found;
  return [...inPlane(axis, found.slice(0, 3)), ...inPlane(axis, found.slice(3))];
}

/** The cell under every pixel of the screen, `none` outside the image, and the pixels within
    `thick` of another cell. Sliders change neither.
    @param {CellMap} map
    @param {View} view
    @param {Plane} plane
    @param {CameraState} camera
    @param {number} width
    @param {number} height
    @param {number} thick
    @returns {Seen} */
export function seeCells(map, view, plane, camera, width, height, thick) {
  const none = view.areas.length;
  const under = new Int32Array(width * height).fill(none);
  const [downAxis, acrossAxis] = inPlane(plane.axis, [0, 1, 2]).map((axis) => axis - 3 + view.axes);
  const columns = Int32Array.from({ length: width }, (_, i) =>
    Math.floor(onGrid(view, acrossAxis, camera.x + (i + 0.5) / camera.scale)));
  const most = view.grid[acrossAxis];
  const across = view.axes === 2 ? 0 : Math.floor(onGrid(view, plane.axis, plane.at + 0.5));
  const isBeside = view.axes === 3 && (across < 0 || across >= view.grid[plane.axis]);
  let before = -1;
  for (let j = 0, at = 0; j < height; j++, at += width) {
    const row = Math.floor(onGrid(view, downAxis, camera.y + (j + 0.5) / (camera.scale * camera.ratio)));
    if (row < 0 || row >= view.grid[downAxis] || isBeside) continue;
    if (row === before) under.copyWithin(at, at - width, at);
    else {
      const line = map.lineOf[plane.axis === 0 ? across * view.height + row : row * view.height + across];
      let [run, column] = [0, -1];
      for (let i = 0; i < width; i++) {
        if (columns[i] < 0 || columns[i] >= most) continue;
        if (plane.axis === 2) under[at + i] = cellOf(map, view, [row, columns[i], across]);
        else {
          // Columns run backwards where the image was flipped.
          if (column === -1 || columns[i] < column) run = runAt(map, line, columns[i]);
          else while (map.ends[run] <= columns[i]) run++;
          column = columns[i];
          under[at + i] = map.cells[run];
        }
      }
    }
    before = row;
  }
  return { under, edges: edgesOf(under, width, height, thick), width, height, thick };
}

/** @param {Int32Array} under
    @param {number} width
    @param {number} height
    @param {number} thick */
function edgesOf(under, width, height, thick) {
  const edges = [];
  for (let j = 0, i = 0; j < height; j++) {
    for (let column = 0; column < width; column++, i++) {
      const cell = under[i];
      if (
        (column >= thick && under[i - thick] !== cell) ||
        (column + thick < width && under[i + thick] !== cell) ||
        (j >= thick && under[i - thick * width] !== cell) ||
        (j + thick < height && under[i + thick * width] !== cell)
      ) edges.push(i);
    }
  }
  return Int32Array.from(edges);
}

/** Fill by cell. Fills have one more entry, for pixels outside the image.
    @param {ImageData} target
    @param {Seen} seen
    @param {Uint32Array} fill */
export function fillCells(target, { under }, fill) {
  const out = new Uint32Array(target.data.buffer);
  for (let i = 0; i < under.length; i++) out[i] = fill[under[i]];
}

/** Fill by pixel of the grid: `fill` has a colour for each value from -128 on.
    @param {ImageData} target
    @param {View} view
    @param {Plane} plane
    @param {CameraState} camera
    @param {Seen} seen
    @param {Int8Array} values
    @param {Uint32Array} fill */
export function fillPixels(target, view, { axis, at }, camera, { under, width, height }, values, fill) {
  const out = new Uint32Array(target.data.buffer);
  const none = view.areas.length;
  const strides = [view.height * view.width, view.width, 1];
  const skipped = 3 - view.axes;
  /** @type {(along: number, place: number) => number} */
  const pixelAt = (along, place) =>
    along < skipped ? 0 : Math.floor(onGrid(view, along - skipped, place)) * strides[along];
  const [down, across] = inPlane(axis, [0, 1, 2]);
  const columns = Array.from({ length: width }, (_, i) => pixelAt(across, camera.x + (i + 0.5) / camera.scale));
  const first = pixelAt(axis, at + 0.5);
  for (let j = 0, i = 0; j < height; j++) {
    const row = first + pixelAt(down, camera.y + (j + 0.5) / (camera.scale * camera.ratio));
    for (let column = 0; column < width; column++, i++) {
      out[i] = under[i] === none ? 0 : fill[values[row + columns[column]] + 128];
    }
  }
}

/** Outlines where groups of cells meet.

    A layer of outlines has `groups` by cell, -1 for none, and colours `inside`, one for all or one
    for each cell, and `outside`. Groups have one more entry, for pixels outside the image.
    @param {ImageData} target
    @param {Seen} seen
    @param {Outline[]} layers */
export function strokeCells(target, { under, edges, width, height, thick }, layers) {
  const out = new Uint32Array(target.data.buffer);
  for (const { groups, inside, outside, dashed } of layers) {
    for (const i of edges) {
      const own = groups[under[i]];
      const column = i % width;
      const row = (i - column) / width;
      if (dashed && ((column + row) >> 2) & 1) continue;
      if (own === -1 && !outside) continue;
      if (
        (column < thick || groups[under[i - thick]] === own) &&
        (column + thick >= width || groups[under[i + thick]] === own) &&
        (row < thick || groups[under[i - thick * width]] === own) &&
        (row + thick >= height || groups[under[i + thick * width]] === own)
      ) continue;
      out[i] = own === -1 ? outside : typeof inside === "number" ? inside : inside[under[i]];
    }
  }
}
