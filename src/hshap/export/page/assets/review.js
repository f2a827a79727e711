/* The review of findings, kept in this browser by explanation, and the files to save. */

const PREFIX = "hshap-review-";
/** Reviews that the browser does not keep, by explanation.
    @type {Map<string, string>} */
const inMemory = new Map();

/** The reviews of an explanation, by the key of the finding.
    @param {string} identity
    @returns {Record<string, Review>} */
function reviewsOf(identity) {
  /** @type {string | null | undefined} */
  let text = inMemory.get(identity);
  try {
    text ??= localStorage.getItem(PREFIX + identity);
    const found = JSON.parse(text ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** The review of a finding, if there is one.
    @param {string} identity
    @param {Finding} finding
    @returns {Review | null} */
function reviewOf(identity, finding) {
  const all = reviewsOf(identity);
  return Object.hasOwn(all, finding.key) ? all[finding.key] : null;
}

/** Change the review of a finding; one without verdict and note is dropped.
    @param {Klass} klass
    @param {Finding} finding
    @param {Partial<Review>} change */
function changeReview(klass, finding, change) {
  const own = reviewOf(klass.identity, finding) ?? { verdict: null, note: "" };
  const corners = cornersOf(now().view, finding.at);
  const review = { ...own, ...corners, strength: finding.score, tolerance: state.tolerance, ...change };
  const all = { ...reviewsOf(klass.identity) };
  if (review.verdict === null && review.note === "") delete all[finding.key];
  else all[finding.key] = /** @type {Review} */ (review);
  const text = JSON.stringify(all);
  try {
    localStorage.setItem(PREFIX + klass.identity, text);
    inMemory.delete(klass.identity);
  } catch {
    inMemory.set(klass.identity, text);
    byId("kept").textContent = "This browser keeps no reviews for this page: save them before you close it.";
  }
}

/** The reviews of all images of the page, those that have any. */
const reviewsNow = () => ({
  format: "hshap review",
  title: data.title,
  images: entries.flatMap((entry) => entry.classes.flatMap((one) => {
    const findings = Object.values(reviewsOf(one.identity));
    return findings.length ? [{ image: entry.name, class: one.name, identity: one.identity, findings }] : [];
  })),
});

/** The findings of the open image with their review; corners are in pixels of the original image. */
function findingsNow() {
  const { view } = now();
  return {
    format: "hshap findings",
    image: view.name,
    size: view.place.shape.slice(-view.axes),
    pixelSize: view.pixelSize && view.pixelSize.slice(-view.axes),
    unit: view.pixelSize === null ? null : view.unit,
    tolerance: state.tolerance,
    classes: state.shown.map((number) => {
      const klass = klassOf(number);
      return {
        name: klass.name,
        identity: klass.identity,
        howSure: klass.sure,
        findings: resultOf(number).findings.map((finding) => ({
          ...cornersOf(view, finding.at),
          score: finding.score,
          partOfScore: finding.part,
          share: finding.area / product(klass.grid),
          verdict: reviewOf(klass.identity, finding)?.verdict ?? null,
          note: reviewOf(klass.identity, finding)?.note ?? "",
        })),
      };
    }),
  };
}

/** The panels as they are shown, side by side, with the names of their classes.
    @returns {Promise<Blob>} */
function pictureNow() {
  const { panels, view } = now();
  const line = Math.round(24 * devicePixelRatio);
  const width = panels.reduce((sum, panel) => sum + panel.image.width, 0);
  const height = Math.max(...panels.map((panel) => panel.image.height)) + line;
  const canvas = make("canvas", { width, height });
  const context = inkOf(canvas);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#111";
  context.font = `${Math.round(0.55 * line)}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  let left = 0;
  for (const panel of panels) {
    context.fillText(`${view.name}: ${klassOf(panel.klass).name}`, left + 6, line / 2, panel.image.width - 12);
    context.filter = panel.image.classList.contains("grey") ? "grayscale(1)" : "none";
    context.drawImage(panel.image, left, line);
    context.filter = "none";
    context.drawImage(panel.overlay, left, line);
    left += panel.image.width;
  }
  return new Promise((resolve, reject) => canvas.toBlob(
    (blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}

/** Save a file under a name that is valid on any file system.
    @param {Blob} blob
    @param {string} text
    @param {string} ending */
function download(blob, text, ending) {
  const plain = text.replace(/\.[a-z0-9]{1,5}$/i, "").replace(/[^\w.-]+/g, "_").slice(0, 80) || "hshap";
  const link = make("a", { href: URL.createObjectURL(blob), download: plain + ending });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** @param {unknown} content */
const asJson = (content) => new Blob([JSON.stringify(content, null, 1)], { type: "application/json" });

byId("save-png").addEventListener("click", async () => download(await pictureNow(), now().view.name, "-seen.png"));
byId("save-json").addEventListener("click", () => download(asJson(findingsNow()), now().view.name, "-findings.json"));
byId("save-reviews").addEventListener("click", () => download(asJson(reviewsNow()), data.title, "-reviews.json"));
