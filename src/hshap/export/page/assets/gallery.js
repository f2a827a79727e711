/* The gallery: a card for each image, sorted and filtered by its findings.

   Cards know the run as it was from the index. In a page of one file, they follow the sliders. */

import { boxIn } from "./cells.js";
import { byId, count, few, inkOf, make, share } from "./dom.js";
import { resultAt } from "./findings.js";
import { data, loadThumb, loadView } from "./parts.js";
import { strokeBoxes } from "./stage.js";
import { entries, isAsRun, state } from "./state.js";
import { badge, isConcern, NEGATIVE, SUPPORTED } from "./words.js";

const THUMB = 220;
const WORST = ["do not trust", "look twice", SUPPORTED, NEGATIVE];
/** @typedef {Entry["classes"][number]} Facts */
/** @typedef {{ number: number, element: HTMLLIElement, canvas: HTMLCanvasElement, text: HTMLElement, sure: HTMLElement, isNear: boolean, facts: Facts[] }} Card */

/** @type {(card: Card, key: "share" | "count" | "largest" | "score" | "overlap") => number} */
const most = (card, key) => Math.max(-1, ...card.facts.map((one) => one[key] ?? -1));
/** @type {(card: Card) => string} */
const worst = (card) => WORST.find((sure) => card.facts.some((one) => one.sure === sure)) ?? SUPPORTED;
/** @type {Record<string, [string, ((card: Card) => number) | null]>} */
const ORDERS = {
  order: ["as given", (card) => card.number],
  name: ["name", null],
  share: ["area of findings", (card) => -most(card, "share")],
  findings: ["number of findings", (card) => -most(card, "count")],
  largest: ["highest strength", (card) => -most(card, "largest")],
  score: ["score of the model", (card) => -most(card, "score")],
  sure: ["how sure, worst first", (card) => WORST.indexOf(worst(card))],
  overlap: ["overlap with the truth, worst first", (card) => most(card, "overlap") < 0 ? 2 : most(card, "overlap")], // last: no objects
};

/** The views of a page of one file, once the sliders need them.
    @type {Promise<View[]> | null} */
let all = null;
export const allViews = () => (all ??= Promise.all(entries.map((_, number) => loadView(number))));
/** Whether the sliders change the gallery, too. */
export const followsSliders = data.folder === null;

/** Build the cards; a click calls `open(number)`.
    @param {(number: number) => void} open */
export function makeGallery(open) {
  const names = [...new Set(entries.flatMap((entry) => entry.classes.map((one) => one.name)))];
  const hasTruth = entries.some((entry) => entry.classes.some((one) => one.overlap !== null));
  byId("sort").append(...Object.entries(ORDERS)
    .filter(([key]) => key !== "overlap" || hasTruth)
    .map(([value, [textContent]]) => make("option", { value, textContent })));
  byId("filter-class").append(make("option", { value: "", textContent: "any" }),
    ...names.map((name) => make("option", { value: name, textContent: name })));
  // Pictures of cards that are far away are dropped, so a long gallery needs little memory.
  const near = new IntersectionObserver((changes) => {
    for (const { target, isIntersecting } of changes) {
      const card = cards[Number(/** @type {HTMLElement} */ (target).dataset["number"])];
      card.isNear = isIntersecting;
      if (isIntersecting) drawCard(card);
      else card.canvas.width = card.canvas.height = 0;
    }
  }, { rootMargin: "400px" });
  const cards = entries.map((entry, number) => {
    const canvas = make("canvas", { width: 0, height: 0, role: "img" });
    const text = make("span", { className: "small" });
    const sure = make("span", {});
    const button = make("button", { type: "button", className: "card" }, canvas,
      make("strong", { textContent: entry.name, title: entry.name }), text, sure);
    const element = make("li", {}, button);
    element.dataset["number"] = String(number);
    button.addEventListener("click", () => open(number));
    near.observe(element);
    return /** @type {Card} */ ({ number, element, canvas, text, sure, isNear: false, facts: [] });
  });

  /** Give the cards their facts at the current limits, and arrange them. */
  async function update() {
    const views = followsSliders && !isAsRun() ? await allViews() : null;
    const name = byId("filter-class").value;
    for (const card of cards) {
      const entry = entries[card.number];
      card.facts = entry.classes.flatMap((facts, klass) => {
        if (name !== "" && facts.name !== name) return [];
        return [views === null ? facts : factsAt(views[card.number], klass, facts)];
      });
      const parts = [`${count(most(card, "count"), "finding")} on ${share(most(card, "share"))}`];
      if (most(card, "overlap") >= 0) parts.push(`overlap ${most(card, "overlap").toFixed(2)}`);
      const isNegative = card.facts.length > 0 && worst(card) === NEGATIVE;
      const found = isNegative ? `not explained, score ${few(card.facts[0].score)}` : parts.join(", ");
      card.text.textContent = card.facts.length ? found : "not explained for this class";
      card.sure.replaceChildren(...(card.facts.length ? [badge(worst(card))] : []));
      card.canvas.setAttribute("aria-label", `${entry.name}: ${card.text.textContent}`);
      if (card.isNear) drawCard(card);
    }
    arrange();
  }

  function arrange() {
    const [, rank] = ORDERS[byId("sort").value];
    const words = byId("search").value.toLowerCase();
    const kind = byId("filter").value;
    const keeps = (/** @type {Card} */ card) => {
      const isFound = card.facts.some((one) => one.count > 0);
      return entries[card.number].name.toLowerCase().includes(words) && card.facts.length > 0 &&
        (kind === "all" || (kind === "found" && isFound) || (kind === "empty" && !isFound) ||
          (kind === "concern" && isConcern(worst(card))) ||
          (kind === "unfinished" && card.facts.some((one) => one.unfinished)));
    };
    /** @type {(a: Card, b: Card) => number} */
    const byName = (a, b) => entries[a.number].name.localeCompare(entries[b.number].name, undefined, { numeric: true });
    const sorted = [...cards].sort(rank === null ? byName : (a, b) => rank(a) - rank(b) || a.number - b.number);
    const kept = sorted.filter(keeps);
    byId("cards").replaceChildren(...kept.map((card) => card.element));
    byId("count").textContent = `${kept.length} of ${count(cards.length, "image")}`;
  }

  byId("filters").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
  return { update, arrange };
}

/** The facts of a class at the current limits.
    @param {View} view
    @param {number} klass
    @param {Facts} facts
    @returns {Facts} */
function factsAt(view, klass, facts) {
  const result = resultAt(view, view.trees[klass], state.asked);
  const boxes = result.findings.flatMap(({ box }) => boxIn(view, box, 0));
  return { ...facts, count: result.findings.length, share: result.share, largest: result.findings[0]?.score ?? 0, overlap: result.overlap, boxes };
}

/** Draw the small picture with the boxes of the findings.
    @param {Card} card */
async function drawCard(card) {
  const picture = await loadThumb(card.number).catch(() => null);
  if (picture === null || !card.isNear) return;
  const [width, height] = [2 * THUMB, 2 * THUMB];
  Object.assign(card.canvas, { width, height });
  const context = inkOf(card.canvas);
  const [wide, high] = [...entries[card.number].size].reverse();
  const scale = Math.min(width / wide, height / high);
  const [left, top] = [(width - wide * scale) / 2, (height - high * scale) / 2];
  context.imageSmoothingEnabled = scale < 2;
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, left, top, wide * scale, high * scale);
  picture.close();
  const boxes = card.facts.flatMap(({ boxes: flat }) =>
    Array.from({ length: flat.length / 4 }, (_, i) => ({ box: flat.slice(4 * i, 4 * i + 4) })));
  strokeBoxes(context, boxes, { x: -left / scale, y: -top / scale, scale, ratio: 1 }, 3, Infinity);
}
