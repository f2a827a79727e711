/* Opening an image or the gallery, and following addresses and limits. */

import { goTo } from "./actions.js";
import { readAddress, writeAddress } from "./address.js";
import { makeCamera } from "./camera.js";
import { loadCells, loadMaps } from "./cells.js";
import { farthestMap } from "./colours.js";
import { byId, count, make } from "./dom.js";
import { redraw } from "./drawing.js";
import { allViews, followsSliders, makeGallery } from "./gallery.js";
import { buildClasses, buildContexts, buildPanels, buildWindow } from "./panels.js";
import { buildPlanes } from "./planes.js";
import { data, forgetParts, loadView } from "./parts.js";
import { write } from "./report.js";
import { buildSliders, showAsked, slidersFor } from "./sliders.js";
import { MOST_SHOWN, entries, live, now, recompute, resultOf, state } from "./state.js";
import { openImage } from "./tiles.js";

export const gallery = makeGallery((number) => open(number));

/** @param {keyof Asked} key
    @param {number | null} value */
export function ask(key, value) {
  state.asked = { ...state.asked, [key]: value };
  askAgain();
}

/** Follow limits that have changed. */
export function askAgain() {
  state.said = null;
  writeAddress(false);
  if (live.opened === null) {
    gallery.update();
    write();
    return;
  }
  recompute();
  redraw({ words: true });
}

/** @param {Tree[]} trees */
function buildLimits(trees) {
  live.sliders = slidersFor(trees);
  buildSliders(byId("sliders"), live.sliders, ask);
  showAsked(live.sliders, state.asked);
}

/** Show what the page is about to do in its frame. @param {number | null} number */
function frame(number) {
  document.body.dataset["mode"] = number === null ? "gallery" : "viewer";
  byId("gallery").hidden = number !== null;
  byId("viewer").hidden = number === null;
  const isOne = entries.length < 2;
  for (const id of ["to-gallery", "previous", "next"]) byId(id).hidden = number === null || isOne;
  byId("where").textContent = number === null ? count(entries.length, "image") : entries[number].name;
  byId("limits").hidden = number === null && !followsSliders;
  document.title = number === null || isOne ? data.title : `${entries[number].name} · ${data.title}`;
  byId("panels").replaceChildren();
  byId("kept").textContent = "Kept in this browser.";
}

let turn = 0;
/** Open an image, or with null the gallery.
    @param {number | null} number
    @param {{ isStep?: boolean, current?: number, finding?: number }} [how]
    @returns {Promise<void>} */
export async function open(number, { isStep = true, current = 0, finding = -1 } = {}) {
  const mine = ++turn;
  if (live.opened !== null) {
    live.opened.source.close();
    forgetParts(live.opened.view.number);
    live.opened = null;
  }
  Object.assign(state, { number, focus: null, hover: null, finding: -1, current: 0, said: null });
  frame(number);
  if (isStep) writeAddress(true);
  if (number === null) {
    if (followsSliders) buildLimits((await allViews()).flatMap((one) => one.trees));
    await gallery.update();
    if (mine === turn) write();
    return;
  }
  byId("panels").setAttribute("aria-busy", "true");
  try {
    const view = followsSliders && entries.length > 1 ? (await allViews())[number] : await loadView(number);
    const source = openImage(view, () => redraw({ images: true }), complain);
    const [cells, maps] = await Promise.all([loadCells(view), loadMaps(view), source.ready]);
    if (mine !== turn) { // another image was opened meanwhile
      source.close();
      return;
    }
    byId("panels").removeAttribute("aria-busy");
    live.opened = {
      view, cells, maps, source, results: [], panels: [], seen: new Map(),
      cameras: (view.axes === 3 ? [0, 1, 2] : [0]).map(() => makeCamera()),
    };
    state.shown = view.classes.map((_, klass) => klass).slice(0, view.axes === 3 ? 1 : MOST_SHOWN);
    state.current = Math.min(current, view.classes.length - 1);
    if (!state.shown.includes(state.current)) state.shown[state.shown.length - 1] = state.current;
    state.at = view.axes === 2 ? [0, 0, 0] : view.shown.map((side) => Math.floor(side / 2));
    state.map = farthestMap(source.sample());
    recompute();
    buildLimits(view.trees);
    buildWindow();
    buildPlanes();
    buildClasses();
    buildContexts();
    buildPanels();
    byId("region").replaceChildren(make("p", { className: "small", textContent: "Point at the image, or choose a finding." }));
    if (finding >= 0 && finding < resultOf(state.current).findings.length) goTo(finding);
    write();
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
export async function followLink() {
  const { number, current, finding, asked } = readAddress();
  state.asked = asked;
  const wanted = number ?? (entries.length > 1 ? null : 0);
  if (wanted !== null && wanted === state.number && live.opened !== null && current === state.current) {
    recompute();
    if (finding >= 0) goTo(finding);
    else {
      Object.assign(state, { finding: -1, hover: null, said: null });
      for (const camera of now().cameras) camera.fit();
      redraw({ images: true, words: true });
    }
    return;
  }
  await open(wanted, { isStep: false, current, finding });
}
