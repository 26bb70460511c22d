//! The kind `tokens`: the ids of the tokens of a text, as many as it has; a ragged column.
//! In a job with sequences: the ids of a sequence.

use serde::{Deserialize, Serialize};

use super::{Kind, kind::keys};
use crate::{KeyProblem, check::MAX_SAMPLE_BYTES};
use spdl_types::{DType, SampleShape};

/// The most ids of a sample, if the job does not say it.
pub const DEFAULT_TOKENS: u32 = 1 << 20;
/// Upper limit of the size of a vocabulary: every type of a column holds the ids below it.
const MAX_VOCAB: u32 = 1 << 31;

keys! {
    /// The keys of a `tokens` column in a job file.
    TokensKeys {
        /// For tokens: the number of ids that the tokenizer has, 1 to 2147483648. A sample with an id below 0, or not below
        /// this number, is a bad sample. Default: none; a sample with an id that `dtype` cannot hold is a bad sample.
        vocab: Option<u32>,
        /// For tokens: the most ids of one sample, in a job without `sequence`. A sample with more is a bad sample. It reserves no
        /// memory. Default: 1048576.
        max_rows: Option<u32>,
    }
}

/// The ids of the tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokensColumn {
    /// The number of ids that there are, if that is known: they are 0 and more, and below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vocab: Option<u32>,
    /// The most ids of one sample, if samples are documents. One with more is a bad sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u32>,
    /// The ids of a sequence, if samples are sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq_len: Option<u32>,
}

impl TokensColumn {
    /// Makes samples sequences of `seq_len` ids.
    pub(crate) const fn pack(&mut self, seq_len: u32) {
        (self.max_rows, self.seq_len) = (None, Some(seq_len));
    }
}

impl Kind for TokensColumn {
    const NAME: &'static str = "tokens";
    const EXAMPLE: &'static str = "vocab = 1000\nmax_rows = 100";
    type Keys = TokensKeys;

    fn read(keys: &TokensKeys) -> Result<Self, KeyProblem> {
        let TokensKeys { vocab, max_rows } = *keys;
        Ok(Self { vocab, max_rows: Some(max_rows.unwrap_or(DEFAULT_TOKENS)), seq_len: None })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I32, DType::I64]
    }

    fn shape(&self) -> SampleShape {
        match (self.seq_len, self.max_rows) {
            (Some(seq_len), _) => SampleShape::Fixed(vec![seq_len]),
            (None, max_rows) => SampleShape::Rows { row: Vec::new(), max_rows: max_rows.unwrap_or(0) },
        }
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        let Self { vocab, max_rows, seq_len } = *self;
        if let Some(vocab) = vocab.filter(|vocab| !(1..=MAX_VOCAB).contains(vocab)) {
            return Err(("vocab", format!("is {vocab}, not in 1..={MAX_VOCAB}")));
        }
        match (max_rows, seq_len) {
            (Some(_), Some(_)) => return Err(("max_rows", "is for samples that are no sequences".to_owned())),
            (None, None) => return Err(("max_rows", "is missing".to_owned())),
            _ => {}
        }
        if !(1..=u64::from(MAX_SAMPLE_BYTES)).contains(&self.shape().max_bytes(dtype)) {
            let most = MAX_SAMPLE_BYTES as usize / dtype.bytes();
            return Err(("max_rows", format!("is {}, not in 1..={most}", max_rows.or(seq_len).unwrap_or(0))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{ColumnKind, Job, JobError, column::testing::job_of};

    fn job(keys: &str) -> Result<Job, JobError> {
        job_of("tokens", keys)
    }

    #[test]
    fn tokens_are_ragged_and_have_four_bytes_unless_the_job_wants_eight() {
        let column = &job("").unwrap().columns[0];
        assert_eq!(column.shape(), SampleShape::Rows { row: vec![], max_rows: 1 << 20 });
        assert_eq!((column.dtype, column.max_bytes()), (DType::I32, 4 << 20));
        let column = &job("dtype = \"i64\"\nmax_rows = 9\nvocab = 2147483648").unwrap().columns[0];
        assert_eq!((column.dtype, column.max_bytes()), (DType::I64, 72));
        assert_eq!(column.kind, ColumnKind::Tokens(TokensColumn { vocab: Some(1 << 31), max_rows: Some(9), seq_len: None }));
    }

    #[test]
    fn every_key_is_in_the_fingerprint_and_survives_storage() {
        let jobs = ["", "vocab = 1", "vocab = 2", "max_rows = 3", "dtype = \"i64\""].map(|keys| {
            let job = job(keys).unwrap();
            let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
            assert_eq!(back, job);
            job
        });
        let fingerprints: BTreeSet<_> = jobs.iter().map(|job| job.fingerprint().to_string()).collect();
        assert_eq!(fingerprints.len(), jobs.len());
    }

    #[test]
    fn a_key_that_makes_no_sense_is_named() {
        for (keys, expected) in [
            ("vocab = 0", "column `c`: `vocab` is 0, not in 1..=2147483648"),
            ("vocab = 2147483649", "column `c`: `vocab` is 2147483649, not in 1..=2147483648"),
            ("vocab = -1", "vocab expects a whole number from 0 to 4294967295, not -1"),
            ("vocab = \"50257\"", "vocab expects a whole number, not the text \"50257\"; leave out the quotes"),
            ("max_rows = 0", "column `c`: `max_rows` is 0, not in 1..=268435456"),
            ("max_rows = 134217729\ndtype = \"i64\"", "column `c`: `max_rows` is 134217729, not in 1..=134217728"),
            ("dtype = \"u16\"", "column `c`: `dtype` cannot be u16 for decode = \"tokens\""),
            ("shape = [4]", "`shape` is only for decode = \"tensor\""),
            ("default = 0", "`default` is only for"),
        ] {
            let error = job(keys).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_function_gets_the_ids_and_returns_as_many_or_what_it_declares() {
        let shape = |returns: &str| job(&format!("max_rows = 7\ntransform = \"a:b\"\n{returns}")).unwrap().columns[0].shape();
        assert_eq!(shape(""), SampleShape::Rows { row: vec![], max_rows: 7 });
        assert_eq!(shape("returns = { shape = [4] }"), SampleShape::Fixed(vec![4]));
    }

    #[test]
    fn tokens_of_a_peer_are_checked_like_those_of_a_file() {
        let mut job = job("").unwrap();
        let ColumnKind::Tokens(tokens) = &mut job.columns[0].kind else { panic!("{job:?}") };
        tokens.vocab = Some(u32::MAX);
        assert!(job.check().unwrap_err().to_string().contains("`vocab`"));
    }
}
