//! Finds the keys that several records of a shard have, in bounded memory.

use std::collections::BTreeMap;

use spdl_store::{TemporaryError, TemporaryFolder};
use xxhash_rust::xxh3::xxh3_64;

use super::DatasetError;
use crate::{
    sorter::{SortedItem, Sorter},
    tar::TarAnomaly,
};

/// Memory that keys take while they are sorted, in bytes; several shards are indexed at once.
const SORT_BYTES: usize = 2 << 20;

/// Collects the keys and fields of a shard's records.
#[derive(Debug)]
pub(super) struct KeyCollector {
    /// Sets of fields, by the hash of their records' keys.
    records: Sorter,
}

/// Records whose keys occurred before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepeatedKeys {
    /// Number of records.
    pub(super) count: u64,
    /// Number of the first one.
    pub(super) first: u32,
}

/// A set of fields by their numbers, as 64 bits; numbers that are equal modulo 64 share a bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(u64);

impl FieldSet {
    const fn is_disjoint(self, other: Self) -> bool {
        self.0 & other.0 == 0
    }
}

impl FromIterator<usize> for FieldSet {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        Self(numbers.into_iter().fold(0, |set, number| set | 1 << (number % 64)))
    }
}

impl KeyCollector {
    pub(super) fn new(temporary: &TemporaryFolder) -> Self {
        Self { records: Sorter::new(temporary, SORT_BYTES) }
    }

    /// Adds a record. Records come in the order of their numbers.
    pub(super) fn add(&mut self, number: u32, key: &str, fields: FieldSet) -> Result<(), TemporaryError> {
        let payload = [&number.to_le_bytes()[..], &fields.0.to_le_bytes()].concat();
        self.records.push(&xxh3_64(key.as_bytes()).to_be_bytes(), &payload)
    }

    /// Returns the records whose keys occurred before: other records, or parts of the same record.
    pub(super) fn repeated(self) -> Result<BTreeMap<TarAnomaly, RepeatedKeys>, DatasetError> {
        let mut found = BTreeMap::new();
        let (mut key, mut known) = (Vec::new(), FieldSet::default());
        for item in self.records.finish()?.iter()? {
            let SortedItem { key: next, payload } = item?;
            let (number, fields) = payload.split_first_chunk().expect("4 bytes");
            let number = u32::from_le_bytes(*number);
            let fields = FieldSet(u64::from_le_bytes(*fields.first_chunk().expect("8 bytes")));
            if key == next {
                let what = if known.is_disjoint(fields) { TarAnomaly::Torn } else { TarAnomaly::KeyTwice };
                let repeated = found.entry(what).or_insert(RepeatedKeys { count: 0, first: number });
                repeated.count += 1;
                repeated.first = repeated.first.min(number);
                known.0 |= fields.0;
            } else {
                (key, known) = (next, fields);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_occur_again_are_counted_with_the_first_that_does() {
        let mut keys = KeyCollector::new(&TemporaryFolder::of_system());
        let fields = |numbers: &[usize]| numbers.iter().copied().collect::<FieldSet>();
        for (number, (key, numbers)) in
            (0..).zip([("b", [0, 1]), ("a", [0, 1]), ("c", [1, 2]), ("b", [2, 3]), ("b", [3, 4]), ("a", [5, 6])])
        {
            keys.add(number, key, fields(&numbers)).unwrap();
        }
        let repeated = |count, first| RepeatedKeys { count, first };
        let expected = [(TarAnomaly::KeyTwice, repeated(1, 4)), (TarAnomaly::Torn, repeated(2, 3))];
        assert_eq!(keys.repeated().unwrap(), BTreeMap::from(expected));
    }
}
