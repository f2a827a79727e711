/* The image: tiles that are loaded as they come into sight, or the planes of a volume. */

const TILE = 1024;
const MOST_TILES = 40;

/** The image of a view; `changed` is called when more of it can be drawn.
    @param {View} view
    @param {() => void} changed
    @param {(error: Error) => void} failed
    @returns {Source} */
const openImage = (view, changed, failed) =>
  view.axes === 3 ? openVolume(view) : openTiles(view, changed, failed);

/** Grey values from their packed differences.
    @param {Uint8Array<ArrayBuffer>} bytes
    @param {number} bits
    @param {number} width
    @returns {Promise<Uint8Array | Uint16Array>} */
async function greyFrom(bytes, bits, width) {
  const plain = new Uint8Array(await unpacked(bytes));
  if (bits === 8) {
    for (let i = 0; i < plain.length; i++) if (i % width) plain[i] += plain[i - 1];
    return plain;
  }
  const half = plain.length / 2;
  const values = new Uint16Array(half);
  for (let i = 0; i < half; i++) values[i] = (plain[i] << 8 | plain[half + i]) + (i % width ? values[i - 1] : 0);
  return values;
}

/** The grey on the screen for each grey value of an image, as pixels store it.
    @param {ImageTable} image
    @param {number[]} window the numbers that are black and white */
function greysAt({ bits, low, step }, [black, white]) {
  return Uint32Array.from({ length: 2 ** bits }, (_, value) => {
    const place = (low + step * value - black) / (white - black || 1);
    const grey = Math.round(255 * Math.min(Math.max(place, 0), 1));
    return (0xff000000 | grey << 16 | grey << 8 | grey) >>> 0;
  });
}

/** Paint grey values.
    @param {Uint32Array} greys
    @param {number} width
    @param {number} height
    @param {(i: number) => number} valueAt
    @param {HTMLCanvasElement} canvas */
function paintGrey(greys, width, height, valueAt, canvas) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const pixels = new ImageData(width, height);
  const out = new Uint32Array(pixels.data.buffer);
  for (let i = 0; i < out.length; i++) out[i] = greys[valueAt(i)];
  inkOf(canvas).putImageData(pixels, 0, 0);
}

/** Draw the visible part of a picture that stands for a box of the plane; large pixels are squares.
    @param {CanvasRenderingContext2D} context
    @param {CanvasImageSource} source
    @param {number[]} size width and height of the source
    @param {Box} box
    @param {CameraState} camera */
function drawPart(context, source, [width, height], [top, left, bottom, right], { x, y, scale, ratio }) {
  const down = scale * ratio;
  const [across, along] = [width / (right - left), height / (bottom - top)];
  const first = Math.max(0, Math.floor((x - left) * across));
  const last = Math.min(width, Math.ceil((x + context.canvas.width / scale - left) * across));
  const upper = Math.max(0, Math.floor((y - top) * along));
  const lower = Math.min(height, Math.ceil((y + context.canvas.height / down - top) * along));
  if (last <= first || lower <= upper) return;
  // Whole pixels of the screen, so that no line shows between tiles.
  const [toLeft, toRight] = [first, last].map((at) => Math.round((left + at / across - x) * scale));
  const [toTop, toBottom] = [upper, lower].map((at) => Math.round((top + at / along - y) * down));
  context.drawImage(source, first, upper, last - first, lower - upper, toLeft, toTop, toRight - toLeft, toBottom - toTop);
}

/** @typedef {{ values: Uint8Array | Uint16Array | null, picture: ImageBitmap | HTMLCanvasElement, width: number, height: number, painted: string }} Tile */

/** A picture in tiles.
    @param {View} view
    @param {() => void} changed
    @param {(error: Error) => void} failed
    @returns {Source} */
function openTiles(view, changed, failed) {
  const { image } = view;
  const last = image.levels.length - 1;
  /** The tiles that were used last, the newest at the end; null while one is loaded.
      @type {Map<string, Tile | null>} */
  const tiles = new Map();
  let isOpen = true;
  // A large image has fine tiles only around findings; the finest complete level is under them.
  const complete = image.complete ?? 0;
  const present = new Set(image.present ?? []);

  /** @param {number} level @param {number} row @param {number} column @returns {Promise<void>} */
  async function load(level, row, column) {
    const name = `${level}-${row}-${column}`;
    tiles.set(name, null);
    const [high, wide] = image.levels[level];
    const [width, height] = [Math.min(TILE, wide - column * TILE), Math.min(TILE, high - row * TILE)];
    const bytes = await bytesOf(`${view.home}/${name}`);
    /** @type {Tile} */
    const tile = image.kind === "colour"
      ? { values: null, picture: await createImageBitmap(new Blob([bytes], { type: "image/png" })), width, height, painted: "" }
      : { values: await greyFrom(bytes, image.bits, width), picture: make("canvas"), width, height, painted: "" };
    if (!isOpen) return;
    tiles.set(name, tile);
    changed();
  }

  /** @type {{ window: string, greys: Uint32Array }} */
  let shade = { window: "", greys: new Uint32Array() };
  /** A tile that can be drawn; null if it must be loaded first.
      @param {number} level @param {number} row @param {number} column @param {number[]} window */
  function tileAt(level, row, column, window) {
    const name = `${level}-${row}-${column}`;
    const tile = tiles.get(name);
    if (level < complete && !present.has(name)) return null;
    if (tile === undefined) load(level, row, column).catch(failed);
    if (!tile) return null;
    tiles.delete(name);
    tiles.set(name, tile);
    const key = window.join();
    if (tile.values && tile.painted !== key) {
      if (shade.window !== key) shade = { window: key, greys: greysAt(image, window) };
      const { values } = tile;
      paintGrey(shade.greys, tile.width, tile.height, (i) => values[i], /** @type {HTMLCanvasElement} */ (tile.picture));
      tile.painted = key;
    }
    return tile;
  }

  function forget() {
    const names = [...tiles.keys()].filter((name) => !name.startsWith(`${last}-`));
    for (const name of names.slice(0, Math.max(0, names.length - MOST_TILES))) {
      const tile = tiles.get(name);
      if (!tile) continue;
      if (tile.picture instanceof ImageBitmap) tile.picture.close();
      tiles.delete(name);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {number} level @param {CameraState} camera @param {number[]} window */
  function drawLevel(context, level, camera, window) {
    const [high, wide] = image.levels[level];
    const [across, along] = [view.shown[2] / wide, view.shown[1] / high]; // pixels of the image for one of the level
    const [right, bottom] = [camera.x + context.canvas.width / camera.scale, camera.y + context.canvas.height / camera.scale];
    const end = (/** @type {number} */ side) => Math.ceil(side / TILE) - 1;
    for (let row = Math.max(0, Math.floor(camera.y / along / TILE)); row <= Math.min(end(high), Math.floor(bottom / along / TILE)); row++) {
      for (let column = Math.max(0, Math.floor(camera.x / across / TILE)); column <= Math.min(end(wide), Math.floor(right / across / TILE)); column++) {
        const tile = tileAt(level, row, column, window);
        if (tile === null) continue;
        const [top, left] = [row * TILE * along, column * TILE * across];
        drawPart(context, tile.picture, [tile.width, tile.height],
          [top, left, top + tile.height * along, left + tile.width * across], camera);
      }
    }
  }

  return {
    draw(context, _plane, camera, window) {
      context.clearRect(0, 0, context.canvas.width, context.canvas.height);
      context.imageSmoothingEnabled = camera.scale < 1;
      context.imageSmoothingQuality = "high";
      const wanted = Math.min(last, Math.max(0, Math.floor(-Math.log2(camera.scale) + 1e-9)));
      // The coarse picture is there at once; finer tiles follow over it.
      if (wanted < last) drawLevel(context, last, camera, window);
      if (wanted < complete && complete < last) drawLevel(context, complete, camera, window);
      drawLevel(context, wanted, camera, window);
      forget();
    },
    valueAt([, row, column]) {
      const tile = tiles.get(`0-${Math.floor(row / TILE)}-${Math.floor(column / TILE)}`);
      if (!tile || !tile.values) return null;
      return image.low + image.step * tile.values[(row % TILE) * tile.width + (column % TILE)];
    },
    ready: load(last, 0, 0),
    close() {
      isOpen = false;
      for (const tile of tiles.values()) if (tile?.picture instanceof ImageBitmap) tile.picture.close();
      tiles.clear();
    },
  };
}

/** A volume: all its values in memory, and the planes that are shown.
    @param {View} view
    @returns {Source} */
function openVolume({ home, image, shown: [depth, height, width] }) {
  const values = image.bits === 8 ? new Uint8Array(depth * height * width) : new Uint16Array(depth * height * width);
  async function load() {
    for (let slab = 0, at = 0; at < values.length; slab++) {
      const some = await greyFrom(await bytesOf(`${home}/slab-${slab}`), image.bits, width);
      values.set(some, at);
      at += some.length;
    }
  }
  const canvases = [0, 1, 2].map(() => ({ key: "", canvas: make("canvas") }));
  return {
    draw(context, plane, camera, window) {
      context.clearRect(0, 0, context.canvas.width, context.canvas.height);
      context.imageSmoothingEnabled = camera.scale < 1;
      const page = canvases[plane.axis];
      const key = [plane.at, ...window].join();
      if (page.key !== key) {
        page.key = key;
        const size = [height * width, width, 1];
        const steps = size.filter((_, i) => i !== plane.axis);
        const start = plane.at * size[plane.axis];
        paintGrey(greysAt(image, window), plane.columns, plane.rows, (i) => {
          const column = i % plane.columns;
          const row = (i - column) / plane.columns;
          return values[start + (plane.flipped ? plane.rows - 1 - row : row) * steps[0] + column * steps[1]];
        }, page.canvas);
      }
      drawPart(context, page.canvas, [plane.columns, plane.rows], [0, 0, plane.rows, plane.columns], camera);
    },
    valueAt: ([z, y, x]) => image.low + image.step * values[(z * height + y) * width + x],
    ready: load(),
    close() { /* nothing is held elsewhere */ },
  };
}
