//! The `[sequence]` table of a job file: documents of tokens are packed into sequences of one length, and a sequence is a
//! sample of the job.

mod global_lengths;
mod labels;

use std::fmt;

use serde::{Deserialize, Serialize};
use spdl_sequence::{LongDocument, PackMethod, SEQUENCE_VERSION, SequenceParams};
use spdl_types::Fingerprint;

use super::{Column, ColumnKind, KeyProblem};
pub use labels::LabelRule;

/// Upper limit of the tokens of a sequence.
const MAX_SEQ_LEN: u32 = 1 << 24;
/// Upper limit of `align`.
const MAX_ALIGN: u32 = 256;
/// What `align` is if the job does not say it, and sequences are not shorter.
const DEFAULT_ALIGN: u32 = 16;
/// Upper limit of the tokens of a pool.
const MAX_POOL_TOKENS: u64 = 1 << 40;
/// Ids are below this number, so that every type of a column holds them.
const MAX_ID: u32 = 1 << 31;

/// The problem of a job that mixes sequences.
pub(super) const NO_MIX: &str = "is for pictures, and a job with `sequence` has none; leave one of both out";

/// Documents are packed into sequences of one length: each is a sample, and `global_batch` counts sequences. Such a job has
/// a column `tokens` and columns that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequenceFile {
    /// The tokens of a sequence, 1 to 16777216.
    pub seq_len: u32,
    /// How documents share sequences. Default: `best_fit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<SequenceMethod>,
    /// For `best_fit`: what happens to a document that is longer than a sequence. Default: `split`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongDocument>,
    /// For `best_fit`: the room of a document is a multiple of this number of tokens, a power of two up to 256 and at most
    /// `seq_len`. More changes from epoch to epoch who shares a sequence, and there is more padding. Default: 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub align: Option<u32>,
    /// For `best_fit`: the most documents of a sequence, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_documents: Option<u32>,
    /// Documents are packed with others of their pool: consecutive blocks with this number of tokens together, `seq_len`
    /// to 1099511627776. Larger pools have less padding, and a worker holds more lengths in memory. Default: 4194304, and
    /// at least 512 sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_tokens: Option<u64>,
    /// For `chunk`: whether a sequence is one text, in which labels and positions go on across the ends of documents.
    /// Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_documents: Option<bool>,
    /// The id that is put before each document, below 2147483648. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<u32>,
    /// The id that is put after each document, below 2147483648. Default: none; the documents have theirs, or need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<u32>,
    /// The id of places without a document, below 2147483648. No label and no mask depends on it. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pad: Option<u32>,
    /// Whether the id that `eos` puts after a document is learned. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos_in_loss: Option<bool>,
    /// For jobs of one `dataset`: the fingerprint of the table of pools, which `spdl-ctl plan` prints. Default: set when the job is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub pools: Option<Fingerprint>,
}

/// How documents share sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SequenceMethod {
    /// Whole documents, each where it leaves the least room; what no document fills is padding.
    #[default]
    BestFit,
    /// Documents end to end, cut into sequences: no padding, and most sequences begin within a document.
    Chunk,
}

/// How a job packs documents into sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// Version of the packing's algorithm.
    pub version: u32,
    /// The tokens of a sequence.
    pub seq_len: u32,
    /// How documents share sequences.
    pub packing: PackMethod,
    /// The least tokens of a pool, whose documents are packed together.
    pub pool_tokens: u64,
    /// Identifies the table of pools, with the number of sequences in each, or those of all sources.
    pub pools: Fingerprint,
    /// Number of documents, of all sources. Bad ones are counted among those that come.
    pub documents: u64,
    /// Number of tokens in all sequences, of all sources.
    pub tokens: u64,
    /// Whether labels and positions go on across the ends of documents.
    pub cross_documents: bool,
    /// The id before each document, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<u32>,
    /// The id after each document, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos: Option<u32>,
    /// The id of places without a document.
    pub pad: u32,
    /// Whether `eos` is learned.
    pub eos_in_loss: bool,
}

impl SequenceFile {
    /// Reads the table, with the defaults of keys that are left out.
    pub(super) fn read(&self) -> Result<Sequence, KeyProblem> {
        let method = self.method.unwrap_or_default();
        let of_best_fit = [
            ("long", self.long.is_some()),
            ("align", self.align.is_some()),
            ("max_documents", self.max_documents.is_some()),
        ];
        let of_chunk = [("cross_documents", self.cross_documents.is_some())];
        let (others, other) = match method {
            SequenceMethod::BestFit => (&of_chunk[..], "chunk"),
            SequenceMethod::Chunk => (&of_best_fit[..], "best_fit"),
        };
        if let Some((key, _)) = others.iter().find(|(_, is_there)| *is_there) {
            return Err((key, format!("is only for method = \"{other}\"")));
        }
        if self.eos_in_loss.is_some() && self.eos.is_none() {
            let problem = "needs `eos`: it is about the id that the job puts after each document";
            return Err(("eos_in_loss", problem.to_owned()));
        }
        let seq_len = self.seq_len;
        let mut sequence = Sequence {
            seq_len,
            version: SEQUENCE_VERSION,
            packing: match method {
                SequenceMethod::BestFit => PackMethod::BestFit {
                    align: self.align.unwrap_or_else(|| DEFAULT_ALIGN.min(1 << seq_len.max(1).ilog2())),
                    max_documents: self.max_documents,
                    long: self.long.unwrap_or_default(),
                },
                SequenceMethod::Chunk => PackMethod::Chunk,
            },
            cross_documents: method == SequenceMethod::Chunk && self.cross_documents.unwrap_or(true),
            pools: self.pools.unwrap_or(Fingerprint(0)),
            documents: 0,
            tokens: 0,
            pool_tokens: 0,
            bos: self.bos,
            eos: self.eos,
            pad: self.pad.unwrap_or(0),
            eos_in_loss: self.eos_in_loss.unwrap_or(true),
        };
        sequence.pool_tokens = self.pool_tokens.unwrap_or_else(|| sequence.params().default_pool_tokens());
        sequence.check_values()?;
        Ok(sequence)
    }
}

/// All in which the sequences of two jobs can differ.
impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq_len, packing, pool_tokens, cross_documents, pad, eos_in_loss, .. } = self;
        write!(f, "seq_len {seq_len}, ")?;
        match packing {
            PackMethod::BestFit { align, max_documents, long } => {
                let long = match long {
                    LongDocument::Split => "split",
                    LongDocument::Truncate => "truncate",
                    LongDocument::Drop => "drop",
                };
                write!(f, "best_fit, align {align}, long {long}")?;
                max_documents.map_or(Ok(()), |most| write!(f, ", max_documents {most}"))?;
            }
            PackMethod::Chunk => write!(f, "chunk, cross_documents {cross_documents}")?,
        }
        write!(f, ", pool_tokens {pool_tokens}")?;
        for (key, id) in [("bos", self.bos), ("eos", self.eos)] {
            id.map_or(Ok(()), |id| write!(f, ", {key} {id}"))?;
        }
        let Self { documents, tokens, pools, .. } = self;
        write!(f, ", pad {pad}, eos_in_loss {eos_in_loss}; {documents} documents, {tokens} tokens, pools {pools}")
    }
}

impl Sequence {
    /// Returns how many ids each document gets beside its own.
    #[must_use]
    pub const fn added_tokens(&self) -> u32 {
        self.bos.is_some() as u32 + self.eos.is_some() as u32
    }

    /// Returns what the places of tokens depend on, besides the lengths of documents.
    #[must_use]
    pub const fn params(&self) -> SequenceParams {
        let Self { version, seq_len, packing, .. } = *self;
        SequenceParams { version, seq_len, added_tokens: self.added_tokens(), method: packing }
    }

    /// Checks all values, each by itself.
    fn check_values(&self) -> Result<(), KeyProblem> {
        let Self { version, seq_len, packing, pool_tokens, cross_documents, bos, eos, pad, eos_in_loss, .. } = *self;
        if version != SEQUENCE_VERSION {
            return Err(("version", format!("is {version}, and this program knows {SEQUENCE_VERSION}")));
        }
        if !(1..=MAX_SEQ_LEN).contains(&seq_len) {
            return Err(("seq_len", format!("is {seq_len}, not in 1..={MAX_SEQ_LEN}")));
        }
        if let PackMethod::BestFit { align, max_documents, .. } = packing {
            if !align.is_power_of_two() || align > MAX_ALIGN {
                return Err(("align", format!("is {align}; it must be a power of two, 1 to {MAX_ALIGN}")));
            }
            if align > seq_len {
                return Err(("align", format!("is {align}, more than `seq_len`, which is {seq_len}")));
            }
            if max_documents == Some(0) {
                return Err(("max_documents", "is 0; it must be at least 1".to_owned()));
            }
        }
        if !(u64::from(seq_len)..=MAX_POOL_TOKENS).contains(&pool_tokens) {
            let problem = format!("is {pool_tokens}; it must be `seq_len`, which is {seq_len}, to {MAX_POOL_TOKENS}");
            return Err(("pool_tokens", problem));
        }
        for (key, id) in [("bos", bos), ("eos", eos), ("pad", Some(pad))] {
            if let Some(id) = id.filter(|id| *id >= MAX_ID) {
                return Err((key, format!("is {id}; ids are below {MAX_ID}")));
            }
        }
        if cross_documents && packing != PackMethod::Chunk {
            return Err(("cross_documents", "is only for method = \"chunk\"".to_owned()));
        }
        if eos.is_none() && !eos_in_loss {
            return Err(("eos_in_loss", "needs `eos`".to_owned()));
        }
        Ok(())
    }

    /// Checks all values, for a job with these columns.
    ///
    /// # Errors
    /// The key of the table that is wrong, and what is wrong with it.
    pub(super) fn check(&self, columns: &[Column]) -> Result<(), KeyProblem> {
        self.check_values()?;
        let is_tokens = |column: &&Column| matches!(column.kind, ColumnKind::Tokens(_));
        let Some(tokens) = columns.iter().find(is_tokens) else {
            let problem = "has no tokens to pack: add a column of decode = \"tokens\", or leave the table out";
            return Err(("seq_len", problem.to_owned()));
        };
        let ColumnKind::Tokens(kind) = &tokens.kind else { unreachable!("it was found by its kind") };
        if kind.seq_len != Some(self.seq_len) {
            let problem = format!("is {}, and column `{}` has another length", self.seq_len, tokens.name);
            return Err(("seq_len", problem));
        }
        for (key, id) in [("bos", self.bos), ("eos", self.eos), ("pad", Some(self.pad))] {
            if let (Some(id), Some(vocab)) = (id, kind.vocab)
                && id >= vocab
            {
                return Err((key, format!("is {id}, and `vocab` of column `{}` is {vocab}", tokens.name)));
            }
        }
        Ok(())
    }

    /// Checks that a column can be in a job with sequences, of which these are the columns.
    ///
    /// # Errors
    /// The key of the column that is wrong, and what is wrong with it.
    pub(super) fn check_column(column: &Column, columns: &[Column]) -> Result<(), KeyProblem> {
        if column.is_by_function() {
            let problem =
                "is not for a job with `sequence`, whose samples are several documents: leave the function out";
            return Err((if column.transform.is_some() { "transform" } else { "from" }, problem.to_owned()));
        }
        match &column.kind {
            ColumnKind::Tokens(_) => {
                let is_first = |other: &&Column| matches!(other.kind, ColumnKind::Tokens(_));
                match columns.iter().find(is_first) {
                    Some(first) if first.name != column.name => Err((
                        "decode",
                        format!(
                            "is `tokens`, as that of column `{}` is; a job with `sequence` has one such column",
                            first.name
                        ),
                    )),
                    _ => Ok(()),
                }
            }
            kind if !kind.reads_field() => labels::check_loss(column, columns),
            kind => Err(no_tokens(kind.name())),
        }
    }
}

/// Returns what is wrong with a column of this kind, which reads a field of a document.
pub(super) fn no_tokens(kind: &str) -> KeyProblem {
    let problem = format!(
        "is `{kind}`, and a sample of a job with `sequence` is several documents; such a job has `tokens` and columns that follow it"
    );
    ("decode", problem)
}

#[cfg(test)]
mod tests;
