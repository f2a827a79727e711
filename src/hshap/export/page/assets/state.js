/* The state of the page, and the canvases that follow from it. */

const data = JSON.parse(byId("data").textContent);
const views = data.views;
const trees = views.map((view) => view.classes.map((table) => makeTree(table)));
const sliders = slidersFor(trees.flat());
const MOST_SHOWN = 4;

const state = {
  number: null, // the image that is shown; null is the gallery
  asked: { tolerance: null, percentile: null, side: null, area: null },
  layers: { heat: true, leaves: true, boxes: true, truth: true, visited: false },
  opacity: 0.6,
  map: "viridis",
  shown: [], // the classes that are shown
  current: 0, // the class that was used last
  focus: null, // region of the current class whose areas are shown
  hover: null, // region of the current class under the pointer
  finding: -1,
  said: null, // the status line after an action; null is the summary
};
let loaded = null; // pixels of the image that is shown
let panels = [];
let results = [];
let shot = makeCamera();
const gallery = makeGallery(views, trees, open);

const view = () => views[state.number];
const treeOf = (klass) => trees[state.number][klass];

/* Computing and drawing */

function recompute() {
  if (state.number === null) return gallery.update(state.asked);
  results = trees[state.number].map((tree) => resultAt(view(), tree, state.asked));
  if (state.finding >= results[state.current].findings.length) state.finding = -1;
  return undefined;
}

function drawImages() {
  for (const panel of panels) drawImage(panel.image.getContext("2d"), loaded.pyramid, view(), shot.camera);
}

/** The cells in the camera's sight, kept until it moves; all panels have the same size. */
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
  const largest = Math.max(...state.shown.map((klass) => results[klass].largest), 0);
  const look = { ...state, largest };
  const seen = seenNow();
  panels.forEach((panel, i) => {
    const klass = state.shown[i];
    const isCurrent = klass === state.current;
    const scene = {
      view: view(), tree: treeOf(klass), result: results[klass], look, seen,
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
