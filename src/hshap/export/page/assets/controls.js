/* Controls and keys, and the page for scripts and tests: `window.hshap`. The last module to start. */

/** @type {Record<Layer, string>} */
const LAYERS = { map: "Map", leaves: "Outlines", boxes: "Boxes", truth: "Truth", checked: "Checked areas" };
const STEP = 60;

const anyTruth = entries.some((entry) => entry.classes.some((one) => one.overlap !== null));
byId("layers").append(.../** @type {[Layer, string][]} */ (Object.entries(LAYERS))
  .filter(([key]) => key !== "truth" || anyTruth).map(([key, text]) => {
    const box = make("input", { type: "checkbox", id: `layer-${key}`, checked: state.layers[key] });
    box.addEventListener("change", () => toggle(key, box.checked));
    return make("label", {}, box, make("span", { className: `key key-${key}`, "aria-hidden": "true" }), text);
  }));
byId("sides").append(.../** @type {[Side, string][]} */ (Object.entries(SIDES)).map(([side, textContent]) => {
  const button = make("button", { type: "button", id: `side-${side}`, textContent, title: WORDS[textContent.toLowerCase()] ?? WORDS["map"] });
  button.addEventListener("click", () => chooseSide(side));
  return button;
}));
byId("colours").append(...MAPS.map((map) => make("option", { value: map, textContent: map })));

/** @param {Layer} layer
    @param {boolean} isOn */
function toggle(layer, isOn = !state.layers[layer]) {
  state.layers[layer] = isOn;
  if (byId(`layer-${layer}`)) byId(`layer-${layer}`).checked = isOn;
  redraw();
}

/** Hide all that lies over the image, or show it again. */
function toggleOverlay() {
  state.hidden = !state.hidden;
  byId("hide").setAttribute("aria-pressed", String(state.hidden));
  redraw();
}

/** Open the image before or after, around the list. @param {number} by */
function step(by) {
  if (entries.length > 1 && state.number !== null) show((state.number + by + entries.length) % entries.length);
}

byId("hide").addEventListener("click", toggleOverlay);
byId("colours").addEventListener("change", () => {
  state.colours = byId("colours").value;
  redraw({ words: true });
});
byId("opacity").addEventListener("input", () => {
  state.opacity = Number(byId("opacity").value);
  redraw({ words: true });
});
for (const id of ["window-level", "window-width"]) {
  byId(id).addEventListener("input", () => {
    const [low, high] = windowEnds();
    const middle = low + ((high - low) * Number(byId("window-level").value)) / 1000;
    const half = ((high - low) * Math.max(1, Number(byId("window-width").value))) / 2000;
    setWindow([middle - half, middle + half]);
  });
}
byId("window-preset").addEventListener("change", () => {
  const { value } = byId("window-preset");
  if (value !== "") setWindow(value.split(",").map(Number));
});
byId("tolerance").addEventListener("input", () => setTolerance(toleranceAt(Number(byId("tolerance").value))));
byId("tolerance-value").addEventListener("change", () => {
  const value = Number(byId("tolerance-value").value);
  setTolerance(byId("tolerance-value").value !== "" && Number.isFinite(value) ? Math.max(value, toleranceRange()[0]) : null);
});
byId("reset").addEventListener("click", () => setTolerance(null));
byId("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = document.documentElement.dataset["theme"] ?? (dark ? "dark" : "light");
  document.documentElement.dataset["theme"] = theme === "dark" ? "light" : "dark";
});
byId("to-gallery").addEventListener("click", () => show(null));
byId("previous").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
new ResizeObserver(fitPanels).observe(byId("panels"));
addEventListener("popstate", () => {
  if (live.opened !== null || state.number === null) followLink();
});
byId("title").textContent = data.title;

/** The panel that has the focus, or the first one. */
const panelNow = () => now().panels.find(({ screen: frame }) => frame === document.activeElement) ?? now().panels[0];
const cameraNow = () => now().cameras[panelNow().axis];
/** Move to another plane of the volume. @param {number} by */
function slice(by) {
  const { view } = now();
  const { axis } = panelNow();
  if (view.axes === 3) state.at = state.at.map((at, i) => (i === axis ? Math.min(Math.max(at + by, 0), view.shown[axis] - 1) : at));
}
/** @param {"accepted" | "rejected"} verdict */
const decide = (verdict) => { if (state.finding >= 0) judge(state.finding, { verdict }); };

/** Keys that move the camera of the panel in use.
    @type {Record<string, () => void>} */
const MOVES = {
  ArrowLeft: () => cameraNow().move(-STEP, 0),
  ArrowRight: () => cameraNow().move(STEP, 0),
  ArrowUp: () => cameraNow().move(0, -STEP),
  ArrowDown: () => cameraNow().move(0, STEP),
  "+": () => cameraNow().zoom(1.25),
  "=": () => cameraNow().zoom(1.25),
  "-": () => cameraNow().zoom(0.8),
  0: () => cameraNow().fit(),
  PageUp: () => slice(-1),
  PageDown: () => slice(1),
};
/** Keys that work wherever the focus is.
    @type {Record<string, () => void>} */
const ANYWHERE = {
  n: () => goTo(state.finding + 1),
  p: () => goTo(state.finding < 0 ? 0 : state.finding - 1),
  h: toggleOverlay,
  a: () => decide("accepted"),
  r: () => decide("rejected"),
  e: () => byId("review-note")?.focus(),
  m: () => toggle("map"),
  l: () => toggle("leaves"),
  b: () => toggle("boxes"),
  t: () => toggle("truth"),
  v: () => toggle("checked"),
  "[": () => step(-1),
  "]": () => step(1),
  g: () => { if (entries.length > 1) show(null); },
};

/** Whether an element takes the letters that are typed.
    @param {Element | null} element */
const isField = (element) => element instanceof HTMLTextAreaElement || element instanceof HTMLSelectElement ||
  (element instanceof HTMLInputElement && !["checkbox", "range"].includes(element.type));

document.addEventListener("keydown", (event) => {
  if (live.opened === null || event.ctrlKey || event.metaKey || event.altKey) return;
  const { activeElement: at } = document;
  if (event.key === "Escape") {
    if (isField(at)) /** @type {HTMLElement} */ (at).blur();
    else for (const camera of now().cameras) camera.fit();
    redraw({ images: true });
    return;
  }
  if (isField(at)) return;
  if (at?.classList.contains("screen") && Object.hasOwn(MOVES, event.key)) {
    MOVES[event.key]();
    redraw({ images: true, words: event.key.startsWith("Page") });
  } else if (Object.hasOwn(ANYWHERE, event.key)) ANYWHERE[event.key]();
  else return;
  event.preventDefault();
});

/** The pixels of a region as runs [first, end] of the flattened grid.
    @param {Klass} klass
    @param {number} region */
function runsOf(klass, region) {
  const inside = new Set(cellsOf(klass, region));
  /** @type {number[][]} */
  const runs = [];
  klass.labels.forEach((/** @type {number} */ cell, /** @type {number} */ pixel) => {
    if (!inside.has(cell)) return;
    const last = runs[runs.length - 1];
    if (last && last[1] === pixel) last[1]++;
    else runs.push([pixel, pixel + 1]);
  });
  return runs;
}

/* leaves(klass)    the leaves of a class: coefficient, and runs [first, end] of flat pixels
   findings()       the content of the JSON file; reviews() that of the other
   set(tolerance)   moves the slider; null is the run's own
   state()          a copy of the state
   cameras()        the part of each plane that is shown
   open(number)     shows an image, or with null the gallery
   ready            a promise, resolved once the page is drawn */
window.hshap = Object.freeze({
  leaves: (number = state.current) => [...resultOf(number).leaves].map((region) => ({
    coefficient: klassOf(number).strengths[region], runs: runsOf(klassOf(number), region),
  })),
  findings: findingsNow,
  reviews: reviewsNow,
  set: (/** @type {number | null} */ tolerance) => {
    setTolerance(tolerance);
    drawOverlays();
    writeWords();
  },
  state: () => structuredClone({ ...state, camera: live.opened ? { ...live.opened.cameras[0].camera } : null }),
  cameras: () => now().cameras.map(({ camera }) => ({ ...camera })),
  open: show,
  ready: followLink(),
});
