/* Colours, as in the pictures of Python: maps that keep their order in grey and for colour-blind
   readers, and outlines that are visible on any background. */

/** @type {Record<string, number[][]>} */
const STOPS = Object.fromEntries(Object.entries({
  inferno: "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4",
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  coolwarm: "3b4cc0 7c9ff9 c0d4f5 f2cbb7 ee8468 b40426", // of maps with two sides
}).map(([key, text]) => [key, text.split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)))]));
const MAPS = ["inferno", "viridis", "cividis"];

/** Red, green and blue of a place from 0 to 1 in a map.
    @param {string} map
    @param {number} place
    @returns {number[]} */
function colourAt(map, place) {
  const stops = STOPS[map];
  const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1);
  const before = Math.min(Math.floor(at), stops.length - 2);
  return stops[before].map((a, i) => Math.round(a + (stops[before + 1][i] - a) * (at - before)));
}

/** Red, green and blue of a value of the map from -1 to 1; two sides if any value is negative.
    @param {string} map
    @param {number} value
    @param {boolean} hasNegative */
const valueColour = (map, value, hasNegative) =>
  (hasNegative ? colourAt("coolwarm", (1 + value) / 2) : colourAt(map, value));

/** A colour as one 32-bit number, as the pixels of an ImageData store it.
    @param {number} red
    @param {number} green
    @param {number} blue */
const packed = (red, green, blue, alpha = 255) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;

const DARK = packed(0, 0, 0, 200);
const LEAF = packed(255, 255, 255);
/** The area that keeps the promise of a calibration. */
const MARKED = packed(0, 158, 115);
const TRUTH = packed(86, 180, 233);
const CHOSEN = packed(240, 228, 66);
const CHECKED = packed(150, 150, 150, 200);
const BOX = "#e69f00";
