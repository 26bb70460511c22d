//! What `spdl-ctl plan` says of the sequences of a job: how full they are, and what becomes of its documents.

use serde::Serialize;
use spdl_sequence::SequenceFill;
use spdl_types::Fingerprint;

use super::{CtlError, job_file::OpenJob, output::outln, report};

/// What becomes of the documents of a dataset of a job with `sequence`: in an epoch, or of a source among several once through.
#[derive(Debug, Serialize)]
pub(super) struct SequenceReport {
    /// The source, if the job has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    pools: Fingerprint,
    sequences: u64,
    documents: u64,
    tokens: u64,
    /// Share of the places that hold a token.
    fill: f64,
    padding: u64,
    /// Of a source, its tokens in a step, by its share in the first epoch.
    tokens_per_step: u64,
    /// Of jobs with `loss_from`: tokens that are learned; by chunk, with those that are in no sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    learned_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned_tokens_per_step: Option<u64>,
    /// Of jobs with `loss_from`: documents with tokens of which none is learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    unlearned_documents: Option<u64>,
    /// Tokens of documents that are cut, left out, or do not fill a sequence.
    lost_tokens: u64,
    cut_documents: u64,
    lost_documents: u64,
    empty_documents: u64,
}

impl SequenceReport {
    /// Returns those of all datasets of a job; none if its samples are no sequences.
    pub(super) fn of(open: &OpenJob) -> Vec<Self> {
        let names = open.job.datasets().into_iter().map(|dataset| dataset.source.map(str::to_owned));
        (0..).zip(names).filter_map(|(number, source)| Self::of_dataset(open, number, source)).collect()
    }

    fn of_dataset(open: &OpenJob, number: usize, source: Option<String>) -> Option<Self> {
        let table = open.datasets.iter().nth(number)?.evaluated.samples.sequences()?;
        let SequenceFill {
            sequences,
            tokens,
            lost_tokens,
            documents,
            empty_documents,
            cut_documents,
            lost_documents,
            ..
        } = table.fill();
        let learned = table.learned();
        // Of a step, a dataset alone gives all, and a source its share.
        let samples = open.job.samples.max(1);
        let given = if source.is_some() { open.job.samples_given(number, samples) } else { samples };
        let in_step = u128::from(open.job.global_batch).min(samples.into());
        let per_step = |tokens: u64| {
            let of_all = u128::from(tokens) * in_step / u128::from(sequences.max(1));
            (of_all * u128::from(given) / u128::from(samples)) as u64
        };
        Some(Self {
            source,
            pools: table.fingerprint(),
            sequences,
            documents,
            tokens,
            fill: table.fill().ratio(),
            padding: table.fill().padding(),
            tokens_per_step: per_step(tokens),
            learned_tokens: learned.map(|learned| learned.tokens),
            learned_tokens_per_step: learned.map(|learned| per_step(learned.tokens)),
            unlearned_documents: learned.map(|learned| learned.unlearned_documents),
            lost_tokens,
            cut_documents,
            lost_documents,
            empty_documents,
        })
    }

    pub(super) fn print(&self) -> Result<(), CtlError> {
        let counted = report::count;
        let (of, when) = match &self.source {
            Some(source) => (format!("packed {source}: "), "once through"),
            None => (String::new(), "in an epoch"),
        };
        outln!(
            "{of}{} of {} {when}; pools = \"{}\"",
            counted(self.tokens, "token", "tokens"),
            counted(self.documents - self.lost_documents - self.empty_documents, "document", "documents"),
            self.pools
        )?;
        outln!(
            "{of}sequences are {:.2} % full, {} of padding; {} in a step",
            100.0 * self.fill,
            counted(self.padding, "place", "places"),
            counted(self.tokens_per_step, "token", "tokens")
        )?;
        if let (Some(tokens), Some(in_step)) = (self.learned_tokens, self.learned_tokens_per_step) {
            let are_learned = counted(tokens, "token is", "tokens are");
            outln!("{of}{are_learned} learned {when}, and {} in a step", report::grouped(in_step))?;
        }
        if let Some(documents) = self.unlearned_documents.filter(|documents| *documents > 0) {
            outln!("{of}{} no token that is learned", counted(documents, "document has", "documents have"))?;
        }
        if self.cut_documents + self.lost_documents > 0 {
            outln!(
                "{of}{} are in no sequence: {} are cut, and {} left out",
                counted(self.lost_tokens, "token", "tokens"),
                counted(self.cut_documents, "document", "documents"),
                report::grouped(self.lost_documents)
            )?;
        } else if self.lost_tokens > 0 {
            outln!("{of}{} at the ends of pools are in no sequence", counted(self.lost_tokens, "token", "tokens"))?;
        }
        if self.empty_documents > 0 {
            outln!("{of}{} no token", counted(self.empty_documents, "document has", "documents have"))?;
        }
        Ok(())
    }
}
