//! What a pulling command adds to the loader's own figures: digests, bad samples, and the trace of ids.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use spdl_client::{Batch, ContentDigest, Loader, Source};
use spdl_shard::Receipt;
use spdl_wire::{layout::entry_flags, messages::Transport};

use super::{CtlError, plan::StepLine, report};

/// The last line of `pull --json` and `replay --json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PullReport {
    pub(crate) samples: u64,
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) images_per_s: f64,
    pub(crate) first_batch_s: f64,
    pub(crate) wait_ms_p50: f64,
    pub(crate) wait_ms_p99: f64,
    pub(crate) substituted: u64,
    pub(crate) masked: u64,
    pub(crate) transport: Transport,
    /// Where the next batch would start: what a checkpoint would hold.
    pub(crate) position: String,
    pub(crate) receipt: Receipt,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_digest: Option<ContentDigest>,
}

/// Looks at each batch as it comes.
#[derive(Default)]
pub(crate) struct Tally {
    substituted: u64,
    masked: u64,
    digest: Option<ContentDigest>,
    trace: Option<(BufWriter<File>, PathBuf)>,
}

impl Tally {
    /// `digest`: sums a digest of every byte; `trace`: writes the ids of every batch there.
    pub(crate) fn new(digest: bool, trace: Option<&Path>) -> Result<Self, CtlError> {
        let open = |path: &Path| match File::create(path) {
            Ok(file) => Ok((BufWriter::new(file), path.to_owned())),
            Err(source) => Err(CtlError::WriteFile { path: path.to_owned(), source }),
        };
        let trace = trace.map(open).transpose()?;
        Ok(Self { digest: digest.then(ContentDigest::default), trace, ..Self::default() })
    }

    /// Counts a batch.
    pub(crate) fn batch(&mut self, batch: &Batch) -> Result<(), CtlError> {
        for entry in batch.entries() {
            self.substituted += u64::from(entry.flags & entry_flags::SUBSTITUTED != 0);
            self.masked += u64::from(entry.flags & entry_flags::MASKED != 0);
        }
        if let Some(digest) = &mut self.digest {
            *digest += batch.content_digest();
        }
        if let Some((file, path)) = &mut self.trace {
            let header = batch.header();
            let valid = batch.entries().filter(|entry| entry.flags & entry_flags::INVALID == 0);
            let ids = valid.map(|entry| entry.id).collect();
            let line = StepLine { epoch: header.epoch, offset: header.offset, rank: header.rank, ids };
            let text = serde_json::to_string(&line).expect("plain data serialises");
            writeln!(file, "{text}").map_err(|source| CtlError::WriteFile { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// The report of a loader that has done its part.
    pub(crate) fn finish<S: Source>(mut self, loader: &Loader<S>) -> Result<PullReport, CtlError> {
        if let Some((file, path)) = &mut self.trace {
            file.flush().map_err(|source| CtlError::WriteFile { path: path.clone(), source })?;
        }
        let stats = loader.stats();
        Ok(PullReport {
            samples: stats.samples,
            batches: stats.batches,
            bytes: stats.bytes,
            seconds: stats.elapsed_s,
            images_per_s: stats.samples as f64 / stats.elapsed_s,
            first_batch_s: stats.first_batch_s.unwrap_or_default(),
            wait_ms_p50: stats.wait_ms_p50,
            wait_ms_p99: stats.wait_ms_p99,
            substituted: self.substituted,
            masked: self.masked,
            transport: stats.serving.transport.unwrap_or(Transport::InProcess),
            position: loader.position().to_string(),
            receipt: loader.receipt(),
            content_digest: self.digest,
        })
    }
}

impl PullReport {
    /// Prints it for people.
    pub(crate) fn print(&self) {
        println!(
            "{} samples in {} batches, {}, {}",
            report::grouped(self.samples),
            report::grouped(self.batches),
            report::bytes(self.bytes),
            transport_name(self.transport)
        );
        let Self { images_per_s, seconds, first_batch_s, .. } = self;
        println!("{images_per_s:.0} images/s over {seconds:.2} s; first batch after {first_batch_s:.3} s");
        println!("waiting for a batch: p50 {:.2} ms, p99 {:.2} ms", self.wait_ms_p50, self.wait_ms_p99);
        if self.substituted + self.masked > 0 {
            println!("bad samples: {} substituted, {} masked", self.substituted, self.masked);
        }
        println!("position {}  receipt {}", self.position, self.receipt);
        if let Some(digest) = &self.content_digest {
            println!("content digest {digest}");
        }
    }
}

/// A transport, for people.
pub(crate) const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Local => "local",
        Transport::Quic => "quic",
        Transport::InProcess => "in process",
    }
}
