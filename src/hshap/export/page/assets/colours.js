/* Colour maps that keep their order in grey and for colour-blind readers. */

/** @type {Record<string, string>} */
export const MAPS = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  inferno: "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4",
};
/** The colours of the map of pixels, as in the pictures of Python. */
export const USUAL = "inferno";
const STOPS = Object.fromEntries(
  Object.entries(MAPS).map(([name, text]) => [
    name,
    text.split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16))),
  ]),
);

/** The darkest colours of a map are left out: a thin line in them is lost on a dark image. */
const LEAST = 0.4;

/** Red, green and blue of a strength from 0 to 1.
    @param {string} name
    @param {number} strength
    @param {number} least the part of the map that is left out
    @returns {number[]} */
export function colourAt(name, strength, least = LEAST) {
  const stops = STOPS[name];
  const place = (least + (1 - least) * Math.min(Math.max(strength, 0), 1)) * (stops.length - 1);
  const before = Math.min(Math.floor(place), stops.length - 2);
  return stops[before].map((a, i) => Math.round(a + (stops[before + 1][i] - a) * (place - before)));
}

/** A colour as one 32-bit number, as the pixels of an ImageData store it.
    @param {number} red
    @param {number} green
    @param {number} blue */
export const packed = (red, green, blue, alpha = 255) =>
  ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Colours of a map with two sides, from the most negative value to the most positive. */
const BOTH = "coolwarm";
STOPS[BOTH] = [[59, 76, 192], [124, 159, 249], [192, 212, 245], [242, 203, 183], [238, 132, 104], [180, 4, 38]];

/** Red, green and blue of a pixel of the map, from -1 to 1; all colours are of one side but where
    some pixel is negative.
    @param {string} name
    @param {number} value
    @param {boolean} hasNegative */
export const pixelColour = (name, value, hasNegative) =>
  (hasNegative ? colourAt(BOTH, (1 + value) / 2, 0) : colourAt(name, value, 0));

/* Outlines: in colour inside and dark outside, visible on any background. */
export const DARK = packed(0, 0, 0, 200);
/** The area that keeps the promise of a calibration. */
export const MARKED = packed(0, 158, 115);
export const TRUTH = packed(86, 180, 233);
export const PART = packed(240, 228, 66);
export const VISITED = packed(150, 150, 150, 200);
export const BOX = "#e69f00";

/** The colour map that is farthest from the colours of an image, so that it can be told from them.

    The colours of a map count from its middle on: strong findings have these.
    @param {Uint8ClampedArray | null} pixels red, green, blue and opacity of some pixels
    @returns {string} */
export function farthestMap(pixels) {
  if (pixels === null) return "viridis";
  const distances = Object.keys(MAPS).map((name) => {
    const colours = [0.5, 0.75, 1].map((place) => colourAt(name, place));
    let sum = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      sum += Math.min(...colours.map(([r, g, b]) =>
        Math.hypot(r - pixels[i], g - pixels[i + 1], b - pixels[i + 2])));
    }
    return { name, sum };
  });
  return distances.reduce((best, one) => (one.sum > best.sum ? one : best)).name;
}
