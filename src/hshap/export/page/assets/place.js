/* Places: from the grid that the model saw to the original image, and to the image on the screen.

   Follows hshap/explanation/placement.py: one straight line for each axis. */

/** Parts of a pixel that are rounding. */
const ROUNDING = 1e-6;

/** Whether the screen shows the original image, and not the one that the model saw.
    @param {ViewTable} view */
const isOriginal = ({ original }) => original;

/** The position in the original image of an edge of grid pixels.
    @param {ViewTable} view
    @param {number} axis
    @param {number} edge */
function inOriginal({ grid, place: { start, stop, edges } }, axis, edge) {
  if (edges === null) return start[axis] + ((stop[axis] - start[axis]) * edge) / grid[axis];
  const lines = edges[axis];
  const i = Math.min(Math.max(Math.floor(edge), 0), lines.length - 1);
  return i === edge ? lines[i] : lines[i] + (lines[Math.min(i + 1, lines.length - 1)] - lines[i]) * (edge - i);
}

/** The position on the image of an edge of grid pixels.
    @param {ViewTable} view
    @param {number} axis
    @param {number} edge */
export const onImage = (view, axis, edge) => (isOriginal(view) ? inOriginal(view, axis, edge) : edge);

/** The position on the grid of a position in the original image.
    @param {ViewTable} view
    @param {number} axis
    @param {number} at */
export function fromOriginal({ grid, place: { start, stop, edges } }, axis, at) {
  if (edges === null) return ((at - start[axis]) * grid[axis]) / (stop[axis] - start[axis]);
  const lines = edges[axis];
  const sign = lines[lines.length - 1] > lines[0] ? 1 : -1; // an axis may be flipped
  if (sign * (at - lines[0]) < 0) return -1;
  let [low, high] = [0, lines.length]; // the last line that is not beyond the position
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sign * (at - lines[middle]) >= 0) low = middle;
    else high = middle;
  }
  return low === lines.length - 1 ? low : low + (at - lines[low]) / (lines[low + 1] - lines[low]);
}

/** The position on the grid of a position on the image.
    @param {ViewTable} view
    @param {number} axis
    @param {number} at */
export const onGrid = (view, axis, at) => (isOriginal(view) ? fromOriginal(view, axis, at) : at);

/** A box of the grid on the image, exact.
    @param {ViewTable} view
    @param {Box} box
    @returns {Box} */
export function boxOnImage(view, box) {
  const axes = view.grid.length;
  const ends = view.grid.map((_, axis) =>
    [onImage(view, axis, box[axis]), onImage(view, axis, box[axes + axis])].sort((a, b) => a - b));
  return [...ends.map(([low]) => low), ...ends.map(([, high]) => high)];
}

/** The whole pixels of the original image that a box of the grid touches; null if it lies beside it.
    @param {ViewTable} view
    @param {Box} box
    @returns {Box | null} */
export function boxInOriginal(view, box) {
  const axes = view.grid.length;
  const ends = view.grid.map((_, axis) =>
    [box[axis], box[axes + axis]].map((edge) =>
      Math.min(Math.max(inOriginal(view, axis, edge), 0), view.place.shape[axis])).sort((a, b) => a - b));
  if (ends.some(([low, high]) => low === high)) return null;
  return [...ends.map(([low]) => Math.floor(low + ROUNDING)), ...ends.map(([, high]) => Math.ceil(high - ROUNDING))];
}

/** The place in the original image of a pixel of the image.
    @param {ViewTable} view
    @param {number[]} place one position for each axis */
export const pixelInOriginal = (view, place) => (isOriginal(view) ? place
  : place.map((at, axis) => Math.floor(inOriginal(view, axis, at + 0.5))));

/** The side of a pixel of the image on an axis, in pixels of the original image.
    @param {ViewTable} view
    @param {number} axis */
export const sideOf = (view, axis) => (isOriginal(view) ? 1
  : Math.abs(view.place.stop[axis] - view.place.start[axis]) / view.grid[axis]);

/** The longest of 1, 2, 5, 10, 20 and so on, in units, that is at most so many pixels long.
    @param {number} side of a pixel
    @param {string} unit
    @param {number} pixels */
export function rulerOf(side, unit, pixels) {
  const most = side * pixels;
  const power = 10 ** Math.floor(Math.log10(most));
  const factor = [5, 2, 1].find((one) => one * power <= most * (1 + 1e-9)) ?? 1;
  const length = unit === "px" ? Math.max(1, factor * power) : factor * power;
  return { length, text: `${Number(length.toPrecision(6))} ${unit}` };
}
