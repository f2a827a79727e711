/* The page: its state, and what follows from it. */

const data = JSON.parse(byId("data").textContent);
const views = data.views;
const trees = views.map((view) => view.classes.map((table) => makeTree(table, data.enough)));
const sliders = slidersFor(trees.flat());
const MOST_SHOWN = 4;

const state = {
  number: null, // of the image that is shown; none is the gallery
  asked: { tolerance: null, percentile: null, side: null, area: null },
  layers: { heat: true, leaves: true, boxes: true, truth: true, visited: false },
  opacity: 0.6,
  map: "viridis",
  shown: [], // classes
  current: 0, // the class that was touched last
  focus: null, // region of the current class whose parts are shown
  hover: null, // region of the current class that is looked at
  finding: -1,
  said: null, // what was last done, in words; none: what is found
};
let loaded = null; // the picture of the image that is shown
let panels = [];
let readings = [];
let shot = makeCamera();
const gallery = makeGallery(views, trees, open);

const view = () => views[state.number];
const treeOf = (klass) => trees[state.number][klass];

/* Reading and drawing */

function reread() {
  if (state.number === null) return gallery.update(state.asked);
  readings = trees[state.number].map((tree) => read(view(), tree, state.asked));
  if (state.finding >= readings[state.current].findings.length) state.finding = -1;
  return undefined;
}

function drawImages() {
  for (const panel of panels) drawImage(panel.image.getContext("2d"), loaded.pyramid, view(), shot.camera);
}

/** What the camera sees, kept until it moves: panels are equally large. */
function seenNow() {
  const { width, height } = panels[0].overlay;
  const thick = Math.max(1, Math.round(devicePixelRatio));
  const key = [shot.camera.x, shot.camera.y, shot.camera.scale, width, height, thick].join();
  if (loaded.key !== key) {
    loaded.key = key;
    loaded.seen = seeCells(loaded.cells, view(), shot.camera, width, height, thick);
  }
  return loaded.seen;
}

function drawOverlays() {
  const largest = Math.max(...state.shown.map((klass) => readings[klass].largest), 0);
  const look = { ...state, largest };
  const seen = seenNow();
  panels.forEach((panel, i) => {
    const klass = state.shown[i];
    const isCurrent = klass === state.current;
    const scene = {
      view: view(), tree: treeOf(klass), reading: readings[klass], look, seen,
      focus: isCurrent ? state.focus : null, hover: isCurrent ? state.hover : null,
    };
    paintOverlay(panel, scene, shot.camera);
  });
  drawScale(largest);
}

let queued = null;
function redraw({ images = false, words = false } = {}) {
  if (queued === null) {
    queued = { images: false, words: false };
    requestAnimationFrame(() => {
      const { images: moved, words: changed } = queued;
      queued = null;
      if (state.number === null || loaded === null) return;
      if (moved) drawImages();
      drawOverlays();
      if (changed) write();
    });
  }
  queued.images ||= images;
  queued.words ||= words;
}

function fitPanels() {
  if (!panels.length || loaded === null) return;
  for (const { screen, image, overlay } of panels) {
    const { clientWidth, clientHeight } = screen;
    for (const canvas of [image, overlay]) {
      canvas.width = Math.max(1, Math.round(clientWidth * devicePixelRatio));
      canvas.height = Math.max(1, Math.round(clientHeight * devicePixelRatio));
    }
  }
  shot.resize(panels[0].image.width, panels[0].image.height, view());
  drawImages();
  drawOverlays();
}

/* Words: all that is not a canvas */

function drawScale(largest) {
  const context = byId("bar").getContext("2d");
  for (let i = 0; i < 120; i++) {
    context.fillStyle = `rgb(${colourAt(state.map, i / 119).join(" ")})`;
    context.fillRect(i, 0, 1, 10);
  }
  const text = state.focus === null
    ? `Coefficient, 0 to ${few(largest)}` : "Coefficient of each part, 0 to the largest";
  byId("bar").setAttribute("aria-label", text);
  byId("scale").textContent = text;
}

function summary() {
  return state.shown.map((klass) => {
    const { leaves, findings, share: part } = readings[klass];
    const name = state.shown.length > 1 ? `${view().classes[klass].name}: ` : "";
    return `${name}${count(leaves.length, "leaf", "leaves")} on ${share(part)} of the image, in ${count(findings.length, "finding")}`;
  }).join("; ");
}

function write() {
  showAsked(sliders, state.asked);
  byId("opacity-out").textContent = `${Math.round(100 * state.opacity)} %`;
  if (state.number === null) {
    byId("found").textContent = "";
    byId("python").textContent = asPython(sliders, trees[0][0], state.asked);
    return;
  }
  byId("found").textContent = state.said ?? summary();
  byId("python").textContent = asPython(sliders, treeOf(state.current), state.asked);
  panels.forEach((panel, i) => {
    const reading = readings[state.shown[i]];
    panel.element.classList.toggle("current", panels.length > 1 && state.shown[i] === state.current);
    const overlap = reading.overlap === null ? "" : `, overlap with the truth ${reading.overlap.toFixed(2)}`;
    panel.caption.lastChild.textContent =
      `${count(reading.leaves.length, "leaf", "leaves")}, ${share(reading.share)}${overlap}`;
  });
  byId("findings").replaceChildren(
    ...listFindings(readings[state.current].findings, (i) => i === state.finding, goTo));
  writeTrail();
  writeRegion();
}

function writeRegion() {
  const region = state.hover ?? state.focus;
  if (region === null) return;
  byId("region").replaceChildren(
    ...describeRegion(view(), treeOf(state.current), readings[state.current], region));
}

function writeTrail() {
  const tree = treeOf(state.current);
  const path = state.focus === null ? [tree.root] : pathTo(tree, state.focus);
  const crumbs = path.flatMap((region, i) => {
    const text = i === 0 ? "Image" : `Part ${tree.gameOf[path[i - 1]].parts.indexOf(region) + 1}`;
    const button = make("button", { type: "button", textContent: text });
    if (i === path.length - 1) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => focusOn(i === 0 ? null : region));
    return i === 0 ? [button] : [make("span", { "aria-hidden": "true", textContent: "›" }), button];
  });
  const game = tree.gameOf[state.focus ?? tree.root];
  const parts = game === null ? [] : game.parts.filter((part) => part !== tree.root).map((part, i) => {
    const button = make("button", {
      type: "button", className: "part", textContent: few(tree.weight[part]),
      disabled: tree.gameOf[part] === null,
      "aria-label": `Descend into part ${i + 1} of ${game.parts.length}, coefficient ${few(tree.weight[part])}`,
    });
    button.addEventListener("click", () => focusOn(part));
    button.addEventListener("pointerenter", () => lookAt(part));
    button.addEventListener("focus", () => lookAt(part));
    return button;
  });
  const up = make("button", { type: "button", id: "up", textContent: "Up", disabled: state.focus === null });
  up.addEventListener("click", goUp);
  byId("trail").replaceChildren(up, ...crumbs,
    ...(parts.length ? [make("span", { className: "small", textContent: "parts:" }), ...parts] : []));
}

/* What a user does */

function ask(key, value) {
  state.asked = { ...state.asked, [key]: value };
  state.said = null;
  reread();
  if (state.number === null) write();
  else redraw({ words: true });
}

function lookAt(region) {
  if (region === state.hover) return;
  state.hover = region;
  writeRegion();
  redraw();
}

function focusOn(region) {
  state.focus = region;
  state.hover = null;
  const tree = treeOf(state.current);
  if (region !== null) shot.fit(around(view(), cellsOf(tree, region)), 1.3);
  state.said = region === null ? null
    : `Parts of ${placeOf(tree, pathTo(tree, region))}, coefficient ${few(tree.weight[region])}`;
  redraw({ images: true, words: true });
}

function goUp() {
  if (state.focus === null) return;
  const above = treeOf(state.current).parent[state.focus];
  focusOn(above === treeOf(state.current).root ? null : above);
  if (state.focus === null) shot.fit();
}

function descend(pixel) {
  if (pixel === -1) return;
  const tree = treeOf(state.current);
  const path = pathTo(tree, tree.cells[loaded.cells[pixel]]);
  const at = state.focus === null ? 0 : path.indexOf(state.focus);
  if (at === -1) return goUp(); // a click outside
  const part = path[at + 1];
  if (part === undefined) return;
  if (tree.gameOf[part] === null) {
    state.hover = part;
    redraw({ words: true });
    state.said = `This part was not split further; coefficient ${few(tree.weight[part])}`;
  } else focusOn(part);
}

function goTo(i) {
  const { findings } = readings[state.current];
  if (!findings.length) return;
  state.finding = (i + findings.length) % findings.length;
  state.focus = null;
  const finding = findings[state.finding];
  const best = finding.cells.map((cell) => readings[state.current].leafOf[cell])
    .reduce((a, b) => (treeOf(state.current).weight[b] > treeOf(state.current).weight[a] ? b : a));
  state.hover = best;
  shot.fit(finding.box, 3);
  redraw({ images: true, words: true });
  state.said = `Finding ${state.finding + 1} of ${findings.length}, score ${few(finding.score)}, at x ${finding.box[1]}, y ${finding.box[0]}`;
}

function toggle(layer) {
  state.layers[layer] = !state.layers[layer];
  byId(`layer-${layer}`).checked = state.layers[layer];
  redraw();
}

function onKey(key) {
  if (key === "n" || key === "p") goTo(state.finding + (key === "n" ? 1 : state.finding < 0 ? 0 : -1));
  else if (LAYER_KEYS[key]) toggle(LAYER_KEYS[key]);
  else return false;
  return true;
}

/* Panels and images */

function buildPanels() {
  panels = state.shown.map((klass) => {
    const panel = makePanel(view().classes[klass].name);
    const touch = () => {
      if (state.current === klass) return;
      Object.assign(state, { current: klass, focus: null, hover: null, finding: -1, said: null });
      redraw({ words: true });
    };
    panel.screen.addEventListener("focus", touch);
    listen(panel.screen, shot, {
      moved: () => redraw({ images: true }),
      click: (pixel) => { touch(); descend(pixel); },
      key: onKey,
      hover: (pixel) => {
        if (pixel === -1) return lookAt(null);
        if (state.current !== klass && state.focus === null) touch();
        if (state.current !== klass) return undefined;
        const tree = treeOf(klass);
        const cell = loaded.cells[pixel];
        const part = state.focus === null ? regionAt(tree, readings[klass], cell)
          : partOfCells({ ...tree, cells: [tree.cells[cell]] }, state.focus)[0];
        return lookAt(part === -1 ? null : part);
      },
    });
    return panel;
  });
  byId("panels").replaceChildren(...panels.map((panel) => panel.element));
  byId("panels").dataset.count = String(panels.length);
  fitPanels();
  redraw({ images: true, words: true });
}

function buildClasses() {
  const names = view().classes.map((one) => one.name);
  byId("classes").replaceChildren(...(names.length < 2 ? [] : names.map((name, klass) => {
    const box = make("input", { type: "checkbox", checked: state.shown.includes(klass) });
    box.addEventListener("change", () => {
      const shown = names.flatMap((_, k) => ((k === klass ? box.checked : state.shown.includes(k)) ? [k] : []));
      if (!shown.length) {
        box.checked = true;
        return;
      }
      Object.assign(state, { shown, focus: null, hover: null, said: null });
      if (!shown.includes(state.current)) state.current = shown[0];
      buildPanels();
    });
    return make("label", {}, box, name);
  })));
  byId("about").replaceChildren(...view().classes.map((one) => make("div", {},
    make("strong", { textContent: one.name }),
    make("p", { className: "small", textContent: one.text }),
    make("p", { className: "small", textContent: one.audit }),
    make("p", { className: "small", textContent: `Score ${few(one.score)}, baseline ${few(one.baseline)}.` }))));
}

async function open(number) {
  loaded = null;
  Object.assign(state, { number, focus: null, hover: null, finding: -1, current: 0, said: null });
  document.body.dataset.mode = number === null ? "gallery" : "viewer";
  byId("gallery").hidden = number !== null;
  byId("viewer").hidden = number === null;
  byId("to-gallery").hidden = number === null || views.length < 2;
  for (const id of ["previous", "next"]) byId(id).hidden = number === null || views.length < 2;
  byId("where").textContent = number === null ? count(views.length, "image") : view().name;
  byId("panels").replaceChildren();
  panels = [];
  reread();
  if (number === null) return write();
  byId("region").replaceChildren(make("p", { className: "small", textContent: "Point at the image, or pick a finding below." }));
  byId("panels").setAttribute("aria-busy", "true");
  const [cells, image] = await Promise.all([loadCells(number, view()), loadImage(number)]);
  if (state.number !== number) return undefined; // another was opened meanwhile
  byId("panels").removeAttribute("aria-busy");
  loaded = { cells, pyramid: makePyramid(image), key: null, seen: null };
  state.shown = view().classes.map((_, klass) => klass).slice(0, MOST_SHOWN);
  shot = makeCamera();
  buildClasses();
  buildPanels();
  write();
  return undefined;
}

/* Controls */

byId("title").textContent = data.title;
buildSliders(byId("sliders"), sliders, ask);
byId("reset").addEventListener("click", () => {
  for (const key of Object.keys(state.asked)) state.asked[key] = null;
  state.said = null;
  reread();
  write();
  redraw();
});
const anyTruth = views.some((one) => one.truth !== null);
byId("layers").append(...Object.entries(LAYERS).filter(([key]) => key !== "truth" || anyTruth).map(([key, text]) => {
  const box = make("input", { type: "checkbox", id: `layer-${key}`, checked: state.layers[key] });
  box.addEventListener("change", () => {
    state.layers[key] = box.checked;
    redraw();
  });
  return make("label", {}, box, make("span", { className: `key key-${key}`, "aria-hidden": "true" }), text);
}));
byId("opacity").addEventListener("input", (event) => {
  state.opacity = Number(event.target.value);
  byId("opacity-out").textContent = `${Math.round(100 * state.opacity)} %`;
  redraw();
});
byId("map").append(...Object.keys(MAPS).map((name) => make("option", { value: name, textContent: name })));
byId("map").addEventListener("change", (event) => {
  state.map = event.target.value;
  redraw();
});
byId("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
});
byId("to-gallery").addEventListener("click", () => open(null));
byId("previous").addEventListener("click", () => open((state.number + views.length - 1) % views.length));
byId("next").addEventListener("click", () => open((state.number + 1) % views.length));
for (const id of ["sort", "filter"]) byId(id).addEventListener("change", () => gallery.arrange());
byId("search").addEventListener("input", () => gallery.arrange());
byId("filter-class").addEventListener("change", () => gallery.update(state.asked));
byId("save-png").addEventListener("click", async () => {
  const names = state.shown.map((klass) => `${view().name}: ${view().classes[klass].name}`);
  download(await asPicture(panels, names), fileName(view().name, "-seen.png"));
});
byId("save-json").addEventListener("click", () => {
  const text = JSON.stringify(boxes(), null, 1);
  download(new Blob([text], { type: "application/json" }), fileName(view().name, "-boxes.json"));
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.number !== null) goUp();
});
new ResizeObserver(fitPanels).observe(byId("panels"));

function boxes() {
  return asBoxes(view(), state.shown.map(treeOf), state.shown.map((klass) => readings[klass]), state.asked);
}

/* For scripts and tests: what the page shows, and a step of its sliders.

   leaves(klass)   the leaves of a class: region, coefficient, runs [first, end] of flat pixels
   boxes()         what the JSON export holds
   limits(klass)   the tolerance or percentile (`level`) and the size that apply; null: the run's own
   set(asked)      moves sliders: tolerance, percentile, side, area; returns milliseconds to the
                   last pixel that was drawn
   state()         what is shown
   open(number)    shows an image, or with null the gallery
   ready           a promise, kept once the page is drawn */
const probe = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
window.hshap = Object.freeze({
  leaves: (klass = state.current) => readings[klass].leaves.map((region) => {
    const under = new Set(cellsOf(treeOf(klass), region));
    const runs = [];
    loaded.cells.forEach((cell, pixel) => {
      if (!under.has(cell)) return;
      if (runs.length && runs[runs.length - 1][1] === pixel) runs[runs.length - 1][1]++;
      else runs.push([pixel, pixel + 1]);
    });
    return { region, coefficient: treeOf(klass).weight[region], runs };
  }),
  boxes,
  limits: (klass = state.current) => limitsFor(treeOf(klass), state.asked),
  set: (asked) => {
    const started = performance.now();
    state.asked = { ...state.asked, ...asked };
    reread();
    if (state.number !== null) drawOverlays();
    write();
    // Reading a pixel waits for all that was drawn before.
    for (const { overlay } of panels) probe.drawImage(overlay, 0, 0);
    probe.getImageData(0, 0, 1, 1);
    return performance.now() - started;
  },
  state: () => structuredClone({ ...state, camera: { ...shot.camera } }),
  open,
  ready: open(views.length > 1 ? null : 0),
});
