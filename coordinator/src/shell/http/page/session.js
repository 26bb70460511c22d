// What is said of one session: its verdict, its figures, and what each resource would allow.

import { byId, list, make, set, show, table, write, writeSentence } from "./dom.js";
import { amount, count, duration, many, percent, percentDown, position, sampleNoun, sessionName, words } from "./format.js";

/** The stage in which a limit shows. */
const STAGE_OF = {
  trainer: "trainer", cpu: "decode", bad_samples: "decode", uneven_samples: "decode", function: "transform",
  store_latency: "fetch", store_bandwidth: "fetch", store_errors: "fetch", slow_object: "fetch", cold_cache: "fetch",
  hand_over: "hand-over", network: "send",
};
/** What the coordinator predicts the gain of. */
const REMEDIES = {
  cores: "Twice the cores", functions: "Functions twice as fast", requests: "Twice the requests in flight", latency: "Half the store's latency",
  bandwidth: "Twice the store's bandwidth", cache: "Half the bytes from the store", step: "Steps in half the time",
};
/** A remedy whose factor is smaller gives nothing. */
const LEAST_GAIN = 1.01;
/** A rate that is more times the limit is drawn as this many. */
const MOST_DRAWN = 4;

/** The session that was asked for: the part of the address behind `#`, which also leads to words. */
let wanted = "";

/** The rank that decides the verdict: the one alive that waits most. */
export function worstRank(session) {
  const known = session.ranks.filter((rank) => rank.is_alive && rank.diagnosis);
  return known.reduce((worst, rank) => (worst && worst.waiting >= rank.waiting ? worst : rank), null);
}

/** The name of the stage that limits a session; `null` if none is known. */
export const limitStage = (session) => STAGE_OF[worstRank(session)?.diagnosis.limit] ?? null;

/** The state of a session in a word or two. */
export function stateOf(session) {
  if (session.ranks.some((rank) => rank.is_alive)) return "running";
  if (session.superseded_by !== null) return `superseded by session ${session.superseded_by}`;
  if (session.is_reset) return "reset";
  return session.ranks.every((rank) => rank.left) ? "ended" : "silent";
}

/** Fills the list of sessions, and returns the one to show: the chosen one, or the newest that runs. */
export function chooseSession(status) {
  const newest = [...status.sessions].sort((a, b) => b.session - a.session);
  if (location.hash.startsWith("#session-")) wanted = location.hash;
  const chosen = newest.find((session) => wanted === `#session-${session.session}`);
  const shown = chosen ?? newest.find((session) => stateOf(session) === "running") ?? newest[0] ?? null;
  const listed = newest.filter((session, at) => at < 12 || session === shown);
  list(byId("session-list"), listed, (session) => session.session, () => make("li", {}, make("a")), (item, session) => {
    const link = item.firstElementChild;
    set(link, "href", `#session-${session.session}`);
    set(link, "aria-current", session === shown && "true");
    write(link, `${sessionName(session)}, session ${session.session}: ${stateOf(session)}`);
  });
  show(byId("sessions"), listed.length > 1);
  return shown;
}

/** Fills a list of figures: `[name, value, remark, word]`, where `word` is what explains the name. */
export function figures(node, all) {
  const term = (name, word) => make("dt", {}, word ? make("a", { href: `#word-${word}` }, name) : name);
  list(node, all, ([name]) => name, ([name, , , word]) => make("div", {}, term(name, word), make("dd", {}, make("span"), make("small"))),
    (item, [, value, remark]) => {
      write(item.querySelector("span"), value);
      write(item.querySelector("small"), remark ?? "");
    });
}

function verdictOf(session, noun) {
  if (session.verdict) return session.verdict;
  const missing = session.world - session.ranks.length;
  switch (stateOf(session)) {
    case "running":
      return missing ? `${many(missing, "rank")} of ${count(session.world)} have not connected yet.` : "It has started: the first figures come in some seconds.";
    case "ended": {
      const { is_finished, session_samples, mean_samples_per_s, waited } = session.progress;
      const end = is_finished ? "The run is finished" : `The session has ended before the run's last ${noun}, and the next launch goes on from there`;
      const time = mean_samples_per_s === null ? ""
        : ` in ${duration(session.lasted_ms)}, ${amount(mean_samples_per_s)} a second; its ranks waited ${percent(waited)} of that time`;
      return `${end}: ${many(session_samples, noun)}${time}. \`spdl-ctl audit --run ${session.run}\` checks its receipt.`;
    }
    case "silent":
      return "Its ranks are silent.";
    default:
      return `This session is ${stateOf(session)}.`;
  }
}

/** Why a session started where it did. */
function originOf({ reason, start }) {
  if (reason.Resumed) return `resumed session ${reason.Resumed.session} at ${position(start)}`;
  return reason === "Beginning" ? "from the beginning" : `from ${position(start)}, as the launch asked`;
}

/** Fills the part of the page about a session. */
export function showSession(session, job) {
  const { progress } = session;
  const noun = sampleNoun(job);
  const alive = session.ranks.filter((rank) => rank.is_alive);
  const worst = worstRank(session);
  write(byId("session-title"), `${sessionName(session)}, session ${session.session}`);
  writeSentence(byId("verdict-text"), verdictOf(session, noun));
  set(byId("verdict"), "data-limited", alive.length > 0 && worst !== null && worst.diagnosis.limit !== "trainer");
  show(byId("progress"), progress.all_samples > 0);
  byId("progress").value = progress.done;
  const waits = alive.map((rank) => rank.waiting ?? 0);
  const left = (ms) => (ms === null ? "–" : duration(ms));
  const isOn = !progress.is_finished;
  figures(byId("session-figures"), [
    ["Done", percentDown(progress.done), `${count(progress.done_samples)} of ${many(progress.all_samples, noun)}`],
    ["Epoch", `${count(progress.epoch)} of ${count(session.epochs)}`, isOn ? `${percentDown(progress.epoch_done)} of ${many(progress.epoch_samples, noun)}` : "", "position"],
    ["Time left", isOn ? left(progress.left_ms) : "none", isOn && progress.epoch_left_ms !== null ? `${left(progress.epoch_left_ms)} of this epoch` : ""],
    ...rates(progress.samples_per_s, session, job),
    ["Waiting", alive.length ? percent(Math.max(...waits)) : "–", alive.length > 1 ? `the longest of ${many(alive.length, "rank")}` : "of its time", "waiting"],
    ["Ranks", `${count(alive.length)} of ${count(session.world)}`, originOf(session), "run"],
  ]);
  showGains(session.gains ?? {});
  showTerms(worst, noun);
}

/** The figures of the rate: samples, or sequences and their tokens. */
function rates(perS, session, job) {
  const rate = (factor) => (perS === null ? "–" : amount(perS * factor));
  const batches = `batches of ${count(session.global_batch)}`;
  if (!job?.sequence) return [["Samples per second", rate(1), batches]];
  const tokens = job.sequence.tokens / Math.max(1, job.samples);
  return [["Sequences per second", rate(1), batches], ["Tokens per second", rate(tokens), `${amount(tokens * session.global_batch)} in a step`]];
}

/** Fills the predicted gains of remedies, the largest first. */
function showGains(gains) {
  const known = Object.entries(gains).sort(([, a], [, b]) => b - a);
  show(byId("remedies"), known.length > 0);
  const name = ([remedy]) => REMEDIES[remedy] ?? words(remedy);
  const helps = ([, factor]) => factor > LEAST_GAIN;
  figures(byId("gains"), known.filter(helps).map((gain) => [name(gain), `+${percent(gain[1] - 1)}`, "predicted"]));
  const useless = known.filter((gain) => !helps(gain)).map((gain) => name(gain).toLowerCase());
  write(byId("no-gains"), useless.length ? `No gain from: ${useless.join(", ")}.` : "");
}

/** Fills the table of the rates that resources allow a rank. */
function showTerms(rank, noun) {
  const terms = rank?.diagnosis.terms ?? [];
  show(byId("resources"), terms.length > 0);
  if (!terms.length) return;
  const least = terms[0].samples_per_s;
  const longest = Math.min(MOST_DRAWN, terms.at(-1).samples_per_s / least);
  write(byId("resources-text"),
    `${noun === "sequence" ? "Sequences" : "Samples"} per second of rank ${rank.rank}, if only this resource were short. The smallest decides; the next one bounds what a remedy gives.`);
  const bar = (term) => {
    const part = make("span", { class: term === terms[0] ? "input" : "busy" });
    part.style.width = `${Math.min(100, (100 * term.samples_per_s) / least / longest)}%`;
    return make("div", { class: "bar", "aria-hidden": "true" }, part);
  };
  const gain = (term) => {
    const factor = term.samples_per_s / least;
    if (term === terms[0]) return "none";
    return factor < 2 ? `+${percent(factor - 1)}` : `${amount(factor)} times`;
  };
  table(byId("terms"), "Rates that resources allow", [
    { title: "Resource", of: (term) => words(term.limit) },
    { title: "Rate", number: true, of: (term) => amount(term.samples_per_s) },
    { title: "Room left", of: gain },
    { title: "Drawn", wide: true, of: bar },
  ], terms, (term) => term.limit, "");
}

/** Says how long ago a rank or worker was heard, if that is long. */
export const heard = (ageMs) => (ageMs > 3000 ? `, silent for ${duration(ageMs)}` : "");
