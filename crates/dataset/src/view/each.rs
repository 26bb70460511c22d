//! The records that `most_of_each` keeps: some of each value of a field.

use std::collections::{BinaryHeap, HashMap};

use super::{block::KeptRecord, keys::MAX_HASHES};
use crate::DatasetError;

/// A record by its place among those of its value, with its first sample and the number of its samples.
type PlacedRecord = (u64, u64, u32);

/// Keeps the records of the lowest places of each value.
pub(super) struct MostOfEach {
    most: usize,
    /// Of each value the records that are kept, the one of the highest place first.
    values: HashMap<u128, BinaryHeap<PlacedRecord>>,
    /// The records without a value: their first sample and the number of their samples.
    others: Vec<(u64, u32)>,
    kept: usize,
}

impl MostOfEach {
    pub(super) fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { most, values: HashMap::new(), others: Vec::new(), kept: 0 }
    }

    /// Adds a record, in place of another one of its value if there are enough.
    pub(super) fn add(&mut self, record: &KeptRecord) -> Result<(), DatasetError> {
        self.kept += 1;
        match record.of_each {
            None => self.others.push((record.first_sample, record.samples)),
            Some((value, place)) => {
                let records = self.values.entry(value).or_default();
                records.push((place, record.first_sample, record.samples));
                if records.len() > self.most {
                    records.pop();
                    self.kept -= 1;
                }
            }
        }
        if self.kept > MAX_HASHES {
            let problem = format!("keeps more than {MAX_HASHES} records; a smaller number, or `fraction`, keeps fewer");
            return Err(DatasetError::View { key: "most_of_each", problem });
        }
        Ok(())
    }

    /// Returns what is kept, in the order of the dataset: for each record its first sample, and the number of its samples.
    pub(super) fn finish(self) -> Vec<(u64, u32)> {
        let of_values = self.values.into_values().flatten().map(|(_, first_sample, samples)| (first_sample, samples));
        let mut kept: Vec<(u64, u32)> = of_values.chain(self.others).collect();
        kept.sort_unstable();
        kept
    }
}
