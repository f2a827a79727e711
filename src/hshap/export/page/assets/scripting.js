/* The page for scripts and tests: `window.hshap`. */

function boxes() {
  return asBoxes(view(), state.shown.map(treeOf), state.shown.map((klass) => results[klass]), state.asked);
}

/* `window.hshap`, for scripts and tests: the state of the page, and its sliders.

   leaves(klass)   the leaves of a class: region, coefficient, runs [first, end] of flat pixels
   boxes()         the content of the JSON file
   limits(klass)   the tolerance or percentile (`level`) and the size in use; null is the run's own
   set(asked)      moves sliders: tolerance, percentile, side, area; returns the milliseconds until
                   everything was drawn
   state()         a copy of the state
   open(number)    shows an image, or with null the gallery
   ready           a promise, resolved once the page is drawn */
const probe = make("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
window.hshap = Object.freeze({
  leaves: (klass = state.current) => results[klass].leaves.map((region) => {
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
    recompute();
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
