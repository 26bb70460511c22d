//! What a pulling command shows on the way: a bar for people, lines of JSON for programs, or nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::{CtlError, report};

/// Time between two lines of progress.
const LINE_INTERVAL: Duration = Duration::from_millis(200);

/// A command's progress, in samples.
pub(crate) enum ProgressLine {
    Bar(ProgressBar),
    Lines { last: Instant },
    Quiet,
}

impl ProgressLine {
    /// A bar on standard error of `length` samples, or one that only counts where the length is not known.
    pub(crate) fn bar(length: Option<u64>, label: &'static str) -> Self {
        Self::Bar(length.map_or_else(
            || {
                let style = ProgressStyle::with_template("{msg:>16} {spinner} {human_pos:>7}  {per_sec}");
                ProgressBar::new_spinner().with_style(style.expect("the template is well formed")).with_message(label)
            },
            |length| samples_bar(false, length, label),
        ))
    }

    /// One line of JSON on standard output every now and then.
    pub(crate) fn lines() -> Self {
        Self::Lines { last: Instant::now() }
    }

    /// Shows that `samples` have come so far. A line names the rank's home, too.
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

    /// The end.
    pub(crate) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish();
        }
    }
}

/// A bar on standard error of `length` samples, unless `quiet`.
pub(crate) fn samples_bar(quiet: bool, length: u64, label: &'static str) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>16} [{bar:30}] {human_pos:>7} / {human_len}  {per_sec}");
    let style = style.expect("the template is well formed").progress_chars("=> ");
    ProgressBar::new(length).with_style(style).with_message(label)
}

/// The progress of reading or writing a dataset: in records where their number is known, else in bytes.
pub(crate) struct DatasetBar(Option<ProgressBar>);

impl ProgressLine {
    /// A bar on standard error, unless `quiet`.
    pub(crate) fn of_dataset(quiet: bool, label: &'static str) -> DatasetBar {
        let template = "{msg:>16} [{bar:30}] {percent:>3} %";
        let style = ProgressStyle::with_template(template).expect("the template is well formed").progress_chars("=> ");
        DatasetBar((!quiet).then(|| ProgressBar::new(1).with_style(style).with_message(label)))
    }
}

impl DatasetBar {
    /// So much is done.
    pub(crate) fn dataset_at(&self, at: spdl_shard::dataset::DatasetProgress) {
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

impl Drop for DatasetBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish();
        }
    }
}
