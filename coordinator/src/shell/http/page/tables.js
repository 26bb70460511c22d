// The parts of the page about the whole cluster: figures, workers, events, bad samples, runs and jobs.

import { byId, list, make, set, show, table, write, writeSentence } from "./dom.js";
import { bytes, count, duration, fillOf, hundredths, many, percent, percentDown, position, sampleNoun, sessionName, words } from "./format.js";
import { figures, heard } from "./session.js";

const EVENTS = 25;
let shownEvents = EVENTS;

/** Fills the figures of the cluster. */
export function showCluster(source) {
  const { status } = source;
  const running = status.sessions.filter((session) => session.ranks.some((rank) => rank.is_alive));
  const alive = running.flatMap((session) => session.ranks.filter((rank) => rank.is_alive));
  const wanted = running.reduce((sum, session) => sum + session.world, 0);
  const cores = status.workers.reduce((sum, worker) => sum + worker.cores, 0);
  const used = status.workers.map((worker) => source.coresUsed(worker)).filter((cores) => cores !== null);
  const draining = status.workers.filter((worker) => worker.draining).length;
  const bad = status.jobs.reduce((sum, job) => sum + job.bad_sample_count, 0);
  const failed = status.jobs.filter((job) => job.failed).length;
  figures(byId("figures"), [
    ["Workers", count(status.workers.length), draining ? `${count(draining)} draining` : "alive"],
    ["Cores busy", used.length ? hundredths(used.reduce((sum, cores) => sum + cores, 0)) : "–", `of ${hundredths(cores)} in the budgets`],
    ["Ranks", count(alive.length), wanted ? `of ${count(wanted)}, in ${many(running.length, "session")}` : "none runs"],
    ["Jobs", count(status.jobs.length), failed ? `${count(failed)} failed` : ""],
    ["Bad samples", count(bad), bad ? "listed below" : ""],
  ]);
  const problems = [
    ...status.jobs.filter((job) => job.failed).map((job) => `job ${job.name} has failed: ${job.failed}`),
    ...status.job_problems.map((file) => `job file ${file.origin}: ${file.problem}`),
  ];
  list(byId("problems"), problems, (text) => text, () => make("li"), write);
  show(byId("problems"), problems.length > 0);
  write(byId("version"), `Coordinator ${status.version}, protocol ${status.protocol_version}, leads for ${duration(status.uptime_ms)}`);
}

/** Says what is to be done where nothing has run yet. */
export function showIdle(status) {
  const steps = status.first_steps;
  list(byId("idle-steps"), steps, ({ text, command }) => text + command, ({ text, command }) =>
    make("li", {}, make("p", {}, text, make("code", {}, command))), (item, { is_done }) => set(item, "data-done", is_done));
  show(byId("idle"), steps.length > 0);
}

const byName = (workers) => [...workers].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));

/** Fills the table of workers. */
export function showWorkers(source) {
  const store = ({ store }) => [
    many(store.requests, "request"),
    store.retries ? `${count(store.retries)} repeated` : null,
    store.timeouts ? `${count(store.timeouts)} timed out` : null,
    store.refusals ? `${count(store.refusals)} refused` : null,
    store.outage_ms ? `no answer for ${duration(store.outage_ms)}` : null,
  ].filter(Boolean).join(", ");
  const cores = (worker) => {
    const used = source.coresUsed(worker);
    return `${used === null ? "–" : hundredths(used)} of ${hundredths(worker.cores)}`;
  };
  const fetched = (worker) => {
    const window = worker.windows.find((window) => window.window_ms === 10_000);
    return `${bytes(window?.stages.find((stage) => stage.name === "fetch")?.bytes_per_s ?? 0)}/s`;
  };
  const tuned = (worker) => (worker.tuned ?? []).map(({ value, current, is_pinned }) =>
    `${words(value)} ${count(current)}${is_pinned ? " (pinned)" : ""}`).join(", ") || "–";
  table(byId("workers"), "Workers", [
    { title: "Worker", of: (worker) => worker.name },
    { title: "State", of: (worker) => `${worker.draining ? "draining" : "ready"}${heard(worker.heartbeat_age_ms)}` },
    { title: "Ranks", number: true, of: (worker) => count(worker.ranks.length) },
    { title: "Cores busy", number: true, of: cores },
    { title: "Fetched", number: true, of: fetched },
    { title: "Store", wide: true, of: store },
    { title: "Tuned", wide: true, of: tuned },
  ], byName(source.status.workers), (worker) => worker.worker, "No worker is there.");
}

/** Draws anew when another kind of event is chosen, or more are. */
export function prepareEvents(redraw) {
  byId("event-kind").addEventListener("change", redraw);
  byId("more-events").addEventListener("click", () => {
    shownEvents += 4 * EVENTS;
    redraw();
  });
}

/** Fills the list of events, the newest first. */
export function showEvents(source) {
  const timeline = source.timeline();
  const kinds = ["", ...[...new Set(timeline.map((event) => event.kind))].sort()];
  const choice = byId("event-kind");
  list(choice, kinds, (kind) => kind || "all", () => make("option"), (option, kind) => {
    set(option, "value", kind);
    write(option, kind ? words(kind) : "all");
  });
  const chosen = timeline.filter((event) => !choice.value || event.kind === choice.value);
  list(byId("events"), chosen.slice(0, shownEvents), (event) => event.id, (event) => {
    const at = new Date(source.leadsSince + event.at_ms);
    const text = make("span", { class: "text" });
    writeSentence(text, event.text);
    return make("li", { "data-level": event.level },
      make("time", { datetime: at.toISOString(), title: at.toLocaleString() }, at.toLocaleTimeString()),
      make("span", { class: "kind" }, words(event.kind)),
      text);
  });
  const more = byId("more-events");
  show(more, chosen.length > shownEvents);
  write(more, `Show more: ${count(shownEvents)} of ${count(chosen.length)} are shown`);
}

/** Fills the table of bad samples. */
export function showBadSamples(status) {
  const rows = status.jobs.flatMap((job) => job.bad_sample_list.map((bad) => ({ ...bad, job })));
  show(byId("bad-part"), rows.length > 0);
  table(byId("bad"), "Bad samples", [
    { title: "Key", wide: true, of: (bad) => bad.key },
    { title: "Cause", wide: true, of: (bad) => bad.cause },
    { title: "Shard", wide: true, of: (bad) => bad.shard },
    { title: "Sample", number: true, of: (bad) => count(bad.sample) },
    ...(rows.some((bad) => bad.source) ? [{ title: "Source", wide: true, of: (bad) => bad.source ?? "" }] : []),
    { title: "Job", wide: true, of: (bad) => `${bad.job.name}: the first ${count(bad.job.bad_sample_list.length)} of ${count(bad.job.bad_sample_count)}, policy ${bad.job.bad_samples}` },
  ], rows, (bad) => `${bad.job.name} ${bad.sample}`, "");
}

/** Fills the tables of runs and of jobs, and of what is folded away. */
export function showRuns(status) {
  const rows = status.jobs.flatMap((job) => job.runs.map((run) => ({ ...run, job })));
  const state = (run) => (run.is_finished ? "finished" : run.ranks_alive ? `${many(run.ranks_alive, "rank")} alive` : "resumable");
  const name = (run) => sessionName({ run: run.name, job: run.job.name });
  const key = (run) => `${run.job.name} ${run.name}`;
  show(byId("runs-part"), rows.length > 0);
  show(byId("jobs-part"), status.jobs.length > 0);
  table(byId("runs"), "Runs", [
    { title: "Run", of: name },
    { title: "State", of: state },
    { title: "Done", number: true, of: (run) => `${percentDown(run.done)} of ${many(run.epochs, "epoch")}` },
    { title: "Held by", wide: true, of: (run) => run.holder ?? "nobody" },
  ], rows, key, "");
  table(byId("receipts"), "Receipts", [
    { title: "Run", of: name },
    { title: "Session", number: true, of: (run) => run.session },
    { title: "Position", number: true, of: (run) => position(run.acknowledged) },
    { title: "Receipt", wide: true, of: (run) => (run.receipt ? make("code", {}, run.receipt) : "not known yet") },
  ], rows, key, "No run has begun.");
  table(byId("fingerprints"), "Fingerprints", [
    { title: "Job", of: (job) => job.name },
    { title: "Fingerprint", wide: true, of: (job) => make("code", {}, job.fingerprint) },
    { title: "Of its dataset", wide: true, of: (job) => make("code", {}, job.dataset_fingerprint) },
  ], status.jobs, (job) => job.name, "There is no job.");
  table(byId("places"), "Addresses", [
    { title: "Worker", of: (worker) => worker.name },
    { title: "Node", wide: true, of: (worker) => worker.node },
    { title: "Address", of: (worker) => worker.quic },
  ], byName(status.workers), (worker) => worker.worker, "No worker is there.");
  table(byId("jobs"), "Jobs", [
    { title: "Job", of: (job) => job.name },
    { title: "Dataset", wide: true, of: (job) => job.dataset },
    { title: "Samples", number: true, of: (job) => (job.sequence ? `${many(job.samples, sampleNoun(job))} ${fillOf(job)[0]}` : count(job.samples)) },
    { title: "Packing", wide: true, of: (job) => (job.sequence ? fillOf(job)[1] : "") },
    { title: "Batch", number: true, of: (job) => count(job.global_batch) },
    { title: "Epochs", number: true, of: (job) => count(job.epochs) },
    { title: "Order", wide: true, of: (job) => (job.order.shuffle ? `shuffled: ${many(job.order.lanes, "lane")}, window ${count(job.order.window)}, seed ${job.seed}` : "as stored") },
    { title: "Bad", number: true, of: (job) => percent(job.bad_fraction) },
  ], status.jobs, (job) => job.name, "");
}
