/* Writing all text that follows from the state: first line, list of findings, region, and trail. */

import { focusOn, goTo, goUp, judge, lookAt } from "./actions.js";
import { byId, few, make, replaceIn } from "./dom.js";
import { writer } from "./drawing.js";
import { pathTo } from "./findings.js";
import { showPlanes } from "./planes.js";
import { describeRegion, listFindings } from "./sidebar.js";
import { asPython, showAsked } from "./sliders.js";
import { live, now, resultOf, state, treeOf } from "./state.js";
import { writeFirst, writePanels } from "./words.js";

/** Describe the region under the pointer, or the one that is looked into. */
export function writeRegion() {
  const region = state.hover ?? state.focus;
  if (region === null) return;
  byId("region").replaceChildren(
    ...describeRegion(now().view, treeOf(state.current), resultOf(state.current), region));
}

function writeTrail() {
  const tree = treeOf(state.current);
  const path = state.focus === null ? [tree.root] : pathTo(tree, state.focus);
  const crumbs = path.flatMap((region, i) => {
    const parts = i === 0 ? [] : (tree.gameOf[path[i - 1]]?.parts ?? []);
    const button = make("button", { type: "button", id: `crumb-${i}`, textContent: i === 0 ? "Image" : `Area ${parts.indexOf(region) + 1}` });
    if (i === path.length - 1) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => focusOn(i === 0 ? null : region));
    return i === 0 ? [button] : [make("span", { "aria-hidden": "true", textContent: "›" }), button];
  });
  const game = tree.gameOf[state.focus ?? tree.root];
  const parts = (game?.parts ?? []).filter((part) => part !== tree.root).map((part, i, some) => {
    const button = make("button", {
      type: "button", className: "part", id: `part-${i}`, textContent: few(tree.weight[part]),
      disabled: tree.gameOf[part] === null,
      "aria-label": `Look into area ${i + 1} of ${some.length}, strength ${few(tree.weight[part])}`,
    });
    button.addEventListener("click", () => focusOn(part));
    button.addEventListener("pointerenter", () => lookAt(part));
    button.addEventListener("focus", () => lookAt(part));
    return button;
  });
  const up = make("button", { type: "button", id: "up", textContent: "Up", disabled: state.focus === null });
  up.addEventListener("click", goUp);
  replaceIn(byId("trail"), up, ...crumbs,
    ...(parts.length ? [make("span", { className: "small", textContent: "checked areas:" }), ...parts] : []));
}

/** Write all text that follows from the state. */
export function write() {
  writeFirst();
  showAsked(live.sliders, state.asked);
  byId("opacity-out").textContent = `${Math.round(100 * state.opacity)} %`;
  if (live.opened === null) {
    byId("found").textContent = "";
    byId("python").textContent = "";
    return;
  }
  byId("python").textContent = asPython(live.sliders, treeOf(state.current), state.asked);
  writePanels();
  showPlanes();
  if (document.activeElement?.id !== "review-note") { // leave a note alone while it is typed
    const isOne = now().view.trees.length === 1;
    replaceIn(byId("findings"),
      ...(isOne ? [] : [make("p", { className: "small", textContent: `of ${treeOf(state.current).name}` })]),
      ...listFindings(now().view, treeOf(state.current), resultOf(state.current), state.finding, { go: goTo, judge }));
    byId("findings").querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  }
  writeTrail();
  writeRegion();
}
writer.write = write;
