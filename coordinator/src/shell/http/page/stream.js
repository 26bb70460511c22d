// The sources of a job: what each has given, and a line over the stream with their shares, where they change, and where samples are redacted.

import { byId, draw, list, make, set, show, table, write } from "./dom.js";
import { count, many, percent, position } from "./format.js";

/** The width of the drawing, in units of its own. */
const WIDTH = 1000;
const HEIGHT = 100;
/** The colours that there are; with more sources they come again. */
const COLOURS = 6;

/** Fills the part of the page about the changes of a job, where the session is `session.acknowledged`. */
export function showStream(session, job) {
  const changes = job?.changes ?? [];
  show(byId("stream"), changes.length > 1);
  if (changes.length < 2) return;
  const at = session.acknowledged.epoch * job.samples + session.acknowledged.offset;
  const last = Math.max(at, ...changes.map((change) => change.from));
  const end = Math.max(1, Math.min(1.2 * last, Math.max(last, session.progress.all_samples)));
  const x = (sample) => (WIDTH * Math.min(1, sample / end)).toFixed(1);
  const spans = weightsOf(changes, end);
  drawSpans(spans, x);
  drawMarks(changes, at, x);
  write(byId("stream-drawing").querySelector("title"),
    `Shares of the sources from position 0 to ${count(end)}, with ${many(changes.length - 1, "change")}; the session is at ${count(at)}`);
  const names = spans[0].shares.map(([name]) => name);
  list(byId("stream-key"), names, (name) => name, (name) =>
    make("li", {}, make("span", { class: `swatch source-${names.indexOf(name) % COLOURS}` }), ` ${name}`));
  show(byId("stream-key"), names.length > 0);
  list(byId("stream-changes"), changes.slice(1), textOf, () => make("li"), (item, change) => {
    set(item, "data-proposed", change.is_proposed);
    write(item, textOf(change));
  });
}

/** Fills the table of what each source has given to the run of a session. */
export function showSources(session, job) {
  const rows = job?.runs.find((run) => run.name === session.run)?.sources ?? [];
  show(byId("sources"), rows.length > 0);
  if (!rows.length) return;
  table(byId("source-table"), "Sources", [
    { title: "Source", wide: true, of: (source) => source.name },
    { title: job.sequence ? "Sequences" : "Samples", number: true, of: (source) => count(source.samples) },
    { title: "Times through", number: true, of: (source) => source.times.toFixed(2) },
    { title: job.sequence ? "Bad documents" : "Bad samples", number: true, of: (source) => count(source.bad_sample_count) },
  ], rows, (source) => source.name, "");
}

/** Returns the spans with the same weights: `[{ from, to, shares }]`. */
function weightsOf(changes, end) {
  const made = changes.filter((change, at) => !change.is_proposed && (at === 0 || change.shares.length));
  return made.map(({ from, shares }, at) => ({ from, to: made[at + 1]?.from ?? end, shares }));
}

function drawSpans(spans, x) {
  const parts = spans.flatMap(({ from, to, shares }) => {
    let top = 0;
    const all = shares.length ? shares : [["", 1]];
    return all.map(([, share], number) => {
      const part = { x: x(from), y: top, width: x(to) - x(from), height: HEIGHT * share, class: `source-${number % COLOURS}` };
      top += HEIGHT * share;
      return part;
    });
  });
  list(byId("stream-spans"), parts.map((part, at) => ({ part, at })), ({ at }) => at, () => draw("rect"), (rect, { part }) => {
    for (const [name, value] of Object.entries(part)) set(rect, name, value);
  });
}

/** Draws a line at each change, and one where the session is. */
function drawMarks(changes, at, x) {
  const kind = (change) => (change.is_proposed ? "proposed" : change.redacted ? "redaction" : "change");
  const marks = [...changes.slice(1).map((change) => ({ at: change.from, kind: kind(change) })), { at, kind: "here" }];
  list(byId("stream-marks"), marks, (mark) => `${mark.kind}${mark.at}`, () => draw("line", { y1: 0, y2: HEIGHT }), (line, mark) => {
    set(line, "class", mark.kind);
    set(line, "x1", x(mark.at));
    set(line, "x2", x(mark.at));
  });
}

/** Says what changes, and where. */
function textOf({ at, from, shares, redacted, is_proposed }) {
  const weights = shares.map(([name, share]) => `${name} ${percent(share)}`).join(", ");
  if (!redacted && !weights) return `At ${position(at)}, after ${many(from, "sample")}: the stream ends, as a source is used up`;
  const what = redacted ? `${many(redacted, "sample")} ${redacted === 1 ? "is" : "are"} redacted` : weights;
  return `From ${position(at)}, sample ${count(from)}: ${what}${is_proposed ? "; it waits for the ranks to promise" : ""}`;
}
