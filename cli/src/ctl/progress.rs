//! The progress of a command: a bar for people, lines of JSON for programs, or nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::{CtlError, report};

/// Time between two lines of progress.
const LINE_INTERVAL: Duration = Duration::from_millis(200);

/// The progress of a command, in samples.
pub(crate) enum ProgressLine {
    Bar(ProgressBar),
    Lines { last: Instant },
    Quiet,
}

impl ProgressLine {
    /// Creates a bar of `length` samples on standard error, or a counter where the length is unknown.
    pub(crate) fn bar(length: Option<u64>, label: &'static str) -> Self {
        Self::Bar(length.map_or_else(
            || {
                let style = ProgressStyle::with_template("{msg:>16} {spinner} {human_pos:>7}  {per_sec}");
                ProgressBar::new_spinner().with_style(style.expect("the template is well formed")).with_message(label)
            },
            |length| samples_bar(false, length, label),
        ))
    }

    /// Creates progress as lines of JSON on standard output, at most one in [`LINE_INTERVAL`].
    pub(crate) fn lines() -> Self {
        Self::Lines { last: Instant::now() }
    }

    /// Shows the number of samples so far. A JSON line names the rank's home too.
    pub(crate) fn at(&mut self, samples: u64, home: impl FnOnce() -> Option<String>) -> Result<(), CtlError> {
        match self {
            Self::Bar(bar) => bar.set_position(samples),
            Self::Lines { last } if last.elapsed() >= LINE_INTERVAL => {
                report::json(&serde_json::json!({ "progress": samples, "home": home() }))?;
                *last = Instant::now();
            }
            Self::Lines { .. } | Self::Quiet => {}
        }
        Ok(())
    }

    /// Finishes the bar.
    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish();
        }
    }
}

/// Creates a bar of `length` samples on standard error; a hidden one if `quiet`.
pub(crate) fn samples_bar(quiet: bool, length: u64, label: &'static str) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>16} [{bar:30}] {human_pos:>7} / {human_len}  {per_sec}");
    let style = style.expect("the template is well formed").progress_chars("=> ");
    ProgressBar::new(length).with_style(style).with_message(label)
}

/// Creates a bar of `length` steps, each with a message, on standard error; a hidden one if `quiet`.
pub(crate) fn steps_bar(quiet: bool, length: u64) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("measuring [{bar:30}] {pos} / {len}  {msg}");
    let style = style.expect("the template is well formed").progress_chars("=> ");
    ProgressBar::new(length).with_style(style)
}

/// The progress of reading or writing a dataset: in records if their number is known, else in bytes.
pub(crate) struct DatasetBar(Option<ProgressBar>);

impl ProgressLine {
    /// Creates a bar for a dataset on standard error; none if `quiet`.
    pub(crate) fn of_dataset(quiet: bool, label: &'static str) -> DatasetBar {
        let template = "{msg:>16} [{bar:30}] {percent:>3} %";
        let style = ProgressStyle::with_template(template).expect("the template is well formed").progress_chars("=> ");
        DatasetBar((!quiet).then(|| ProgressBar::new(1).with_style(style).with_message(label)))
    }
}

impl DatasetBar {
    /// Shows the progress so far.
    pub(crate) fn dataset_at(&self, at: spdl_dataset::DatasetProgress) {
        let Some(bar) = &self.0 else { return };
        let (done, total) = match (at.total_records, at.total_bytes) {
            (Some(total), _) => (at.records, total),
            (None, Some(total)) => (at.bytes, total),
            (None, None) => return,
        };
        bar.set_length(total);
        bar.set_position(done);
    }
}

/// The progress of making tokens: documents, rates and the time left.
pub(crate) struct TokenLine {
    bar: Option<ProgressBar>,
    began: Instant,
}

impl TokenLine {
    /// Creates a bar on standard error; none if `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        let style = ProgressStyle::with_template("{prefix:>16} [{bar:20}] {percent:>3} %  {msg}");
        let style = style.expect("the template is well formed").progress_chars("=> ");
        Self { bar: (!quiet).then(|| ProgressBar::new(1).with_style(style)), began: Instant::now() }
    }

    /// Shows the progress so far.
    pub(crate) fn at(&self, at: spdl_dataset::TokenBuildProgress) {
        let Some(bar) = &self.bar else { return };
        bar.set_length(at.total_bytes);
        bar.set_position(at.bytes);
        if let Some((shards, all)) = at.shards {
            bar.set_prefix("writing");
            bar.set_message(format!("{} of {all} shards", report::grouped(shards)));
            return;
        }
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = at.new_bytes as f64 / seconds;
        let left = if rate > 0.0 {
            report::duration_s((at.total_bytes.saturating_sub(at.bytes) as f64 / rate) as u64)
        } else {
            "unknown time".to_owned()
        };
        bar.set_prefix("tokenizing");
        bar.set_message(format!(
            "{}  {} MB/s  {} tokens/s  {left} left",
            report::count(at.documents, "document", "documents"),
            report::rounded(rate / 1e6),
            report::rounded(at.new_tokens as f64 / seconds),
        ));
    }
}

impl Drop for TokenLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

impl Drop for DatasetBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish();
        }
    }
}
