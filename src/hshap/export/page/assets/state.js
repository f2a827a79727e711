/* The state of the page, the image that is open, and the address behind the # that leads there. */

const MOST_SHOWN = 4;

/** @type {State} */
const state = {
  number: null,
  tolerance: null,
  layers: { map: true, leaves: false, boxes: false, truth: true, checked: false },
  hidden: false,
  opacity: 0.85,
  colours: MAPS[0],
  side: "both",
  shown: [],
  current: 0,
  hover: null,
  finding: -1,
  at: [0, 0, 0],
  window: [0, 255],
  said: null,
};

/** The image that is open; null in the gallery and while one is loaded.
    @type {{ opened: Opened | null }} */
const live = { opened: null };

/** The image that is open; called only while there is one. @returns {Opened} */
function now() {
  if (live.opened === null) throw new Error("no image is open");
  return live.opened;
}

/** @param {number} klass */
const klassOf = (klass) => now().view.classes[klass];
/** @param {number} klass */
const resultOf = (klass) => now().results[klass];

/** The map of a class where it is shown.
    @param {number} klass
    @returns {PixelMap | null} */
const mapOf = (klass) => (state.layers.map && !state.hidden ? klassOf(klass).maps[state.side] ?? null : null);

/** Find the findings of the open image at the current tolerance. */
function recompute() {
  const { view } = now();
  now().results = view.classes.map((klass) => resultAt(view, klass, state.tolerance));
  if (state.finding >= resultOf(state.current).findings.length) state.finding = -1;
}

/** A page inside a notebook has no address of its own. */
const hasAddress = location.protocol !== "about:";

/** The names of images in addresses: a name that is used twice gets a number.
    @type {string[]} */
const addresses = [];
/** @type {Map<string, number>} */
const used = new Map();
for (const entry of entries) {
  const times = (used.get(entry.name) ?? 0) + 1;
  used.set(entry.name, times);
  addresses.push(times === 1 ? entry.name : `${entry.name}~${times}`);
}

/** Write the address of the page as it is now; `isStep` makes one that Back leaves again.
    @param {boolean} isStep */
function writeAddress(isStep) {
  if (!hasAddress) return;
  const fields = new URLSearchParams();
  if (state.number !== null) fields.set("image", addresses[state.number]);
  if (state.number !== null && state.current) fields.set("class", String(state.current + 1));
  if (state.number !== null && state.finding >= 0) fields.set("finding", String(state.finding + 1));
  if (state.number !== null && state.tolerance !== null) fields.set("tolerance", String(state.tolerance));
  const address = `#${fields}`;
  if (address === (location.hash || "#")) return;
  history[isStep ? "pushState" : "replaceState"](null, "", address);
}

/** The image, class, finding and tolerance of the address of the page. */
function readAddress() {
  const fields = new URLSearchParams(hasAddress ? location.hash.slice(1) : "");
  /** @type {(key: string) => number | null} */
  const numberIn = (key) => {
    const text = fields.get(key);
    return text === null || text === "" || !Number.isFinite(Number(text)) ? null : Number(text);
  };
  const number = addresses.indexOf(fields.get("image") ?? "");
  return {
    number: number === -1 ? null : number,
    current: Math.max(0, (numberIn("class") ?? 1) - 1),
    finding: Math.max(-1, (numberIn("finding") ?? 0) - 1),
    tolerance: numberIn("tolerance"),
  };
}
