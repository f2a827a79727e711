/* All text of the page that follows from its state. */

function drawScale(largest) {
  const context = byId("bar").getContext("2d");
  for (let i = 0; i < 120; i++) {
    context.fillStyle = `rgb(${colourAt(state.map, i / 119).join(" ")})`;
    context.fillRect(i, 0, 1, 10);
  }
  const text = state.focus === null
    ? `Confidence, 0 to ${few(largest)}` : "Confidence of each area, 0 to the highest";
  byId("bar").setAttribute("aria-label", text);
  byId("scale").textContent = text;
}

function summary() {
  return state.shown.map((klass) => {
    const { findings, share: part } = results[klass];
    const name = state.shown.length > 1 ? `${view().classes[klass].name}: ` : "";
    return `${name}${count(findings.length, "finding")} on ${share(part)} of the image`;
  }).join("; ");
}

/** The concerns about the classes that are shown, one in each line; Python has written them. */
function concerns() {
  const asRun = Object.values(state.asked).every((limit) => limit === null);
  const start = asRun ? "Concern" : "Concern about the run as it was";
  return state.shown.flatMap((klass) => {
    const { name, concerns: found } = view().classes[klass];
    const about = state.shown.length > 1 ? ` (${name})` : "";
    return found.map((text) => `${start}${about}: ${text}`);
  }).join("\n");
}

function writeConcerns() {
  const text = state.number === null ? galleryConcerns(views) : concerns();
  byId("concerns").textContent = text;
  byId("concerns").hidden = text === "";
}

function write() {
  writeConcerns();
  showAsked(sliders, state.asked);
  byId("opacity-out").textContent = `${Math.round(100 * state.opacity)} %`;
  if (state.number === null) {
    byId("found").textContent = "";
    byId("python").textContent = asPython(sliders, trees[0][0], state.asked);
    return;
  }
  byId("found").textContent = state.said ?? summary();
  byId("python").textContent = asPython(sliders, treeOf(state.current), state.asked);
  panels.forEach((panel, i) => {
    const result = results[state.shown[i]];
    panel.element.classList.toggle("current", panels.length > 1 && state.shown[i] === state.current);
    const overlap = result.overlap === null ? "" : `, overlap with the truth ${result.overlap.toFixed(2)}`;
    panel.caption.lastChild.textContent =
      `${count(result.findings.length, "finding")}, ${share(result.share)}${overlap}`;
  });
  byId("findings").replaceChildren(
    ...listFindings(results[state.current].findings, (i) => i === state.finding, goTo));
  writeTrail();
  writeRegion();
}

function writeRegion() {
  const region = state.hover ?? state.focus;
  if (region === null) return;
  byId("region").replaceChildren(
    ...describeRegion(view(), treeOf(state.current), results[state.current], region));
}

function writeTrail() {
  const tree = treeOf(state.current);
  const path = state.focus === null ? [tree.root] : pathTo(tree, state.focus);
  const crumbs = path.flatMap((region, i) => {
    const text = i === 0 ? "Image" : `Area ${tree.gameOf[path[i - 1]].parts.indexOf(region) + 1}`;
    const button = make("button", { type: "button", textContent: text });
    if (i === path.length - 1) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => focusOn(i === 0 ? null : region));
    return i === 0 ? [button] : [make("span", { "aria-hidden": "true", textContent: "›" }), button];
  });
  const game = tree.gameOf[state.focus ?? tree.root];
  const parts = game === null ? [] : game.parts.filter((part) => part !== tree.root).map((part, i) => {
    const button = make("button", {
      type: "button", className: "part", textContent: few(tree.weight[part]),
      disabled: tree.gameOf[part] === null,
      "aria-label": `Look into area ${i + 1} of ${game.parts.length}, confidence ${few(tree.weight[part])}`,
    });
    button.addEventListener("click", () => focusOn(part));
    button.addEventListener("pointerenter", () => lookAt(part));
    button.addEventListener("focus", () => lookAt(part));
    return button;
  });
  const up = make("button", { type: "button", id: "up", textContent: "Up", disabled: state.focus === null });
  up.addEventListener("click", goUp);
  byId("trail").replaceChildren(up, ...crumbs,
    ...(parts.length ? [make("span", { className: "small", textContent: "checked areas:" }), ...parts] : []));
}
