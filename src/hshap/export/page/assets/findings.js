/* The findings at other limits: the rule of `Explanation.at`, over the games in the page.

   Follows hshap/explanation/replay.py and hshap/games/search step by step; tests compare the two.
   Pure functions on numbers: nothing here draws. A limit of null is the run's own. */

import { boxInOriginal } from "./place.js";

/** A class of a view, with the game, parent and coefficient of each region, and strengths of leaves.
    @param {ClassTable} table
    @returns {Tree} */
export function makeTree(table) {
  const [regions, root] = [table.sizes.length, table.games[0].region];
  const gameOf = /** @type {(Game | null)[]} */ (new Array(regions).fill(null));
  const parent = new Int32Array(regions).fill(-1);
  const [weight, error] = [new Float64Array(regions), new Float64Array(regions)];
  weight[root] = table.games[0].total;
  for (const game of table.games) {
    gameOf[game.region] = game;
    game.parts.forEach((part, i) => {
      if (part !== game.region) parent[part] = game.region;
      weight[part] = game.phi[i];
      error[part] = game.errors ? (game.errors[i] ?? NaN) : 0;
    });
  }
  const strength = weight.slice();
  table.shares?.forEach((share, i) => { strength[table.leaves[i]] = share ?? NaN; });
  return { ...table, root, gameOf, parent, weight, strength, error };
}

/** The limits in use for a tree: the requested ones, but never finer than those of the run.
    @param {Tree} tree
    @param {Asked} asked */
export function limitsFor(tree, asked) {
  const wanted = tree.search ? asked[tree.search.by] : null;
  const size = asked[tree.measure];
  return {
    level: wanted === null || !tree.search ? null : Math.max(wanted, tree.search.least),
    size: size === null || size < tree.finest ? null : size,
  };
}

/** The leaves of a tree, by number, in no particular order.
    @param {Tree} tree
    @param {Asked} asked */
function leavesAt(tree, asked) {
  const { level, size } = limitsFor(tree, asked);
  if (tree.search === null || (level === null && size === null)) return tree.leaves.slice();
  const measured = tree.measure === "side" ? tree.sides : tree.sizes;
  /** @type {(region: number) => boolean} */
  const isSmall = (region) => size !== null && measured[region] <= size;
  const limit = level === null ? tree.search.least : level;
  return tree.search.by === "tolerance"
    ? aboveTolerance(tree, limit, isSmall)
    : abovePercentile(tree, limit, isSmall);
}

/** A region's game; a region that is small enough is the only player of its game.
    @param {Tree} tree
    @param {number} region
    @param {(region: number) => boolean} isSmall */
function gameAt(tree, region, isSmall) {
  const game = /** @type {Game} */ (tree.gameOf[region]);
  if (!isSmall(region)) return game;
  const { total } = game;
  const worth = game.worth && [Math.max(...game.worth)];
  return { region, parts: [region], phi: [total], total, alone: [total], ends: false, worth };
}

/** Whether a region was divided.
    @param {Tree} tree
    @param {number} region
    @param {(region: number) => boolean} isSmall */
export function isSplit(tree, region, isSmall) {
  const game = tree.gameOf[region];
  return game !== null && !isSmall(region) && !(game.parts.length === 1 && game.parts[0] === region);
}

/** A region's coefficient; for the root, the score that it adds to the baseline.
    @param {Tree} tree
    @param {{ region: number, total: number }} game */
const ownOf = (tree, game) => (game.region === tree.root ? game.total : tree.weight[game.region]);

/** @param {Tree} tree
    @param {number} tolerance
    @param {(region: number) => boolean} isSmall */
function aboveTolerance(tree, tolerance, isSmall) {
  /** @type {number[]} */
  const leaves = [];
  const waiting = [tree.root];
  while (waiting.length) {
    const game = gameAt(tree, /** @type {number} */ (waiting.pop()), isSmall);
    const matters = ownOf(tree, game) > tolerance;
    if (game.ends && matters) {
      leaves.push(game.region);
      continue;
    }
    const worth = game.worth ?? game.phi;
    const relevant = game.parts.filter((_, i) => worth[i] > tolerance);
    for (const part of relevant) (isSplit(tree, part, isSmall) ? waiting : leaves).push(part);
    if (tree.search?.keepWhole && !relevant.length && matters) leaves.push(game.region);
  }
  return leaves;
}

/** @param {Tree} tree
    @param {number} percentile
    @param {(region: number) => boolean} isSmall */
function abovePercentile(tree, percentile, isSmall) {
  /** @type {number[]} */
  const leaves = [];
  let level = [tree.root];
  while (level.length) {
    const games = level.map((region) => gameAt(tree, region, isSmall));
    const cut = percentileOf(games.flatMap((game) => game.phi), percentile);
    level = [];
    for (const game of games) {
      const matters = ownOf(tree, game) > 0;
      if (game.ends && matters) {
        leaves.push(game.region);
        continue;
      }
      game.parts.forEach((part, i) => {
        if (game.phi[i] >= cut && game.phi[i] > 0) {
          (isSplit(tree, part, isSmall) ? level : leaves).push(part);
        }
      });
      if (tree.search?.keepWhole && matters && !game.phi.some((phi) => phi > 0)) {
        leaves.push(game.region);
      }
    }
  }
  return leaves;
}

/** numpy.percentile, to the last bit.
    @param {number[]} numbers
    @param {number} percentile */
function percentileOf(numbers, percentile) {
  const sorted = Float64Array.from(numbers).sort();
  const place = (sorted.length - 1) * (percentile / 100);
  if (place >= sorted.length - 1) return sorted[sorted.length - 1];
  const before = Math.floor(place);
  const t = place - before;
  const [a, b] = [sorted[before], sorted[before + 1]];
  return t >= 0.5 ? b - (b - a) * (1 - t) : a + (b - a) * t;
}

/** For each cell of the view, the leaf that contains it, or -1.
    @param {Tree} tree
    @param {number[]} leaves */
function leafOfCells(tree, leaves) {
  const isLeaf = new Uint8Array(tree.sizes.length);
  for (const leaf of leaves) isLeaf[leaf] = 1;
  return Int32Array.from(tree.cells, (region) => {
    while (region !== -1 && !isLeaf[region]) region = tree.parent[region];
    return region;
  });
}

/** For each region, whether it contains or is a leaf.
    @param {Tree} tree
    @param {number[]} leaves */
function holdersOf(tree, leaves) {
  const holds = new Uint8Array(tree.sizes.length);
  for (const leaf of leaves) {
    for (let at = leaf; at !== -1 && !holds[at]; at = tree.parent[at]) holds[at] = 1;
  }
  return holds;
}

/** The region to describe for a cell: the leaf that contains it, or the largest dropped region.
    @param {Tree} tree
    @param {Result} result
    @param {number} cell */
export function regionAt(tree, result, cell) {
  if (result.leafOf[cell] !== -1) return result.leafOf[cell];
  const path = pathTo(tree, tree.cells[cell]);
  return path.slice(1).find((region) => !result.holds[region]) ?? path[path.length - 1];
}

/** The part of a region that contains a cell, or -1 outside.
    @param {Tree} tree
    @param {number} region
    @param {number} cell */
export function partAt(tree, region, cell) {
  let end = tree.cells[cell];
  while (end !== -1 && tree.parent[end] !== region) end = tree.parent[end];
  return end;
}

/** The regions from the whole image down to this one.
    @param {Tree} tree
    @param {number} region */
export function pathTo(tree, region) {
  const path = [];
  for (let at = region; at !== -1; at = tree.parent[at]) path.unshift(at);
  return path;
}

/** The cells that a region is made of.
    @param {Tree} tree
    @param {number} region */
export function cellsOf(tree, region) {
  /** @type {number[]} */
  const found = [];
  tree.cells.forEach((end, cell) => {
    while (end !== -1 && end !== region) end = tree.parent[end];
    if (end !== -1) found.push(cell);
  });
  return found;
}

/** The box around some cells: the first place on each axis, then one past the last.
    @param {ViewTable} view
    @param {number[]} cells
    @returns {Box} */
export function around(view, cells) {
  const axes = view.grid.length;
  const box = [...view.grid.map(() => Infinity), ...view.grid.map(() => -Infinity)];
  for (const cell of cells) {
    for (let i = 0, at = 2 * axes * cell; i < axes; i++, at++) {
      box[i] = Math.min(box[i], view.boxes[at]);
      box[axes + i] = Math.max(box[axes + i], view.boxes[at + axes]);
    }
  }
  return box;
}

/** The findings, leaves that touch, the highest score first: `Explanation.boxes(merge=True)`.
    @param {ViewTable} view
    @param {Tree} tree
    @param {Int32Array} leafOf
    @returns {Finding[]} */
function findingsOf(view, tree, leafOf) {
  const group = Int32Array.from(leafOf, (_, cell) => cell);
  /** @type {(cell: number) => number} */
  const top = (cell) => {
    while (group[cell] !== cell) cell = group[cell] = group[group[cell]];
    return cell;
  };
  for (let i = 0; i < view.neighbours.length; i += 2) {
    const [a, b] = [view.neighbours[i], view.neighbours[i + 1]];
    if (leafOf[a] !== -1 && leafOf[b] !== -1) group[top(a)] = top(b);
  }
  /** @type {Map<number, number>} */
  const firstOf = new Map();
  leafOf.forEach((leaf, cell) => {
    // A free form is one object, also in several pieces.
    if (leaf === -1 || tree.sides[leaf]) return;
    const first = firstOf.get(leaf);
    if (first === undefined) firstOf.set(leaf, cell);
    else group[top(cell)] = top(first);
  });
  /** @type {Map<number, number[]>} */
  const members = new Map();
  leafOf.forEach((leaf, cell) => {
    if (leaf === -1) return;
    const known = members.get(top(cell));
    if (known) known.push(cell);
    else members.set(top(cell), [cell]);
  });
  const found = Array.from(members.values()).flatMap((cells) => {
    const box = around(view, cells);
    const at = boxInOriginal(view, box);
    if (at === null) return [];
    const area = cells.reduce((sum, cell) => sum + view.areas[cell], 0);
    const strengths = Array.from(new Set(cells.map((cell) => leafOf[cell])), (leaf) => tree.strength[leaf]);
    const score = strengths.reduce((a, b) => (tree.shares ? a + b : Math.max(a, b)));
    return [{ cells, box, at, score, area, key: `${box.join(",")};${area}` }];
  });
  /** @type {(a: Box, b: Box) => number} */
  const before = (a, b) => {
    const axis = view.grid.findIndex((_, i) => a[i] !== b[i]);
    return axis === -1 ? 0 : a[axis] - b[axis];
  };
  return found.sort((a, b) => b.score - a.score || before(a.at, b.at));
}

/** Leaves, findings, covered area and overlap of a class at some limits.
    @param {ViewTable} view
    @param {Tree} tree
    @param {Asked} asked
    @returns {Result} */
export function resultAt(view, tree, asked) {
  const leaves = leavesAt(tree, asked);
  const leafOf = leafOfCells(tree, leaves);
  const findings = findingsOf(view, tree, leafOf);
  const findingOf = new Int32Array(leafOf.length).fill(-1);
  findings.forEach(({ cells }, i) => cells.forEach((cell) => { findingOf[cell] = i; }));
  let [found, both, either, there] = [0, 0, 0, 0];
  leafOf.forEach((leaf, cell) => {
    const area = view.areas[cell];
    const inTruth = view.truth !== null && view.truth[cell] === 1;
    if (leaf !== -1) found += area;
    if (inTruth) there += area;
    if (leaf !== -1 && inTruth) both += area;
    if (leaf !== -1 || inTruth) either += area;
  });
  const largest = leaves.reduce((most, leaf) => Math.max(most, tree.strength[leaf]), 0);
  return {
    leaves, leafOf, findings, findingOf, largest,
    holds: holdersOf(tree, leaves),
    share: found / view.grid.reduce((all, side) => all * side, 1),
    overlap: there ? both / either : null, // a clean image has nothing to overlap with
  };
}

/** The area that two results share, relative to the area of both; 1 if both are empty.
    @param {ViewTable} view
    @param {Result} one
    @param {Result} other */
export function agreement(view, one, other) {
  let [both, either] = [0, 0];
  view.areas.forEach((area, cell) => {
    const found = Number(one.leafOf[cell] !== -1) + Number(other.leafOf[cell] !== -1);
    if (found === 2) both += area;
    if (found) either += area;
  });
  return either ? both / either : 1;
}
