// One card for each rank: how long it waited over time, where its batches come from, and its receipt.

import { chart, mean, updateChart } from "./charts.js";
import { byId, list, make, set, show, write } from "./dom.js";
import { amount, count, percent, position, sampleNoun, words } from "./format.js";
import { heard, worstRank } from "./session.js";
import { SHOWN_SERIES } from "./source.js";

const PAGE = 16;
let shown = PAGE;

/** Returns the ranks of a session that have a card, in the order of the cards. */
export function shownRanks(session) {
  const ranks = [...session.ranks];
  if (byId("rank-order").value === "waiting") {
    // In steps, so that cards do not move at every breath.
    const wait = (rank) => (rank.is_alive ? Math.round(10 * (rank.waiting ?? 0)) : -1);
    ranks.sort((a, b) => wait(b) - wait(a) || a.rank - b.rank);
  }
  return ranks.slice(0, shown);
}

/** Shows more cards at a click; `redraw` draws the page. */
export function prepareRanks(redraw) {
  byId("rank-order").addEventListener("change", redraw);
  byId("more-ranks").addEventListener("click", () => {
    shown = Math.min(SHOWN_SERIES, shown + PAGE);
    redraw();
  });
}

/** Draws the cards. */
export function drawRanks(session, job, history, steps) {
  write(byId("ranks-text"), `Charts: the share of its time, 0 to 100 %, that each rank waited for a batch, over the last ${steps === 300 ? "5 minutes" : "hour"}.`);
  const limit = worstRank(session)?.diagnosis.limit;
  list(byId("ranks"), shownRanks(session), (rank) => `${session.session} ${rank.rank}`, createRank, (card, rank) => {
    fillRank(card, rank, { ...session, noun: sampleNoun(job) }, limit);
    const series = history?.ranks.get(rank.rank);
    const waiting = series?.waiting ?? [];
    const text = waiting.length
      ? `rank ${rank.rank} waited ${percent(mean(waiting))} of the time shown, ${percent(Math.max(...waiting))} at most`
      : `rank ${rank.rank}: no history yet`;
    const offset = series ? steps - (history.end - series.first) : 0;
    updateChart(card.querySelector("svg"), [{ class: "input", values: waiting }], offset, steps, text);
  });
  const more = byId("more-ranks");
  const total = session.ranks.length;
  show(more, total > shown);
  set(more, "disabled", shown >= SHOWN_SERIES);
  write(more, shown >= SHOWN_SERIES
    ? `${count(shown)} of ${count(total)} are shown; spdl-ctl status lists all`
    : `Show more: ${count(shown)} of ${count(total)} are shown`);
}

function createRank(rank) {
  return make("li", { class: "rank" },
    make("h3", {}, make("span", {}, `Rank ${rank.rank}`), make("span", { class: "badge" })),
    make("p", { class: "rate" }, make("span"), " ", make("small")),
    chart("waits"),
    make("p", { class: "quiet way" }), make("p", { class: "quiet at" }));
}

function fillRank(card, rank, session, namedLimit) {
  const state = rank.is_alive ? "" : rank.left ? "has left" : "not alive";
  set(card, "data-away", !rank.is_alive);
  // The verdict names the limit of the rank that waits longest; a card only what differs from it.
  const limit = rank.diagnosis?.limit;
  const another = limit && limit !== "trainer" && limit !== namedLimit ? words(limit) : "";
  const badge = card.querySelector(".badge");
  write(badge, state || another);
  show(badge, badge.textContent !== "");
  set(badge, "class", another ? "badge alarm" : "badge");
  const [wait, rate] = card.querySelector(".rate").children;
  write(wait, rank.is_alive && rank.waiting !== null ? `${percent(rank.waiting)} waiting` : "–");
  write(rate, rank.job_samples_per_s === null ? "" : `${amount(rank.job_samples_per_s / session.world)} ${session.noun}s/s`);
  const home = rank.home ? `from ${rank.home}${rank.transport ? ` (${words(rank.transport)})` : ""}` : rank.left ? "" : "no worker serves it";
  write(card.querySelector(".way"), `${home}${rank.is_alive ? heard(rank.heartbeat_age_ms) : ""}`);
  write(card.querySelector(".at"), `at ${position(rank.position)}`);
}
