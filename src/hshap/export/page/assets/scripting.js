/* The page for scripts and tests: `window.hshap`. */

import { followAddress } from "./address.js";
import { cellOf } from "./cells.js";
import { inkOf, make } from "./dom.js";
import { drawOverlays } from "./drawing.js";
import { cellsOf, limitsFor } from "./findings.js";
import { followLink, gallery, open } from "./opening.js";
import { write } from "./report.js";
import { cocoNow, findingsNow, reviewedCoco, reviewsNow } from "./saving.js";
import { live, now, recompute, resultOf, state, treeOf } from "./state.js";

const probe = inkOf(make("canvas", { width: 1, height: 1 }), { willReadFrequently: true });

/** The pixels of a region as runs [first, end] of the flattened grid.
    @param {Tree} tree
    @param {number} region */
function pixelsOf(tree, region) {
  const { view, cells } = now();
  const under = new Set(cellsOf(tree, region));
  /** @type {number[][]} */
  const runs = [];
  for (let z = 0, pixel = 0; z < view.depth; z++) {
    for (let y = 0; y < view.height; y++) {
      for (let x = 0; x < view.width; x++, pixel++) {
        if (!under.has(cellOf(cells, view, [z, y, x]))) continue;
        const last = runs[runs.length - 1];
        if (last && last[1] === pixel) last[1]++;
        else runs.push([pixel, pixel + 1]);
      }
    }
  }
  return runs;
}

/* leaves(klass)   the leaves of a class: region, coefficient, runs [first, end] of flat pixels
   findings()      the content of the JSON file; coco(), reviews() and reviewedCoco() those of others
   limits(klass)   the tolerance or percentile (`level`) and the size in use; null is the run's own
   set(asked)      moves sliders: tolerance, percentile, side, area; returns the milliseconds until
                   everything was drawn
   state()         a copy of the state
   cameras()       the part of each plane that is shown
   open(number)    shows an image, or with null the gallery
   ready           a promise, resolved once the page is drawn */
window.hshap = Object.freeze({
  leaves: (klass = state.current) => resultOf(klass).leaves.map((region) => ({
    region, coefficient: treeOf(klass).weight[region], runs: pixelsOf(treeOf(klass), region),
  })),
  findings: findingsNow,
  coco: cocoNow,
  reviews: reviewsNow,
  reviewedCoco,
  limits: (klass = state.current) => limitsFor(treeOf(klass), state.asked),
  set: (/** @type {Partial<Asked>} */ asked) => {
    const started = performance.now();
    state.asked = { ...state.asked, ...asked };
    if (live.opened === null) gallery.update();
    else {
      recompute();
      drawOverlays();
      write();
      // Reading a pixel waits for all that was drawn before.
      for (const { overlay } of now().panels) probe.drawImage(overlay, 0, 0);
      probe.getImageData(0, 0, 1, 1);
    }
    return performance.now() - started;
  },
  state: () => structuredClone({ ...state, camera: live.opened ? { ...live.opened.cameras[0].camera } : null }),
  cameras: () => now().cameras.map(({ camera }) => ({ ...camera })),
  open,
  ready: followLink(),
});
followAddress(followLink);
