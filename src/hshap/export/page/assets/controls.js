/* The controls of the page and their handlers. */

import { toggleOverlay } from "./actions.js";
import { MAPS } from "./colours.js";
import { byId, make } from "./dom.js";
import { fitPanels, redraw } from "./drawing.js";
import { askAgain, gallery, open } from "./opening.js";
import { showWindow } from "./panels.js";
import { entries, mapOf, now, state } from "./state.js";
import { CONTEXTS } from "./words.js";

/** @type {Record<Layer, string>} */
const LAYERS = {
  map: "Map", heat: "Strengths", leaves: "Outlines", boxes: "Boxes", truth: "Truth", visited: "Checked areas",
};

byId("reset").addEventListener("click", () => {
  state.asked = { tolerance: null, percentile: null, side: null, area: null };
  askAgain();
});
const anyTruth = entries.some((entry) => entry.classes.some((one) => one.overlap !== null));
byId("layers").append(.../** @type {[Layer, string][]} */ (Object.entries(LAYERS))
  .filter(([key]) => key !== "truth" || anyTruth).map(([key, text]) => {
    const box = make("input", { type: "checkbox", id: `layer-${key}`, checked: state.layers[key] });
    box.addEventListener("change", () => {
      state.layers[key] = box.checked;
      redraw();
    });
    return make("label", {}, box, make("span", { className: `key key-${key}`, "aria-hidden": "true" }), text);
  }));
byId("hide").addEventListener("click", toggleOverlay);
byId("opacity").addEventListener("input", () => {
  state.opacity = Number(byId("opacity").value);
  redraw({ words: true });
});
byId("map").append(...Object.keys(MAPS).map((name) => make("option", { value: name, textContent: name })));
byId("map").addEventListener("change", () => {
  state[mapOf(state.current) === null ? "map" : "pixelMap"] = byId("map").value;
  redraw();
});
byId("context").append(...Object.entries(CONTEXTS).map(([value, textContent]) => make("option", { value, textContent })));
byId("context").addEventListener("change", () => {
  state.context = /** @type {keyof ClassMaps} */ (byId("context").value);
  redraw();
});
for (const id of ["window-level", "window-width"]) {
  byId(id).addEventListener("input", () => {
    const [low, high] = byId("window").dataset.ends.split(",").map(Number);
    const middle = low + ((high - low) * Number(byId("window-level").value)) / 1000;
    const half = ((high - low) * Math.max(1, Number(byId("window-width").value))) / 2000;
    state.window = [middle - half, middle + half];
    showWindow();
    redraw({ images: true });
  });
}
byId("window-reset").addEventListener("click", () => {
  state.window = [...now().view.image.window];
  showWindow();
  redraw({ images: true });
});
byId("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = document.documentElement.dataset["theme"] ?? (dark ? "dark" : "light");
  document.documentElement.dataset["theme"] = theme === "dark" ? "light" : "dark";
});
byId("to-gallery").addEventListener("click", () => open(null));
for (const [id, by] of /** @type {[string, number][]} */ ([["previous", -1], ["next", 1]])) {
  byId(id).addEventListener("click", () => open(((state.number ?? 0) + by + entries.length) % entries.length));
}
for (const id of ["sort", "filter"]) byId(id).addEventListener("change", () => gallery.arrange());
byId("search").addEventListener("input", () => gallery.arrange());
byId("filter-class").addEventListener("change", () => gallery.update());
new ResizeObserver(fitPanels).observe(byId("panels"));
