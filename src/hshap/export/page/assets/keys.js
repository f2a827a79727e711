/* Keys: all that a pointer can do. They work everywhere but in fields that take text. */

import { descend, goTo, goUp, judge, toggle, toggleOverlay } from "./actions.js";
import { placeIn, planeOf } from "./cells.js";
import { byId } from "./dom.js";
import { redraw } from "./drawing.js";
import { open } from "./opening.js";
import { entries, live, now, state } from "./state.js";

const STEP = 60;
/** The panel that has the focus, or the first one. */
const panelNow = () => {
  const { panels } = now();
  return panels.find(({ screen }) => screen === document.activeElement) ?? panels[0];
};
const cameraNow = () => now().cameras[panelNow().axis];
/** Move to another plane of the volume. @param {number} by */
const slice = (by) => {
  const { view } = now();
  const { axis } = panelNow();
  if (view.axes !== 3) return;
  const most = view.shown[axis] - 1;
  state.at = state.at.map((at, i) => (i === axis ? Math.min(Math.max(at + by, 0), most) : at));
};
/** @param {number} by */
const image = (by) => {
  if (entries.length > 1 && state.number !== null) open((state.number + by + entries.length) % entries.length);
};
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
  s: () => toggle("heat"),
  l: () => toggle("leaves"),
  b: () => toggle("boxes"),
  t: () => { if (byId("layer-truth")) toggle("truth"); },
  v: () => toggle("visited"),
  "[": () => image(-1),
  "]": () => image(1),
  g: () => { if (entries.length > 1) open(null); },
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
    else goUp();
    return;
  }
  if (isField(at)) return;
  const isScreen = at?.classList.contains("screen") ?? false;
  if (isScreen && event.key === "Enter") {
    const { axis } = panelNow();
    const pixel = cameraNow().pixel();
    if (pixel !== null) descend(placeIn(planeOf(now().view, axis, state.at), ...pixel));
  } else if (isScreen && Object.hasOwn(MOVES, event.key)) {
    MOVES[event.key]();
    redraw({ images: true, words: event.key.startsWith("Page") });
  } else if (Object.hasOwn(ANYWHERE, event.key)) ANYWHERE[event.key]();
  else return;
  event.preventDefault();
});
