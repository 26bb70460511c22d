//! Compares the deliveries in the ranks' traces with those of a run without faults.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde::Deserialize;

/// The position of a sample in the stream: epoch and offset.
type SamplePosition = [u64; 2];

/// A line of a trace.
#[derive(Deserialize)]
struct TraceLine {
    ids: Vec<u64>,
    positions: Vec<SamplePosition>,
    waited_ms: u64,
}

/// The deliveries of all launches.
#[derive(Default)]
pub(super) struct Accounts {
    /// Deliveries before the last checkpoint.
    kept: Vec<(SamplePosition, u64)>,
    /// Deliveries to killed launches after their last checkpoint, which the trainer has lost.
    forgotten: Vec<(SamplePosition, u64)>,
    /// Number of those.
    pub(super) abandoned: u64,
    /// The longest wait of a rank for a batch, in any launch.
    pub(super) longest_wait_ms: u64,
}

/// The result of the comparison.
#[derive(Debug)]
pub(super) struct Balance {
    /// Number of deliveries that were kept.
    pub(super) delivered: u64,
    /// Samples of the run without faults that were not delivered.
    pub(super) lost: u64,
    /// Deliveries beyond the first at a position, or of another sample than the run without faults delivers there.
    pub(super) repeated: u64,
    /// Deliveries to killed launches that are not what the run without faults delivers there.
    pub(super) unlike: u64,
}

impl Accounts {
    /// Counts the trace of a rank that reached a checkpoint.
    pub(super) fn keep(&mut self, trace: &Path) {
        let deliveries = self.read(trace);
        self.kept.extend(deliveries);
    }

    /// Counts the trace of a rank that did not reach a checkpoint.
    pub(super) fn abandon(&mut self, trace: &Path) {
        let deliveries = self.read(trace);
        self.abandoned += deliveries.len() as u64;
        self.forgotten.extend(deliveries);
    }

    fn read(&mut self, trace: &Path) -> Vec<(SamplePosition, u64)> {
        // A rank that was killed before it joined has no trace.
        let Ok(file) = File::open(trace) else { return Vec::new() };
        let mut deliveries = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.expect("a trace can be read");
            let line: TraceLine = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"));
            assert_eq!(line.ids.len(), line.positions.len(), "every id has a position");
            self.longest_wait_ms = self.longest_wait_ms.max(line.waited_ms);
            deliveries.extend(line.positions.into_iter().zip(line.ids));
        }
        deliveries
    }

    /// Compares the deliveries with the trace of a run without faults of the same length.
    pub(super) fn balance(&self, undisturbed: &Path) -> Balance {
        let due: HashMap<SamplePosition, u64> = Self::default().read(undisturbed).into_iter().collect();
        let mut times: HashMap<(SamplePosition, u64), u64> = HashMap::new();
        for delivery in &self.kept {
            *times.entry(*delivery).or_default() += 1;
        }
        let lost = due.iter().filter(|(place, id)| !times.contains_key(&(**place, **id))).count();
        let once = due.len() - lost;
        let unlike = self.forgotten.iter().filter(|(place, id)| due.get(place) != Some(id)).count();
        Balance {
            delivered: self.kept.len() as u64,
            lost: lost as u64,
            repeated: (self.kept.len() - once) as u64,
            unlike: unlike as u64,
        }
    }
}
