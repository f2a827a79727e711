/* Pictures: the image in several sizes, the map of cells, and drawing both on a canvas. */

const MOST_MIP_PIXELS = 64e6;

/** The bytes of a block of base64. */
function bytesOf(id) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(byId(id).textContent);
  const text = atob(byId(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The cell of each pixel, line by line. */
async function loadCells(number, view) {
  const packedRuns = new Blob([bytesOf(`runs-${number}`)]).stream();
  const plain = packedRuns.pipeThrough(new DecompressionStream("deflate"));
  const runs = new Uint32Array(await new Response(plain).arrayBuffer());
  const half = runs.length / 2;
  const Kind = view.areas.length < 65536 ? Uint16Array : Uint32Array;
  const cells = new Kind(view.height * view.width);
  for (let i = 0, at = 0; i < half; i++) {
    const end = at + runs[i];
    cells.fill(runs[half + i], at, end);
    at = end;
  }
  return cells;
}

/** The image of a view, decoded once; browsers may decode an <img> at every drawing. */
const loadImage = (number) =>
  createImageBitmap(new Blob([bytesOf(`image-${number}`)], { type: "image/png" }));

/** The image at full size, and on demand at a half, a quarter and so on, to draw fewer pixels. */
function makePyramid(image) {
  const levels = [image];
  return (scale) => {
    const wanted = Math.max(0, Math.floor(-Math.log2(scale)));
    while (levels.length <= wanted) {
      const last = levels[levels.length - 1];
      const [width, height] = [Math.ceil(last.width / 2), Math.ceil(last.height / 2)];
      if (Math.min(width, height) < 64 || width * height > MOST_MIP_PIXELS) break;
      const canvas = make("canvas", { width, height });
      canvas.getContext("2d").drawImage(last, 0, 0, width, height);
      levels.push(canvas);
    }
    return levels[Math.min(wanted, levels.length - 1)];
  };
}

/** Draw the visible part of an image; enlarged pixels are squares. */
function drawImage(context, pyramid, view, camera) {
  const { width, height } = context.canvas;
  context.clearRect(0, 0, width, height);
  const source = pyramid(camera.scale);
  context.imageSmoothingEnabled = camera.scale < 1;
  context.imageSmoothingQuality = "high";
  const { x, y, scale } = camera;
  const left = Math.max(0, Math.floor(x));
  const top = Math.max(0, Math.floor(y));
  const right = Math.min(view.width, Math.ceil(x + width / scale));
  const bottom = Math.min(view.height, Math.ceil(y + height / scale));
  if (right <= left || bottom <= top) return;
  const [across, down] = [source.width / view.width, source.height / view.height];
  context.drawImage(
    source,
    left * across, top * down, (right - left) * across, (bottom - top) * down,
    (left - x) * scale, (top - y) * scale, (right - left) * scale, (bottom - top) * scale,
  );
}

/** The cell under every pixel of the screen, `none` outside the image, and the pixels within
    `thick` of another cell. Sliders change neither. */
function seeCells(cells, view, camera, width, height, thick) {
  const none = view.areas.length;
  const under = new Int32Array(width * height).fill(none);
  const columns = Int32Array.from({ length: width }, (_, i) => {
    const column = Math.floor(camera.x + (i + 0.5) / camera.scale);
    return column < 0 || column >= view.width ? -1 : column;
  });
  let before = -1;
  for (let j = 0, at = 0; j < height; j++, at += width) {
    const row = Math.floor(camera.y + (j + 0.5) / camera.scale);
    if (row < 0 || row >= view.height) continue;
    if (row === before) {
      under.copyWithin(at, at - width, at);
      continue;
    }
    before = row;
    const line = row * view.width;
    for (let i = 0; i < width; i++) if (columns[i] >= 0) under[at + i] = cells[line + columns[i]];
  }
  const edges = [];
  for (let j = 0, i = 0; j < height; j++) {
    for (let column = 0; column < width; column++, i++) {
      const cell = under[i];
      if (
        (column >= thick && under[i - thick] !== cell) ||
        (column + thick < width && under[i + thick] !== cell) ||
        (j >= thick && under[i - thick * width] !== cell) ||
        (j + thick < height && under[i + thick * width] !== cell)
      ) edges.push(i);
    }
  }
  return { under, edges: Int32Array.from(edges), width, height, thick };
}

/** Fill by cell, then outlines where groups of cells meet.

    A layer of outlines has `groups` by cell, -1 for none, and colours `inside` and `outside`. Cells
    and groups have one more entry, for pixels outside the image. */
function paintCells(target, { under, edges, width, height, thick }, fill, layers) {
  const out = new Uint32Array(target.data.buffer);
  for (let i = 0; i < under.length; i++) out[i] = fill[under[i]];
  for (const { groups, inside, outside, dashed } of layers) {
    for (const i of edges) {
      const own = groups[under[i]];
      const column = i % width;
      const row = (i - column) / width;
      if (dashed && ((column + row) >> 2) & 1) continue;
      if (own === -1 && !outside) continue;
      if (
        (column < thick || groups[under[i - thick]] === own) &&
        (column + thick >= width || groups[under[i + thick]] === own) &&
        (row < thick || groups[under[i - thick * width]] === own) &&
        (row + thick >= height || groups[under[i + thick * width]] === own)
      ) continue;
      out[i] = own === -1 ? outside : inside;
    }
  }
}
