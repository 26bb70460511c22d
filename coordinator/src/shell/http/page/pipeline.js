// Draws the stages that a session's samples pass, with where the time of each goes, and marks the limit.

import { chart, mean, updateChart } from "./charts.js";
import { byId, list, make, set, show, write } from "./dom.js";
import { amount, bytes, count, many, nanoseconds, percent } from "./format.js";
import { limitStage } from "./session.js";

const WINDOW_MS = 10_000;
/** The states of a unit: the name in figures, the class of its colour, and in words. */
const STATES = [
  ["busy", "busy", "busy"],
  ["input_wait", "input", "waits for input"],
  ["output_wait", "output", "waits for output"],
  ["throttled", "throttled", "throttled"],
];
/** What an item of a stage is, if it is no sample, and where a sample is a sequence of documents. */
const ITEMS = { open: "datasets", fetch: "requests", transform: "calls", "hand-over": "batches", send: "batches" };
const SEQUENCE_ITEMS = { ...ITEMS, decode: "documents", trainer: "sequences" };

/** Lists the workers in the choice above the pipeline, and returns those that are chosen. */
export function chooseWorkers(session, status) {
  const homes = new Set(session.ranks.map((rank) => rank.home_worker));
  const serving = status.workers.filter((worker) => homes.has(worker.worker));
  const all = { worker: "", name: serving.length === 1 ? serving[0].name : `all ${many(serving.length, "worker")}` };
  const choice = byId("pipeline-worker");
  list(choice, serving.length > 1 ? [all, ...serving] : [all], (worker) => worker.worker, () => make("option"), (option, worker) => {
    set(option, "value", worker.worker);
    write(option, worker.name);
  });
  const chosen = serving.filter((worker) => worker.worker === choice.value);
  return chosen.length ? chosen : serving;
}

/** Draws the pipeline of `workers` for a session. */
export function drawPipeline(session, job, workers, history, steps) {
  const limit = limitStage(session);
  const stages = [...together(workers).filter(isUsed), trainer(session)];
  list(byId("stages"), stages, (stage) => stage.name, createStage, (card, stage) => {
    set(card, "data-limit", stage.name === limit && limit);
    show(card.querySelector(".badge"), stage.name === limit);
    fillStage(card, stage, job?.sequence ? SEQUENCE_ITEMS : ITEMS);
    const layers = stage.name === "trainer" ? waitLayers(session, history) : stateLayers(stage.name, workers, history);
    const busy = layers.values.busy;
    const text = busy.length
      ? `${stage.name}: in the time shown, ${STATES.filter(([key]) => layers.values[key]?.length)
        .map(([key, , words]) => `${percent(mean(layers.values[key]))} ${words}`).join(", ")}`
      : `${stage.name}: no history yet`;
    const drawn = STATES.filter(([key]) => layers.values[key]).map(([key, name]) => ({ class: name, values: layers.values[key] }));
    updateChart(card.querySelector("svg"), drawn, steps - busy.length - layers.late, steps, text);
  });
}

/** Adds up what the stages of workers did in the last seconds. */
function together(workers) {
  const stages = new Map();
  for (const worker of workers) {
    const window = worker.windows.find((window) => window.window_ms === WINDOW_MS);
    for (const rate of window?.stages ?? []) {
      const sum = stages.get(rate.name) ?? { name: rate.name, units: 0, queue: 0, p99_ns: 0 };
      for (const [key, value] of Object.entries(rate)) if (key !== "name") sum[key] = (sum[key] ?? 0) + value;
      const totals = worker.stages.find((stage) => stage.name === rate.name);
      sum.units += totals?.units ?? 0;
      sum.queue += totals?.queue_depth ?? 0;
      sum.p99_ns = Math.max(sum.p99_ns, totals?.p99_ns ?? 0);
      stages.set(rate.name, sum);
    }
  }
  return [...stages.values()];
}

const unitSeconds = (stage) => STATES.reduce((sum, [key]) => sum + (stage[key] ?? 0), 0);
const isUsed = (stage) => unitSeconds(stage) > 0.001;

/** The trainers of a session as a stage: they wait for batches, or are busy. */
function trainer(session) {
  const ranks = session.ranks.filter((rank) => rank.is_alive && rank.waiting !== null);
  const waiting = mean(ranks.map((rank) => rank.waiting));
  const rates = ranks.map((rank) => rank.job_samples_per_s ?? 0);
  return {
    name: "trainer", units: ranks.length, items_per_s: mean(rates), bytes_per_s: 0,
    busy: ranks.length ? 1 - waiting : 0, input_wait: waiting, output_wait: 0, throttled: 0,
  };
}

function createStage(stage) {
  return make("li", { class: "stage" },
    make("h3", {}, make("span", {}, stage.name), make("span", { class: "badge", hidden: true }, "the limit")),
    make("p", { class: "rate" }, make("span"), " ", make("small")),
    make("div", { class: "bar", "aria-hidden": "true" }, ...STATES.map(([, name]) => make("span", { class: name }))),
    make("p", { class: "shares" }), chart("shares"), make("p", { class: "quiet" }));
}

function fillStage(card, stage, items) {
  const all = unitSeconds(stage) || 1;
  const shares = STATES.map(([key, , words]) => [stage[key] / all, words]);
  [...card.querySelector(".bar").children].forEach((part, at) => { part.style.flexGrow = shares[at][0]; });
  write(card.querySelector(".shares"), shares.filter(([share]) => share >= 0.005).map(([share, words]) => `${percent(share)} ${words}`).join(", "));
  const [rate, flow] = card.querySelector(".rate").children;
  write(rate, amount(stage.items_per_s));
  write(flow, `${items[stage.name] ?? "samples"}/s${stage.bytes_per_s ? `, ${bytes(stage.bytes_per_s)}/s` : ""}`);
  const details = stage.name === "trainer" ? [many(stage.units, "rank")] : [
    many(stage.units, "unit"),
    stage.queue ? `${count(stage.queue)} in front` : null,
    stage.p99_ns ? `p99 ${nanoseconds(stage.p99_ns)}` : null,
    stage.failures_per_s ? `${amount(stage.failures_per_s)} failures/s` : null,
  ];
  write(card.querySelector(".quiet"), details.filter(Boolean).join(", "));
}

/** The mean shares of a stage over workers, by step. */
function stateLayers(name, workers, history) {
  const series = workers.map((worker) => history?.workers.get(`${worker.worker} ${name}`)).filter(Boolean);
  return aligned(series, STATES.map(([key]) => key), history, 100);
}

/** How long ranks waited and did not, by step. */
function waitLayers(session, history) {
  const series = session.ranks.map((rank) => history?.ranks.get(rank.rank)).filter(Boolean);
  const { values, late } = aligned(series, ["waiting"], history, 1);
  return { values: { busy: values.waiting.map((waiting) => 1 - waiting), input_wait: values.waiting }, late };
}

/** The means of several series step by step; `late` is the number of steps that are missing at the end. */
function aligned(series, keys, history, whole) {
  const first = Math.min(...series.map((one) => one.first));
  const ends = series.map((one) => one.first + one[keys[0]].length);
  const last = Math.max(...ends);
  const values = {};
  for (const key of keys) {
    values[key] = [];
    for (let step = first; step < last; step += 1) {
      const there = series.map((one) => one[key][step - one.first]).filter((value) => value !== undefined);
      values[key].push(mean(there) / whole);
    }
  }
  return { values, late: series.length ? history.end - last : 0 };
}
