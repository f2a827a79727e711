/* The sidebar: sliders, switches, the region under the pointer, and the list of findings. */

const MOST_ROWS = 100;
const LEVELS = 1000;
const LAYERS = {
  heat: "Heat map", leaves: "Outlines", boxes: "Boxes", truth: "Truth", visited: "Checked areas",
};
const LAYER_KEYS = { h: "heat", l: "leaves", b: "boxes", t: "truth", v: "visited" };

/** The sliders that apply to the trees of a page, each with its own scale. */
function slidersFor(trees) {
  const out = [];
  const searches = (by) => trees.filter((tree) => tree.search && tree.search.by === by);
  const least = (some) => Math.min(...some.map((tree) => tree.search.least));
  let some = searches("tolerance");
  if (some.length) {
    const low = least(some);
    const high = some.flatMap((tree) => Array.from(tree.weight))
      .reduce((most, phi) => Math.max(most, phi), low);
    out.push({ key: "tolerance", label: "Least confidence", python: "tolerance", ...curve(low, high, 2, 3) });
  }
  some = searches("percentile");
  if (some.length) {
    out.push({ key: "percentile", label: "Least percentile", python: "percentile", ...curve(least(some), 100, 1, 4) });
  }
  for (const [key, label, python] of [
    ["side", "Smallest side (pixels)", "min_size"], ["area", "Smallest area (pixels)", "min_area"],
  ]) {
    some = trees.filter((tree) => tree.search && tree.measure === key);
    if (!some.length) continue;
    const sizes = some.flatMap((tree) =>
      tree.games.map((game) => (key === "side" ? tree.sides : tree.sizes)[game.region])
        .filter((size) => size >= tree.finest));
    const low = Math.min(...some.map((tree) => tree.finest));
    out.push({ key, label, python, low, ...steps([...new Set(sizes)].sort((a, b) => a - b)) });
  }
  return out;
}

/** A scale along a power; its values have few digits, so that they can be copied. */
function curve(low, high, power, digits) {
  const width = high - low || 1;
  return {
    low, most: LEVELS, step: "any",
    at: (place) => Math.max(low, Number((low + width * (place / LEVELS) ** power).toPrecision(digits))),
    place: (value) => Math.round(LEVELS * Math.min(Math.max((value - low) / width, 0), 1) ** (1 / power)),
  };
}

/** A scale of the sizes at which the findings change. */
function steps(values) {
  return {
    most: values.length, step: 1,
    at: (place) => values[place - 1],
    place: (value) => values.filter((other) => other <= value).length,
  };
}

/** Build the sliders; a change calls `changed(key, value)`, with null for the run's own limit. */
function buildSliders(host, sliders, changed) {
  for (const slider of sliders) {
    const id = `slider-${slider.key}`;
    slider.range = make("input", { type: "range", id, min: 0, max: slider.most, step: 1, value: 0 });
    slider.box = make("input", {
      type: "number", id: `${id}-value`, min: slider.low, step: slider.step,
      placeholder: "as run", "aria-label": `${slider.label}, as a number`,
    });
    slider.range.addEventListener("input", () => {
      const place = Number(slider.range.value);
      changed(slider.key, place === 0 ? null : slider.at(place));
    });
    slider.box.addEventListener("input", () => { slider.typing = true; });
    slider.box.addEventListener("change", () => {
      slider.typing = false;
      const value = Number(slider.box.value);
      const given = slider.box.value !== "" && Number.isFinite(value);
      const whole = slider.step === 1 ? Math.round(value) : value;
      changed(slider.key, given ? Math.max(slider.low, whole) : null);
    });
    host.append(make("div", { className: "slider" },
      make("label", { for: id, textContent: slider.label }), slider.box, slider.range));
  }
}

/** Make sliders show the requested limits. */
function showAsked(sliders, asked) {
  for (const { key, range, box, place, typing } of sliders) {
    range.value = asked[key] === null ? 0 : place(asked[key]);
    if (!typing) box.value = asked[key] === null ? "" : asked[key]; // leave a number alone while it is typed
    range.setAttribute("aria-valuetext", asked[key] === null ? "as in the run" : String(asked[key]));
  }
}

/** The call in Python with the same result. */
function asPython(sliders, tree, asked) {
  const { level, size } = limitsFor(tree, asked);
  const given = sliders.flatMap(({ key, python }) => {
    const value = key === tree.measure ? size : tree.search && key === tree.search.by ? level : null;
    return value === null ? [] : [`${python}=${value}`];
  });
  return given.length ? `explanation.at(${given.join(", ")})` : "explanation";
}

const term = (name, value) => [make("dt", { textContent: name }), make("dd", { textContent: value })];

/** A region in words: its confidence, its place, its own areas, and the game that it plays in. */
function describeRegion(view, tree, result, region) {
  const isLeaf = result.leaves.includes(region);
  const box = around(view, cellsOf(tree, region));
  const path = pathTo(tree, region);
  const played = tree.parent[region] === -1 ? null : tree.gameOf[tree.parent[region]];
  const own = tree.gameOf[region];
  const split = own !== null && isSplit(tree, region, () => false);
  const list = make("dl", {});
  list.append(
    ...term("Confidence", few(tree.weight[region]) +
      (tree.error[region] ? ` ± ${few(tree.error[region])}` : "")),
    ...term("State", isLeaf ? "finding" : region === tree.root ? "the whole image"
      : result.holds[region] ? "contains findings" : "checked, no finding"),
    ...term("Where", `x ${box[1]} to ${box[3]}, y ${box[0]} to ${box[2]}`),
    ...term("Pixels", String(tree.sizes[region])),
    ...term("Place", placeOf(tree, path)),
  );
  if (split) {
    list.append(...term("Divided", `into ${count(own.parts.length, "area")}: together they add ${few(own.total)}, ` +
      `the best one alone ${few(Math.max(...own.alone))}`));
  }
  const out = [list];
  if (played !== null) out.push(gameTable(played, played.parts.indexOf(region)));
  return out;
}

function placeOf(tree, path) {
  const steps = path.slice(1).map((region, i) => {
    const { parts } = tree.gameOf[path[i]];
    return `${parts.indexOf(region) + 1}/${parts.length}`;
  });
  return steps.length ? `level ${steps.length}: image › ${steps.join(" › ")}` : "the whole image";
}

/** The values of a game: the model's score for every choice of shown areas. */
function gameTable(game, player) {
  if (game.values === null) {
    return make("p", { className: "small", textContent:
      `One of ${game.parts.length} areas. Alone it adds ${few(game.alone[player])} to the score; all together add ${few(game.total)}.` });
  }
  const players = game.parts.length;
  const low = Math.min(...game.values);
  const width = Math.max(...game.values) - low || 1;
  const rows = game.values.map((value, coalition) => {
    const shown = Array.from({ length: players }, (_, i) => (coalition >> i) & 1);
    const words = shown.flatMap((on, i) => (on ? [i + 1] : [])).join(", ") || "none";
    const bar = make("span", { className: "bar" });
    bar.style.width = `${(100 * (value - low)) / width}%`;
    return make("tr", { className: shown[player] ? "with" : "" },
      make("td", { "aria-label": `areas shown: ${words}` }, shown.map((on) => (on ? "●" : "○")).join("")),
      make("td", { textContent: few(value) }),
      make("td", { "aria-hidden": "true" }, bar));
  });
  return make("table", { className: "game" },
    make("caption", { textContent: `Score of the model with some areas shown; this is area ${player + 1} of ${players}` }),
    make("thead", {}, make("tr", {},
      ...["Shown", "Score", ""].map((text) => make("th", { scope: "col", textContent: text })))),
    make("tbody", {}, ...rows));
}

/** The findings as a table, each with a button that shows it. */
function listFindings(findings, isCurrent, go) {
  if (!findings.length) return [make("p", { className: "small", textContent: "No finding at these limits." })];
  const rows = findings.slice(0, MOST_ROWS).map((finding, i) => {
    const [top, left, bottom, right] = finding.box;
    const button = make("button", {
      type: "button", textContent: String(i + 1), className: isCurrent(i) ? "current" : "",
      "aria-label": `Finding ${i + 1}, confidence ${few(finding.score)}, at x ${left}, y ${top}`,
    });
    button.addEventListener("click", () => go(i));
    return make("tr", {}, make("td", {}, button),
      ...[few(finding.score), left, top, `${right - left} × ${bottom - top}`]
        .map((text) => make("td", { textContent: String(text) })));
  });
  const head = ["", "Confidence", "x", "y", "Size"].map((text) => make("th", { scope: "col", textContent: text }));
  const out = [make("table", { className: "list" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))];
  if (findings.length > MOST_ROWS) {
    out.push(make("p", { className: "small", textContent: `and ${findings.length - MOST_ROWS} more; the JSON file has all of them` }));
  }
  return out;
}
