/* The controls of the page and their handlers. */

byId("title").textContent = data.title;
buildSliders(byId("sliders"), sliders, ask);
byId("reset").addEventListener("click", () => {
  for (const key of Object.keys(state.asked)) state.asked[key] = null;
  state.said = null;
  recompute();
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
