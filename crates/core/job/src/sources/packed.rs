//! Sources of documents: each is packed into sequences by itself, as the `[sequence]` of the job says.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use spdl_order::source_seed;
use spdl_types::Fingerprint;

use super::JobSource;
use crate::{Column, ColumnKind, Job, JobError, JobFile, Sequence, check::wrong, decoded_columns};

/// How the documents of a source are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedSource {
    /// Identifies the table of its pools, with the number of sequences in each.
    pub pools: Fingerprint,
    /// Number of its documents.
    pub documents: u64,
    /// Number of tokens in all of its sequences.
    pub tokens: u64,
}

impl Sequence {
    /// Returns the sequences of a job with these sources: their pools together, and all documents and tokens that they have, whatever
    /// their weights are.
    pub(crate) fn of_sources(self, sources: &[JobSource]) -> Self {
        let packed = || sources.iter().filter_map(|source| source.packed);
        let pools: Vec<Fingerprint> = packed().map(|packed| packed.pools).collect();
        Self {
            pools: Fingerprint::of(&serde_json::to_vec(&pools).expect("plain data serialises")),
            documents: packed().map(|packed| packed.documents).fold(0, u64::saturating_add),
            tokens: packed().map(|packed| packed.tokens).fold(0, u64::saturating_add),
            ..self
        }
    }
}

impl JobFile {
    /// Checks what the file says of packing sources, as far as that is known without a dataset.
    pub(super) fn check_packed_sources(&self) -> Result<(), JobError> {
        let of_source =
            |name: &str, key: &str, problem: &str| Err(wrong(&self.name, format!("source `{name}`: `{key}`"), problem));
        if self.sequence.is_some_and(|sequence| sequence.pools.is_some()) {
            let problem = "is for jobs of one `dataset`; write `pools` in each `source`, which is packed by itself";
            return Err(wrong(&self.name, "`sequence.pools`", problem));
        }
        for source in &self.source {
            if self.sequence.is_none() && source.pools.is_some() {
                return of_source(&source.name, "pools", "is for jobs with `sequence`; leave it out");
            }
            if self.sequence.is_some() && source.view.as_ref().is_some_and(|view| view.sampling.is_some()) {
                let problem = "is for jobs without `sequence`, which has each document once; give each kind of documents a source of its own";
                return of_source(&source.name, "view.sampling", problem);
            }
        }
        Ok(())
    }

    /// Checks that the documents of all sources were packed, if the job has sequences.
    pub(super) fn check_pools_of_sources(&self) -> Result<(), JobError> {
        let is_left = |source: &&super::JobSourceFile| self.sequence.is_some() && source.pools.is_none();
        match self.source.iter().find(is_left) {
            Some(source) => {
                let problem =
                    "is not evaluated: `spdl-ctl job submit` does that, or set it to what `spdl-ctl plan` prints";
                Err(wrong(&self.name, format!("source `{}`: `pools`", source.name), problem))
            }
            None => Ok(()),
        }
    }
}

impl Job {
    /// Checks that the sources are packed if the job has sequences, and that these are of them.
    pub(super) fn check_packed(&self) -> Result<(), JobError> {
        let Self { name, sources, sequence, .. } = self;
        if let Some(source) = sources.iter().find(|source| source.packed.is_some() != sequence.is_some()) {
            let problem = "must be there in each source of a job with `sequence`, and in no other";
            return Err(wrong(name, format!("source `{}`: `packed`", source.name), problem));
        }
        match sequence {
            Some(sequence) if **sequence != sequence.of_sources(sources) => {
                Err(wrong(name, "`sequence.pools`", "are not those of the sources"))
            }
            _ => Ok(()),
        }
    }

    /// Iterates over the sources, with the ids of the samples that they give. Where samples are sequences, these are numbered on from
    /// source to source, and the ids of their documents are [others](Self::source_ids).
    pub fn sample_ids(&self) -> impl Iterator<Item = (&JobSource, Range<u64>)> {
        self.sources.iter().scan(0, |end, source| {
            let first = *end;
            *end += if source.packed.is_some() { source.samples } else { source.ids };
            Some((source, first..*end))
        })
    }

    /// Returns the seed of the stream of a dataset of the job: its only one, or that of source number `number`. It decides which documents
    /// share a sequence, too.
    #[must_use]
    pub fn dataset_seed(&self, number: usize) -> u64 {
        if self.sources.is_empty() { self.seed } else { source_seed(self.seed, number) }
    }

    /// Returns the number of lanes of all of its datasets' streams together.
    #[must_use]
    pub fn all_lanes(&self) -> u32 {
        let of_sources = self.sources.iter().map(|source| source.lanes).fold(0, u32::saturating_add);
        if self.sources.is_empty() { self.order.lanes } else { of_sources }
    }

    /// Returns the tokens of the sequences of an epoch, in round numbers if the job has several sources: as many as their sequences have
    /// on average. 0 if samples are no sequences.
    #[must_use]
    pub fn epoch_tokens(&self) -> u64 {
        if self.sources.is_empty() {
            return self.sequence.as_ref().map_or(0, |sequence| sequence.tokens);
        }
        let of_source = |(number, source): (usize, &JobSource)| {
            let (given, tokens) = (self.samples_given(number, self.samples), source.packed.map_or(0, |of| of.tokens));
            u128::from(given) * u128::from(tokens) / u128::from(source.samples.max(1))
        };
        u64::try_from(self.sources.iter().enumerate().map(of_source).sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// Returns the first column of tokens: which text an id means depends on the tokenizer of the dataset.
    #[must_use]
    pub fn column_of_tokens(&self) -> Option<&Column> {
        decoded_columns(&self.columns).find(|column| matches!(column.kind, ColumnKind::Tokens(_)))
    }

    /// Returns the error of a job with a column of tokens, of which two sources were tokenized with different tokenizers.
    #[must_use]
    pub fn other_tokenizers(&self, column: &Column, sources: [(&JobSource, String); 2]) -> JobError {
        let [(first, tokenizer), (other, another)] = sources;
        let problem = format!(
            "has ids of one tokenizer, and source `{}` was tokenized with {tokenizer} where source `{}` was with {another}: tokenize one \
             again with the tokenizer of the other, or leave one out",
            first.name, other.name
        );
        wrong(&self.name, format!("column `{}`", column.name), problem)
    }
}
