// The frame around the page: the state of the run, new images, and files that are dropped.
"use strict";

/**
 * The answer of `/state`.
 * @typedef {{title: string, page: string | null, takes_images: boolean, done: number,
 *   waiting: string[], failed: Record<string, string>, explaining: boolean, evaluations: number,
 *   problem: string}} State
 */

const SECONDS = 1.5;

/** @type {<T extends HTMLElement>(id: string) => T} */
const element = (id) => /** @type {any} */ (document.getElementById(id));
const frame = /** @type {HTMLIFrameElement} */ (element("page"));
const chooser = /** @type {HTMLInputElement} */ (element("files"));
/** What the header shows, and that of the page too, once there is one. */
const [told, shower, adder] = [element("state"), element("show"), element("choose")];

/** The state of the page that is shown, and the newest one. @type {string | null} */
let shown = null;
/** @type {string | null} */
let newest = null;
let takesImages = false;
/** Files that were refused here, by name. @type {Map<string, string>} */
const refused = new Map();
/** Files that are on their way to the server. */
let sending = 0;

/** Show the newest page, at the same image and finding. */
function showNewest() {
  const place = shown === null ? "" : frame.contentWindow?.location.hash ?? "";
  shown = newest;
  // The query makes it a new address: a change of the fragment alone would load nothing.
  frame.src = `/page/index.html?at=${encodeURIComponent(newest ?? "")}${place}`;
  frame.hidden = false;
  element("empty").hidden = true;
  shower.hidden = true;
}

/** @param {number} count @param {string} noun */
const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Return the state in words. @param {State} state */
function words(state) {
  const parts = [];
  if (sending) parts.push(`sending ${counted(sending, "image")}`);
  if (state.explaining) {
    parts.push(`explaining ${counted(state.waiting.length, "image")}, ${state.evaluations} evaluations so far`);
  } else if (state.waiting.length) {
    parts.push(`${counted(state.waiting.length, "new image")} waiting`);
  }
  if (state.problem) parts.push(`the last run failed: ${state.problem}`);
  if (!parts.length) {
    parts.push(takesImages ? `${counted(state.done, "image")} explained; drop more anywhere` : "showing the results of a folder");
  }
  const text = parts.join("; ");
  return `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}.`;
}

/** Show the images that cannot be used. @param {State} state */
function showProblems(state) {
  const every = [...Object.entries(state.failed), ...refused];
  const list = element("reasons");
  element("problems").hidden = !every.length;
  element("count").textContent = `${counted(every.length, "image")} could not be used`;
  const lines = every.map(([name, reason]) => (reason.includes(name) ? reason : `${name}: ${reason}`));
  if (list.dataset.lines === JSON.stringify(lines)) return;
  list.dataset.lines = JSON.stringify(lines);
  list.replaceChildren(
    ...lines.map((line) => {
      const item = document.createElement("li");
      item.textContent = line;
      return item;
    }),
  );
}

/** Ask the server for its state, and show it. */
async function refresh() {
  try {
    const answer = await fetch("/state");
    if (!answer.ok) throw new Error(await answer.text());
    const state = /** @type {State} */ (await answer.json());
    takesImages = state.takes_images;
    adder.hidden = !takesImages;
    element("title").textContent = document.title = state.title;
    setText(words(state));
    showProblems(state);
    newest = state.page;
    if (newest !== null && shown === null) showNewest();
    shower.hidden = newest === shown;
  } catch (error) {
    setText(`The server does not answer (${error instanceof Error ? error.message : error}). Is hshap serve still running?`);
  }
}

/** Set the text of the state; a screen reader tells it only if it is new. @param {string} text */
function setText(text) {
  if (told.textContent !== text) told.textContent = text;
}

/** Send files to the server, one after another. @param {Iterable<File>} files */
async function send(files) {
  const every = [...files];
  sending += every.length;
  for (const file of every) {
    refused.delete(file.name);
    try {
      const answer = await fetch(`/images?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
      if (!answer.ok) refused.set(file.name, await answer.text());
    } catch {
      refused.set(file.name, "it could not be sent");
    }
    sending -= 1;
    void refresh();
  }
}

/** Let images be dropped anywhere in a document. @param {Document} place */
function takeDrops(place) {
  let inside = 0;
  const target = element("target");
  place.addEventListener("dragenter", () => {
    inside += 1;
    target.hidden = !takesImages;
  });
  place.addEventListener("dragleave", () => {
    inside = Math.max(0, inside - 1);
    if (!inside) target.hidden = true;
  });
  place.addEventListener("dragover", (event) => event.preventDefault());
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    inside = 0;
    target.hidden = true;
    if (takesImages && event.dataTransfer) void send(event.dataTransfer.files);
  });
}

takeDrops(document);
// The frame gets the events over itself.
frame.addEventListener("load", () => {
  const page = frame.contentDocument;
  if (!page) return;
  takeDrops(page);
  // One header: that of the page takes what this one shows.
  const last = page.getElementById("theme");
  last?.before(told, shower, adder);
  element("header").hidden = last !== null;
});
shower.addEventListener("click", showNewest);
chooser.addEventListener("change", () => {
  const files = [...(chooser.files ?? [])];
  chooser.value = "";
  void send(files);
});
void refresh();
setInterval(refresh, SECONDS * 1000);
