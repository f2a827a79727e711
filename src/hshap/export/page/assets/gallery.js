/* The gallery: a card for each image, sorted and filtered by its findings at the current limits. */

const THUMB = 220;
const ORDERS = {
  order: ["as given", (card) => card.number],
  name: ["name", null],
  share: ["area of findings", (card) => -card.most("share")],
  findings: ["number of findings", (card) => -card.most("count")],
  largest: ["highest confidence", (card) => -card.most("largest")],
  score: ["score of the model", (card) => -card.most("score")],
  overlap: ["overlap with the truth, worst first", (card) => card.most("overlap")],
};

/** Build the cards; a click calls `open(number)`. */
function makeGallery(views, trees, open) {
  const names = [...new Set(views.flatMap((view) => view.classes.map((one) => one.name)))];
  const hasTruth = views.some((view) => view.truth !== null);
  byId("sort").append(...Object.entries(ORDERS)
    .filter(([key]) => key !== "overlap" || hasTruth)
    .map(([value, [textContent]]) => make("option", { value, textContent })));
  byId("filter-class").append(make("option", { value: "", textContent: "any" }),
    ...names.map((name) => make("option", { value: name, textContent: name })));
  const chosen = (view) => {
    const name = byId("filter-class").value;
    return view.classes.flatMap((one, klass) => (name === "" || one.name === name ? [klass] : []));
  };
  const waiting = [];
  let isLoading = false;
  async function loadNext() {
    if (isLoading) return;
    isLoading = true;
    while (waiting.length) {
      const card = waiting.shift();
      const image = await loadImage(card.number);
      const scale = Math.min(1, (2 * THUMB) / Math.max(image.width, image.height));
      card.thumb = make("canvas", {
        width: Math.max(1, Math.round(image.width * scale)),
        height: Math.max(1, Math.round(image.height * scale)),
      });
      const context = card.thumb.getContext("2d");
      context.imageSmoothingQuality = "high";
      context.drawImage(image, 0, 0, card.thumb.width, card.thumb.height);
      image.close();
      drawCard(card, views[card.number]);
    }
    isLoading = false;
  }
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      const card = cards[Number(entry.target.dataset.number)];
      seen.unobserve(entry.target);
      waiting.push(card);
    }
    loadNext();
  }, { rootMargin: "300px" });
  const cards = views.map((view, number) => {
    const canvas = make("canvas", { width: 2 * THUMB, height: 2 * THUMB, role: "img" });
    const text = make("span", { className: "small" });
    const button = make("button", { type: "button", className: "card" }, canvas,
      make("strong", { textContent: view.name, title: view.name }), text);
    const element = make("li", {}, button);
    element.dataset.number = String(number);
    button.addEventListener("click", () => open(number));
    seen.observe(element);
    const card = { number, element, canvas, text, thumb: null, results: [] };
    card.most = (key) => Math.max(-1, ...card.results.map((one) => one[key] ?? -1));
    return card;
  });
  byId("cards").append(...cards.map((card) => card.element));

  function update(asked) {
    for (const card of cards) {
      const view = views[card.number];
      card.results = chosen(view).map((klass) => {
        const result = resultAt(view, trees[card.number][klass], asked);
        return { ...result, count: result.findings.length, score: view.classes[klass].score, klass };
      });
      const parts = [`${count(card.most("count"), "finding")} on ${share(card.most("share"))}`];
      if (view.truth !== null && card.results.length) parts.push(`overlap ${card.most("overlap").toFixed(2)}`);
      if (card.results.some((one) => view.classes[one.klass].concerns.length)) parts.push("concern");
      card.text.textContent = card.results.length ? parts.join(", ") : "not explained for this class";
      card.canvas.setAttribute("aria-label", `${view.name}: ${card.text.textContent}`);
      if (card.thumb) drawCard(card, view);
    }
    arrange();
  }

  function arrange() {
    const [, rank] = ORDERS[byId("sort").value];
    const words = byId("search").value.toLowerCase();
    const kind = byId("filter").value;
    const keeps = (card) => {
      const view = views[card.number];
      const isFound = card.results.some((one) => one.count > 0);
      return view.name.toLowerCase().includes(words) && card.results.length > 0 &&
        (kind === "all" || (kind === "found" && isFound) || (kind === "empty" && !isFound) ||
          (kind === "concern" && card.results.some((one) => view.classes[one.klass].concerns.length)) ||
          (kind === "unfinished" && card.results.some((one) => view.classes[one.klass].unfinished.length)));
    };
    const byName = (a, b) => views[a.number].name.localeCompare(views[b.number].name, undefined, { numeric: true });
    const sorted = [...cards].sort(rank === null ? byName : (a, b) => rank(a) - rank(b) || a.number - b.number);
    const kept = sorted.filter(keeps);
    byId("cards").replaceChildren(...kept.map((card) => card.element));
    byId("count").textContent = `${kept.length} of ${count(cards.length, "image")}`;
    return kept.map((card) => card.number);
  }

  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  return { update, arrange };
}

/** How many images have a concern; empty if none has. */
function galleryConcerns(views) {
  const some = views.filter((view) => view.classes.some((one) => one.concerns.length)).length;
  return some ? `${some} of ${count(views.length, "image")} ${some === 1 ? "has" : "have"} a concern: see "Show", and open the image` : "";
}

/** A small picture with the boxes of the findings. */
function drawCard(card, view) {
  const context = card.canvas.getContext("2d");
  const { width, height } = card.canvas;
  const scale = Math.min(width / view.width, height / view.height);
  const [left, top] = [(width - view.width * scale) / 2, (height - view.height * scale) / 2];
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = view.width * scale < 2 * view.width;
  context.drawImage(card.thumb, left, top, view.width * scale, view.height * scale);
  for (const { findings } of card.results) {
    strokeBoxes(context, findings, { x: -left / scale, y: -top / scale, scale }, 2);
  }
}
