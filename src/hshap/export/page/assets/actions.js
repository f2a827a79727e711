/* The actions of a user, the panels, and opening an image. */

function ask(key, value) {
  state.asked = { ...state.asked, [key]: value };
  state.said = null;
  recompute();
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
    : `Areas of ${placeOf(tree, pathTo(tree, region))}, confidence ${few(tree.weight[region])}`;
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
    state.said = `This area was not divided further; confidence ${few(tree.weight[part])}`;
  } else focusOn(part);
}

function goTo(i) {
  const { findings } = results[state.current];
  if (!findings.length) return;
  state.finding = (i + findings.length) % findings.length;
  state.focus = null;
  const finding = findings[state.finding];
  const best = finding.cells.map((cell) => results[state.current].leafOf[cell])
    .reduce((a, b) => (treeOf(state.current).weight[b] > treeOf(state.current).weight[a] ? b : a));
  state.hover = best;
  shot.fit(finding.box, 3);
  redraw({ images: true, words: true });
  state.said = `Finding ${state.finding + 1} of ${findings.length}, confidence ${few(finding.score)}, at x ${finding.box[1]}, y ${finding.box[0]}`;
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
        const part = state.focus === null ? regionAt(tree, results[klass], cell)
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
    make("p", { className: "small", textContent:
      `Score of the model: ${few(one.score)} on this image, ${few(one.baseline)} on the baseline.` }))));
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
  recompute();
  if (number === null) return write();
  byId("region").replaceChildren(make("p", { className: "small", textContent: "Point at the image, or choose a finding below." }));
  byId("panels").setAttribute("aria-busy", "true");
  const [cells, image] = await Promise.all([loadCells(number, view()), loadImage(number)]);
  if (state.number !== number) return undefined; // another image was opened meanwhile
  byId("panels").removeAttribute("aria-busy");
  loaded = { cells, pyramid: makePyramid(image), key: null, seen: null };
  state.shown = view().classes.map((_, klass) => klass).slice(0, MOST_SHOWN);
  shot = makeCamera();
  buildClasses();
  buildPanels();
  write();
  return undefined;
}
