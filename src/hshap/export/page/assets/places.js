/* Places: from the grid that the model saw to the original image, and to the image on the screen.

   Follows hshap/explanation/placement.py: one straight line for each axis. */

/** Parts of a pixel that are rounding. */
const ROUNDING = 1e-6;

/** The position in the original image of an edge of grid pixels.
    @param {View} view
    @param {number[]} grid
    @param {number} axis
    @param {number} edge */
const inOriginal = ({ place: { start, stop } }, grid, axis, edge) =>
  start[axis] + ((stop[axis] - start[axis]) * edge) / grid[axis];

/** The position on the image of an edge of grid pixels.
    @param {View} view
    @param {number[]} grid
    @param {number} axis
    @param {number} edge */
const onImage = (view, grid, axis, edge) => (view.original ? inOriginal(view, grid, axis, edge) : edge);

/** The position on the grid of a position on the image.
    @param {View} view
    @param {number[]} grid
    @param {number} axis
    @param {number} at */
function onGrid(view, grid, axis, at) {
  const { place: { start, stop } } = view;
  return view.original ? ((at - start[axis]) * grid[axis]) / (stop[axis] - start[axis]) : at;
}

/** The place on the grid of a pixel of the image; null beside the grid.
    @param {View} view
    @param {number[]} grid
    @param {number[]} place
    @returns {number[] | null} */
function gridPlace(view, grid, place) {
  const found = place.map((at, axis) => Math.floor(onGrid(view, grid, axis, at + 0.5)));
  return found.every((at, axis) => at >= 0 && at < grid[axis]) ? found : null;
}

/** A box of the grid on the image, exact.
    @param {View} view
    @param {number[]} grid
    @param {Box} box
    @returns {Box} */
function boxOnImage(view, grid, box) {
  const ends = [0, 1, 2].map((axis) =>
    [onImage(view, grid, axis, box[axis]), onImage(view, grid, axis, box[3 + axis])].sort((a, b) => a - b));
  return [...ends.map(([low]) => low), ...ends.map(([, high]) => high)];
}

/** The whole pixels of the original image that a box of the grid touches; null if it lies beside it.
    @param {View} view
    @param {number[]} grid
    @param {Box} box
    @returns {Box | null} */
function boxInOriginal(view, grid, box) {
  const ends = [0, 1, 2].map((axis) =>
    [box[axis], box[3 + axis]].map((edge) =>
      Math.min(Math.max(inOriginal(view, grid, axis, edge), 0), view.place.shape[axis])).sort((a, b) => a - b));
  if (ends.some(([low, high]) => low === high)) return null;
  return [...ends.map(([low]) => Math.floor(low + ROUNDING)), ...ends.map(([, high]) => Math.ceil(high - ROUNDING))];
}

/** The place in the original image of a pixel of the image.
    @param {View} view
    @param {number[]} place */
const pixelInOriginal = (view, place) => (view.original ? place
  : place.map((at, axis) => Math.floor(inOriginal(view, view.shown, axis, at + 0.5))));

/** The plane of a view across an axis; a picture has only that across axis 0.
    @param {View} view
    @param {number} axis
    @param {number[]} at
    @returns {Plane} */
function planeOf(view, axis, at) {
  const [rows, columns] = inPlane(axis, view.shown);
  return { axis, at: at[axis], flipped: axis > 0 && view.directions.startsWith("S"), rows, columns };
}

/** The place of a pixel of a plane.
    @param {Plane} plane
    @param {number} row
    @param {number} column
    @returns {number[]} */
function placeIn({ axis, at, flipped, rows }, row, column) {
  const down = flipped ? rows - 1 - row : row;
  return axis === 0 ? [at, down, column] : axis === 1 ? [down, at, column] : [down, column, at];
}

/** The position on the screen's rows of a position on the axis, or the other way round.
    @param {Plane} plane
    @param {number} position */
const turned = ({ flipped, rows }, position) => (flipped ? rows - position : position);

/** Row and column of a place in a plane across an axis.
    @template T
    @param {number} axis
    @param {T[]} place */
const inPlane = (axis, place) => place.filter((_, i) => i !== axis);

/** A box on the image in a plane: top, left, bottom, right.
    @param {Box} box
    @param {Plane} plane */
function boxIn(box, plane) {
  const [[first, left], [last, right]] = [inPlane(plane.axis, box.slice(0, 3)), inPlane(plane.axis, box.slice(3))];
  const [upper, lower] = [turned(plane, first), turned(plane, last)].sort((a, b) => a - b);
  return [upper, left, lower, right];
}

/** The first and last corner of a box, with an axis for each that the image has.
    @param {View} view
    @param {Box} box */
const cornersOf = ({ axes }, box) => ({ start: box.slice(3 - axes, 3), stop: box.slice(6 - axes) });

/** A box of the original image in words.
    @param {View} view
    @param {Box} box */
function boxText(view, box) {
  const { start, stop } = cornersOf(view, box);
  const names = ["z", "y", "x"].slice(-view.axes);
  return names.map((letter, i) => `${letter} ${start[i]} to ${stop[i]}`).reverse().join(", ");
}

/** Width and height of a box in the unit of the pixel size; empty if that is not known.
    @param {View} view
    @param {Box} box */
function sizeText({ axes, pixelSize, unit }, box) {
  if (pixelSize === null) return "";
  const sides = pixelSize.map((side, axis) => few((box[3 + axis] - box[axis]) * side)).slice(3 - axes);
  return `, ${sides.reverse().join(" x ")} ${unit}`;
}

/** The longest of 1, 2, 5, 10, 20 and so on, in units, that is at most so many pixels long.
    @param {number} side of a pixel
    @param {string} unit
    @param {number} pixels */
function rulerOf(side, unit, pixels) {
  const most = side * pixels;
  const power = 10 ** Math.floor(Math.log10(most));
  const factor = [5, 2, 1].find((one) => one * power <= most * (1 + 1e-9)) ?? 1;
  const length = unit === "px" ? Math.max(1, factor * power) : factor * power;
  return { length, text: `${Number(length.toPrecision(6))} ${unit}` };
}
