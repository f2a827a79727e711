/* The review: accept, reject and note each finding. It is kept in this browser, by explanation. */

import { byId } from "./dom.js";

const PREFIX = "hshap-review-";
/** Reviews that the browser does not keep, by explanation.
    @type {Map<string, string>} */
const inMemory = new Map();

/** The reviews of an explanation, by the key of the finding.
    @param {string} identity
    @returns {Record<string, Review>} */
export function reviewsOf(identity) {
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

/** Keep the review of a finding; one without verdict and note is dropped.
    @param {string} identity
    @param {string} key
    @param {Review} review */
export function keepReview(identity, key, review) {
  const all = { ...reviewsOf(identity) };
  if (review.verdict === null && review.note === "") delete all[key];
  else all[key] = review;
  const text = JSON.stringify(all);
  try {
    localStorage.setItem(PREFIX + identity, text);
    inMemory.delete(identity);
  } catch {
    inMemory.set(identity, text);
    byId("kept").textContent = "This browser keeps no reviews for this page: save them before you close it.";
  }
}

/** The review of a finding, if there is one.
    @param {string} identity
    @param {Finding} finding
    @returns {Review | null} */
export const reviewOf = (identity, finding) => {
  const all = reviewsOf(identity);
  return Object.hasOwn(all, finding.key) ? all[finding.key] : null;
};
