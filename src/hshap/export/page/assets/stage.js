/* The stage: panels of one image, one for each class, that move together. */

const MOST_SCALE = 64;
const CLICK_REACH = 4;

/** A panel of one class: a canvas for the image, and one over it for the findings. */
function makePanel(name) {
  const image = make("canvas", { className: "layer" });
  const overlay = make("canvas", { className: "layer" });
  const caption = make("figcaption", {}, make("strong", { textContent: name }), make("span"));
  const screen = make(
    "div",
    {
      className: "screen", tabIndex: 0, role: "application",
      "aria-label": `${name}: arrows move, plus and minus zoom, Enter looks into an area, Escape goes back, ` +
        "n and p step through findings",
    },
    image, overlay,
  );
  return { element: make("figure", { className: "panel" }, caption, screen), image, overlay, screen, caption };
}

/** Paint the findings of one class, and the region under the pointer, over the image. */
function paintOverlay(panel, scene, camera) {
  const { view, tree, result, look, focus, hover, seen } = scene;
  const context = panel.overlay.getContext("2d");
  const none = view.areas.length;
  const target = context.createImageData(seen.width, seen.height);
  const parts = focus === null ? null : partOfCells(tree, focus);
  const fill = new Uint32Array(none + 1);
  const alpha = Math.round(look.opacity * 255);
  const top = focus === null ? look.largest : Math.max(...tree.gameOf[focus].phi.map(Math.abs));
  for (let cell = 0; cell < none; cell++) {
    const region = parts === null ? result.leafOf[cell] : parts[cell];
    if (region === -1) fill[cell] = parts === null ? 0 : packed(0, 0, 0, 150);
    else if (look.layers.heat && tree.weight[region] > 0) {
      fill[cell] = packed(...colourAt(look.map, tree.weight[region] / (top || 1)), alpha);
    }
  }
  const layers = [];
  const outline = (groups, inside, outside = 0, dashed = false) =>
    layers.push({ groups: Int32Array.from([...groups, -1]), inside, outside, dashed });
  if (look.layers.visited) outline(tree.cells, VISITED);
  if (look.layers.leaves) outline(result.leafOf, LIGHT, DARK);
  if (look.layers.truth && view.truth) outline(view.truth.map((one) => one - 1), TRUTH, DARK, true);
  if (parts !== null) outline(parts, PART, DARK);
  if (hover !== null) {
    const under = new Set(cellsOf(tree, hover));
    outline(tree.cells.map((_, cell) => (under.has(cell) ? 1 : -1)), PART, DARK);
  }
  const { thick } = seen;
  paintCells(target, seen, fill, layers);
  context.putImageData(target, 0, 0);
  if (look.layers.boxes && focus === null) strokeBoxes(context, result.findings, camera, thick);
  if (parts !== null) writeParts(context, view, tree, focus, camera, thick);
}

/** The cells that a region is made of. */
function cellsOf(tree, region) {
  const found = [];
  tree.cells.forEach((end, cell) => {
    while (end !== -1 && end !== region) end = tree.parent[end];
    if (end !== -1) found.push(cell);
  });
  return found;
}

/** Boxes around findings, never too small to be visible. */
function strokeBoxes(context, findings, { x, y, scale }, thick) {
  for (const [width, style] of [[4 * thick, "rgba(0, 0, 0, 0.55)"], [2 * thick, BOX]]) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    for (const { box: [top, left, bottom, right] } of findings) {
      const least = 6 * thick;
      const [wide, high] = [(right - left) * scale, (bottom - top) * scale];
      const [extraX, extraY] = [Math.max(0, least - wide) / 2, Math.max(0, least - high) / 2];
      context.rect(
        (left - x) * scale - extraX, (top - y) * scale - extraY,
        wide + 2 * extraX, high + 2 * extraY,
      );
    }
    context.stroke();
  }
}

/** The confidence of each area of a region, in its middle. */
function writeParts(context, view, tree, focus, { x, y, scale }, thick) {
  context.font = `600 ${12 * thick}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const part of tree.gameOf[focus].parts) {
    const [top, left, bottom, right] = around(view, cellsOf(tree, part));
    const text = few(tree.weight[part]);
    const [atX, atY] = [((left + right) / 2 - x) * scale, ((top + bottom) / 2 - y) * scale];
    const half = context.measureText(text).width / 2 + 4 * thick;
    context.fillStyle = "rgba(0, 0, 0, 0.7)";
    context.fillRect(atX - half, atY - 9 * thick, 2 * half, 18 * thick);
    context.fillStyle = "#fff";
    context.fillText(text, atX, atY);
  }
}

/** The camera shows the image from (x, y) on, each of its pixels `scale` pixels of the screen. */
function makeCamera() {
  const camera = { x: 0, y: 0, scale: 1 };
  let [wide, high, view] = [1, 1, null];
  const fitting = () => Math.min(wide / view.width, high / view.height);
  const keep = () => {
    // At least a corner of the image stays visible.
    camera.x = Math.min(Math.max(camera.x, -0.8 * wide / camera.scale), view.width - 0.2 * wide / camera.scale);
    camera.y = Math.min(Math.max(camera.y, -0.8 * high / camera.scale), view.height - 0.2 * high / camera.scale);
  };
  return {
    camera,
    fit(to = [0, 0, view.height, view.width], margin = 1) {
      const [top, left, bottom, right] = to;
      const scale = Math.min(wide / (right - left), high / (bottom - top)) / margin;
      camera.scale = Math.min(Math.max(scale, fitting()), MOST_SCALE);
      camera.x = (left + right) / 2 - wide / camera.scale / 2;
      camera.y = (top + bottom) / 2 - high / camera.scale / 2;
    },
    resize(width, height, of) {
      const isNew = of !== view;
      const middle = [camera.x + wide / camera.scale / 2, camera.y + high / camera.scale / 2];
      const wasWhole = !isNew && camera.scale <= fitting() * 1.001;
      [wide, high, view] = [width, height, of];
      if (isNew || wasWhole) this.fit();
      else {
        camera.x = middle[0] - wide / camera.scale / 2;
        camera.y = middle[1] - high / camera.scale / 2;
      }
    },
    move(dx, dy) {
      camera.x += dx / camera.scale;
      camera.y += dy / camera.scale;
      keep();
    },
    zoom(factor, atX = wide / 2, atY = high / 2) {
      const scale = Math.min(Math.max(camera.scale * factor, fitting() / 2), MOST_SCALE);
      camera.x += atX / camera.scale - atX / scale;
      camera.y += atY / camera.scale - atY / scale;
      camera.scale = scale;
      keep();
    },
    pixel(atX = wide / 2, atY = high / 2) {
      const [column, row] = [camera.x + atX / camera.scale, camera.y + atY / camera.scale].map(Math.floor);
      const inside = row >= 0 && column >= 0 && row < view.height && column < view.width;
      return inside ? row * view.width + column : -1;
    },
  };
}

/** Move the camera by pointers and keys; `on` handles clicks, hovering and other keys. */
function listen(screen, shot, on) {
  const pointers = new Map();
  let [travelled, gap] = [0, 0];
  const place = (event) => {
    const frame = screen.getBoundingClientRect();
    return [(event.clientX - frame.left) * devicePixelRatio, (event.clientY - frame.top) * devicePixelRatio];
  };
  const spread = () => {
    const [a, b] = [...pointers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  screen.addEventListener("pointerdown", (event) => {
    screen.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    travelled = 0;
    if (pointers.size === 2) gap = spread();
  });
  screen.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const before = pointers.get(event.pointerId);
    if (before === undefined) return on.hover(shot.pixel(x, y));
    pointers.set(event.pointerId, [x, y]);
    travelled += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (pointers.size === 2) {
      shot.zoom(spread() / gap, x, y);
      gap = spread();
    } else if (travelled > CLICK_REACH * devicePixelRatio) shot.move(before[0] - x, before[1] - y);
    return on.moved();
  });
  const release = (event) => {
    const wasDown = pointers.delete(event.pointerId);
    if (wasDown && event.type === "pointerup" && travelled <= CLICK_REACH * devicePixelRatio) {
      on.click(shot.pixel(...place(event)));
    }
  };
  screen.addEventListener("pointerup", release);
  screen.addEventListener("pointercancel", release);
  screen.addEventListener("pointerleave", () => on.hover(-1));
  screen.addEventListener("wheel", (event) => {
    event.preventDefault();
    shot.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...place(event));
    on.moved();
  }, { passive: false });
  const step = 60;
  const keys = {
    ArrowLeft: () => shot.move(-step, 0),
    ArrowRight: () => shot.move(step, 0),
    ArrowUp: () => shot.move(0, -step),
    ArrowDown: () => shot.move(0, step),
    "+": () => shot.zoom(1.25),
    "=": () => shot.zoom(1.25),
    "-": () => shot.zoom(0.8),
    0: () => shot.fit(),
  };
  screen.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys[event.key]) {
      keys[event.key]();
      on.moved();
    } else if (event.key === "Enter") on.click(shot.pixel());
    else if (!on.key(event.key)) return;
    event.preventDefault();
  });
}
