/* The data of the page, in parts: elements of this file, or files in the folder beside it.

   Everything has three axes here, plane, row and column: a picture has one plane. */

/** @type {PageData} */
const data = JSON.parse(byId("data").textContent);
const entries = data.views;

/** Parts that came with a file and wait to be used.
    @type {Map<string, string>} */
const held = new Map();
window.hshapPart = (key, text) => held.set(key, text);

/** Load a file beside the page. Scripts are the only files that a page without a server can read.
    @param {string} file
    @returns {Promise<void>} */
function loadFile(file) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${encodeURIComponent(data.folder ?? "")}/${file}.js`;
    script.onload = () => { script.remove(); resolve(); };
    script.onerror = () => {
      script.remove();
      reject(new Error(`${data.folder}/${file}.js is missing; if the page was made again, load it again, else keep the folder ${data.folder} beside it`));
    };
    document.head.append(script);
  });
}

/** The text of a part.
    @param {string} key
    @returns {Promise<string>} */
async function textOf(key) {
  if (data.folder === null) return byId(key).textContent;
  if (!held.has(key)) await loadFile(key);
  const text = held.get(key);
  held.delete(key);
  if (text === undefined) throw new Error(`${data.folder}/${key}.js has no ${key}`);
  return text;
}

/** @param {string} text
    @returns {Uint8Array<ArrayBuffer>} */
function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const plain = atob(text);
  const bytes = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) bytes[i] = plain.charCodeAt(i);
  return bytes;
}

/** The bytes of a part.
    @param {string} key */
const bytesOf = async (key) => fromBase64(await textOf(key));

/** Unpack what zlib packed.
    @param {Uint8Array<ArrayBuffer>} bytes
    @returns {Promise<ArrayBuffer>} */
function unpacked(bytes) {
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(plain).arrayBuffer();
}

/** The labels of pixels: each line is stored as its difference from the one above it.
    @param {string} text
    @param {number} most the number of labels
    @param {number[]} grid
    @returns {Promise<Labels>} */
async function unpackLabels(text, most, grid) {
  const buffer = await unpacked(fromBase64(text));
  const kind = most <= 2 ** 8 ? Uint8Array : most <= 2 ** 16 ? Uint16Array : Uint32Array;
  const labels = new kind(buffer);
  const width = grid[2];
  for (let i = width; i < labels.length; i++) labels[i] ^= labels[i - width];
  return labels;
}

/** Unpack a map; one that is 0 everywhere is a map, too: it is an answer.
    @param {PackedMap | null} map
    @param {number[]} grid
    @returns {Promise<PixelMap>} */
async function unpackMap(map, grid) {
  if (map === null) return { top: 0, values: new Int8Array(product(grid)), hasNegative: false };
  const values = new Int8Array(await unpacked(fromBase64(map.values)));
  return { top: map.top, values, hasNegative: values.some((value) => value < 0) };
}

/** The first part of the names of an image's parts.
    @param {number} number */
const homeOf = (number) => entries[number].home;

/** Forget parts of an image that came with its file and were not used.
    @param {number} number */
function forgetParts(number) {
  for (const key of held.keys()) if (key.startsWith(`${homeOf(number)}/`)) held.delete(key);
}

/** Unpack a class: its regions and its maps.
    @param {ClassTable} table
    @param {(list: number[], value: number) => number[]} pad
    @returns {Promise<Klass>} */
async function openClass(table, pad) {
  const grid = pad(table.grid, 1);
  const cells = table.parents.length + table.pieces.length;
  const labels = await unpackLabels(table.labels, cells, grid);
  /** @type {Partial<Record<Side, PixelMap>>} */
  const maps = {};
  if (table.map) maps.both = await unpackMap(table.map, grid);
  for (const side of /** @type {("alone" | "missing")[]} */ (["alone", "missing"])) {
    if (table.sides) maps[side] = await unpackMap(table.sides[side], grid);
  }
  const marked = table.marked === null ? null : { grid, labels: await unpackLabels(table.marked, 2, grid) };
  return { ...table, grid, labels, maps, marked, free: new Set(table.free), ...measureCells(labels, grid, cells) };
}

/** The data of an image.
    @param {number} number
    @returns {Promise<View>} */
async function loadView(number) {
  /** @type {ViewTable} */
  const table = JSON.parse(await textOf(`${homeOf(number)}/view`));
  const axes = table.size.length;
  const pad = (/** @type {number[]} */ list, /** @type {number} */ value) => axes === 2 ? [value, ...list] : list;
  const { shape, start, stop } = table.place;
  const classes = await Promise.all(table.classes.map((one) => openClass(one, pad)));
  const { grid } = classes[0];
  const truth = table.truth === null ? null : { grid, labels: await unpackLabels(table.truth, 2, grid) };
  return {
    ...table, number, home: homeOf(number), axes, classes, truth,
    shown: pad(table.size, 1), sides: pad(table.sides, 1), pixelSize: table.pixelSize && pad(table.pixelSize, 1),
    place: { shape: pad(shape, 1), start: pad(start, 0), stop: pad(stop, 1) },
  };
}

/** The small picture of an image.
    @param {number} number */
const loadThumb = async (number) =>
  createImageBitmap(new Blob([fromBase64(await textOf(`${homeOf(number)}/thumb`))], { type: "image/png" }));
