/* The gallery: a card for each image with class, probability and verdict; sorted and filtered. */

const THUMB = 256;
/** Verdicts, the gravest first. */
const GRAVEST = ["do not trust", "look twice", "supported", "negative"];

/** @type {(card: Card, key: "share" | "count" | "largest" | "score" | "probability" | "overlap") => number} */
const mostOf = (card, key) => Math.max(-1, ...card.facts.map((one) => one[key] ?? -1));
/** @type {(card: Card) => string} */
const worstOf = (card) => GRAVEST.find((sure) => card.facts.some((one) => one.sure === sure)) ?? "supported";
/** @type {Record<string, [string, ((card: Card) => number) | null]>} */
const ORDERS = {
  order: ["as given", (card) => card.number],
  name: ["name", null],
  probability: ["probability", (card) => -mostOf(card, "probability")],
  findings: ["number of findings", (card) => -mostOf(card, "count")],
  share: ["area of findings", (card) => -mostOf(card, "share")],
  largest: ["strongest finding", (card) => -mostOf(card, "largest")],
  score: ["score of the model", (card) => -mostOf(card, "score")],
  sure: ["verdict, worst first", (card) => GRAVEST.indexOf(worstOf(card))],
  overlap: ["overlap with the truth, worst first", (card) => mostOf(card, "overlap") < 0 ? 2 : mostOf(card, "overlap")], // last: no objects
};

/** Build the cards. */
function makeGallery() {
  const names = [...new Set(entries.flatMap((entry) => entry.classes.map((one) => one.name)))];
  const verdicts = GRAVEST.filter((sure) => entries.some((entry) => entry.classes.some((one) => one.sure === sure)));
  const hasChance = entries.some((entry) => entry.classes.some((one) => one.probability !== null));
  byId("filter-chance").parentElement.hidden = !hasChance;
  const hasTruth = entries.some((entry) => entry.classes.some((one) => one.overlap !== null));
  const option = (/** @type {string} */ value, /** @type {string} */ textContent) => make("option", { value, textContent });
  byId("sort").append(...Object.entries(ORDERS).filter(([key]) => (key !== "overlap" || hasTruth) && (key !== "probability" || hasChance)).map(([key, [text]]) => option(key, text)));
  byId("filter-class").append(option("", "any"), ...names.map((text) => option(text, text)));
  byId("filter-sure").append(option("", "any"), ...verdicts.map((sure) => option(sure, VERDICTS[sure][0])));
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
    const lines = make("span", { className: "lines" });
    const button = make("button", { type: "button", className: "card" }, canvas,
      make("strong", { textContent: entry.name, title: entry.name }), lines);
    const element = make("li", {}, button);
    element.dataset["number"] = String(number);
    button.addEventListener("click", () => show(number));
    near.observe(element);
    return /** @type {Card} */ ({ number, element, canvas, lines, isNear: false, facts: [] });
  });

  /** Arrange the cards, and let them tell about the class that is chosen. */
  function arrange() {
    const [, rank] = ORDERS[byId("sort").value];
    const [text, klass, sure] = [byId("search").value.toLowerCase(), byId("filter-class").value, byId("filter-sure").value];
    const least = Number(byId("filter-chance").value) / 100;
    for (const card of cards) {
      const entry = entries[card.number];
      card.facts = entry.classes.filter((one) =>
        (klass === "" || one.name === klass) && (least <= 0 || (one.probability ?? -1) >= least));
      card.lines.replaceChildren(...card.facts.map(factsLine));
      card.canvas.setAttribute("aria-label", `${entry.name}: ${card.lines.textContent}`);
      if (card.isNear) drawCard(card);
    }
    const kept = cards.filter((card) => card.facts.length && entries[card.number].name.toLowerCase().includes(text) &&
      (sure === "" || card.facts.some((one) => one.sure === sure)));
    /** @type {(a: Card, b: Card) => number} */
    const byName = (a, b) => entries[a.number].name.localeCompare(entries[b.number].name, undefined, { numeric: true });
    kept.sort(rank === null ? byName : (a, b) => rank(a) - rank(b) || a.number - b.number);
    byId("cards").replaceChildren(...kept.map((card) => card.element));
    byId("count").textContent = `${kept.length} of ${count(cards.length, "image")}`;
  }

  for (const id of ["sort", "filter-class", "filter-sure"]) byId(id).addEventListener("change", arrange);
  for (const id of ["search", "filter-chance"]) byId(id).addEventListener("input", arrange);
  byId("filters").addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
  return { arrange };
}

/** A class on a card: its probability, its findings and its verdict.
    @param {Facts} one */
function factsLine(one) {
  const overlap = one.overlap === null ? "" : `, overlap ${one.overlap.toFixed(2)}`;
  const found = one.sure === "negative" ? `not explained, score ${few(one.score)}`
    : foundText(one.count, one.share) + overlap;
  return make("span", {}, make("span", { className: "klass", textContent: chanceOf(one) }),
    make("span", { className: "small", textContent: found }), badge(one.sure));
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
  const [left, upper] = [(width - wide * scale) / 2, (height - high * scale) / 2];
  context.imageSmoothingEnabled = scale < 2;
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, left, upper, wide * scale, high * scale);
  picture.close();
  const boxes = card.facts.flatMap(({ boxes: flat }) =>
    Array.from({ length: flat.length / 4 }, (_, i) => ({ box: flat.slice(4 * i, 4 * i + 4) })));
  strokeBoxes(context, boxes, { x: -left / scale, y: -upper / scale, scale, ratio: 1 }, 3, Infinity);
}
const gallery = makeGallery();
