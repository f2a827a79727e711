/* Marks: the outlines of findings inside the tiles of a large image. */

import { colourAt } from "./colours.js";

/** Draw the outlines of findings that are in sight; those too small for the screen as dots.
    @param {CanvasRenderingContext2D} context
    @param {Mark[]} marks
    @param {string} map the colours for strengths
    @param {CameraState} camera
    @param {number} thick */
export function strokeMarks(context, marks, map, { x, y, scale, ratio }, thick) {
  const most = Math.max(...marks.map(({ strength }) => strength), 0) || 1;
  for (const { strength, rings } of marks) {
    const path = new Path2D();
    let isSeen = false;
    for (const ring of rings) {
      for (let i = 0; i < ring.length; i += 2) {
        const [atX, atY] = [(ring[i] - x) * scale, (ring[i + 1] - y) * scale * ratio];
        isSeen ||= atX >= 0 && atY >= 0 && atX <= context.canvas.width && atY <= context.canvas.height;
        if (i) path.lineTo(atX, atY);
        else path.moveTo(atX, atY);
      }
      path.closePath();
    }
    if (!isSeen) continue;
    context.lineJoin = "round";
    context.lineWidth = 2 * thick;
    context.strokeStyle = "rgba(0, 0, 0, 0.55)";
    context.stroke(path);
    context.lineWidth = thick;
    context.strokeStyle = `rgb(${colourAt(map, strength / most).join(" ")})`;
    context.stroke(path);
  }
}
