// Asks the coordinator for its status, history and events, and keeps what it said.

const TIMEOUT_MS = 8000;
const TOKEN = "spdl-http-token";

/** The coordinator asks for a token, or for another one. */
export class TokenNeeded extends Error {}

/** Keeps the token for this tab. */
export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

/** Whether a token was given in this tab. */
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

async function read(path, parameters = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch(`${path}?${new URLSearchParams(parameters)}`, {
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    cache: "no-store",
    credentials: "omit",
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (answer.status === 401) throw new TokenNeeded();
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${(await answer.text()).slice(0, 200).trim()}`);
  return answer.json();
}

/** The largest number of series in one answer. */
export const SHOWN_SERIES = 64;

/** What is known of the cluster. */
export class Source {
  status = null;
  /** The newest first. */
  events = [];
  /** When the leader began to lead, in milliseconds since 1970. */
  leadsSince = null;
  /** The leader's time when it last answered, in milliseconds since it leads. */
  nowMs = 0;
  /** For each worker its CPU time and uptime when it was last heard, and the cores that it used before that. */
  #workers = new Map();
  #history = new History();

  /** Asks for the status, and for what happened since the last time. */
  async refresh() {
    const status = await read("status");
    if (status.leads) {
      const page = await read("events", { after: this.events[0]?.id ?? 0 });
      if (page.leads_since_unix_ms !== this.leadsSince) {
        // Another process counts from 1 again.
        const isFirst = this.leadsSince === null;
        this.leadsSince = page.leads_since_unix_ms;
        this.#history = new History();
        this.events = isFirst ? page.events.reverse() : (await read("events")).events.reverse();
      } else {
        this.events = [...page.events.reverse(), ...this.events].slice(0, 2000);
      }
      this.nowMs = page.now_ms;
    }
    this.#workers = new Map(status.workers.map((worker) => [worker.worker, this.#heard(worker)]));
    this.status = status;
  }

  #heard({ worker, uptime_ms, cpu_ns }) {
    const before = this.#workers.get(worker);
    if (before?.uptime_ms === uptime_ms) return before;
    return { uptime_ms, cpu_ns, cores: before ? (cpu_ns - before.cpu_ns) / 1e6 / (uptime_ms - before.uptime_ms) : null };
  }

  /** Asks for the steps that are new of these ranks and workers, and returns all that are kept. */
  async history(session, ranks, workers, stepMs) {
    const leader = this.leadsSince;
    const missing = this.#history.begin(session, ranks, workers, stepMs);
    const page = await read("history", {
      session, step_ms: stepMs, first: missing, ranks: ranks.slice(0, SHOWN_SERIES), workers: workers.slice(0, SHOWN_SERIES),
    });
    if (page.leads_since_unix_ms === leader) this.#history.add(page);
    return this.#history;
  }

  /** The events and the changes that workers made to what they tune, the newest first. */
  timeline() {
    const changes = this.status.workers.flatMap((worker) => (worker.tuning ?? []).map((change) => ({
      id: `${worker.worker} ${change.value} ${change.at_ms}`,
      at_ms: Math.round(this.nowMs - worker.heartbeat_age_ms - worker.uptime_ms + change.at_ms),
      kind: "tuning",
      level: "info",
      text: `worker \`${worker.name}\` changed \`${change.value}\` from ${change.from} to ${change.to}: ${change.reason}`,
    })));
    return [...changes, ...this.events].sort((a, b) => b.at_ms - a.at_ms);
  }

  /** The cores that a worker used lately; `null` while that is not known. */
  coresUsed(worker) {
    return this.#workers.get(worker.worker)?.cores ?? null;
  }
}

/** The steps of one length that the page shows. */
class History {
  stepMs = 0;
  /** The number of the step in progress. */
  end = 0;
  ranks = new Map();
  workers = new Map();
  #asked = "";

  /** Returns the number of the first step to ask for. What is shown of another choice of series is forgotten. */
  begin(...asked) {
    const text = JSON.stringify(asked);
    if (text !== this.#asked) {
      Object.assign(this, { ranks: new Map(), workers: new Map(), end: 0 });
      this.#asked = text;
    }
    // The newest steps of a series come some heartbeats late.
    return Math.max(0, this.end - 30);
  }

  add(page) {
    this.stepMs = page.step_ms;
    this.end = Math.floor(page.now_ms / page.step_ms);
    const kept = page.step_ms === 1000 ? 300 : 360;
    for (const rank of page.ranks) {
      const series = { waiting: rank.waiting.map((thousandths) => thousandths / 1000), samples_per_s: rank.samples_per_s };
      merge(this.ranks, rank.rank, rank.first, series, this.end - kept);
    }
    for (const worker of page.workers) {
      for (const { name, ...shares } of worker.stages) {
        merge(this.workers, `${worker.worker} ${name}`, worker.first, shares, this.end - kept);
      }
    }
  }
}

/** Puts steps from number `first` on behind the known ones, and forgets those before `oldest`. */
function merge(all, key, first, values, oldest) {
  const known = all.get(key);
  const start = Math.max(oldest, Math.min(known?.first ?? first, first));
  const merged = { first: start };
  for (const [name, list] of Object.entries(values)) {
    const earlier = known ? known[name].slice(Math.max(0, start - known.first), Math.max(0, first - known.first)) : [];
    merged[name] = earlier.concat(list.slice(Math.max(0, start - first)));
  }
  all.set(key, merged);
}
