/* The camera: which part of a plane the screen shows, moved by pointers. */

const MOST_SCALE = 64;
const CLICK_REACH = 4;

/** A camera that shows the whole plane at first. @returns {Camera} */
function makeCamera() {
  const camera = { x: 0, y: 0, scale: 1, ratio: 1 };
  let [wide, high] = [1, 1];
  /** @type {Plane | null} */
  let plane = null;
  const rows = () => plane?.rows ?? 1;
  const columns = () => plane?.columns ?? 1;
  const fitting = () => Math.min(wide / columns(), high / (rows() * camera.ratio));
  const down = () => camera.scale * camera.ratio;
  const keep = () => {
    // At least a corner of the image stays visible.
    camera.x = Math.min(Math.max(camera.x, -0.8 * wide / camera.scale), columns() - 0.2 * wide / camera.scale);
    camera.y = Math.min(Math.max(camera.y, -0.8 * high / down()), rows() - 0.2 * high / down());
  };
  const centre = (/** @type {number} */ row, /** @type {number} */ column) => {
    camera.x = column - wide / camera.scale / 2;
    camera.y = row - high / down() / 2;
  };
  return {
    camera,
    centre,
    fit(to = [0, 0, rows(), columns()], margin = 1) {
      const [top, left, bottom, right] = to;
      const scale = Math.min(wide / (right - left), high / ((bottom - top) * camera.ratio)) / margin;
      camera.scale = Math.min(Math.max(scale, fitting()), MOST_SCALE);
      centre((top + bottom) / 2, (left + right) / 2);
    },
    resize(width, height, of, ratio) {
      const isNew = plane === null || of.rows !== plane.rows || of.columns !== plane.columns;
      const middle = [camera.y + high / down() / 2, camera.x + wide / camera.scale / 2];
      const wasWhole = !isNew && camera.scale <= fitting() * 1.001;
      [wide, high, plane, camera.ratio] = [width, height, of, ratio];
      if (isNew || wasWhole) this.fit();
      else centre(middle[0], middle[1]);
    },
    move(dx, dy) {
      camera.x += dx / camera.scale;
      camera.y += dy / down();
      keep();
    },
    zoom(factor, atX = wide / 2, atY = high / 2) {
      const scale = Math.min(Math.max(camera.scale * factor, fitting() / 2), MOST_SCALE);
      camera.x += atX / camera.scale - atX / scale;
      camera.y += (atY / camera.scale - atY / scale) / camera.ratio;
      camera.scale = scale;
      keep();
    },
    pixel(atX = wide / 2, atY = high / 2) {
      const [column, row] = [camera.x + atX / camera.scale, camera.y + atY / down()].map(Math.floor);
      const inside = row >= 0 && column >= 0 && row < rows() && column < columns();
      return inside ? [row, column] : null;
    },
  };
}

/** Move the camera by pointers; `on` handles clicks and hovering.
    @param {HTMLElement} screen
    @param {Camera} shot
    @param {{ moved(): void, click(pixel: [number, number] | null): void, hover(pixel: [number, number] | null): void }} on */
function listen(screen, shot, on) {
  /** @type {Map<number, number[]>} */
  const pointers = new Map();
  let [travelled, gap] = [0, 0];
  /** @type {(event: MouseEvent) => [number, number]} */
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
  /** @type {(event: PointerEvent) => void} */
  const release = (event) => {
    const wasDown = pointers.delete(event.pointerId);
    if (wasDown && event.type === "pointerup" && travelled <= CLICK_REACH * devicePixelRatio) {
      on.click(shot.pixel(...place(event)));
    }
  };
  screen.addEventListener("pointerup", release);
  screen.addEventListener("pointercancel", release);
  screen.addEventListener("pointerleave", () => on.hover(null));
  screen.addEventListener("wheel", (event) => {
    event.preventDefault();
    shot.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...place(event));
    on.moved();
  }, { passive: false });
}
