/* The open image: its panels, its planes and grey values, and drawing them once a frame at most. */

/** Windows for CT in Hounsfield units: black and white. @type {Record<string, [number, number]>} */
const CT_WINDOWS = {
  "Soft tissue": [-160, 240], Lung: [-1350, 150], Bone: [-450, 1050], Brain: [0, 80], Liver: [-45, 105],
};

/** Draw the image of every panel. */
function drawImages() {
  const { view, source, panels, cameras } = now();
  for (const { image, axis } of panels) {
    source.draw(inkOf(image), planeOf(view, axis, state.at), cameras[axis].camera, state.window);
  }
}

/** Paint the findings over the image of every panel. */
function drawOverlays() {
  const { view, panels, cameras } = now();
  const maps = state.shown.flatMap((klass) => mapOf(klass) ?? []);
  const largest = Math.max(...maps.map((map) => map.top), 0);
  const hasNegative = maps.some((map) => map.hasNegative);
  const thick = Math.max(1, Math.round(1.5 * devicePixelRatio));
  for (const panel of panels) {
    const isCurrent = panel.klass === state.current;
    const map = mapOf(panel.klass);
    panel.image.classList.toggle("grey", map !== null);
    paintOverlay(panel, {
      view, klass: klassOf(panel.klass), result: resultOf(panel.klass), look: state, map, top: largest, hasNegative, thick,
      plane: planeOf(view, panel.axis, state.at), camera: cameras[panel.axis].camera,
      width: panel.overlay.width, height: panel.overlay.height,
      hover: isCurrent ? state.hover : null, finding: isCurrent ? state.finding : -1,
    });
  }
  drawLegend(hasNegative ? -1 : 0, largest, hasNegative);
}

/** The legend: colours for values, with numbers.
    @param {number} low -1 or 0
    @param {number} largest
    @param {boolean} hasNegative */
function drawLegend(low, largest, hasNegative) {
  const bar = byId("bar");
  const context = inkOf(bar);
  for (let i = 0; i < bar.width; i++) {
    const value = low + ((1 - low) * i) / (bar.width - 1);
    context.fillStyle = `rgb(${valueColour(state.colours, value, hasNegative).join(" ")})`;
    context.fillRect(i, 0, 1, bar.height);
  }
  const unit = `Score per pixel${state.side === "both" ? "" : `, ${SIDES[state.side].toLowerCase()}`}${largest ? "" : ": nothing"}`;
  byId("legend-low").textContent = few(low * largest || 0);
  byId("legend-middle").textContent = low ? "0" : few(largest / 2);
  byId("legend-high").textContent = few(largest);
  byId("unit").textContent = unit;
  bar.setAttribute("aria-label", `${unit}: colours from ${few(low * largest || 0)} to ${few(largest)}`);
}

/** @type {{ images: boolean, words: boolean } | null} */
let queued = null;
/** Draw with the next frame. */
function redraw({ images = false, words = false } = {}) {
  if (queued === null) {
    queued = { images: false, words: false };
    requestAnimationFrame(() => {
      const { images: moved, words: changed } = queued ?? { images: true, words: true };
      queued = null;
      if (!live.opened?.panels.length) return;
      if (moved) drawImages();
      drawOverlays();
      if (changed) writeWords();
    });
  }
  queued.images ||= images;
  queued.words ||= words;
}

/** Give the canvases the size of their panels. */
function fitPanels() {
  if (!live.opened?.panels.length) return;
  const { panels, cameras, view } = live.opened;
  for (const { screen: frame, image, overlay } of panels) {
    const size = {
      width: Math.max(1, Math.round(frame.clientWidth * devicePixelRatio)),
      height: Math.max(1, Math.round(frame.clientHeight * devicePixelRatio)),
    };
    Object.assign(image, size);
    Object.assign(overlay, size);
  }
  for (const [axis, camera] of cameras.entries()) {
    const [down, across] = inPlane(axis, view.sides);
    camera.resize(panels[0].image.width, panels[0].image.height, planeOf(view, axis, state.at), down / across);
  }
  drawImages();
  drawOverlays();
}

/** A panel: a canvas for the image, and one over it for the findings.
    @param {number} klass
    @param {number} axis
    @returns {Panel} */
function makePanel(klass, axis) {
  const { view } = now();
  const text = titleOf(klassOf(klass));
  const image = make("canvas", { className: "layer" });
  const overlay = make("canvas", { className: "layer" });
  const caption = make("figcaption", {}, make("strong", { textContent: text }), make("span"));
  const screen = make("div", {
    className: "screen", tabIndex: 0, role: "application",
    "aria-label": `${text}${view.axes === 3 ? `, ${planeName(axis)}` : ""}: arrows move, plus and minus zoom, ` +
      "n and p step through findings, h hides the overlay",
  }, image, overlay);
  return { klass, axis, element: make("figure", { className: "panel" }, caption, screen), image, overlay, screen, caption };
}

/** Let a panel follow pointers.
    @param {Panel} panel */
function connect({ klass, axis, screen: frame }) {
  const { view, cameras } = now();
  const touch = () => {
    if (state.current === klass) return;
    Object.assign(state, { current: klass, hover: null, finding: -1, said: null });
    redraw({ words: true });
  };
  const cellAt = (/** @type {number[]} */ place) => {
    const { grid, labels } = klassOf(klass);
    const found = gridPlace(view, grid, place);
    return found === null ? null : labels[(found[0] * grid[1] + found[1]) * grid[2] + found[2]];
  };
  frame.addEventListener("focus", touch);
  listen(frame, cameras[axis], {
    moved: () => redraw({ images: true }),
    click: (pixel) => {
      touch();
      if (pixel === null) return;
      const place = placeIn(planeOf(view, axis, state.at), ...pixel);
      const cell = cellAt(place);
      const finding = cell === null ? -1 : resultOf(klass).numberOf[cell];
      if (finding >= 0) goTo(finding, false);
      if (view.axes === 3) state.at = place;
      redraw({ images: true, words: true });
    },
    hover: (pixel) => {
      const place = pixel === null ? null : placeIn(planeOf(view, axis, state.at), ...pixel);
      const cell = place === null ? null : cellAt(place);
      writeValue(place);
      if (place !== null) touch();
      lookAt(cell === null ? null : regionAt(klassOf(klass), resultOf(klass), cell));
    },
  });
}

/** Write the place of the pointer and the value there.
    @param {number[] | null} place */
function writeValue(place) {
  if (place === null) {
    byId("value").textContent = "";
    return;
  }
  const { view, source } = now();
  const value = source.valueAt(place);
  const found = pixelInOriginal(view, place).slice(-view.axes);
  const letters = ["z", "y", "x"].slice(-view.axes);
  byId("value").textContent = letters.map((letter, i) => `${letter} ${found[i]}`).reverse().join(", ") +
    (value === null ? "" : `, value ${few(value)}${view.values && ` ${view.values}`}`);
}

/** Build the panels: one for each class that is shown, or three for each class of a volume. */
function buildPanels() {
  const opened = now();
  const axes = opened.view.axes === 3 ? [0, 1, 2] : [0];
  opened.panels = state.shown.flatMap((klass) => axes.map((axis) => makePanel(klass, axis)));
  opened.panels.forEach(connect);
  const elements = opened.panels.map((panel) => panel.element);
  if (opened.view.axes === 3) elements.push(buildPlanes());
  byId("panels").replaceChildren(...elements);
  byId("panels").dataset.count = String(elements.length);
  fitPanels();
  redraw({ images: true, words: true });
}

/** A slider for each axis of a volume, and a strip that shows where its findings are. */
function buildPlanes() {
  const { view } = now();
  const rows = view.shown.map((most, axis) => {
    const id = `plane-${axis}`;
    const range = make("input", { type: "range", id, min: 1, max: most, step: 1 });
    range.addEventListener("input", () => {
      state.at = state.at.map((at, i) => (i === axis ? Number(range.value) - 1 : at));
      redraw({ images: true, words: true });
    });
    const strip = make("canvas", { className: "strip", width: 240, height: 10, role: "img" });
    return make("div", { className: "slider" }, make("label", { for: id, textContent: planeName(axis) }), make("output", { for: id }), range, strip);
  });
  return make("figure", { className: "panel", id: "planes", role: "group", "aria-label": "Planes" }, ...rows,
    make("p", { className: "small", textContent: "The strips show the planes with findings. PageUp and PageDown move by one." }));
}

/** Let the sliders show the planes in sight, and the strips the planes with findings. */
function showPlanes() {
  const { view } = now();
  if (view.axes !== 3) return;
  view.shown.forEach((most, axis) => {
    const range = byId(`plane-${axis}`);
    range.value = String(state.at[axis] + 1);
    range.setAttribute("aria-valuetext", placeName(axis));
    range.parentElement.querySelector("output").textContent = `${state.at[axis] + 1} of ${most}`;
    const strip = range.parentElement.querySelector("canvas");
    const profile = Array.from({ length: most }, () => 0);
    const { findings } = resultOf(state.current);
    for (const { box, score } of findings) {
      const whole = boxOnImage(view, klassOf(state.current).grid, box);
      const stop = Math.min(Math.ceil(whole[3 + axis] - ROUNDING), most);
      for (let at = Math.max(Math.floor(whole[axis] + ROUNDING), 0); at < stop; at++) profile[at] = Math.max(profile[at], score);
    }
    const context = inkOf(strip);
    context.clearRect(0, 0, strip.width, strip.height);
    context.fillStyle = BOX;
    profile.forEach((score, at) => {
      if (score <= 0) return;
      context.globalAlpha = 0.3 + 0.7 * (score / findings[0].score);
      context.fillRect((at * strip.width) / most, 0, Math.max(strip.width / most, 1), strip.height);
    });
    strip.setAttribute("aria-label", `${planeName(axis)}: findings in ${profile.filter((score) => score > 0).length} of ${most}`);
  });
}

/** Build the switches of the classes and of the sides, and the texts about the run. */
function buildSwitches() {
  const { view } = now();
  const names = view.classes.map((one) => one.name);
  byId("classes").replaceChildren(...(names.length < 2 ? [] : names.map((text, klass) => {
    const box = make("input", { type: "checkbox", checked: state.shown.includes(klass) });
    box.addEventListener("change", () => {
      const shown = names.flatMap((_, k) => ((k === klass ? box.checked : state.shown.includes(k)) ? [k] : []));
      if (!shown.length) {
        box.checked = true;
        return;
      }
      Object.assign(state, { shown, hover: null, said: null });
      if (!shown.includes(state.current)) Object.assign(state, { current: shown[0], finding: -1 });
      buildPanels();
    });
    return make("label", {}, box, text);
  })));
  const hasSides = view.classes.some(({ sides }) => sides !== null);
  byId("sides").hidden = !hasSides;
  chooseSide(hasSides ? state.side : "both");
  byId("about").replaceChildren(...view.classes.map((one) => make("div", {},
    make("strong", { textContent: one.name }),
    ...[`${VERDICTS[one.sure]?.[0] ?? one.sure}: ${one.why}.`, one.text, one.audit, `Identity: ${one.identity}`].map((textContent) =>
      make("p", { className: "small", textContent })))));
}

/** Show the map of a side of the answer.
    @param {Side} side */
function chooseSide(side) {
  state.side = side;
  for (const button of byId("sides").children) button.setAttribute("aria-pressed", String(button.id === `side-${side}`));
  redraw();
}

/** The lowest and the highest value that the window may reach. */
function windowEnds() {
  const { low, high, window: given } = now().view.image;
  return [Math.min(low, given[0]), Math.max(high, given[1])];
}

/** Show the controls for grey values, for an image that has them. */
function buildWindow() {
  const { image, values } = now().view;
  byId("window").hidden = image.kind === "colour";
  if (image.kind === "colour") return;
  const choices = { "As given": image.window, "All values": windowEnds(), ...(values === "HU" ? CT_WINDOWS : {}) };
  byId("window-preset").replaceChildren(make("option", { value: "", textContent: "Choose…" }),
    ...Object.entries(choices).map(([text, ends]) => make("option", { value: ends.join(), textContent: text })));
  setWindow([...image.window]);
}

/** Show other values black and white.
    @param {number[]} ends */
function setWindow(ends) {
  state.window = ends;
  const [low, high] = windowEnds();
  const [black, white] = ends;
  const range = high - low || 1;
  byId("window-level").value = String(Math.round((1000 * ((black + white) / 2 - low)) / range));
  byId("window-width").value = String(Math.round((1000 * (white - black)) / range));
  byId("window-out").textContent = `${few(black)} to ${few(white)}`;
  byId("window-preset").value = [...byId("window-preset").options].some(({ value }) => value === ends.join()) ? ends.join() : "";
  redraw({ images: true });
}

/** Describe and outline a region.
    @param {number | null} region */
function lookAt(region) {
  if (region === state.hover) return;
  state.hover = region;
  writeRegion();
  redraw();
}

/** Choose the finding of a number, counted around the list; `near` moves the camera there.
    @param {number} i
    @param {boolean} near
    @param {boolean} isStep */
function goTo(i, near = true, isStep = true) {
  const { findings } = resultOf(state.current);
  if (!findings.length) return;
  const { view, cameras } = now();
  state.finding = (i + findings.length) % findings.length;
  state.hover = null;
  const finding = findings[state.finding];
  const onScreen = boxOnImage(view, klassOf(state.current).grid, finding.box);
  if (view.axes === 3) state.at = [0, 1, 2].map((axis) => Math.floor((onScreen[axis] + onScreen[3 + axis]) / 2));
  if (near) cameras.forEach((camera, axis) => camera.fit(boxIn(onScreen, planeOf(view, axis, state.at)), 3));
  const part = finding.part === null ? "" : `, ${percent(finding.part)} of the score`;
  if (isStep) {
    state.said = `Finding ${state.finding + 1} of ${findings.length}${part}, strength ${few(finding.score)}, ` +
      `at ${boxText(view, finding.at)}${sizeText(view, finding.at)}`;
    writeAddress(true);
  }
  redraw({ images: true, words: true });
}

/** Keep the review of a finding.
    @param {number} i
    @param {Partial<Review>} change */
function judge(i, change) {
  const finding = resultOf(state.current).findings[i];
  if (!finding) return;
  changeReview(klassOf(state.current), finding, change);
  state.said = `Finding ${i + 1} ${change.verdict ?? (change.note === undefined ? "has no verdict" : "has a note")}`;
  redraw({ words: true });
}

const LEVELS = 1000;
/** The range of the slider: from the tolerance of the run to the strongest area. */
function toleranceRange() {
  const { view, results } = now();
  const low = Math.min(...view.classes.map(({ limits }) => limits?.run ?? 0));
  const high = Math.max(low, ...view.classes.map((klass, i) => klass.limits === null
    ? results[i].findings[0]?.score ?? 0 : klass.strengths.reduce((most, one) => Math.max(most ?? 0, one ?? 0), 0) ?? 0));
  return [low, high - low || 1];
}

/** Show only findings of a strength, or with null those of the run.
    @param {number | null} tolerance */
function setTolerance(tolerance) {
  Object.assign(state, { tolerance, said: null });
  recompute();
  writeAddress(false);
  redraw({ words: true });
}

/** The strength at a place of the slider, in few digits, so that it can be copied.
    @param {number} place */
function toleranceAt(place) {
  const [low, width] = toleranceRange();
  return place === 0 ? null : Math.max(low, Number((low + width * (place / LEVELS) ** 2).toPrecision(3)));
}

/** Let the slider show the strength in use. */
function showTolerance() {
  if (live.opened === null) return;
  const [low, width] = toleranceRange();
  const { tolerance } = state;
  const place = tolerance === null ? 0 : Math.round(LEVELS * Math.sqrt(Math.min(Math.max((tolerance - low) / width, 0), 1)));
  byId("tolerance").value = String(place);
  byId("tolerance").setAttribute("aria-valuetext", tolerance === null ? "as in the run" : String(tolerance));
  if (document.activeElement !== byId("tolerance-value")) byId("tolerance-value").value = tolerance === null ? "" : String(tolerance);
}

/** Show what the page is about to do in its frame. @param {number | null} number */
function buildFrame(number) {
  document.body.dataset["mode"] = number === null ? "gallery" : "viewer";
  byId("gallery").hidden = number !== null;
  byId("viewer").hidden = number === null;
  const isOne = entries.length < 2;
  for (const id of ["to-gallery", "previous", "next"]) byId(id).hidden = number === null || isOne;
  byId("where").textContent = number === null ? count(entries.length, "image") : entries[number].name;
  document.title = number === null || isOne ? data.title : `${entries[number].name} · ${data.title}`;
  byId("panels").replaceChildren();
  byId("kept").textContent = "Kept in this browser.";
}

let turn = 0;
/** Open an image on its strongest finding, or with null the gallery.
    @param {number | null} number
    @param {{ isStep?: boolean, current?: number, finding?: number }} [how]
    @returns {Promise<void>} */
async function show(number, { isStep = true, current = 0, finding = -1 } = {}) {
  const mine = ++turn;
  if (live.opened !== null) {
    live.opened.source.close();
    forgetParts(live.opened.view.number);
    live.opened = null;
  }
  Object.assign(state, { number, hover: null, finding: -1, current: 0, said: null });
  buildFrame(number);
  if (isStep) writeAddress(true);
  if (number === null) {
    gallery.arrange();
    writeWords();
    return;
  }
  byId("panels").setAttribute("aria-busy", "true");
  try {
    const view = await loadView(number);
    const source = openImage(view, () => redraw({ images: true }), complain);
    await source.ready;
    if (mine !== turn) { // another image was opened meanwhile
      source.close();
      return;
    }
    byId("panels").removeAttribute("aria-busy");
    const cameras = (view.axes === 3 ? [0, 1, 2] : [0]).map(() => makeCamera());
    live.opened = { view, source, results: [], panels: [], cameras };
    state.shown = view.classes.map((_, klass) => klass).slice(0, view.axes === 3 ? 1 : MOST_SHOWN);
    state.current = Math.min(current, view.classes.length - 1);
    if (!state.shown.includes(state.current)) state.shown[state.shown.length - 1] = state.current;
    state.at = view.axes === 2 ? [0, 0, 0] : view.shown.map((side) => Math.floor(side / 2));
    recompute();
    buildWindow();
    buildSwitches();
    buildPanels();
    if (finding >= 0 && finding < resultOf(state.current).findings.length) goTo(finding);
    else goTo(0, false, false);
    writeWords();
  } catch (error) {
    if (mine === turn) complain(error);
  }
}

/** Tell the user of a failure where the image would be.
    @param {unknown} error */
function complain(error) {
  byId("panels").removeAttribute("aria-busy");
  byId("found").textContent = error instanceof Error ? error.message : String(error);
}

/** Go where the address of the page leads.
    @returns {Promise<void>} */
async function followLink() {
  const { number, current, finding, tolerance } = readAddress();
  state.tolerance = tolerance;
  const wanted = number ?? (entries.length > 1 ? null : 0);
  if (wanted !== null && wanted === state.number && live.opened !== null && current === state.current) {
    recompute();
    if (finding >= 0) goTo(finding, true, true);
    else {
      Object.assign(state, { finding: -1, hover: null, said: null });
      for (const camera of now().cameras) camera.fit();
      redraw({ images: true, words: true });
    }
    return;
  }
  await show(wanted, { isStep: false, current, finding });
}
