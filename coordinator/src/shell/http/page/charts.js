// Small drawings of values over time. Each has a text that says the same.

import { draw, set, write } from "./dom.js";

const HEIGHT = 100;

/** A chart of `steps` steps; `updateChart` fills it. */
export function chart(className) {
  const title = draw("title");
  const drawing = draw("svg", { class: `chart ${className}`, role: "img", preserveAspectRatio: "none" }, title,
    draw("line", { class: "grid", x1: 0, x2: "100%", y1: "50%", y2: "50%" }));
  drawing.append(draw("g"));
  return drawing;
}

/**
 * Draws layers on top of each other: `layers` is `[{ class, values }]` with fractions, `offset` the place of the first
 * value among `steps`. `text` describes the chart to those who do not see it.
 */
export function updateChart(drawing, layers, offset, steps, text) {
  set(drawing, "viewBox", `0 0 ${steps} ${HEIGHT}`);
  write(drawing.querySelector("title"), text);
  const group = drawing.querySelector("g");
  while (group.childElementCount < layers.length) group.append(draw("path"));
  let base = layers[0]?.values.map(() => 0) ?? [];
  layers.forEach((layer, at) => {
    const top = base.map((bottom, step) => Math.min(1, bottom + layer.values[step]));
    const path = group.children[at];
    set(path, "class", layer.class);
    set(path, "d", area(base, top, offset));
    base = top;
  });
}

/** The path around an area of steps between two lists of heights. */
function area(bottom, top, offset) {
  if (!top.length) return "";
  const y = (fraction) => (HEIGHT * (1 - fraction)).toFixed(1);
  const forth = top.map((fraction, step) => `${offset + step},${y(fraction)} ${offset + step + 1},${y(fraction)}`);
  const back = bottom.map((fraction, step) => `${offset + step + 1},${y(fraction)} ${offset + step},${y(fraction)}`);
  return `M${forth.join(" ")} ${back.reverse().join(" ")}Z`;
}

/** The mean of a list; 0 of an empty one. */
export const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0);
