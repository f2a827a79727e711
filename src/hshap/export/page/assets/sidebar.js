/* The sidebar: the region under the pointer, and the list of findings with its review. */

import { count, few, make } from "./dom.js";
import { around, cellsOf, pathTo } from "./findings.js";
import { boxInOriginal } from "./place.js";
import { keepReview, reviewOf } from "./review.js";
import { divisionOf, placeOf, stateOf, word } from "./words.js";

const MOST_ROWS = 100;

/** @param {string | Node} name
    @param {string} value */
const term = (name, value) => [make("dt", {}, name), make("dd", { textContent: value })];

/** A box of the original image in words.
    @param {Box} box */
export function boxText(box) {
  const axes = box.length / 2;
  const names = ["z", "y", "x"].slice(-axes);
  return names.map((name, i) => `${name} ${box[i]} to ${box[axes + i]}`).reverse().join(", ");
}

/** Width and height of a box in the unit of the pixel size; empty if that is not known.
    @param {ViewTable} view
    @param {Box} box */
export function sizeText({ pixelSize, unit }, box) {
  if (pixelSize === null) return "";
  const sides = pixelSize.map((side, axis) => few((box[pixelSize.length + axis] - box[axis]) * side));
  return `, ${sides.reverse().join(" x ")} ${unit}`;
}

/** A region in words: its strength, its place, its own areas, and the game that it plays in.
    @param {View} view
    @param {Tree} tree
    @param {Result} result
    @param {number} region */
export function describeRegion(view, tree, result, region) {
  const above = tree.parent[region];
  const played = above === -1 ? null : tree.gameOf[above];
  const division = divisionOf(tree, region);
  const at = boxInOriginal(view, around(view, cellsOf(tree, region)));
  const list = make("dl", {},
    ...term(word("strength", "Strength"), few(tree.weight[region]) +
      (tree.error[region] ? ` ± ${few(tree.error[region])}` : "")),
    ...term("State", stateOf(tree, result, region)),
    ...term("Where", at === null ? "beside the original image" : boxText(at) + sizeText(view, at)),
    ...term("Pixels that the model saw", String(tree.sizes[region])),
    ...term("Place", placeOf(tree, pathTo(tree, region))),
    ...(division === null ? [] : term("Divided", division)));
  return played === null ? [list] : [list, gameTable(played, played.parts.indexOf(region))];
}

/** The values of a game: the model's score for every choice of shown areas.
    @param {Game} game
    @param {number} player */
function gameTable(game, player) {
  if (game.values === null) {
    return make("p", { className: "small", textContent:
      `One of ${game.parts.length} areas. Alone it adds ${few(game.alone[player])} to the score; all together add ${few(game.total)}.` });
  }
  const players = game.parts.length;
  const low = Math.min(...game.values);
  const width = Math.max(...game.values) - low || 1;
  const rows = game.values.map((value, coalition) => {
    const shown = Array.from({ length: players }, (_, i) => (coalition >> i) & 1);
    const words = shown.flatMap((on, i) => (on ? [i + 1] : [])).join(", ") || "none";
    const bar = make("span", { className: "bar" });
    bar.style.width = `${(100 * (value - low)) / width}%`;
    return make("tr", { className: shown[player] ? "with" : "" },
      make("td", {}, make("span", { "aria-hidden": "true", textContent: shown.map((on) => (on ? "●" : "○")).join("") }),
        make("span", { className: "aloud", textContent: words })),
      make("td", { textContent: few(value) }),
      make("td", { "aria-hidden": "true" }, bar));
  });
  return make("table", { className: "game" },
    make("caption", { textContent: `Score of the model with some areas shown; this is area ${player + 1} of ${players}` }),
    make("thead", {}, make("tr", {},
      ...["Shown", "Score"].map((text) => make("th", { scope: "col", textContent: text })), make("td"))),
    make("tbody", {}, ...rows));
}

/** The findings, the strongest first: a click goes there; the current one can be reviewed.
    @param {View} view
    @param {Tree} tree
    @param {Result} result
    @param {number} current
    @param {{ go(i: number): void, judge(i: number, review: Partial<Review>): void }} on */
export function listFindings(view, tree, { findings }, current, on) {
  if (!findings.length) return [make("p", { className: "small", textContent: "No finding at these limits." })];
  const last = Math.max(MOST_ROWS, current + 1);
  const items = findings.slice(0, last).map((finding, i) => {
    const review = reviewOf(tree.identity, finding);
    const verdict = review?.verdict ?? "";
    const aloud = (/** @type {string} */ text) => make("span", { className: "aloud", textContent: text });
    const button = make("button", { type: "button", className: "go", id: `finding-${i + 1}`, "aria-current": String(i === current) },
      make("span", { className: "number" }, aloud("Finding "), String(i + 1)),
      make("span", { className: "strength" }, aloud(", strength "), few(finding.score)),
      make("span", { className: "small" }, aloud(", at "), boxText(finding.at) + sizeText(view, finding.at)),
      make("span", { className: `verdict ${verdict}`, textContent: verdict + (review?.note ? " ✎" : "") }));
    button.addEventListener("click", () => on.go(i));
    return make("li", {}, button, ...(i === current ? [reviewForm(i, review, on.judge)] : []));
  });
  const out = [make("ol", { className: "list" }, ...items)];
  if (findings.length <= last) return out;
  return [...out, make("p", { className: "small", textContent: `and ${count(findings.length - last, "more finding")}; the saved files have all of them` })];
}

/** @param {number} i
    @param {Review | null} review
    @param {(i: number, review: Partial<Review>) => void} judge */
function reviewForm(i, review, judge) {
  const choice = (/** @type {"accepted" | "rejected"} */ verdict, /** @type {string} */ text) => {
    const isOn = review?.verdict === verdict;
    const button = make("button", { type: "button", id: `review-${verdict}`, textContent: text, "aria-pressed": String(isOn) });
    button.addEventListener("click", () => judge(i, { verdict: isOn ? null : verdict }));
    return button;
  };
  const note = make("textarea", {
    id: "review-note", rows: 2, maxLength: 2000, value: review?.note ?? "",
    placeholder: "Note", "aria-label": `Note on finding ${i + 1}`,
  });
  note.addEventListener("change", () => judge(i, { note: note.value }));
  return make("div", { className: "review", role: "group", "aria-label": `Review of finding ${i + 1}` },
    choice("accepted", "Accept (a)"), choice("rejected", "Reject (r)"), note);
}

/** Keep a part of a finding's review, and leave the rest as it was.
    @param {Tree} tree
    @param {Finding} finding
    @param {Asked} asked
    @param {Partial<Review>} change */
export function judgeFinding(tree, finding, asked, change) {
  const before = reviewOf(tree.identity, finding) ?? { verdict: null, note: "" };
  keepReview(tree.identity, finding.key, {
    ...before, ...change, box: finding.at, strength: finding.score, asked: { ...asked },
  });
}
