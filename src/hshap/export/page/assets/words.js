/* All text of the page that follows from its state, and the meaning of its words. */

import { byId, count, few, make, share } from "./dom.js";
import { agreement, isSplit } from "./findings.js";
import { entries, isAsRun, now, resultOf, state, treeOf } from "./state.js";

/** @type {Record<string, string>} */
export const WORDS = {
  finding: "an area that raises the score of the model; areas that touch are one finding",
  map: "how much each pixel adds to the score over that of the baseline: all pixels add up to what the findings " +
    "explain. It is that of the run: at other limits, the outlines of the findings are shown",
  "enough alone": "the map of areas that raise the score while everything else is hidden",
  "cannot be missing": "the map of areas without which the score falls, while everything else is shown",
  strength: "how much an area raises the score, on average over all choices of shown areas (its Shapley " +
    "coefficient), in the unit of the score; that of a finding is its part of the map, where areas were checked in " +
    "several contexts. It is not the chance that the finding is right",
  "how sure": "what the checks of this run say. \"supported\": no check raised a concern, which is no proof. " +
    "\"look twice\": one did, but the findings stand. \"do not trust\": the findings may be in the wrong place. " +
    "\"negative\": the model does not decide for the class, so there was nothing to explain",
  "checked area": "an area that was hidden from the model and shown to it, to see how the score changes",
  score: "the number that the model gives this image for this class; its unit is the model's own",
  baseline: "the image with every pixel hidden: the model's score for it is the score without any evidence",
  missed: "the most that any checked area outside the findings adds to the score by itself. Smaller areas inside " +
    "it were not checked",
  truth: "the objects that should be found, drawn by people; only some images have it",
  overlap: "the area that two markings share, divided by the area of both together: 1 if they are equal",
  window: "the grey values that are shown black and white; all values between them are shades of grey",
};
/** The maps of a run whose areas were checked in several contexts. @type {Record<keyof ClassMaps, string>} */
export const CONTEXTS = { all: "All contexts", alone: "Enough alone", missing: "Cannot be missing" };
/** The word of a run without a concern. */
export const SUPPORTED = "supported";
/** Words for a badge, with its colour. @type {Record<string, string>} */
const BADGES = { [SUPPORTED]: "good", "look twice": "fair", "do not trust": "poor", negative: "quiet" };

/** The badge of an image that was looked at and not explained. */
export const NEGATIVE = "negative";

/** Whether a verdict rests on a concern: a negative image raises none.
    @param {string} sure */
export const isConcern = (sure) => sure !== SUPPORTED && sure !== NEGATIVE;

/** A word with its meaning, which shows on hover and focus.
    @param {string} key
    @param {string} text */
export const word = (key, text = key) => make("abbr", { title: WORDS[key], textContent: text });

/** The badge for how sure a run is.
    @param {string} sure
    @param {string} why */
export const badge = (sure, why = "") => make("span", {
  className: `badge ${BADGES[sure] ?? "fair"}`, textContent: sure,
  title: `${why ? `${why}. ` : ""}How sure: ${WORDS["how sure"]}`,
});

/** The first line for a class: its name, scores and findings, how sure, and possibly missed areas.
    @param {number} klass */
function firstLine(klass) {
  const tree = treeOf(klass);
  const { findings, share: part } = resultOf(klass);
  const changed = isAsRun() ? "" : " at these limits";
  if (tree.sure === NEGATIVE) {
    return make("p", { className: "line" },
      make("strong", { textContent: tree.name }), ": ", word("score"), ` ${few(tree.score)}, `,
      word("baseline"), ` ${few(tree.baseline)}. `, badge(tree.sure, tree.why), ` ${tree.why}.`);
  }
  return make("p", { className: "line" },
    make("strong", { textContent: tree.name }), ": ", word("score"), ` ${few(tree.score)}, `,
    word("baseline"), ` ${few(tree.baseline)}. `,
    make("strong", { textContent: count(findings.length, "finding") }), ` on ${share(part)} of the image${changed}. `,
    word("how sure", "How sure"), ": ", badge(tree.sure, tree.why), ` ${tree.why}. `,
    word("missed", "May be missed"), `: ${tree.missed}`);
}

/** The concerns about the classes that are shown, after the one beside the badge; Python has written them. */
function concerns() {
  const start = isAsRun() ? "Also" : "Also, about the run as it was";
  return state.shown.flatMap((klass) => {
    const { name, concerns: found } = treeOf(klass);
    const about = state.shown.length > 1 ? ` (${name})` : "";
    return found.map((text) => `${start}${about}: ${text}`);
  }).join("\n");
}

/** How many images of the page have a concern; empty if none has. */
function galleryConcerns() {
  const some = entries.filter((one) => one.classes.some((klass) => isConcern(klass.sure))).length;
  return some ? `${some} of ${count(entries.length, "image")} ${some === 1 ? "has" : "have"} a concern: see "Show", and open the image` : "";
}

/** Write the lines above the image. */
export function writeFirst() {
  const isGallery = state.number === null;
  byId("first").replaceChildren(...(isGallery ? [] : state.shown.map(firstLine)));
  const text = isGallery ? galleryConcerns() : concerns();
  byId("concerns").textContent = text;
  byId("concerns").hidden = text === "";
}

/** Write the status line and the captions of the panels. */
export function writePanels() {
  const { panels, view } = now();
  const [a, b] = state.shown;
  const both = state.shown.length === 2
    ? `${treeOf(a).name} and ${treeOf(b).name} overlap by ${agreement(view, resultOf(a), resultOf(b)).toFixed(2)}` : "";
  byId("found").textContent = state.said ?? both;
  for (const panel of panels) {
    const result = resultOf(panel.klass);
    panel.element.classList.toggle("current", state.shown.length > 1 && panel.klass === state.current);
    const overlap = result.overlap === null ? "" : `, overlap with the truth ${result.overlap.toFixed(2)}`;
    const where = view.axes === 3 ? `, ${["plane", "row", "column"][panel.axis]} ${state.at[panel.axis]}` : "";
    /** @type {HTMLElement} */ (panel.caption.lastChild).textContent =
      `${count(result.findings.length, "finding")}, ${share(result.share)}${overlap}${where}`;
  }
}

/** The state of a region in words.
    @param {Tree} tree
    @param {Result} result
    @param {number} region */
export function stateOf(tree, result, region) {
  if (result.leaves.includes(region)) return "finding";
  if (region === tree.root) return "the whole image";
  return result.holds[region] ? "contains findings" : "checked, no finding";
}

/** A region as a place in the tree.
    @param {Tree} tree
    @param {number[]} path */
export function placeOf(tree, path) {
  const steps = path.slice(1).map((region, i) => {
    const parts = tree.gameOf[path[i]]?.parts ?? [];
    return `${parts.indexOf(region) + 1}/${parts.length}`;
  });
  return steps.length ? `level ${steps.length}: image › ${steps.join(" › ")}` : "the whole image";
}

/** How a region was divided.
    @param {Tree} tree
    @param {number} region */
export function divisionOf(tree, region) {
  const own = tree.gameOf[region];
  if (own === null || !isSplit(tree, region, () => false)) return null;
  return `into ${count(own.parts.length, "area")}: together they add ${few(own.total)}, ` +
    `the best one alone ${few(Math.max(...own.alone))}`;
}

byId("words").append(...Object.entries(WORDS).flatMap(([key, text]) =>
  [make("dt", { textContent: key }), make("dd", { textContent: text })]));
