//! The digest of a Python function's source, by which workers with different versions of the function are noticed.

use std::fmt;

use serde::{Deserialize, Serialize};
use spdl_types::RustFunction;

use super::{Callable, Column, ColumnKind, Job, JobFile};
use spdl_types::Fingerprint;

/// The BLAKE2b-128 digest of the source that a Python function was imported from. The program that imports it computes the
/// digest. It guards against mistakes, not against forgery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceDigest(#[serde(with = "spdl_types::hex128")] pub u128);

impl fmt::Display for SourceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for SourceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl JobFile {
    /// Returns the Python functions that the job calls, each with the digest of its source, which may be set.
    pub fn sources(&mut self) -> impl Iterator<Item = (&str, &mut Option<SourceDigest>)> {
        let columns = self.column.iter_mut();
        let of_columns = columns.filter_map(|column| Some((column.transform.as_deref()?, &mut column.source_digest)));
        let functions = self.function.iter_mut();
        let of_functions = functions.map(|function| (function.call.as_str(), &mut function.source_digest));
        of_columns.chain(of_functions).filter(|(name, _)| RustFunction::parse(name).is_none())
    }
}

impl Job {
    /// Returns whether a checkpoint with this fingerprint is of this job. The fingerprint may lack the digests of the
    /// functions' sources, which may have been unknown where the checkpoint was written.
    #[must_use]
    pub fn is_identified_by(&self, fingerprint: Fingerprint) -> bool {
        fingerprint == self.fingerprint() || {
            let mut plain = self.clone();
            plain.callables().for_each(|callable| callable.source = None);
            fingerprint == plain.fingerprint()
        }
    }

    /// Returns whether the other job is the same one, whatever it was before. A digest that only one of the two has makes no difference:
    /// the other job was created where the function's source is not known.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let (mut one, other) = self.with_common_sources(other);
        one.earlier.clone_from(&other.earlier);
        one == other
    }

    /// Returns both jobs without the digests that only one of them has.
    #[must_use]
    pub fn with_common_sources(&self, other: &Self) -> (Self, Self) {
        let (mut one, mut other) = (self.clone(), other.clone());
        for (one, other) in one.callables().zip(other.callables()) {
            if one.source.is_none() || other.source.is_none() {
                (one.source, other.source) = (None, None);
            }
        }
        (one, other)
    }

    /// Returns what the job calls. A function that returns several columns comes once for each of them.
    fn callables(&mut self) -> impl Iterator<Item = &mut Callable> {
        self.columns.iter_mut().filter_map(Column::callable_mut)
    }
}

impl Column {
    /// Returns the user's function that makes the column's values, if there is one.
    pub const fn callable_mut(&mut self) -> Option<&mut Callable> {
        match (&mut self.transform, &mut self.kind) {
            (Some(transform), _) => Some(&mut transform.function),
            (None, ColumnKind::Returned(returned)) => Some(&mut returned.call.function),
            (None, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use spdl_order::DatasetFacts;

    use super::*;

    const JOB: &str = "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n\
        [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\ntransform = \"a:b\"\n\
        [[function]]\ncall = \"a:c\"\nfields = [\"txt\"]\nreturns = [{ name = \"x\", max_bytes = 5 }, { name = \"y\", max_bytes = 5 }]\n";

    /// Returns the job whose functions have these digests.
    fn job(digests: [Option<u128>; 2]) -> Job {
        let mut file = JobFile::parse(JOB, "job.toml").unwrap();
        for ((_, source), digest) in file.sources().zip(digests) {
            *source = digest.map(SourceDigest);
        }
        // A job file travels as its text.
        let text = toml::to_string(&file).unwrap();
        let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts)).unwrap()
    }

    #[test]
    fn the_digests_are_part_of_the_fingerprint_where_there_are_any() {
        let (plain, first) = (job([None; 2]), job([Some(1), Some(2)]));
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&first).unwrap()).unwrap();
        assert_eq!((back.fingerprint(), &back), (first.fingerprint(), &first));
        assert!(!serde_json::to_string(&plain).unwrap().contains("source"));
        for other in [[None; 2], [Some(1), None], [None, Some(2)], [Some(3), Some(2)], [Some(1), Some(3)]].map(job) {
            assert_ne!(first.fingerprint(), other.fingerprint(), "{other:?}");
        }
        first.check().unwrap();
    }

    #[test]
    fn a_checkpoint_without_digests_is_of_the_job_and_one_with_others_is_not() {
        let (plain, first, second) = (job([None; 2]), job([Some(1), Some(2)]), job([Some(1), Some(3)]));
        assert!(first.is_identified_by(first.fingerprint()) && first.is_identified_by(plain.fingerprint()));
        assert!(!first.is_identified_by(second.fingerprint()) && !plain.is_identified_by(first.fingerprint()));
        let other = Job { seed: 9, ..plain };
        assert!(!first.is_identified_by(other.fingerprint()));
    }

    #[test]
    fn a_digest_that_only_one_of_two_jobs_has_makes_no_difference() {
        let (plain, first, second) = (job([None; 2]), job([Some(1), Some(2)]), job([Some(1), Some(3)]));
        assert!(first.is_same_as(&plain) && plain.is_same_as(&first) && first.is_same_as(&job([Some(1), None])));
        assert!(!first.is_same_as(&second) && !first.is_same_as(&Job { seed: 9, ..plain }));
    }

    #[test]
    fn a_digest_that_is_none_or_alone_is_refused() {
        let error = |text: &str| {
            let file = JobFile::parse(text, "job.toml");
            file.and_then(|file| file.check().map(drop)).unwrap_err().to_string()
        };
        let wrong = error(&JOB.replace("\"a:b\"", "\"a:b\"\nsource_digest = \"x\""));
        assert!(wrong.contains("`x` is not 32 hex digits"), "{wrong}");
        let alone = error(&JOB.replace("transform = \"a:b\"", "source_digest = \"7\""));
        assert!(alone.contains("`source_digest` is only for a column with `transform`"), "{alone}");
    }
}
