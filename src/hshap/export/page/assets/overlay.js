/* The overlay: the map, outlines, boxes and numbers over the image of a panel. */

const TINY = 5;
const MOST_LABELS = 60;
/** The opposite direction of a patient. @type {Record<string, string>} */
const OPPOSITE = { L: "R", R: "L", A: "P", P: "A", S: "I", I: "S" };
const scratch = make("canvas");

/** Paint all that lies over the image of a panel.
    @param {Panel} panel
    @param {Scene} scene */
function paintOverlay(panel, scene) {
  const { view, klass, look, map, plane, camera, thick, hover } = scene;
  const context = inkOf(panel.overlay);
  context.clearRect(0, 0, panel.overlay.width, panel.overlay.height);
  if (!look.hidden) {
    if (map !== null) paintMap(context, scene, map);
    paintOutlines(context, scene);
    if (view.marks && showsLeaves(scene)) strokeMarks(context, view.marks[panel.klass], camera, thick);
    strokeBoxes(context, boxesIn(scene), camera, thick, look.layers.boxes ? Infinity : TINY * thick);
    if (map !== null || showsLeaves(scene) || look.layers.boxes) labelFindings(context, scene);
    if (hover === null && view.axes === 3) strokeCross(context, plane, inPlane(plane.axis, look.at), camera);
    paintDirections(context, scene);
  }
  paintRuler(context, view, plane, camera, thick, klass.grid);
}

/** Whether the outlines of the findings are drawn: also where no map shows them, or not these.
    @param {Scene} scene */
const showsLeaves = ({ look, map }) => look.layers.leaves || (look.layers.map && (map === null || look.tolerance !== null));

/** Values below this share of the largest one are not painted: they would only dim the image. */
const FAINT = 0.05;

/** A colour for each stored value of a map from -128 on; opacity grows with the root of the value.
    @param {Scene} scene
    @param {PixelMap} map */
const coloursOf = ({ look, top, hasNegative }, map) => Uint32Array.from({ length: 256 }, (_, i) => {
  const root = (i - 128) / STEPS;
  const value = Math.sign(root) * root ** 2 * (map.top / (top || 1));
  const [red, green, blue] = valueColour(look.colours, value, hasNegative);
  return packed(red, green, blue, Math.round(255 * look.opacity * Math.sqrt(Math.max(Math.min(Math.abs(value), 1) - FAINT, 0) / (1 - FAINT))));
});
const STEPS = 127;

/** @typedef {{ facts: string, made: any }} Kept */
/** What was made for an object and an axis, until the facts that it depends on change.
    @type {WeakMap<object, Map<number, Kept>>} */
const keptBy = new WeakMap();

/** @template T
    @param {object} owner
    @param {number} axis
    @param {string} facts
    @param {() => T} build
    @returns {T} */
function keep(owner, axis, facts, build) {
  const own = keptBy.get(owner) ?? new Map();
  keptBy.set(owner, own);
  if (own.get(axis)?.facts !== facts) own.set(axis, { facts, made: build() });
  return own.get(axis).made;
}

/** A plane of a map in colours.
    @param {Scene} scene
    @param {PixelMap} map
    @param {number} at the plane on the grid */
function colourPlane(scene, map, at) {
  const { klass: { grid }, plane } = scene;
  const [down, across] = inPlane(plane.axis, [0, 1, 2]);
  const [rows, columns] = [grid[down], grid[across]];
  const strides = [grid[1] * grid[2], grid[2], 1];
  const canvas = make("canvas", { width: columns, height: rows });
  const pixels = new ImageData(columns, rows);
  const out = new Uint32Array(pixels.data.buffer);
  const fill = coloursOf(scene, map);
  for (let row = 0, i = 0; row < rows; row++) {
    const line = at * strides[plane.axis] + row * strides[down];
    for (let column = 0; column < columns; column++, i++) out[i] = fill[map.values[line + column * strides[across]] + 128];
  }
  inkOf(canvas).putImageData(pixels, 0, 0);
  return canvas;
}

/** Paint a map smoothly: the browser interpolates between pixels of the grid.
    @param {CanvasRenderingContext2D} context
    @param {Scene} scene
    @param {PixelMap} map */
function paintMap(context, scene, map) {
  const { view, klass: { grid }, plane, camera, look } = scene;
  const at = Math.floor(onGrid(view, grid, plane.axis, plane.at + 0.5));
  if (at < 0 || at >= grid[plane.axis]) return;
  const facts = [at, look.colours, look.opacity, scene.top, scene.hasNegative].join();
  const canvas = keep(map, plane.axis, facts, () => colourPlane(scene, map, at));
  const [down, across] = inPlane(plane.axis, [0, 1, 2]);
  const [rows, columns] = [grid[down], grid[across]];
  const [left, right] = [0, columns].map((edge) => (onImage(view, grid, across, edge) - camera.x) * camera.scale);
  const [upper, lower] = [0, rows].map((edge) => (turned(plane, onImage(view, grid, down, edge)) - camera.y) * camera.scale * camera.ratio);
  context.save();
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.setTransform((right - left) / columns, 0, 0, (lower - upper) / rows, left, upper); // may be flipped
  context.drawImage(canvas, 0, 0);
  context.restore();
}

/** The label under every pixel of the screen; `none` beside the grid.
    @param {Labelled} labelled
    @param {Scene} scene
    @param {number} none */
function seeLabels({ labels, grid }, { view, plane, camera, width, height }, none) {
  const under = new Int32Array(width * height).fill(none);
  const strides = [grid[1] * grid[2], grid[2], 1];
  /** @type {(axis: number, position: number) => number} */
  const offset = (axis, position) => {
    const place = Math.floor(onGrid(view, grid, axis, position));
    return place < 0 || place >= grid[axis] ? -1 : place * strides[axis];
  };
  const [down, across] = inPlane(plane.axis, [0, 1, 2]);
  const start = offset(plane.axis, plane.at + 0.5);
  if (start < 0) return under;
  const columns = Int32Array.from({ length: width }, (_, i) => offset(across, camera.x + (i + 0.5) / camera.scale));
  for (let j = 0, i = 0; j < height; j++) {
    const row = offset(down, turned(plane, camera.y + (j + 0.5) / (camera.scale * camera.ratio)));
    for (let column = 0; column < width; column++, i++) {
      if (row >= 0 && columns[column] >= 0) under[i] = labels[start + row + columns[column]];
    }
  }
  return under;
}

/** Outlines of all layers that are shown.
    @param {CanvasRenderingContext2D} context
    @param {Scene} scene */
function paintOutlines(context, scene) {
  const { view, klass, result, look, finding, hover, width, height } = scene;
  const target = new ImageData(width, height);
  const sight = [...Object.values(scene.camera), scene.plane.at, width, height].join();
  let isEmpty = true;
  /** @type {(labelled: Labelled, groups: ArrayLike<number>, colour: number, rim?: number, dashed?: boolean) => void} */
  const outline = (labelled, groups, colour, rim = DARK, dashed = false) => {
    const padded = new Int32Array(groups.length + 1).fill(-1); // the last one is beside the grid
    padded.set(groups);
    const under = keep(labelled, scene.plane.axis, sight, () => seeLabels(labelled, scene, groups.length));
    isEmpty = false;
    strokeGroups(target, under, padded, scene, colour, rim, dashed);
  };
  if (look.layers.checked) outline(klass, Int32Array.from(klass.areas, (_, cell) => cell), CHECKED, 0);
  if (showsLeaves(scene)) outline(klass, result.leafOf, LEAF);
  if (klass.marked) outline(klass.marked, [-1, 1], MARKED, DARK, true);
  if (look.layers.truth && view.truth) outline(view.truth, [-1, 1], TRUTH, DARK, true);
  if (finding >= 0) outline(klass, result.numberOf.map((one) => (one === finding ? 1 : -1)), CHOSEN);
  if (hover !== null) {
    const near = nearest(klass, (region) => region === hover);
    outline(klass, Int32Array.from(klass.areas, (_, cell) => near[regionOf(klass, cell)]), CHOSEN);
  }
  if (isEmpty) return;
  Object.assign(scratch, { width, height });
  inkOf(scratch).putImageData(target, 0, 0);
  context.drawImage(scratch, 0, 0);
}

/** Draw where groups of labels meet: in a colour inside, and a dark rim outside.
    @param {ImageData} target
    @param {Int32Array} under
    @param {Int32Array} groups by label, -1 for none
    @param {Scene} scene
    @param {number} colour
    @param {number} rim
    @param {boolean} dashed */
function strokeGroups(target, under, groups, { width, height, thick }, colour, rim, dashed) {
  const out = new Uint32Array(target.data.buffer);
  for (let row = 0, i = 0; row < height; row++) {
    for (let column = 0; column < width; column++, i++) {
      const own = groups[under[i]];
      if (own === -1 && !rim) continue;
      const isEdge = (column >= thick && groups[under[i - thick]] !== own) ||
        (column + thick < width && groups[under[i + thick]] !== own) ||
        (row >= thick && groups[under[i - thick * width]] !== own) ||
        (row + thick < height && groups[under[i + thick * width]] !== own);
      if (isEdge && !(dashed && ((column + row) >> 2) & 1)) out[i] = own === -1 ? rim : colour;
    }
  }
}

/** The boxes of the findings that the plane cuts: top, left, bottom, right, and number.
    @param {Scene} scene */
const boxesIn = ({ view, klass, result, plane }) => result.findings.flatMap(({ box }, i) => {
  const whole = boxOnImage(view, klass.grid, box);
  const isCut = plane.at >= Math.floor(whole[plane.axis]) && plane.at < whole[3 + plane.axis];
  return view.axes === 2 || isCut ? [{ box: boxIn(whole, plane), i }] : [];
});

/** Boxes around findings up to a size on the screen, never too small to be visible.
    @param {CanvasRenderingContext2D} context
    @param {{ box: Box }[]} findings
    @param {CameraState} camera
    @param {number} thick
    @param {number} most */
function strokeBoxes(context, findings, { x, y, scale, ratio }, thick, most) {
  for (const [width, style] of /** @type {[number, string][]} */ ([[2 * thick, "rgba(0, 0, 0, 0.55)"], [thick, BOX]])) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    for (const { box: [upper, left, bottom, right] } of findings) {
      const least = 6 * thick;
      const [wide, high] = [(right - left) * scale, (bottom - upper) * scale * ratio];
      if (Math.max(wide, high) > most) continue;
      const [extraX, extraY] = [Math.max(0, least - wide) / 2, Math.max(0, least - high) / 2];
      context.rect((left - x) * scale - extraX, (upper - y) * scale * ratio - extraY, wide + 2 * extraX, high + 2 * extraY);
    }
    context.stroke();
  }
}

/** Outlines of findings inside the tiles of a large image, where they are in sight.
    @param {CanvasRenderingContext2D} context
    @param {Mark[]} marks
    @param {CameraState} camera
    @param {number} thick */
function strokeMarks(context, marks, { x, y, scale, ratio }, thick) {
  for (const rings of marks) {
    const path = new Path2D();
    let isSeen = false;
    for (const ring of rings) {
      for (let i = 0; i < ring.length; i += 2) {
        const [atX, atY] = [(ring[i] - x) * scale, (ring[i + 1] - y) * scale * ratio];
        isSeen ||= atX >= 0 && atY >= 0 && atX <= context.canvas.width && atY <= context.canvas.height;
        if (i) path.lineTo(atX, atY);
        else path.moveTo(atX, atY);
      }
      path.closePath();
    }
    if (!isSeen) continue;
    context.lineJoin = "round";
    for (const [width, style] of /** @type {[number, string][]} */ ([[2 * thick, "rgba(0, 0, 0, 0.55)"], [thick, BOX]])) {
      context.lineWidth = width;
      context.strokeStyle = style;
      context.stroke(path);
    }
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
    @param {Scene} scene */
function labelFindings(context, scene) {
  const { camera: { x, y, scale, ratio }, thick, finding } = scene;
  for (const { box: [upper, left], i } of boxesIn(scene).slice(0, MOST_LABELS)) {
    const [atX, atY] = [(left - x) * scale, Math.max(6 * thick, (upper - y) * scale * ratio - 6 * thick)];
    plate(context, String(i + 1), atX, atY, thick, i === finding ? "#f0e442" : "#fff");
  }
}

/** The lines where the other planes of a volume cut this one.
    @param {CanvasRenderingContext2D} context
    @param {Plane} plane
    @param {number[]} at
    @param {CameraState} camera */
function strokeCross(context, plane, [row, column], { x, y, scale, ratio }) {
  context.strokeStyle = "rgba(240, 228, 66, 0.6)";
  context.lineWidth = 1;
  context.beginPath();
  const [atX, atY] = [Math.round((column + 0.5 - x) * scale) + 0.5, Math.round((turned(plane, row + 0.5) - y) * scale * ratio) + 0.5];
  context.moveTo(atX, 0);
  context.lineTo(atX, context.canvas.height);
  context.moveTo(0, atY);
  context.lineTo(context.canvas.width, atY);
  context.stroke();
}

/** The sides of the patient at the borders of a panel: L and R, A and P, S and I.
    @param {CanvasRenderingContext2D} context
    @param {Scene} scene */
function paintDirections(context, { view, plane, thick, width, height }) {
  if (!view.directions) return;
  const [along, across] = inPlane(plane.axis, [...view.directions.padStart(3, " ")]);
  const down = plane.flipped ? OPPOSITE[along] : along;
  plate(context, OPPOSITE[across], 8 * thick, height / 2, thick);
  plate(context, across, width - 8 * thick, height / 2, thick);
  plate(context, OPPOSITE[down], width / 2, 8 * thick, thick);
  plate(context, down, width / 2, height - 8 * thick, thick);
}

/** The scale bar: a round length, in the unit of the pixel size, or in pixels of the original image.
    @param {CanvasRenderingContext2D} context
    @param {View} view
    @param {Plane} plane
    @param {CameraState} camera
    @param {number} thick
    @param {number[]} grid */
function paintRuler(context, view, plane, { scale }, thick, grid) {
  const [, across] = inPlane(plane.axis, [0, 1, 2]);
  const { start, stop } = view.place;
  const whole = view.original ? 1 : Math.abs(stop[across] - start[across]) / grid[across];
  const side = whole * (view.pixelSize?.[across] ?? 1);
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
