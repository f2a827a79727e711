/* Files to save: the picture as it is shown, and the boxes as JSON. */

function download(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A name that is valid on any file system. */
const fileName = (name, ending) =>
  (name.replace(/\.[a-z0-9]{1,5}$/i, "").replace(/[^\w.-]+/g, "_").slice(0, 80) || "hshap") + ending;

/** The panels side by side, with the names of their classes. */
function asPicture(panels, names) {
  const line = Math.round(24 * devicePixelRatio);
  const width = panels.reduce((sum, panel) => sum + panel.image.width, 0);
  const height = Math.max(...panels.map((panel) => panel.image.height)) + line;
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#111";
  context.font = `${Math.round(0.55 * line)}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  let left = 0;
  panels.forEach((panel, i) => {
    context.fillText(names[i], left + 6, line / 2, panel.image.width - 12);
    context.drawImage(panel.image, left, line);
    context.drawImage(panel.overlay, left, line);
    left += panel.image.width;
  });
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Boxes and leaves of the classes that are shown; corners are [row, column]. */
function asBoxes(view, trees, results, asked) {
  const corners = ([top, left, bottom, right]) => ({ start: [top, left], stop: [bottom, right] });
  return {
    format: "hshap boxes",
    image: view.name,
    grid: [view.height, view.width],
    classes: trees.map((tree, i) => ({
      name: tree.name,
      reading: limitsFor(tree, asked),
      measure: tree.measure,
      boxes: results[i].findings.map(({ box, score, area }) => ({ ...corners(box), score, area })),
      leaves: results[i].leaves.map((leaf) => ({
        ...corners(around(view, cellsOf(tree, leaf))),
        coefficient: tree.weight[leaf],
        area: tree.sizes[leaf],
      })),
    })),
  };
}
