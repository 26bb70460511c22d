//! The samples that were not decoded: their bytes are fetched again, another sample takes their place, their entry stays
//! zero, or the job ends.

use std::sync::atomic::Ordering;

use spdl_feed::{BadSampleKind, BadSampleNote, Remedy};
use spdl_shard::format::ObjectRole;
use spdl_types::BadSample;

use super::sample::{BatchSample, Reason, Undecoded};
use crate::{
    feed::{FeedError, open::Feed},
    fetch::FetchError,
};

/// Returns what is decoded in place of a sample: the sample itself, once its bytes are fetched again because they were wrong, or
/// another one. `None` if its entry stays zero.
pub(super) fn remedy(feed: &Feed, undecoded: Undecoded) -> Result<Option<BatchSample>, FeedError> {
    let Undecoded { mut sample, key, reason } = undecoded;
    let shard = feed.datasets.shard_url(sample.block).to_owned();
    match reason {
        Reason::WrongBytes { field, expected, actual } => {
            if !sample.wrong.note(actual) {
                return Err(wrong_bytes(feed, &sample, key, field, [expected, actual]));
            }
            tracing::warn!(shard, key, field, "wrong bytes; fetching them again");
            Ok(Some(sample))
        }
        Reason::Awaited => unreachable!("another rank decodes it"),
        Reason::Malformed { field, .. } => unreachable!("field `{field}` is a bad sample's, with its column"),
        Reason::Damaged { field, problem, checksum } => {
            if !sample.wrong.note(checksum) {
                let (problem, attempts) = (problem.to_string(), sample.wrong.fetches);
                return Err(FetchError::Damaged { shard, key, field, problem, attempts }.into());
            }
            tracing::warn!(shard, key, field, %problem, "damaged bytes; fetching them again");
            Ok(Some(sample))
        }
        Reason::Bad(cause) => {
            let kind = cause.kind(feed.has_good.load(Ordering::Relaxed));
            remedy_of_bad(feed, &sample, key, cause.to_string(), &kind)
        }
        Reason::Quarantined { deaths } => {
            let cause = format!("the worker died {deaths} times in a row while it was being decoded");
            remedy_of_bad(feed, &sample, key, cause, &quarantined())
        }
    }
}

/// Returns the error of a sample whose bytes stay wrong, with its checksums in the index and in the store.
fn wrong_bytes(feed: &Feed, sample: &BatchSample, key: String, field: String, checksums: [u32; 2]) -> FeedError {
    let shard = feed.datasets.shard_url(sample.block).to_owned();
    let [expected, actual] = checksums;
    let object = feed.datasets.of(sample.block).shard_object();
    let requests = &feed.fetcher.requests;
    if let Some((object, [noted, found])) =
        object.and_then(|object| Some((object.name(), object.difference(requests)?)))
    {
        let checksum = |etag: String, crc32c: u32| {
            format!("{etag} and checksum {crc32c:08x} of field `{field}` of record `{key}`")
        };
        let (expected, actual) = (checksum(noted, expected), checksum(found, actual));
        return FetchError::Changed { shard: object, role: ObjectRole::Shard, expected, actual }.into();
    }
    FetchError::WrongBytes { shard, key, field, expected, actual, attempts: sample.wrong.fetches }.into()
}

/// Records a bad sample and returns its substitute, if the job's policy gives it one.
fn remedy_of_bad(
    feed: &Feed,
    sample: &BatchSample,
    key: String,
    cause: String,
    kind: &BadSampleKind,
) -> Result<Option<BatchSample>, FeedError> {
    let job = &feed.session.job;
    let shard = feed.datasets.shard_url(sample.block).to_owned();
    let remedy = spdl_feed::remedy(job.bad_samples, &feed.plan, sample.at, sample.attempts);
    let bad = BadSample {
        job: job.name.clone(),
        sample: sample.id,
        shard: shard.clone(),
        key: key.clone(),
        cause: cause.clone(),
    };
    let recorded = feed.decoding.bad.lock().record(job, feed.job_fingerprint, bad, kind);
    if let Some((note, bad)) = recorded.line {
        log_bad_sample(&note, &bad);
    }
    if remedy == Remedy::Fail {
        // The sample was recorded above, so that the coordinator learns of it and the job fails for its other
        // ranks, too.
        return Err(FeedError::BadSample { job: job.name.clone(), shard, key, cause });
    }
    recorded.verdict?;
    match remedy {
        Remedy::Substitute(located) => Ok(Some(sample.substitute(located))),
        Remedy::Mask => Ok(None),
        Remedy::Fail | Remedy::GiveUp => {
            let (job, attempts) = (job.name.clone(), sample.attempts);
            Err(FeedError::NoSubstitute { job, position: sample.at, attempts, cause })
        }
    }
}

/// Returns the kind of samples that are quarantined because they ended the worker.
fn quarantined() -> BadSampleKind {
    BadSampleKind::new("the worker died while it was being decoded".to_owned(), None)
}

/// Logs a distinct bad sample.
fn log_bad_sample(note: &BadSampleNote, bad: &BadSample) {
    let BadSample { sample, shard, key, cause, .. } = bad;
    let sample = sample.0;
    match note {
        BadSampleNote::First => tracing::warn!(sample, shard, key, cause, "bad sample"),
        BadSampleNote::Question { count, question } => {
            tracing::warn!(samples = count, "bad samples: {question}");
        }
        BadSampleNote::Many { count } => {
            tracing::warn!(samples = count, shard, key, cause, "bad samples of one kind, this one the last");
        }
        BadSampleNote::Another => tracing::debug!(sample, shard, key, cause, "bad sample"),
    }
}
