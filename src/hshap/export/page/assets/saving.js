/* Saving: the picture as it is shown, this image's findings, and the reviews of all images. */

import { loadCells } from "./cells.js";
import { byId } from "./dom.js";
import { asCoco, asFindings, asPicture, downloadJson, download, fileName } from "./exports.js";
import { resultAt } from "./findings.js";
import { data, forgetParts, loadView } from "./parts.js";
import { reviewsOf } from "./review.js";
import { entries, live, now, state, treeOf } from "./state.js";

/** The findings of the open image, in the classes that are shown. */
export const findingsNow = () => asFindings(now().view, state.shown, now().results, state.asked);

/** The open image as COCO. */
export const cocoNow = () => asCoco([{
  view: now().view, map: now().cells, klasses: state.shown, findings: (klass) => now().results[klass].findings,
}]);

/** The reviews of all images of the page, those that have any. */
export const reviewsNow = () => ({
  format: "hshap review",
  title: data.title,
  images: entries.flatMap(({ name, classes }) => classes.flatMap((one) => {
    const findings = Object.values(reviewsOf(one.identity));
    return findings.length ? [{ image: name, class: one.name, identity: one.identity, findings }] : [];
  })),
});

/** The reviewed findings of all images of the page as COCO; each image is loaded in its turn. */
export async function reviewedCoco() {
  const images = [];
  for (const [number, { classes, size }] of entries.entries()) {
    if (size.length !== 2 || !classes.some((one) => Object.keys(reviewsOf(one.identity)).length)) continue;
    const view = await loadView(number);
    if (live.opened?.view.number !== number) forgetParts(number);
    const klasses = view.trees.map((_, klass) => klass);
    images.push({
      view, map: await loadCells(view), klasses,
      // Each finding is found again at the limits at which it was reviewed.
      findings: (/** @type {number} */ klass) => {
        const tree = view.trees[klass];
        return Object.entries(reviewsOf(tree.identity)).flatMap(([key, { asked }]) =>
          resultAt(view, tree, asked).findings.filter((finding) => finding.key === key));
      },
    });
  }
  return asCoco(images);
}

byId("save-png").addEventListener("click", async () => {
  const { panels, view } = now();
  download(await asPicture(panels, panels.map(({ klass }) => `${view.name}: ${treeOf(klass).name}`)), fileName(view.name, "-seen.png"));
});
byId("save-json").addEventListener("click", () => downloadJson(findingsNow(), fileName(now().view.name, "-findings.json")));
byId("save-coco").addEventListener("click", () => downloadJson(cocoNow(), fileName(now().view.name, "-coco.json")));
byId("save-reviews").addEventListener("click", () => downloadJson(reviewsNow(), fileName(data.title, "-reviews.json")));
byId("save-reviews-coco").addEventListener("click", async () =>
  downloadJson(await reviewedCoco(), fileName(data.title, "-reviews-coco.json")));
