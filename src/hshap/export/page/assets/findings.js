/* The findings at other limits: the rule of `Explanation.at`, over the games in the page.

   Follows hshap/explanation/reading.py and hshap/games/search step by step; tests compare the two.
   Pure functions on numbers: nothing here draws. A limit of null is the run's own. */

/** A class of a view, with the game, parent and coefficient of each region. */
function makeTree(table) {
  const regions = table.sizes.length;
  const root = table.games[0].region;
  const gameOf = new Array(regions).fill(null);
  const parent = new Int32Array(regions).fill(-1);
  const weight = new Float64Array(regions);
  const error = new Float64Array(regions);
  weight[root] = table.games[0].total;
  for (const game of table.games) {
    gameOf[game.region] = game;
    game.parts.forEach((part, i) => {
      if (part !== game.region) parent[part] = game.region;
      weight[part] = game.phi[i];
      error[part] = game.errors ? (game.errors[i] ?? NaN) : 0;
    });
  }
  return { ...table, root, gameOf, parent, weight, error };
}

/** The limits in use for a tree: the requested ones, but never finer than those of the run. */
function limitsFor(tree, asked) {
  const by = tree.search ? tree.search.by : null;
  const wanted = by === null ? null : asked[by];
  const size = asked[tree.measure];
  return {
    level: wanted === null || wanted === undefined ? null : Math.max(wanted, tree.search.least),
    size: size === null || size === undefined || size < tree.finest ? null : size,
  };
}

/** The leaves of a tree, by number, in no particular order. */
function leavesAt(tree, asked) {
  const { level, size } = limitsFor(tree, asked);
  if (tree.search === null || (level === null && size === null)) return tree.leaves.slice();
  const measured = tree.measure === "side" ? tree.sides : tree.sizes;
  const isSmall = (region) => size !== null && measured[region] <= size;
  const limit = level === null ? tree.search.least : level;
  return tree.search.by === "tolerance"
    ? aboveTolerance(tree, limit, isSmall)
    : abovePercentile(tree, limit, isSmall);
}

/** A region's game; a region that is small enough is the only player of its game. */
function gameAt(tree, region, isSmall) {
  const game = tree.gameOf[region];
  if (!isSmall(region)) return game;
  const { total } = game;
  return { region, parts: [region], phi: [total], total, alone: [total], ends: false };
}

function isSplit(tree, region, isSmall) {
  const game = tree.gameOf[region];
  return game !== null && !isSmall(region) && !(game.parts.length === 1 && game.parts[0] === region);
}

/** A region's coefficient; for the root, the score that it adds to the baseline. */
const ownOf = (tree, game) => (game.region === tree.root ? game.total : tree.weight[game.region]);

function aboveTolerance(tree, tolerance, isSmall) {
  const leaves = [];
  const waiting = [tree.root];
  while (waiting.length) {
    const game = gameAt(tree, waiting.pop(), isSmall);
    const matters = ownOf(tree, game) > tolerance;
    if (game.ends && matters) {
      leaves.push(game.region);
      continue;
    }
    const relevant = game.parts.filter((_, i) => game.phi[i] > tolerance);
    for (const part of relevant) (isSplit(tree, part, isSmall) ? waiting : leaves).push(part);
    if (tree.search.keepWhole && !relevant.length && matters) leaves.push(game.region);
  }
  return leaves;
}

function abovePercentile(tree, percentile, isSmall) {
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
      if (tree.search.keepWhole && matters && !game.phi.some((phi) => phi > 0)) {
        leaves.push(game.region);
      }
    }
  }
  return leaves;
}

/** numpy.percentile, to the last bit. */
function percentileOf(numbers, percentile) {
  const sorted = Float64Array.from(numbers).sort();
  const place = (sorted.length - 1) * (percentile / 100);
  if (place >= sorted.length - 1) return sorted[sorted.length - 1];
  const before = Math.floor(place);
  const t = place - before;
  const [a, b] = [sorted[before], sorted[before + 1]];
  return t >= 0.5 ? b - (b - a) * (1 - t) : a + (b - a) * t;
}

/** For each cell of the view, the leaf that contains it, or -1. */
function leafOfCells(tree, leaves) {
  const isLeaf = new Uint8Array(tree.sizes.length);
  for (const leaf of leaves) isLeaf[leaf] = 1;
  return Int32Array.from(tree.cells, (region) => {
    while (region !== -1 && !isLeaf[region]) region = tree.parent[region];
    return region;
  });
}

/** For each region, whether it contains or is a leaf. */
function holdersOf(tree, leaves) {
  const holds = new Uint8Array(tree.sizes.length);
  for (const leaf of leaves) {
    for (let at = leaf; at !== -1 && !holds[at]; at = tree.parent[at]) holds[at] = 1;
  }
  return holds;
}

/** The region to describe for a cell: the leaf that contains it, or the largest dropped region. */
function regionAt(tree, result, cell) {
  if (result.leafOf[cell] !== -1) return result.leafOf[cell];
  const path = pathTo(tree, tree.cells[cell]);
  return path.slice(1).find((region) => !result.holds[region]) ?? path[path.length - 1];
}

/** For each cell, the part of a region that contains it, or -1 outside. */
function partOfCells(tree, region) {
  return Int32Array.from(tree.cells, (end) => {
    while (end !== -1 && tree.parent[end] !== region) end = tree.parent[end];
    return end;
  });
}

/** The regions from the whole image down to this one. */
function pathTo(tree, region) {
  const path = [];
  for (let at = region; at !== -1; at = tree.parent[at]) path.unshift(at);
  return path;
}

/** The box around some cells: top, left, bottom, right, the last two one past the end. */
function around(view, cells) {
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const cell of cells) {
    const at = 4 * cell;
    box[0] = Math.min(box[0], view.boxes[at]);
    box[1] = Math.min(box[1], view.boxes[at + 1]);
    box[2] = Math.max(box[2], view.boxes[at + 2]);
    box[3] = Math.max(box[3], view.boxes[at + 3]);
  }
  return box;
}

/** Boxes around leaves that touch, the highest score first: `Explanation.boxes(merge=True)`. */
function findingsOf(view, tree, leafOf) {
  const group = Int32Array.from(leafOf, (_, cell) => cell);
  const top = (cell) => {
    while (group[cell] !== cell) cell = group[cell] = group[group[cell]];
    return cell;
  };
  for (let i = 0; i < view.neighbours.length; i += 2) {
    const [a, b] = [view.neighbours[i], view.neighbours[i + 1]];
    if (leafOf[a] !== -1 && leafOf[b] !== -1) group[top(a)] = top(b);
  }
  const firstOf = new Map();
  leafOf.forEach((leaf, cell) => {
    // A free form is one object, also in several pieces.
    if (leaf === -1 || tree.sides[leaf]) return;
    if (firstOf.has(leaf)) group[top(cell)] = top(firstOf.get(leaf));
    else firstOf.set(leaf, cell);
  });
  const members = new Map();
  leafOf.forEach((leaf, cell) => {
    if (leaf === -1) return;
    const key = top(cell);
    if (!members.has(key)) members.set(key, []);
    members.get(key).push(cell);
  });
  const found = Array.from(members.values(), (cells) => ({
    cells,
    box: around(view, cells),
    score: cells.reduce((most, cell) => Math.max(most, tree.weight[leafOf[cell]]), -Infinity),
    area: cells.reduce((sum, cell) => sum + view.areas[cell], 0),
  }));
  return found.sort((a, b) => b.score - a.score || a.box[0] - b.box[0] || a.box[1] - b.box[1]);
}

/** Leaves, findings, covered area and overlap of a class at some limits. */
function resultAt(view, tree, asked) {
  const leaves = leavesAt(tree, asked);
  const leafOf = leafOfCells(tree, leaves);
  const findings = findingsOf(view, tree, leafOf);
  let [found, both, either] = [0, 0, 0];
  leafOf.forEach((leaf, cell) => {
    const area = view.areas[cell];
    const inTruth = view.truth !== null && view.truth[cell] === 1;
    if (leaf !== -1) found += area;
    if (leaf !== -1 && inTruth) both += area;
    if (leaf !== -1 || inTruth) either += area;
  });
  const largest = leaves.reduce((most, leaf) => Math.max(most, tree.weight[leaf]), 0);
  return {
    leaves, leafOf, findings, largest,
    holds: holdersOf(tree, leaves),
    share: found / (view.height * view.width),
    overlap: view.truth === null ? null : either ? both / either : 1,
  };
}
