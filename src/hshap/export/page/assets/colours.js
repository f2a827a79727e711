/* Colour maps that keep their order in grey and for colour-blind readers. */

const MAPS = {
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  inferno: "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4",
};
const STOPS = Object.fromEntries(
  Object.entries(MAPS).map(([name, text]) => [
    name,
    text.split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16))),
  ]),
);

/** Red, green and blue of a strength from 0 to 1. */
function colourAt(name, strength) {
  const stops = STOPS[name];
  const place = Math.min(Math.max(strength, 0), 1) * (stops.length - 1);
  const before = Math.min(Math.floor(place), stops.length - 2);
  return stops[before].map((a, i) => Math.round(a + (stops[before + 1][i] - a) * (place - before)));
}

/** A colour as one 32-bit number, as the pixels of an ImageData store it. */
const packed = (red, green, blue, alpha = 255) =>
  ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/* Outlines: light inside and dark outside, visible on any background. */
const LIGHT = packed(255, 255, 255);
const DARK = packed(0, 0, 0, 170);
const TRUTH = packed(86, 180, 233);
const PART = packed(240, 228, 66);
const VISITED = packed(150, 150, 150, 200);
const BOX = "#e69f00";
