/* The findings at a tolerance. A cell is a set of pixels that no region divides: the number of the
   finest region at a pixel, or that of one of its pieces. Nothing here draws. */

/** Areas and boxes of cells, and pairs of cells that touch along a side.
    @param {Labels} labels
    @param {number[]} grid
    @param {number} cells */
function measureCells(labels, [depth, height, width], cells) {
  const areas = new Float64Array(cells);
  const boxes = new Int32Array(6 * cells);
  for (let cell = 0; cell < cells; cell++) boxes.fill(2 ** 30, 6 * cell, 6 * cell + 3);
  /** @type {Set<number>} */
  const pairs = new Set();
  for (let z = 0, i = 0; z < depth; z++) {
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++, i++) {
        const cell = labels[i];
        const box = 6 * cell;
        areas[cell]++;
        if (z < boxes[box]) boxes[box] = z;
        if (y < boxes[box + 1]) boxes[box + 1] = y;
        if (x < boxes[box + 2]) boxes[box + 2] = x;
        if (z >= boxes[box + 3]) boxes[box + 3] = z + 1;
        if (y >= boxes[box + 4]) boxes[box + 4] = y + 1;
        if (x >= boxes[box + 5]) boxes[box + 5] = x + 1;
        if (x && labels[i - 1] !== cell) pairs.add(labels[i - 1] * cells + cell);
        if (y && labels[i - width] !== cell) pairs.add(labels[i - width] * cells + cell);
        if (z && labels[i - width * height] !== cell) pairs.add(labels[i - width * height] * cells + cell);
      }
    }
  }
  const neighbours = Array.from(pairs, (pair) => [Math.floor(pair / cells), pair % cells]);
  return { areas, boxes, neighbours };
}

/** The region of a cell.
    @param {Klass} klass
    @param {number} cell */
const regionOf = ({ parents, pieces }, cell) => (cell < parents.length ? cell : pieces[cell - parents.length]);

/** For each region the nearest one around it that is marked, itself included, or -1.
    @param {Klass} klass
    @param {(region: number) => boolean} isMarked */
function nearest({ parents }, isMarked) {
  const found = new Int32Array(parents.length);
  // Parents have smaller numbers than their parts.
  for (let region = 0; region < parents.length; region++) {
    found[region] = isMarked(region) ? region : parents[region] === -1 ? -1 : found[parents[region]];
  }
  return found;
}

/** The leaves of a class: those of the run, or those at a higher tolerance.
    @param {Klass} klass
    @param {number | null} tolerance */
function leavesAt({ leaves, limits }, tolerance) {
  if (tolerance === null || limits === null) return leaves;
  const level = Math.max(tolerance, limits.run);
  return limits.most.flatMap((most, region) => (limits.least[region] <= level && level < most ? [region] : []));
}

/** The box around some cells on the grid.
    @param {Klass} klass
    @param {number[]} cells
    @returns {Box} */
function around({ boxes }, cells) {
  const box = [Infinity, Infinity, Infinity, 0, 0, 0];
  for (const cell of cells) {
    for (let i = 0; i < 3; i++) {
      box[i] = Math.min(box[i], boxes[6 * cell + i]);
      box[3 + i] = Math.max(box[3 + i], boxes[6 * cell + 3 + i]);
    }
  }
  return box;
}

/** Group the cells of leaves that touch; a free form is one object, also in several pieces.
    @param {Klass} klass
    @param {Int32Array} leafOf the leaf of each cell, or -1
    @returns {number[][]} */
function groupsOf(klass, leafOf) {
  const group = Int32Array.from(leafOf, (_, cell) => cell);
  /** @type {(cell: number) => number} */
  const first = (cell) => {
    while (group[cell] !== cell) cell = group[cell] = group[group[cell]];
    return cell;
  };
  for (const [a, b] of klass.neighbours) if (leafOf[a] !== -1 && leafOf[b] !== -1) group[first(a)] = first(b);
  /** @type {Map<number, number>} */
  const known = new Map();
  leafOf.forEach((leaf, cell) => {
    if (!klass.free.has(leaf) || !klass.areas[cell]) return;
    const other = known.get(leaf);
    if (other === undefined) known.set(leaf, cell);
    else group[first(cell)] = first(other);
  });
  /** @type {Map<number, number[]>} */
  const members = new Map();
  leafOf.forEach((leaf, cell) => {
    if (leaf === -1 || !klass.areas[cell]) return;
    const found = members.get(first(cell));
    if (found) found.push(cell);
    else members.set(first(cell), [cell]);
  });
  return [...members.values()];
}

/** The finding of some cells: `Explanation.boxes`; null if it lies beside the original image.
    @param {View} view
    @param {Klass} klass
    @param {number[]} cells
    @param {Int32Array} leafOf
    @returns {Finding | null} */
function findingOf(view, klass, cells, leafOf) {
  const box = around(klass, cells);
  const at = boxInOriginal(view, klass.grid, box);
  if (at === null) return null;
  const leaves = [...new Set(cells.map((cell) => leafOf[cell]))];
  const explained = leaves.reduce((sum, leaf) => sum + (klass.shares[leaf] ?? NaN), 0);
  const strongest = leaves.reduce((most, leaf) => Math.max(most, klass.strengths[leaf] ?? NaN), -Infinity);
  const total = klass.score === null || klass.baseline === null ? 0 : klass.score - klass.baseline;
  const area = cells.reduce((sum, cell) => sum + klass.areas[cell], 0);
  return {
    cells, box, at, area, key: `${box.join(",")};${area}`,
    score: klass.adds ? explained : strongest, part: total > 0 ? explained / total : null,
  };
}

/** Findings, covered area and overlap with the truth of a class at a tolerance.
    @param {View} view
    @param {Klass} klass
    @param {number | null} tolerance
    @returns {Result} */
function resultAt(view, klass, tolerance) {
  const leaves = new Set(leavesAt(klass, tolerance));
  const near = nearest(klass, (region) => leaves.has(region));
  const leafOf = Int32Array.from(klass.areas, (_, cell) => near[regionOf(klass, cell)]);
  // A run without a tolerance keeps its findings as they are: weak ones are left out whole.
  const least = klass.limits === null ? tolerance ?? -Infinity : -Infinity;
  const found = groupsOf(klass, leafOf).flatMap((cells) => findingOf(view, klass, cells, leafOf) ?? []);
  /** @type {(a: Box, b: Box) => number} */
  const before = (a, b) => a.map((start, i) => start - b[i]).find((gap) => gap !== 0) ?? 0;
  const findings = found.filter(({ score }) => !(score <= least)).sort((a, b) => b.score - a.score || before(a.at, b.at));
  const numberOf = new Int32Array(leafOf.length).fill(-1);
  findings.forEach(({ cells }, i) => cells.forEach((cell) => { numberOf[cell] = i; }));
  if (findings.length < found.length) leafOf.forEach((_, cell) => { if (numberOf[cell] === -1) leafOf[cell] = -1; });
  const share = klass.areas.reduce((sum, area, cell) => sum + (leafOf[cell] === -1 ? 0 : area), 0) / product(klass.grid);
  return { leaves, leafOf, findings, numberOf, share, overlap: overlapOf(view, klass, leafOf) };
}

/** The area that leaves and the truth share, divided by that of both; null without any object.
    @param {View} view
    @param {Klass} klass
    @param {Int32Array} leafOf */
function overlapOf({ truth }, { labels }, leafOf) {
  if (truth === null) return null;
  let [both, either, there] = [0, 0, 0];
  for (let i = 0; i < labels.length; i++) {
    const isFound = leafOf[labels[i]] !== -1;
    if (truth.labels[i]) there++;
    if (truth.labels[i] && isFound) both++;
    if (truth.labels[i] || isFound) either++;
  }
  return there ? both / either : null;
}

/** The region to describe for a cell: the leaf that contains it, or the largest dropped region.
    @param {Klass} klass
    @param {Result} result
    @param {number} cell */
function regionAt(klass, result, cell) {
  if (result.leafOf[cell] !== -1) return result.leafOf[cell];
  const holds = new Set();
  for (const leaf of result.leaves) for (let at = leaf; at !== -1; at = klass.parents[at]) holds.add(at);
  let region = regionOf(klass, cell);
  while (klass.parents[region] > 0 && !holds.has(klass.parents[region])) region = klass.parents[region];
  return region;
}

/** The cells of a region.
    @param {Klass} klass
    @param {number} region
    @returns {number[]} */
function cellsOf(klass, region) {
  const near = nearest(klass, (one) => one === region);
  return Array.from(klass.areas, (_, cell) => cell).filter((cell) => klass.areas[cell] && near[regionOf(klass, cell)] === region);
}
