/* Pictures: the image in several sizes, the map of cells, and how both come onto a canvas. */

const MOST_MIP_PIXELS = 64e6;

/** The bytes of a block of base64. */
function bytesOf(id) {
  const text = atob(byId(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** Which cell each pixel belongs to, line by line. */
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

/** The image of a view, decoded. */
async function loadImage(number) {
  const image = new Image();
  image.src = "data:image/png;base64," + byId(`image-${number}`).textContent;
  await image.decode();
  return image;
}

/** The image, and on demand its halves, quarters and so on: far views draw few pixels. */
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

/** Draw the part of an image that is seen, pixels as squares once they are larger than one. */
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

/** The cell below every pixel of the screen; `none` where there is no image. */
function cellsOnScreen(cells, view, camera, width, height, none) {
  const out = new Int32Array(width * height).fill(none);
  const columns = Int32Array.from({ length: width }, (_, i) => {
    const column = Math.floor(camera.x + (i + 0.5) / camera.scale);
    return column < 0 || column >= view.width ? -1 : column;
  });
  let before = -1;
  for (let j = 0, at = 0; j < height; j++, at += width) {
    const row = Math.floor(camera.y + (j + 0.5) / camera.scale);
    if (row < 0 || row >= view.height) continue;
    if (row === before) {
      out.copyWithin(at, at - width, at);
      continue;
    }
    before = row;
    const line = row * view.width;
    for (let i = 0; i < width; i++) if (columns[i] >= 0) out[at + i] = cells[line + columns[i]];
  }
  return out;
}

/** Fill by cell, then outlines where groups of cells meet.

    A layer of outlines has `groups` by cell, -1 for none, and colours `inside` and `outside`. Cells
    and groups have one more entry, for what lies off the image. */
function paintCells(target, onScreen, width, height, fill, layers, thick) {
  const out = new Uint32Array(target.data.buffer);
  for (let i = 0; i < onScreen.length; i++) out[i] = fill[onScreen[i]];
  if (!layers.length) return;
  const reach = [];
  for (let k = 1; k <= thick; k++) reach.push(k);
  for (let j = 0, i = 0; j < height; j++) {
    for (let column = 0; column < width; column++, i++) {
      const cell = onScreen[i];
      for (const k of reach) {
        const left = column >= k ? onScreen[i - k] : cell;
        const right = column + k < width ? onScreen[i + k] : cell;
        const above = j >= k ? onScreen[i - k * width] : cell;
        const below = j + k < height ? onScreen[i + k * width] : cell;
        if (left === cell && right === cell && above === cell && below === cell) continue;
        for (const { groups, inside, outside, dashed } of layers) {
          const own = groups[cell];
          if (
            groups[left] === own && groups[right] === own &&
            groups[above] === own && groups[below] === own
          ) continue;
          if (dashed && ((column + j) >> 2) & 1) continue;
          if (own !== -1) out[i] = inside;
          else if (k === 1 && outside) out[i] = outside;
        }
      }
    }
  }
}
