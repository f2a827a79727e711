/* Addresses: every image and finding has one, behind the # of the page's address. Back works. */

import { entries, live, state } from "./state.js";

const LIMITS = /** @type {(keyof Asked)[]} */ (["tolerance", "percentile", "side", "area"]);
/** A page inside a notebook has no address of its own. */
const hasAddress = location.protocol !== "about:";

/** The names of images in addresses: a name that is used twice gets a number.
    @type {string[]} */
const names = [];
/** @type {Map<string, number>} */
const used = new Map();
for (const { name } of entries) {
  const times = (used.get(name) ?? 0) + 1;
  used.set(name, times);
  names.push(times === 1 ? name : `${name}~${times}`);
}

/** The address of the page as it is now. */
export function addressNow() {
  if (state.number === null) return "";
  const fields = new URLSearchParams({ image: names[state.number] });
  if (state.current) fields.set("class", String(state.current + 1));
  if (state.finding >= 0) fields.set("finding", String(state.finding + 1));
  for (const key of LIMITS) if (state.asked[key] !== null) fields.set(key, String(state.asked[key]));
  return fields.toString();
}

/** Write the address; `isStep` makes one that Back leaves again.
    @param {boolean} isStep */
export function writeAddress(isStep) {
  if (!hasAddress) return;
  const address = `#${addressNow()}`;
  if (address === (location.hash || "#")) return;
  history[isStep ? "pushState" : "replaceState"](null, "", address);
}

/** A number of an address; null if it has none.
    @param {string | null} text */
const numberIn = (text) => (text === null || text === "" || !Number.isFinite(Number(text)) ? null : Number(text));

/** The image, class, finding and limits of the address of the page. */
export function readAddress() {
  const fields = new URLSearchParams(hasAddress ? location.hash.slice(1) : "");
  const number = names.indexOf(fields.get("image") ?? "");
  return {
    number: number === -1 ? null : number,
    current: Math.max(0, (numberIn(fields.get("class")) ?? 1) - 1),
    finding: Math.max(-1, (numberIn(fields.get("finding")) ?? 0) - 1),
    asked: {
      tolerance: numberIn(fields.get("tolerance")), percentile: numberIn(fields.get("percentile")),
      side: numberIn(fields.get("side")), area: numberIn(fields.get("area")),
    },
  };
}

/** Call `go` when the user goes back or forward, or writes another address.
    @param {() => void} go */
export function followAddress(go) {
  addEventListener("popstate", () => {
    if (live.opened !== null || state.number === null) go();
  });
}
