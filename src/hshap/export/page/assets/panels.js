/* The panels of the open image, and the controls that depend on it. */

import { descend, lookAt } from "./actions.js";
import { listen } from "./camera.js";
import { cellAt, placeIn, planeOf } from "./cells.js";
import { byId, few, make } from "./dom.js";
import { fitPanels, redraw } from "./drawing.js";
import { partAt, regionAt } from "./findings.js";
import { pixelInOriginal } from "./place.js";
import { makePanel } from "./stage.js";
import { now, resultOf, state, treeOf } from "./state.js";

/** @param {Panel} panel */
function connect({ klass, axis, screen }) {
  const { view, cells, cameras } = now();
  const touch = () => {
    if (state.current === klass) return;
    Object.assign(state, { current: klass, focus: null, hover: null, finding: -1, said: null });
    redraw({ words: true });
  };
  screen.addEventListener("focus", touch);
  listen(screen, cameras[axis], {
    moved: () => redraw({ images: true }),
    click: (pixel) => {
      touch();
      if (pixel === null) return;
      const place = placeIn(planeOf(view, axis, state.at), ...pixel);
      if (view.axes === 2) descend(place);
      else {
        state.at = place;
        redraw({ images: true, words: true });
      }
    },
    hover: (pixel) => {
      if (pixel === null) {
        byId("value").textContent = "";
        lookAt(null);
        return;
      }
      const place = placeIn(planeOf(view, axis, state.at), ...pixel);
      const value = now().source.valueAt(place);
      const names = ["z", "y", "x"].slice(-view.axes);
      const found = pixelInOriginal(view, place.slice(-view.axes));
      byId("value").textContent = names.map((name, i) => `${name} ${found[i]}`).reverse().join(", ") +
        (value === null ? "" : `, value ${few(value)}`);
      if (state.current !== klass && state.focus === null) touch();
      if (state.current !== klass) return;
      const cell = cellAt(cells, view, place);
      if (cell === null) {
        lookAt(null);
        return;
      }
      const part = state.focus === null ? regionAt(treeOf(klass), resultOf(klass), cell) : partAt(treeOf(klass), state.focus, cell);
      lookAt(part === -1 ? null : part);
    },
  });
}

/** Build the panels: one for each class that is shown, or three for each class of a volume. */
export function buildPanels() {
  const opened = now();
  const axes = opened.view.axes === 3 ? [0, 1, 2] : [0];
  opened.seen.clear();
  opened.panels = state.shown.flatMap((klass) => axes.map((axis) => makePanel(treeOf(klass).name, klass, axis)));
  opened.panels.forEach(connect);
  byId("panels").replaceChildren(...opened.panels.map((panel) => panel.element));
  byId("panels").dataset.count = String(opened.panels.length);
  fitPanels();
  redraw({ images: true, words: true });
}

/** Build the switches of the classes, and the texts about them. */
export function buildClasses() {
  const { view } = now();
  const names = view.classes.map((one) => one.name);
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
  byId("about").replaceChildren(...view.classes.map((one) => make("div", {},
    make("strong", { textContent: one.name }),
    make("p", { className: "small", textContent: `${one.sure}: ${one.why}.` }),
    make("p", { className: "small", textContent: one.text }),
    make("p", { className: "small", textContent: one.audit }),
    make("p", { className: "small", textContent: `Identity: ${one.identity}` }))));
}

/** Show the switch between the maps, for an image whose areas were checked in several contexts. */
export function buildContexts() {
  const hasContexts = now().view.classes.some(({ contexts }) => contexts !== null);
  byId("contexts").hidden = !hasContexts;
  if (!hasContexts) state.context = "all";
  byId("context").value = state.context;
}

/** Show the controls for grey values, for an image that has them. */
export function buildWindow() {
  const { image } = now().view;
  byId("window").hidden = image.kind === "colour";
  if (image.kind === "colour") return;
  state.window = [...image.window];
  const [low, high] = [image.low, image.low + image.step * (2 ** image.bits - 1)];
  const ends = image.bits === 8 ? [low, high] : [Math.max(low, Math.min(low, image.window[0])), Math.min(high, image.window[1])];
  byId("window").dataset.ends = ends.join();
  showWindow();
}

/** Let the controls for grey values show the window in use. */
export function showWindow() {
  const [low, high] = byId("window").dataset.ends.split(",").map(Number);
  const [black, white] = state.window;
  const range = high - low || 1;
  byId("window-level").value = String(Math.round((1000 * ((black + white) / 2 - low)) / range));
  byId("window-width").value = String(Math.round((1000 * (white - black)) / range));
  byId("window-out").textContent = `${few(black)} to ${few(white)}`;
}
