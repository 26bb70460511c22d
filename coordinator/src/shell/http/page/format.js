// Numbers, times and names as people read them.

const NUMBER = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A count: `1,234,567`. */
export const count = (value) => NUMBER.format(Math.round(value ?? 0));

/** A rate or an amount with at most one decimal. */
export const amount = (value) => (value >= 100 ? count(value) : SHORT.format(value ?? 0));

/** A number of cores: two decimals of few, none of many. */
export const hundredths = (value) => (value < 10 ? value.toFixed(2) : amount(value));

/** A fraction as `12 %`. */
export const percent = (fraction) => `${Math.round(100 * (fraction ?? 0))} %`;

/** The part of something that is done as `99 %`: `100 %` only when all is. */
export const percentDown = (fraction) => `${Math.floor(100 * (fraction ?? 0))} %`;

/** Bytes as `1.5 MiB`. */
export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  const at = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${SHORT.format(value / 2 ** (10 * at))} ${units[at]}`;
}

/** Nanoseconds as `1.5 ms`. */
export function nanoseconds(value) {
  if (value < 1e6) return `${SHORT.format(value / 1e3)} µs`;
  return value < 1e9 ? `${SHORT.format(value / 1e6)} ms` : `${SHORT.format(value / 1e9)} s`;
}

/** Milliseconds as `2 d 3 h`, `5 min` or `7 s`. */
export function duration(ms) {
  const s = Math.floor(ms / 1e3);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A position in the stream: `2:4,096`. */
export const position = (at) => `${at.epoch}:${count(at.offset)}`;

/** A name from a list of fixed names: `store_latency` is `store latency`. */
export const words = (name) => name.replaceAll(/[_-]/g, " ");

/** What a session, or a run, is called: its job, and its run where that has another name. */
export const sessionName = (session) => (session.run === session.job ? session.job : `${session.job} / ${session.run}`);

/** What a sample of a job is called. */
export const sampleNoun = (job) => (job?.sequence ? "sequence" : "sample");

/** What the samples of a job hold, if they are sequences: the length of one, and how full they are. */
export function fillOf(job) {
  const { seq_len, tokens, documents, padding } = job.sequence;
  return [`of ${count(seq_len)} tokens`, `${SHORT.format((100 * tokens) / (tokens + padding))} % full: ${many(tokens, "token")} of ${many(documents, "document")}, ${many(padding, "place")} of padding`];
}

/** `1 rank`, `2 ranks`. */
export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
