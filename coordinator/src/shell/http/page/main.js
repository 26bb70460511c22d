// Keeps the page up to date: asks every two seconds, draws what came, and goes on where a coordinator was away.

import { byId, set, show, write } from "./dom.js";
import { duration, words } from "./format.js";
import { chooseWorkers, drawPipeline } from "./pipeline.js";
import { drawRanks, prepareRanks, shownRanks } from "./ranks.js";
import { chooseSession, showSession, stateOf, worstRank } from "./session.js";
import { hasToken, keepToken, Source, TokenNeeded } from "./source.js";
import { showSources, showStream } from "./stream.js";
import { prepareEvents, showBadSamples, showCluster, showEvents, showIdle, showRuns, showWorkers } from "./tables.js";

const PERIOD_MS = 2000;
/** Steps in the charts: 5 minutes of seconds, or an hour of tens of seconds. */
const STEPS = { 1000: 300, 10000: 360 };

const source = new Source();
let answeredAt = null;
let timer = null;
let isAsking = false;
let isAskedAgain = false;
let announced = "";

const stepMs = () => Number(document.querySelector('input[name="span"]:checked').value);

/** Asks, draws, and comes again: later when the answers take long. */
async function refresh() {
  if (isAsking) {
    isAskedAgain = true;
    return;
  }
  isAsking = true;
  clearTimeout(timer);
  const begun = performance.now();
  try {
    await source.refresh();
    answeredAt = Date.now();
    showConnection("live", "Live");
    await drawAll();
  } catch (error) {
    if (error instanceof TokenNeeded) askForToken();
    else showAway(error);
  }
  isAsking = false;
  if (!document.hidden) timer = setTimeout(refresh, isAskedAgain ? 0 : Math.max(PERIOD_MS, 4 * (performance.now() - begun)));
  isAskedAgain = false;
}

async function drawAll() {
  const { status } = source;
  show(byId("sign-in"), false);
  show(byId("content"), true);
  showNotice(status.leads ? "" : standby(status));
  show(byId("leads"), status.leads);
  if (!status.leads) return;
  showCluster(source);
  showWorkers(source);
  showEvents(source);
  showBadSamples(status);
  showRuns(status);
  showIdle(status);
  const session = chooseSession(status);
  show(byId("session"), session !== null);
  if (session) await drawSession(session, status);
}

async function drawSession(session, status) {
  const job = source.status.jobs.find((job) => job.name === session.job);
  showSession(session, job);
  showStream(session, job);
  showSources(session, job);
  show(byId("pipeline"), stateOf(session) === "running");
  const workers = chooseWorkers(session, status);
  const ranks = shownRanks(session).map((rank) => rank.rank).sort((a, b) => a - b);
  const history = await source.history(session.session, ranks, workers.map((worker) => worker.worker), stepMs());
  drawPipeline(session, job, workers, history, STEPS[history.stepMs]);
  drawRanks(session, job, history, STEPS[history.stepMs]);
  const limit = worstRank(session)?.diagnosis.limit;
  if (limit) announce(`Session ${session.session}: the limit is ${words(limit)}.`);
}

function standby(status) {
  const leader = status.leader ? `${status.leader} leads: open the page of that coordinator.` : "No leader is known.";
  return `This coordinator is on standby. ${leader}`;
}

function showNotice(text) {
  write(byId("notice"), text);
  show(byId("notice"), text !== "");
}

function showConnection(state, text) {
  set(byId("connection"), "data-state", state);
  write(byId("connection-text"), text);
}

function showAway(error) {
  const since = answeredAt ? ` for ${duration(Date.now() - answeredAt)}` : "";
  showConnection("away", `No answer${since}; asking again`);
  show(byId("content"), true);
  showNotice(`The coordinator does not answer (${error.message}). Ranks that run get their batches without it; what is shown below is old.`);
  announce("The coordinator does not answer.");
}

function askForToken() {
  if (hasToken() && !byId("sign-in").hidden) write(byId("token-problem"), "That is not the token.");
  showConnection("away", "The token is missing");
  show(byId("content"), false);
  show(byId("sign-in"), true);
}

/** Reads a text to those who hear the page, if it is another one than the last. */
function announce(text) {
  if (text !== announced) write(byId("announcement"), text);
  announced = text;
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value.trim());
  byId("token").value = "";
  refresh();
});
for (const choice of document.querySelectorAll('input[name="span"]')) choice.addEventListener("change", refresh);
byId("pipeline-worker").addEventListener("change", refresh);
addEventListener("hashchange", () => {
  const folded = byId(location.hash.slice(1))?.closest("details");
  if (folded) folded.open = true;
  refresh();
});
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
prepareRanks(refresh);
prepareEvents(refresh);
refresh();
