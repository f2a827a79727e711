/* Files to save: the picture as it is shown, and the findings with their review, as JSON and COCO. */

import { cellOf } from "./cells.js";
import { inkOf, make } from "./dom.js";
import { around, cellsOf, limitsFor } from "./findings.js";
import { boxInOriginal, fromOriginal } from "./place.js";
import { reviewOf } from "./review.js";

/** @param {Blob} blob
    @param {string} name */
export function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** @param {unknown} document
    @param {string} name */
export const downloadJson = (document, name) =>
  download(new Blob([JSON.stringify(document, null, 1)], { type: "application/json" }), name);

/** A name that is valid on any file system.
    @param {string} name
    @param {string} ending */
export const fileName = (name, ending) =>
  (name.replace(/\.[a-z0-9]{1,5}$/i, "").replace(/[^\w.-]+/g, "_").slice(0, 80) || "hshap") + ending;

/** The panels side by side, with the names of their classes.
    @param {Panel[]} panels
    @param {string[]} names
    @returns {Promise<Blob>} */
export function asPicture(panels, names) {
  const line = Math.round(24 * devicePixelRatio);
  const width = panels.reduce((sum, panel) => sum + panel.image.width, 0);
  const height = Math.max(...panels.map((panel) => panel.image.height)) + line;
  const canvas = make("canvas", { width, height });
  const context = inkOf(canvas);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#111";
  context.font = `${Math.round(0.55 * line)}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  let left = 0;
  panels.forEach((panel, i) => {
    context.fillText(names[i], left + 6, line / 2, panel.image.width - 12);
    context.filter = panel.image.classList.contains("grey") ? "grayscale(1)" : "none";
    context.drawImage(panel.image, left, line);
    context.filter = "none";
    context.drawImage(panel.overlay, left, line);
    left += panel.image.width;
  });
  return new Promise((resolve, reject) => canvas.toBlob(
    (blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}

/** The findings and areas of some classes, with the review; corners are [row, column], in pixels of
    the original image.
    @param {View} view
    @param {number[]} klasses
    @param {Result[]} results by class
    @param {Asked} asked */
export function asFindings(view, klasses, results, asked) {
  const corners = (/** @type {Box} */ box) => ({ start: box.slice(0, view.axes), stop: box.slice(view.axes) });
  return {
    format: "hshap findings",
    image: view.name,
    size: view.place.shape,
    grid: view.grid,
    pixelSize: view.pixelSize,
    unit: view.pixelSize === null ? null : view.unit,
    classes: klasses.map((klass) => {
      const tree = view.trees[klass];
      return {
        name: tree.name,
        identity: tree.identity,
        howSure: tree.sure,
        limits: limitsFor(tree, asked),
        measure: tree.measure,
        findings: results[klass].findings.map((finding) => ({
          ...corners(finding.at), score: finding.score, share: finding.area / view.grid.reduce((all, side) => all * side, 1),
          verdict: reviewOf(tree.identity, finding)?.verdict ?? null,
          note: reviewOf(tree.identity, finding)?.note ?? "",
        })),
        leaves: results[klass].leaves.flatMap((leaf) => {
          const at = boxInOriginal(view, around(view, cellsOf(tree, leaf)));
          return at === null ? [] : [{ ...corners(at), coefficient: tree.weight[leaf] }];
        }),
      };
    }),
  };
}

/** The findings of some images that were not rejected, as COCO, exact to the pixel.
    @param {{ view: View, map: CellMap, klasses: number[], findings: (klass: number) => Finding[] }[]} images */
export function asCoco(images) {
  const names = [...new Set(images.flatMap(({ view, klasses }) => klasses.map((klass) => view.trees[klass].name)))];
  const annotations = images.flatMap(({ view, map, klasses, findings }, image) => klasses.flatMap((klass) => {
    const tree = view.trees[klass];
    return findings(klass).flatMap((finding) => {
      const review = reviewOf(tree.identity, finding);
      if (review?.verdict === "rejected") return [];
      const [top, left, bottom, right] = finding.at;
      const counts = countsOf(view, map, finding);
      return [{
        image_id: image + 1, category_id: 1 + names.indexOf(tree.name), iscrowd: 0,
        bbox: [left, top, right - left, bottom - top], score: finding.score,
        area: counts.reduce((sum, run, i) => sum + (i % 2 ? run : 0), 0),
        segmentation: { size: view.place.shape, counts },
        verdict: review?.verdict ?? null, note: review?.note ?? "",
      }];
    });
  }));
  return {
    info: { description: "Findings of hshap, reviewed in its page" },
    licenses: [],
    images: images.map(({ view }, i) => ({ id: i + 1, file_name: view.name, width: view.place.shape[1], height: view.place.shape[0] })),
    categories: names.map((name, i) => ({ id: i + 1, name, supercategory: "" })),
    annotations: annotations.map((one, i) => ({ id: i + 1, ...one })),
  };
}

/** The pixels of the original image whose centre lies in a finding, as COCO counts them: column by
    column, first those outside.
    @param {View} view
    @param {CellMap} map
    @param {Finding} finding */
function countsOf(view, map, finding) {
  const inside = new Set(finding.cells);
  const [top, left, bottom, right] = finding.at;
  const [high, wide] = view.place.shape;
  /** @type {(axis: number, from: number, to: number) => number[]} */
  const seen = (axis, from, to) => Array.from({ length: to - from }, (_, i) => Math.floor(fromOriginal(view, axis, from + i + 0.5)));
  const [rows, columns] = [seen(0, top, bottom), seen(1, left, right)];
  /** @type {number[]} */
  const ends = []; // first and one past the last pixel of each run inside
  columns.forEach((column, i) => rows.forEach((row, j) => {
    if (column < 0 || column >= view.width || row < 0 || row >= view.height) return;
    if (!inside.has(cellOf(map, view, [0, row, column]))) return;
    const place = (left + i) * high + top + j;
    if (ends[ends.length - 1] === place) ends[ends.length - 1]++;
    else ends.push(place, place + 1);
  }));
  const counts = [...ends, high * wide].map((end, i) => end - (i ? ends[i - 1] : 0));
  return counts[counts.length - 1] ? counts : counts.slice(0, -1);
}
