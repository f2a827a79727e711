/* All text that follows from the state: first lines, captions, the list of findings, the area. */

const MOST_ROWS = 100;
/** @type {Record<string, string>} */
const WORDS = {
  finding: "an area that raises the score of the model; areas that touch are one finding",
  "part of the score": "how much of the score, over that of the baseline, lies on the finding: all findings and what " +
    "lies outside them add up to 100 %",
  strength: "how much an area raises the score, on average over all choices of shown areas (its Shapley coefficient), " +
    "in the unit of the score. It is not the chance that the finding is right",
  map: "how much each pixel adds to the score over that of the baseline. It is that of the run, at any slider",
  "enough alone": "the map of areas that raise the score while everything else is hidden",
  "cannot be missing": "the map of areas without which the score falls, while everything else is shown",
  "how sure": "what the checks of this run say. \"supported by every check\": none raised a concern, which is no proof. " +
    "\"look twice\": one did, but the findings stand. \"do not trust\": the findings may be in the wrong place. " +
    "\"negative\": the model does not decide for the class, so there was nothing to explain",
  "checked area": "an area that was hidden from the model and shown to it, to see how the score changes",
  score: "the number that the model gives this image for this class; its unit is the model's own",
  baseline: "the image with every pixel hidden: the model's score for it is the score without any evidence",
  missed: "the most that any checked area outside the findings adds to the score by itself. Smaller areas inside it " +
    "were not checked",
  truth: "the objects that should be found, drawn by people; only some images have it",
  overlap: "the area that two markings share, divided by the area of both together: 1 if they are equal",
  window: "the grey values that are shown black and white; all values between them are shades of grey",
};
/** The verdicts: words and colour. @type {Record<string, [string, string]>} */
const VERDICTS = {
  supported: ["supported by every check", "good"],
  "look twice": ["look twice", "fair"],
  "do not trust": ["do not trust", "poor"],
  negative: ["negative", "quiet"],
};
/** The sides of the answer. @type {Record<Side, string>} */
const SIDES = { both: "Both", alone: "Enough alone", missing: "Cannot be missing" };
/** @type {Record<string, string>} */
const AXES = { T: "Time", Z: "Slice", D: "Slice", Y: "Row", H: "Row", X: "Column", W: "Column" };
/** @type {Record<string, string>} */
const PLANES = { S: "Axial", I: "Axial", A: "Coronal", P: "Coronal", L: "Sagittal", R: "Sagittal" };

/** Whether a verdict rests on a concern: a negative image raises none.
    @param {string} sure */
const isConcern = (sure) => sure !== "supported" && sure !== "negative";

/** The name of the planes across an axis of a volume.
    @param {number} axis */
function planeName(axis) {
  const { letters, directions } = now().view;
  return directions ? PLANES[directions[axis]] : AXES[letters[axis] ?? "ZYX"[axis]];
}

/** The place of a plane in words: "slice 21 of 40", or "row 3 of 96".
    @param {number} axis */
function placeName(axis) {
  const { view } = now();
  const text = view.directions ? `${planeName(axis)}, slice` : planeName(axis);
  return `${text} ${state.at[axis] + 1} of ${view.shown[axis]}`;
}

/** A word with its meaning, which shows on hover and focus.
    @param {string} key
    @param {string} text */
const word = (key, text = key) => make("abbr", { title: WORDS[key], textContent: text });

/** The badge for how sure a run is.
    @param {string} sure
    @param {string} why */
function badge(sure, why = "") {
  const [text, colour] = VERDICTS[sure] ?? [sure, "fair"];
  return make("span", { className: `badge ${colour}`, textContent: text, title: `${why ? `${why}. ` : ""}How sure: ${WORDS["how sure"]}` });
}

/** The name of a class, or its number in words.
    @param {{ name: string }} klass */
const titleOf = ({ name: text }) => (/^\d+$/.test(text) ? `class ${text}` : text);

/** A class with the model's probability, where it is known.
    @param {{ name: string, probability: number | null }} klass */
const chanceOf = (klass) => titleOf(klass) + (klass.probability === null ? "" : `, ${percent(klass.probability)}`);

/** How much was found.
    @param {number} n
    @param {number} share of the image */
const foundText = (n, share) => (n ? `${count(n, "finding")} on ${percent(share)}` : "no finding");

/** The first line for a class: its name, findings, how sure, and possibly missed areas.
    @param {number} number */
function firstLine(number) {
  const klass = klassOf(number);
  const { findings, share } = resultOf(number);
  const scores = [" ", word("score", "Score"), ` ${few(klass.score)}, `, word("baseline"), ` ${few(klass.baseline)}.`];
  if (klass.sure === "negative") {
    return make("p", { className: "line" }, make("strong", { textContent: chanceOf(klass) }), ": ", badge(klass.sure, klass.why), ` ${klass.why}.`, ...scores);
  }
  return make("p", { className: "line" },
    make("strong", { textContent: `${chanceOf(klass)}: ${count(findings.length, "finding")}` }),
    `${findings.length ? ` on ${percent(share)} of the image` : ""}${state.tolerance === null ? "" : " at this strength"}. `,
    badge(klass.sure, klass.why), ` ${klass.why}. `, word("missed", "May be missed"), `: ${klass.missed}`, ...scores);
}

/** The concerns about the classes that are shown, after the one beside the badge; Python has written them. */
function concernsNow() {
  const start = state.tolerance === null ? "Also" : "Also, about the run as it was";
  return state.shown.flatMap((number) => {
    const klass = klassOf(number);
    const about = state.shown.length > 1 ? ` (${klass.name})` : "";
    return klass.concerns.map((text) => `${start}${about}: ${text}`);
  }).join("\n");
}

/** How many images of the page have a concern; empty if none has. */
function galleryConcerns() {
  const some = entries.filter((one) => one.classes.some((klass) => isConcern(klass.sure))).length;
  return some ? `${some} of ${count(entries.length, "image")} ${some === 1 ? "has" : "have"} a concern: choose a verdict below, and open the image` : "";
}

/** Write the lines above the image. */
function writeFirst() {
  const isGallery = live.opened === null;
  byId("first").replaceChildren(...(isGallery ? [] : state.shown.map(firstLine)));
  const text = !isGallery ? concernsNow() : state.number === null ? galleryConcerns() : "";
  byId("concerns").textContent = text;
  byId("concerns").hidden = text === "";
  byId("found").textContent = state.said ?? "";
}

/** Write the captions of the panels. */
function writeCaptions() {
  const { panels, view } = now();
  for (const panel of panels) {
    const { findings, share, overlap } = resultOf(panel.klass);
    panel.element.classList.toggle("current", state.shown.length > 1 && panel.klass === state.current);
    const facts = [foundText(findings.length, share)];
    if (view.axes === 3) facts.unshift(placeName(panel.axis));
    if (overlap !== null) facts.push(`overlap with the truth ${overlap.toFixed(2)}`);
    /** @type {HTMLElement} */ (panel.caption.lastChild).textContent = facts.join(" · ");
  }
}

/** Describe the region under the pointer: its strength, its state and its place. */
function writeRegion() {
  const { view } = now();
  if (state.hover === null) {
    byId("region").replaceChildren(make("p", { className: "small", textContent: "Point at the image." }));
    return;
  }
  const region = state.hover;
  const [klass, result] = [klassOf(state.current), resultOf(state.current)];
  const error = klass.errors[region];
  const at = boxInOriginal(view, klass.grid, around(klass, cellsOf(klass, region)));
  const kind = result.leaves.has(region) ? "finding" : region === 0 ? "the whole image" : "checked, no finding";
  /** @type {[string | Node, string][]} */
  const rows = [
    [word("strength", "Strength"), few(klass.strengths[region]) + (error ? ` ± ${few(error)}` : "")],
    ["State", kind],
    ["Where", at === null ? "beside the original image" : boxText(view, at) + sizeText(view, at)],
  ];
  byId("region").replaceChildren(make("dl", {}, ...rows.flatMap(([key, text]) => [make("dt", {}, key), make("dd", { textContent: text })])));
}

/** Write the findings, the strongest first: a click goes there; the current one can be reviewed. */
function writeList() {
  if (document.activeElement?.id === "review-note") return; // leave a note alone while it is typed
  const { view } = now();
  const [klass, { findings }] = [klassOf(state.current), resultOf(state.current)];
  const last = Math.max(MOST_ROWS, state.finding + 1);
  const items = findings.slice(0, last).map((finding, i) => {
    const review = reviewOf(klass.identity, finding);
    const verdict = review?.verdict ?? "";
    const aloud = (/** @type {string} */ text) => make("span", { className: "aloud", textContent: text });
    const part = finding.part === null ? few(finding.score) : percent(finding.part);
    const button = make("button", { type: "button", className: "go", id: `finding-${i + 1}`, "aria-current": String(i === state.finding) },
      make("span", { className: "number" }, aloud("Finding "), String(i + 1)),
      make("span", { className: "strength", title: `strength ${few(finding.score)}` }, aloud(", "), part, aloud(" of the score")),
      make("span", { className: "small" }, aloud(", at "), boxText(view, finding.at) + sizeText(view, finding.at)),
      make("span", { className: `verdict ${verdict}`, textContent: verdict + (review?.note ? " ✎" : "") }));
    button.addEventListener("click", () => goTo(i));
    return make("li", {}, button, ...(i === state.finding ? [reviewForm(i, review)] : []));
  });
  const parts = [];
  if (view.classes.length > 1) parts.push(make("p", { className: "small", textContent: `of ${titleOf(klass)}` }));
  if (items.length) parts.push(make("ol", { className: "list" }, ...items));
  else parts.push(make("p", { className: "small", textContent: "No finding at this strength." }));
  if (findings.length > last) {
    parts.push(make("p", { className: "small", textContent: `and ${count(findings.length - last, "more finding")}; the saved files have all of them` }));
  }
  replaceIn(byId("findings"), ...parts);
  byId("findings").querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
}

/** @param {number} i
    @param {Review | null} review */
function reviewForm(i, review) {
  const choice = (/** @type {"accepted" | "rejected"} */ verdict, /** @type {string} */ text) => {
    const isChosen = review?.verdict === verdict;
    const button = make("button", { type: "button", id: `review-${verdict}`, textContent: text, "aria-pressed": String(isChosen) });
    button.addEventListener("click", () => judge(i, { verdict: isChosen ? null : verdict }));
    return button;
  };
  const note = make("textarea", { id: "review-note", rows: 2, placeholder: "Note", "aria-label": `Note on finding ${i + 1}`, value: review?.note ?? "" });
  note.addEventListener("change", () => judge(i, { note: note.value }));
  return make("div", { className: "review" }, choice("accepted", "Accept (a)"), choice("rejected", "Reject (r)"), note);
}

/** Write all text that follows from the state. */
function writeWords() {
  writeFirst();
  showTolerance();
  byId("opacity-out").textContent = `${Math.round(100 * state.opacity)} %`;
  if (live.opened === null) return;
  const { limits } = klassOf(state.current);
  const level = state.tolerance === null || limits === null ? null : Math.max(state.tolerance, limits.run);
  byId("python").textContent = level === null ? "explanation" : `explanation.at(tolerance=${level})`;
  byId("python").hidden = limits === null;
  writeCaptions();
  showPlanes();
  writeList();
  writeRegion();
}

byId("words").append(...Object.entries(WORDS).flatMap(([key, text]) =>
  [make("dt", { textContent: key }), make("dd", { textContent: text })]));
