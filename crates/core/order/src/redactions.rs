//! Redactions: samples that are never delivered from a position of the stream on.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use spdl_types::{Fingerprint, SampleId};

/// Upper limit of the bytes that the encoded sets of one job take together. A sample alone takes one to three bytes in a dataset of a
/// few million samples per redacted sample, and a run of neighbours as many as a sample alone.
pub const MAX_REDACTED_BYTES: usize = 3 << 20;

/// Upper limit of the redactions of one job.
pub const MAX_REDACTIONS: usize = 256;

/// A set of samples by their ids, kept as runs of neighbours.
///
/// Its text is the hexadecimal form of one byte string, which lists the runs in ascending order. Each run is a number whose lowest bit
/// says whether it has more than one sample, and whose other bits are the ids between it and the run before; then, if it has more, the
/// number of samples less two. Numbers are LEB128. Equal sets have equal texts.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedSamples {
    /// The first id of each run, and the id after its last one.
    runs: Arc<[(u64, u64)]>,
    count: u64,
}

/// Samples that do not come from a sample of the training on: substitutes take their places, as those of bad samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redaction {
    /// The number of samples that come before, counted over all epochs, 0 or more than that of the redaction before.
    pub from: u64,
    /// The samples, as `spdl-ctl job redactions` prints them.
    pub samples: RedactedSamples,
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Why bytes are no set of samples.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the redacted samples are not readable: {problem}")]
pub struct RedactedSamplesError {
    problem: &'static str,
}

impl RedactedSamples {
    /// Returns the set of these samples, in any order.
    #[must_use]
    pub fn new(mut ids: Vec<SampleId>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for SampleId(id) in &ids {
            match runs.last_mut() {
                Some((_, end)) if end == id => *end += 1,
                _ => runs.push((*id, id.saturating_add(1))),
            }
        }
        Self::of_runs(runs)
    }

    fn of_runs(runs: Vec<(u64, u64)>) -> Self {
        let count = runs.iter().map(|(start, end)| end - start).sum();
        Self { runs: runs.into(), count }
    }

    /// Returns the number of samples.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.count
    }

    /// Returns whether the set has no sample.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a sample is in the set.
    #[must_use]
    pub fn contains(&self, SampleId(id): SampleId) -> bool {
        let after = self.runs.partition_point(|(start, _)| *start <= id);
        after.checked_sub(1).is_some_and(|run| id < self.runs[run].1)
    }

    /// Returns the number of samples with ids in a range.
    #[must_use]
    pub fn count_in(&self, ids: &std::ops::Range<u64>) -> u64 {
        let within = |(start, end): &(u64, u64)| (*end).min(ids.end).saturating_sub((*start).max(ids.start));
        self.runs.iter().map(within).sum()
    }

    /// Returns the id after the highest one; 0 of an empty set.
    #[must_use]
    pub fn id_bound(&self) -> u64 {
        self.runs.last().map_or(0, |(_, end)| *end)
    }

    /// Returns the samples of this set that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &[&Self]) -> Self {
        let mut left = self.runs.to_vec();
        for other in others {
            left = left.into_iter().flat_map(|run| other.gaps_in(run)).collect();
        }
        Self::of_runs(left)
    }

    /// Returns the parts of a run that are not in the set.
    fn gaps_in(&self, (start, end): (u64, u64)) -> Vec<(u64, u64)> {
        let first = self.runs.partition_point(|(_, end)| *end <= start);
        let inside = self.runs[first..].iter().take_while(|(from, _)| *from < end);
        let (mut next, mut gaps) = (start, Vec::new());
        for (from, to) in inside {
            if next < *from {
                gaps.push((next, *from));
            }
            next = *to;
        }
        if next < end {
            gaps.push((next, end));
        }
        gaps
    }

    /// Returns the samples of both sets.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut all = [&*self.runs, &*other.runs].concat();
        all.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match runs.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                _ => runs.push((start, end)),
            }
        }
        Self::of_runs(runs)
    }

    /// Returns the encoded set.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut next = 0;
        for (start, end) in &*self.runs {
            let length = end - start;
            put(&mut bytes, u128::from(start - next) << 1 | u128::from(length > 1));
            if length > 1 {
                put(&mut bytes, u128::from(length - 2));
            }
            next = end.saturating_add(1);
        }
        bytes
    }

    /// Reads an encoded set. Memory is at most 16 times the bytes.
    ///
    /// # Errors
    /// [`RedactedSamplesError`] if the bytes are no set, or too many.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, RedactedSamplesError> {
        let wrong = |problem| Err(RedactedSamplesError { problem });
        if bytes.len() > MAX_REDACTED_BYTES {
            return wrong("they are too many");
        }
        let all = bytes;
        let mut runs = Vec::new();
        let mut next = 0_u64;
        while !bytes.is_empty() {
            let Some(head) = take(&mut bytes) else { return wrong("they end early") };
            let more = if head & 1 == 1 { take(&mut bytes).map(|more| more.saturating_add(1)) } else { Some(0) };
            let Some(more) = more else { return wrong("they end early") };
            let start = u128::from(next) + (head >> 1);
            let (Ok(start), Ok(end)) = (u64::try_from(start), u64::try_from(start.saturating_add(more + 1))) else {
                return wrong("an id is too high");
            };
            let Some(after) = end.checked_add(1) else { return wrong("an id is too high") };
            runs.push((start, end));
            next = after;
        }
        let set = Self::of_runs(runs);
        if set.encode() != all { wrong("they are written in another way") } else { Ok(set) }
    }

    /// Returns the fingerprint of the set.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.encode())
    }
}

/// Appends a number as LEB128.
fn put(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number of at most 10 bytes from the front.
fn take(bytes: &mut &[u8]) -> Option<u128> {
    let length = bytes.iter().take(10).position(|byte| *byte < 128)? + 1;
    let (number, rest) = bytes.split_at(length);
    *bytes = rest;
    Some(number.iter().rev().fold(0, |number, byte| number << 7 | u128::from(byte & 127)))
}

impl schemars::JsonSchema for RedactedSamples {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RedactedSamples".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

impl std::fmt::Debug for RedactedSamples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedactedSamples").field("samples", &self.count).finish_non_exhaustive()
    }
}

impl Serialize for RedactedSamples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = self.encode();
        if !serializer.is_human_readable() {
            return serializer.serialize_bytes(&bytes);
        }
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]);
        serializer.serialize_str(&digits.map(char::from).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for RedactedSamples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Self::decode(&Vec::<u8>::deserialize(deserializer)?).map_err(D::Error::custom);
        }
        let text = String::deserialize(deserializer)?;
        let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes = pairs.iter().map(|[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect::<Option<Vec<u8>>>();
        let bytes = bytes.filter(|_| rest.is_empty());
        let bytes = bytes.ok_or_else(|| D::Error::custom("the redacted samples are not hexadecimal digits"))?;
        Self::decode(&bytes).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: &[u64]) -> RedactedSamples {
        RedactedSamples::new(ids.iter().copied().map(SampleId).collect())
    }

    #[test]
    fn a_set_has_the_samples_that_it_was_made_of_and_reads_back() {
        for ids in [&[][..], &[0], &[7, 3, 3, 4], &[0, 1, 2, 3, 90, 91, 1 << 40], &[u64::MAX - 2], &[5, 7, 9, 10]] {
            let made = set(ids);
            assert_eq!(RedactedSamples::decode(&made.encode()), Ok(made.clone()), "{ids:?}");
            let text = serde_json::to_string(&made).unwrap();
            assert_eq!(serde_json::from_str::<RedactedSamples>(&text).unwrap(), made, "{text}");
            let near: Vec<u64> = ids.iter().flat_map(|id| [id.saturating_sub(1), *id, id + 1]).collect();
            assert!(near.iter().all(|id| made.contains(SampleId(*id)) == ids.contains(id)), "{ids:?}");
            let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
            assert_eq!((made.len(), made.is_empty()), (distinct.len() as u64, ids.is_empty()));
            assert_eq!(made.id_bound(), distinct.last().map_or(0, |last| *last + 1));
        }
        assert_eq!(set(&[2, 3, 9]).count_in(&(3..9)), 1);
        assert_eq!(set(&[1, 2, 3, 4, 5, 8]).without(&[&set(&[0, 1, 3, 5, 6])]), set(&[2, 4, 8]));
        assert_eq!(set(&[1, 2, 5]).with(&set(&[2, 3, 4])), set(&[1, 2, 3, 4, 5]));
        assert_eq!(set(&[2, 9]).with(&set(&[3, 9])), set(&[2, 3, 9]));
        assert_eq!(set(&[2, 3, 9, 10]).without(&[&set(&[3]), &set(&[10, 11])]), set(&[2, 9]));
    }

    #[test]
    fn a_million_samples_of_a_thousand_million_fit_and_neighbours_take_almost_nothing() {
        let scattered: Vec<SampleId> =
            (0..1_000_000).map(|sample| SampleId(sample * 1000 + sample * sample % 997)).collect();
        assert!(RedactedSamples::new(scattered).encode().len() < MAX_REDACTED_BYTES);
        assert!(RedactedSamples::new((50..1_000_000).map(SampleId).collect()).encode().len() <= 4);
    }

    #[test]
    fn bytes_that_are_no_set_are_refused() {
        let problem = |bytes: &[u8]| RedactedSamples::decode(bytes).unwrap_err().problem;
        assert_eq!(problem(&[0x80]), "they end early");
        assert_eq!(problem(&[0x01]), "they end early");
        assert_eq!(problem(&[0x80, 0x00]), "they are written in another way");
        assert_eq!(problem(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x00]), "an id is too high");
        assert_eq!(problem(&vec![0; MAX_REDACTED_BYTES + 1]), "they are too many");
        assert!(serde_json::from_str::<RedactedSamples>("\"0g\"").is_err());
        assert!(serde_json::from_str::<RedactedSamples>("\"000\"").is_err());
    }
}
