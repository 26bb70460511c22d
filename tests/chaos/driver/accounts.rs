//! What the ranks wrote down that they were handed, against what an undisturbed run hands over.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde::Deserialize;

/// Where in the stream a sample lies: epoch and offset.
type Place = [u64; 2];

/// A line of a trace.
#[derive(Deserialize)]
struct Line {
    ids: Vec<u64>,
    positions: Vec<Place>,
    waited_ms: u64,
}

/// What was delivered.
#[derive(Default)]
pub(super) struct Accounts {
    /// In the history that the checkpoints hold: every delivery.
    kept: Vec<(Place, u64)>,
    /// After the last checkpoint of launches that were killed: the trainer forgot them.
    forgotten: Vec<(Place, u64)>,
    /// How many those are.
    pub(super) abandoned: u64,
    /// The longest that a rank waited for a batch, in any launch.
    pub(super) longest_wait_ms: u64,
}

/// The outcome.
#[derive(Debug)]
pub(super) struct Balance {
    /// Samples of the kept history.
    pub(super) delivered: u64,
    /// Samples of the undisturbed run that it lacks.
    pub(super) lost: u64,
    /// Deliveries beyond the first of a place, or of what an undisturbed run does not deliver there.
    pub(super) repeated: u64,
    /// Forgotten deliveries that are not what an undisturbed run delivers there.
    pub(super) unlike: u64,
}

impl Accounts {
    /// Counts the trace of a rank that came to a checkpoint.
    pub(super) fn keep(&mut self, trace: &Path) {
        let deliveries = self.read(trace);
        self.kept.extend(deliveries);
    }

    /// Counts the trace of a rank that did not.
    pub(super) fn abandon(&mut self, trace: &Path) {
        let deliveries = self.read(trace);
        self.abandoned += deliveries.len() as u64;
        self.forgotten.extend(deliveries);
    }

    fn read(&mut self, trace: &Path) -> Vec<(Place, u64)> {
        // A rank that was killed before it joined has written none.
        let Ok(file) = File::open(trace) else { return Vec::new() };
        let mut deliveries = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line.expect("a trace can be read");
            let line: Line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"));
            assert_eq!(line.ids.len(), line.positions.len(), "every id has a position");
            self.longest_wait_ms = self.longest_wait_ms.max(line.waited_ms);
            deliveries.extend(line.positions.into_iter().zip(line.ids));
        }
        deliveries
    }

    /// Compares with the trace of an undisturbed run as long as the kept history.
    pub(super) fn balance(&self, undisturbed: &Path) -> Balance {
        let due: HashMap<Place, u64> = Self::default().read(undisturbed).into_iter().collect();
        let mut times: HashMap<(Place, u64), u64> = HashMap::new();
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
