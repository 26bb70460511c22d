//! The statistics that `pull` and `replay` add to the loader's own: digests, bad samples, and the trace of ids.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use spdl_client::{Batch, ContentDigest, Loader, RunReport, Source, State, Stats};
use spdl_insight::{Diagnosis, Transport};
use spdl_job::layout::entry_flags;
use spdl_order::Receipt;

use super::{
    CtlError,
    output::outln,
    plan::StepLine,
    report::{self, rounded},
};

/// How long the coordinator may take at the end of the command to report what limits the rank.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

/// The last line of `pull --json` and `replay --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PullReport {
    pub(crate) samples: u64,
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Samples per second since the first batch.
    pub(crate) images_per_s: f64,
    /// Tokens per second at that rate, if samples are sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_per_s: Option<f64>,
    pub(crate) first_batch_s: f64,
    pub(crate) wait_ms_p50: f64,
    pub(crate) wait_ms_p99: f64,
    /// Longest wait for a batch; for the first batch, joining included.
    pub(crate) wait_ms_max: u64,
    /// What limited the rank at the end, in a sentence; unknown if it ran for no more than a second or two.
    pub(crate) verdict: Option<String>,
    pub(crate) substituted: u64,
    pub(crate) masked: u64,
    pub(crate) transport: Transport,
    /// Where the next batch would start.
    pub(crate) position: String,
    /// The state for a checkpoint; `pull --state` starts from it.
    pub(crate) state: State,
    pub(crate) receipt: Receipt,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_digest: Option<ContentDigest>,
    /// What it came to, for `compare`.
    pub(crate) report: RunReport,
}

/// Collects the statistics of each batch.
#[derive(Default)]
pub(crate) struct PullTally {
    substituted: u64,
    masked: u64,
    longest_wait_ms: u64,
    digest: Option<ContentDigest>,
    trace: Option<(File, PathBuf)>,
}

impl PullTally {
    /// Creates a tally. `digest` computes a digest of all bytes; `trace` is a file for the sample ids of each batch.
    pub(crate) fn new(digest: bool, trace: Option<&Path>) -> Result<Self, CtlError> {
        let open = |path: &Path| match File::create(path) {
            Ok(file) => Ok((file, path.to_owned())),
            Err(source) => Err(CtlError::WriteFile { path: path.to_owned(), source }),
        };
        let trace = trace.map(open).transpose()?;
        Ok(Self { digest: digest.then(ContentDigest::default), trace, ..Self::default() })
    }

    /// Counts a batch and the wait for it. Writes its line of the trace at once and in one piece, so that the trace is
    /// complete however this process ends.
    pub(crate) fn batch(&mut self, batch: &Batch, waited: Duration) -> Result<(), CtlError> {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        self.longest_wait_ms = self.longest_wait_ms.max(waited_ms);
        for entry in batch.entries() {
            self.substituted += u64::from(entry.flags & entry_flags::SUBSTITUTED != 0);
            self.masked += u64::from(entry.flags & entry_flags::MASKED != 0);
        }
        if let Some(digest) = &mut self.digest {
            *digest += batch.content_digest();
        }
        if let Some((file, path)) = &mut self.trace {
            let header = batch.header();
            let (epoch, offset, rank) = (header.epoch, header.offset, header.rank);
            let valid = batch.entries().filter(|entry| entry.flags & entry_flags::INVALID == 0);
            let (ids, positions) = valid.map(|entry| (entry.id, [entry.epoch, entry.offset])).unzip();
            let line = StepLine {
                epoch,
                offset,
                rank,
                ids,
                records: Vec::new(),
                documents: Vec::new(),
                positions,
                waited_ms: Some(waited_ms),
            };
            let mut text = serde_json::to_string(&line).expect("plain data serialises");
            text.push('\n');
            file.write_all(text.as_bytes()).map_err(|source| CtlError::WriteFile { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Returns the report of a loader of this run when the command is done with it.
    pub(crate) async fn finish<S: Source>(self, loader: &Loader<S>, run: &str) -> PullReport {
        let stats = loader.stats();
        let job = loader.job();
        let mean_tokens = job.epoch_tokens() as f64 / job.samples.max(1) as f64;
        let found = tokio::time::timeout(DIAGNOSIS_TIMEOUT, loader.diagnoser().diagnose()).await;
        let found = found.ok().and_then(Result::ok).flatten();
        PullReport {
            samples: stats.samples,
            batches: stats.batches,
            bytes: stats.bytes,
            seconds: stats.elapsed_s,
            images_per_s: steady_rate(&stats),
            tokens_per_s: job.sequence.as_ref().map(|_| steady_rate(&stats) * mean_tokens),
            first_batch_s: stats.first_batch_s.unwrap_or_default(),
            wait_ms_p50: stats.wait_ms_p50,
            wait_ms_p99: stats.wait_ms_p99,
            wait_ms_max: self.longest_wait_ms,
            verdict: found.as_ref().map(Diagnosis::verdict),
            substituted: self.substituted,
            masked: self.masked,
            transport: stats.serving.transport.unwrap_or(Transport::InProcess),
            position: loader.position().to_string(),
            state: loader.state(),
            receipt: loader.receipt(),
            content_digest: self.digest,
            report: loader.report(run, found.as_ref()),
        }
    }
}

/// Returns the samples per second since the first batch. The start-up before it has its own statistic.
fn steady_rate(stats: &Stats) -> f64 {
    let (first_s, batches) = (stats.first_batch_s.unwrap_or_default(), stats.batches as f64);
    match stats.batches {
        0 | 1 => stats.samples as f64 / stats.elapsed_s,
        _ => stats.samples as f64 * (1.0 - 1.0 / batches) / (stats.elapsed_s - first_s),
    }
}

impl PullReport {
    /// Prints the report for people.
    pub(crate) fn print(&self) -> Result<(), CtlError> {
        outln!(
            "{} in {}, {}, {}",
            match self.tokens_per_s {
                None => report::count(self.samples, "sample", "samples"),
                Some(_) => report::count(self.samples, "sequence", "sequences"),
            },
            report::count(self.batches, "batch", "batches"),
            report::bytes(self.bytes),
            transport_name(self.transport)
        )?;
        let Self { images_per_s, seconds, first_batch_s, .. } = self;
        let rate = self.tokens_per_s.map_or_else(
            || format!("{images_per_s:.0} images/s"),
            |tokens| format!("{} sequences/s, {} tokens/s", rounded(*images_per_s), rounded(tokens)),
        );
        outln!("{rate} since the first batch, which came after {first_batch_s:.3} s of {seconds:.2} s")?;
        let Self { wait_ms_p50, wait_ms_p99, wait_ms_max, .. } = self;
        outln!("waiting for a batch: p50 {wait_ms_p50:.2} ms, p99 {wait_ms_p99:.2} ms, at most {wait_ms_max} ms")?;
        if let Some(verdict) = &self.verdict {
            outln!("{verdict}")?;
        }
        if self.substituted + self.masked > 0 {
            outln!("bad samples: {} substituted, {} masked", self.substituted, self.masked)?;
        }
        outln!("position {}  receipt {}", self.position, self.receipt)?;
        if let Some(digest) = &self.content_digest {
            outln!("content digest {digest}")?;
        }
        Ok(())
    }
}

/// Returns the name of a transport for people.
pub(crate) const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Local => "local",
        Transport::Quic => "quic",
        Transport::InProcess => "in process",
    }
}
