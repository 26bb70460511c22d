//! How far a run is, what a session that has ended came to, and what to start first, as `status` and `top` say it.

use spdl_control::coordinator::{JobStatus, SessionStatus, SourceStatus, Status};

use super::is_live;
use crate::ctl::{
    audit::command,
    report::{count, duration_s, grouped, rounded},
};

/// What the samples of a job are called, and those that are bad.
#[derive(Clone, Copy)]
pub(crate) struct SampleWords {
    sample: [&'static str; 2],
    pub(super) bad: [&'static str; 2],
    /// Mean tokens of a sample, if samples are sequences.
    tokens: Option<f64>,
}

impl SampleWords {
    pub(crate) fn of(job: Option<&JobStatus>) -> Self {
        let Some((job, sequence)) = job.and_then(|job| Some((job, job.sequence?))) else {
            return Self { sample: ["sample", "samples"], bad: ["bad sample", "bad samples"], tokens: None };
        };
        let tokens = Some(sequence.tokens as f64 / job.samples.max(1) as f64);
        Self { sample: ["sequence", "sequences"], bad: ["bad document", "bad documents"], tokens }
    }

    /// Returns a number of samples.
    pub(crate) fn count(self, number: u64) -> String {
        count(number, self.sample[0], self.sample[1])
    }

    /// Returns a number of bad samples.
    pub(crate) fn bad(self, number: u64) -> String {
        count(number, self.bad[0], self.bad[1])
    }

    /// Returns the header of a column of rates.
    pub(crate) const fn header(self) -> &'static str {
        if self.are_sequences() { "SEQ/S" } else { "SAMPLES/S" }
    }

    /// Returns whether samples are sequences, each of several documents.
    pub(super) const fn are_sequences(self) -> bool {
        self.tokens.is_some()
    }

    /// Returns a rate: `37 sequences/s, 151 000 tokens/s`.
    pub(crate) fn rate(self, per_s: f64) -> String {
        let mut text = format!("{} {}/s", rounded(per_s), self.sample[1]);
        if let Some(tokens) = self.tokens {
            text.push_str(&format!(", {} tokens/s", rounded(per_s * tokens)));
        }
        text
    }
}

/// Says what the sequences of a job hold; `None` if its samples are none.
pub(crate) fn fill(job: &JobStatus) -> Option<String> {
    let sequence = job.sequence?;
    Some(format!(
        "sequences of {} tokens, {:.2} % full: {} of {}, {} of padding",
        grouped(sequence.seq_len.into()),
        100.0 * sequence.fill(),
        count(sequence.tokens, "token", "tokens"),
        count(sequence.documents, "document", "documents"),
        count(sequence.padding, "place", "places"),
    ))
}

/// Says what the sources of a job have given up to its position; `None` if it has one dataset.
pub(crate) fn sources(job: &JobStatus) -> Option<String> {
    let words = SampleWords::of(Some(job));
    let text = |of: &SourceStatus| {
        let (given, bad) = (words.count(of.samples), of.bad_sample_count);
        let text = format!("{given} of {}, {:.2} times through", of.name, of.times);
        match bad {
            0 => text,
            // Sequences are of other things than what is bad.
            _ if words.are_sequences() => format!("{text}, {}", words.bad(bad)),
            _ => format!("{text}, {} of it bad", grouped(bad)),
        }
    };
    let texts: Vec<String> = job.sources.iter().map(text).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Says what a source has given: `336 samples, 1.68 times through, 2 of it bad`.
pub(crate) fn source_text(of: &SourceStatus) -> String {
    let SourceStatus { samples, times, bad_sample_count, .. } = of;
    let bad = if *bad_sample_count > 0 { format!(", {} of it bad", grouped(*bad_sample_count)) } else { String::new() };
    format!("{}, {times:.2} times through{bad}", count(*samples, "sample", "samples"))
}

/// Says how far the run of a session that is live is, and how long the rest takes: `12 % done, 150 of 1 200 samples ...`.
pub(crate) fn progress(session: &SessionStatus, words: SampleWords) -> String {
    let progress = &session.progress;
    let mut text = format!(
        "{} done, {} of {}",
        percent_down(progress.done),
        grouped(progress.done_samples),
        words.count(progress.all_samples),
    );
    if progress.is_finished {
        return text;
    }
    text.push_str(&format!(
        "; epoch {} of {} at {}",
        grouped(progress.epoch),
        grouped(session.epochs),
        percent_down(progress.epoch_done)
    ));
    if let (Some(all_ms), Some(epoch_ms)) = (progress.left_ms, progress.epoch_left_ms) {
        let (all, epoch) = (duration_s(all_ms / 1_000), duration_s(epoch_ms / 1_000));
        text.push_str(&format!("; {all} left, {epoch} of this epoch"));
    }
    if let Some(rate) = progress.samples_per_s.filter(|_| words.are_sequences()) {
        text.push_str(&format!("; {}", words.rate(rate)));
    }
    text
}

/// Says what a session came to, or why it stands still; `None` while it is live, and where another one took its place.
pub(crate) fn summary(session: &SessionStatus, words: SampleWords) -> Option<String> {
    if is_live(session) || session.superseded_by.is_some() || session.is_reset {
        return None;
    }
    if !session.ranks.iter().all(|rank| rank.left) {
        return Some("its ranks are silent".to_owned());
    }
    let progress = &session.progress;
    let end = if progress.is_finished {
        "the run is finished"
    } else {
        &format!("it has ended before the run's last {}, and the next launch goes on from there", words.sample[0])
    };
    let mut text = format!("{end}: {}", words.count(progress.session_samples));
    if let (Some(lasted_ms), Some(rate)) = (session.lasted_ms, progress.mean_samples_per_s) {
        text.push_str(&format!(" in {}, {} a second", duration_s(lasted_ms / 1_000), rounded(rate)));
    }
    if let Some(waited) = progress.waited {
        text.push_str(&format!("; its ranks waited {:.0} % of that time", 100.0 * waited));
    }
    Some(format!("{text}; `{}` checks its receipt", command::of_run(&session.run)))
}

/// Says what to start where nothing has run yet: two lines for each step.
pub(crate) fn first_steps(status: &Status) -> Vec<String> {
    if status.first_steps.is_empty() {
        return Vec::new();
    }
    let steps = status.first_steps.iter().zip(1..).flat_map(|(step, number)| {
        let done = if step.is_done { " (done)" } else { "" };
        [format!("  {number}. {}{done}", step.text.trim_end_matches('.')), format!("       {}", step.command)]
    });
    std::iter::once("nothing runs here yet:".to_owned()).chain(steps).collect()
}

/// Formats the part of something that is done: `100 %` only when all is.
fn percent_down(part: f64) -> String {
    format!("{:.0} %", (100.0 * part).floor())
}
